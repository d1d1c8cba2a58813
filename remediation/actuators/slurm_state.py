"""Reads a live Slurm cluster: its nodes, the jobs on them and where nodes are.

What the answers mean is in `remediation.actuators.slurm_records`; nothing is changed here.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from features.clock import Clock, utc_now
from features.errors import SourceError
from remediation.actuators.slurm_commands import is_plain_node_name
from remediation.actuators.slurm_records import (
    ON_NODE_STATES,
    Marks,
    Place,
    SlurmJob,
    SlurmNode,
    parse_jobs,
    parse_nodes,
    parse_places,
)
from remediation.actuators.slurm_run import CLOCK, CommandRunner, LocalRunner, ask
from remediation.cluster.state import ClusterState, NodeView

_NODES: Final = ("scontrol", "--all", "--oneliner", "show", "node")
_NAMES: Final = ("sinfo", "--all", "--noheader", "--Node", "--format=%N")
_TOPOLOGY: Final = ("scontrol", "show", "topology")
# How scontrol says that there is no topology, or no such node, with exit code 1.
_FLAT: Final = ("No topology information", "Requested operation is presently disabled")
_NO_NODE: Final = "not found"


@dataclass(kw_only=True)
class SlurmCluster:
    """Reads the cluster with scontrol, squeue and sinfo; the account must see all jobs.

    An answer that fails, is late, cut off, or contradicts another is an error: never a cluster
    with parts missing.

    Attributes:
        runner: Runs the commands; reading needs no privilege unless `PrivateData` hides jobs.
        racks: Rack by node, where something knows it (an inventory); Slurm knows blocks only.
        timeout_s: Seconds for each command.
        clock: The present.
    """

    runner: CommandRunner = field(default_factory=LocalRunner)
    racks: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0
    clock: Clock = utc_now
    _places: dict[str, Place] | None = None
    _gpus: dict[str, int | None] = field(default_factory=dict)

    def read(self) -> ClusterState:
        """The state now.

        Raises:
            SourceError: It cannot be read whole; names command, exit code and message.
        """
        self._places = self._read_places()
        odd: str | None = None
        # Between two answers a job may begin or end. What contradicts twice is no such moment: a
        # part is hidden from us, and a node would look idle, or be missing, that is not.
        for _ in range(2):
            now = self.clock()
            nodes = self._read_nodes(self._places)
            jobs = self._read_jobs()
            odd = _contradiction(nodes, jobs)
            if odd is None:
                return ClusterState(
                    as_of=now,
                    nodes=tuple(node.view for node in nodes),
                    jobs=tuple(job.view for job in jobs),
                )
        raise SourceError(
            f"{odd}. With PrivateData=jobs or nodes the account of the hook must be an operator."
        )

    def state(self, node: str, *, timeout_s: float | None = None) -> SlurmNode | None:
        """One node as it is now, with rack and switch as `read` last found them.

        Args:
            node: Its name.
            timeout_s: Seconds for the command; None: as always.

        Returns:
            The node; None: there is none of this name.

        Raises:
            SourceError: It cannot be told.
        """
        if not is_plain_node_name(node):
            return None
        if self._places is None:
            self._places = self._read_places()
        command = (*CLOCK, *_NODES, node)
        ran = self.runner.run(command, timeout_s=timeout_s or self.timeout_s)
        if ran.code not in (None, 0) and _NO_NODE in ran.out + ran.err:
            return None
        if ran.code != 0:
            raise SourceError(f"{ran}. The state of {node} is unknown.")
        # What follows the first line is a comment's.
        first, end, _ = ran.out.partition("\n")
        (found,) = parse_nodes(first + end, places=self._places)
        if found.view.name != node:
            raise SourceError(f"scontrol show node {node}: it told of {found.view.name!r} instead")
        return found

    def jobs_on(self, node: str) -> tuple[SlurmJob, ...]:
        """The jobs on one node now.

        Raises:
            SourceError: They cannot be told.
        """
        return self._read_jobs(f"--nodelist={node}")

    def _read_nodes(self, places: Mapping[str, Place]) -> tuple[SlurmNode, ...]:
        told = ask(self.runner, _NODES, timeout_s=self.timeout_s)
        nodes = parse_nodes(told.out, places=places)
        names = set(ask(self.runner, _NAMES, timeout_s=self.timeout_s).out.split())
        # sinfo shows the nodes that are in a partition.
        found = {node.view.name for node in nodes}
        in_partition = {node.view.name for node in nodes if node.view.partitions}
        odd = sorted((names - found) | (in_partition - names))
        if odd:
            raise SourceError(
                f"scontrol told of {len(found)} nodes and sinfo of {len(names)}; they differ in "
                f"{', '.join(odd[:5])}. One answer is not whole, or the configuration just "
                f"changed: ask again."
            )
        self._gpus = {node.view.name: node.view.n_gpus for node in nodes}
        return nodes

    def _read_jobs(self, *which: str) -> tuple[SlurmJob, ...]:
        marks = Marks(*(f"_{secrets.token_hex(8)}_" for _ in Marks._fields))
        command = (
            "squeue", "--all", "--noheader", f"--states={ON_NODE_STATES}", *which,
            f"--Format={marks.format}",
        )  # fmt: skip
        ran = ask(self.runner, command, timeout_s=self.timeout_s)
        origin = f"squeue ({ran.err.strip()[:200]})" if ran.err.strip() else "squeue"
        return parse_jobs(ran.out, marks, now=self.clock(), gpus=self._gpus, origin=origin)

    def _read_places(self) -> dict[str, Place]:
        ran = self.runner.run((*CLOCK, *_TOPOLOGY), timeout_s=self.timeout_s)
        is_flat = any(text in ran.out + ran.err for text in _FLAT)
        if ran.code != 0 and not (ran.code == 1 and is_flat):
            raise SourceError(f"{ran}. The cluster's topology is unknown.")
        return parse_places("" if is_flat else ran.out, racks=self.racks)


def _contradiction(nodes: Sequence[SlurmNode], jobs: Sequence[SlurmJob]) -> str | None:
    busy = {name for job in jobs for name in job.view.nodes}
    idle = [
        node.view.name
        for node in nodes
        if node.is_allocated and node.view.state != "down" and node.view.name not in busy
    ]
    if idle:
        return (
            f"squeue names no job on {len(idle)} nodes that scontrol says are in use, such as "
            f"{idle[0]}"
        )
    unknown = sorted(busy.difference(node.view.name for node in nodes))
    if unknown:
        return (
            f"squeue names jobs on {len(unknown)} nodes that scontrol lacks, such as {unknown[0]}"
        )
    return None


def view_of(node: SlurmNode | None) -> NodeView | None:
    """What the hook sees of a node."""
    return None if node is None else node.view
