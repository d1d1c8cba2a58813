"""What `forewarn init` finds out about a site, as values.

Finding it out is in the other modules of this package, and so is the writing of files.
"""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SlurmFacts:
    """A Slurm cluster.

    Attributes:
        cluster: Its name.
        version: Of its commands.
        n_nodes: Nodes.
        n_gpu_nodes: Nodes with GPUs.
        n_gpus: GPUs.
        partitions: Names of the partitions.
        has_accounting: Whether slurmdbd answers.
        has_topology: Whether it knows switches.
        prefix: What stands before every command.
    """

    cluster: str
    version: str
    n_nodes: int
    n_gpu_nodes: int
    n_gpus: int
    partitions: tuple[str, ...]
    has_accounting: bool
    has_topology: bool
    prefix: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KubernetesFacts:
    """A Kubernetes cluster.

    Attributes:
        address: Of its API server.
        n_nodes: Nodes.
        n_gpu_nodes: Nodes with GPUs.
        n_gpus: GPUs.
        gpu_resources: Resources that are whole GPUs.
        rack_label: The label that names the rack; None: none of the usual ones.
        exporters: Page of each exporter's pod, with its node.
        kubeconfig: File with cluster and credentials; None: as the client finds it.
        context: Context in it.
    """

    address: str
    n_nodes: int
    n_gpu_nodes: int
    n_gpus: int
    gpu_resources: tuple[str, ...]
    rack_label: str | None
    exporters: dict[str, str] = field(default_factory=dict)
    kubeconfig: Path | None = None
    context: str | None = None


@dataclass(frozen=True, kw_only=True)
class PrometheusFacts:
    """A Prometheus that scrapes GPUs.

    Attributes:
        url: Its address.
        metric: The metric by which GPUs were counted.
        jobs: GPUs by scrape job.
        node_label: The label that names the node; None: none of the usual ones.
        replica_label: The label that tells replicas apart; None: no series comes twice.
        interval_s: Time between scrapes; None: too few samples to tell.
        since: The oldest sample, to the hour; None: none is older than an hour.
    """

    url: str
    metric: str
    jobs: dict[str, int]
    node_label: str | None
    replica_label: str | None
    interval_s: float | None
    since: datetime | None

    @property
    def n_gpus(self) -> int:
        """GPUs of all jobs."""
        return sum(self.jobs.values())
