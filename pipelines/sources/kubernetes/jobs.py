"""Runs of pods joined to attempts of jobs, and what batch Jobs say of themselves.

How one pod is read is in `kubernetes.pods`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from pipelines.sources.kubernetes.gpus import gpu_request
from pipelines.sources.kubernetes.objects import Json, items, mapping, moment, text, whole
from pipelines.sources.kubernetes.pods import PodRun, run_row
from pipelines.sources.kubernetes.workloads import job_workload

JOB_STEP: Final = "job"
"""Step of rows that tell what a batch Job says of itself, beside the rows of its pods."""

_MOST_GPUS: Final = 2**31 - 1
# Of the ends of a gang's pods the one that explains the others: a job loses all its pods when one
# of them dies.
_EXPLAINS: Final = (
    "NODE_FAIL", "LAUNCH_FAILED", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT", "FAILED", "CANCELLED",
    "COMPLETED",
)  # fmt: skip
_OPEN: Final = ("RUNNING", "CONFIGURING", "PENDING")


class JobCollector:
    """Gathers the runs of pods that belong to a larger job, until all pods have been read."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[tuple[str, datetime | None], PodRun]] = {}

    def add(self, run: PodRun) -> None:
        """Takes a run; one that was taken before, as it was then, is replaced."""
        runs = self._runs.setdefault(run.workload.job_id, {})
        identity = run.uid or run.pod
        if run.start is not None:
            runs.pop((identity, None), None)
        runs[identity, run.start] = run

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row of raw/job_log per attempt of each job, without source and ingested_at."""
        for job_id in sorted(self._runs):
            yield from job_rows(list(self._runs[job_id].values()))


def job_rows(runs: Sequence[PodRun]) -> list[dict[str, Any]]:
    """The attempts of one job.

    Pods of a gang (Kubeflow, JobSet, Ray, Volcano, indexed Jobs, ...) that run at the same time
    are one attempt: its nodes and GPUs are theirs together. Pods that start when all before them
    have ended are the next attempt. Pods of a plain batch Job one after the other are its
    attempts; where they run side by side each is work of its own, named `job+pod`.

    Args:
        runs: All runs of the job.

    Returns:
        Rows of raw/job_log without source and ingested_at, in order of time.
    """
    attempts = _attempts(runs)
    if runs and not runs[0].workload.is_gang and any(len({r.uid for r in a}) > 1 for a in attempts):
        ordered = sorted(runs, key=_by_time)
        return [run_row(run, step=None, job_id=_own_id(run)) for run in ordered]
    return [_attempt_row(attempt) for attempt in attempts]


def batch_job_row(job: Json) -> dict[str, Any] | None:
    """What a batch Job says of itself: a row beside those of its pods.

    Args:
        job: A Job of batch/v1 as the API gives it.

    Returns:
        A row of raw/job_log (step `job`) without source and ingested_at; None where its pods ask
        for no GPU.

    Raises:
        RefusedError: The Job has no name.
    """
    workload = job_workload(job)
    request = gpu_request(mapping(job, "spec", "template"))
    if request is None:
        return None
    status = mapping(job, "status")
    state, ended = _job_state(status)
    at_once = whole(mapping(job, "spec"), "parallelism")
    n_gpus = None if request.count is None else request.count * (1 if at_once is None else at_once)
    submit, start = (
        moment(mapping(job, "metadata"), "creationTimestamp"),
        moment(status, "startTime"),
    )
    end = (
        (moment(status, "completionTime") or ended) if state not in (*_OPEN, "SUSPENDED") else None
    )
    return {
        "job_id": workload.job_id,
        "step": JOB_STEP,
        "job_name": workload.job_name,
        "partition": workload.queue,
        "state": state,
        "filed_at": submit or start or end,
        "submit": submit,
        "start": start,
        "end": end,
        "n_gpus": n_gpus if n_gpus is not None and 0 <= n_gpus <= _MOST_GPUS else None,
    }


def _job_state(status: Json) -> tuple[str, datetime | None]:
    """State of a batch Job and since when, by its conditions."""
    true = {
        text(found, "type"): found
        for found in items(status, "conditions")
        if text(found, "status") == "True"
    }
    for kind, state in (
        ("Complete", "COMPLETED"),
        ("Failed", "FAILED"),
        ("Suspended", "SUSPENDED"),
    ):
        if kind in true:
            is_late = text(true[kind], "reason") == "DeadlineExceeded"
            return "TIMEOUT" if is_late else state, moment(true[kind], "lastTransitionTime")
    return ("RUNNING" if whole(status, "active") else "PENDING"), None


def _attempts(runs: Sequence[PodRun]) -> list[list[PodRun]]:
    """Runs that overlap in time, by the attempt that labels name, in order."""
    attempts: list[list[PodRun]] = []
    by_label: dict[str, list[PodRun]] = {}
    for run in sorted(runs, key=_by_time):
        by_label.setdefault(run.workload.attempt, []).append(run)
    for labelled in by_label.values():
        begun = [run for run in labelled if run.start is not None]
        found: list[list[PodRun]] = []
        until: datetime | None = None
        is_open = False
        for run in begun:
            start = run.start
            if found and (is_open or (until and start and start < until)):
                found[-1].append(run)
            else:
                found.append([run])
                until, is_open = None, False
            is_open = is_open or run.end is None
            until = max(until, run.end) if until and run.end else run.end or until
        waiting = [run for run in labelled if run.start is None]
        if waiting and found and is_open:
            found[-1] += waiting
        elif waiting:
            found.append(waiting)
        attempts += found
    return attempts


def _attempt_row(attempt: Sequence[PodRun]) -> dict[str, Any]:
    """One row for the runs of one attempt."""
    starts = [run.start for run in attempt if run.start is not None]
    submits = [run.submit for run in attempt if run.submit is not None]
    by_uid = {run.uid or run.pod: run.n_gpus for run in attempt}
    counts = [count for count in by_uid.values() if count is not None]
    decides = _deciding(attempt)
    nodes = list(dict.fromkeys(run.node for run in attempt if run.node is not None))
    ends = [run.end for run in attempt if run.end is not None]
    whole_job = replace(
        decides,
        user=next((run.user for run in attempt if run.user is not None), None),
        n_gpus=sum(counts) if len(counts) == len(by_uid) else None,
        submit=min(submits, default=None),
        start=min(starts, default=None),
        end=None if decides.state in _OPEN else max(ends, default=None),
    )
    row: dict[str, Any] = run_row(whole_job, step=None)
    row["nodes"] = nodes or None
    return row


def _deciding(attempt: Sequence[PodRun]) -> PodRun:
    """The run whose state is the attempt's: an open one, else the first that explains the end."""
    for state in _OPEN:
        found = next((run for run in attempt if run.state == state), None)
        if found is not None:
            return found
    worst: Mapping[str, int] = {state: at for at, state in enumerate(_EXPLAINS)}
    return min(
        attempt,
        key=lambda run: (worst.get(run.state, len(worst)), _micros(run.end), run.pod, run.uid),
    )


def _own_id(run: PodRun) -> str:
    suffix = run.pod.removeprefix(f"{run.workload.job_name}-")
    return f"{run.workload.job_id}+{suffix}"


def _by_time(run: PodRun) -> tuple[float, float, str, str]:
    return _micros(run.start), _micros(run.submit), run.pod, run.uid


def _micros(time: datetime | None) -> float:
    return float("inf") if time is None else time.timestamp()
