"""Finds the few lines of a log that can matter, at a speed near grep's, in blocks of any size.

What a line says is read in `kernel.line` and `kernel.events`; no frame is known here. A scan
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

_PART_BYTES: Final = 1 << 14  # a log that holds much is looked at in parts of this size at first
_FEW_BYTES: Final = 1 << 11  # so few are gone through line by line
_NEWLINE: Final = np.uint8(10)
_NO_MATCH: Final = "string_pattern_mismatch"


@dataclass(frozen=True)
class FoundLine:
    """A line that the scan hands over.

    Attributes:
        number: Lines before it.
        raw: Its first `LINE_BYTES`, without the newline, and without NULs before them.
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
    and take bytes as they are. They tell whether, not where: a block that holds a word is halved
    until few lines are left.

    Args:
        markers: Words in ASCII, without newlines; a line that holds one of them (exact case) is
            handed over.
        take: What takes the lines, in their order.
    """

    def __init__(self, markers: Sequence[str], *, take: Take) -> None:
        self.n_lines = 0  # ended ones
        self.every_line_holds = b""  # a line without these bytes is handed over too
        self._take = take
        self._markers = tuple(marker.encode("ascii") for marker in markers)
        pattern = "|".join(_escaped(marker) for marker in markers)
        validator = SchemaValidator({"type": "str", "pattern": pattern})
        self._matches = validator.isinstance_python
        self._validate = validator.validate_python
        self._is_newline = np.empty(0, np.bool_)
        self._n_bytes = 0  # before the current block
        self._last = b""  # the bytes right before the current block
        self._block = b""
        self._place = 0  # of the line being taken, where it starts in the current block
        self._holds_much = False  # the block before held a line of interest
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
        return self._before_open if self._is_open_taken else self._before(self._place)

    def tail(self) -> bytes:
        """The last `BEHIND_BYTES` of what was fed."""
        return self._last

    def _before(self, place: int) -> bytes:
        """The `BEHIND_BYTES` before a place in the current block."""
        near = self._block[max(place - BEHIND_BYTES, 0) : place]
        return near if len(near) == BEHIND_BYTES else (self._last + near)[-BEHIND_BYTES:]

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
        self._last = self._before(len(block))

    def _feed_lines(self, block: bytes, first: int) -> None:
        end = block.rfind(b"\n") + 1
        self._go_on(block[:first])
        self._end()
        if first + 1 < end:
            probe = first + 1 if self._is_next_probe else None
            self._is_next_probe = False
            self._take_within(block, first + 1, end, probe)
        if end < len(block):
            self._begin(self._before(end))
            self._go_on(block[end:])

    def _take_within(self, block: bytes, at: int, end: int, probe: int | None) -> None:
        """Hands over the lines that start in `block[at:end]` and are wanted; counts all."""
        is_newline = self._newlines(block)
        counted = at
        every = self.every_line_holds
        found = self._of_interest(block, at, end)
        next_found = next(found, None)
        while True:
            asked_for = at if self._is_next_wanted and at < end else None
            places = [place for place in (asked_for, next_found, probe) if place is not None]
            if not places:
                break
            self._place = place = min(places)
            self.n_lines += int(np.count_nonzero(is_newline[counted:place]))
            counted = place
            stop = block.index(b"\n", place)
            self._hand_over(self.n_lines, _line_start(block[place:stop]))
            at = stop + 1
            probe = None if place == probe else probe
            if every != self.every_line_holds:  # the line has changed what is looked for
                every = self.every_line_holds
                found = self._of_interest(block, at, end)
                next_found = next(found, None)
            elif place == next_found:
                next_found = next(found, None)
        self.n_lines += int(np.count_nonzero(is_newline[counted:end]))

    def _of_interest(self, block: bytes, at: int, end: int) -> Iterator[int]:
        """Places of the lines in `block[at:end]`, whole lines, that hold a marker or lack bytes."""
        parts = self._first_parts(block, at, end)
        self._holds_much = False
        matches = self._matches
        # Tells of bytes in ASCII are final where nothing but markers is looked for.
        is_plain = bool(parts) and not self.every_line_holds and block.isascii()
        while parts:
            at, end, is_known = parts.pop()
            if not (
                is_known
                or matches(block[at:end])
                or (not is_plain and self._is_odd(block, at, end))
            ):
                continue
            middle = end if end - at <= _FEW_BYTES else _middle(block, at, end)
            if middle == end:
                for place in self._one_by_one(block, at, end):
                    self._holds_much = True
                    yield place
                continue
            is_first = matches(block[at:middle]) or (
                not is_plain and self._is_odd(block, at, middle)
            )
            parts.append((middle, end, not is_first))  # it is in one of the halves
            if is_first:
                parts.append((at, middle, True))

    def _first_parts(self, block: bytes, at: int, end: int) -> list[tuple[int, int, bool]]:
        """Where to look, the first part last, and whether something is known to be there.

        Most blocks hold nothing, and one look at the whole tells; where the last one held
        something, that look is saved.
        """
        if not (self._holds_much or self._block_may_match(block) or self._lacks(block, at, end)):
            return []
        parts = []
        while at < end:
            stop = block.find(b"\n", min(at + _PART_BYTES, end) - 1, end) + 1
            parts.append((at, stop, False))
            at = stop
        return parts[::-1]

    def _one_by_one(self, block: bytes, at: int, end: int) -> Iterator[int]:
        lines = block[at : end - 1]
        is_plain = lines.isascii() and not self.every_line_holds and len(lines) <= LINE_BYTES
        matches = self._matches
        for line in lines.split(b"\n"):
            stop = at + len(line) + 1
            if matches(line) if is_plain else self._is_wanted(line, block, at, stop):
                yield at
            at = stop

    def _is_wanted(self, line: bytes, block: bytes, at: int, end: int) -> bool:
        return self._is_marked(_line_start(line)) or self._lacks(block, at, end)

    def _block_may_match(self, block: bytes) -> bool:
        """Whether a marker is in a block; an error costs less than a look at so many bytes."""
        try:
            self._validate(block)
        except ValidationError as error:
            told = error.errors(include_url=False, include_context=False, include_input=False)
            return told[0]["type"] != _NO_MATCH and self._matches(block.decode("latin-1"))
        return True

    def _is_odd(self, block: bytes, at: int, end: int) -> bool:
        """Whether lines in which no pattern matches hold a marker all the same, or lack bytes.

        No pattern matches what is not UTF-8; as Latin-1 it has the same ASCII in it.
        """
        lines = block[at:end]
        if not lines.isascii() and self._matches(lines.decode("latin-1")):
            return True
        return self._lacks(block, at, end)

    def _is_marked(self, line: bytes) -> bool:
        if self._matches(line):
            return True
        return not line.isascii() and any(marker in line for marker in self._markers)

    def _lacks(self, block: bytes, at: int, end: int) -> bool:
        """Whether a line of `block[at:end]` lacks the bytes that every line holds."""
        every = self.every_line_holds
        if not every:
            return False
        lines = block[at : end - 1].split(b"\n")
        return any(
            line.find(every, 0, LINE_BYTES) < 0 and every not in _line_start(line) for line in lines
        )

    def _hand_over(self, number: int, raw: bytes) -> None:
        found = FoundLine(number, raw, self._is_marked(raw))
        self._is_next_wanted = self._take(found)

    def _begin(self, before: bytes) -> None:
        """A line starts that this block may not end."""
        self._open, self._n_open, self._before_open = [], 0, before
        self._is_open_probe, self._is_next_probe = self._is_next_probe, False

    def _go_on(self, part: bytes) -> None:
        if not self._n_open:
            part = _line_start(part)
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

    def _newlines(self, block: bytes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether each byte of a block is a newline; valid until the next call."""
        if len(self._is_newline) < len(block):
            self._is_newline = np.empty(len(block), np.bool_)
        places = self._is_newline[: len(block)]
        np.equal(np.frombuffer(block, np.uint8), _NEWLINE, out=places)
        return places


def _line_start(line: bytes) -> bytes:
    """The bytes of a line that are looked at, past those a file is filled up with after a crash."""
    return line.lstrip(b"\0")[:LINE_BYTES] if line[:1] == b"\0" else line[:LINE_BYTES]


def _middle(block: bytes, at: int, end: int) -> int:
    """The start of a line near the middle of whole lines, or `end` where they are one line."""
    middle = (at + end) // 2
    return block.rfind(b"\n", at, middle) + 1 or block.find(b"\n", middle, end) + 1


def _escaped(marker: str) -> str:
    """A word as a pattern of Rust's: everything but letters, digits and spaces is escaped."""
    return "".join(c if c.isalnum() or c in " _" else f"\\{c}" for c in marker)
