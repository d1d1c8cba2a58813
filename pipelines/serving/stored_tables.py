"""Core tables from the store, as far as scoring and judging need them.

What a table means is in `features.tables`; telemetry is read piece by piece elsewhere.
"""

from datetime import timedelta
from typing import Final

import polars as pl

from features.contracts import TableContract
from features.core_tables import CoreTables
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_MAINTENANCE,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
)
from pipelines.storage.store import Span, TableStore

_EVENTS_REACH: Final = timedelta(days=30)
"""How far before a moment its event features look."""


def tables_for_scores(store: TableStore, span: Span) -> CoreTables:
    """What features of a span rest on, telemetry excepted; a table never stored is empty.

    Args:
        store: The store.
        span: The hours.

    Raises:
        DataError: The inventory is not stored: nobody knows which GPUs there are.
    """
    trailing = Span(span.start - _EVENTS_REACH, span.end)
    return CoreTables(
        inventory=store.read(CORE_INVENTORY),
        topology=_read(store, CORE_TOPOLOGY),
        incidents=_read(store, CORE_INCIDENTS),
        jobs=_read(store, CORE_JOBS),
        health_events=_read(store, CORE_HEALTH_EVENTS, trailing),
    )


def tables_for_labels(store: TableStore) -> CoreTables:
    """What labels rest on; raises as `tables_for_scores`."""
    return CoreTables(
        inventory=store.read(CORE_INVENTORY),
        incidents=_read(store, CORE_INCIDENTS),
        maintenance=_read(store, CORE_MAINTENANCE),
        node_states=_read(store, CORE_NODE_STATES),
    )


def _read(store: TableStore, contract: TableContract, span: Span | None = None) -> pl.DataFrame:
    if not store.has(contract) or (span is not None and not store.files(contract, span=span)):
        return contract.empty()
    return store.read(contract, span=span)
