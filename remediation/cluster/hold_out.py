"""The hold-out: a few nodes, chosen by hash, on which the hook never acts, so that truth is seen.

Only the choice is made here; it is upheld by a guard (`remediation.guards.judge.not_held_out`).
"""

from collections.abc import Sequence
from hashlib import blake2b

from pydantic import BaseModel, ConfigDict, Field

from remediation.cluster.state import JobView


class HoldOut(BaseModel):
    """Nodes that are scored and never acted on; off by default.

    A node that the hook drains does not show whether it would have failed, so a model that acts
    everywhere is never found out. On these nodes every alert meets its outcome. People may still
    drain them.

    Attributes:
        percent: Share of nodes held out, by the hash of their names: the same nodes in every run
            and at every site of a fleet.
        salt: Another text chooses other nodes.
        largest_job_nodes: A node that runs a job on more nodes than this is not held out while it
            does: what its failure would cost is not worth knowing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    percent: float = Field(default=0.0, ge=0, le=50)
    salt: str = ""
    largest_job_nodes: int = Field(default=1, ge=0)

    def chooses(self, node: str) -> bool:
        """Whether a node is one of those chosen.

        >>> HoldOut(percent=50).chooses("gpu-03"), HoldOut().chooses("gpu-03")
        (True, False)
        """
        digest = blake2b(f"{self.salt}\0{node}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) < self.percent / 100 * 2.0**64

    def gives_way_to(self, jobs: Sequence[JobView]) -> JobView | None:
        """The job that is too large for its node to be held out; None: there is none."""
        return next((job for job in jobs if job.n_nodes > self.largest_job_nodes), None)
