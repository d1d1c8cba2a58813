"""Kubernetes pods as runs of jobs: where and when each ran, with how many GPUs, and how it ended.

Which job a pod belongs to is in `kubernetes.workloads`; runs are joined to jobs in
`kubernetes.jobs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.sources.kubernetes.endings import Ending, disruption, failure, termination
from pipelines.sources.kubernetes.gpus import Claims, gpu_request
from pipelines.sources.kubernetes.objects import (
    Json,
    RefusedError,
    items,
    labels_of,
    mapping,
    moment,
    name_of,
    text,
    whole,
)
from pipelines.sources.kubernetes.workloads import Workload, is_of_the_node, workload_of

USER_LABELS: Final = ("hub.jupyter.org/username", "user", "username", "submitter", "owner")
"""Labels that may name who a pod runs for; the first present counts."""

_PHASES: Final = frozenset({"Pending", "Running", "Succeeded", "Failed", "Unknown"})


@dataclass(frozen=True, slots=True)
class PodRun:
    """One run of a pod: the whole of it, or up to a restart of its containers in place.

    Attributes:
        workload: The job it belongs to.
        pod: Name of the pod.
        uid: Its identity; a pod made anew under the same name has another.
        user: Who it runs for.
        node: Node; None: none was chosen yet.
        n_gpus: Whole GPUs; None: not known.
        submit: When the pod was made.
        start: When its node took it on, or its containers were started again.
        end: When it ended; None: it runs or waits.
        state: PENDING, CONFIGURING, RUNNING or an end state, in Slurm's words.
        exit_code: Exit code of the container that decided.
        exit_signal: Signal that ended it.
    """

    workload: Workload
    pod: str
    uid: str
    user: str | None
    node: str | None
    n_gpus: int | None
    submit: datetime | None
    start: datetime | None
    end: datetime | None
    state: str
    exit_code: int | None = None
    exit_signal: int | None = None


def pod_runs(
    pod: Json, *, claims: Claims | None = None, user_labels: Sequence[str] = USER_LABELS
) -> list[PodRun]:
    """The runs of a pod that asks for GPUs.

    A pod gives its present run and, where a container was restarted in place, the run before: the
    API keeps no more than the last. In a pod that waits for its next restart only the latter is
    left.

    Args:
        pod: A Pod as the API gives it.
        claims: DRA claims that were read.
        user_labels: Labels that may name the user.

    Returns:
        Runs in order of time; none where the pod asks for no GPU, or belongs to its node
        (DaemonSet, static pod).

    Raises:
        RefusedError: The pod has no name, or a phase that the API does not have.
    """
    name = name_of(pod)
    status = mapping(pod, "status")
    phase = text(status, "phase") or "Pending"
    if phase not in _PHASES:
        raise RefusedError("status.phase is none of the API's")
    request = gpu_request(pod, claims)
    if request is None or is_of_the_node(pod):
        return []
    labels, metadata = labels_of(pod), mapping(pod, "metadata")
    submit = moment(metadata, "creationTimestamp")
    blank = PodRun(
        workload=workload_of(pod),
        pod=name,
        uid=text(metadata, "uid") or "",
        user=next((labels[key] for key in user_labels if labels.get(key)), None),
        node=text(mapping(pod, "spec"), "nodeName"),
        n_gpus=request.count,
        submit=submit,
        start=None,
        end=None,
        state="PENDING",
    )
    containers = _deciding(status, request.containers)
    began = moment(status, "startTime")
    earlier, restarted = _before_restart(containers, began)
    runs = [] if earlier is None else [_ended(blank, *earlier)]
    if earlier is None or restarted is not None:
        runs.append(_present(blank, pod, containers, restarted or began))
    return runs


def run_row(run: PodRun, *, step: str | None, job_id: str | None = None) -> dict[str, Any]:
    """A run as a row of raw/job_log, without source and ingested_at.

    Args:
        run: The run.
        step: Step of the job that it is; None: it is the job.
        job_id: Id of the job, where it is not the workload's.
    """
    return {
        "job_id": job_id or run.workload.job_id,
        "step": step,
        "job_name": run.workload.job_name,
        "user": run.user,
        "partition": run.workload.queue,
        "state": run.state,
        "exit_code": run.exit_code,
        "exit_signal": run.exit_signal,
        "filed_at": run.submit or run.start or run.end,
        "submit": run.submit,
        "start": run.start,
        "end": run.end,
        "nodes": None if run.node is None else [run.node],
        "n_gpus": run.n_gpus,
    }


def _ended(blank: PodRun, start: datetime | None, ending: Ending) -> PodRun:
    return replace(
        blank,
        start=start,
        end=ending.end,
        state=ending.state,
        exit_code=ending.exit_code,
        exit_signal=ending.exit_signal,
    )


def _present(
    blank: PodRun, pod: Json, containers: Sequence[Json], began: datetime | None
) -> PodRun:
    """The run that the pod's status speaks of."""
    status = mapping(pod, "status")
    phase = text(status, "phase") or "Pending"
    if phase in ("Succeeded", "Failed"):
        ending = failure(pod, containers) if phase == "Failed" else _success(containers)
        began = began or _first_start(containers)
        # An end must not be null: that would say that it still runs.
        end = ending.end or _last_word(pod) or began or blank.submit
        return _ended(blank, began, replace(ending, end=end))
    given_up = _given_up(pod)
    if given_up is not None:
        end = given_up.end or began or blank.submit
        return _ended(blank, began, replace(given_up, end=end))
    if phase == "Pending":
        return replace(blank, start=began, state="PENDING" if began is None else "CONFIGURING")
    return replace(blank, start=began or _first_start(containers), state="RUNNING")


