"""Who waits for whom when collectives hang, from the NCCL flight recorders of all ranks.

PyTorch's recorder says how far each rank came in each process group. A rank that others wait for
and that itself waits for nobody is where the hang began. Files are read in
`pipelines.sources.stacks`; which machines to evict is decided in `.eviction`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class GroupProgress:
    """How far a rank came in a process group, in sequence numbers of collectives.

    Attributes:
        name: Name of the process group; ranks of other groups may use the same number.
        ranks: Its global ranks.
        enqueued: Last collective it asked for.
        started: Last one that began on its GPU.
        completed: Last one that ended.
        operation: Name of the first that did not end, `nccl:all_reduce`; empty: none is open.
    """

    name: str
    ranks: tuple[int, ...]
    enqueued: int
    started: int
    completed: int
    operation: str = ""


@dataclass(frozen=True)
class OpenTransfer:
    """A send or receive that did not end.

    Attributes:
        name: Name of the process group.
        direction: What the rank does.
        peer: Global rank of the other side.
    """

    name: str
    direction: Literal["send", "recv"]
    peer: int


@dataclass(frozen=True)
class FlightRecord:
    """One rank's recorder.

    Attributes:
        rank: Global rank.
        groups: Progress in each of its process groups.
        transfers: Its open sends and receives.
    """

    rank: int
    groups: tuple[GroupProgress, ...]
    transfers: tuple[OpenTransfer, ...] = ()


StallKind = Literal["none", "absent", "circle", "inside"]


@dataclass(frozen=True)
class Stall:
    """Where a hang began.

    Attributes:
        kind: `absent`: ranks that others wait for did not come. `inside`: all came, and the
            operation does not end (a link, a switch). `circle`: ranks wait for each other (the
            order of collectives in the code). `none`: nobody waits.
        ranks: The ranks it began at, rising; for `circle` those of the circle.
        operation: What they are waited for in, or stuck in; empty: unknown.
        waiting: How many ranks wait.
    """

    kind: StallKind
    ranks: tuple[int, ...]
    operation: str
    waiting: int


def find_stall(records: Mapping[int, FlightRecord]) -> Stall:
    """Follows who waits for whom to those who wait for nobody.

    Args:
        records: Rank -> its recorder. A rank without one that others wait for counts as one that
            did not come.
    """
    progress = {
        (rank, group.name): group for rank, record in records.items() for group in record.groups
    }
    waits: dict[int, set[int]] = {}
    operations: dict[int, str] = {}
    inside: dict[int, str] = {}
    for rank, record in records.items():
        for group in record.groups:
            if group.completed >= group.enqueued:
                continue
            absent = _absent(group, progress)
            waits.setdefault(rank, set()).update(absent - {rank})
            if not absent:
                inside[rank] = group.operation
            for other in absent:
                operations.setdefault(other, group.operation)
        for transfer in record.transfers:
            _follow(rank, transfer, records, waits, inside)
    return _conclude(waits, operations, inside)


def _conclude(
    waits: dict[int, set[int]], operations: dict[int, str], inside: dict[int, str]
) -> Stall:
    waited_for = set[int]().union(*waits.values())
    waiting = sum(bool(others) for others in waits.values())
    roots = sorted(rank for rank in waited_for if not waits.get(rank))
    if roots:
        return Stall("absent", tuple(roots), operations.get(roots[0], ""), waiting)
    if waited_for:
        circle = _circle(waits)
        return Stall("circle", circle, operations.get(circle[0], ""), waiting)
    if inside:
        ranks = tuple(sorted(inside))
        return Stall("inside", ranks, inside[ranks[0]], len(ranks))
    return Stall("none", (), "", 0)


def _absent(group: GroupProgress, progress: dict[tuple[int, str], GroupProgress]) -> set[int]:
    """Ranks that have not asked for the operation that is open; or, if all have, not begun it."""
    open_one = group.completed + 1
    others = {rank: progress.get((rank, group.name)) for rank in group.ranks}
    unasked = {rank for rank, at in others.items() if at is None or at.enqueued < open_one}
    if unasked:
        return unasked
    unbegun = {rank for rank, at in others.items() if at is not None and at.started < open_one}
    return unbegun if len(unbegun) < len(others) else set()


def _follow(
    rank: int,
    transfer: OpenTransfer,
    records: Mapping[int, FlightRecord],
    waits: dict[int, set[int]],
    inside: dict[int, str],
) -> None:
    """A transfer waits for its other side, unless that side is at it too."""
    opposite = "recv" if transfer.direction == "send" else "send"
    other = records.get(transfer.peer)
    meets = other is not None and any(
        back.direction == opposite and back.peer == rank and back.name == transfer.name
        for back in other.transfers
    )
    if meets:
        inside[rank] = f"nccl:{transfer.direction}"
        waits.setdefault(rank, set())
    else:
        waits.setdefault(rank, set()).add(transfer.peer)


def _circle(waits: dict[int, set[int]]) -> tuple[int, ...]:
    """One circle of ranks, found by following the lowest rank waited for."""
    at = min(rank for rank, others in waits.items() if others)
    path: list[int] = []
    while at not in path:
        path.append(at)
        at = min(waits[at])
    return tuple(sorted(path[path.index(at) :]))
