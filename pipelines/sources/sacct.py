"""`sacct --parsable2` output to `raw/job_log`: one row per job and per step, as accounted.

Other Slurm outputs (sinfo, scontrol, slurmrestd) are other formats, and attempts of a requeued
job are told apart in `features`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from features.errors import DataError
from features.raw_tables import RAW_JOB_LOG
from pipelines.sources.files import decode, read_bytes
from pipelines.sources.hostlist import expand_hostlist
from pipelines.sources.local_time import to_utc, zone_of
from pipelines.sources.result import ReadTally, SourceResult, as_table, merge
from pipelines.sources.sacct_records import (
    Layout,
    Record,
    check_columns,
    cut_records,
    header_layout,
)

SOURCE: Final = "sacct"

JOB_STATES: Final = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE",
        "EXPEDITING", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "PENDING", "POWER_UP_NODE", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED",
        "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "REVOKED",
        "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED",
        "TIMEOUT", "UPDATE_DB",
    }
)  # fmt: skip
"""Job states and flags of Slurm's job_state_string."""

_JOB_ID: Final = re.compile(
    r"(?P<job>\d{1,18}(?:_(?:\d{1,10}|\[[0-9,%:-]*(?:\.\.\.)?\])|\+\d{1,6})?)"
    r"(?:\.(?P<step>[A-Za-z0-9_+-]{1,64}))?",
    re.ASCII,
)
_EXIT_CODE: Final = re.compile(r"(?P<code>\d{1,9})(?::(?P<signal>\d{1,9}))?", re.ASCII)
_LOCAL_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?", re.ASCII)
_OFFSET_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)", re.ASCII)
_EPOCH_TIME: Final = re.compile(r"\d{9,11}", re.ASCII)  # SLURM_TIME_FORMAT=%s
_NO_VALUE: Final = frozenset({"", "Unknown", "None", "INVALID", "N/A", "NONE", "(null)"})
_NO_NODES: Final = frozenset({*_NO_VALUE, "None assigned"})
_GPUS: Final = re.compile(
    r"(?:^|,)(?:gres[/:])?gpu(?::(?P<type>[^=:,()]*[^=:,()0-9][^=:,()]*))?[=:](?P<count>\d{1,9})",
    re.ASCII,
)
_INDEXES: Final = re.compile(r"\([^()]*\)")
_TIME_COLUMNS: Final = ("Submit", "Start", "End")
_MOST_GPUS: Final = 10_000_000


class _RefusedError(Exception):
    """A record breaks a rule; never leaves this module."""


def parse_sacct(
    data: bytes | str,
    *,
    origin: str,
    time_zone: str,
    ingested_at: datetime,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
) -> SourceResult:
    """Reads accounting output.

    Args:
        data: The text; bytes that are not UTF-8 become U+FFFD.
        origin: File or address, for quarantine and counts.
        time_zone: Zone of slurmdbd's clock; sacct prints no offset.
        ingested_at: When it is read, UTC.
        delimiter: What stands between fields; None: as the header tells (`|` without header).
        columns: Column names of output without a header (`--noheader`).

    Returns:
        `raw/job_log`. A record with a delimiter or line break inside a field is repaired where
        only one reading makes sense, else quarantined.

    Raises:
        SourceError: There is no such time zone, or column JobID or State is missing.
    """
    zone = zone_of(time_zone, origin=origin)
    lines = [line.removesuffix("\r") for line in _lines(data)]
    tally = ReadTally(table=RAW_JOB_LOG.asset_key, source=SOURCE, origin=origin)
    tally.read(len(lines))
    layout, start = _layout(lines, origin=origin, delimiter=delimiter, columns=columns)
    header = lines[start - 1] if start else None
    body = [line for line in lines[start:] if line.strip() and line != header]
    tally.skipped(len(lines) - len(body))  # blanks, comments, the header and its repeats
    rows = []
    for record in cut_records(body, layout, is_valid=_is_valid):
        try:
            rows.append(_row(record, zone) | {"source": SOURCE, "ingested_at": ingested_at})
            tally.parsed(record.n_lines)
        except _RefusedError as refused:
            tally.quarantined(str(refused), record.text, count=record.n_lines)
    return tally.result({RAW_JOB_LOG.asset_key: as_table(RAW_JOB_LOG, rows)})


def read_sacct(
    paths: Iterable[Path],
    *,
    time_zone: str,
    ingested_at: datetime,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
) -> SourceResult:
    """Reads saved accounting output.

    Args:
        paths: Files.
        time_zone: Zone of slurmdbd's clock.
        ingested_at: When they are read, UTC.
        delimiter: See `parse_sacct`.
        columns: See `parse_sacct`.

    Returns:
        `raw/job_log` of all files.

    Raises:
        SourceError: A file cannot be read or is no output of sacct.
    """
    return merge(
        parse_sacct(
            read_bytes(path),
            origin=str(path),
            time_zone=time_zone,
            ingested_at=ingested_at,
            delimiter=delimiter,
            columns=columns,
        )
        for path in paths
    )


