"""The lease: of several hooks that run, one may act; it asks before each act whether it still may.

Where the lease is kept is in `remediation.lease.sqlite` and `remediation.lease.postgres`; what is
done with it is the hook's.

A lease is taken for a time and renewed; each taking gives a greater token. Its end is judged by
clocks that only run forward, never by the time of day:

- on one machine and boot by the clock all its processes share, which also runs while the machine
  sleeps (`CLOCK_BOOTTIME`);
- from another machine or boot only by having watched, on one's own clock, that the lease was not
  renewed for as long as it holds. That is never too early, whatever the clocks show.

What is left: a process that stops after it asked and before its act has ended, for longer than
what then remained of the lease. The actuators' own comparison of the node's state, and the
ledger's one writer for each intent, stand behind it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

from features.errors import ForewarnError, SettingsError

Fence = Callable[[], str | None]
"""Says why this hook may not act now, in words; None: it may. Asked right before each act."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class LeaseError(ForewarnError):
    """The lease cannot be read or written. Then nothing is done."""


@dataclass(frozen=True)
class Instant:
    """A moment on a clock that only runs forward.

    Attributes:
        boot: The clock: one machine from one start to the next.
        seconds: Since some moment of that boot.
    """

    boot: str
    seconds: float


ForwardClock = Callable[[], Instant]


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A lease as it is kept.

    Attributes:
        holder: Who has it, or had it last.
        token: Greater with each taking; 0: nobody had it yet.
        ends: When it ends, on the holder's clock.
        seconds: How long each taking or renewal holds.
    """

    holder: str
    token: int
    ends: Instant
    seconds: float


Change = Callable[[Lease | None], Lease | None]


class LeaseStore(Protocol):
    """Keeps one lease."""

    def read(self) -> Lease | None:
        """The lease; None: nobody had it yet.

        Raises:
            LeaseError: It cannot be read.
        """
        ...

    def change(self, change: Change) -> Lease | None:
        """Replaces the lease by what `change` makes of it, as one step that no other divides.

        Args:
            change: Gets the lease as it stands; None as its answer: leave it.

        Returns:
            What was written, durably; None: nothing.

        Raises:
            LeaseError: It cannot be read or written.
        """
        ...


class MemoryLease:
    """A lease that lives as long as the process, for tests."""

    def __init__(self) -> None:
        self._lease: Lease | None = None

    def read(self) -> Lease | None:
        """As in `LeaseStore`."""
        return self._lease

    def change(self, change: Change) -> Lease | None:
        """As in `LeaseStore`."""
        new = change(self._lease)
        self._lease = self._lease if new is None else new
        return new


def forward_clock() -> ForwardClock:
    """This machine's clock, shared by its processes; one of its own where it has no boot id."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        boot = f"process {uuid4()}"
    source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return lambda: Instant(boot, time.clock_gettime(source))


class Leadership:
    """One hook's side of the lease.

    Args:
        store: Where the lease is kept.
        holder: Name of this process, unlike any other's.
        clock: A clock that only runs forward.
        seconds: How long the lease holds unless renewed.
        act_seconds: How long one act may take: at most half of that. The fence lets an act
            begin only while at least this is left, so that it ends before another may take over.

    Raises:
        SettingsError: An act could take longer than the lease allows.
    """

    def __init__(
        self,
        store: LeaseStore,
        *,
        holder: str,
        clock: ForwardClock,
        seconds: float,
        act_seconds: float,
    ) -> None:
        if not 0 < 2 * act_seconds <= seconds:
            raise SettingsError(
                f"lease: acts of {act_seconds:g} s need a lease of at least twice that, got "
                f"{seconds:g} s"
            )
        self._store = store
        self._holder = holder
        self._clock = clock
        self._seconds = seconds
        self._act_seconds = act_seconds
        self._token: int | None = None
        self._watched: tuple[Lease, Instant] | None = None

    @property
    def token(self) -> int | None:
        """The token of the lease that this hook took last and has not lost; None: it has none."""
        return self._token

    def take(self) -> bool:
        """Takes the lease if it is free, or renews it.

        Returns:
            Whether this hook has it. A hook on another machine may have to be asked again after
            `seconds`, for it must have watched the lease that long.

        Raises:
            LeaseError: It cannot be read or written.
        """
        if self._token is not None and self._renew():
            return True
        self._token = None
        taken = self._store.change(self._taken)
        if taken is not None:
            self._token, self._watched = taken.token, None
        return taken is not None

    def fence(self) -> str | None:
        """As in `Fence`; renews the lease when half of it is over.

        A lease that has ended is lost, also if nobody took it: what was decided under it is old.
        """
        if self._token is None:
            return "another hook has the lease, or nobody"
        try:
            if not self._has_left(self._store.read(), self._seconds / 2) and not self._renew():
                self._token = None
                return "the lease ended, and may be another hook's now"
        except LeaseError as error:
            return str(error)
        return None

    def release(self) -> None:
        """Gives the lease back, so that the next need not wait.

        Raises:
            LeaseError: It cannot be written.
        """
        if self._token is not None:
            self._store.change(self._ended)
            self._token = None

    def _renew(self) -> bool:
        def renewed(old: Lease | None) -> Lease | None:
            if old is None or not self._has_left(old, 0.0):
                return None
            return replace(old, ends=self._end())

        new = self._store.change(renewed)
        return new is not None and self._has_left(new, self._act_seconds)

    def _ended(self, old: Lease | None) -> Lease | None:
        if old is None or not self._has_left(old, 0.0):
            return None
        return replace(old, ends=self._clock(), seconds=0.0)

    def _taken(self, old: Lease | None) -> Lease | None:
        if old is not None and not self._is_over(old):
            return None
        return Lease(
            holder=self._holder,
            token=1 if old is None else old.token + 1,
            ends=self._end(),
            seconds=self._seconds,
        )

    def _has_left(self, lease: Lease | None, seconds: float) -> bool:
        """Whether the lease is this hook's, and for longer than some seconds."""
        if lease is None or (lease.holder, lease.token) != (self._holder, self._token):
            return False
        return lease.ends.seconds - self._clock().seconds > seconds

    def _is_over(self, lease: Lease) -> bool:
        now = self._clock()
        if now.boot == lease.ends.boot:
            return now.seconds >= lease.ends.seconds
        if self._watched is None or self._watched[0] != lease:
            self._watched = (lease, now)
        return now.seconds - self._watched[1].seconds >= lease.seconds

    def _end(self) -> Instant:
        now = self._clock()
        return replace(now, seconds=now.seconds + self._seconds)
