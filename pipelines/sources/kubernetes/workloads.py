"""Which job a pod belongs to: by its labels and owner, in a fixed order of precedence.

When the pod ran and how it ended is in `kubernetes.pods`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipelines.sources.kubernetes.objects import (
    Json,
    annotations_of,
    items,
    labels_of,
    mapping,
    name_of,
    text,
)

Labels = dict[str, str]

POD: Final = "pod"

_QUEUES: Final = (
    "kueue.x-k8s.io/queue-name",
    "volcano.sh/queue-name",
    "scheduling.volcano.sh/queue-name",
    "runai/queue",
    "kai.scheduler/queue",
    "yunikorn.apache.org/queue",
    "queue",
)
_OPERATOR_KINDS: Final = {"mpi-operator": "mpijob", "mpijob-controller": "mpijob"}
# Owners whose pods live and die on their own.
_INDEPENDENT: Final = frozenset(
    {
        "replicaset", "deployment", "statefulset", "replicationcontroller", "workflow", "notebook",
        "taskrun", "daemonset",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """The job of a pod.

    Attributes:
        job_id: `namespace/kind/name`.
        kind: What it is, in lower case; `pod` for a pod on its own.
        job_name: The name alone.
        is_gang: Whether its pods run together: they are one job. False: each is on its own.
        attempt: Which attempt of the job it is, where labels tell; empty: they do not.
        queue: Queue, else namespace.
    """

    job_id: str
    kind: str
    job_name: str
    is_gang: bool
    attempt: str
    queue: str


def is_of_the_node(pod: Json) -> bool:
    """Whether a pod belongs to its node (DaemonSet, static pod) and is no job.

    Args:
        pod: A Pod as the API gives it.
    """
    if "kubernetes.io/config.mirror" in annotations_of(pod):
        return True
    if annotations_of(pod).get("kubernetes.io/config.source") in ("file", "http"):
        return True
    owners = items(mapping(pod, "metadata"), "ownerReferences")
    return any(text(owner, "kind") in ("DaemonSet", "Node") for owner in owners)


def workload_of(pod: Json) -> Workload:
    """The job of a pod, by the first of these that is told.

    1. labels of workloads whose pods belong to an inner object: JobSet, RayJob or RayService, Ray
       cluster, LeaderWorkerSet (each group of it is a job);
    2. labels of operators: Kubeflow training (PyTorchJob, MPIJob, ...), Volcano, Spark;
    3. the controlling owner, where its kind ends in `Job` (batch Job included) or is not known;
    4. labels of pod groups: Kueue, coscheduling;
    5. the pod itself (also for pods of Deployments, StatefulSets, Workflows, Notebooks).

    Args:
        pod: A Pod as the API gives it.

    Raises:
        RefusedError: The pod has no name.
    """
    own, labels = name_of(pod), labels_of(pod)
    namespace = text(mapping(pod, "metadata"), "namespace") or "default"
    queue = next((labels[key] for key in _QUEUES if labels.get(key)), namespace)
    for find in _BY_LABELS:
        found = find(labels)
        if found is not None:
            return _workload(namespace, *found, queue=queue)
    owner = _owner(pod)
    kind, name = (text(owner, "kind") or "").lower(), text(owner, "name") or ""
    if kind and name and kind not in _INDEPENDENT:
        # The pods of an indexed Job know each other; those of others are work of their own.
        is_plain = kind == "job" and not _INDEX & {*labels, *annotations_of(pod)}
        is_gang = not (is_plain and (text(owner, "apiVersion") or "batch/").startswith("batch/"))
        return _workload(namespace, kind, name, is_gang=is_gang, queue=queue)
    for key in ("kueue.x-k8s.io/pod-group-name", "scheduling.x-k8s.io/pod-group"):
        if labels.get(key):
            return _workload(namespace, "podgroup", labels[key], queue=queue)
    return _workload(namespace, POD, own, is_gang=False, queue=queue)


def job_workload(job: Json) -> Workload:
    """The job that a batch Job is, or is a part of (JobSet).

    Args:
        job: A Job of batch/v1 as the API gives it.

    Raises:
        RefusedError: The Job has no name.
    """
    own, labels = name_of(job), labels_of(job)
    namespace = text(mapping(job, "metadata"), "namespace") or "default"
    queue = next((labels[key] for key in _QUEUES if labels.get(key)), namespace)
    return _workload(namespace, *(_jobset(labels) or ("job", own, "")), queue=queue)


def _workload(
    namespace: str, kind: str, name: str, attempt: str = "", *, is_gang: bool = True, queue: str
) -> Workload:
    return Workload(f"{namespace}/{kind}/{name}", kind, name, is_gang, attempt, queue)


def _owner(pod: Json) -> Json:
    """The owner that controls the pod, else the first."""
    owners = list(items(mapping(pod, "metadata"), "ownerReferences"))
    controlling = [owner for owner in owners if owner.get("controller") is True]
    return next(iter(controlling or owners), {})


_INDEX: Final = frozenset({"batch.kubernetes.io/job-completion-index"})
_Found = tuple[str, str, str]


def _jobset(labels: Labels) -> _Found | None:
    name = labels.get("jobset.sigs.k8s.io/jobset-name")
    return ("jobset", name, labels.get("jobset.sigs.k8s.io/restart-attempt", "")) if name else None


def _ray(labels: Labels) -> _Found | None:
    origin, kind = (labels.get(f"ray.io/originated-from-{part}") for part in ("cr-name", "crd"))
    if origin and kind:
        # A RayJob that is tried again gets a new cluster.
        return kind.lower(), origin, labels.get("ray.io/cluster", "")
    cluster = labels.get("ray.io/cluster")
    return ("raycluster", cluster, "") if cluster else None


def _leader_worker_set(labels: Labels) -> _Found | None:
    name = labels.get("leaderworkerset.sigs.k8s.io/name")
    group = labels.get("leaderworkerset.sigs.k8s.io/group-index")
    return ("leaderworkerset", f"{name}+{group}" if group else name, "") if name else None


def _training(labels: Labels) -> _Found | None:
    name = labels.get("training.kubeflow.org/job-name")
    operator = labels.get("training.kubeflow.org/operator-name", "")
    if name:
        kind = _OPERATOR_KINDS.get(operator, operator.removesuffix("-controller") or "trainingjob")
        return kind, name, ""
    # Releases before 1.4 had one label per kind of job.
    for kind in ("pytorch", "tf", "mpi", "mxnet", "xgboost"):
        name = labels.get(f"{kind}-job-name")
        if name:
            return f"{kind}job", name, ""
    return None


def _volcano(labels: Labels) -> _Found | None:
    name = labels.get("volcano.sh/job-name")
    return ("volcanojob", name, "") if name else None


def _spark(labels: Labels) -> _Found | None:
    name = labels.get("sparkoperator.k8s.io/app-name")
    attempt = labels.get("sparkoperator.k8s.io/submission-id", "")
    return ("sparkapplication", name, attempt) if name else None


_BY_LABELS: Final[tuple[Callable[[Labels], _Found | None], ...]] = (
    _jobset,
    _ray,
    _leader_worker_set,
    _training,
    _volcano,
    _spark,
)
