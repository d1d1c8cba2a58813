"""Packed telemetry in Parquet: how its columns are encoded, and pieces of it read at little cost.

Which files there are is known to `pipelines.storage.telemetry.store`, what packing is to
`features.packing`.
"""

import errno
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from features.engine.samples import Piece
from features.errors import DataError
from features.packing import GPU, PACKED_NULL, PACKED_SCHEMA, TS_MS, read_only
from features.telemetry_metrics import METRIC_BY_COLUMN, METRICS
from pipelines.storage.object_paths import Place

ROW_GROUP: Final = 256 * 1024
"""Rows per row group: what is decoded, and in memory, at a time."""

_PAGE_ROWS: Final = 64 * 1024  # with pyarrow's 20,000 the files are 5 % larger and slower to read
_STEPS: Final = "forewarn.steps"
_NOISY: Final = [
    m.column for m in METRICS if m.kind == "gauge" and (m.resolution is None or m.resolution < 1)
]
"""Gauges that move with every sample: byte by byte they compress best."""
_GROWING: Final = [
    TS_MS,
    *(m.column for m in METRICS if m.kind == "counter" and m.unit in ("J", "us")),
]
"""Columns that grow with every sample; all others repeat few values and suit a dictionary."""


def encode(packed: pl.DataFrame, *, level: int) -> bytes:
    """A packed frame as a Parquet file.

    Noisy gauges are stored in the greatest step that all their values are multiples of, as most
    exporters give whole degrees and watts; the steps are in the file's metadata. A metric without
    a value takes no column.

    Args:
        packed: Columns of `PACKED_SCHEMA`, sorted by (gpu, ts_ms).
        level: Of zstd; 15 takes four times as long as 3 and saves 7 %.
    """
    packed = packed.select(
        column.name
        for column in packed
        if column.name not in METRIC_BY_COLUMN or column.null_count() < packed.height
    )
    steps = {name: _step(packed[name]) for name in _NOISY if name in packed.columns}
    steps = {name: step for name, step in steps.items() if step > 1}
    stepped = packed.with_columns(
        (pl.col(name) // step).cast(packed.schema[name]) for name, step in steps.items()
    )
    table = stepped.to_arrow().cast(_arrow_schema(packed.columns))
    dictionary = [n for n in packed.columns if n not in _NOISY and n not in _GROWING]
    encodings = dict.fromkeys(_NOISY, "BYTE_STREAM_SPLIT") | dict.fromkeys(
        _GROWING, "DELTA_BINARY_PACKED"
    )
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        table.schema,
        compression="zstd",
        compression_level=level,
        use_dictionary=dictionary,
        column_encoding={n: e for n, e in encodings.items() if n in packed.columns},
        write_statistics=[GPU, TS_MS],
        write_page_checksum=True,
        store_schema=False,
        max_rows_per_page=_PAGE_ROWS,
    ) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata({_STEPS: json.dumps(steps)})
    return buffer.getvalue()


