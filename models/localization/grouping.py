"""Groups ranks by the text of their stacks: what most do, what belongs to a stage, who stands out.

Which machines follow from it is decided in `.eviction`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from models.localization.layout import Layout
from models.localization.stacks import Text

Role = Literal["dominant", "pattern", "outlier"]

_FEWEST_REPLICAS: Final = 3
"""With fewer replicas "in most of them" tells nothing apart."""


@dataclass(frozen=True)
class TextGroup:
    """Ranks whose stacks have the same text.

    Attributes:
        text: The text, the innermost call first.
        ranks: The ranks, rising.
        role: `dominant`: what most ranks do. `pattern`: what one stage does in most replicas of
            the model, which no fault of one machine brings about. `outlier`: anything else.
    """

    text: Text
    ranks: tuple[int, ...]
    role: Role


@dataclass(frozen=True)
class Grouping:
    """All ranks by what they do.

    Attributes:
        groups: Groups, the largest first.
        silent_machines: Machines none of whose ranks gave a dump.
        unknown: Ranks without a usable dump on machines that gave others.
        is_clear: Whether dominant and pattern groups hold more than half of the dumps.
    """

    groups: tuple[TextGroup, ...]
    silent_machines: tuple[int, ...]
    unknown: tuple[int, ...]
    is_clear: bool

    @property
    def outliers(self) -> tuple[int, ...]:
        """Ranks that stand out, rising."""
        return tuple(sorted(r for g in self.groups if g.role == "outlier" for r in g.ranks))


def group_ranks(
    texts: Mapping[int, Text], layout: Layout, *, unreadable: Iterable[int] = ()
) -> Grouping:
    """Groups ranks by text.

    Args:
        texts: Rank -> text of its stack.
        layout: Where the ranks are; ranks beyond it are the caller's to refuse.
        unreadable: Ranks whose file is there but cannot be used: unknown, never silent.

    Returns:
        Every rank of the layout in exactly one place. A stack that is the inner part of another
        was cut short: that rank is unknown.
    """
    every: dict[Text, list[int]] = {}
    for rank in sorted(texts):
        every.setdefault(texts[rank], []).append(rank)
    found = {text: ranks for text, ranks in every.items() if not _is_cut_short(text, every)}
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[1][0]))
    largest = len(ordered[0][1]) if ordered else 0
    groups = tuple(
        TextGroup(text, tuple(ranks), _role(ranks, layout, largest=largest, is_first=i == 0))
        for i, (text, ranks) in enumerate(ordered)
    )
    usual = sum(len(group.ranks) for group in groups if group.role != "outlier")
    heard = {layout.machine(rank) for rank in (*texts, *unreadable)}
    silent = tuple(m for m in range(layout.n_machines) if m not in heard)
    placed = {rank for ranks in found.values() for rank in ranks}
    unknown = [r for r in range(layout.n_ranks) if r not in placed and layout.machine(r) in heard]
    return Grouping(groups, silent, tuple(unknown), is_clear=2 * usual > len(placed))


def _is_cut_short(text: Text, every: Iterable[Text]) -> bool:
    """Whether a text is another one without its outer calls, where every stack begins."""
    return any(len(other) > len(text) and other[: len(text)] == text for other in every)


def _role(ranks: list[int], layout: Layout, *, largest: int, is_first: bool) -> Role:
    if is_first:
        return "dominant"
    if layout.dp < _FEWEST_REPLICAS:
        return "pattern" if 2 * len(ranks) > largest else "outlier"
    replicas = {layout.place(rank)[2] for rank in ranks}
    return "pattern" if 2 * len(replicas) > layout.dp else "outlier"
