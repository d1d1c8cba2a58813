"""A cluster in memory that schedulers and people change: nodes, jobs, and what was read of it when.

How an order of the hook changes it, and fails, is in `simulation.chaos.actuator`.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from remediation.cluster.state import ClusterState, JobView, NodeView

_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class ChaosCluster:
    """A `ClusterReader` of tens of thousands of nodes; a change of one does not copy the others.

    Args:
        nodes: Its nodes, each name once.
        jobs: Its running jobs.
    """

    def __init__(self, nodes: Iterable[NodeView], jobs: Iterable[JobView] = ()) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.jobs = {job.job_id: job for job in jobs}
        self._state: ClusterState | None = None

    def read(self) -> ClusterState:
        """The state as it stands; the same object until something changes."""
        if self._state is None:
            self._state = ClusterState(
                as_of=_NO_TIME, nodes=tuple(self.nodes.values()), jobs=tuple(self.jobs.values())
            )
        return self._state

    def change(self, name: str, **changes: object) -> None:
        """Changes one node, as the scheduler, a person or the hook would."""
        self.nodes[name] = replace(self.nodes[name], **changes)  # type: ignore[arg-type]
        self._state = None

    def put(self, node: NodeView) -> None:
        """Adds a node, or puts another in the place of one of the same name."""
        self.nodes[node.name] = node
        self._state = None

    def remove(self, name: str) -> None:
        """Takes a node out of the cluster, with the jobs on it."""
        del self.nodes[name]
        self.end_jobs(job.job_id for job in tuple(self.jobs.values()) if name in job.nodes)
        self._state = None

    def start_job(self, job: JobView) -> None:
        """Starts a job."""
        self.jobs[job.job_id] = job
        self._state = None

    def end_jobs(self, job_ids: Iterable[str]) -> None:
        """Ends jobs; those that have ended already are skipped."""
        for job_id in tuple(job_ids):
            self.jobs.pop(job_id, None)
        self._state = None

    def jobs_on(self, name: str) -> tuple[JobView, ...]:
        """The jobs on a node."""
        return tuple(job for job in self.jobs.values() if name in job.nodes)
