"""How assets are cut by time, and what a run's partitions mean as a span.

No asset is defined here.
"""

from dataclasses import dataclass
from datetime import timedelta

import dagster as dg

from pipelines.settings import Settings
from pipelines.store import Span

ONE_RUN = dg.BackfillPolicy.single_run()
"""Any range of partitions is one run: a run costs seconds, a partition milliseconds."""


@dataclass(frozen=True)
class Partitions:
    """The partitions of one installation.

    Attributes:
        hourly: Data; `as_of` is the end of a partition.
        daily: Jobs and labels.
    """

    hourly: dg.HourlyPartitionsDefinition
    daily: dg.DailyPartitionsDefinition


def partitions_of(settings: Settings) -> Partitions:
    """Hours and days from the start of the record, UTC."""
    day = settings.start.replace(hour=0)
    return Partitions(
        dg.HourlyPartitionsDefinition(start_date=settings.start, end_date=settings.end),
        dg.DailyPartitionsDefinition(start_date=day, end_date=settings.end),
    )


def trailing(window: timedelta) -> dg.TimeWindowPartitionMapping:
    """Maps an hour to itself and the hours of the window before its end."""
    hours = -(-window // timedelta(hours=1))
    return dg.TimeWindowPartitionMapping(
        start_offset=-(hours - 1), allow_nonexistent_upstream_partitions=True
    )


def run_span(context: dg.AssetExecutionContext) -> Span:
    """The span of the run's partitions."""
    window = context.partition_time_window
    return Span(window.start, window.end)
