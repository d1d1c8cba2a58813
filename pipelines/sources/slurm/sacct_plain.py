"""The fields of plain lines of `sacct --parsable2`, read in bulk: where they are, what they say.

Which lines are plain is found out here; those that are not go to the careful reader
(`slurm.sacct_fast`).
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from features.errors import SourceError
from pipelines.sources.slurm import field_values as values
from pipelines.sources.slurm import sacct_scan as scan
from pipelines.sources.slurm.fields import NO_NODES, RefusedError, exit_code, gpu_count, job_state
from pipelines.sources.slurm.sacct_form import BUCKET_S, REFUSED, Meaning, SacctForm
from pipelines.sources.slurm.sacct_rows import TIME_COLUMNS, gpu_column

TEXTS: Final = ("JobName", "User", "Partition")
"""Columns that are taken as they stand."""

_BLOCK_LINES: Final = 2048  # of some 200 bytes: 400 kB
_MOST_KNOWN: Final = 200_000


class SacctFields:
    """The fields of a text's lines, and what each plain one says."""

    def __init__(self, buffer: values.Bytes, form: SacctForm) -> None:
        self._form = form
        self.host_lists = form.hosts
        self.buffer = buffer[: buffer.size - values.PADDING]
        self.words = values.as_words(buffer)
        layout = form.layout
        self.n_lines = int(scan.count_lines(self.buffer))
        gpus = gpu_column(layout.columns)
        names = ["JobID", "State", "ExitCode", *TIME_COLUMNS, "NodeList", *TEXTS, gpus]
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
        texts = ["job", "step", *(name for name in TEXTS if name in self._slot)]
        self.texts = {name: values.TextViews(self.n_lines) for name in texts}
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
            self._view_texts(block)
        if has_high:
            self._set_bad_text_aside()

    def _view_texts(self, block: slice) -> None:
        """Makes the texts of a block, while it is at hand."""
        starts, _ = self.field("JobID", block)
        job, step = self.job_length[block], self.step_length[block]
        for name, views in self.texts.items():
            if name == "job":
                field = starts, job
            else:
                field = (starts + job + 1, step) if name == "step" else self.field(name, block)
            views.view(self.words, field, is_plain=self.is_plain[block], block=block)

    def text_lengths(self, name: str) -> values.Ints:
        """(n_lines,) the length of each text."""
        if name in ("job", "step"):
            return self.job_length if name == "job" else self.step_length
        return self.field(name)[1]

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
