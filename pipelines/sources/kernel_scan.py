"""Finds the few lines of a log that can matter, at a speed near grep's, in blocks of any size.

What a line says is read in `kernel_line` and `kernel_events`; no frame is known here. A scan
imports NumPy and pydantic-core and nothing larger, so that it runs in a small process.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pydantic_core import SchemaValidator, ValidationError

LINE_BYTES: Final = 1 << 16
"""Bytes of a line that are looked at: a journal entry with a message of bytes fits in."""

BEHIND_BYTES: Final = 4096
"""Bytes before a line that can be asked for: where a stretch of log ended."""

PROBE_EVERY: Final = 8 << 20
"""Bytes between the lines that are looked at whatever they say, for their time and host."""

_PARTS: Final = 12  # a part of a log that holds something is looked at in so many parts
_NEWLINE: Final = 10
_NO_MATCH: Final = "string_pattern_mismatch"


@dataclass(frozen=True)
class FoundLine:
    """A line that the scan hands over.

    Attributes:
        number: Lines before it.
        raw: Its first `LINE_BYTES`, without the newline.
        is_marked: Whether it holds a marker; otherwise it was asked for, lacks the bytes that
            every line should hold, or is a probe.
    """

    number: int
    raw: bytes
    is_marked: bool


Take = Callable[[FoundLine], bool]
"""Takes a line; returns whether the line after it is wanted too, whatever it says."""


class LineScan:
    """Goes over a log once.

    Looking for twenty words in turn costs twenty times as much as looking for one. The regular
    expressions of pydantic-core (Rust's) look for all of them at once with vector instructions,
    and take bytes as they are; only a block that holds one is looked at more closely.

    Args:
        markers: Words; a line that holds one of them (exact case) is handed over.
        take: What takes the lines, in their order.
    """

    def __init__(self, markers: Sequence[str], *, take: Take) -> None:
        self.n_lines = 0  # ended ones
        self.every_line_holds = b""  # a line without these bytes is handed over too
        self._take = take
        self._markers = tuple(marker.encode() for marker in markers)
        pattern = "|".join(_escaped(marker) for marker in markers)
        self._validator = SchemaValidator({"type": "str", "pattern": pattern})
        self._matches = self._validator.isinstance_python
        self._is_newline = np.empty(0, np.bool_)
        self._n_bytes = 0  # before the current block
        self._last = b""  # the bytes right before the current block
        self._block = b""
        self._place = 0  # of the line being taken, where it starts in the current block
        self._open: list[bytes] | None = None  # line that no newline has ended yet
        self._n_open = 0
        self._before_open = b""
        self._is_open_probe = False
        self._is_open_taken = False
        self._is_next_wanted = False
        self._is_next_probe = True  # the first line of all is one

    def feed(self, block: bytes) -> None:
        """Takes the next bytes.

        Args:
            block: Any number of them; where blocks are cut makes no difference.
        """
        at = 0
        while at < len(block):
            stop = at + PROBE_EVERY - self._n_bytes % PROBE_EVERY
            self._feed_part(block[at:stop])
            at = stop

    def finish(self) -> None:
        """Takes the last line, where no newline ends it."""
        if self._open is not None:
            self._end()

    def behind(self) -> bytes:
        """The `BEHIND_BYTES` before the line that is being taken."""
        if self._is_open_taken:
            return self._before_open
        start = max(self._place - BEHIND_BYTES, 0)
        near = self._block[start : self._place]
        return (self._last + near)[-BEHIND_BYTES:]

    def tail(self) -> bytes:
        """The last `BEHIND_BYTES` of what was fed."""
        return self._last

    def _feed_part(self, block: bytes) -> None:
        """Takes bytes that go past no place where a probe is due, but may start at one."""
        self._block = block
        self._is_next_probe |= self._n_bytes % PROBE_EVERY == 0
        if self._open is None:
            self._begin(self._last)
        first = block.find(b"\n")
        if first < 0:
            self._go_on(block)
        else:
            self._feed_lines(block, first)
        self._n_bytes += len(block)
        self._last = (self._last + block[-BEHIND_BYTES:])[-BEHIND_BYTES:]

    def _feed_lines(self, block: bytes, first: int) -> None:
        end = block.rfind(b"\n") + 1
        n_newlines = self._count(block)
        self._go_on(block[:first])
        self._end()
        probe = None
        if self._is_next_probe and first + 1 < end:
            probe, self._is_next_probe = first + 1, False
        self._take_within(block, first + 1, end, probe)
        self.n_lines += n_newlines - 1
        if end < len(block):
            before = self._last + block[max(end - BEHIND_BYTES, 0) : end]
            self._begin(before[-BEHIND_BYTES:])
            self._go_on(block[end:])

    def _take_within(self, block: bytes, at: int, end: int, probe: int | None) -> None:
        """Hands over the lines that start in `block[at:end]` and are wanted."""
        base, start = self.n_lines, at
        # Most blocks hold nothing: one look at the whole block tells.
        is_empty = not (self._block_may_match(block) or self._lacks_bytes(block, at, end))
        found = iter(()) if is_empty else self._of_interest(block, at, end)
        next_found = next(found, None)
        while True:
            asked_for = at if self._is_next_wanted and at < end else None
            places = [place for place in (asked_for, next_found, probe) if place is not None]
            if not places:
                return
            self._place = place = min(places)
            stop = block.index(b"\n", place)
            number = base + int(np.count_nonzero(self._is_newline[start:place]))
            self._hand_over(number, block[place : min(stop, place + LINE_BYTES)])
            # What comes next is looked for only now: a line may change what is looked for.
            next_found = next(found, None) if place == next_found else next_found
            probe = None if place == probe else probe
            at = stop + 1

    def _of_interest(self, block: bytes, at: int, end: int) -> Iterator[int]:
        """Places of the lines in `block[at:end]`, whole lines, that hold a marker or lack bytes."""
        step = max((end - at) // _PARTS, 1)
        whole = (at, end)
        while at < end:
            stop = block.find(b"\n", min(at + step, end) - 1, end) + 1
            if (at, stop) == whole:  # a long line would make the part no smaller
                stop = block.find(b"\n", at, end) + 1
            part = block[at:stop]
            if self._may_match(part) or self._lacks_bytes(block, at, stop):
                if part.find(b"\n") < len(part) - 1:
                    yield from self._of_interest(block, at, stop)
                elif self._is_marked(part[:-1][:LINE_BYTES]) or self._lacks_bytes(block, at, stop):
                    yield at
            at = stop

    def _block_may_match(self, block: bytes) -> bool:
        """Whether a line can be marked: of a block, where one error costs less than a look."""
        try:
            self._validator.validate_python(block)
        except ValidationError as error:
            told = error.errors(include_url=False, include_context=False, include_input=False)
            return told[0]["type"] != _NO_MATCH  # no pattern matches what is not UTF-8
        return True

    def _may_match(self, lines: bytes) -> bool:
        """Whether one of a few lines can be marked; True also where that cannot be told."""
        return self._matches(lines) or not lines.isascii()

    def _is_marked(self, line: bytes) -> bool:
        if self._matches(line):
            return True
        return not line.isascii() and any(marker in line for marker in self._markers)

    def _lacks_bytes(self, block: bytes, at: int, end: int) -> bool:
        """Whether a line of `block[at:end]` lacks the bytes that every line holds."""
        every = self.every_line_holds
        if not every:
            return False
        lines = block[at : end - 1].split(b"\n")
        return any(line.find(every, 0, LINE_BYTES) < 0 for line in lines)

    def _hand_over(self, number: int, raw: bytes) -> None:
        found = FoundLine(number, raw, self._is_marked(raw))
        self._is_next_wanted = self._take(found)

    def _begin(self, before: bytes) -> None:
        """A line starts that this block may not end."""
        self._open, self._n_open, self._before_open = [], 0, before
        self._is_open_probe, self._is_next_probe = self._is_next_probe, False

    def _go_on(self, part: bytes) -> None:
        if self._open is not None and self._n_open < LINE_BYTES:
            self._open.append(part[: LINE_BYTES - self._n_open])
            self._n_open += len(self._open[-1])

    def _end(self) -> None:
        """The line that a block border may have cut is complete."""
        line, self._open = b"".join(self._open or ()), None
        is_asked_for = self._is_next_wanted or self._is_open_probe
        is_lacking = bool(self.every_line_holds) and self.every_line_holds not in line
        if is_asked_for or is_lacking or self._is_marked(line):
            self._is_open_taken = True
            self._hand_over(self.n_lines, line)
            self._is_open_taken = False
        self.n_lines += 1

    def _count(self, block: bytes) -> int:
        """Newlines in a block; their places stay for line numbers."""
        if len(self._is_newline) < len(block):
            self._is_newline = np.empty(len(block), np.bool_)
        places = self._is_newline[: len(block)]
        np.equal(np.frombuffer(block, np.uint8), _NEWLINE, out=places)
        return int(np.count_nonzero(places))


def _escaped(marker: str) -> str:
    """A word as a pattern of Rust's: everything but letters, digits and spaces is escaped."""
    return "".join(c if c.isalnum() or c in " _" else f"\\{c}" for c in marker)