def _given_up(pod: Json) -> Ending | None:
    """How a pod ends that is being deleted: it will be gone before its own end can be read."""
    metadata, status = mapping(pod, "metadata"), mapping(pod, "status")
    deleted = moment(metadata, "deletionTimestamp")
    if deleted is None:
        # Before Kubernetes 1.13 pods of a lost node were only marked.
        is_lost = text(status, "reason") == "NodeLost"
        return Ending("NODE_FAIL", _last_word(pod)) if is_lost else None
    # The time stamp is when the patience with it ends.
    patience = whole(metadata, "deletionGracePeriodSeconds") or 0
    asked = deleted - timedelta(seconds=max(patience, 0))
    state, since = disruption(pod)
    if text(status, "reason") == "NodeLost":
        state = "NODE_FAIL"
    return Ending(state or "CANCELLED", since or asked)


def _success(containers: Sequence[Json]) -> Ending:
    endings = [
        termination(container, "state")
        for container in containers
        if mapping(container, "state", "terminated")
    ]
    ends = [ending.end for ending in endings if ending.end is not None]
    first = endings[0] if endings else Ending("COMPLETED", None)
    return replace(first, state="COMPLETED", end=max(ends, default=None))


def _deciding(status: Json, names: Sequence[str]) -> list[Json]:
    """Statuses of the containers that use the GPUs; of all where that is not told."""
    found = list(items(status, "containerStatuses"))
    return [container for container in found if text(container, "name") in names] or found


def _before_restart(
    containers: Sequence[Json], began: datetime | None
) -> tuple[tuple[datetime | None, Ending] | None, datetime | None]:
    """The run before the last restart in place, and when the present one began.

    Until its first restart a run is filed under the pod's start, so the run before the first
    restart is, too: both readings then mean the same run.
    """
    restarted = max(containers, key=lambda found: whole(found, "restartCount") or 0, default=None)
    if restarted is None or (whole(restarted, "restartCount") or 0) < 1:
        return None, None
    again = _started(restarted, "state")
    if not mapping(restarted, "lastState", "terminated"):
        return None, again
    start = _started(restarted, "lastState")
    if whole(restarted, "restartCount") == 1:
        start = began or start
    ending = termination(restarted, "lastState")
    end = ending.end or start
    return ((start, replace(ending, end=end)) if end else None), again


def _started(container: Json, which: str) -> datetime | None:
    return moment(mapping(container, which, "running"), "startedAt") or moment(
        mapping(container, which, "terminated"), "startedAt"
    )


def _first_start(containers: Sequence[Json]) -> datetime | None:
    starts = (_started(container, "state") for container in containers)
    return min((start for start in starts if start is not None), default=None)


def _last_word(pod: Json) -> datetime | None:
    """The latest moment that the pod's conditions speak of."""
    conditions: list[Mapping[str, Any]] = list(items(mapping(pod, "status"), "conditions"))
    times = (moment(condition, "lastTransitionTime") for condition in conditions)
    return max((time for time in times if time is not None), default=None)