def _lines(data: bytes | str) -> list[str]:
    lines = (data if isinstance(data, str) else decode(data)).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _layout(
    lines: Sequence[str],
    *,
    origin: str,
    delimiter: str | None,
    columns: Sequence[str] | None,
) -> tuple[Layout, int]:
    """The layout, and the number of lines up to the first record."""
    if columns is not None:
        check_columns(columns, origin=origin)
        return Layout(tuple(columns), delimiter or "|"), 0
    for at, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            return header_layout(line, origin=origin, delimiter=delimiter), at + 1
    return header_layout("", origin=origin, delimiter=delimiter), 0


def _is_valid(fields: Mapping[str, str]) -> bool:
    """Whether the fields that have a form of their own have it."""
    try:
        _job_and_step(fields["JobID"])
        _state(fields["State"])
        _exit(fields.get("ExitCode", ""))
        for column in _TIME_COLUMNS:
            _time(column, fields.get(column, ""), _UTC)
        _nodes(fields.get("NodeList", ""))
    except _RefusedError:
        return False
    return True


_UTC: Final = ZoneInfo("UTC")


def _row(record: Record, zone: ZoneInfo) -> dict[str, Any]:
    if record.fields is None:
        raise _RefusedError(record.rule)
    fields = record.fields
    job_id, step = _job_and_step(fields["JobID"])
    code, signal = _exit(fields.get("ExitCode", ""))
    times = {column: _time(column, fields.get(column, ""), zone) for column in _TIME_COLUMNS}
    return {
        "job_id": job_id,
        "step": step,
        "job_name": fields.get("JobName") or None,
        "user": fields.get("User") or None,
        "partition": fields.get("Partition") or None,
        "state": _state(fields["State"]),
        "exit_code": code,
        "exit_signal": signal,
        "filed_at": times["Submit"] or times["Start"] or times["End"],
        "submit": times["Submit"],
        "start": times["Start"],
        "end": times["End"],
        "nodes": _nodes(fields.get("NodeList", "")),
        "n_gpus": _gpus(fields),
    }


def _job_and_step(text: str) -> tuple[str, str | None]:
    """Cuts `123_4.batch` into job `123_4` and step `batch`."""
    found = _JOB_ID.fullmatch(text.strip())
    if found is None:
        raise _RefusedError("JobID is not a job id")
    return found["job"], found["step"]


def _state(text: str) -> str:
    """The state without its detail: `CANCELLED by 123` is CANCELLED."""
    words = text.split()
    state = words[0].rstrip("+").upper() if words else ""
    is_detailed = len(words) == 1 or (len(words) == 3 and words[1] == "by")
    if state not in JOB_STATES or not is_detailed:
        raise _RefusedError("State is not a state of a Slurm job")
    return state


def _exit(text: str) -> tuple[int | None, int | None]:
    """Cuts `1:9` into exit code and signal."""
    if text.strip() in _NO_VALUE:
        return None, None
    found = _EXIT_CODE.fullmatch(text.strip())
    if found is None:
        raise _RefusedError("ExitCode is not code:signal")
    return int(found["code"]), int(found["signal"]) if found["signal"] else None


def _time(column: str, text: str, zone: ZoneInfo) -> datetime | None:
    """Reads a time; a local one is in `zone`, and one that is not known is null."""
    word = text.strip()
    if word in _NO_VALUE:
        return None
    moment: datetime | None = None
    try:
        if _LOCAL_TIME.fullmatch(word):
            moment = to_utc(datetime.fromisoformat(word), zone)
        elif _OFFSET_TIME.fullmatch(word):
            moment = datetime.fromisoformat(word).astimezone(UTC)
        elif _EPOCH_TIME.fullmatch(word):
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(word))
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise _RefusedError(f"{column} is not a time")
    return moment


def _nodes(text: str) -> list[str] | None:
    if text.strip() in _NO_NODES:
        return None
    try:
        return list(_expanded(text.strip()))
    except DataError as error:
        raise _RefusedError("NodeList is not a hostlist") from error


@lru_cache(maxsize=1024)
def _expanded(text: str) -> tuple[str, ...]:
    """Steps repeat the hostlist of their job."""
    return tuple(expand_hostlist(text))


def _gpus(fields: Mapping[str, str]) -> int | None:
    """GPUs allocated in all.

    What was asked for (ReqTRES) stands in only where the output has no column of what was
    given. A filled list without GPUs means none; an empty one means unknown.
    """
    for column in ("AllocTRES", "AllocGRES", "ReqTRES"):
        if column in fields:
            text = _INDEXES.sub("", fields[column].strip())
            return None if text in _NO_VALUE else _count_gpus(text)
    return None


def _count_gpus(text: str) -> int:
    """Counts `gres/gpu=8`, `gres/gpu:h100=8`, `gres:gpu:8`; the total goes before its types."""
    total, typed = None, 0
    for found in _GPUS.finditer(text):
        if found["type"]:
            typed += int(found["count"])
        else:
            total = (total or 0) + int(found["count"])
    count = typed if total is None else total
    if count > _MOST_GPUS:
        raise _RefusedError(f"more than {_MOST_GPUS} GPUs")
    return count
