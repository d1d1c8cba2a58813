"""Packed telemetry: core/gpu_telemetry as integers of each metric's resolution, GPUs by code.

Where packed rows are stored is in `pipelines.storage.telemetry.store`; what is computed from them
in `features.engine`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.engine.plan import N_KNOWN
from features.engine.samples import SHARD_SIZE, Piece
from features.errors import DataError, StructureError
from features.tables import CORE_GPU_TELEMETRY
from features.telemetry_metrics import METRIC_BY_COLUMN, METRICS, Metric

GPU: Final = "gpu"
"""Packed column: the GPU's code, u32."""
TS_MS: Final = "ts_ms"
"""Packed column: time in milliseconds since 1970, UTC, i64."""
NODE: Final = "node"
"""Packed column: as in the core table."""

PACKED_SCHEMA: Final = pl.Schema(
    {
        GPU: pl.UInt32(),
        TS_MS: pl.Int64(),
        NODE: pl.String(),
        N_KNOWN: pl.UInt8(),
        **{metric.column: metric.packed_dtype for metric in METRICS},
    }
)
"""Columns of a packed frame; one in which no row has a value may be absent.

`n_known` is how many metrics have a value in the row.
"""

PACKED_NULL: Final[dict[str, int]] = {
    metric.column: int(np.iinfo(pl.Series([], dtype=metric.packed_dtype).to_numpy().dtype).min)
    for metric in METRICS
    if metric.resolution is not None
}
"""What stands for null in arrays: the smallest number of the column's type."""

_US_PER_MS: Final = 1000


