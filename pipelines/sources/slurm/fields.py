"""What single fields of Slurm's outputs say: job ids, states, exit codes, times, hosts, GPUs.

How a format is cut into fields is the business of its own module.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from features.errors import DataError, SourceError
from features.hostlist import expand_hostlist
from pipelines.sources.local_time import to_utc

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

NO_VALUE: Final = frozenset(
    {"", "Unknown", "None", "INVALID", "N/A", "n/a", "NONE", "(null)", "NULL", "none"}
)
NO_NODES: Final = frozenset({*NO_VALUE, "None assigned", "None Assigned"})
MOST_GPUS: Final = 10_000_000

_NOT_SET: Final = frozenset(
    {*(word.upper() for word in NO_VALUE), "NO_VAL", "NOT_SET", "INFINITE", "UNLIMITED"}
)
"""What stands where a time or a duration is not known, or never ends; in any case."""

_NO_SECONDS: Final = frozenset({2**32 - 1, 2**32 - 2})  # INFINITE and NO_VAL, as seconds

_JOB_ID: Final = re.compile(
    r"(?P<job>\d{1,18}(?:_(?:\d{1,10}|\[(?:[0-9,%:-]|\.\.\.)*\]|\[0x[0-9A-Fa-f]+(?:%\d+)?\])|\+\d{1,6})?)"
    r"(?:\.(?P<step>[A-Za-z0-9_+-]{1,64}))?",
    re.ASCII,
)
_EXIT_CODE: Final = re.compile(r"(?P<code>\d{1,9})(?::(?P<signal>\d{1,9}))?", re.ASCII)
_LOCAL_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?", re.ASCII)
_OFFSET_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:?\d\d)", re.ASCII
)
_EPOCH_TIME: Final = re.compile(r"\d{9,11}", re.ASCII)  # SLURM_TIME_FORMAT=%s
_DURATION: Final = re.compile(
    r"(?:(?P<days>\d{1,6})-)?(?P<parts>\d{1,9}(?::\d{1,9}){0,2})(?:\.\d+)?", re.ASCII
)
_INDEXES: Final = re.compile(r"\([^()]*\)")
# Before 20.11 sacct wrote the number of the plugin instead of its name: 7696487 spells gpu.
_GPU_ITEM: Final = re.compile(r"(?:gres[/:])?(?:gpu|7696487)(?=$|[:=])(?P<rest>.*)", re.IGNORECASE)
_GPU_COUNT: Final = re.compile(
    r"(?::(?P<type>[^=:]+?))??(?::no_consume)?(?:[=:](?P<count>\d+))?", re.ASCII
)
_SHORTEST_CUT: Final = 5  # letters that a column of sacct's or squeue's table shows at least
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNSET_UNTIL: Final = _EPOCH + timedelta(days=2)
_UNSET_FROM: Final = _EPOCH - timedelta(days=2)


class RefusedError(DataError):
    """A field breaks the rule that the error names; readers count it and go on."""


def job_and_step(text: str) -> tuple[str, str | None]:
    """Cuts `123_4.batch` into job `123_4` and step `batch`.

    Args:
        text: The id as Slurm writes it.

    Returns:
        Job and step; None where there is no step.

    Raises:
        RefusedError: It is no job id.
    """
    found = _JOB_ID.fullmatch(text.strip())
    if found is None:
        raise RefusedError("JobID is not a job id")
    return found["job"], found["step"]


def job_state(text: str) -> str:
    """The state without its detail: `CANCELLED by 123` is CANCELLED, `OUT_OF_ME+` OUT_OF_MEMORY.

    Args:
        text: The state as Slurm writes it.

    Returns:
        One of `JOB_STATES`.

    Raises:
        RefusedError: It is no state.
    """
    words = text.split()
    state = words[0].rstrip("+").upper() if words else ""
    if words and words[0].endswith("+") and state not in JOB_STATES:  # a column was too narrow
        whole = [name for name in JOB_STATES if name.startswith(state)]
        state = whole[0] if len(whole) == 1 and len(state) >= _SHORTEST_CUT else state
    is_detailed = len(words) == 1 or (len(words) == 3 and words[1] == "by")
    if state not in JOB_STATES or not is_detailed:
        raise RefusedError("State is not a state of a Slurm job")
    return state


def exit_code(text: str) -> tuple[int | None, int | None]:
    """Cuts `1:9` into exit code and signal.

    Args:
        text: The exit code as Slurm writes it.

    Returns:
        Code and signal; None where unknown.

    Raises:
        RefusedError: It is no exit code.
    """
    if text.strip() in NO_VALUE:
        return None, None
    found = _EXIT_CODE.fullmatch(text.strip())
    if found is None:
        raise RefusedError("ExitCode is not code:signal")
    return int(found["code"]), int(found["signal"]) if found["signal"] else None


def moment(column: str, text: str, zone: ZoneInfo | None) -> datetime | None:
    """Reads a time; one that is not known is null, and so is the epoch: Slurm's "never".

    Args:
        column: Name of the field, for messages.
        text: Local time, time with an offset, or seconds since the epoch.
        zone: Zone of a local time; None: not known.

    Returns:
        UTC time or None.

    Raises:
        RefusedError: It is no time.
        SourceError: It is a local time and its zone is not known.
    """
    word = text.strip()
    if word.upper() in _NOT_SET or word == "0":
        return None
    found: datetime | None = None
    try:
        if _LOCAL_TIME.fullmatch(word):
            if zone is None:
                raise SourceError(
                    f"{column} {word} has no offset, and no time zone is set. Give the input the "
                    f"zone of the machine that wrote it (time_zone: Europe/Berlin), or have Slurm "
                    f"write seconds since the epoch (SLURM_TIME_FORMAT=%s)."
                )
            found = to_utc(datetime.fromisoformat(word), zone)
        elif _OFFSET_TIME.fullmatch(word):
            found = datetime.fromisoformat(word).astimezone(UTC)
        elif _EPOCH_TIME.fullmatch(word):
            if int(word) in _NO_SECONDS:
                return None
            found = _EPOCH + timedelta(seconds=int(word))
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise RefusedError(f"{column} is not a time")
    return None if _UNSET_FROM < found < _UNSET_UNTIL else found


def duration(text: str) -> timedelta | None:
    """Reads a duration; one without a limit, or not known, is null.

    Args:
        text: `4-00:00:00`, `01:30:00`, `05:00` (minutes and seconds), `90` (minutes).

    Returns:
        The duration or None.

    Raises:
        RefusedError: It is no duration.

    Example:
        >>> duration("4-00:00:00").days, duration("1-12").total_seconds()
        (4, 129600.0)
        >>> duration("UNLIMITED") is None, duration("Partition_Limit") is None
        (True, True)
    """
    word = text.strip()
    if word.upper() in _NOT_SET or word.upper() == "PARTITION_LIMIT":
        return None
    found = _DURATION.fullmatch(word)
    if found is None:
        raise RefusedError(f"{word[:40]!r} is not a duration")
    parts = [int(part) for part in found["parts"].split(":")]
    if found["days"] is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 1:  # minutes
        hours, minutes, seconds = 0, parts[0], 0
    else:
        hours, minutes, seconds = [0, *parts][-3:]
    return timedelta(days=int(found["days"] or 0), hours=hours, minutes=minutes, seconds=seconds)


def node_names(text: str) -> list[str] | None:
    """Writes a hostlist out; null where there are no nodes.

    Args:
        text: The hostlist as Slurm writes it.

    Returns:
        Node names or None.

    Raises:
        RefusedError: It is no hostlist, or an absurdly long one.
    """
    word = text.strip()
    if word in NO_NODES:
        return None
    try:
        return list(_expanded(word))
    except DataError as error:
        raise RefusedError("NodeList is not a hostlist") from error


@lru_cache(maxsize=256)
def _expanded(text: str) -> tuple[str, ...]:
    """Steps repeat the hostlist of their job."""
    return tuple(expand_hostlist(text))


def gpu_count(text: str) -> int | None:
    """Counts the GPUs of a TRES or GRES list; the total goes before its types.

    A filled list without GPUs means none; an empty one means unknown. Shards and MPS shares are
    parts of GPUs, not GPUs.

    Args:
        text: `cpu=8,gres/gpu=8,gres/gpu:h100=8`, `gres:gpu:8(IDX:0-7)`, `gpu:h100:4(S:0-1)`.

    Returns:
        The count or None.

    Raises:
        RefusedError: A count is no number, or absurd.

    Example:
        >>> gpu_count("gres/gpu=8,gres/gpu:a100=8"), gpu_count("gpu:4090:2(S:0-1),shard:8(S:0)")
        (8, 2)
    """
    word = _INDEXES.sub("", text.strip())
    if word in NO_VALUE:
        return None
    total, typed = None, 0
    for item in word.split(","):
        found = _GPU_ITEM.fullmatch(item.strip())
        if found is None:
            continue
        parts = _GPU_COUNT.fullmatch(found["rest"])
        if parts is None or len(parts["count"] or "1") > 12:
            raise RefusedError("the count of GPUs is not a number")
        count = 1 if parts["count"] is None else int(parts["count"])
        if parts["type"]:
            typed += count
        else:
            total = (total or 0) + count
    count = typed if total is None else total
    if count > MOST_GPUS:
        raise RefusedError(f"more than {MOST_GPUS} GPUs")
    return count
