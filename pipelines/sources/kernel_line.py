"""What stands before a kernel message: time, host and tag, in the formats that tools write.

What the message says is in `pipelines.sources.kernel_events`.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from pipelines.sources.local_time import latest_year, to_utc, wall_clock

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_CLOCK: Final = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_DAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH: Final = rf"(?P<mon>{'|'.join(_MONTHS)})"
_OFFSET: Final = r"(?P<off>Z|[+-]\d\d:?\d\d|[ ](?:UTC|GMT))?"

_PREFIXES: Final = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        # dmesg -T: [Mon Oct 29 12:07:39 2018]
        rf"\[{_DAY} {_MONTH} +(?P<d>\d{{1,2}}) {_CLOCK} (?P<y>\d{{4}})\] ?",
        # ISO 8601, alone (dmesg --time-format=iso, CRI) or before a host (journalctl, rsyslog)
        rf"(?:{_DAY} )?(?P<y>\d{{4}})-(?P<n>\d\d)-(?P<d>\d\d)[T ]{_CLOCK}{_OFFSET}(?: |$)",
        # syslog: Dec 31 23:59:01, perhaps after a priority
        rf"(?:<\d{{1,3}}>)?{_MONTH} +(?P<d>\d{{1,2}}) {_CLOCK} ",
        # klog of kubelet: I0105 10:11:12.123456    1234 reader.go:12]
        rf"[IWEF](?P<n>\d\d)(?P<d>\d\d) {_CLOCK} +\d+ [^\s\]]+\] ",
        # since boot: [24128.834365], [...]
        r"\[ *(?:(?P<up>\d+\.\d+)|\.{3})\] ?",
        # /dev/kmsg: priority, sequence, microseconds, flags; message
        r"\d+,\d+,(?P<us>\d+),[^;]{1,40};",
        # dmesg --decode: kern  :warn  :
        r"[a-z0-9]+ *: *[a-z]+ *: ",
        # container runtime: stdout F
        r"std(?:out|err) [FP] ",
        # the tag, perhaps after a host: worker4 kernel:
        r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9_.-]*) )?(?:kernel|(?:kubelet|syslogd?)(?:\[\d+\])?): ",
    )
)
_TAGGED_HOST: Final = re.compile(
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9_.-]*) [A-Za-z0-9_./@-]+(?:\[\d+\])?: ", re.ASCII
)
_MOST_PREFIXES: Final = 8  # a line that goes on like this is no log


@dataclass(frozen=True)
class Clock:
    """How times without an offset, a year or a date are to be read.

    Attributes:
        zone: Zone of the machine's clock.
        read_until: When the log was read, UTC: no line without a year is later.
        boot_time: When the machine booted, UTC; None: seconds since boot stay unknown.
    """

    zone: ZoneInfo
    read_until: datetime
    boot_time: datetime | None = None


@dataclass(frozen=True)
class KernelLine:
    """A line taken apart.

    Attributes:
        ts: UTC time, or None where the line tells none.
        host: Host named in the line.
        message: The rest.
        text: The line as received.
    """

    ts: datetime | None
    host: str | None
    message: str
    text: str


def split_line(text: str, *, clock: Clock) -> KernelLine:
    """Takes a log line apart.

    Args:
        text: One line.
        clock: How incomplete times are read.

    Returns:
        Its parts. Of several times in one line (a container runtime's before the kernel's) the
        last complete one counts; seconds since boot only where nothing else tells the time.

    Example:
        >>> from zoneinfo import ZoneInfo
        >>> clock = Clock(ZoneInfo("UTC"), datetime(2026, 1, 1, tzinfo=UTC))
        >>> line = split_line("Dec 31 23:59:01 n1 kernel: [5.1] NVRM: loading", clock=clock)
        >>> line.ts.isoformat(), line.host, line.message
        ('2025-12-31T23:59:01+00:00', 'n1', 'NVRM: loading')
    """
    if text.startswith("{") and '"MESSAGE"' in text:
        from_journal = _journal_line(text)
        if from_journal is not None:
            return from_journal
    ts: datetime | None = None
    since_boot: datetime | None = None
    host: str | None = None
    rest = text.strip()
    for _ in range(_MOST_PREFIXES):
        found = next((f for f in (p.match(rest) for p in _PREFIXES) if f), None)
        if found is None:
            break
        rest = rest[found.end() :].lstrip()
        parts = found.groupdict()
        host = parts.get("host") or host
        since_boot = _since_boot(parts, clock) or since_boot
        if parts.get("h"):
            ts = _time(parts, clock) or ts
            host = _tagged_host(rest) or host
    return KernelLine(ts or since_boot, host, rest, text)


def _tagged_host(rest: str) -> str | None:
    """The host of `worker4 kubelet[123]: ...`, which stands right after the time."""
    found = _TAGGED_HOST.match(rest)
    return found["host"] if found and found["host"] not in ("stdout", "stderr") else None


def _since_boot(parts: dict[str, str | None], clock: Clock) -> datetime | None:
    seconds, micros = parts.get("up"), parts.get("us")
    if clock.boot_time is None or not (seconds or micros):
        return None
    elapsed = float(seconds) if seconds else int(micros or 0) / 1e6
    try:
        return clock.boot_time + timedelta(seconds=elapsed)
    except OverflowError:
        return None


def _time(parts: dict[str, str | None], clock: Clock) -> datetime | None:
    """The UTC time that a prefix tells; its missing parts come from the clock."""
    month = _MONTHS.get(parts.get("mon") or "") or int(parts.get("n") or 0)
    day = int(parts["d"] or 0)
    time = (int(parts["h"] or 0), int(parts["m"] or 0), int(parts["s"] or 0))
    micros = int((parts.get("f") or "").ljust(6, "0")[:6])
    year = parts.get("y")
    if year is None:
        return latest_year(
            (month, day), time, micros=micros, zone=clock.zone, read_until=clock.read_until
        )
    local = wall_clock((int(year), month, day), time, micros=micros)
    offset = parts.get("off")
    if local is None or not offset:
        return None if local is None else to_utc(local, clock.zone)
    try:
        return local.replace(tzinfo=UTC) - _offset(offset)
    except OverflowError:
        return None


def _offset(text: str) -> timedelta:
    if text[0] not in "+-":
        return timedelta(0)
    digits = text[1:].replace(":", "")
    ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -ahead if text[0] == "-" else ahead


def _journal_line(text: str) -> KernelLine | None:
    """Reads `journalctl -o json`: microseconds since 1970, host and message."""
    try:
        entry = json.loads(text)
        micros = int(entry.get("__REALTIME_TIMESTAMP") or entry["_SOURCE_REALTIME_TIMESTAMP"])
        ts = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    message, host = entry.get("MESSAGE"), entry.get("_HOSTNAME")
    if not isinstance(message, str):
        return None  # journald writes messages that are no text as lists of bytes
    message = message.encode("utf-8", "replace").decode()
    return KernelLine(ts, host if isinstance(host, str) else None, message.strip(), text)
