"""Compiled passes over the values of fields: numbered, hashed, made Arrow string views.

Bytes are taken eight at a time, as little-endian words. Where fields are is in `slurm.sacct_scan`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from features.compiled import jit

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

PADDING: Final = 24
"""Bytes that must follow the text in its buffer, so that whole words can be read at its end."""


def as_words(buffer: Bytes) -> Words:
    """A buffer as aligned words of eight bytes.

    Args:
        buffer: The text and at least `PADDING` bytes after it.
    """
    return buffer[: buffer.size // 8 * 8].view(np.uint64)


@jit
def load_word(words: Words, at: int) -> np.uint64:
    """The eight bytes at a place, of an array of aligned words."""
    place, shift = np.uint64(at) >> np.uint64(3), (np.uint64(at) & np.uint64(7)) << np.uint64(3)
    # Shifted twice: a shift by 64 is none, and a branch here would cost more than the rest.
    high = words[place + np.uint64(1)] << np.uint64(1) << (np.uint64(63) - shift)
    return np.uint64(words[place] >> shift | high)


@jit
def _tail(words: Words, at: int, size: int) -> np.uint64:
    """The first `size` (below 8) of the bytes at a place, the others zero."""
    return load_word(words, at) & (
        (np.uint64(1) << (np.uint64(size) << np.uint64(3))) - np.uint64(1)
    )


@jit
def _is_same(first: Words, one: int, second: Words, other: int, size: int) -> bool:
    """Whether two stretches are equal."""
    at = 0
    while at + 8 <= size:
        if load_word(first, one + at) != load_word(second, other + at):
            return False
        at += 8
    return at == size or _tail(first, one + at, size - at) == _tail(second, other + at, size - at)


@jit
def _hash(words: Words, begin: int, size: int) -> np.uint64:
    """A hash of a stretch, eight bytes per step."""
    prime = np.uint64(0x9E3779B97F4A7C15)
    code = np.uint64(size) * prime
    at = 0
    while at + 8 <= size:
        code = (code ^ load_word(words, begin + at)) * prime
        code ^= code >> np.uint64(32)
        at += 8
    if at < size:
        code = (code ^ _tail(words, begin + at, size - at)) * prime
    return code ^ code >> np.uint64(29)


@jit
def _copy(words: Words, begin: int, size: int, copies: Words, at: int) -> int:
    """Copies a stretch, padded with what follows it to whole words; where the copy ends."""
    n_words = (size + 7) // 8
    for k in range(n_words):
        copies[at + k] = load_word(words, begin + 8 * k)
    return int(at + n_words)


@jit
def _number_block(  # noqa: PLR0913, PLR0917 - compiled: arrays, no objects
    words: Words,
    starts: Ints,
    lengths: Ints,
    is_plain: Flags,
    numbers: Ints,
    low: int,
    count: int,
    firsts: Ints,
    hashes: Words,
    sizes: Ints,
    ends: Longs,
    copies: Words,
    table: Ints,
) -> int:
    """Numbers the values of a block; the arrays have room for all of them to be new."""
    mask = np.uint64(table.size - 1)
    last = -1
    for i in range(starts.size):
        numbers[i] = -1
        if not is_plain[i]:
            continue
        begin, size = starts[i], lengths[i]
        is_repeat = last >= 0 and lengths[last] == size
        if is_repeat and _is_same(words, starts[last], words, begin, size):
            numbers[i] = numbers[last]
            last = i
            continue
        last = i
        code = _hash(words, begin, size)
        place = code & mask
        while table[place] >= 0:
            known = table[place]
            is_it = hashes[known] == code and sizes[known] == size
            if is_it and _is_same(copies, ends[known] * 8, words, begin, size):
                break
            place = (place + np.uint64(1)) & mask
        if table[place] < 0:
            firsts[count], hashes[count], sizes[count] = low + i, code, size
            ends[count + 1] = _copy(words, begin, size, copies, ends[count])
            table[place] = count
            count += 1
        numbers[i] = table[place]
    return count


@jit
def _fill_table(table: Ints, hashes: Words) -> None:
    mask = np.uint64(table.size - 1)
    for known in range(hashes.size):
        place = hashes[known] & mask
        while table[place] >= 0:
            place = (place + np.uint64(1)) & mask
        table[place] = known


class ValueNumbers:
    """Numbers the distinct values of a field in order of first appearance, block by block.

    Copies of the values are kept side by side, where they stay in the processor's cache.
    """

    def __init__(self) -> None:
        self._count = 0
        self._firsts = np.empty(1024, np.int32)
        self._hashes = np.empty(1024, np.uint64)
        self._sizes = np.empty(1024, np.int32)
        self._ends = np.zeros(1025, np.int64)
        self._copies = np.empty(8192, np.uint64)
        self._table = np.full(4096, -1, np.int32)

    @property
    def firsts(self) -> Ints:
        """(n_distinct,) the line where each value first stands."""
        return self._firsts[: self._count]

    def number(
        self, words: Words, field: tuple[Ints, Ints], *, is_plain: Flags, numbers: Ints, low: int
    ) -> None:
        """Numbers the values of a block of lines.

        Args:
            words: The bytes, as `as_words` gives them.
            field: (n,) first byte of each value, and (n,) its length.
            is_plain: (n,) which to look at; the others get -1.
            numbers: Out, (n,): the number of each value.
            low: Number of the block's first line.
        """
        starts, lengths = field
        self._make_room(starts.size, int(lengths[is_plain].sum()) // 8 + starts.size)
        self._count = _number_block(
            words, starts, lengths, is_plain, numbers, low, self._count, self._firsts,
            self._hashes, self._sizes, self._ends, self._copies, self._table,
        )  # fmt: skip

    def _make_room(self, n_values: int, n_words: int) -> None:
        """Makes the arrays long enough for a block of new values."""
        most = self._count + n_values
        if most > self._firsts.size:
            size = 2 * most
            self._firsts = np.resize(self._firsts, size)
            self._hashes = np.resize(self._hashes, size)
            self._sizes = np.resize(self._sizes, size)
            self._ends = np.resize(self._ends, size + 1)
        needed = int(self._ends[self._count]) + n_words + 2
        if needed > self._copies.size:
            self._copies = np.resize(self._copies, 2 * needed)
        if 2 * most > self._table.size:
            self._table = np.full(1 << (4 * most - 1).bit_length(), -1, np.int32)
            _fill_table(self._table, self._hashes[: self._count])


@jit
def _view_block(
    words: Words, starts: Ints, lengths: Ints, is_plain: Flags, views: Words, held: Words, used: int
) -> int:
    """Makes the views of a block; `held` has room for its long values."""
    half = np.uint64(32)
    for i in range(starts.size):
        views[i, 0] = views[i, 1] = 0
        size = lengths[i]
        if size == 0 or not is_plain[i]:
            continue
        begin = starts[i]
        head = load_word(words, begin) if size >= 8 else _tail(words, begin, size)
        views[i, 0] = np.uint64(size) | head << half
        if size > 12:
            views[i, 1] = np.uint64(used * 8) << half
            used = _copy(words, begin, size, held, used)
        elif size > 4:
            views[i, 1] = head >> half
            if size > 8:
                views[i, 1] |= _tail(words, begin + 8, size - 8) << half
    return used


class TextViews:
    """Arrow string views of a field, made block by block; they do not hold the text they are of.

    Args:
        n_lines: Lines of the text.

    Attributes:
        views: (n_lines, 2): length and up to 12 bytes, or length, first 4 bytes, buffer 0 and the
            place in `held`.
        held: The values longer than 12 bytes.
    """

    def __init__(self, n_lines: int) -> None:
        self.views = np.empty((n_lines, 2), np.uint64)
        self.held = np.empty(1024, np.uint64)
        self._used = 0

    def view(
        self, words: Words, field: tuple[Ints, Ints], *, is_plain: Flags, block: slice
    ) -> None:
        """Makes the views of a block of lines.

        Args:
            words: The bytes, UTF-8, as `as_words` gives them.
            field: (n,) first byte of each value, and (n,) its length.
            is_plain: (n,) which to look at; the others get an empty view.
            block: Which lines they are.
        """
        starts, lengths = field
        is_long = is_plain & (lengths > 12)
        needed = self._used + int(lengths[is_long].sum()) // 8 + int(is_long.sum()) + 1
        if needed > self.held.size:
            self.held = np.resize(self.held, 2 * needed)
        self._used = _view_block(
            words, starts, lengths, is_plain, self.views[block], self.held, self._used
        )
