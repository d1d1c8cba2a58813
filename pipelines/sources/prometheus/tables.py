"""Wide rows of arrays to tables: telemetry, where devices were seen, which time was covered.

How rows are made of samples is in `prometheus.pivot`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from features.contracts import UTC_TIME
from features.raw_tables import RAW_COVERAGE, RAW_GPU_TELEMETRY, RAW_INVENTORY
from features.telemetry_metrics import METRICS
from pipelines.sources.prometheus.pivot import Rows
from pipelines.sources.prometheus.readings import I64, Window
from pipelines.sources.result import as_table

SOURCE: Final = "prometheus"

_HOLE: Final = 1.5  # times the usual step: one missed scrape is a hole, jitter is none


@dataclass(frozen=True)
class _Seen:
    """Kept rows by GPU and time.

    Attributes:
        order: Place of each among the kept rows; None: as they are.
        owners: Line of each.
        gpus: i64: code of the GPU of each, in the order of names.
        ts: i64: time of each, milliseconds since 1970.
    """

    order: I64 | None
    owners: I64
    gpus: I64
    ts: I64


def telemetry_table(rows: Rows, *, ingested_at: datetime) -> pl.DataFrame:
    """The rows as `raw/gpu_telemetry`, sorted by GPU and time.

    Args:
        rows: The rows.
        ingested_at: When they were read, UTC.
    """
    seen = _seen(rows)
    slots = pl.Series("gpu_index", [_index(line.slot) for line in rows.lines], pl.Int32)
    known = {
        "gpu_uuid": _texts([line.gpu_uuid for line in rows.lines])[seen.owners],
        "ts": _times(seen.ts),
        "node": _texts([line.node or None for line in rows.lines])[seen.owners],
        "gpu_index": slots[seen.owners],
    }
    is_all = bool(rows.is_kept.all())
    for metric in METRICS:
        if metric.column in rows.cells:
            cells = rows.cells[metric.column]
            cells = cells if is_all else cells[rows.is_kept]
            cells = cells if seen.order is None else cells[seen.order]
            known[metric.column] = pl.Series(cells, nan_to_null=True).cast(metric.dtype)
    absent = [
        pl.lit(None, metric.dtype).alias(metric.column)
        for metric in METRICS
        if metric.column not in known
    ]
    frame = pl.DataFrame(known).with_columns(*absent, *_origin(ingested_at))
    return frame.select(RAW_GPU_TELEMETRY.schema.names())


def inventory_table(rows: Rows, *, ingested_at: datetime) -> pl.DataFrame:
    """Where devices were seen, as `raw/inventory`: first, last, and on both sides of a change.

    Args:
        rows: The rows; those whose node is unknown say nothing.
        ingested_at: When they were read, UTC.
    """
    seen = _seen(rows)
    lines = pl.DataFrame(
        {
            "gpu_uuid": [line.gpu_uuid for line in rows.lines],
            "node": [line.node or None for line in rows.lines],
            "slot": [line.slot or None for line in rows.lines],
            "pci_bus_id": [pci_bus_id for pci_bus_id, _ in rows.devices],
            "model": [model for _, model in rows.devices],
        },
        schema=dict.fromkeys(("gpu_uuid", "node", "slot", "pci_bus_id", "model"), pl.String),
    )
    # Lines that only differ in their replica are the same place.
    codes: dict[tuple[str | None, ...], int] = {}
    places = np.array([codes.setdefault(row, len(codes)) for row in lines.rows()], np.int64)
    has_node = np.array([bool(line.node) for line in rows.lines], np.bool_)
    at = np.flatnonzero(has_node[seen.owners])
    change = np.diff(places[seen.owners[at]]) != 0  # a place has one GPU
    edge = at[np.r_[True, change][: at.size] | np.r_[change, True][: at.size]]
    found: pl.DataFrame = lines[seen.owners[edge]]
    return found.with_columns(_times(seen.ts[edge]).alias("ts"), *_origin(ingested_at)).select(
        RAW_INVENTORY.schema.names()
    )


def coverage_table(rows: Rows, *, origin: str, ingested_at: datetime) -> pl.DataFrame:
    """Stretches of time each GPU has samples of, as `raw/coverage`.

    Args:
        rows: The rows.
        origin: Address of the server.
        ingested_at: When they were read, UTC.

    Returns:
        One row per GPU and stretch without a hole. The usual step is the median one; null where
        a GPU has a single sample.
    """
    seen = _seen(rows)
    names = sorted({line.gpu_uuid for line in rows.lines})
    edges = np.searchsorted(seen.gpus, np.arange(len(names) + 1))
    spans: list[tuple[str, int, int, float | None]] = []
    for name, begin, end in zip(names, edges[:-1], edges[1:], strict=True):
        ts = np.unique(seen.ts[begin:end])
        if ts.size == 0:
            continue
        steps = np.diff(ts)
        usual = float(np.median(steps)) if steps.size else None
        holes = np.flatnonzero(steps > usual * _HOLE) if usual else np.empty(0, np.int64)
        for first, last in zip(np.r_[0, holes + 1], np.r_[holes, ts.size - 1], strict=True):
            spans.append((name, int(ts[first]), int(ts[last]), usual and usual / 1000))
    frame = pl.DataFrame(
        {
            "entity_kind": _texts(["gpu"] * len(spans)),
            "entity_id": _texts([name for name, _, _, _ in spans]),
            "start": _times(np.array([start for _, start, _, _ in spans], np.int64)),
            "end": _times(np.array([end for _, _, end, _ in spans], np.int64)),
            "expected_every_s": pl.Series([usual for _, _, _, usual in spans], dtype=pl.Float64),
        }
    )
    return frame.with_columns(pl.lit(origin).alias("origin"), *_origin(ingested_at)).select(
        RAW_COVERAGE.schema.names()
    )


def asked_window(window: Window, *, site: str, origin: str, ingested_at: datetime) -> pl.DataFrame:
    """What was asked for in all, as `raw/coverage`: a window without samples is known as such.

    Args:
        window: What was asked for; the row's end is the last millisecond of it.
        site: Name of the site.
        origin: Address of the server.
        ingested_at: When it was read, UTC.
    """
    row = {
        "entity_kind": "site",
        "entity_id": site,
        "origin": origin,
        "source": SOURCE,
        "ingested_at": ingested_at,
    }
    start, end = _times(np.array([window.start, window.end - 1]))
    return as_table(RAW_COVERAGE, [row | {"start": start, "end": end}])


def _seen(rows: Rows) -> _Seen:
    """The kept rows by GPU and time. They are so already, unless a GPU has several lines."""
    owners, ts = rows.owners(), rows.ts[rows.is_kept]
    names = sorted({line.gpu_uuid for line in rows.lines})
    code = {name: i for i, name in enumerate(names)}
    gpus = np.array([code[line.gpu_uuid] for line in rows.lines], np.int64)[owners]
    if len(names) == len(rows.lines):
        return _Seen(None, owners, gpus, ts)
    order = np.lexsort((ts, gpus))
    return _Seen(order, owners[order], gpus[order], ts[order])


def _texts(values: Sequence[str | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.String)


def _times(milliseconds: I64) -> pl.Series:
    return pl.Series(milliseconds * 1000, dtype=pl.Int64).cast(UTC_TIME)


def _origin(ingested_at: datetime) -> Sequence[pl.Expr]:
    return (
        pl.lit(SOURCE).alias("source"),
        pl.lit(ingested_at).cast(UTC_TIME).alias("ingested_at"),
    )


def _index(slot: str) -> int | None:
    is_small = slot.isascii() and slot.isdecimal() and len(slot) < 6
    return int(slot) if is_small else None
