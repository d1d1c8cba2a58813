"""Sensors beside the hourly one: new files, a champion that moved, and what somebody should know.

What is compared and told is in `pipelines.landing.drop_folders` and
`pipelines.orchestration.troubles`.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import dagster as dg
from dagster import RunsFilter
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from features.tables import GPU_MATRIX
from models.registry.model_registry import CHAMPION
from models.registry.registered import RegistryError
from pipelines.defs.hourly import asset_keys, failed_runs, partition_tags
from pipelines.defs.resources import Installation
from pipelines.flow.steps import registered_name, registry_of
from pipelines.landing.drop_folders import fingerprint
from pipelines.orchestration.hour_plan import rule_of, set_aside
from pipelines.orchestration.hour_state import hour_state
from pipelines.orchestration.troubles import (
    SEEN,
    Told,
    Trouble,
    book_from_text,
    book_to_text,
    change_of,
    tell_all,
)
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

SCORES: Final = ("scores/gpu_scores", "scores/node_scores")
_ENDED: Final = [
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
]

Found = Iterator[dg.RunRequest | dg.SkipReason | dg.SensorResult]


def drop_folder_sensor(
    records: UnresolvedAssetJobDefinition, *, status: dg.DefaultSensorStatus
) -> dg.SensorDefinition:
    """Reads the site's records as soon as a file of them has come and has stopped growing."""

    @dg.sensor(
        name="drop_folder",
        job=records,
        minimum_interval_seconds=60,
        default_status=status,
        description="Runs `records` when files of jobs, node states, places or own history "
        "have come and stopped growing. Telemetry and logs are read with every hour.",
    )
    def drop_folder(context: dg.SensorEvaluationContext, installation: Installation) -> Found:
        found = fingerprint(installation.settings)
        seen, _, handled = (context.cursor or "/").partition("/")
        if found == handled or (not context.cursor and not handled):
            context.update_cursor(f"{found}/{found}")
            yield dg.SkipReason("no file has come or changed")
        elif found != seen:
            context.update_cursor(f"{found}/{handled}")
            yield dg.SkipReason("files have changed; they may still grow")
        else:
            context.update_cursor(f"{found}/{found}")
            yield dg.RunRequest(run_key=f"{found}/{installation.now:%Y-%m-%dT%H:%M}")

    return drop_folder


def champion_sensor(
    hourly: UnresolvedAssetJobDefinition, *, status: dg.DefaultSensorStatus
) -> dg.SensorDefinition:
    """Scores the newest hour again when another model has become champion."""

    @dg.sensor(
        name="champion_moved",
        job=hourly,
        minimum_interval_seconds=60,
        default_status=status,
        description="Scores the newest hour again when the alias `champion` of a model has moved, "
        "by a training, by hand or by a rollback.",
    )
    def champion_moved(
        context: dg.SensorEvaluationContext, installation: Installation
    ) -> dg.SensorResult | dg.SkipReason:
        return _moved(context, installation.settings, now=installation.now)

    return champion_moved


