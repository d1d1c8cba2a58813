"""Training metrics from TensorBoard event files: scalars by step, to `raw/training_metrics`.

Framing is in `tfrecord`; which tag is which column is in `jobs.training_values`.

The tensorboard package is not needed. Its reader takes 0.4 ms per event and most of a second to
load, and it stops without a word at a torn or a spoilt record, so that what is lost could not be
counted. The few fields of an event that matter are declared here; the package's own writer judges
the reading in tests.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from features.errors import SourceError
from features.raw_tables import RAW_TRAINING_METRICS
from pipelines.sources.jobs.names import DEFAULT_PATTERNS, run_of
from pipelines.sources.jobs.tfrecord import TfRecord, tf_records
from pipelines.sources.jobs.training_values import (
    EPOCH,
    MetricKeys,
    is_in_ms,
    names_alike,
    step_of,
)
from pipelines.sources.result import ReadTally, SourceResult, as_table

SOURCE: Final = "tensorboard"

_CHUNK_RECORDS: Final = 100_000
_CHUNK_BYTES: Final = 32_000_000
_DEFAULT_TAGS: Final = MetricKeys()
_METRICS: Final = ("loss", "grad_norm", "step_time_s", "checkpoint_step")
_RULES: Final = {
    "spoilt": "the record's checksum is wrong",
    "lost": "the checksum of the record's length is wrong; what follows it cannot be found",
    "too_large": "the record is too large to be held",
}

# Fields by number, after the public event.proto, summary.proto and tensor.proto.
_DOUBLE, _FLOAT, _INT64, _INT32 = 1, 2, 3, 5
_STRING, _MESSAGE, _BYTES = 9, 11, 12
_FIELDS: Final[Mapping[str, tuple[tuple[str, int, int, str | None], ...]]] = {
    "Event": (
        ("wall_time", 1, _DOUBLE, None),
        ("step", 2, _INT64, None),
        ("summary", 5, _MESSAGE, "Summary"),
    ),
    "Summary": (("value", 1, _MESSAGE, "*Value"),),
    "Value": (
        ("tag", 1, _BYTES, None),  # not always UTF-8, which a string would have to be
        ("simple_value", 2, _FLOAT, None),
        ("tensor", 8, _MESSAGE, "Tensor"),
    ),
    "Tensor": (
        ("dtype", 1, _INT32, None),
        ("tensor_content", 4, _BYTES, None),
        ("float_val", 5, _FLOAT, "*"),
        ("double_val", 6, _DOUBLE, "*"),
        ("int_val", 7, _INT32, "*"),
        ("int64_val", 10, _INT64, "*"),
        ("half_val", 13, _INT32, "*"),
    ),
}

_HALF, _BFLOAT16 = 19, 14
_CONTENT: Final = {1: "<f", 2: "<d", 3: "<i", 9: "<q", _HALF: "<e"}
"""Type of a tensor -> how a single value of it is packed."""


def stream_tensorboard(
    path: Path,
    *,
    ingested_at: datetime,
    tags: MetricKeys = _DEFAULT_TAGS,
    job_from: Sequence[str] = DEFAULT_PATTERNS,
    chunk_records: int = _CHUNK_RECORDS,
) -> Iterator[SourceResult]:
    """Reads one event file in chunks.

    Args:
        path: The file.
        ingested_at: When it is read, UTC.
        tags: Which tag fills which column.
        job_from: Where the path tells the job (`jobs.names`); else the run is its folder.
        chunk_records: Records per result.

    Yields:
        `raw/training_metrics`: a row per record that holds a wanted scalar. A last record that
        is still being written is skipped; spoilt ones are quarantined.

    Raises:
        SourceError: The file cannot be read.
    """
    reader = _Reader(str(path), run_of(path, job_from), ingested_at, tags)
    try:
        with path.open("rb") as file:
            chunk: list[TfRecord] = []
            size = 0
            for record in tf_records(file):
                chunk.append(record)
                size += len(record.payload)
                if len(chunk) >= chunk_records or size >= _CHUNK_BYTES:
                    yield reader.read(chunk)
                    chunk, size = [], 0
            yield reader.read(chunk)
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}. Check that it exists, is a file, "
            f"and that this user may read it."
        ) from error


@dataclass
class _Reader:
    """Turns records into rows."""

    origin: str
    job_id: str
    ingested_at: datetime
    tags: MetricKeys
    _columns: dict[bytes, tuple[str, int, bool] | None] = field(default_factory=dict)
    _by_name: dict[str, tuple[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._by_name = self.tags.by_name()

    def read(self, records: Sequence[TfRecord]) -> SourceResult:
        """The rows of a chunk, with its account."""
        tally = ReadTally(table=RAW_TRAINING_METRICS.asset_key, source=SOURCE, origin=self.origin)
        rows: list[dict[str, Any]] = []
        for record in records:
            tally.read()
            where = f"at byte {record.position}"
            if record.fate == "torn":
                tally.skipped()  # still being written: the next reading takes it
            elif record.fate != "whole":
                tally.quarantined(_RULES[record.fate], where)
            else:
                self._take(record, tally, rows)
        key = RAW_TRAINING_METRICS.asset_key
        return tally.result({key: as_table(RAW_TRAINING_METRICS, rows)})

    def _take(self, record: TfRecord, tally: ReadTally, rows: list[dict[str, Any]]) -> None:
        where = f"at byte {record.position}"
        try:
            event = _event_class().FromString(record.payload)
        except DecodeError:
            tally.quarantined("is no event", where)
            return
        cells = self._cells(event)
        if not cells:
            tally.skipped()
            return
        if event.step < 0:
            tally.quarantined("step is no whole number from 0", f"{event.step} {where}")
            return
        ts = _moment(event.wall_time)
        if ts is None:
            tally.quarantined("wall_time is no time", f"{event.wall_time} {where}")
            return
        broken = next((name for name, value in cells.items() if value is None), None)
        if broken is not None:
            tally.quarantined(f"{broken} is no number it can be", where)
            return
        tally.parsed()
        rows.append(
            {
                "job_id": self.job_id,
                "step": event.step,
                "ts": ts,
                **cells,
                "source": SOURCE,
                "ingested_at": self.ingested_at,
            }
        )

    def _cells(self, event: Any) -> dict[str, float | int | None]:
        """Column -> value of an event's wanted scalars; None: a value the column cannot hold."""
        found: dict[str, tuple[int, float | int | None]] = {}
        for value in event.summary.value:
            place = self._place(value.tag)
            if place is None:
                continue
            column, rank, is_ms = place
            number = _scalar(value)
            if column in found and found[column][0] <= rank:
                continue
            found[column] = (rank, _fitting(column, number, is_ms=is_ms))
        return {column: value for column, (_, value) in found.items()}

    def _place(self, tag: bytes) -> tuple[str, int, bool] | None:
        """The column a tag fills, its rank among the column's tags, and whether it counts ms."""
        if tag not in self._columns:
            if len(self._columns) >= 100_000:
                self._columns.clear()
            name = names_alike(tag.decode("utf-8", errors="replace"))
            column, rank = self._by_name.get(name, ("", 0))
            self._columns[tag] = (column, rank, is_in_ms(name)) if column in _METRICS else None
        return self._columns[tag]


