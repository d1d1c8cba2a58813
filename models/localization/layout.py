"""How the ranks of a training job lie: tensor, pipeline and data parallel groups, and machines.

What ranks do is in `.stacks`; which group is to blame is decided in `.eviction`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, permutations
from typing import Final, Literal

from features.errors import SettingsError

GroupKind = Literal["machine", "tp", "pp", "dp", "tp-pp"]

AXES: Final = ("tp", "pp", "dp")
ORDERS: Final = tuple("-".join(order) for order in permutations(AXES))
MEGATRON_ORDER: Final = "tp-dp-pp"
"""Neighbouring ranks differ in tp first, then in dp, last in pp: Megatron-LM's default."""
MOST_RANKS: Final = 1 << 17
"""More than the largest known jobs have; a number beyond is a mistake, or no rank."""


@dataclass(frozen=True)
class ParallelGroup:
    """Ranks that wait for each other, and the machines they run on.

    Attributes:
        kind: A machine, a tensor, pipeline or data parallel group, or one replica of the model
            (`tp-pp`).
        index: Its number among those of its kind.
        ranks: Its ranks, rising.
        machines: Numbers of their machines.
    """

    kind: GroupKind
    index: int
    ranks: tuple[int, ...]
    machines: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Sizes of the parallel groups.

    Attributes:
        tp: Tensor parallel size.
        pp: Pipeline parallel size.
        dp: Data parallel size.
        per_machine: Ranks on a machine; neighbouring ranks share one.
        order: Axes from the fastest to the slowest, `tp-dp-pp`.

    >>> layout = Layout(tp=2, pp=2, dp=2, per_machine=2)
    >>> [layout.place(rank) for rank in (0, 1, 2, 4)]
    [(0, 0, 0), (1, 0, 0), (0, 0, 1), (0, 1, 0)]
    """

    tp: int = 1
    pp: int = 1
    dp: int
    per_machine: int = 8
    order: str = MEGATRON_ORDER

    def __post_init__(self) -> None:
        """Refuses what is no layout."""
        sizes = {"tp": self.tp, "pp": self.pp, "dp": self.dp, "per_machine": self.per_machine}
        wrong = [f"{name} {size}" for name, size in sizes.items() if size < 1]
        if wrong:
            raise SettingsError(f"layout: sizes must be at least 1, got {', '.join(wrong)}")
        if self.n_ranks > MOST_RANKS:
            raise SettingsError(
                f"layout: tp {self.tp} x pp {self.pp} x dp {self.dp} are {self.n_ranks:,} ranks; "
                f"expected at most {MOST_RANKS:,}. Give --dp, and look whether numbers in the "
                "names of files are ranks"
            )
        if self.order not in ORDERS:
            raise SettingsError(
                f"layout: unknown order {self.order!r}; expected one of {', '.join(ORDERS)}, "
                f"fastest axis first ({MEGATRON_ORDER} is Megatron-LM's)"
            )

    @property
    def n_ranks(self) -> int:
        """Ranks in all."""
        return self.tp * self.pp * self.dp

    @property
    def n_machines(self) -> int:
        """Machines in all."""
        return -(-self.n_ranks // self.per_machine)

    def machine(self, rank: int) -> int:
        """Number of the machine a rank runs on."""
        return rank // self.per_machine

    def ranks_of(self, machine: int) -> range:
        """The ranks of a machine; the last machine may be partly used."""
        first = machine * self.per_machine
        return range(first, min(first + self.per_machine, self.n_ranks))

    def place(self, rank: int) -> tuple[int, int, int]:
        """The rank's coordinates (tp, pp, dp)."""
        sizes = {"tp": self.tp, "pp": self.pp, "dp": self.dp}
        at: dict[str, int] = {}
        for axis in self.order.split("-"):
            rank, at[axis] = divmod(rank, sizes[axis])
        return at["tp"], at["pp"], at["dp"]

    @cached_property
    def groups(self) -> tuple[ParallelGroup, ...]:
        """Groups that differ in their machines, the narrowest kind first.

        A group that holds every machine tells nothing and is left out, unless there is one
        machine only.
        """
        found: dict[frozenset[int], ParallelGroup] = {}
        for kind, members in self._members().items():
            for index, ranks in enumerate(members):
                machines = frozenset(self.machine(rank) for rank in ranks)
                is_all = len(machines) == self.n_machines and kind != "machine"
                if not is_all and machines not in found:
                    found[machines] = ParallelGroup(kind, index, ranks, machines)
        return tuple(found.values())

    @cached_property
    def groups_by_machine(self) -> dict[int, tuple[ParallelGroup, ...]]:
        """Machine -> the groups that hold it, the narrowest first."""
        holding: dict[int, list[ParallelGroup]] = {}
        for group in self.groups:
            for machine in group.machines:
                holding.setdefault(machine, []).append(group)
        return {
            machine: tuple(sorted(groups, key=lambda group: len(group.machines)))
            for machine, groups in holding.items()
        }

    def _members(self) -> dict[GroupKind, list[tuple[int, ...]]]:
        places = [self.place(rank) for rank in range(self.n_ranks)]
        return {
            "machine": _split(rank // self.per_machine for rank in range(self.n_ranks)),
            "tp": _split((pp, dp) for _, pp, dp in places),
            "pp": _split((tp, dp) for tp, _, dp in places),
            "tp-pp": _split(dp for _, _, dp in places),
            "dp": _split((tp, pp) for tp, pp, _ in places),
        }


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as people write them.

    >>> ranges([3, 0, 1, 2, 7, 9, 10])
    '0-3, 7, 9-10'
    """
    ordered = sorted(set(numbers))
    if not ordered:
        return ""
    starts = [ordered[0], *(b for a, b in pairwise(ordered) if b != a + 1)]
    ends = [*(a for a, b in pairwise(ordered) if b != a + 1), ordered[-1]]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _split(keys: Iterable[object]) -> list[tuple[int, ...]]:
    """Ranks by their key, in the order of their first rank."""
    found: dict[object, list[int]] = {}
    for rank, key in enumerate(keys):
        found.setdefault(key, []).append(rank)
    return [tuple(ranks) for ranks in found.values()]
