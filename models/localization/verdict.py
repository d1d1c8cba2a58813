"""The verdict on a hang or a slow job: which machines to evict, on what evidence, or that none.

The evidence is gathered in the neighbouring modules; words for people are in
`pipelines.studies.localize`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from models.localization.eviction import Eviction, explain
from models.localization.fail_slow import Vote, vote
from models.localization.flight_recorder import FlightRecord, Stall, find_stall
from models.localization.grouping import Grouping, group_ranks
from models.localization.layout import Layout
from models.localization.stacks import RankStack, all_text, has_main_thread, main_text

Basis = Literal["collectives", "stacks", "helper_threads", "rounds", "none"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What ranks were doing at one moment.

    Attributes:
        stacks: Rank -> stack dump.
        records: Rank -> flight recorder.
        unreadable: Ranks whose file is there but cannot be used.
    """

    stacks: Mapping[int, RankStack]
    records: Mapping[int, FlightRecord]
    unreadable: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whom to evict.

    Attributes:
        basis: What decided. `collectives`: the flight recorders name the ranks that others wait
            for. `stacks`: stacks of the training threads, and machines that gave no dump at all.
            `helper_threads`: these are all alike and other threads are not. `rounds`: a vote.
        eviction: Whom to evict; None: nobody stands out.
        is_clear: Whether to act on it: most ranks do the same, few stand out, and a vote was won.
        agrees: Whether stacks and collectives blame a common machine; None: only one speaks.
        grouping: Ranks by their stacks; None: no stacks.
        stall: Where the flight recorders see the hang begin; None: too few recorders.
        vote: The vote; None: there was one moment only.
    """

    basis: Basis
    eviction: Eviction | None
    is_clear: bool
    agrees: bool | None = None
    grouping: Grouping | None = None
    stall: Stall | None = None
    vote: Vote | None = None


def judge_hang(evidence: Evidence, layout: Layout) -> Verdict:
    """The verdict from one moment.

    Flight recorders go before stacks: they say who is waited for, stacks only who differs. With
    recorders of half of the ranks or fewer they are not heard: a rank without one would look as
    if it had not come.

    Args:
        evidence: Stacks and recorders.
        layout: Where the ranks are.
    """
    records = evidence.records
    stall = find_stall(records) if 2 * len(records) > layout.n_ranks else None
    by_collectives = _by_collectives(stall, evidence, layout)
    by_stacks, grouping, basis = _by_stacks(evidence, layout)
    agrees = None
    if by_collectives and by_stacks:
        agrees = not set(by_collectives.machines).isdisjoint(by_stacks.machines)
    eviction = by_collectives or by_stacks
    if by_collectives:
        basis = "collectives"
    elif by_stacks is None:
        basis = "none"
    grouped = basis == "collectives" or (grouping is not None and grouping.is_clear)
    return Verdict(
        basis=basis,
        eviction=eviction,
        is_clear=eviction is not None and not eviction.is_too_wide and grouped,
        agrees=agrees,
        grouping=grouping,
        stall=stall,
    )


def judge_slow(rounds: Sequence[Evidence], layout: Layout) -> Verdict:
    """The verdict from several moments of a slow job, by vote.

    Args:
        rounds: Stacks at each moment.
        layout: Where the ranks are.
    """
    groupings = [_grouped(evidence, layout) for evidence in rounds]
    marked = [_marked(grouping, layout) if grouping.is_clear else () for grouping in groupings]
    counted = vote(marked, layout)
    eviction = None
    if counted.group is not None:
        eviction = explain(counted.group.ranks, layout)
    return Verdict(
        basis="rounds" if eviction else "none",
        eviction=eviction,
        is_clear=eviction is not None and counted.is_sure and not eviction.is_too_wide,
        grouping=groupings[-1] if groupings else None,
        vote=counted,
    )


def _by_collectives(stall: Stall | None, evidence: Evidence, layout: Layout) -> Eviction | None:
    """Whom the recorders blame. A circle of waits is a fault of the code, not of a machine.

    A rank that seems absent because it alone of its machine gave no recorder is unknown.
    """
    if stall is None or stall.kind in ("none", "circle"):
        return None
    given = {*evidence.records, *evidence.stacks, *evidence.unreadable}
    heard = {layout.machine(rank) for rank in given}
    ranks = [
        rank
        for rank in stall.ranks
        if rank < layout.n_ranks and (rank in evidence.records or layout.machine(rank) not in heard)
    ]
    return explain(ranks, layout) if ranks else None


def _by_stacks(
    evidence: Evidence, layout: Layout
) -> tuple[Eviction | None, Grouping | None, Basis]:
    if not evidence.stacks:
        return None, None, "none"
    grouping = _grouped(evidence, layout)
    if marked := _marked(grouping, layout):
        return explain(marked, layout), grouping, "stacks"
    usable = [rank for group in grouping.groups for rank in group.ranks]
    every = {rank: all_text(evidence.stacks[rank]) for rank in usable}
    helpers = group_ranks(every, layout, unreadable=evidence.unreadable)
    if helpers.is_clear and helpers.outliers:
        return explain(helpers.outliers, layout), helpers, "helper_threads"
    return None, grouping, "none"


def _grouped(evidence: Evidence, layout: Layout) -> Grouping:
    stacks = evidence.stacks
    named = {rank for rank, stack in stacks.items() if has_main_thread(stack)}
    # Where most dumps name the thread that trains, one without it was cut short: unknown.
    usable = named if 2 * len(named) > len(stacks) else set(stacks)
    texts = {rank: main_text(stack) for rank, stack in stacks.items() if rank in usable}
    # A rank that gave a recorder is not silent, whatever became of its stack.
    heard = evidence.unreadable | frozenset(evidence.records) | frozenset(stacks)
    return group_ranks(texts, layout, unreadable=heard)


def _marked(grouping: Grouping, layout: Layout) -> tuple[int, ...]:
    silent: Iterable[int] = (r for m in grouping.silent_machines for r in layout.ranks_of(m))
    return (*grouping.outliers, *silent)
