"""Kubernetes pods: what a drain does with each, and which job each belongs to.

Pure; nothing is asked or changed here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from features.errors import SourceError
from remediation.actuators.kubernetes_api import Json
from remediation.actuators.kubernetes_nodes import parse_time, whole
from remediation.cluster.state import JobView

NOTICE: Final = "forewarn/drain-notice"
"""Annotation of a pod that is told to write a checkpoint: `deadline node=N id=D`."""

CHECKPOINT: Final = "forewarn/last-checkpoint"
"""Annotation that a job keeps on any of its pods: when its last checkpoint was complete."""

EVICTION: Final = "forewarn/eviction"
"""Annotation of a pod: `allowed` or `never`."""

_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
_MIRROR: Final = "kubernetes.io/config.mirror"
_STATIC: Final = "kubernetes.io/config.source"
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_SKEW: Final = timedelta(minutes=5)

_USERS: Final = ("hub.jupyter.org/username", "user", "username", "submitter", "owner")
_QUEUES: Final = (
    "kueue.x-k8s.io/queue-name",
    "volcano.sh/queue-name",
    "scheduling.volcano.sh/queue-name",
    "runai/queue",
    "kai.scheduler/queue",
    "yunikorn.apache.org/queue",
    "queue",
)
# Owners whose pods live and die on their own.
_INDEPENDENT: Final = frozenset(
    {
        "replicaset", "deployment", "statefulset", "replicationcontroller", "workflow", "notebook",
        "taskrun", "daemonset",
    }
)  # fmt: skip
_SHARE: Final = re.compile(r"gpu|/mig-|/i915|/xe$|vcuda")
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_POD: Final = "pod"

Fate = Literal["stays", "finished", "leaving", "protected", "bare", "evictable"]


@dataclass(frozen=True, slots=True)
class Pod:
    """What of a pod matters for a drain.

    Attributes:
        namespace: Namespace.
        name: Name.
        uid: Identity; a pod made anew under the same name has another.
        node: Node; None: none was chosen yet.
        fate: stays (DaemonSet, static pod), finished, leaving (deletion has begun), protected
            (says that it must not be evicted), bare (nobody makes it anew), evictable.
        job_id: The job it belongs to, `namespace/kind/name`.
        kind: Kind of the job; `pod`: it is on its own.
        n_gpus: GPUs; None: unknown (claimed devices).
        start: When its node took it on.
        ends_by: When it is ended at the latest; None: unknown.
        user: Who it runs for.
        queue: Queue, else namespace.
        checkpoint_at: Its word on the job's last checkpoint.
        is_evictable: Whether it says that it may be evicted; None: it says nothing.
        notice: The notice on it.
    """

    namespace: str
    name: str
    uid: str
    node: str | None
    fate: Fate
    job_id: str
    kind: str
    n_gpus: int | None
    start: datetime | None
    ends_by: datetime | None
    user: str | None
    queue: str
    checkpoint_at: datetime | None
    is_evictable: bool | None
    notice: str | None

    @property
    def words(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_of_job(self) -> bool:
        """Whether a job runs in it: it has GPUs, or belongs to others that make one job."""
        return self.n_gpus != 0 or self.kind != _POD


def read_pod(pod: Json, gpu_resources: Sequence[str]) -> Pod:
    """A pod.

    Args:
        pod: A Pod as the API gives it.
        gpu_resources: Resources that are whole GPUs.

    Raises:
        SourceError: It has no name.
    """
    metadata = pod.get("metadata") or {}
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise SourceError("a pod of the cluster has no name; the answer is not the API's")
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    namespace = metadata.get("namespace") or "default"
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    start = parse_time(status.get("startTime"))
    seconds = spec.get("activeDeadlineSeconds")
    kind, job = job_of(name, metadata)
    may_leave = _may_leave(notes)
    return Pod(
        namespace=namespace,
        name=name,
        uid=str(metadata.get("uid") or ""),
        node=spec.get("nodeName") or None,
        fate=_fate(metadata, notes, status, may_leave=may_leave),
        job_id=f"{namespace}/{kind}/{job}",
        kind=kind,
        n_gpus=_n_gpus(spec, gpu_resources),
        start=start,
        ends_by=start + timedelta(seconds=seconds) if start and isinstance(seconds, int) else None,
        user=next((labels[key] for key in _USERS if labels.get(key)), None),
        queue=next((labels[key] for key in _QUEUES if labels.get(key)), namespace),
        checkpoint_at=parse_time(notes.get(CHECKPOINT)),
        is_evictable=may_leave,
        notice=notes.get(NOTICE),
    )


def job_of(name: str, metadata: Json) -> tuple[str, str]:
    """The job of a pod, by the same precedence by which the history of jobs is read.

    1. labels of workloads whose pods belong to an inner object (JobSet, Ray, LeaderWorkerSet);
    2. labels of operators (Kubeflow training, Volcano, Spark);
    3. the controlling owner, where its pods run together;
    4. labels of pod groups (Kueue, coscheduling);
    5. the pod itself.

    Args:
        name: Name of the pod.
        metadata: Its metadata.

    Returns:
        Kind in lower case, and name.
    """
    labels = metadata.get("labels") or {}
    found = _by_labels(labels) if labels else None
    if found is not None:
        return found
    owner = _owner(metadata)
    kind, own = str(owner.get("kind") or "").lower(), str(owner.get("name") or "")
    if kind and own and kind not in _INDEPENDENT:
        is_indexed = _INDEX in labels or _INDEX in (metadata.get("annotations") or {})
        version = str(owner.get("apiVersion") or "batch/")
        # Pods of a Job without index do not know each other: each is work of its own.
        is_plain = kind == "job" and not is_indexed and version.startswith("batch/")
        return ("job", f"{own}/{name}") if is_plain else (kind, own)
    for key in ("kueue.x-k8s.io/pod-group-name", "scheduling.x-k8s.io/pod-group"):
        if labels.get(key):
            return "podgroup", labels[key]
    return _POD, name


def job_views(pods: Iterable[Pod], *, as_of: datetime) -> tuple[JobView, ...]:
    """The running jobs that have GPUs.

    A job is on every node that has any of its pods: a launcher without GPUs ends it as surely as
    a worker.

    Args:
        pods: All pods.
        as_of: The present; ages count from it.

    Returns:
        One per job, in order of id.
    """
    groups: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node is not None and pod.fate not in ("stays", "finished"):
            groups.setdefault(pod.job_id, []).append(pod)
    return tuple(
        _job_view(job_id, groups[job_id], as_of=as_of)
        for job_id in sorted(groups)
        if any(pod.n_gpus != 0 for pod in groups[job_id])
    )


def _job_view(job_id: str, pods: Sequence[Pod], *, as_of: datetime) -> JobView:
    counts = [pod.n_gpus for pod in pods]
    starts = [pod.start for pod in pods if pod.start is not None]
    ends = [pod.ends_by for pod in pods if pod.ends_by is not None]
    written = [pod.checkpoint_at for pod in pods if pod.checkpoint_at is not None]
    # A clock that is a little ahead is usual; a time well in the future says nothing.
    ages = [as_of - at for at in written if at <= as_of + _SKEW]
    tolerated = {pod.is_evictable for pod in pods}
    return JobView(
        job_id=job_id,
        nodes=tuple(sorted({pod.node for pod in pods if pod.node is not None})),
        n_gpus=None if None in counts else sum(count or 0 for count in counts),
        start=min(starts, default=None),
        user=next((pod.user for pod in pods if pod.user), None),
        partition=pods[0].queue,
        checkpoint_age_h=max(0.0, min(ages) / timedelta(hours=1)) if ages else None,
        remaining_h=max(0.0, (min(ends) - as_of) / timedelta(hours=1)) if ends else None,
        is_requeue_allowed=False if False in tolerated else True if tolerated == {True} else None,
    )


def _fate(metadata: Json, notes: Json, status: Json, *, may_leave: bool | None) -> Fate:
    owners = metadata.get("ownerReferences") or ()
    kinds = {owner.get("kind") for owner in owners if owner.get("controller")}
    is_static = _MIRROR in notes or notes.get(_STATIC) in ("file", "http") or "Node" in kinds
    if is_static or "DaemonSet" in kinds:
        return "stays"
    if status.get("phase") in _FINISHED:
        return "finished"
    if metadata.get("deletionTimestamp"):
        return "leaving"
    if may_leave is False:
        return "protected"
    return "evictable" if kinds else "bare"


def _may_leave(notes: Json) -> bool | None:
    """What a pod says of being evicted; who says both is not evicted."""
    own, safe = notes.get(EVICTION), notes.get(_SAFE_TO_EVICT)
    if own == "never" or safe == "false" or notes.get(_DO_NOT_DISRUPT) == "true":
        return False
    return True if own == "allowed" or safe == "true" else None


def _n_gpus(spec: Json, gpu_resources: Sequence[str]) -> int | None:
    """GPUs that a pod holds: of its containers and sidecars, or of one that ran before them."""
    if spec.get("resourceClaims"):
        return None  # what a claim is for stands in another object
    together: list[Json] = list(spec.get("containers") or ())
    alone: list[Json] = []
    for container in spec.get("initContainers") or ():
        (together if container.get("restartPolicy") == "Always" else alone).append(container)
    main = [_of_container(one, gpu_resources) for one in together]
    before = [_of_container(one, gpu_resources) for one in alone]
    known = [count for count in (*main, *before) if count is not None]
    if len(known) < len(main) + len(before):
        return None
    return max([sum(known[: len(main)]), *known[len(main) :]])


def _of_container(container: Json, gpu_resources: Sequence[str]) -> int | None:
    """GPUs of a container; None: slices or shares of GPUs, which stand for an unknown number."""
    resources = container.get("resources") or {}
    wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    counts = [whole(found) for name, found in wanted.items() if name in gpu_resources]
    is_shared = any(_SHARE.search(name) for name in wanted if name not in gpu_resources)
    if is_shared or None in counts:
        return None
    return sum(count or 0 for count in counts)


def _owner(metadata: Json) -> Json:
    """The owner that controls the pod, else the first."""
    owners = metadata.get("ownerReferences") or ()
    controlling = (owner for owner in owners if owner.get("controller") is True)
    return next(controlling, owners[0] if owners else {})


Labels = Mapping[str, str]
_OPERATORS: Final = {"mpi-operator": "mpijob", "mpijob-controller": "mpijob"}


def _by_labels(labels: Labels) -> tuple[str, str] | None:
    return next(_labelled(labels), None)


def _labelled(labels: Labels) -> Iterator[tuple[str, str]]:
    """Jobs that labels name, the outermost object first."""
    if name := labels.get("jobset.sigs.k8s.io/jobset-name"):
        yield "jobset", name
    origin = labels.get("ray.io/originated-from-cr-name")
    if origin and (kind := labels.get("ray.io/originated-from-crd")):
        yield kind.lower(), origin
    if name := labels.get("ray.io/cluster"):
        yield "raycluster", name
    if name := labels.get("leaderworkerset.sigs.k8s.io/name"):
        group = labels.get("leaderworkerset.sigs.k8s.io/group-index")
        yield "leaderworkerset", f"{name}+{group}" if group else name
    if name := labels.get("training.kubeflow.org/job-name"):
        operator = labels.get("training.kubeflow.org/operator-name", "")
        known = _OPERATORS.get(operator, operator.removesuffix("-controller"))
        yield known or "trainingjob", name
    # Releases of the training operator before 1.4 had one label per kind of job.
    for kind in ("pytorch", "tf", "mpi", "mxnet", "xgboost"):
        if name := labels.get(f"{kind}-job-name"):
            yield f"{kind}job", name
    if name := labels.get("volcano.sh/job-name"):
        yield "volcanojob", name
    if name := labels.get("sparkoperator.k8s.io/app-name"):
        yield "sparkapplication", name
