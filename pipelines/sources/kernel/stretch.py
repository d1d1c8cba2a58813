"""Stretches of time that a log speaks of: from its first readable time to its last, boot by boot.

Events are not known here, and nothing is read or written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from pipelines.sources.kernel.line import KernelLine

START_LINES: Final = 64
"""Lines after the start of a stretch among which its first time is looked for."""

_STEP_BACK: Final = timedelta(hours=1)
"""A log whose time falls by more than this goes on under another clock, or is another log."""

_NEW_BOOT: Final = timedelta(minutes=1)
"""Times since boot come a little out of order from many processors, not by a minute."""

_BOOT_TOLERANCE: Final = timedelta(minutes=10)
"""How far the boot time that a line implies may be from the one set: clocks are corrected after
boot, and a suspended machine does not count."""


@dataclass
class Stretch:
    """Part of a log that was written without a reboot in between.

    Attributes:
        start: First time seen in it.
        end: Last.
        is_from_boot: Whether its times rest on the boot time that was set.
    """

    start: datetime | None = None
    end: datetime | None = None
    is_from_boot: bool = False


@dataclass
class Stretches:
    """Follows the lines of a log that are looked at.

    Attributes:
        boot_time: Boot time that was set for the log's last boot, UTC.
        closed: Stretches that are over.
        hosts: Hosts that lines name, up to two.
        is_boot_refuted: Whether lines contradict the boot time.
    """

    boot_time: datetime | None = None
    closed: list[Stretch] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    is_boot_refuted: bool = False
    _now: Stretch = field(default_factory=Stretch)
    _boot_id: str | None = None
    _since_boot: timedelta | None = None
    _lines_left: int = START_LINES

    def wants_next(self) -> bool:
        """Whether the next line is wanted whatever it says, for the start's time."""
        return self._now.start is None and self._lines_left > 0

    def is_of_many_hosts(self) -> bool:
        """Whether lines name several hosts, whose boots then say nothing of the log's."""
        return len(self.hosts) > 1

    def look(self, line: KernelLine, *, tail: Callable[[], list[KernelLine]]) -> bool:
        """Takes a line into account.

        Args:
            line: The line.
            tail: Gives the lines right before it, for the end of a boot.

        Returns:
            Whether it is of another boot than the lines before.
        """
        if line.host is not None and not self.is_of_many_hosts():
            self.hosts.add(line.host)
        is_reboot = self._is_reboot(line)
        if is_reboot:
            self.end(tail())
            self.forget_boot()  # the boot time is that of the log's last boot
            self._lines_left = START_LINES
        self._lines_left -= 1
        self._note(line)
        return is_reboot

    def end(self, tail: list[KernelLine]) -> None:
        """The current stretch is over.

        Args:
            tail: Its last lines.
        """
        # Without a time of its own the stretch has none; the tail may reach back before it.
        last = next((line for line in reversed(tail) if line.ts is not None), None)
        if self._now.start is not None and last is not None:
            self._note(last)
        if self._now.start is not None:
            self.closed.append(self._now)
        self._now = Stretch()

    def forget_boot(self) -> None:
        """Times that rest on the boot time are taken back: it was another boot's."""
        self.closed = [stretch for stretch in self.closed if not stretch.is_from_boot]
        if self._now.is_from_boot:
            self._now = Stretch()

    def _is_reboot(self, line: KernelLine) -> bool:
        before = self._since_boot
        self._since_boot = before if line.since_boot is None else line.since_boot
        if self.is_of_many_hosts():
            return False
        if line.boot_id is not None:
            known, self._boot_id = self._boot_id, line.boot_id
            return known is not None and known != line.boot_id
        if line.text.startswith(("-- Boot", "-- Reboot")):
            self._since_boot = None
            return True
        if line.message.startswith("Linux version"):
            self._since_boot = line.since_boot
            return True
        if before is None or line.since_boot is None:
            return False
        return line.since_boot < before - _NEW_BOOT

    def _note(self, line: KernelLine) -> None:
        if line.ts is None:
            return
        if line.is_from_boot and self.is_boot_refuted:
            return
        if line.since_boot is not None and self.boot_time is not None and not line.is_from_boot:
            implied = line.ts - line.since_boot
            self.is_boot_refuted |= abs(implied - self.boot_time) > _BOOT_TOLERANCE
        now = self._now
        is_step = now.end is not None and line.ts < now.end - _STEP_BACK
        if is_step and not self.is_of_many_hosts():
            self.closed.append(now)
            now = self._now = Stretch()
        now.is_from_boot |= line.is_from_boot
        now.start = min(now.start or line.ts, line.ts)
        now.end = max(now.end or line.ts, line.ts)