def alerts_sensor(jobs: Sequence[str], *, status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Tells of failed checks and jobs, and of hours that were set aside, and when each is over.

    Args:
        jobs: Names of the jobs that are watched.
        status: Whether it is on before a person has said anything.
    """

    @dg.sensor(
        name="operations_alerts",
        minimum_interval_seconds=60,
        default_status=status,
        description="Tells Alertmanager and the webhook of `serving` about failed checks and "
        "jobs and about hours set aside, and when they are well again.",
    )
    def operations_alerts(context: dg.SensorEvaluationContext, installation: Installation) -> Found:
        settings, now = installation.settings, installation.now
        found = [
            *failed_checks(context.instance, context.repository_def),
            *failed_jobs(context.instance, jobs),
            *hours_aside(context.instance, installation),
        ]
        before = book_from_text(context.cursor)
        book, problems = tell_all(settings, before, found, now=now)
        context.update_cursor(book_to_text(book))
        for one in change_of(before.get(SEEN, Told()), book[SEEN].open).fired:
            # Once: each look that logs leaves a file, which Dagster never removes.
            context.log.warning("%s %s: %s", one.severity, one.key, one.words)
        told = "" if len(book) > 1 else "; serving names nobody to tell"
        named = ", ".join(one.key for one in found[:5]) or "nothing is wrong"
        yield dg.SkipReason(
            f"{len(found)} open: {named}{told}" + "".join(f"; {p}" for p in problems)
        )

    return operations_alerts


def failed_checks(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition | None
) -> Iterator[Trouble]:
    """Checks whose last verdict was that something is wrong."""
    if repository is None:
        return
    keys = sorted(repository.asset_graph.asset_check_keys, key=str)
    for key, record in instance.event_log_storage.get_asset_check_summary_records(keys).items():
        last = record.last_completed_check_execution_record
        verdict = last.evaluation if last is not None and last.event is not None else None
        if verdict is None or verdict.passed:
            continue
        is_error = verdict.severity is dg.AssetCheckSeverity.ERROR
        name = f"{'/'.join(key.asset_key.path)} {key.name}"
        yield Trouble(
            kind="check",
            name=name,
            words=f"{name}: {verdict.description or 'failed'}",
            severity="critical" if is_error else "warning",
        )


def failed_jobs(instance: dg.DagsterInstance, jobs: Sequence[str]) -> Iterator[Trouble]:
    """Jobs whose last run that ended has failed."""
    for job in jobs:
        for run in instance.get_runs(RunsFilter(job_name=job, statuses=_ENDED), limit=1):
            if run.status is dg.DagsterRunStatus.FAILURE:
                what = run.tags.get("forewarn/hours") or run.tags.get("dagster/partition", "")
                yield Trouble(
                    kind="job",
                    name=job,
                    words=f"the last run of {job} failed{' at ' + what if what else ''}: "
                    f"run {run.run_id[:8]}",
                    severity="warning",
                )


def hours_aside(instance: dg.DagsterInstance, installation: Installation) -> Iterator[Trouble]:
    """Hours that failed again and again: the record has a hole there."""
    settings, now = installation.settings, installation.now
    since = now - timedelta(days=settings.schedule.look_back_days)
    failed = failed_runs(instance, since=since)
    if not failed:
        return
    aside = set_aside(hour_state(settings, now=now, failed=failed), rule_of(settings))
    if aside:
        named = ", ".join(f"{hour:%Y-%m-%d %H:%M}" for hour in list(aside)[:5])
        yield Trouble(
            kind="hours",
            name="set_aside",
            words=f"{len(aside)} hours failed again and again and are missing: {named} UTC",
            severity="critical",
        )


def _moved(
    context: dg.SensorEvaluationContext, settings: Settings, *, now: datetime
) -> dg.SensorResult | dg.SkipReason:
    """The run that scores by a new champion; the note of it where Dagster does not score."""
    try:
        found = _champions(settings)
    except RegistryError as error:
        return dg.SkipReason(f"the registry cannot be asked: {error}")
    cursor, words = json.dumps(found, sort_keys=True), ", ".join(found.values()) or "none"
    if context.cursor is None or context.cursor == cursor:
        context.update_cursor(cursor)
        return dg.SkipReason(f"champions: {words}")
    note = dg.AssetObservation(
        ["models", "candidate"],
        metadata={"champions": words, "before": context.cursor},
    )
    newest = TableStore(settings.store_root).covered_until(GPU_MATRIX)
    if newest is None or not settings.schedule.scores:
        return dg.SensorResult(asset_events=[note], cursor=cursor)
    step = rule_of(settings).step
    span = Span(newest - step, newest)
    request = dg.RunRequest(
        # With the time of the look: a champion may go and come back within an hour.
        run_key=f"{cursor}@{newest:%Y-%m-%dT%H}/{now:%Y-%m-%dT%H:%M}",
        asset_selection=asset_keys(SCORES),
        tags=partition_tags(span, step=step),
    )
    return dg.SensorResult(run_requests=[request], asset_events=[note], cursor=cursor)


def _champions(settings: Settings) -> dict[str, str]:
    registry = registry_of(settings)
    found = {}
    for horizon_h in settings.horizons_h:
        name = registered_name(settings, horizon_h)
        if (champion := registry.version_of(name, CHAMPION)) is not None:
            found[name] = champion.label
    return found
