"""From ranks that stand out to machines to evict: the parallel groups that explain them best.

Over-eviction as in ByteRobust (SOSP'25): where a fault of one machine stalls its neighbours, the
group they share is cheaper to replace than the minutes that finding the one would take. How ranks
come to stand out is in `.grouping`, `.fail_slow` and `.flight_recorder`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2
from typing import Final

from models.localization.layout import Layout, ParallelGroup

_EXACT: Final = 12
"""Machines up to which every cover is tried; beyond, the cheapest next group is taken."""

MOST_SHARE: Final = 0.25
"""Share of machines beyond which more than one is no exception, and a person should look."""


@dataclass(frozen=True)
class Blamed:
    """A group that is held responsible, and the ranks it explains.

    Attributes:
        group: The group.
        ranks: Ranks of it that stand out, rising.
    """

    group: ParallelGroup
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Eviction:
    """What to evict.

    Attributes:
        blamed: Groups held responsible, the one with most ranks that stand out first.
        machines: Their machines, rising.
        is_too_wide: Whether that is more than one machine and `MOST_SHARE` of all.
    """

    blamed: tuple[Blamed, ...]
    machines: tuple[int, ...]
    is_too_wide: bool


def explain(outliers: Iterable[int], layout: Layout) -> Eviction:
    """The groups whose machines hold every rank that stands out, at the least cost.

    A cover costs log2(machines) for each group (to name one more fault takes as many bits) and 1
    for each machine in it that looks healthy. So one group is blamed rather than two machines
    while it holds few others, and a data parallel group of hundreds never for two machines in it.

    Args:
        outliers: Ranks that stand out.
        layout: Where the ranks are.

    Returns:
        The cheapest cover; of equal ones that with fewer machines.
    """
    ranks = sorted(set(outliers))
    marked = frozenset(layout.machine(rank) for rank in ranks)
    best = _greedy(marked, layout)
    if len(marked) <= _EXACT:
        best = _search(marked, layout, best)
    machines = frozenset[int]().union(*(group.machines for group in best))
    blamed = [
        Blamed(group, tuple(r for r in ranks if layout.machine(r) in group.machines))
        for group in best
    ]
    blamed.sort(key=lambda one: (-len(one.ranks), one.group.ranks))
    wide = len(machines) > max(1, MOST_SHARE * layout.n_machines)
    return Eviction(tuple(blamed), tuple(sorted(machines)), is_too_wide=wide)


def cover_cost(groups: Iterable[ParallelGroup], layout: Layout) -> tuple[float, int]:
    """What a cover costs, and how many machines it evicts.

    Machines with ranks that stand out are in every cover; counting them too changes no order.

    Args:
        groups: The groups.
        layout: Where the ranks are.
    """
    chosen = list(groups)
    n_machines = len(frozenset[int]().union(*(group.machines for group in chosen)))
    return len(chosen) * _fault_cost(layout) + n_machines, n_machines


def _fault_cost(layout: Layout) -> float:
    return max(1.0, log2(layout.n_machines))


def _greedy(marked: frozenset[int], layout: Layout) -> tuple[ParallelGroup, ...]:
    chosen: list[ParallelGroup] = []
    rest = set(marked)
    price = _fault_cost(layout)
    while rest:
        candidates = {
            group.machines: group for m in rest for group in layout.groups_by_machine[m]
        }.values()
        best = min(
            candidates,
            key=lambda group: (
                (price + len(group.machines - marked)) / len(group.machines & rest),
                len(group.machines),
                group.ranks,
            ),
        )
        chosen.append(best)
        rest -= best.machines
    return tuple(chosen)


def _search(
    marked: frozenset[int], layout: Layout, best: tuple[ParallelGroup, ...]
) -> tuple[ParallelGroup, ...]:
    """The cheapest cover of all, by branching on the first machine not yet covered."""
    least = cover_cost(best, layout)
    waiting: list[tuple[ParallelGroup, ...]] = [()]
    while waiting:
        chosen = waiting.pop()
        cost = cover_cost(chosen, layout)
        if cost >= least:
            continue
        rest = marked.difference(*(group.machines for group in chosen))
        if not rest:
            best, least = chosen, cost
            continue
        waiting += [(*chosen, group) for group in layout.groups_by_machine[min(rest)]]
    return best