class TelemetryFile:
    """An open file of packed telemetry; what was opened stays readable when it is superseded.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: There is none.
        DataError: It cannot be read, or is not what was written.
    """

    def __init__(self, path: Place) -> None:
        self._path = path
        with self._one_error():
            # An object is read whole: once it is removed, nothing more of it can be read.
            source = path if isinstance(path, Path) else pa.BufferReader(path.read_bytes())
            self._file = pq.ParquetFile(source, page_checksum_verification=True)
            self._columns = self._file.schema_arrow.names
            wanted = _arrow_schema(self._columns)
            if not self._file.schema_arrow.equals(wanted) or self._columns[:2] != [GPU, TS_MS]:
                raise ValueError("its columns are not those of packed telemetry")
            metadata = self._file.metadata.metadata or {}
            self._steps: dict[str, int] = json.loads(metadata[_STEPS.encode()])

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def rows(self) -> pl.DataFrame:
        """Every row, as a packed frame."""
        with self._one_error():
            table = self._file.read(use_threads=False)
            return pl.DataFrame(
                {
                    name: pl.from_arrow(self._whole_steps(name, table.column(name)))
                    for name in self._columns
                },
                schema=pl.Schema({name: PACKED_SCHEMA[name] for name in self._columns}),
            )

    def pieces(
        self, *, start_ms: int, end_ms: int, columns: Sequence[str], gpus: range | None = None
    ) -> Iterator[Piece]:
        """The rows with start_ms <= ts_ms < end_ms, one piece per row group that has any.

        Args:
            start_ms: First moment, inclusive.
            end_ms: End, exclusive.
            columns: Columns wanted; those that the file does not have are left out.
            gpus: Codes wanted; None: all.
        """
        known = [name for name in columns if name in self._columns]
        for number in range(self._file.num_row_groups):
            first, last = self._bounds(number, TS_MS)
            if last < start_ms or first >= end_ms:
                continue
            lowest, highest = self._bounds(number, GPU)
            if gpus is not None and (highest < gpus.start or lowest >= gpus.stop):
                continue
            with self._one_error():
                group = self._file.read_row_group(
                    number, columns=[GPU, TS_MS, *known], use_threads=False
                )
                arrays = {
                    name: self._array(name, group.column(name)) for name in group.schema.names
                }
            if gpus is not None and (lowest < gpus.start or highest >= gpus.stop):
                start, stop = np.searchsorted(arrays[GPU], [gpus.start, gpus.stop])
                arrays = {name: read_only(array[start:stop]) for name, array in arrays.items()}
            if first < start_ms or last >= end_ms:
                ts_ms = arrays[TS_MS]
                within = (ts_ms >= start_ms) & (ts_ms < end_ms)
                arrays = {name: read_only(array[within]) for name, array in arrays.items()}
            if len(arrays[GPU]):
                yield Piece(
                    gpu=arrays.pop(GPU),
                    ts_ms=arrays.pop(TS_MS),
                    values=arrays,
                    nulls={n: PACKED_NULL[n] for n in known if group.column(n).null_count},
                )

    def _bounds(self, number: int, column: str) -> tuple[int, int]:
        """Smallest and greatest value in a row group, as its statistics say."""
        with self._one_error():
            place = self._columns.index(column)
            statistics = self._file.metadata.row_group(number).column(place).statistics
            return int(statistics.min), int(statistics.max)

    def _array(self, name: str, column: pa.ChunkedArray) -> npt.NDArray[Any]:
        column = self._whole_steps(name, column)
        if column.null_count:
            column = column.fill_null(PACKED_NULL[name])
        chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        return read_only(chunk.to_numpy(zero_copy_only=True))

    def _whole_steps(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        step = self._steps.get(name, 1)
        return pc.multiply(column, pa.scalar(step, column.type)) if step > 1 else column

    @contextmanager
    def _one_error(self) -> Iterator[None]:
        """Whatever a broken file makes of reading becomes one error that names the file."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(self._path)) from error
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            pa.ArrowException,
        ) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(
                f"{self._path} cannot be read: {reason}. Materialise its partition again."
            ) from error


def _step(values: pl.Series) -> int:
    """The greatest number that every value is a multiple of; 1 for values that are not integers."""
    if not values.dtype.is_integer():
        return 1
    return int(np.gcd.reduce(values.drop_nulls().unique().to_numpy(), initial=0))


def _arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, _ARROW[PACKED_SCHEMA[name]]) for name in columns])


_ARROW: Final[dict[pl.DataType, pa.DataType]] = {
    pl.UInt8(): pa.uint8(),
    pl.UInt32(): pa.uint32(),
    pl.Int8(): pa.int8(),
    pl.Int16(): pa.int16(),
    pl.Int32(): pa.int32(),
    pl.Int64(): pa.int64(),
    pl.Float32(): pa.float32(),
    pl.String(): pa.string(),
}
