"""Plain lines of `sacct --parsable2` read in bulk; the others go to the careful reader.

How a record is cut and read when it is not plain is in `sacct_records` and `sacct_rows`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from features.contracts import UTC_TIME
from features.errors import SourceError
from features.raw_tables import RAW_JOB_LOG
from pipelines.sources import field_values as values
from pipelines.sources import sacct_scan as scan
from pipelines.sources.result import ReadTally
from pipelines.sources.sacct_form import BUCKET_S, MOST_NODES, REFUSED, Meaning, SacctForm
from pipelines.sources.sacct_records import cut_records
from pipelines.sources.sacct_rows import (
    TIME_COLUMNS,
    careful_row,
    gpu_column,
    is_valid,
)
from pipelines.sources.slurm_fields import NO_NODES, RefusedError, exit_code, gpu_count, job_state

_TEXTS: Final = ("JobName", "User", "Partition")
_BLOCK_LINES: Final = 2048  # of some 200 bytes: 400 kB
_FEW_ROWS: Final = 100
_MOST_KNOWN: Final = 200_000


@dataclass(frozen=True)
class Chunk:
    """What lines gave.

    Attributes:
        frames: Rows of `raw/job_log` without source and ingested_at, in file order.
        n_used: Bytes that they are made of: the last record may go on in bytes not here yet.
    """

    frames: Iterator[pl.DataFrame]
    n_used: int


def read_chunk(
    buffer: values.Bytes, form: SacctForm, tally: ReadTally, *, more_follows: bool
) -> Chunk:
    """Reads whole lines.

    Args:
        buffer: (n + PADDING,) the lines, after the header, and room for whole words at the end.
        form: How they are read.
        tally: Told what became of each line that is used.
        more_follows: Whether more lines will come.

    Returns:
        Rows, in order, and how many bytes are used.

    Raises:
        SourceError: A time is local and the zone is not known.
    """
    fields = _Fields(buffer, form)
    if form.layout.may_trail and fields.n_lines:
        # What follows a line may be the rest of its last field.
        fields.is_plain[:-1] &= fields.is_plain[1:]
        fields.is_plain[-1] &= not more_follows
    plain = np.flatnonzero(fields.is_plain)
    odd = np.flatnonzero(~fields.is_plain)
    tally.read(plain.size)
    tally.parsed(plain.size)
    rows, rest_from = _odd_rows(fields, odd, form, tally, more_follows=more_follows)
    return Chunk(_in_order(fields, plain, rows), int(fields.bounds[rest_from]))


class _Fields:
    """The fields of a text's lines, and what each plain one says."""

    def __init__(self, buffer: values.Bytes, form: SacctForm) -> None:
        self._form = form
        self.host_lists = form.hosts
        self.buffer = buffer[: buffer.size - values.PADDING]
        self.words = values.as_words(buffer)
        layout = form.layout
        self.n_lines = int(scan.count_lines(self.buffer))
        gpus = gpu_column(layout.columns)
        names = ["JobID", "State", "ExitCode", *TIME_COLUMNS, "NodeList", *_TEXTS, gpus]
        columns = {name: at for at, name in enumerate(layout.columns)}  # of repeats the last
        self._slot = {name: i for i, name in enumerate(n for n in names if n and n in columns)}
        slots = np.full(len(layout.columns), -1, np.int32)
        for name, slot in self._slot.items():
            slots[columns[name]] = slot
        self.bounds = np.zeros(self.n_lines + 1, np.int64)
        self._starts, self._lengths = form.room.places(len(self._slot), self.n_lines)
        self.is_plain = np.empty(self.n_lines, np.bool_)
        self.job_length = np.empty(self.n_lines, np.int32)
        self.step_length = np.empty(self.n_lines, np.int32)
        self._seconds = {name: np.empty(self.n_lines, np.int64) for name in TIME_COLUMNS}
        self._kinds = {name: np.empty(self.n_lines, np.uint8) for name in TIME_COLUMNS}
        valued = [name for name in ("State", "ExitCode", "NodeList", gpus) if name in self._slot]
        self._numbers = {name: np.empty(self.n_lines, np.int32) for name in valued}
        self._firsts = {name: values.ValueNumbers() for name in valued}
        self._read_blocks(slots)
        self.times = {name: self._times(name, form) for name in TIME_COLUMNS}
        self.states = self._values("State", lambda text: (job_state(text),))
        self.exits = self._values("ExitCode", exit_code)
        self.hosts = self._values("NodeList", self._host_list)
        self.gpus = self._values(gpus, lambda text: (gpu_count(text),))

    def _read_blocks(self, slots: values.Ints) -> None:
        """Reads the lines block by block: a block fits the processor's cache, the text does not."""
        layout = self._form.layout
        delimiter = np.frombuffer(layout.delimiter.encode(), np.uint8)
        is_simple = layout.delimiter.isascii() and not set(layout.delimiter) & set("\r\n")
        at, has_high = 0, False
        for low in range(0, self.n_lines, _BLOCK_LINES):
            block = slice(low, min(low + _BLOCK_LINES, self.n_lines))
            is_plain = self.is_plain[block]
            at, is_high = scan.scan_lines(
                self.buffer, self.words, delimiter, slots, layout.is_closed, at, low, self.bounds,
                self._starts, self._lengths, is_plain,
            )  # fmt: skip
            has_high |= is_high
            is_plain &= is_simple
            scan.split_job_ids(
                self.buffer, *self.field("JobID", block), is_plain, self.job_length[block],
                self.step_length[block],
            )  # fmt: skip
            for name in filter(self.has, TIME_COLUMNS):
                seconds, kinds = self._seconds[name][block], self._kinds[name][block]
                scan.read_times(self.buffer, *self.field(name, block), is_plain, seconds, kinds)
            for name, numbers in self._numbers.items():
                self._firsts[name].number(
                    self.words, self.field(name, block), is_plain=is_plain, low=low,
                    numbers=numbers[block],
                )  # fmt: skip
        if has_high:
            self._set_bad_text_aside()

    def has(self, name: str | None) -> bool:
        """Whether the output has the column."""
        return name in self._slot

    def field(
        self, name: str | None, block: slice = slice(None)
    ) -> tuple[values.Ints, values.Ints]:
        """Where the field of each line starts, and its length."""
        slot = self._slot[name or ""]
        return self._starts[slot][block], self._lengths[slot][block]

    def line(self, at: int) -> str:
        """The text of a line."""
        return decode_line(self.buffer[self.bounds[at] : self.bounds[at + 1]].tobytes())

    def _host_list(self, text: str) -> tuple[str | None, int]:
        word = text.strip()
        return (None if word in NO_NODES else word), self.host_lists.size(word)

    def _set_bad_text_aside(self) -> None:
        """Lines with bytes beyond ASCII are plain only where the whole text is UTF-8."""
        try:
            str(self.buffer.data, "utf-8")
        except UnicodeDecodeError:
            high = np.flatnonzero(self.buffer >= 128)
            self.is_plain[np.searchsorted(self.bounds, high, side="right") - 1] = False

    def _times(self, name: str, form: SacctForm) -> tuple[values.Longs, values.Flags] | None:
        """Microseconds since the epoch, and whether the time is known."""
        if not self.has(name):
            return None
        seconds, kinds = self._seconds[name], self._kinds[name]
        low, high = scan.bucket_range(seconds, kinds, BUCKET_S)
        if low <= high:
            if form.zone is None:
                at = int(np.flatnonzero(kinds == scan.LOCAL_TIME)[0])
                raise SourceError(
                    f"{form.origin}: {name} has no offset, and no time zone is set "
                    f"({self.line(at)[:80]!r}). Give the input the zone of the machine that wrote "
                    f"it (time_zone: Europe/Berlin), or have Slurm write seconds since the epoch "
                    f"(SLURM_TIME_FORMAT=%s)."
                )
            is_met = np.zeros(high - low + 1, np.bool_)
            scan.mark_buckets(seconds, kinds, BUCKET_S, low, is_met)
            table = np.zeros(is_met.size, np.int64)
            for place in np.flatnonzero(is_met):
                table[place] = form.clock.shift(low + int(place), form.zone)
            scan.shift_times(seconds, kinds, BUCKET_S, low, table)
        return seconds * 1_000_000, kinds != scan.NULL_TIME

    def _values(
        self, name: str | None, read: Callable[[str], tuple[Any, ...]]
    ) -> tuple[values.Ints, list[Meaning]] | None:
        """The number of each line's value, and what each distinct value says."""
        if name is None or not self.has(name):
            return None
        starts, lengths = self.field(name)
        numbers, firsts = self._numbers[name], self._firsts[name].firsts
        known = self._form.known.setdefault(name, {})
        if len(known) > _MOST_KNOWN:
            known.clear()
        begins, ends = starts[firsts], starts[firsts] + lengths[firsts]
        data = self.buffer.data
        words = [bytes(data[a:b]) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        for word in words:
            if word not in known:
                known[word] = _read(read, word)
        said = [known[word] for word in words]
        is_refused = np.array([*(meaning is REFUSED for meaning in said), False], np.bool_)
        self.is_plain &= ~is_refused[numbers]
        return numbers, said


def _read(read: Callable[[str], tuple[Any, ...]], word: bytes) -> tuple[Any, ...]:
    try:
        return read(word.decode())
    except (RefusedError, UnicodeDecodeError):
        return REFUSED


def decode_line(data: bytes) -> str:
    """The text of one line, without its end.

    Args:
        data: Its bytes; those that are not UTF-8 become U+FFFD.
    """
    return data.removesuffix(b"\n").decode("utf-8", errors="replace").removesuffix("\r")


def _odd_rows(
    fields: _Fields,
    odd: npt.NDArray[np.int64],
    form: SacctForm,
    tally: ReadTally,
    *,
    more_follows: bool,
) -> tuple[list[tuple[int, dict[str, Any]]], int]:
    """Reads the lines that are not plain, run by run.

    A plain line ends a run: it is a whole record, which no torn record before it may swallow.

    Returns:
        Line and row of each record; the line from which on nothing was decided.
    """
    rows: list[tuple[int, dict[str, Any]]] = []
    for run in _runs(odd):
        may_go_on = more_follows and run[-1] == fields.n_lines - 1
        lines = [(int(at), fields.line(at)) for at in run]
        body = [(at, line) for at, line in lines if line.strip() and line != form.header]
        texts = [line for _, line in body]
        done = 0
        for record in cut_records(texts, form.layout, is_valid=is_valid, more_follows=may_go_on):
            try:
                rows.append((body[done][0], careful_row(record, form.zone)))
                tally.parsed(record.n_lines)
            except RefusedError as refused:
                tally.quarantined(str(refused), record.text, count=record.n_lines)
            done += record.n_lines
        rest_from = body[done][0] if done < len(body) else fields.n_lines
        n_decided = sum(at < rest_from for at, _ in lines)
        tally.read(n_decided)
        tally.skipped(n_decided - done)
        if rest_from < fields.n_lines:
            return rows, rest_from
    return rows, fields.n_lines


def _runs(odd: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Cuts line numbers where one is missing between them."""
    if odd.size:
        cuts = np.flatnonzero(np.diff(odd) > 1) + 1
        yield from np.split(odd, cuts)


def _in_order(
    fields: _Fields, plain: npt.NDArray[np.int64], odd: Sequence[tuple[int, dict[str, Any]]]
) -> Iterator[pl.DataFrame]:
    """Frames of all rows in file order, none with more than `MOST_NODES` node names."""
    schema = {name: dtype for name, dtype in RAW_JOB_LOG.schema.items() if name in _ROW}
    head = _plain_frame(fields, plain)
    columns = {name: [row[name] for _, row in odd] for name in schema}
    careful = pl.DataFrame(columns, schema=schema)
    for part, hosts in _parts(fields, plain):
        low, high = part.start, part.stop
        frame = head.slice(low, high - low).with_columns(hosts).select(list(schema))
        if odd:
            first = plain[low] if low else -1
            last = plain[high] if high < plain.size else fields.n_lines
            here = [i for i, (at, _) in enumerate(odd) if first <= at < last]
            frame = _woven(frame, plain[low:high], careful[here], [odd[i][0] for i in here])
        yield frame


def _woven(
    frame: pl.DataFrame, lines: values.Longs, odd: pl.DataFrame, odd_lines: Sequence[int]
) -> pl.DataFrame:
    """Puts the odd rows where their lines stand among those of the frame.

    A few are put in between slices, which copies nothing; many are sorted in.
    """
    if len(odd_lines) > _FEW_ROWS:
        both = pl.concat([frame, odd])
        return both[np.argsort(np.concatenate([lines, odd_lines]), kind="stable")]
    cuts = np.searchsorted(lines, odd_lines).tolist()
    pieces, at = [], 0
    for row, cut in enumerate(cuts):
        pieces += [frame.slice(at, cut - at), odd.slice(row, 1)]
        at = cut
    return pl.concat([*pieces, frame.slice(at)], rechunk=False)


_ROW: Final = frozenset(set(RAW_JOB_LOG.schema) - {"source", "ingested_at"})


def _parts(fields: _Fields, plain: npt.NDArray[np.int64]) -> Iterator[tuple[slice, pl.Series]]:
    """Slices of the plain rows with their nodes, each of at most `MOST_NODES` names (or a row)."""
    dtype = pl.List(pl.String)
    if fields.hosts is None:
        yield slice(0, plain.size), pl.Series("nodes", [None] * plain.size, dtype)
        return
    numbers, said = fields.hosts
    numbers = numbers[plain]
    sizes = np.array([size or 0 for _, size in said], np.int64)
    totals = np.cumsum(sizes[numbers]) if plain.size else np.zeros(1, np.int64)
    low = 0
    while True:
        before = totals[low - 1] if low else 0
        high = plain.size
        if totals[-1] - before > MOST_NODES:
            high = max(low + 1, int(np.searchsorted(totals, before + MOST_NODES, side="right")))
        wanted, places = _met(numbers[low:high], len(said))
        words = [said[i][0] for i in wanted]
        lists = [None if word is None else fields.host_lists.names(word) for word in words]
        yield slice(low, high), _lists(lists)[places].alias("nodes")
        low = high
        if low >= plain.size:
            return


def _met(numbers: values.Ints, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct ones of numbers below `count`, and the place of each number among them."""
    is_met = np.zeros(count, np.bool_)
    is_met[numbers] = True
    return np.flatnonzero(is_met), (np.cumsum(is_met) - 1)[numbers]


def _lists(lists: Sequence[list[str] | None]) -> pl.Series:
    """A series of lists of text; Arrow builds it many times faster than one series per list."""
    return pl.Series(pa.array(lists, pa.large_list(pa.large_string())), dtype=pl.List(pl.String))


def _plain_frame(fields: _Fields, plain: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Everything but the nodes."""
    starts, _ = fields.field("JobID")
    job, step = fields.job_length, fields.step_length
    series = {
        "job_id": _text(fields, starts, job, plain),
        "step": _text(fields, starts + job + 1, step, plain),
    }
    for name, column in zip(_TEXTS, ("job_name", "user", "partition"), strict=True):
        known = _text(fields, *fields.field(name), plain) if fields.has(name) else None
        series[column] = _nulls(plain.size, pl.String()) if known is None else known
    series["state"] = _said(fields.states, plain, place=0, dtype=pl.String())
    series["exit_code"] = _said(fields.exits, plain, place=0, dtype=pl.Int32())
    series["exit_signal"] = _said(fields.exits, plain, place=1, dtype=pl.Int32())
    series["n_gpus"] = _said(fields.gpus, plain, place=0, dtype=pl.Int32())
    for name, column in zip(TIME_COLUMNS, ("submit", "start", "end"), strict=True):
        series[column] = _moments(fields.times[name], plain)
    frame = pl.DataFrame(series)
    return frame.with_columns(pl.coalesce("submit", "start", "end").alias("filed_at"))


def _nulls(count: int, dtype: pl.DataType) -> pl.Series:
    return pl.repeat(None, count, dtype=dtype, eager=True)


def _text(
    fields: _Fields, starts: values.Ints, lengths: values.Ints, plain: npt.NDArray[np.int64]
) -> pl.Series:
    """Fields as text; an empty one is null."""
    views, is_known, held = values.string_views(fields.words, starts, lengths, plain)
    buffers = [pa.py_buffer(is_known), pa.py_buffer(views), pa.py_buffer(held)]
    array = pa.Array.from_buffers(pa.string_view(), plain.size, buffers)
    return pl.Series(array, dtype=pl.String)


def _said(
    said_by: tuple[values.Ints, list[Meaning]] | None,
    plain: npt.NDArray[np.int64],
    *,
    place: int,
    dtype: pl.DataType,
) -> pl.Series:
    """What the distinct values say, for each line."""
    if said_by is None:
        return _nulls(plain.size, dtype)
    numbers, said = said_by
    return pl.Series([words[place] for words in said], dtype=dtype)[numbers[plain]]


def _moments(
    times: tuple[values.Longs, values.Flags] | None, plain: npt.NDArray[np.int64]
) -> pl.Series:
    if times is None:
        return _nulls(plain.size, UTC_TIME)
    micros, is_known = times[0][plain], times[1][plain]
    series = pl.Series(micros).cast(UTC_TIME)
    if is_known.all():
        return series
    return series.to_frame("at").select(pl.when(pl.Series(is_known)).then("at"))["at"]
