"""Schedules: the site's records every hour, the daily and the weekly work, in the site's own time.

Which days are due is decided in `pipelines.orchestration.day_plan`; hours are made by
`pipelines.defs.hourly`.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from features.contracts import TableContract
from features.tables import CORE_COVERAGE, LABELS
from pipelines.defs.hourly import asset_keys, failed_runs, limits, partition_tags, selected
from pipelines.defs.raw import WHOLE
from pipelines.defs.resources import Installation
from pipelines.landing.ingest_run import STATIC_TABLES
from pipelines.orchestration.day_plan import DAY, can_train, coverage_days, label_days
from pipelines.orchestration.hour_plan import Failed
from pipelines.orchestration.hour_state import stored_starts, whole_until
from pipelines.sections.schedule import ScheduleSettings
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

RECORD_KEYS: Final = (
    *WHOLE,
    *STATIC_TABLES,
    "core/jobs",
    "core/node_states",
    "core/training_metrics",
)
DAY_KEYS: Final = ("features/labels", "core/coverage")
_CRON_DAYS: Final = {
    "sunday": 0,
    "monday": 1,
    "tuesday": 2,
    "wednesday": 3,
    "thursday": 4,
    "friday": 5,
    "saturday": 6,
}
_SLACK: Final = timedelta(hours=2)
"""More than a change of clocks: what is this much later than its successor is out of date."""

Requests = Iterator[dg.RunRequest | dg.SkipReason]


def records_job(settings: Settings) -> UnresolvedAssetJobDefinition:
    """The job that reads what has no partitions: jobs, node states, stays, places."""
    return dg.define_asset_job(
        "records",
        selection=selected(RECORD_KEYS),
        tags=limits(settings),
        description="Jobs, node states, devices, places and plans, as the site has them now.",
    )


def daily_job(settings: Settings, *, whole: Sequence[str]) -> UnresolvedAssetJobDefinition:
    """The job of what is made once a day.

    Args:
        settings: How long a run may take.
        whole: Assets without partitions that belong to it.
    """
    return dg.define_asset_job(
        "daily",
        selection=selected((*DAY_KEYS, *whole)),
        tags=limits(settings),
        description="Labels and coverage of days that are over, outcomes, drift, housekeeping.",
    )


def training_job(settings: Settings) -> UnresolvedAssetJobDefinition:
    """The job that trains."""
    return dg.define_asset_job(
        "training",
        selection=selected(("models/candidate",)),
        tags=limits(settings),
        description="Trains a candidate per horizon; the gate decides whether it takes over.",
    )


def records_schedule(
    job: UnresolvedAssetJobDefinition, settings: Settings, *, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Reads the site's records every hour, before the hour's telemetry has settled."""
    minute = int(settings.serving.settle_minutes // 2)

    @dg.schedule(
        job=job,
        name="records",
        cron_schedule=f"{minute} * * * *",
        default_status=status,
        description="Reads jobs, node states, devices, places and plans anew.",
    )
    def records(context: dg.ScheduleEvaluationContext, installation: Installation) -> Requests:
        at = context.scheduled_execution_time
        if is_outdated(at, installation.now, every=timedelta(hours=1), slack=timedelta(0)):
            yield dg.SkipReason("a later one is due")
            return
        yield dg.RunRequest(run_key=f"{at:%Y-%m-%dT%H:%M}")

    return records


def daily_schedule(
    job: UnresolvedAssetJobDefinition,
    chosen: ScheduleSettings,
    *,
    whole: Sequence[str],
    status: dg.DefaultScheduleStatus,
) -> dg.ScheduleDefinition:
    """The daily work, at an hour of the site's own day.

    Args:
        job: `daily`.
        chosen: When.
        whole: Assets without partitions that belong to it.
        status: Whether it is on before a person has said anything.
    """

    @dg.schedule(
        job=job,
        name="daily",
        cron_schedule=f"0 {chosen.daily_hour} * * *",
        execution_timezone=chosen.time_zone,
        default_status=status,
        description="Labels days whose outcome is known, counts coverage, judges alerts, looks "
        "for drift, removes what is over.",
    )
    def daily(context: dg.ScheduleEvaluationContext, installation: Installation) -> Requests:
        at = context.scheduled_execution_time
        if is_outdated(at, installation.now, every=DAY, slack=_SLACK):
            yield dg.SkipReason("a later one is due")
            return
        day = f"{at.astimezone(ZoneInfo(chosen.time_zone)):%Y-%m-%d}"
        yield from _daily_runs(context.instance, installation, day=day, whole=whole)

    return daily


def _daily_runs(
    instance: dg.DagsterInstance, installation: Installation, *, day: str, whole: Sequence[str]
) -> Iterator[dg.RunRequest]:
    """The runs of a day, under keys of the site's own date: none is ever started twice."""
    settings, now = installation.settings, installation.now
    failed = failed_runs(instance, since=now - timedelta(days=settings.schedule.look_back_days))
    for key, days in days_due(settings, now=now, failed=failed).items():
        yield dg.RunRequest(
            run_key=f"{day}/{key}",
            asset_selection=asset_keys([key]),
            tags=partition_tags(days, step=DAY),
        )
    yield dg.RunRequest(run_key=f"{day}/whole", asset_selection=asset_keys(whole))


def training_schedule(
    job: UnresolvedAssetJobDefinition,
    chosen: ScheduleSettings,
    *,
    status: dg.DefaultScheduleStatus,
) -> dg.ScheduleDefinition:
    """The weekly training.

    Args:
        job: `training`.
        chosen: When.
        status: Whether it is on before a person has said anything.
    """
    day = _CRON_DAYS[chosen.training_weekday]

    @dg.schedule(
        job=job,
        name="training",
        cron_schedule=f"0 {chosen.training_hour} * * {day}",
        execution_timezone=chosen.time_zone,
        default_status=status,
        description="Trains a candidate per horizon on what has been labelled since.",
    )
    def training(context: dg.ScheduleEvaluationContext, installation: Installation) -> Requests:
        at, settings = context.scheduled_execution_time, installation.settings
        if is_outdated(at, installation.now, every=7 * DAY, slack=_SLACK):
            yield dg.SkipReason("a later one is due")
            return
        labelled = TableStore(settings.store_root).covered_until(LABELS)
        if why := can_train(settings, until=labelled):
            yield dg.SkipReason(why)
            return
        yield dg.RunRequest(run_key=f"{at.astimezone(ZoneInfo(chosen.time_zone)):%Y-%m-%d}")

    return training


def days_due(
    settings: Settings, *, now: datetime, failed: Sequence[Failed] = ()
) -> dict[str, Span]:
    """The days that the daily work makes, by asset key; none that lacks an hour still to be made.

    After time off this work is due at the same moment as the hours that it rests on.

    Args:
        settings: The installation.
        now: The present.
        failed: Runs of hours that failed.
    """
    record = Span(settings.start, max(settings.data_end(now), settings.start + DAY))
    until = whole_until(settings, now=now, failed=failed)
    found = {
        "features/labels": label_days(settings, until=until, made=_days(settings, LABELS, record)),
        "core/coverage": coverage_days(
            settings, until=until, made=_days(settings, CORE_COVERAGE, record)
        ),
    }
    return {key: days for key, days in found.items() if days is not None}


def is_outdated(scheduled: datetime, now: datetime, *, every: timedelta, slack: timedelta) -> bool:
    """Whether a tick that comes late has a successor that is due, too.

    Args:
        scheduled: When it was due.
        now: The present.
        every: Time between two ticks.
        slack: How much longer that may be where clocks change.
    """
    return now - scheduled >= every + slack


def _days(settings: Settings, table: TableContract, record: Span) -> set[datetime]:
    midnight = record.start.astimezone(UTC).replace(hour=0)
    days = -(-(record.end - midnight) // DAY)
    return stored_starts(settings, table, Span(midnight, midnight + days * DAY), step=DAY)
