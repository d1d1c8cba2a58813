"""Fail-slow by vote: in which parallel group ranks stood out most often over several rounds.

One round is grouped in `.grouping`; what a blamed group is, is said in `.eviction`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from models.localization.eviction import explain
from models.localization.layout import Layout, ParallelGroup

ROUNDS: Final = 5
"""ByteRobust (SOSP'25) samples five times."""
ROUND_GAP_S: Final = 10
"""Seconds between two samples, there."""


@dataclass(frozen=True)
class Vote:
    """What the rounds say.

    Attributes:
        flagged: The group flagged in each round; None: nobody stood out, or too many did.
        group: The group flagged most; None: never any. Of equals the one with fewer machines.
        n_flags: In how many rounds.
        is_sure: Whether it was flagged in more than half of the rounds.
    """

    flagged: tuple[ParallelGroup | None, ...]
    group: ParallelGroup | None
    n_flags: int
    is_sure: bool


def vote(rounds: Sequence[Sequence[int]], layout: Layout) -> Vote:
    """Flags in each round the group with most ranks that stand out, and counts.

    A healthy rank that is caught elsewhere once does not come again; one that is slow does.

    Args:
        rounds: Ranks that stand out, round by round.
        layout: Where the ranks are.
    """
    flagged: list[ParallelGroup | None] = []
    for outliers in rounds:
        found = explain(outliers, layout)
        flagged.append(found.blamed[0].group if found.blamed and not found.is_too_wide else None)
    counts = Counter(group for group in flagged if group is not None)
    if not counts:
        return Vote(tuple(flagged), None, 0, is_sure=False)
    winner = min(counts, key=lambda group: (-counts[group], len(group.machines), group.ranks))
    sure = 2 * counts[winner] > len(rounds)
    return Vote(tuple(flagged), winner, counts[winner], is_sure=sure)
