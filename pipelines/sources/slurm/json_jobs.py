"""Jobs in Slurm's JSON: those of the accounting (sacct, slurmdbd) and those of the queue.

Which document holds which is in `slurm.json_documents`; how values are written in
`slurm.json_values`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipelines.sources.slurm.fields import RefusedError, gpu_count, job_and_step, node_names
from pipelines.sources.slurm.json_values import (
    as_count,
    as_exit,
    as_job_state,
    as_moment,
    as_number,
    as_text,
    as_words,
)
from pipelines.sources.slurm.sightings import job_row

Record = Mapping[str, Any]


def accounted_rows(job: Record) -> Iterator[Record | RefusedError]:
    """A job of the accounting and its steps.

    Args:
        job: One of `jobs` of `sacct --json` or of slurmrestd's slurmdb.

    Yields:
        Rows of `raw/job_log`, the job first; an error in place of a step that breaks a rule.

    Raises:
        RefusedError: The job breaks a rule.
    """
    array, het = _object(job.get("array")), _object(job.get("het"))
    job_id = _job_id(
        job,
        array_job=as_count(array.get("job_id")),
        task=as_count(array.get("task_id")),
        tasks=as_text(array.get("task")),
        het_job=as_count(het.get("job_id")),
        het_offset=as_count(het.get("job_offset")),
    )
    state = as_job_state(job.get("state"))
    time = _object(job.get("time"))
    user = as_text(job.get("user")) or as_text(_object(job.get("association")).get("user"))
    partition = as_text(job.get("partition"))
    yield job_row(
        job_id,
        state,
        name=as_text(job.get("name")),
        user=user,
        partition=partition,
        ended_with=as_exit(job.get("exit_code"), state),
        times=(
            as_moment(time.get("submission")),
            as_moment(time.get("start")),
            as_moment(time.get("end")),
        ),
        nodes=node_names(as_text(job.get("nodes")) or ""),
        n_gpus=_allocated_gpus(job),
    )
    steps = job.get("steps")
    for step in steps if isinstance(steps, list) else []:
        try:
            yield _step_row(job_id, _object(step))
        except RefusedError as refused:
            yield refused


def _step_row(job_id: str, step: Record) -> Record:
    named = _object(step.get("step"))
    told = named.get("id")
    if isinstance(told, Mapping):
        told = told.get("step_id")
    word = as_text(told) or (None if as_number(told) is None else str(as_number(told)))
    # 123.batch, batch and 0 are all written, depending on the version.
    word = (word or "").rpartition(".")[2] if "." in (word or "") else word
    _, name = job_and_step(f"{job_id}.{word or '?'}")
    state = as_job_state(step.get("state"))
    time, nodes = _object(step.get("time")), _object(step.get("nodes"))
    hosts = as_text(nodes.get("range")) or ",".join(as_words(nodes.get("list")))
    return job_row(
        job_id,
        state,
        step=name,
        name=as_text(named.get("name")),
        ended_with=as_exit(step.get("exit_code"), state),
        times=(None, as_moment(time.get("start")), as_moment(time.get("end"))),
        nodes=node_names(hosts or as_text(step.get("nodes")) or ""),
        n_gpus=_allocated_gpus(step),
    )


def queued_rows(job: Record) -> Iterator[Record | RefusedError]:
    """A job of the queue, as slurmctld knows it.

    Args:
        job: One of `jobs` of `squeue --json` or of slurmrestd's slurm.

    Yields:
        One row of `raw/job_log`.

    Raises:
        RefusedError: The job breaks a rule.
    """
    job_id = _job_id(
        job,
        array_job=as_count(job.get("array_job_id")),
        task=as_count(job.get("array_task_id")),
        tasks=as_text(job.get("array_task_string")),
        het_job=as_count(job.get("het_job_id")),
        het_offset=as_count(job.get("het_job_offset")),
    )
    state = as_job_state(job.get("job_state"))
    nodes = node_names(as_text(job.get("nodes")) or "")
    yield job_row(
        job_id,
        state,
        name=as_text(job.get("name")),
        user=as_text(job.get("user_name")),
        partition=as_text(job.get("partition")),
        ended_with=as_exit(job.get("exit_code"), state),
        times=(
            as_moment(job.get("submit_time")),
            as_moment(job.get("start_time")),
            as_moment(job.get("end_time")),
        ),
        nodes=nodes,
        n_gpus=_queued_gpus(job, len(nodes or [])),
    )


def _job_id(
    job: Record,
    *,
    array_job: int | None,
    task: int | None,
    tasks: str | None,
    het_job: int | None,
    het_offset: int | None,
) -> str:
    """The id as sacct prints it: `123`, `123_4`, `123_[4-7%2]`, `123+1`."""
    number = as_count(job.get("job_id"))
    if array_job and task is not None:
        text = f"{array_job}_{task}"
    elif array_job and tasks:
        text = f"{array_job}_[{tasks}]"
    elif het_job:
        text = f"{het_job}+{het_offset or 0}"
    else:
        text = str(number or "")
    return job_and_step(text)[0]


def _allocated_gpus(record: Record) -> int | None:
    """GPUs of a list of resources; None where there is no such list."""
    allocated = _object(record.get("tres")).get("allocated")
    if not isinstance(allocated, list):
        return None
    items = [
        f"gres/{name}={as_count(item.get('count')) or 0}"
        for item in map(_object, allocated)
        if item.get("type") == "gres" and (name := as_text(item.get("name")))
    ]
    return gpu_count(",".join(items)) if items else (0 if allocated else None)


def _queued_gpus(job: Record, n_nodes: int) -> int | None:
    """GPUs given; else those of each node; else those asked for, where that tells the number.

    The list of what was given has GPUs only where the cluster accounts for them.
    """
    given = as_text(job.get("tres_alloc_str"))
    if given is not None and (count := gpu_count(given)):
        return count
    detail = as_words(job.get("gres_detail"))
    if detail:
        return sum(gpu_count(text) or 0 for text in detail)
    asked = {per: gpu_count(as_text(job.get(f"tres_per_{per}")) or "") for per in _SHARES}
    if not any(asked.values()):
        return None if given is None else 0
    if asked["job"]:
        return asked["job"]
    return asked["node"] * n_nodes if asked["node"] and n_nodes else None


_SHARES: Final = ("job", "node", "socket", "task")


def _object(value: object) -> Record:
    return value if isinstance(value, Mapping) else {}
