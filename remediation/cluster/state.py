"""The cluster as the hook sees it: values for nodes and jobs, and who reads them.

Nothing is read here: `remediation.cluster.frames` builds the state from core tables, the
actuators re-read single nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Literal, Protocol, TypeVar

from features.errors import DataError
from remediation.cluster.reasons import is_ours

_Place = TypeVar("_Place", str, str | None)

NodeState = Literal["up", "drain", "down", "unknown"]
Owner = Literal["none", "forewarn", "other"]


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A node at one moment.

    Attributes:
        name: Node name.
        state: up, drain (drained or draining), down, unknown.
        reason: The scheduler's reason, as it stands.
        actor: Who set it.
        boot_id: Which instance and boot this is; None: unknown.
        rack: Rack; None: unknown.
        switch: Leaf switch; None: unknown.
        partitions: Partitions, queues or pools it serves.
        n_gpus: GPUs; None: unknown.
        driver: Driver version; None: unknown. It says what a burst has in common and nothing about
            who holds the node, so two views that differ in it alone are the same node.
    """

    name: str
    state: NodeState
    reason: str | None = None
    actor: str | None = None
    boot_id: str | None = None
    rack: str | None = None
    switch: str | None = None
    partitions: tuple[str, ...] = ()
    n_gpus: int | None = None
    driver: str | None = field(default=None, compare=False)

    @property
    def owner(self) -> Owner:
        """Who holds it: nobody, us (by the reason's prefix), or someone else."""
        if self.state != "drain":
            return "none"
        return "forewarn" if is_ours(self.reason) else "other"


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A running job at one moment.

    Attributes:
        job_id: Job id.
        nodes: Every node it runs on.
        n_gpus: GPUs in all; None: unknown.
        start: When it started.
        user: User.
        partition: Partition or queue.
        checkpoint_age_h: Hours since its last checkpoint; None: unknown.
        remaining_h: Hours it will still run at most; None: unknown.
        is_requeue_allowed: Whether it may be requeued; None: unknown.
        min_nodes: Fewest nodes on which it goes on, where it is elastic: a node that is taken from
            it leaves it running on the others. None: not elastic, as far as the scheduler tells.
        max_nodes: Most nodes it can use, where it is elastic.
    """

    job_id: str
    nodes: tuple[str, ...]
    n_gpus: int | None = None
    start: datetime | None = None
    user: str | None = None
    partition: str | None = None
    checkpoint_age_h: float | None = None
    remaining_h: float | None = None
    is_requeue_allowed: bool | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None

    @cached_property
    def n_nodes(self) -> int:
        """Different nodes it runs on."""
        return len(set(self.nodes))

    @property
    def n_flexible(self) -> int:
        """Nodes it can give up and go on; 0 for a job that is not elastic."""
        return 0 if self.min_nodes is None else max(0, self.n_nodes - self.min_nodes)


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """All nodes and running jobs at one moment.

    Attributes:
        as_of: The moment.
        nodes: The nodes, each name once.
        jobs: The running jobs.

    Raises:
        DataError: Two nodes share a name.
    """

    as_of: datetime
    nodes: tuple[NodeView, ...] = ()
    jobs: tuple[JobView, ...] = ()

    def __post_init__(self) -> None:
        """Refuses two nodes of one name."""
        if len(self.by_name) != len(self.nodes):
            raise DataError(
                f"cluster state: {len(self.nodes)} nodes have {len(self.by_name)} names; each "
                f"node must be there once. Look at the reader of the scheduler's state."
            )

    @cached_property
    def by_name(self) -> Mapping[str, NodeView]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def jobs_by_node(self) -> Mapping[str, tuple[JobView, ...]]:
        """The running jobs of each node that has any."""
        found: dict[str, list[JobView]] = {}
        for job in self.jobs:
            for node in job.nodes:
                found.setdefault(node, []).append(job)
        return {node: tuple(jobs) for node, jobs in found.items()}

    @cached_property
    def names_by_rack(self) -> Mapping[str | None, frozenset[str]]:
        """The nodes of each rack; those of unknown rack are under None."""
        return _grouped((node.rack, node.name) for node in self.nodes)

    @cached_property
    def names_by_partition(self) -> Mapping[str, frozenset[str]]:
        """The nodes of each partition; a node may be in several."""
        return _grouped(
            (partition, node.name) for node in self.nodes for partition in node.partitions
        )

    def jobs_on(self, node: str) -> tuple[JobView, ...]:
        """The jobs running on a node."""
        return self.jobs_by_node.get(node, ())


def _grouped(pairs: Iterable[tuple[_Place, str]]) -> dict[_Place, frozenset[str]]:
    found: dict[_Place, set[str]] = {}
    for place, name in pairs:
        found.setdefault(place, set()).add(name)
    return {place: frozenset(names) for place, names in found.items()}


class ClusterReader(Protocol):
    """Reads the cluster's present state."""

    def read(self) -> ClusterState:
        """The state now.

        Raises:
            SourceError: It cannot be read.
        """
        ...


class FakeCluster:
    """A cluster in memory: a reader, and the world that `FakeActuator` changes.

    Args:
        state: Its state at first.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state

    def read(self) -> ClusterState:
        """The state as it stands."""
        return self.state

    def set_node(self, name: str, **changes: object) -> None:
        """Changes one node, as a person or the scheduler would.

        Raises:
            DataError: There is no such node.
        """
        if name not in self.state.by_name:
            raise DataError(f"fake cluster: no node {name!r}")
        nodes = tuple(
            replace(node, **changes) if node.name == name else node  # type: ignore[arg-type]
            for node in self.state.nodes
        )
        self.state = replace(self.state, nodes=nodes)

    def set_jobs(self, jobs: tuple[JobView, ...]) -> None:
        """Replaces the running jobs."""
        self.state = replace(self.state, jobs=jobs)
