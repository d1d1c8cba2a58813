"""How assets are cut by time, and what a run's partitions mean as a span.

No asset is defined here.
"""

import math
from dataclasses import dataclass
from datetime import UTC, timedelta

import dagster as dg

from pipelines.settings import Settings
from pipelines.storage.store import Span

ONE_RUN = dg.BackfillPolicy.single_run()
"""Any range of partitions is one run: a run costs seconds, a partition milliseconds."""


@dataclass(frozen=True)
class Partitions:
    """The partitions of one installation.

    Attributes:
        data: Data, hourly unless the settings say daily; files are hourly in any case, and
            `as_of` is the end of an hour.
        daily: Jobs and labels.
        step: Length of a data partition.
    """

    data: dg.TimeWindowPartitionsDefinition
    daily: dg.DailyPartitionsDefinition
    step: timedelta

    def trailing(self, window: timedelta) -> dg.TimeWindowPartitionMapping:
        """Maps a data partition to itself and those that reach `window` before each of its hours.

        Args:
            window: How far before an `as_of` the consumer looks.
        """
        # The first as_of of a partition is one hour after its start.
        before = max(timedelta(0), window - timedelta(hours=1))
        return dg.TimeWindowPartitionMapping(
            start_offset=-math.ceil(before / self.step), allow_nonexistent_upstream_partitions=True
        )


def partitions_of(settings: Settings) -> Partitions:
    """Data partitions and days from the start of the record, UTC."""
    start = settings.start.astimezone(UTC)
    end = settings.end.astimezone(UTC) if settings.end else None
    daily = dg.DailyPartitionsDefinition(start_date=start.replace(hour=0), end_date=end)
    if settings.data_partition == "day":
        return Partitions(daily, daily, timedelta(days=1))
    hourly = dg.HourlyPartitionsDefinition(start_date=start, end_date=end)
    return Partitions(hourly, daily, timedelta(hours=1))


def run_span(context: dg.AssetExecutionContext) -> Span:
    """The span of the run's partitions."""
    window = context.partition_time_window
    return Span(window.start, window.end)
