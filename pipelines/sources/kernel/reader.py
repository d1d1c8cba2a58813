"""Reads the lines that a scan finds into events; knows what spans several lines.

Frames are not known here (`kernel.log` makes them), so that a scan runs in a small process.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.sources.kernel.events import (
    MARKERS,
    KernelEvent,
    UnreadableXidError,
    parts_of,
    read_event,
)
from pipelines.sources.kernel.journald import EVERY_ENTRY_OF_BOOT
from pipelines.sources.kernel.line import TEXT_LENGTH, Clock, KernelLine, split_line
from pipelines.sources.kernel.quick import quick_line, quick_xid
from pipelines.sources.kernel.scan import BEHIND_BYTES, FoundLine, LineScan
from pipelines.sources.kernel.stretch import Stretches
from pipelines.sources.pci_address import first_pci

UNREADABLE: Final = "says Xid, but has no readable code"

MOST_HELD: Final = 200_000
"""Rows that are held back until it is known which boot their time since boot belongs to."""

_OFF_BUS_XID: Final = 79
_SAME_LOSS: Final = timedelta(seconds=5)
_SAME_LOSS_LINES: Final = 20  # where lines have no time
_NOTICE_LINES: Final = 5  # lines a notice about a lost GPU is spread over, others in between
_NOTICE_START: Final = re.compile(r"NVRM: The NVIDIA (?:probe routine|GPU) ")
_NOTICE_PART: Final = re.compile(r"NVRM: \(PCI ID: |NVRM: installed in this system")
_REST_OF_CODE: Final = re.compile(r"\d{1,3}(?:,|\s*$)", re.ASCII)
_BOOT_OF_ENTRY: Final = re.compile(
    rb'%s ?: ?"[0-9a-f]{32}"' % re.escape(EVERY_ENTRY_OF_BOOT.encode())
)

Row = dict[str, Any]


@dataclass
class Fates:
    """What became of the lines read so far.

    Attributes:
        handed: Lines that the scan handed over.
        parsed: Lines that gave an event or a part of one.
        skipped: Lines about something else.
        refused: Lines by the rule they break, with their number and the first of them.
    """

    handed: int = 0
    parsed: int = 0
    skipped: int = 0
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)


class KernelReader:
    """Goes over one log, in bytes.

    Args:
        clock: How incomplete times are read.
        node: Node the log is from, where its lines name no host.
        markers: Words that the lines looked at hold; fewer find fewer kinds of event, sooner.
    """

    def __init__(self, *, clock: Clock, node: str | None, markers: Sequence[str] = MARKERS) -> None:
        self.fates = Fates()
        self.stretches = Stretches(clock.boot_time)
        self.scan = LineScan(markers, take=self.take)
        self._clock = clock
        self._node = node
        self._rows: list[Row] = []
        self._undated: list[Row] = []  # those whose time rests on the boot time
        self._n_dated = 0  # rows before the first of them
        self._notice: list[KernelLine] = []  # a notice about a lost GPU, not yet complete
        self._notice_at = 0
        self._number = 0  # of the last marked line
        self._torn: KernelLine | None = None  # an Xid line that may go on in the next one
        self._lost_at = -2  # number of the last line that told of a lost device
        self._losses: dict[tuple[str | None, str | None], tuple[int, datetime | None]] = {}

    def finish(self) -> None:
        """The log is over."""
        self.scan.finish()
        self._end_torn()
        self._drop_notice()
        self.stretches.end(self._lines_of(self.scan.tail()))
        self._settle(is_known=not self.stretches.is_boot_refuted)

    def n_undecided(self) -> int:
        """Lines handed over whose fate is open."""
        return len(self._notice) + (self._torn is not None)

    def rows(self) -> list[Row]:
        """Takes out the rows that no later line changes, in the order of their lines."""
        if len(self._undated) > MOST_HELD:
            self._settle(is_known=not self.stretches.is_boot_refuted)
        n_ready = self._n_dated if self._undated else len(self._rows)
        ready, self._rows = self._rows[:n_ready], self._rows[n_ready:]
        self._n_dated = 0
        return ready

    def take(self, found: FoundLine) -> bool:
        """Takes a line that the scan found.

        Args:
            found: The line.

        Returns:
            Whether the next line is wanted too.
        """
        text = found.raw.decode("utf-8", "replace").removesuffix("\r")
        line = quick_line(text, clock=self._clock) if found.is_marked else None
        if line is None:
            line = split_line(text.removeprefix("\ufeff"), clock=self._clock)
        self._look(line, found)
        self.fates.handed += 1
        if self._notice and found.number - self._notice_at >= _NOTICE_LINES:
            self._drop_notice()
        if not found.is_marked:
            self._take_unmarked(line)
        else:
            self._end_torn()
            self._take_marked(line, found.number)
        return self._torn is not None or self.stretches.wants_next()

    def _look(self, line: KernelLine, found: FoundLine) -> None:
        was_refuted = self.stretches.is_boot_refuted
        if self.stretches.look(line, tail=lambda: self._lines_of(self.scan.behind())):
            self._settle(is_known=False)
        if self.stretches.is_boot_refuted and not was_refuted:
            self.stretches.forget_boot()
            self._settle(is_known=False)
        self._follow_boots(line, found)

    def _follow_boots(self, line: KernelLine, found: FoundLine) -> None:
        """Has the scan look out for entries of another boot, in the journal of one machine."""
        if self.stretches.is_of_many_hosts():
            self.scan.every_line_holds = b""
        elif line.boot_id is not None and (found.number == 0 or self.scan.every_line_holds):
            boot = _BOOT_OF_ENTRY.search(found.raw)
            self.scan.every_line_holds = boot.group() if boot else b""

    def _lines_of(self, tail: bytes) -> list[KernelLine]:
        """The last whole lines before a place."""
        texts = tail.decode("utf-8", "replace").split("\n")
        is_cut = len(tail) >= BEHIND_BYTES
        return [split_line(text, clock=self._clock) for text in texts[is_cut:]]

    def _settle(self, *, is_known: bool) -> None:
        """Decides whether times that rest on the boot time stand."""
        if not is_known:
            for row in self._undated:
                row["ts"] = None
        self._undated = []

    def _take_unmarked(self, line: KernelLine) -> None:
        torn = self._torn
        if torn is None:
            self.fates.skipped += 1
            return
        joined = self._joined(torn, line)
        if joined is None:
            self._end_torn()
            self.fates.skipped += 1
            return
        self._torn = None
        self._emit(*joined)
        self.fates.parsed += 2

    def _joined(
        self, torn: KernelLine, following: KernelLine
    ) -> tuple[KernelLine, KernelEvent] | None:
        """The event of two lines, where the second goes on with the first."""
        rest = following.message
        if _event_of(torn) is not None:
            if following.ts is not None or not _REST_OF_CODE.match(rest):
                return None
            messages = [torn.message + rest]
        else:
            messages = [torn.message + rest, f"{torn.message} {rest}"]
        for message in messages:
            whole = KernelLine(torn.ts, torn.host, message, f"{torn.text} {rest}")
            event = _event_of(whole)
            if event is not None:
                return whole, event
        return None

    def _end_torn(self) -> None:
        """An Xid line that nothing went on with stands as it is."""
        torn, self._torn = self._torn, None
        if torn is None:
            return
        event = _event_of(torn)
        if event is None:
            self._refuse(UNREADABLE, torn.text)
        else:
            self._take_event(torn, event)

    def _take_marked(self, line: KernelLine, number: int) -> None:
        self._number = number
        if _NOTICE_START.search(line.message):
            self._drop_notice()
            self._notice, self._notice_at = [line], number
            return
        if self._notice and _NOTICE_PART.search(line.message):
            self._notice.append(line)
            return
        parts = parts_of(line.message)
        if len(parts) > 1:
            self._take_parts(line, parts)
            return
        try:
            event = quick_xid(line.message) or read_event(line.message)
        except UnreadableXidError:
            self._torn = line
            return
        if event is None:
            self.fates.skipped += 1
        elif event.may_go_on:
            self._torn = line
        elif event.kind == "off_bus":
            self._lose(line, event, number)
        else:
            self._take_event(line, event)

    def _take_parts(self, line: KernelLine, parts: Sequence[str]) -> None:
        """Several Xids in one line; it counts once, and is refused where one cannot be read."""
        events = [_event_of(replace(line, message=part)) for part in parts]
        if None in events:
            self._refuse(UNREADABLE, line.text)
        else:
            self.fates.parsed += 1
        for event in events:
            if event is not None:
                self._emit_noted(line, event)

    def _take_event(self, line: KernelLine, event: KernelEvent) -> None:
        self._emit_noted(line, event)
        self.fates.parsed += 1

    def _emit_noted(self, line: KernelLine, event: KernelEvent) -> None:
        if event.kind == "xid" and event.code == _OFF_BUS_XID:
            self._note_loss(line.host, event.pci_bus_id, self._number, line.ts)
        self._emit(line, event)

    def _lose(self, line: KernelLine, event: KernelEvent, number: int) -> None:
        """One event per loss, however many lines the driver writes about it."""
        parts, self._notice = [*self._notice, line], []
        device = event.pci_bus_id or first_pci(parts[0].message)
        dated = next((part for part in parts if part.ts is not None), line)
        first = KernelLine(
            dated.ts,
            parts[0].host or line.host,
            line.message,
            " ".join(part.text.strip() for part in parts),
            dated.since_boot,
            dated.is_from_boot,
        )
        if self._is_known_loss(first.host, device, number, first.ts):
            self.fates.skipped += len(parts)
        else:
            self._emit(first, KernelEvent("off_bus", pci_bus_id=device))
            self.fates.parsed += len(parts)
        self._note_loss(first.host, device, number, first.ts)

    def _note_loss(
        self, host: str | None, device: str | None, number: int, ts: datetime | None
    ) -> None:
        # A line that names no device may be about any that the host has just lost.
        self._losses[host, device] = self._losses[host, None] = (number, ts)
        self._lost_at = number

    def _is_known_loss(
        self, host: str | None, device: str | None, number: int, ts: datetime | None
    ) -> bool:
        """Whether the host's device was lost a moment ago."""
        if host is None and device is None and ts is None and number - self._lost_at == 1:
            return True  # the end of a line that a terminal wrapped
        if (host, device) not in self._losses:
            return False
        at, before = self._losses[host, device]
        if ts is None or before is None:
            return number - at <= _SAME_LOSS_LINES
        return abs(ts - before) <= _SAME_LOSS

    def _drop_notice(self) -> None:
        self.fates.skipped += len(self._notice)
        self._notice = []

    def _refuse(self, rule: str, example: str) -> None:
        count, first = self.fates.refused.get(rule, (0, example))
        self.fates.refused[rule] = (count + 1, first)

    def _emit(self, line: KernelLine, event: KernelEvent) -> None:
        is_from_boot = line.is_from_boot and not self.stretches.is_boot_refuted
        row = {
            "node": line.host or self._node,
            "ts": None if line.is_from_boot and not is_from_boot else line.ts,
            "kind": event.kind,
            "code": event.code,
            "pci_bus_id": event.pci_bus_id,
            "pid": event.pid,
            "process": event.process,
            "severity": event.severity,
            "line": line.text[:TEXT_LENGTH],
        }
        if is_from_boot:
            self._n_dated = self._n_dated if self._undated else len(self._rows)
            self._undated.append(row)
        self._rows.append(row)


def _event_of(line: KernelLine) -> KernelEvent | None:
    """The event of a line, or None where it cannot be read."""
    try:
        return read_event(line.message)
    except UnreadableXidError:
        return None
