"""One record of `sacct` to one row of `raw/job_log`, field by field: the careful reading.

The fast reading of plain lines is in `slurm.sacct_fast`; both agree, which the tests hold them to.
"""

from collections.abc import Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from features.errors import DataError
from features.hostlist import count_hosts
from pipelines.sources.slurm.fields import (
    NO_NODES,
    RefusedError,
    exit_code,
    gpu_count,
    job_and_step,
    job_state,
    moment,
    node_names,
)
from pipelines.sources.slurm.sacct_records import Record

TIME_COLUMNS: Final = ("Submit", "Start", "End")
GPU_COLUMNS: Final = ("AllocTRES", "AllocGRES", "ReqTRES")
"""Where GPUs are counted: what was asked for stands in only where the output has no column of
what was given."""

_UTC: Final = ZoneInfo("UTC")


def gpu_column(columns: Mapping[str, Any] | tuple[str, ...]) -> str | None:
    """The column that tells the number of GPUs; None: there is none.

    Args:
        columns: Columns of the output.
    """
    return next((column for column in GPU_COLUMNS if column in columns), None)


def is_valid(fields: Mapping[str, str]) -> bool:
    """Whether the fields that have a form of their own have it.

    Args:
        fields: Column -> value.
    """
    try:
        job_and_step(fields["JobID"])
        job_state(fields["State"])
        exit_code(fields.get("ExitCode", ""))
        for column in TIME_COLUMNS:
            moment(column, fields.get(column, ""), _UTC)
        check_nodes(fields.get("NodeList", ""))
    except RefusedError:
        return False
    return True


def check_nodes(text: str) -> int:
    """Makes sure that a text is a hostlist, without writing it out.

    Args:
        text: The field.

    Returns:
        How many nodes it names.

    Raises:
        RefusedError: It is none.
    """
    word = text.strip()
    if word in NO_NODES:
        return 0
    try:
        return count_hosts(word)
    except DataError as error:
        raise RefusedError("NodeList is not a hostlist") from error


def careful_row(record: Record, zone: ZoneInfo | None) -> dict[str, Any]:
    """Reads one record.

    Args:
        record: The record as cut.
        zone: Zone of slurmdbd's clock; None: not known.

    Returns:
        Column -> value of `raw/job_log`, without source and ingested_at.

    Raises:
        RefusedError: It breaks a rule.
        SourceError: It has a local time and the zone is not known.
    """
    if record.fields is None:
        raise RefusedError(record.rule)
    fields = record.fields
    job_id, step = job_and_step(fields["JobID"])
    code, signal = exit_code(fields.get("ExitCode", ""))
    times = {column: moment(column, fields.get(column, ""), zone) for column in TIME_COLUMNS}
    gpus = gpu_column(fields)
    return {
        "job_id": job_id,
        "step": step,
        "job_name": fields.get("JobName") or None,
        "user": fields.get("User") or None,
        "partition": fields.get("Partition") or None,
        "state": job_state(fields["State"]),
        "exit_code": code,
        "exit_signal": signal,
        "filed_at": times["Submit"] or times["Start"] or times["End"],
        "submit": times["Submit"],
        "start": times["Start"],
        "end": times["End"],
        "nodes": node_names(fields.get("NodeList", "")),
        "n_gpus": gpu_count(fields[gpus]) if gpus is not None else None,
    }
