"""Dual-phase replay: which machines to run together, twice, to find the one that computes wrongly.

Plans and conclusions only; running the replay is the operator's. After ByteRobust (SOSP'25): each
group replays the same deterministic steps with tensor and pipeline sizes kept and fewer replicas,
so a group with the faulty machine fails in both phases.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from features.errors import DataError

Group = tuple[int, ...]


@dataclass(frozen=True)
class ReplayPlan:
    """Two ways to cut m x n machines into groups.

    Attributes:
        m: Machines of a group of the first phase: k pipelines of PP machines.
        n: Groups of the first phase, and of the second.
        first: Phase 1: machine x is in group x div m.
        second: Phase 2: machine x is in group x mod n.
    """

    m: int
    n: int
    first: tuple[Group, ...]
    second: tuple[Group, ...]


def plan_replay(m: int, n: int) -> ReplayPlan:
    """Cuts m x n machines so that a group of one phase meets one of the other in one machine.

    Args:
        m: Machines in a group; a multiple of the pipeline size.
        n: Groups; the data parallel size by the same multiple.

    Raises:
        DataError: m > n, with which two machines of one group meet again in the second phase.

    >>> plan = plan_replay(4, 6)
    >>> plan.first[3], plan.second[1]
    ((12, 13, 14, 15), (1, 7, 13, 19))
    """
    if not 1 <= m <= n:
        raise DataError(
            f"dual-phase replay: expected 1 <= m <= n, got m = {m}, n = {n}. Choose a smaller "
            "multiple k of the pipeline size (m = k PP, n = DP / k)"
        )
    machines = range(m * n)
    first = tuple(tuple(x for x in machines if x // m == group) for group in range(n))
    second = tuple(tuple(x for x in machines if x % n == group) for group in range(n))
    return ReplayPlan(m, n, first, second)


def plan_for(*, pp: int, dp: int, k: int = 1) -> ReplayPlan:
    """The plan for a job: k of its pipelines in each group.

    Args:
        pp: Machines of a pipeline.
        dp: Replicas.
        k: Pipelines of a group. With 1 the fewest machines are left; with more, the traffic
            between replicas that brings a fault out is kept.

    Raises:
        DataError: The replicas are no multiple of k, or a group has more machines than there are
            groups.

    >>> plan = plan_for(pp=2, dp=12, k=2)
    >>> plan.m, plan.n
    (4, 6)
    """
    if k < 1 or dp % k:
        raise DataError(f"dual-phase replay: {dp} replicas are no multiple of k = {k}")
    return plan_replay(k * pp, dp // k)


@dataclass(frozen=True)
class Suspects:
    """Where the fault can be.

    Attributes:
        machines: Machines in a failing group of both phases, rising.
        is_exact: Whether one fault is the only explanation: one group failed in each phase.
        note: What to make of it, in words.
    """

    machines: tuple[int, ...]
    is_exact: bool
    note: str


def isolate(
    plan: ReplayPlan, *, first_failed: Iterable[int], second_failed: Iterable[int]
) -> Suspects:
    """The machines at the intersection of the groups that failed.

    Two faulty machines fail up to two groups in each phase, whose intersection has up to four
    machines: all are suspects, for the two phases cannot tell them apart. A fault that shows in
    one phase only did not repeat: nothing is isolated.

    Args:
        plan: How the machines were cut.
        first_failed: Groups of the first phase that failed.
        second_failed: Groups of the second phase that failed.

    Raises:
        DataError: There is no such group.

    >>> isolate(plan_replay(4, 6), first_failed=[3], second_failed=[1]).machines
    (13,)
    """
    rows, columns = sorted(set(first_failed)), sorted(set(second_failed))
    unknown = [group for group in (*rows, *columns) if not 0 <= group < plan.n]
    if unknown:
        raise DataError(f"dual-phase replay: no group {unknown[0]}; groups are 0 to {plan.n - 1}")
    of_second = {x for group in columns for x in plan.second[group]}
    machines = tuple(x for group in rows for x in plan.first[group] if x in of_second)
    is_exact = len(rows) == len(columns) == 1 and len(machines) == 1
    return Suspects(machines, is_exact, _note(rows, columns, machines))


def _note(rows: list[int], columns: list[int], machines: tuple[int, ...]) -> str:
    if not rows and not columns:
        return "no group failed: the fault did not repeat; it may be gone, or in the code or data"
    if not rows or not columns:
        return "a group failed in one phase only: the fault comes and goes; repeat both phases"
    if not machines:
        return "the groups that failed share no machine: two faults that come and go; repeat"
    if len(rows) == len(columns) == 1:
        return "one group failed in each phase: the machine they share, if there is one fault"
    faults = max(len(rows), len(columns))
    return (
        f"at least {faults} faults: every machine that the failing groups share is a suspect, "
        "for two phases cannot tell them apart; test these alone, or evict them all"
    )
