"""Which partitions of the record are stored, and which rest on less than has landed since.

What is to be made of it is decided in `pipelines.orchestration.hour_plan` and
`pipelines.orchestration.day_plan`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from features.contracts import TableContract
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
    GPU_MATRIX,
    GPU_SCORES,
)
from pipelines.landing.ingest import landing_of
from pipelines.landing.staleness import find_stale
from pipelines.orchestration.early_hours import read_early, to_make_anew
from pipelines.orchestration.hour_plan import Failed, HourState, due_hours, rule_of, set_aside
from pipelines.settings import Settings
from pipelines.storage.day_files import hours_in
from pipelines.storage.store import Span, TableStore
from pipelines.storage.telemetry.layout import day_folder, read_manifest

RECORDS = (CORE_INVENTORY, CORE_TOPOLOGY, CORE_JOBS, CORE_NODE_STATES)
"""Tables without partitions that an hour cannot be made without."""

_HOUR = timedelta(hours=1)


def has_records(settings: Settings) -> bool:
    """Whether the tables are there that every hour needs."""
    store = TableStore(settings.store_root)
    return all(store.has(table) for table in RECORDS)


def stale_hours(settings: Settings, *, now: datetime) -> list[datetime]:
    """Hours whose core tables rest on less than has landed since, rising.

    Only those that may still be made: of the look-back, and of those the newest, as many as one
    run may take.

    Args:
        settings: The installation.
        now: The present.
    """
    due = due_hours(settings, now=now)
    if not due:
        return []
    store, end = TableStore(settings.store_root), due[-1] + rule_of(settings).step
    found = set()
    for one in find_stale(landing_of(settings), store):
        if one.span is not None:
            found |= {hour.start for hour in one.span.steps(_HOUR) if due[0] <= hour.start < end}
    return sorted(found)[-settings.schedule.catch_up_hours :]


def hour_state(
    settings: Settings,
    *,
    now: datetime,
    failed: Sequence[Failed] = (),
    is_busy: bool = False,
    stale: Collection[datetime] = (),
) -> HourState:
    """What of the hours that are due is stored.

    Args:
        settings: The installation.
        now: The present.
        failed: Runs that failed.
        is_busy: Whether a run of hours is under way.
        stale: Hours whose core tables must be made again.
    """
    due = due_hours(settings, now=now)
    if not due:
        return HourState(due=(), without_core=frozenset(), without_scores=frozenset())
    step = rule_of(settings).step
    span = Span(due[0], due[-1] + step)
    core = _core_starts(settings, span, step=step)
    core -= {hour - (hour - due[0]) % step for hour in stale}
    wanted = set(due)
    if settings.schedule.scores:
        made = stored_starts(settings, GPU_SCORES, span, step=step)
    else:
        # Another process scores: features are kept for training, a day at a time once it is over.
        made = stored_starts(settings, GPU_MATRIX, span, step=step)
        wanted = {hour for hour in due if hour + step <= _midnight(now)}
    state = HourState(
        due=due,
        without_core=set(due) - core,
        without_scores=wanted - made,
        failed=failed,
        is_busy=is_busy,
    )
    anew = to_make_anew(
        read_early(settings.data_root, step=step),
        missing=state.without_core,
        aside=set_aside(state, rule_of(settings)).keys(),
    )
    return replace(state, without_scores=state.without_scores | (anew & wanted))


def missing_core(settings: Settings, *, now: datetime) -> set[datetime]:
    """Start of each partition that is due and has no core tables.

    Args:
        settings: The installation.
        now: The present.
    """
    due, step = due_hours(settings, now=now), rule_of(settings).step
    if not due:
        return set()
    return set(due) - _core_starts(settings, Span(due[0], due[-1] + step), step=step)


def whole_until(settings: Settings, *, now: datetime, failed: Sequence[Failed] = ()) -> datetime:
    """Until when the record is made, but for hours that were set aside or are long past.

    Args:
        settings: The installation.
        now: The present.
        failed: Runs that failed.
    """
    state, rule = hour_state(settings, now=now, failed=failed), rule_of(settings)
    if not state.due:
        return settings.start
    return min(state.without_core - set(set_aside(state, rule)), default=state.due[-1] + rule.step)


def _core_starts(settings: Settings, span: Span, *, step: timedelta) -> set[datetime]:
    telemetry = stored_starts(settings, CORE_GPU_TELEMETRY, span, step=step)
    return telemetry & stored_starts(settings, CORE_HEALTH_EVENTS, span, step=step)


def stored_starts(
    settings: Settings, table: TableContract, span: Span, *, step: timedelta
) -> set[datetime]:
    """Start of each partition of a span that is stored whole.

    Args:
        settings: Where tables are.
        table: A table that is cut by hours or days.
        span: Whole partitions.
        step: Length of a partition.
    """
    store = TableStore(settings.store_root)
    if table is CORE_GPU_TELEMETRY:
        stored = set(_telemetry_hours(store, span))
    elif table.partition == "day":
        stems = (path.stem for path in store.files(table, span=span))
        stored = {datetime.fromisoformat(stem).replace(tzinfo=UTC) for stem in stems}
    else:
        stored = {hour for path in store.files(table, span=span) for hour in hours_in(path.name)}
    size = timedelta(days=1) if table.partition == "day" else _HOUR
    return {
        part.start
        for part in span.steps(step)
        if all(piece.start in stored for piece in part.steps(size))
    }


def _telemetry_hours(store: TableStore, span: Span) -> Iterator[datetime]:
    """Stored hours of the days of a span: the store itself would look through years."""
    for day in Span(_midnight(span.start), span.end).steps(timedelta(days=1)):
        manifest = read_manifest(day_folder(store.telemetry.folder, day.start.date()))
        yield from (day.start + hour * _HOUR for hour in manifest.hours)


def _midnight(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
