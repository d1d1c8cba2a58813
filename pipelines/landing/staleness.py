"""What must be built anew: stored partitions that rest on less than what has landed since.

Late data lands in the hour it belongs to; here it is found which core tables were built before it
came. Nothing is rebuilt here.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from features.contracts import TableContract
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
_BUILT_FROM: Final[tuple[tuple[TableContract, TableContract], ...]] = (
    (CORE_GPU_TELEMETRY, RAW_GPU_TELEMETRY),
    (CORE_HEALTH_EVENTS, RAW_KERNEL_LOG),
    (CORE_JOBS, RAW_JOB_LOG),
    (CORE_JOBS, RAW_JOB_OUTPUT),
    (CORE_TRAINING_METRICS, RAW_TRAINING_METRICS),
    (CORE_NODE_STATES, RAW_NODE_STATES),
)
"""Core table and raw table it is made of; an hour of either is a matter of that hour alone."""


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
    for core, raw in _BUILT_FROM:
        changed = landing.journal.changed_hours(raw.asset_key)
        built = store.generations(core)
        if core.partition == "none":
            is_old = bool(built) and max(changed.values(), default=0) > max(built.values())
            found += [Stale(core.asset_key, None)] if is_old else []
            continue
        floor = landing.whole_since(raw)
        # Of earlier hours too little has been kept to build them again.
        hours = [
            hour
            for hour, generation in changed.items()
            if built.get(hour, generation) < generation and (floor is None or hour >= floor)
        ]
        found += [Stale(core.asset_key, span) for span in _stretches(hours)]
    return found


def _stretches(hours: list[datetime]) -> list[Span]:
    spans: list[Span] = []
    for hour in hours:
        if spans and spans[-1].end == hour:
            spans[-1] = Span(spans[-1].start, hour + _HOUR)
        else:
            spans.append(Span(hour, hour + _HOUR))
    return spans
