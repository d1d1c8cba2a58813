"""Text about jobs that slurmctld knows or has just ended: `squeue`, `scontrol show job`, jobcomp.

The accounting is in `sacct`, the JSON forms in `slurm.json_documents`.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final
from zoneinfo import ZoneInfo

from features.errors import SourceError
from features.raw_tables import RAW_JOB_LOG
from pipelines.sources.files import decode
from pipelines.sources.local_time import zone_of
from pipelines.sources.result import SourceResult, merge
from pipelines.sources.slurm.fields import (
    RefusedError,
    exit_code,
    gpu_count,
    job_and_step,
    job_state,
    moment,
    node_names,
)
from pipelines.sources.slurm.sightings import SlurmRows, job_row, user_name
from pipelines.sources.slurm.torn_lines import join_torn

QUEUE_COLUMNS: Final = {
    "JOBID": "%i", "STATE": "%T", "NAME": "%j", "USER": "%u", "PARTITION": "%P",
    "SUBMIT_TIME": "%V", "START_TIME": "%S", "NODELIST": "%N", "TRES_PER_NODE": "%b",
    "NODES": "%D",
}  # fmt: skip
"""Columns asked of squeue, with their places in its format. The name, which may hold anything,
does not stand last: what a line break tears off would not be seen to be a part of it."""

JOBS_AT_ONCE: Final = 100_000

_CODES: Final = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "CONFIGURING",
    "CG": "COMPLETING", "DL": "DEADLINE", "F": "FAILED", "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING", "PR": "PREEMPTED", "R": "RUNNING", "RD": "RESV_DEL_HOLD", "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED", "SI": "SIGNALING",
    "SE": "SPECIAL_EXIT", "SO": "STAGE_OUT", "ST": "STOPPED", "S": "SUSPENDED", "TO": "TIMEOUT",
}  # fmt: skip
_USUAL: Final = re.compile(
    r"\s*(?P<JOBID>\S+)\s+(?P<PARTITION>\S+)\s+(?P<NAME>.*?)\s+(?P<USER>\S+)\s+(?P<STATE>[A-Z]{1,3})"
    r"\s+(?P<TIME>\S+)\s+(?P<NODES>\d+)\s+(?P<NODELIST>.*)"
)
_JOB: Final = re.compile(rb"JobId=\d+ ")
_SHOWN: Final = re.compile(
    r"JobId=(?P<JobId>\d+)\s(?P<ids>.*?)JobName=(?P<Name>.*?)\s+(?=(?:HetJobIdSet=\S+\s+)?UserId=\S+\s)",
    re.DOTALL,
)
_ENDED: Final = re.compile(
    r"JobId=(?P<JobId>\d+) UserId=(?P<UserId>\S+) GroupId=\S+ Name=(?P<Name>.*?) "
    r"(?=JobState=[A-Z_]+ Partition=)",
    re.DOTALL,
)
_PAIR: Final = re.compile(r"(?:^|(?<=\s))([A-Za-z][A-Za-z0-9_/:]*)=(\S*)")


def parse_squeue(
    data: bytes,
    *,
    origin: str,
    time_zone: str | None,
    ingested_at: datetime,
    columns: Sequence[str] | None = None,
    delimiter: str = "|",
) -> SourceResult:
    """Reads the text of `squeue`: columns with a delimiter, or the usual table.

    Args:
        data: The text.
        origin: File or command.
        time_zone: Zone of its clock; None: times are seconds since the epoch.
        ingested_at: When it is read, UTC.
        columns: Column names of output without a header; see `QUEUE_COLUMNS`.
        delimiter: What stands between them.

    Returns:
        `raw/job_log`. Of a pending job the start, and of a running one the end, is a plan of the
        scheduler and is left out.

    Raises:
        SourceError: There is no column JOBID or STATE, or its times are ambiguous.
    """
    zone = zone_of(time_zone, origin=origin) if time_zone is not None else None
    lines = decode(data).split("\n")
    if not lines[-1]:
        lines.pop()
    header = lines[0] if lines and columns is None else ""
    names = [name.strip().upper() for name in (columns or header.split(delimiter))]
    is_usual = columns is None and delimiter not in header
    if is_usual and not {"JOBID", "PARTITION", "ST"} <= set(header.split()):
        raise _no_squeue(origin, header)
    if not is_usual and not ("JOBID" in names and {"STATE", "ST"} & set(names)):
        raise _no_squeue(origin, "|".join(names))
    rows = SlurmRows("squeue", origin, ingested_at, RAW_JOB_LOG.asset_key)
    rows.tally.read(len(lines))
    width = 1 if is_usual else len(names)
    for record in join_torn(lines, delimiter=delimiter, width=width):
        n_lines = record.count("\n") + 1
        if not record.strip() or (columns is None and record == header):
            rows.tally.skipped(n_lines)
            continue
        try:
            fields = _usual(record) if is_usual else _delimited(record, names, delimiter)
            rows.jobs.append(_queued(fields, zone))
            rows.tally.parsed(n_lines)
        except RefusedError as refused:
            rows.tally.quarantined(str(refused), record, count=n_lines)
    return rows.result()


def _no_squeue(origin: str, header: str) -> SourceError:
    return SourceError(
        f"{origin}: this is no output of squeue: the columns JOBID and STATE are not in its first "
        f"line. Found: {header[:120]!r}. Run: squeue -a -o '%i|%T|%V|%S|%N|%b|%D|%u|%P|%j'"
    )


def _usual(line: str) -> dict[str, str]:
    found = _USUAL.fullmatch(line.removesuffix("\r"))
    if found is None:
        raise RefusedError("not a line of squeue's table")
    fields = {key: str(value) for key, value in found.groupdict().items()}
    if fields["NODELIST"].startswith("("):  # why it waits
        fields["NODELIST"] = ""
    return fields


def _delimited(record: str, names: Sequence[str], delimiter: str) -> dict[str, str]:
    """Column -> value; only a name can hold the delimiter."""
    values = record.removesuffix("\r").split(delimiter)
    surplus = len(values) - len(names)
    if surplus > 0 and names.count("NAME") == 1:
        at = names.index("NAME")
        values[at : at + surplus + 1] = [delimiter.join(values[at : at + surplus + 1])]
        surplus = 0
    if surplus:
        raise RefusedError(f"{len(names)} columns expected")
    return dict(zip(names, values, strict=True))


def _queued(fields: dict[str, str], zone: ZoneInfo | None) -> dict[str, Any]:
    job_id, step = job_and_step(fields["JOBID"])
    word = fields.get("STATE") or fields.get("ST") or ""
    state = job_state(_CODES.get(word.strip(), word))
    times = [moment(name, fields.get(name, ""), zone) for name in ("SUBMIT_TIME", "START_TIME")]
    nodes = node_names("" if (hosts := fields.get("NODELIST", "")).startswith("(") else hosts)
    each = gpu_count(fields.get("TRES_PER_NODE") or fields.get("GRES") or "")
    given = fields.get("TRES_ALLOC") or fields.get("TRES-ALLOC")
    return job_row(
        job_id,
        state,
        step=step,
        name=fields.get("NAME", "").strip() or None,
        user=user_name(fields.get("USER", "")),
        partition=fields.get("PARTITION", "").strip() or None,
        times=(*times, moment("END_TIME", fields.get("END_TIME", ""), zone)),
        nodes=nodes,
        n_gpus=gpu_count(given) if given else (each * len(nodes) if each and nodes else None),
    )


def parse_show_jobs(
    data: bytes, *, origin: str, time_zone: str | None, ingested_at: datetime
) -> SourceResult:
    """Reads `scontrol show job` (with or without `-o`) or a whole file of jobcomp/filetxt.

    Args:
        data: The text.
        origin: File or command.
        time_zone: Zone of its clock; None: times are seconds since the epoch.
        ingested_at: When it is read, UTC.

    Returns:
        `raw/job_log`. A record is a job, however many lines it takes.

    Raises:
        SourceError: No job begins in it, or its times are ambiguous.
    """
    return merge(
        _job_texts(
            data.splitlines(keepends=True),
            origin=origin,
            zone=zone_of(time_zone, origin=origin) if time_zone is not None else None,
            ingested_at=ingested_at,
        )
    )


def stream_jobcomp(
    path: Path, *, time_zone: str | None, ingested_at: datetime
) -> Iterator[SourceResult]:
    """Reads a log of jobcomp/filetxt: a record per ended job.

    Args:
        path: The file.
        time_zone: Zone of slurmctld's clock; None: times are seconds since the epoch.
        ingested_at: When it is read, UTC.

    Yields:
        `raw/job_log` of up to `JOBS_AT_ONCE` jobs. A log that tells of no GPUs leaves their number
        unknown: Slurm writes it only where it is accounted for.

    Raises:
        SourceError: The file cannot be read or no job begins in it, or its times are ambiguous.
    """
    zone = zone_of(time_zone, origin=str(path)) if time_zone is not None else None
    try:
        with path.open("rb") as file:
            yield from _job_texts(file, origin=str(path), zone=zone, ingested_at=ingested_at)
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}. Check that it exists, is a file, "
            f"and that this user may read it."
        ) from error


def _job_texts(
    lines: BinaryIO | Sequence[bytes],
    *,
    origin: str,
    zone: ZoneInfo | None,
    ingested_at: datetime,
) -> Iterator[SourceResult]:
    rows = SlurmRows("slurm_jobs", origin, ingested_at, RAW_JOB_LOG.asset_key)
    n_jobs, first = 0, ""
    for text in _texts(lines):
        first = first or text
        rows.tally.read()
        n_jobs += text.startswith("JobId=")
        try:
            rows.jobs.append(_shown_job(text, zone))
            rows.tally.parsed()
        except RefusedError as refused:
            rows.tally.quarantined(str(refused), text)
        if len(rows.jobs) >= JOBS_AT_ONCE:
            yield rows.result()
            rows = SlurmRows("slurm_jobs", origin, ingested_at, RAW_JOB_LOG.asset_key)
    if first and not n_jobs:
        raise SourceError(
            f"{origin}: no line begins with JobId=, as those of scontrol show job and of "
            f"jobcomp/filetxt do. It begins with {first[:60]!r}."
        )
    yield rows.result()


def _texts(lines: BinaryIO | Sequence[bytes]) -> Iterator[str]:
    """The text of each job: from `JobId=` up to the next."""
    held: list[bytes] = []
    for line in lines:
        if _JOB.match(line) and held:
            yield from _clean(held)
            held = []
        if len(held) < 1000:  # a job's text has some 40 lines
            held.append(line)
    yield from _clean(held)


def _clean(held: list[bytes]) -> Iterator[str]:
    text = decode(b"".join(held)).replace("\r\n", "\n").strip("\n")
    if text.strip() and text.strip() != "No jobs in the system":
        yield text


def _shown_job(text: str, zone: ZoneInfo | None) -> dict[str, Any]:
    found = _ENDED.match(text) or _SHOWN.match(text)
    if found is None:
        raise RefusedError("not the text of a job")
    ids = found.groupdict().get("ids") or ""
    fields: dict[str, str] = {}
    for key, value in [*_PAIR.findall(ids), *_PAIR.findall(text[found.end() :])]:
        fields.setdefault(key, value)  # what a command line holds comes later
    job_id = found["JobId"]
    if fields.get("ArrayTaskId"):
        task = fields["ArrayTaskId"]
        job_id = f"{fields.get('ArrayJobId', job_id)}_{task if task.isdecimal() else f'[{task}]'}"
    elif fields.get("HetJobId"):
        job_id = f"{fields['HetJobId']}+{fields.get('HetJobOffset', '0')}"
    state = job_state(fields.get("JobState", ""))
    given = fields.get("AllocTRES") or fields.get("TRES") or fields.get("Tres") or ""
    times = [
        moment(key, fields.get(key, ""), zone) for key in ("SubmitTime", "StartTime", "EndTime")
    ]
    return job_row(
        job_and_step(job_id)[0],
        state,
        name=found["Name"],
        user=user_name(found.groupdict().get("UserId") or fields.get("UserId", "")),
        partition=fields.get("Partition"),
        ended_with=exit_code(fields.get("ExitCode", "")),
        times=times,
        nodes=node_names(fields.get("NodeList", "")),
        n_gpus=gpu_count(given) if "gpu" in given else None,
    )