def _fitting(column: str, number: float | None, *, is_ms: bool) -> float | int | None:
    if number is None or column in ("loss", "grad_norm"):
        return number
    if column == "checkpoint_step":
        return step_of(number)
    seconds = number / 1000 if is_ms else number
    return seconds if 0 <= seconds < float("inf") else None


def _scalar(value: Any) -> float | None:
    """The one number of a summary value, however it is packed; None where it is none."""
    if not value.HasField("tensor"):
        return float(value.simple_value) if value.HasField("simple_value") else None
    tensor = value.tensor
    for values in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(values) == 1:
            return float(values[0])
    content = tensor.tensor_content
    if len(tensor.half_val) == 1:
        content = struct.pack("<H", tensor.half_val[0] & 0xFFFF)
    if tensor.dtype == _BFLOAT16 and len(content) == 2:
        return float(struct.unpack("<f", b"\0\0" + content)[0])
    packing = _CONTENT.get(tensor.dtype)
    if packing is None or len(content) != struct.calcsize(packing):
        return None
    return float(struct.unpack(packing, content)[0])


def _moment(wall_time: float) -> datetime | None:
    try:
        return EPOCH + timedelta(microseconds=round(wall_time * 1e6))
    except (OverflowError, ValueError):
        return None


@cache
def _event_class() -> Any:
    """The class of an event with the fields of `_FIELDS`; protobuf passes over all others."""
    file = FileDescriptorProto(name="forewarn/event.proto", package="forewarn", syntax="proto3")
    for message, fields in _FIELDS.items():
        declared: DescriptorProto = file.message_type.add(name=message)
        for name, number, kind, of in fields:
            is_list = of is not None and of.startswith("*")
            one: FieldDescriptorProto = declared.field.add(name=name, number=number)
            one.type = FieldDescriptorProto.Type.ValueType(kind)
            one.label = (
                FieldDescriptorProto.LABEL_REPEATED
                if is_list
                else FieldDescriptorProto.LABEL_OPTIONAL
            )
            if kind == _MESSAGE:
                one.type_name = f".forewarn.{(of or '').removeprefix('*')}"
            elif name == "simple_value":
                one.oneof_index = 0
                one.proto3_optional = True
                declared.oneof_decl.add(name="_simple_value")
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("forewarn.Event"))
