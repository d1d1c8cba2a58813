"""What must be built anew: stored partitions that rest on less than what has landed since.

Late data lands in the hour it belongs to; here it is found which core tables were built before it
came. Nothing is rebuilt here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from features.contracts import TableContract
from features.core_build import REPEAT_GAP
from features.raw_tables import (
    RAW_GPU_TELEMETRY,
    RAW_JOB_LOG,
    RAW_JOB_OUTPUT,
    RAW_KERNEL_LOG,
    RAW_NODE_STATES,
    RAW_TRAINING_METRICS,
)
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_JOBS,
    CORE_NODE_STATES,
    CORE_TRAINING_METRICS,
)
from pipelines.landing.landed import Landing
from pipelines.storage.store import Span, TableStore

_HOUR: Final = timedelta(hours=1)
BURST: Final = timedelta(hours=3)
"""How far before its own hour a health event looks: the burst of lines it may belong to."""


def lines_about(span: Span) -> Span:
    """When the lines came that health events of a span are made of, also its last event's repeats.

    Args:
        span: Whole hours.
    """
    return Span(span.start - BURST, span.end + REPEAT_GAP + _LEAST)


_LEAST: Final = timedelta(microseconds=1)  # a repeat after exactly that gap is still one
_BUILT_FROM: Final[tuple[tuple[TableContract, TableContract, timedelta], ...]] = (
    (CORE_GPU_TELEMETRY, RAW_GPU_TELEMETRY, timedelta(0)),
    (CORE_HEALTH_EVENTS, RAW_KERNEL_LOG, BURST),
    (CORE_JOBS, RAW_JOB_LOG, timedelta(0)),
    (CORE_JOBS, RAW_JOB_OUTPUT, timedelta(0)),
    (CORE_TRAINING_METRICS, RAW_TRAINING_METRICS, timedelta(0)),
    (CORE_NODE_STATES, RAW_NODE_STATES, timedelta(0)),
)


@dataclass(frozen=True)
class Stale:
    """Part of a table that must be built anew.

    Attributes:
        table: Asset key.
        span: Consecutive hours; None: the table is kept whole.
    """

    table: str
    span: Span | None


def find_stale(landing: Landing, store: TableStore) -> list[Stale]:
    """Stored core partitions older than the raw rows that belong to them.

    Args:
        landing: What has landed.
        store: The tables built from it.

    Returns:
        Stretches of hours by table, in order. Partitions that were never built are not stale.
    """
    found = []
    for core, raw, reach in _BUILT_FROM:
        changed = landing.journal.changed_hours(raw.asset_key)
        built = store.generations(core)
        if core.partition == "none":
            is_old = bool(built) and max(changed.values(), default=0) > max(built.values())
            found += [Stale(core.asset_key, None)] if is_old else []
            continue
        floor = landing.whole_since(raw)
        # Of earlier hours too little has been kept to build them again.
        whole = {hour: n for hour, n in changed.items() if floor is None or hour >= floor}
        hours = _stale_hours(whole, built, reach)
        found += [Stale(core.asset_key, span) for span in _stretches(hours)]
    return found


def _stale_hours(
    changed: Mapping[datetime, int], built: Mapping[datetime, int], reach: timedelta
) -> list[datetime]:
    """Built hours with a later change in themselves or in the time before that they look at."""
    stale, last = set(), max(built, default=None)
    for hour, generation in changed.items():
        if last is None or hour > last:
            continue  # a clock may be wrong by thousands of years, where no hour can be added
        for later in range(reach // _HOUR + 1):
            at = hour + later * _HOUR
            if at in built and built[at] < generation:
                stale.add(at)
    return sorted(stale)


def _stretches(hours: list[datetime]) -> list[Span]:
    spans: list[Span] = []
    for hour in hours:
        if spans and spans[-1].end == hour:
            spans[-1] = Span(spans[-1].start, hour + _HOUR)
        else:
            spans.append(Span(hour, hour + _HOUR))
    return spans
