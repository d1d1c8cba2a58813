"""The hourly sensor: makes the data partitions that are due and missing, the newest first.

What is to be made next is decided in `pipelines.orchestration.hour_plan`.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import dagster as dg
from dagster import RunsFilter
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from pipelines.defs.raw import HOURLY
from pipelines.defs.resources import Installation
from pipelines.landing.ingest import landing_of
from pipelines.orchestration.day_plan import DAY
from pipelines.orchestration.hour_plan import (
    Failed,
    Launch,
    launch_of,
    next_launch,
    rule_of,
    set_aside,
)
from pipelines.orchestration.hour_state import has_records, hour_state, stale_hours
from pipelines.orchestration.run_marks import dead, state_of, sweep
from pipelines.settings import Settings
from pipelines.storage.store import Span

SPAN_TAG: Final = "forewarn/hours"
CHAIN_TAG: Final = "forewarn/chain"
CHAIN: Final = "hours"
OUR_RUN: Final = {"forewarn/run": "yes"}
"""Tag of every run of ours: other teams may use the same Dagster."""
RANGE_START: Final = "dagster/asset_partition_range_start"
RANGE_END: Final = "dagster/asset_partition_range_end"
MAX_RUNTIME: Final = "dagster/max_runtime"
_AT_WORK: Final = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_ENDED_BADLY: Final = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_MOST_RUNS: Final = 2000
_KILLED: Final = "Its process was killed; what it was at is made again."
_BY_DAEMON: Final = {"dagster/sensor_name", "dagster/schedule_name"}
"""A run with one of these was started by the daemon, on this machine; others may not be."""
_UNMARKED_S: Final = 300
"""A run takes its mark within a second of its start, and within seconds on a busy machine."""

CORE_KEYS: Final = (*HOURLY, "core/gpu_telemetry", "core/health_events", "core/incidents")
SCORE_KEYS: Final = ("features/gpu_matrix", "scores/gpu_scores", "scores/node_scores")


def hourly_job(settings: Settings) -> UnresolvedAssetJobDefinition:
    """The job that makes hours, from the inputs to published scores."""
    return dg.define_asset_job(
        "hourly",
        selection=selected((*CORE_KEYS, *score_keys(settings))),
        # What failed is planned anew here; Dagster's own retries would make it twice.
        tags=limits(settings) | {"dagster/max_retries": "0"},
        description="Telemetry, events, incidents, features and scores of one hour or many.",
    )


def hourly_sensor(
    jobs: Sequence[UnresolvedAssetJobDefinition], *, status: dg.DefaultSensorStatus
) -> dg.SensorDefinition:
    """The sensor that keeps the record without holes.

    Args:
        jobs: `hourly`, and `records`, which comes first in a new installation.
        status: Whether it is on before a person has said anything.
    """

    @dg.sensor(
        name="hourly",
        jobs=list(jobs),
        minimum_interval_seconds=30,
        default_status=status,
        description="Makes hours that are due and missing, the newest first; makes up after time "
        "off; sets an hour aside that fails again and again.",
    )
    def hourly(
        context: dg.SensorEvaluationContext, installation: Installation
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        yield _next(context, installation)

    return hourly


def selected(keys: Sequence[str]) -> dg.AssetSelection:
    """Assets by key, with those that are made in the same step."""
    chosen = dg.AssetSelection.assets(*(key.split("/") for key in keys))
    return chosen.required_multi_asset_neighbors()


def asset_keys(keys: Sequence[str]) -> list[dg.AssetKey]:
    """Keys as Dagster has them."""
    return [dg.AssetKey(key.split("/")) for key in keys]


def score_keys(settings: Settings) -> tuple[str, ...]:
    """What is made of core tables: scores only where Dagster is to make them."""
    return SCORE_KEYS if settings.schedule.scores else SCORE_KEYS[:1]


def limits(settings: Settings) -> dict[str, str]:
    """Tags of a job of ours, whose runs are given up after a while."""
    return OUR_RUN | {MAX_RUNTIME: str(60 * settings.schedule.longest_run_minutes)}


def end_dead_runs(instance: dg.DagsterInstance, settings: Settings) -> bool:
    """Ends runs whose process was killed; whether runs of hours are at work.

    Dagster's own launcher cannot tell that a process on its machine is gone. Any job's run that is
    gone and not ended holds its pools, and hours need those, too.
    """
    marks, is_busy = settings.run_marks_dir, False
    for run_id in dead(marks):
        run = instance.get_run_by_id(run_id)
        if run is not None and run.status is dg.DagsterRunStatus.STARTED:
            instance.report_run_failed(run, _KILLED)
        sweep(marks, run_id)
    for record in instance.get_run_records(RunsFilter(statuses=_AT_WORK)):
        run = record.dagster_run
        if _died_unmarked(record, instance, marks):
            instance.report_run_failed(run, _KILLED)
        else:
            is_busy = is_busy or run.tags.get(CHAIN_TAG) == CHAIN
    return is_busy


def _died_unmarked(record: dg.RunRecord, instance: dg.DagsterInstance, marks: Path) -> bool:
    """Whether a run that was started here was killed before it had taken its mark."""
    run = record.dagster_run
    is_here = isinstance(instance.run_launcher, dg.DefaultRunLauncher)
    if not is_here or not _BY_DAEMON & run.tags.keys() or not record.start_time:
        return False
    is_late = datetime.now(UTC).timestamp() - record.start_time > _UNMARKED_S
    is_started = run.status is dg.DagsterRunStatus.STARTED
    return is_started and is_late and state_of(marks, run.run_id) == "unmarked"


def failed_runs(instance: dg.DagsterInstance, *, since: datetime) -> list[Failed]:
    """Runs of hours that did not make them.

    Args:
        instance: Dagster's instance.
        since: Runs that were begun before are of no matter.
    """
    wanted = RunsFilter(tags={CHAIN_TAG: CHAIN}, statuses=_ENDED_BADLY, created_after=since)
    found = []
    for record in instance.get_run_records(wanted, limit=_MOST_RUNS):
        launch = launch_of(record.dagster_run.tags.get(SPAN_TAG, ""))
        ended = record.end_time or record.update_timestamp.timestamp()
        if launch is not None:
            at = datetime.fromtimestamp(ended, tz=UTC)
            found.append(Failed(stage=launch.stage, span=launch.span, at=at))
    return found


def partition_tags(span: Span, *, step: timedelta) -> dict[str, str]:
    """Tags of a run over a span of whole partitions.

    Args:
        span: The partitions, UTC.
        step: Length of one.
    """
    form = "%Y-%m-%d" if step == DAY else "%Y-%m-%d-%H:%M"
    return {RANGE_START: f"{span.start:{form}}", RANGE_END: f"{span.end - step:{form}}"}


def _next(
    context: dg.SensorEvaluationContext, installation: Installation
) -> dg.RunRequest | dg.SkipReason:
    """The run that is to start, or why none is."""
    settings, now, instance = installation.settings, installation.now, context.instance
    is_busy = end_dead_runs(instance, settings)
    if not has_records(settings):
        if instance.get_runs(RunsFilter(job_name="records", statuses=_AT_WORK), limit=1):
            return dg.SkipReason("the records are being read for the first time")
        # One that failed is tried again ten minutes later.
        return dg.RunRequest(job_name="records", run_key=f"first/{now:%Y-%m-%dT%H:%M}"[:-1])
    state = hour_state(
        settings,
        now=now,
        failed=failed_runs(instance, since=_look_back(settings, now)),
        is_busy=is_busy,
        stale=_stale(context, settings, now=now),
    )
    chosen = next_launch(state, rule_of(settings), now=now)
    if isinstance(chosen, Launch):
        return _request(chosen, settings, instance=instance)
    aside = set_aside(state, rule_of(settings))
    named = ", ".join(f"{hour:%Y-%m-%d %H:%M}" for hour in list(aside)[:3])
    return dg.SkipReason(f"{chosen}; set aside: {named}" if aside else chosen)


def _request(chosen: Launch, settings: Settings, *, instance: dg.DagsterInstance) -> dg.RunRequest:
    # The run before it makes the key: the same moment never starts two, and hours that were lost
    # from the store can be made again. A count would come back to a key that was, once a run is
    # deleted, and Dagster starts no key twice.
    before = instance.get_run_ids(RunsFilter(tags={SPAN_TAG: chosen.words}), limit=1)
    keys = {
        "hour": (*CORE_KEYS, *score_keys(settings)),
        "core": CORE_KEYS,
        # A run that was killed may have made an hour's events and no incidents of them.
        "scores": ("core/incidents", *score_keys(settings)),
    }[chosen.stage]
    cut = partition_tags(chosen.span, step=rule_of(settings).step)
    first = cut[RANGE_START]
    is_one = first == cut[RANGE_END]
    return dg.RunRequest(
        job_name="hourly",
        run_key=f"{chosen.words}#{before[0] if before else 'first'}",
        partition_key=first if is_one else None,
        asset_selection=asset_keys(keys),
        tags={CHAIN_TAG: CHAIN, SPAN_TAG: chosen.words} | ({} if is_one else cut),
    )


def _stale(
    context: dg.SensorEvaluationContext, settings: Settings, *, now: datetime
) -> list[datetime]:
    """Hours for which late data came; looked for only where something landed, or some were."""
    landed = str(landing_of(settings).journal.generation())
    if context.cursor == landed:
        return []
    found = stale_hours(settings, now=now)
    context.update_cursor("" if found else landed)
    return found


def _look_back(settings: Settings, now: datetime) -> datetime:
    return now - timedelta(days=settings.schedule.look_back_days)
