"""Training metrics as JSON lines: loss, gradient norm, step time and checkpoints by step.

Which key is which column, and what a value means, is in `jobs.training_values`; rows of one step
are joined in `features.training`.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final
from zoneinfo import ZoneInfo

import orjson

from features.errors import SourceError
from features.raw_tables import RAW_TRAINING_METRICS
from pipelines.sources.jobs.names import DEFAULT_PATTERNS, run_of
from pipelines.sources.jobs.training_values import (
    MetricKeys,
    NoMomentError,
    checkpoint_of,
    is_in_ms,
    moment_of,
    names_alike,
    number_of,
    step_of,
)
from pipelines.sources.local_time import zone_of
from pipelines.sources.result import ReadTally, SourceResult, as_table

SOURCE: Final = "training_jsonl"
LINE_BYTES: Final = 1_000_000
"""Bytes of a line that are read as one record; a record of metrics has hundreds."""

_CHUNK_LINES: Final = 100_000
_CHUNK_BYTES: Final = 32_000_000
_METRICS: Final = ("loss", "grad_norm", "step_time_s", "checkpoint_step")
_EVENT_KEYS: Final = ("event", "type", "event_type")
_DEFAULT_KEYS: Final = MetricKeys()


class _RefusedError(ValueError):
    """A record that breaks a rule, which the message names."""


@dataclass(frozen=True)
class _Record:
    """A line and whether a line break ends it."""

    data: bytes
    is_whole: bool
    is_too_long: bool = False


def parse_training_jsonl(
    data: bytes | str,
    *,
    origin: str,
    job_id: str,
    time_zone: str,
    ingested_at: datetime,
    keys: MetricKeys = _DEFAULT_KEYS,
) -> SourceResult:
    """Reads JSON lines of a training run.

    Args:
        data: The lines.
        origin: File or address, for the account.
        job_id: Job or run, where a record does not name it.
        time_zone: Zone of times without an offset.
        ingested_at: When they are read, UTC.
        keys: Which key fills which column.

    Returns:
        `raw/training_metrics`, a row per record with a metric; NaN and infinite losses and
        gradient norms stay. Records without a metric are skipped, and so is a last line that is
        still being written; what breaks a rule is quarantined.

    Raises:
        SourceError: There is no such time zone.
    """
    raw = data.encode(errors="replace") if isinstance(data, str) else data
    lines = raw.split(b"\n")
    records = [_Record(line, is_whole=True) for line in lines[:-1]]
    records += [_Record(lines[-1], is_whole=False)] if lines[-1] else []
    reader = _Reader(origin, job_id, zone_of(time_zone, origin=origin), ingested_at, keys)
    return reader.read(records)


def stream_training_jsonl(
    path: Path,
    *,
    time_zone: str,
    ingested_at: datetime,
    keys: MetricKeys = _DEFAULT_KEYS,
    job_from: Sequence[str] = DEFAULT_PATTERNS,
    chunk_lines: int = _CHUNK_LINES,
) -> Iterator[SourceResult]:
    """Reads one file in chunks.

    Args:
        path: The file, plain or compressed (.gz).
        time_zone: Zone of times without an offset.
        ingested_at: When it is read, UTC.
        keys: Which key fills which column.
        job_from: Where the file's name tells the job (`jobs.names`); else the run is named after
            the folder, or the file.
        chunk_lines: Lines per result.

    Yields:
        `raw/training_metrics` of the next lines, each with its own account.

    Raises:
        SourceError: The file cannot be read.
    """
    zone = zone_of(time_zone, origin=str(path))
    reader = _Reader(str(path), run_of(path, job_from), zone, ingested_at, keys)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            chunk: list[_Record] = []
            size = 0
            for record in _records(file):
                chunk.append(record)
                size += len(record.data)
                if len(chunk) >= chunk_lines or size >= _CHUNK_BYTES:
                    yield reader.read(chunk)
                    chunk, size = [], 0
            yield reader.read(chunk)
    except (EOFError, zlib.error) as error:
        raise SourceError(
            f"{path} is no complete gzip file: {error}. Compress it again, or leave it out."
        ) from error
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}. Check that it exists, is a file, "
            f"and that this user may read it."
        ) from error


def _records(file: gzip.GzipFile | BinaryIO) -> Iterator[_Record]:
    """Lines; of one beyond `LINE_BYTES` only the start is held."""
    while line := file.readline(LINE_BYTES):
        is_whole = line.endswith(b"\n")
        is_too_long = not is_whole and len(line) == LINE_BYTES
        if is_too_long:
            while (rest := file.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            is_whole = rest.endswith(b"\n")
        yield _Record(line.removesuffix(b"\n"), is_whole, is_too_long)


@dataclass
class _Reader:
    """Turns records into rows."""

    origin: str
    job_id: str
    zone: ZoneInfo
    ingested_at: datetime
    keys: MetricKeys
    _by_name: dict[str, tuple[str, int]] = field(init=False)
    _names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name = self.keys.by_name()

    def read(self, records: Sequence[_Record]) -> SourceResult:
        """The rows of a chunk, with its account."""
        tally = ReadTally(table=RAW_TRAINING_METRICS.asset_key, source=SOURCE, origin=self.origin)
        rows = []
        for record in records:
            tally.read()
            try:
                row = self._row(record)
            except _RefusedError as error:
                tally.quarantined(str(error), record.data.decode("utf-8", errors="replace"))
                continue
            if row is None:
                tally.skipped()
            else:
                tally.parsed()
                rows.append(row)
        key = RAW_TRAINING_METRICS.asset_key
        return tally.result({key: as_table(RAW_TRAINING_METRICS, rows)})

    def _row(self, record: _Record) -> dict[str, Any] | None:
        text = record.data.strip(b" \t\r\x00").removeprefix(b"\xef\xbb\xbf")
        if not text or text.startswith(b"#"):
            return None
        if record.is_too_long:
            raise _RefusedError(f"longer than {LINE_BYTES} bytes")
        try:
            document = _loads(text)
        except ValueError as error:
            if not record.is_whole:
                return None  # still being written: the next reading takes it
            raise _RefusedError("is no JSON") from error
        if not isinstance(document, dict):
            raise _RefusedError("is no JSON object")
        return self._row_of(document)

    def _row_of(self, document: Mapping[str, Any]) -> dict[str, Any] | None:
        cells = self._cells(document)
        step = step_of(cells["step"][1]) if "step" in cells else None
        is_saved = _tells_checkpoint(document) and "checkpoint_step" not in cells
        if not is_saved and not any(name in cells for name in _METRICS):
            return None
        if step is None:
            raise _RefusedError("step is no whole number from 0" if "step" in cells else "no step")
        try:
            ts = moment_of(cells["ts"][1], zone=self.zone) if "ts" in cells else None
        except NoMomentError as error:
            raise _RefusedError(f"{cells['ts'][0]} is no time") from error
        job_id = str(cells["job_id"][1]).strip() if "job_id" in cells else ""
        row = {
            "job_id": job_id or self.job_id,
            "step": step,
            "ts": ts,
            "loss": _number(cells, "loss"),
            "grad_norm": _number(cells, "grad_norm"),
            "step_time_s": _seconds(cells),
            "checkpoint_step": step if is_saved else _checkpoint(cells, step=step),
            "source": SOURCE,
            "ingested_at": self.ingested_at,
        }
        return row if any(row[name] is not None for name in _METRICS) else None

    def _cells(self, document: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
        """Column -> the key that fills it (the first in rank that has a value) and the value."""
        found: dict[str, tuple[int, str, Any]] = {}
        for key, value in _flat(document):
            name = self._names.get(key)
            if name is None:
                name = names_alike(key)
                if len(self._names) < 10_000:
                    self._names[key] = name
            place = self._by_name.get(name)
            if place is None or value is None:
                continue
            column, rank = place
            if column not in found or rank < found[column][0]:
                found[column] = (rank, name, value)
        return {column: (name, value) for column, (_, name, value) in found.items()}


def _flat(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values, those of an object inside by `outer.inner` too."""
    for key, value in document.items():
        if isinstance(value, dict):
            for inner, inner_value in value.items():
                if not isinstance(inner_value, dict):
                    yield f"{key}.{inner}", inner_value
        else:
            yield key, value


