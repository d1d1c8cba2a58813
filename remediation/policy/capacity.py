"""Replacement capacity: what could take the place of a node right now, in which order.

Pure, from the cluster's present state; capacity that it does not show is none. How many standby
nodes there should be is in `remediation.policy.standby`, what a replacement saves in
`remediation.policy.costs`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from remediation.cluster.state import ClusterState, JobView, NodeView
from remediation.site import Site, matches

Kind = Literal["standby", "loaned", "scale_in"]

KINDS: Final[tuple[Kind, ...]] = ("standby", "loaned", "scale_in")
"""Taken in this order, as Lyra does: what is idle first, what must be given up last."""


@dataclass(frozen=True, kw_only=True)
class Spare:
    """Something that can stand in for nodes.

    Attributes:
        kind: A warm standby node, a loaned server, or an elastic job that can scale in.
        name: Node name; job id for an elastic job.
        n_nodes: Nodes it can give.
        n_gpus: GPUs of each; None: unknown.
        partitions: Where it can stand in; empty: only for nodes of no partition. A loaned server
            comes from another pool and stands in anywhere.
        on_nodes: The nodes it is or runs on, which it cannot replace.
    """

    kind: Kind
    name: str
    n_nodes: int = 1
    n_gpus: float | None = None
    partitions: frozenset[str] = frozenset()
    on_nodes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Capacity:
    """Everything that could replace a node at one moment.

    Attributes:
        spares: In the order in which they are taken.
    """

    spares: tuple[Spare, ...] = ()
    # The same few partitions and sizes are asked for tens of thousands of times.
    _fitting: dict[tuple[tuple[str, ...], int | None], tuple[Spare, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def replacement(self, node: NodeView) -> Spare | None:
        """What would take a node's place; None: nothing that is known.

        Args:
            node: The node; a spare of fewer, or of unknown, GPUs is none for it.
        """
        if not self.spares:
            return None
        kind_of_node = (node.partitions, node.n_gpus)
        if kind_of_node not in self._fitting:
            self._fitting[kind_of_node] = tuple(one for one in self.spares if _fits(one, node))
        return next(
            (one for one in self._fitting[kind_of_node] if node.name not in one.on_nodes), None
        )

    def without(self, spare: Spare) -> "Capacity":
        """What is left once one node of a spare is spoken for."""
        left = [
            replace(one, n_nodes=one.n_nodes - 1) if one == spare else one for one in self.spares
        ]
        return Capacity(tuple(one for one in left if one.n_nodes > 0))


NO_CAPACITY: Final = Capacity()


def capacity_of(state: ClusterState, *, site: Site, suspects: frozenset[str]) -> Capacity:
    """The replacement capacity of a cluster.

    Args:
        state: The cluster now.
        site: Names standby nodes and loaned servers.
        suspects: Nodes that may fail themselves; they replace none.

    Returns:
        Standby nodes and loaned servers that are up and idle, and elastic jobs with more nodes
        than they need.
    """
    spares: list[Spare] = []
    kinds: tuple[tuple[Kind, tuple[str, ...]], ...] = (
        ("standby", site.standby),
        ("loaned", site.loaned),
    )
    for kind, patterns in kinds:
        spares += [
            Spare(
                kind=kind,
                name=node.name,
                n_gpus=node.n_gpus,
                partitions=frozenset(node.partitions),
                on_nodes=frozenset({node.name}),
            )
            for node in (state.nodes if patterns else ())
            if node.state == "up"
            and matches(node.name, patterns)
            and node.name not in suspects
            and not state.jobs_on(node.name)
        ]
    spares += [
        _of_job(job, state)
        for job in state.jobs
        if job.n_flexible > 0 and suspects.isdisjoint(job.nodes)
    ]
    return Capacity(tuple(spares))


def _of_job(job: JobView, state: ClusterState) -> Spare:
    """An elastic job; only partitions that all its nodes serve, and the GPUs each gives up."""
    views: Sequence[NodeView] = [
        state.by_name[name] for name in set(job.nodes) if name in state.by_name
    ]
    shared = [set(view.partitions) for view in views]
    return Spare(
        kind="scale_in",
        name=job.job_id,
        n_nodes=job.n_flexible,
        n_gpus=None if job.n_gpus is None else job.n_gpus / job.n_nodes,
        partitions=frozenset(set.intersection(*shared)) if shared else frozenset(),
        on_nodes=frozenset(job.nodes),
    )


def _fits(spare: Spare, node: NodeView) -> bool:
    if node.n_gpus is None or spare.n_gpus is None or spare.n_gpus < node.n_gpus:
        return False
    if spare.kind == "loaned":
        return True
    return not spare.partitions.isdisjoint(node.partitions) or not (
        spare.partitions or node.partitions
    )
