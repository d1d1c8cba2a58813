"""What the store holds of one node or GPU in a span: telemetry, events, jobs, incidents, stays.

Frames only, each narrowed while it is read; a table that was never stored is empty. Nothing is
drawn here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from features.contracts import UTC_TIME, TableContract
from features.engine.samples import SHARD_SIZE, Piece
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_MAINTENANCE,
    CORE_NODE_STATES,
)
from features.telemetry_metrics import METRICS
from pipelines.storage.store import Span, TableStore, scan_files

_STEP_OF: Final = {metric.column: metric.resolution for metric in METRICS}
MOST_EVENTS: Final = 500
"""Events shown of a span, the newest; a storm of a broken GPU is millions of lines."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """All that is stored of an entity in a span.

    Attributes:
        telemetry: core/gpu_telemetry of the GPU, by time; empty for a node.
        events: core/health_events, newest first.
        n_events: Events in all; more than are in `events` where there were too many.
        jobs: core/jobs that ran on the node.
        incidents: core/incidents.
        states: core/node_states of the node.
        maintenance: core/maintenance of the node.
        stays: core/inventory of the GPU, or of the node's GPUs; of all times.
    """

    telemetry: pl.DataFrame
    events: pl.DataFrame
    n_events: int
    jobs: pl.DataFrame
    incidents: pl.DataFrame
    states: pl.DataFrame
    maintenance: pl.DataFrame
    stays: pl.DataFrame


def told_of_gpu(
    store: TableStore, gpu_uuid: str, *, node: str | None, span: Span, columns: Sequence[str]
) -> Told:
    """What is stored of a GPU.

    Args:
        store: The store.
        gpu_uuid: The GPU.
        node: Where it is at present; None: nobody knows.
        span: The time.
        columns: Telemetry columns.
    """
    is_gpu = pl.col("gpu_uuid") == gpu_uuid
    stays = _lazy(store, CORE_INVENTORY).filter(is_gpu).sort("valid_from").collect()
    is_ours = is_gpu | (pl.col("gpu_uuid").is_null() & pl.col("node").eq_missing(pl.lit(node)))
    is_incident = ((pl.col("entity_kind") == "gpu") & (pl.col("entity_id") == gpu_uuid)) | (
        (pl.col("entity_kind") == "node") & pl.col("node").eq_missing(pl.lit(node))
    )
    return _told(
        store,
        node=node,
        span=span,
        is_event=is_ours,
        is_incident=is_incident,
        stays=stays,
        telemetry=telemetry_of(store, gpu_uuid, span=span, columns=columns),
    )


def told_of_node(store: TableStore, node: str, *, span: Span) -> Told:
    """What is stored of a node; arguments as `told_of_gpu`."""
    is_node = pl.col("node") == node
    return _told(
        store,
        node=node,
        span=span,
        is_event=is_node,
        is_incident=is_node,
        stays=_lazy(store, CORE_INVENTORY).filter(is_node).sort("slot", "valid_from").collect(),
        telemetry=pl.DataFrame(schema={"ts": UTC_TIME}),
    )


def telemetry_of(
    store: TableStore, gpu_uuid: str, *, span: Span, columns: Sequence[str]
) -> pl.DataFrame:
    """Telemetry of one GPU, of which only its own row groups are read.

    Returns:
        `ts` and the columns that have a value, by rising time.
    """
    empty = pl.DataFrame(schema={"ts": UTC_TIME})
    uuids = store.telemetry.uuids()
    if gpu_uuid not in uuids:
        return empty
    code = list(uuids).index(gpu_uuid)
    pieces = store.telemetry.pieces(
        code // SHARD_SIZE,
        start_ms=int(span.start.timestamp() * 1000),
        end_ms=int(span.end.timestamp() * 1000),
        columns=tuple(columns),
        gpus=range(code, code + 1),
    )
    return pl.concat([empty, *map(_unpacked, pieces)], how="diagonal").sort("ts")


def _unpacked(piece: Piece) -> pl.DataFrame:
    columns = {"ts": pl.Series(piece.ts_ms).cast(pl.Datetime("ms")).cast(UTC_TIME)}
    for name, packed in piece.values.items():
        values = packed.astype(np.float64) / round(1 / (_STEP_OF[name] or 1.0))
        if name in piece.nulls:
            values[packed == piece.nulls[name]] = np.nan
        columns[name] = pl.Series(values, nan_to_null=True)
    return pl.DataFrame(columns)


def states_now(store: TableStore, now: datetime) -> pl.DataFrame:
    """Where each node stands by the stored node states: `node`, `state`, `reason`, `actor`."""
    is_now = (pl.col("valid_from").is_null() | (pl.col("valid_from") <= now)) & (
        pl.col("valid_to").is_null() | (pl.col("valid_to") > now)
    )
    return (
        _lazy(store, CORE_NODE_STATES)
        .filter(is_now)
        .sort("valid_from")
        .unique("node", keep="last", maintain_order=True)
        .select("node", "state", "reason", "actor")
        .collect()
    )


def _told(
    store: TableStore,
    *,
    node: str | None,
    span: Span,
    is_event: pl.Expr,
    is_incident: pl.Expr,
    stays: pl.DataFrame,
    telemetry: pl.DataFrame,
) -> Told:
    is_here = pl.col("node").eq_missing(pl.lit(node)) & pl.lit(node is not None)
    within = (pl.col("ts") >= span.start) & (pl.col("ts") < span.end)
    events = _lazy(store, CORE_HEALTH_EVENTS, span).filter(within & is_event).collect()
    jobs = (
        _lazy(store, CORE_JOBS)
        .filter(pl.col("nodes").list.contains(pl.lit(node or "", pl.String)))
        .filter(_overlaps("start", "end", span))
        .sort("start")
        .collect()
    )
    return Told(
        telemetry=telemetry,
        events=events.sort("ts", descending=True).head(MOST_EVENTS),
        n_events=events.height,
        jobs=jobs,
        incidents=_lazy(store, CORE_INCIDENTS)
        .filter(is_incident & _overlaps("start", "end", span))
        .sort("start")
        .collect(),
        states=_lazy(store, CORE_NODE_STATES)
        .filter(is_here & _overlaps("valid_from", "valid_to", span))
        .sort("valid_from")
        .collect(),
        maintenance=_lazy(store, CORE_MAINTENANCE)
        .filter(is_here & _overlaps("start", "end", span))
        .sort("start")
        .collect(),
        stays=stays,
    )


def _overlaps(start: str, end: str, span: Span) -> pl.Expr:
    """Half-open; null is open on that side."""
    return (pl.col(start).is_null() | (pl.col(start) < span.end)) & (
        pl.col(end).is_null() | (pl.col(end) > span.start)
    )


def _lazy(store: TableStore, contract: TableContract, span: Span | None = None) -> pl.LazyFrame:
    files = store.files(contract, span=span)
    return scan_files(files) if files else contract.empty().lazy()
