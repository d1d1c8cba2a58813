"""Kernel logs as text (dmesg, syslog, journal, kmsg): lines about trouble to `raw/kernel_log`.

What a single line says is read in `kernel_line` and `kernel_events`; repeats are counted later, in
`features`, except for the several lines that the driver writes about one lost GPU.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from features.raw_tables import RAW_KERNEL_LOG
from pipelines.sources.files import decode, node_in_name, read_bytes
from pipelines.sources.kernel_events import (
    KernelEvent,
    UnreadableXidError,
    may_report,
    read_event,
)
from pipelines.sources.kernel_line import Clock, KernelLine, split_line
from pipelines.sources.local_time import zone_of
from pipelines.sources.pci_address import first_pci
from pipelines.sources.result import ReadTally, SourceResult, as_table, merge

SOURCE: Final = "kernel_log"

LINE_LENGTH: Final = 4096
"""Characters of a line that are kept; the kernel's own lines end near 1,000."""

_OFF_BUS_XID: Final = 79
_SAME_LOSS: Final = timedelta(seconds=5)
_SAME_LOSS_LINES: Final = 20  # where lines have no time
_NOTICE_LINES: Final = 5  # lines a notice about a lost GPU is spread over, others in between
_NOTICE_START: Final = re.compile(r"NVRM: The NVIDIA (?:probe routine|GPU) ")
_NOTICE_PART: Final = re.compile(r"NVRM: \(PCI ID: |NVRM: installed in this system")


def parse_kernel_log(
    data: bytes | str,
    *,
    origin: str,
    time_zone: str,
    ingested_at: datetime,
    node: str | None = None,
    boot_time: datetime | None = None,
    read_until: datetime | None = None,
) -> SourceResult:
    """Reads a kernel log.

    Args:
        data: The log; bytes that are not UTF-8 become U+FFFD.
        origin: File or address, for quarantine and counts.
        time_zone: Zone of the machine's clock, for times without an offset.
        ingested_at: When it is read, UTC.
        node: Node the log is from, where its lines name no host.
        boot_time: When the machine booted, UTC; without it lines that only have seconds since
            boot have no time.
        read_until: When the log ended, UTC, to find the year of lines without one; None:
            `ingested_at`.

    Returns:
        `raw/kernel_log`. Lines about something else are skipped; a line that says Xid and
        cannot be read is quarantined.

    Raises:
        SourceError: There is no such time zone.
    """
    clock = Clock(zone_of(time_zone, origin=origin), read_until or ingested_at, boot_time)
    lines = (data if isinstance(data, str) else decode(data)).split("\n")
    if not lines[-1]:
        lines.pop()
    tally = ReadTally(table=RAW_KERNEL_LOG.asset_key, source=SOURCE, origin=origin)
    tally.read(len(lines))
    reader = _Reader(lines, clock=clock, tally=tally, node=node, ingested_at=ingested_at)
    reader.run()
    return tally.result({RAW_KERNEL_LOG.asset_key: as_table(RAW_KERNEL_LOG, reader.rows)})


def read_kernel_log(
    paths: Iterable[Path],
    *,
    time_zone: str,
    ingested_at: datetime,
    boot_time: datetime | None = None,
    read_until: datetime | None = None,
) -> SourceResult:
    """Reads saved kernel logs.

    Args:
        paths: Files, each named after its node where lines name no host: `<node>.log` or
            `<node>__<anything>.log`.
        time_zone: Zone of the machines' clocks.
        ingested_at: When they are read, UTC.
        boot_time: See `parse_kernel_log`; the same for all files.
        read_until: See `parse_kernel_log`.

    Returns:
        `raw/kernel_log` of all files.

    Raises:
        SourceError: A file cannot be read.
    """
    return merge(
        parse_kernel_log(
            read_bytes(path),
            origin=str(path),
            time_zone=time_zone,
            ingested_at=ingested_at,
            node=node_in_name(path),
            boot_time=boot_time,
            read_until=read_until,
        )
        for path in paths
    )


