"""What a probe of `forewarn doctor` is, and how many run at once, each within its time.

The probes themselves are in the other modules of this package.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Literal, Protocol

from features.errors import ForewarnError

State = Literal["ok", "warn", "FAIL"]

MOST_SKEW: Final = timedelta(seconds=5)
"""Clocks this far apart are usual without NTP for a day; beyond, leads and leases go wrong."""
_WORST_SKEW: Final = timedelta(seconds=60)
_DATE_STEP: Final = timedelta(seconds=1)


@dataclass(frozen=True)
class Finding:
    """What a probe found.

    Attributes:
        state: ok; warn: a person should look; FAIL: a part cannot work.
        what: What was found, in words.
        do: What to do; empty where all is well.
    """

    state: State
    what: str
    do: str = ""


class Probe(Protocol):
    """Looks at one thing, and changes nothing."""

    @property
    def name(self) -> str:
        """What is looked at."""
        ...

    def look(self) -> Finding:
        """Looks.

        Raises:
            ForewarnError: What is wrong, in words; it counts as FAIL.
            OSError: The same.
        """
        ...


@dataclass(frozen=True)
class NamedProbe:
    """A function as a probe.

    Attributes:
        name: What is looked at.
        looks: Looks.
    """

    name: str
    looks: Callable[[], Finding]

    def look(self) -> Finding:
        """As in `Probe`."""
        return self.looks()


@dataclass(frozen=True)
class FakeProbe:
    """Finds what it was told to: the fake of `Probe`.

    Attributes:
        name: What is looked at.
        finding: What is found; an error is raised.
        seconds: How long it takes.
    """

    name: str
    finding: Finding | Exception
    seconds: float = 0.0

    def look(self) -> Finding:
        """As in `Probe`."""
        time.sleep(self.seconds)
        if isinstance(self.finding, Exception):
            raise self.finding
        return self.finding


@dataclass(frozen=True)
class Looked:
    """A probe's finding and how long it took.

    Attributes:
        name: What was looked at.
        finding: What was found.
        took_ms: Milliseconds.
        is_hung: Whether it was given up, and may still be at work.
    """

    name: str
    finding: Finding
    took_ms: int
    is_hung: bool = False


def look_at_all(probes: Sequence[Probe], *, timeout_s: float) -> tuple[Looked, ...]:
    """Runs all probes at once; one that hangs is given up, and holds nothing else up.

    Args:
        probes: The probes.
        timeout_s: Seconds for each.

    Returns:
        What they found, in their order.
    """
    slots = [_Slot(probe) for probe in probes]
    for slot in slots:
        slot.start()
    end = time.monotonic() + timeout_s
    return tuple(slot.wait(until=end, timeout_s=timeout_s) for slot in slots)


def beside(theirs: datetime, ours: datetime) -> Finding | None:
    """What is wrong with two clocks; None: nothing.

    Args:
        theirs: Time by the server.
        ours: Time here at the same moment.
    """
    skew = theirs - ours
    if abs(skew) <= MOST_SKEW:
        return None
    side = "ahead of" if skew > timedelta(0) else "behind"
    words = f"its clock is {abs(skew).total_seconds():.0f} s {side} this one"
    state: State = "FAIL" if abs(skew) > _WORST_SKEW else "warn"
    return Finding(state, words, "Keep both clocks by NTP (chronyc tracking): see which is wrong.")


def beside_header(date: str, ours: datetime) -> Finding | None:
    """As `beside`, by the Date of an HTTP answer; None also where it has none."""
    try:
        theirs = parsedate_to_datetime(date)
    except (ValueError, IndexError, TypeError):
        return None
    theirs = theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC)
    # It is cut to the second.
    return beside(theirs + _DATE_STEP / 2, ours)


def joined(what: str, *others: Finding | None) -> Finding:
    """One finding of several: the worst state, all words.

    Args:
        what: What is well.
        others: What else was found; None: nothing.
    """
    found = [one for one in others if one is not None]
    worst = max((_RANK.index(one.state) for one in found), default=0)
    words = "; ".join([what, *(one.what for one in found)])
    return Finding(_RANK[worst], words, " ".join(one.do for one in found if one.do))


_RANK: Final[tuple[State, ...]] = ("ok", "warn", "FAIL")


class _Slot:
    """One probe in a thread of its own; the thread of one that hangs ends with the process."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._found: Finding | None = None
        self._took_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, *, until: float, timeout_s: float) -> Looked:
        self._thread.join(max(0.0, until - time.monotonic()))
        found, took_s = self._found, self._took_s
        is_hung = found is None
        if found is None:
            words = f"no answer within {timeout_s:g} s"
            do = "See whether it is up and reachable from here, or allow more with --timeout."
            found, took_s = Finding("FAIL", words, do), timeout_s
        return Looked(self._probe.name, found, round(took_s * 1000), is_hung)

    def _run(self) -> None:
        began = time.monotonic()
        try:
            found = self._probe.look()
        except (ForewarnError, OSError) as error:
            found = Finding("FAIL", " ".join(str(error).split()), "")
        except Exception as error:  # noqa: BLE001 - a fault in one probe must not hide the others
            said = " ".join(str(error).split())[:200]
            found = Finding("FAIL", f"{type(error).__name__}: {said}", "Report it: our own fault.")
        self._took_s = time.monotonic() - began
        self._found = found
