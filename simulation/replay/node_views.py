"""How each node looks to the hook from when on, in one sweep over its intervals.

`remediation.cluster.frames` answers the same for one moment; a test holds the two against each
other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from remediation.cluster.state import NodeState, NodeView
from simulation.replay.history import Change, micros

_STRENGTH: Final = {"up": 0, "unknown": 1, "drain": 2, "down": 3}
_ALWAYS: Final = -(2**62)
_NEVER: Final = 2**62


@dataclass(frozen=True, kw_only=True)
class ViewRows:
    """The tables that views are made from.

    Attributes:
        states: core/node_states.
        topology: core/topology.
        inventory: core/inventory.
        levels: Topology levels that are the rack, the leaf switch, and the partition.
        without_record: State of a node that no interval covers.
    """

    states: pl.DataFrame
    topology: pl.DataFrame
    inventory: pl.DataFrame
    levels: tuple[str, str, str]
    without_record: NodeState


@dataclass(frozen=True)
class _Interval:
    """One row: seen in [begin, end)."""

    begin: int
    end: int
    kind: str
    what: Any


@dataclass
class _Open:
    """The rows of one node that hold at a moment."""

    is_known: bool = False
    by_kind: dict[str, list[_Interval]] = field(default_factory=dict)

    def of(self, kind: str) -> list[_Interval]:
        return self.by_kind.get(kind, [])


def node_changes(
    rows: ViewRows, names: Sequence[str]
) -> tuple[tuple[Change, ...], tuple[int | None, ...]]:
    """Every change of every node's view.

    Args:
        rows: The tables; an unknown begin lies before the record.
        names: Node names, by code.

    Returns:
        The changes by time and node, and the most GPUs each node ever had (None: unknown).
    """
    intervals: list[list[_Interval]] = [[] for _ in names]
    code = {name: place for place, name in enumerate(names)}
    for name, one in _intervals(rows):
        intervals[code[name]].append(one)
    changes: list[Change] = []
    sizes: list[int | None] = []
    for node, name in enumerate(names):
        own = _sweep(node, name, intervals[node], rows)
        counts = [one.view.n_gpus for one in own if one.view and one.view.n_gpus]
        changes += own
        sizes.append(max(counts, default=None))
    changes.sort(key=lambda one: (one.at, one.node))
    return tuple(changes), tuple(sizes)


def _intervals(rows: ViewRows) -> Iterable[tuple[str, _Interval]]:
    kinds = (
        ("state", rows.states, ("state", "reason", "actor")),
        ("place", rows.topology, ("level", "place")),
        ("gpu", rows.inventory, ("gpu_uuid",)),
    )
    for kind, frame, columns in kinds:
        for node, low, high, *what in frame.select(
            "node", "valid_from", "valid_to", *columns
        ).iter_rows():
            # A row counts strictly after its begin, and no longer at its end.
            begin = _ALWAYS if low is None else micros(low) + 1
            yield node, _Interval(begin, _NEVER if high is None else micros(high), kind, what)


def _sweep(node: int, name: str, own: list[_Interval], rows: ViewRows) -> list[Change]:
    begins: dict[int, list[_Interval]] = {}
    ends: dict[int, list[_Interval]] = {}
    for one in own:
        if one.begin < one.end:
            begins.setdefault(one.begin, []).append(one)
            ends.setdefault(one.end, []).append(one)
        elif one.kind == "state":
            begins.setdefault(one.begin, [])
    found: list[Change] = []
    held = _Open()
    for at in sorted({*begins, *ends} - {_NEVER}):
        for one in begins.get(at, ()):
            held.by_kind.setdefault(one.kind, []).append(one)
            held.is_known = held.is_known or one.kind == "state"
        for one in ends.get(at, ()):
            held.by_kind[one.kind].remove(one)
        view = _view(name, held, rows)
        if not found or found[-1].view != view:
            found.append(Change(at, node, view))
    return found


def _view(name: str, held: _Open, rows: ViewRows) -> NodeView | None:
    gpus = {one.what[0] for one in held.of("gpu")}
    if not (held.is_known or gpus or held.of("place")):
        return None
    state, reason, actor = rows.without_record, None, None
    strongest = -1
    for one in sorted(held.of("state"), key=lambda interval: interval.begin):
        if _STRENGTH[one.what[0]] >= strongest:
            strongest = _STRENGTH[one.what[0]]
            state, reason, actor = one.what
    racks, switches, partitions = (_places(held, level) for level in rows.levels)
    return NodeView(
        name=name,
        state=state,
        reason=reason,
        actor=actor,
        rack=next(iter(racks), None),
        switch=next(iter(switches), None),
        partitions=partitions,
        n_gpus=len(gpus) or None,
    )


def _places(held: _Open, level: str) -> tuple[str, ...]:
    return tuple(sorted(one.what[1] for one in held.of("place") if one.what[0] == level))