def _number(cells: Mapping[str, tuple[str, Any]], column: str) -> float | None:
    if column not in cells:
        return None
    number = number_of(cells[column][1])
    if number is None:
        raise _RefusedError(f"{column} is no number")
    return number


def _seconds(cells: Mapping[str, tuple[str, Any]]) -> float | None:
    number = _number(cells, "step_time_s")
    if number is None:
        return None
    seconds = number / 1000 if is_in_ms(cells["step_time_s"][0]) else number
    if not 0 <= seconds < float("inf"):
        raise _RefusedError("step_time_s is no time from 0")
    return seconds


def _checkpoint(cells: Mapping[str, tuple[str, Any]], *, step: int) -> int | None:
    if "checkpoint_step" not in cells:
        return None
    value = cells["checkpoint_step"][1]
    found = checkpoint_of(value, step=step)
    if found is None and value is not False and value != "":
        raise _RefusedError("checkpoint_step names no step")
    return found


def _tells_checkpoint(document: Mapping[str, Any]) -> bool:
    """Whether a record is an event such as `checkpoint_saved`."""
    words = (document.get(key) for key in _EVENT_KEYS)
    texts = [word.lower() for word in words if isinstance(word, str)]
    return any(
        ("checkpoint" in text or "ckpt" in text)
        and any(done in text for done in ("saved", "written", "complete", "end", "done"))
        for text in texts
    )


def _loads(text: bytes) -> Any:
    """JSON, with NaN and Infinity as Python's writer puts them."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
