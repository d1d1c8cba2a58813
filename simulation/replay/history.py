"""The record that a replay runs on: nodes, attempts of jobs, outages, all by dense node codes.

Values only: how they are read from core tables is in `simulation.replay.tables`, what is decided
on them in `simulation.replay.engine`. Times are microseconds since 1970, UTC.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from remediation.cluster.state import JobView, NodeView

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
WEEK: Final = 168 * HOUR

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def micros(at: datetime) -> int:
    """A moment as microseconds since 1970.

    >>> micros(datetime(1970, 1, 1, 1, tzinfo=UTC)) == HOUR
    True
    """
    return (at - _EPOCH) // _MICROSECOND


def moment_of(at: int) -> datetime:
    """The moment, back from microseconds."""
    return _EPOCH + at * _MICROSECOND


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt of a job, as it really ran.

    Attributes:
        key: Job and attempt.
        nodes: Codes of its nodes, each once.
        gpus: GPUs in all.
        start: Start.
        end: End; an open one ends where the record does.
        view: How the policy sees it.
    """

    key: tuple[str, int]
    nodes: tuple[int, ...]
    gpus: float
    start: int
    end: int
    view: JobView

    @property
    def share(self) -> float:
        """Its GPUs on each node."""
        return self.gpus / len(self.nodes)


@dataclass(frozen=True)
class NodeAttempts:
    """The attempts that used one node.

    Attributes:
        attempts: By start.
    """

    attempts: tuple[Attempt, ...] = ()
    _starts: list[int] = field(init=False, compare=False, repr=False)
    _reach: list[int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Notes until when any attempt so far reaches, so that a look back can stop early."""
        object.__setattr__(self, "_starts", [one.start for one in self.attempts])
        ends = accumulate((one.end for one in self.attempts), max)
        object.__setattr__(self, "_reach", list(ends))

    def within(self, low: int, high: int) -> tuple[Attempt, ...]:
        """Attempts that began before `high` and ended after `low`, by start."""
        found = []
        for place in range(bisect_left(self._starts, high) - 1, -1, -1):
            if self._reach[place] <= low:
                break
            if self.attempts[place].end > low:
                found.append(self.attempts[place])
        return tuple(reversed(found))

    def running(self, at: int) -> tuple[Attempt, ...]:
        """Attempts that began before `at` and had not ended by it, by start."""
        return self.within(at, at)


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An attempt that an outage ended.

    Attributes:
        attempt: The attempt.
        onset: When the failure began.
    """

    attempt: Attempt
    onset: int


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A time in which a node was out through failures; incidents that overlap are one.

    Attributes:
        number: Place in the history, by start and node.
        node: Node code.
        start: Onset of the first incident.
        end: Repair of the last.
        fault_type: Fault type of the first.
        hits: Attempts it ended; each attempt is ended by one outage only.
    """

    number: int
    node: int
    start: int
    end: int
    fault_type: str | None
    hits: tuple[Hit, ...] = ()


@dataclass(frozen=True)
class Change:
    """A node as the cluster shows it from a moment on.

    Attributes:
        at: The first moment at which it is seen.
        node: Node code.
        view: The node; None: the cluster does not know it.
    """

    at: int
    node: int
    view: NodeView | None


@dataclass(frozen=True, kw_only=True)
class ScoreRows:
    """Scores of nodes at ticks, by columns, sorted by tick and node.

    Attributes:
        tick: Index into the history's ticks, shape (rows,).
        node: Node code, shape (rows,).
        score: Probability; NaN: unknown, shape (rows,).
        fault: Index into `faults`; -1: unknown, shape (rows,).
        faults: Fault types.
        is_prior: Whether the score is a prior, shape (rows,).
        is_application_only: Whether only signals of applications raised it, shape (rows,).
        versions: Models that gave them, for the report.
        trained_on: synthetic or real.
    """

    tick: IntArray
    node: IntArray
    score: FloatArray
    fault: IntArray
    faults: tuple[str, ...] = ()
    is_prior: BoolArray
    is_application_only: BoolArray
    versions: tuple[str, ...] = ()
    trained_on: str = "real"


@dataclass(frozen=True, kw_only=True)
class History:
    """All that happened, in a world in which nothing was drained ahead of time.

    Attributes:
        names: Node names, by code.
        sizes: GPUs of each node, for the books; a default where unknown.
        start: First moment of the replay.
        end: Its end, exclusive.
        ticks: Moments of scores within it, rising.
        changes: How nodes look from when on, by time.
        attempts: Attempts of each node.
        outages: Outages that begin within the time, by start and node.
        past: Start of every known incident of each node, within the time or before, rising.
        events: Time and node of each event of a static rule, by time.
        scores: The stored scores; None: none are.
        is_synthetic: Whether record or model is synthetic.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    start: int
    end: int
    ticks: IntArray
    changes: tuple[Change, ...]
    attempts: tuple[NodeAttempts, ...]
    outages: tuple[Outage, ...]
    past: tuple[tuple[int, ...], ...]
    events: tuple[tuple[int, int], ...] = ()
    scores: ScoreRows | None = None
    is_synthetic: bool = False
    outages_of: Mapping[int, tuple[Outage, ...]] = field(init=False, compare=False, repr=False)
    code_of: Mapping[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Groups the outages by node, and the codes by name."""
        found: dict[int, list[Outage]] = {}
        for one in self.outages:
            found.setdefault(one.node, []).append(one)
        grouped = {node: tuple(outages) for node, outages in found.items()}
        object.__setattr__(self, "outages_of", grouped)
        codes = {name: code for code, name in enumerate(self.names)}
        object.__setattr__(self, "code_of", codes)

    @property
    def span_h(self) -> float:
        """Length of the replay, hours."""
        return (self.end - self.start) / HOUR

    @property
    def run_gpu_hours(self) -> float:
        """GPU-hours that jobs really ran within the time."""
        seen: set[tuple[str, int]] = set()
        total = 0.0
        for attempts in self.attempts:
            for one in attempts.attempts:
                if one.key not in seen:
                    seen.add(one.key)
                    inside = min(one.end, self.end) - max(one.start, self.start)
                    total += one.gpus * max(0, inside) / HOUR
        return total
