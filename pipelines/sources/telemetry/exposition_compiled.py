"""Reads pages of exposition text with the compiled kernel, where numba can keep what it compiled.

The loop over bytes is in `telemetry.exposition_kernel`, the shape of a page in
`telemetry.exposition_scan`.
"""

import importlib
from typing import Any, Final

import numpy as np

from pipelines.sources.telemetry.exposition import parse_labels, parse_number
from pipelines.sources.telemetry.exposition_page import (
    BEYOND,
    NO_LABELS,
    Columns,
    Lines,
    Page,
    Scan,
    Symbols,
)

_COLUMNS: Final = (
    np.int32, np.int32, np.float64, np.int64, np.int64,
    np.int32, np.int64, np.int64, np.int64, np.int64, np.int64,
)  # fmt: skip
_FIRST_LINES: Final = 1024
_FIRST_ENTRIES: Final = 4096
_FIRST_BYTES: Final = 1 << 20
_INVALID: Final = -2


def compiled_scan() -> Scan | None:
    """Loads the kernel, compiling it the first time.

    Returns:
        A way to read pages; None where numba is absent or has no folder to keep its work in
        (compiling anew in every process would take longer than it saves).
    """
    try:
        kernel = importlib.import_module("pipelines.sources.telemetry.exposition_kernel")
    except (ImportError, RuntimeError):
        return None
    return CompiledScan(kernel)


class PlacedLines(Lines):
    """The lines of a page by the place where they begin."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __getitem__(self, number: int, /) -> bytes:
        end = self._data.find(b"\n", number)
        return self._data[number : end if end >= 0 else len(self._data)]


class CompiledScan:
    """Reads pages; what it knows of one set of symbols is kept between them.

    Args:
        kernel: The module `telemetry.exposition_kernel`.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._symbols: Symbols | None = None
        self._out = tuple(np.empty(_FIRST_LINES, kind) for kind in _COLUMNS)

    def __call__(self, data: bytes, symbols: Symbols, *, openmetrics: bool) -> Page:
        """Reads a page, as `Scan` wants."""
        if self._symbols is not symbols:
            self._symbols = symbols
            self._forget()
        scale = 1_000_000_000 if openmetrics else 1_000_000
        buffer = np.frombuffer(data, np.uint8)
        counts = np.zeros(len(self._kernel.COUNTS), np.int64)
        while True:
            self._make_room(self._out[0].size, len(data))
            memory = (
                self._arena, self._starts, self._lengths, self._table, self._state, self._successors
            )  # fmt: skip
            limit = BEYOND // scale - 1
            if self._kernel.scan(buffer, memory, limit, scale, self._out, counts):
                break
            self._out = tuple(np.resize(column, 2 * column.size) for column in self._out)
        self._learn(symbols)
        return self._page(data, symbols, counts.tolist(), openmetrics=openmetrics)

    def _forget(self) -> None:
        self._arena = np.empty(_FIRST_BYTES, np.uint8)
        self._starts = np.empty(_FIRST_ENTRIES, np.int64)
        self._lengths = np.empty(_FIRST_ENTRIES, np.int64)
        self._successors = np.full(_FIRST_ENTRIES, -1, np.int64)
        self._numbers = np.empty(_FIRST_ENTRIES, np.int32)
        self._table = np.full(4 * _FIRST_ENTRIES, -1, np.int32)
        self._state = np.array([1, 0, -1, -1, -1], np.int64)
        self._starts[0] = self._lengths[0] = 0
        self._numbers[0] = NO_LABELS  # entry 0 stands for a line without labels
        self._n_learned = 1

    def _make_room(self, n_lines: int, n_bytes: int) -> None:
        """Enough for a page in which every line has a new name, a new block or a new comment."""
        entries = int(self._state[0]) + 2 * n_lines
        used = int(self._state[1]) + n_bytes
        if used > self._arena.size:
            self._arena = np.resize(self._arena, max(used, 2 * self._arena.size))
        if entries <= self._starts.size:
            return
        size = max(entries, 2 * self._starts.size)
        known = self._starts.size
        for name in ("_starts", "_lengths", "_successors", "_numbers"):
            grown = np.full(size, -1, getattr(self, name).dtype)
            grown[:known] = getattr(self, name)
            setattr(self, name, grown)
        self._rehash(size)

    def _rehash(self, size: int) -> None:
        self._table = np.full(1 << (4 * size).bit_length(), -1, np.int32)
        self._kernel.rehash(
            self._arena, self._starts, self._lengths, self._table, int(self._state[0])
        )

    def _learn(self, symbols: Symbols) -> None:
        """Gives the new entries their numbers among the symbols."""
        begin, end = self._n_learned, int(self._state[0])
        if begin == end:
            return
        starts, lengths = self._starts[begin:end].tolist(), self._lengths[begin:end].tolist()
        new = self._arena[starts[0] : int(self._state[1])].tobytes()
        self._numbers[begin:end] = [
            _number_of(new[start - starts[0] : start - starts[0] + length], symbols)
            for start, length in zip(starts, lengths, strict=True)
        ]
        self._n_learned = end

    def _page(
        self,
        data: bytes,
        symbols: Symbols,
        counts: list[int],
        *,
        openmetrics: bool,
    ) -> Page:
        n_lines, n_plain, n_samples, n_comments, n_odd, n_unrounded, _ = counts
        out: Any = self._out
        numbers, lines = self._numbers, PlacedLines(data)
        value: Any = out[2][:n_samples].copy()
        for k, start, end in zip(*(c[:n_unrounded].tolist() for c in out[8:]), strict=True):
            value[k] = parse_number(data[start:end].decode("ascii"))
        page = Page(
            numbers[out[0][:n_samples]],
            numbers[out[1][:n_samples]],
            value,
            out[3][:n_samples].copy(),
            out[4][:n_samples].copy(),
            numbers[out[5][:n_comments]],
            out[6][:n_comments].copy(),
            (),
            n_lines,
            n_plain,
            lines,
        )
        is_usual = page.labels != _INVALID
        odd = out[7][:n_odd].tolist() + page.line[~is_usual].tolist()
        if not odd:
            return page
        columns = Columns(symbols, openmetrics=openmetrics)
        for number in sorted(odd):
            columns.take_slowly(number, lines[number])
        return page.with_others(columns, is_usual)


def _number_of(text: bytes, symbols: Symbols) -> int:
    """The number of a name, block or comment; `_INVALID` for a block that is not usual."""
    if text[:1] == b"{":
        known = symbols.block_ids.get(text)
        if known is not None:
            return known
        labels = parse_labels(text[1:-1].decode("utf-8", errors="replace"))
        is_usual = labels is not None and "__name__" not in labels
        return symbols.add_block(text, labels) if is_usual else _INVALID
    if text[:1] == b"#":
        known = symbols.comment_ids.get(text)
        return symbols.add_comment(text) if known is None else known
    known = symbols.name_ids.get(text)
    return symbols.add_name(text) if known is None else known