def floor_to_ms(ts: pl.Expr) -> pl.Expr:
    """Times down to whole milliseconds."""
    return (ts.to_physical() // _US_PER_MS * _US_PER_MS).cast(pl.Datetime("us", "UTC"))


def to_resolution(values: pl.Series) -> pl.Series:
    """Values on the steps of their metric's resolution; other columns as they are. Idempotent.

    >>> to_resolution(pl.Series("gpu_temp_c", [61.04, None], pl.Float32)).to_list()
    [61.0, None]
    """
    metric = METRIC_BY_COLUMN.get(values.name)
    if metric is None or metric.kind != "gauge" or metric.resolution is None:
        return values
    per_unit = _steps_per_unit(metric.resolution)
    return ((values.cast(pl.Float64) * per_unit).round() / per_unit).cast(metric.dtype)


def order_of_appearance(frame: pl.DataFrame) -> pl.Series:
    """The GPUs of a core frame by (node of its first sample, gpu_uuid): the order codes are given.

    GPUs of a node follow each other, so that a shard is made of whole racks where nodes are named
    by rack.
    """
    first = frame.group_by("gpu_uuid").agg(pl.col("node").sort_by("ts").first())
    return first.sort("node", "gpu_uuid")["gpu_uuid"]


def pack(frame: pl.DataFrame, uuids: pl.Series) -> pl.DataFrame:
    """Packs a core frame.

    Args:
        frame: core/gpu_telemetry, held against its contract, any order.
        uuids: UUID of each GPU by its code; has every GPU of the frame.

    Returns:
        Columns of `PACKED_SCHEMA`, without those in which no row has a value, sorted by
        (gpu, ts_ms).

    Raises:
        DataError: Two samples of a GPU lie within one millisecond.
    """
    known = [m for m in METRICS if frame[m.column].null_count() < frame.height]
    packed = frame.select(
        code_of(frame["gpu_uuid"], uuids).alias(GPU),
        (pl.col("ts").to_physical() // _US_PER_MS).alias(TS_MS),
        NODE,
        _n_known(frame, known).alias(N_KNOWN),
        *(_packed(metric) for metric in known),
    )
    packed = packed.sort(GPU, TS_MS)
    is_repeat = (pl.col(GPU) == pl.col(GPU).shift()) & (pl.col(TS_MS) == pl.col(TS_MS).shift())
    repeats = packed.filter(is_repeat)
    if not repeats.is_empty():
        code, ts_ms = repeats.select(GPU, TS_MS).row(0)
        raise DataError(
            f"table {CORE_GPU_TELEMETRY.asset_key}: {repeats.height} samples share their GPU and "
            f"millisecond with another, for example {uuids[code]} at {ts_ms} ms since 1970. "
            f"Build the table with build_core_telemetry, which merges them."
        )
    return packed


def unpack(packed: pl.DataFrame, uuids: pl.Series) -> pl.DataFrame:
    """The core frame that was packed.

    Args:
        packed: Columns of `PACKED_SCHEMA`; absent ones are null.
        uuids: UUID of each GPU by its code.

    Returns:
        core/gpu_telemetry, sorted by (gpu_uuid, ts).

    Raises:
        DataError: A code has no UUID.
    """
    largest = packed[GPU].max()
    if isinstance(largest, int) and largest >= len(uuids):
        raise DataError(
            f"table {CORE_GPU_TELEMETRY.asset_key}: GPU code {largest} has no UUID, "
            f"{len(uuids)} GPUs are known. Restore the list of GPUs beside the table, or delete "
            f"the table's folder and materialise it again."
        )
    rank = uuids.rank("ordinal")
    ordered = packed.with_columns(rank.gather(packed[GPU]).alias("_rank")).sort("_rank", TS_MS)
    time = CORE_GPU_TELEMETRY.schema["ts"]
    return ordered.select(
        uuids.gather(ordered[GPU]).alias("gpu_uuid"),
        (pl.col(TS_MS) * _US_PER_MS).cast(time).alias("ts"),
        NODE,
        *(_unpacked(metric, ordered) for metric in METRICS),
    )


def code_of(names: pl.Series, uuids: pl.Series) -> pl.Series:
    """Position of each name in `uuids`, as u32; one that is not there is an error of Polars."""
    codes = pl.int_range(len(uuids), dtype=pl.UInt32, eager=True)
    # The cast is for empty frames: without a word to replace, words stay words.
    return names.replace_strict(uuids, codes, return_dtype=pl.UInt32).cast(pl.UInt32)


def as_array(values: pl.Series) -> npt.NDArray[Any]:
    """A packed column as an array that must not be written to, nulls as `PACKED_NULL`.

    Nothing is copied where no value is null.
    """
    if values.null_count():
        values = values.fill_null(PACKED_NULL[values.name])
    return read_only(values.to_numpy())


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, never to be written to: as views of files are, and numba tells the two apart."""
    array.flags.writeable = False
    return array


def check_columns(columns: Sequence[str]) -> None:
    """Refuses columns that packed telemetry does not have as integers.

    Raises:
        StructureError: A column is unknown or has no resolution.
    """
    allowed = {N_KNOWN, *(m.column for m in METRICS if m.resolution is not None)}
    wrong = [name for name in columns if name not in allowed]
    if wrong:
        raise StructureError(
            f"table {CORE_GPU_TELEMETRY.asset_key} has no integers in {', '.join(wrong)}; choose "
            f"metrics with a resolution from features.telemetry_metrics, or {N_KNOWN}"
        )


class FrameSamples:
    """Samples of a core frame in memory; a `SampleSource`.

    Args:
        frame: core/gpu_telemetry, any order.
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self._uuids = order_of_appearance(frame)
        self._packed = pack(frame, self._uuids)

    def uuids(self) -> Sequence[str]:
        """UUID of each GPU, by its code."""
        return self._uuids.to_list()

    def pieces(
        self,
        shard: int,
        *,
        start_ms: int,
        end_ms: int,
        columns: Sequence[str],
        gpus: range | None = None,
    ) -> Iterator[Piece]:
        """The samples of a shard with start_ms <= ts < end_ms, in one piece at most."""
        check_columns(columns)
        of_shard = range(shard * SHARD_SIZE, (shard + 1) * SHARD_SIZE) if gpus is None else gpus
        rows = self._packed.filter(
            pl.col(GPU).is_between(of_shard.start, of_shard.stop, closed="left"),
            pl.col(TS_MS) >= start_ms,
            pl.col(TS_MS) < end_ms,
        )
        if rows.is_empty():
            return
        known = [name for name in columns if name in rows.columns]
        yield Piece(
            gpu=as_array(rows[GPU]),
            ts_ms=as_array(rows[TS_MS]),
            values={name: as_array(rows[name]) for name in known},
            nulls={name: PACKED_NULL[name] for name in known if rows[name].null_count()},
        )


def _steps_per_unit(resolution: float) -> float:
    """A whole number, so that dividing by it rounds once; 0.1 itself is no exact number."""
    return float(round(1 / resolution))


def _packed(metric: Metric) -> pl.Expr:
    value = pl.col(metric.column)
    if metric.kind == "gauge" and metric.resolution is not None:
        value = (value.cast(pl.Float64) * _steps_per_unit(metric.resolution)).round()
    return value.cast(metric.packed_dtype)


def _unpacked(metric: Metric, packed: pl.DataFrame) -> pl.Expr:
    if metric.column not in packed.columns:
        return pl.lit(None, metric.dtype).alias(metric.column)
    value = pl.col(metric.column)
    if metric.kind == "gauge" and metric.resolution is not None:
        value = value.cast(pl.Float64) / _steps_per_unit(metric.resolution)
    return value.cast(metric.dtype)


def _n_known(frame: pl.DataFrame, known: Sequence[Metric]) -> pl.Expr:
    gappy = [m.column for m in known if frame[m.column].null_count()]
    n_full = pl.lit(len(known) - len(gappy), pl.UInt8)
    return pl.sum_horizontal(n_full, *(pl.col(c).is_not_null().cast(pl.UInt8) for c in gappy))