class _Reader:
    """Goes over the lines of one log; knows what spans several of them."""

    def __init__(
        self,
        lines: list[str],
        *,
        clock: Clock,
        tally: ReadTally,
        node: str | None,
        ingested_at: datetime,
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._lines = lines
        self._clock = clock
        self._tally = tally
        self._node = node
        self._ingested_at = ingested_at
        self._at = 0
        self._notice: list[KernelLine] = []  # a notice about a lost GPU, not yet complete
        self._notice_at = 0
        self._losses: dict[tuple[str | None, str | None], tuple[int, datetime | None]] = {}

    def run(self) -> None:
        """Takes every line."""
        while self._at < len(self._lines):
            text = self._lines[self._at][:LINE_LENGTH]
            if may_report(text):
                self._take(split_line(text, clock=self._clock))
            else:
                self._tally.skipped()
            self._at += 1
            if self._notice and self._at - self._notice_at >= _NOTICE_LINES:
                self._drop_notice()
        self._drop_notice()

    def _take(self, line: KernelLine) -> None:
        if _NOTICE_START.search(line.message):
            self._drop_notice()
            self._notice, self._notice_at = [line], self._at
            return
        if self._notice and _NOTICE_PART.search(line.message):
            self._notice.append(line)
            return
        try:
            event = read_event(line.message)
        except UnreadableXidError:
            self._take_wrapped(line)
            return
        if event is None:
            self._tally.skipped()
        elif event.kind == "off_bus":
            self._lose(line, event)
        else:
            if event.kind == "xid" and event.code == _OFF_BUS_XID:
                self._losses[line.host, event.pci_bus_id] = (self._at, line.ts)
            self._emit(line, event)
            self._tally.parsed()

    def _take_wrapped(self, line: KernelLine) -> None:
        """Tries an Xid line that breaks off together with the line after it."""
        following = self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""
        following = following[:LINE_LENGTH]
        rest = split_line(following, clock=self._clock).message
        for message in (line.message + rest, f"{line.message} {rest}"):
            try:
                event = read_event(message)
            except UnreadableXidError:
                continue
            if event is not None and not may_report(following):
                self._emit(KernelLine(line.ts, line.host, message, f"{line.text} {rest}"), event)
                self._tally.parsed(2)
                self._at += 1
                return
        self._tally.quarantined("says Xid, but has no readable code", line.text)

    def _lose(self, line: KernelLine, event: KernelEvent) -> None:
        """One event per loss, however many lines the driver writes about it."""
        parts, self._notice = [*self._notice, line], []
        device = event.pci_bus_id or first_pci(parts[0].message)
        first = KernelLine(
            parts[0].ts or line.ts,
            parts[0].host or line.host,
            line.message,
            " ".join(part.text.strip() for part in parts),
        )
        if self._is_known_loss((first.host, device), first.ts):
            self._tally.skipped(len(parts))
        else:
            self._emit(first, KernelEvent("off_bus", pci_bus_id=device))
            self._tally.parsed(len(parts))
        self._losses[first.host, device] = (self._at, first.ts)

    def _is_known_loss(self, device: tuple[str | None, str | None], ts: datetime | None) -> bool:
        """Whether the host's device was lost a moment ago."""
        if device not in self._losses:
            return False
        at, before = self._losses[device]
        if ts is None or before is None:
            return self._at - at <= _SAME_LOSS_LINES
        return abs(ts - before) <= _SAME_LOSS

    def _drop_notice(self) -> None:
        self._tally.skipped(len(self._notice))
        self._notice = []

    def _emit(self, line: KernelLine, event: KernelEvent) -> None:
        self.rows.append(
            {
                "node": line.host or self._node,
                "ts": line.ts,
                "kind": event.kind,
                "code": event.code,
                "pci_bus_id": event.pci_bus_id,
                "pid": event.pid,
                "process": event.process,
                "line": line.text[:LINE_LENGTH],
                "source": SOURCE,
                "ingested_at": self._ingested_at,
            }
        )
