"""What stands before a kernel message: time, host and tag, in the formats that tools write.

What the message says is in `pipelines.sources.kernel.events`; JSON entries are taken apart in
`pipelines.sources.kernel.journald`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from pipelines.sources.kernel.journald import JSON_WITHIN, read_entry
from pipelines.sources.local_time import (
    CLOCK_SLACK,
    latest_year,
    named_zone_to_utc,
    to_utc,
    wall_clock,
)

TEXT_LENGTH: Final = 4096
"""Characters of a line of text that are looked at; the kernel's own end near 1,000."""

EARLIEST: Final = datetime(2005, 1, 1, tzinfo=UTC)
"""Times before the first GPU computing are those of a clock that was never set."""

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_CLOCK: Final = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_DAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH: Final = rf"(?P<mon>{'|'.join(_MONTHS)})"
_ZONES: Final = (
    "ACDT|ACST|ADT|AEDT|AEST|AKDT|AKST|AST|AWST|BST|CAT|CDT|CEST|CET|CST|EAT|EDT|EEST|EET|EST|HKT|"
    "HST|IDT|IST|JST|KST|MDT|MSK|MST|NDT|NST|NZDT|NZST|PDT|PHT|PKT|PST|SAST|SGT|WAT|WEST|WET|WIB"
)
"""Abbreviations that may stand after a time; any other word there (`ERROR`) is none."""

_OFFSET: Final = (
    r"(?:(?P<off>Z|[ ]?[+-]\d\d:?\d\d|[ ](?:UTC|GMT))"
    rf"|[ ](?P<zone>{_ZONES})(?=[ \]]|$))?"
)
_DATE: Final = r"(?P<y>\d{4})-(?P<n>\d\d)-(?P<d>\d\d)"
_HOST: Final = r"(?P<host>[A-Za-z0-9][A-Za-z0-9_.-]{0,252})"

_PATTERNS: Final = {
    # dmesg -T: [Mon Oct 29 12:07:39 2018]
    "wall": rf"\[{_DAY} {_MONTH} +(?P<d>\d{{1,2}}) {_CLOCK} (?P<y>\d{{4}})\] ?",
    # fabric manager: [Feb 25 2025 13:59:45], or [2025-02-25 13:59:45]
    "fabric": rf"\[{_MONTH} +(?P<d>\d{{1,2}}) (?P<y>\d{{4}}) {_CLOCK}\] ?",
    "boxed": rf"\[{_DATE}[T ]{_CLOCK}{_OFFSET}\] ?",
    # since boot: [24128.834365], after a priority in raw rings, with the time since the last line
    # (dmesg -d); [...] where someone cut it out
    "up": r"(?:<\d{1,3}>)?\[ *(?:(?P<up>\d{1,30}\.\d{1,9})(?:, *[TC]?\d{1,7})?"
    r"(?: *< *[\d.]{1,20}>)?|\.{3})\] ?",
    # ISO 8601, alone (dmesg --time-format=iso, CRI) or before a host (journalctl, rsyslog)
    "iso": rf"(?:<\d{{1,3}}>)?{_DATE}[T ]{_CLOCK}{_OFFSET}(?: |$)",
    # journalctl -o short-full: Tue 2025-01-21 04:41:44 CET
    "full": rf"{_DAY} {_DATE} {_CLOCK}(?: (?P<zone>[A-Z]{{3,5}}|[+-]\d\d))?(?: |$)",
    # syslog: Dec 31 23:59:01, perhaps after a priority, perhaps with a year before or after
    "syslog": rf"(?:<\d{{1,3}}>)?{_MONTH} +(?P<d>\d{{1,2}}) (?:(?P<y>\d{{4}}) )?{_CLOCK}:?[ \t]"
    r"(?:(?P<late>20\d\d) (?=[A-Za-z]))?",
    # syslog of RFC 5424: <4>1 2025-01-21T04:41:44.5Z n1 kernel - - -
    "rfc5424": rf"<\d{{1,3}}>\d{{1,2}} (?:-|{_DATE}T{_CLOCK}{_OFFSET}) (?:-|{_HOST}) "
    r"\S{1,48} \S{1,128} \S{1,32} (?:-|(?:\[(?:[^\]\\]|\\.){0,900}\]){1,9}) ?\ufeff?",
    # klog of kubelet: I0105 10:11:12.123456    1234 reader.go:12]
    "klog": rf"[IWEF](?P<n>\d\d)(?P<d>\d\d) {_CLOCK} +\d+ [^\s\]]+\] ",
    # journalctl -o short-unix
    "epoch": r"(?P<epoch>\d{9,10})\.(?P<f>\d{6}) ",
    # /dev/kmsg: priority, sequence, microseconds, flags; message
    "kmsg": r"\d{1,4},\d{1,20},(?P<us>\d{1,19}),[^;]{1,40};",
    # dmesg --decode: kern  :warn  :
    "decode": r"(?:kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d) *: *"
    r"(?:emerg|alert|crit|err|warn|notice|info|debug) *: ",
    # container runtime: stdout F
    "stream": r"std(?:out|err) [FP] ",
    # the tag, perhaps after a host: worker4 kernel:
    "tag": rf"(?:{_HOST}[ \t]{{1,9}})?(?:kernel|kubelet|syslogd?)(?:\[\d+\])?:[ \t]",
}
_COMPILED: Final = {name: re.compile(text, re.ASCII) for name, text in _PATTERNS.items()}


def _choose(*names: str) -> tuple[re.Pattern[str], ...]:
    return tuple(_COMPILED[name] for name in names)


_AFTER_BRACKET: Final = _choose("up", "wall", "fabric", "boxed")
_AFTER_ANGLE: Final = _choose("syslog", "rfc5424", "iso", "up")
_AFTER_DIGIT: Final = _choose("iso", "kmsg", "epoch", "decode", "tag")
_AFTER_UPPER: Final = _choose("syslog", "full", "klog", "tag")
_AFTER_LOWER: Final = _choose("tag", "decode", "stream")
_TAGGED_HOST: Final = re.compile(rf"{_HOST} [A-Za-z0-9_./@-]{{1,128}}(?:\[\d+\])?: ?", re.ASCII)
_NO_HOST: Final = ("stdout", "stderr")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,20}[mK]")
# What tools that gather lines of many nodes or files write before each: `n7: `, `kern.log.1:`
_GATHERED: Final = re.compile(
    rf"(?:{_HOST}: +|[\w./-]{{1,200}}:(?:\d{{1,9}}:)?(?! ))(?=[\[<\dA-Z])", re.ASCII
)
_MOST_PREFIXES: Final = 8  # a line that goes on like this is no log


@dataclass(frozen=True)
class Clock:
    """How times without an offset, a year or a date are to be read.

    Attributes:
        zone: Zone of the machine's clock.
        read_until: When the log was read, UTC: no line is later.
        boot_time: When the machine booted, UTC; None: seconds since boot stay unknown.
    """

    zone: ZoneInfo
    read_until: datetime
    boot_time: datetime | None = None


@dataclass(frozen=True)
class KernelLine:
    """A line taken apart.

    Attributes:
        ts: UTC time, or None where the line tells none that can be believed.
        host: Host named in the line.
        message: The rest.
        text: The line as received; of a JSON entry its message.
        since_boot: Time since boot that the line gives.
        is_from_boot: Whether `ts` is the boot time and `since_boot`, as nothing else tells it.
        boot_id: Boot named in the line.
    """

    ts: datetime | None
    host: str | None
    message: str
    text: str
    since_boot: timedelta | None = None
    is_from_boot: bool = False
    boot_id: str | None = None


def split_line(text: str, *, clock: Clock) -> KernelLine:
    """Takes a log line apart.

    Args:
        text: One line.
        clock: How incomplete times are read.

    Returns:
        Its parts. Of several times in one line (a container runtime's before the kernel's) the
        last complete one counts; seconds since boot only where nothing else tells the time. A
        time before `EARLIEST`, or more than a day after the log was read, is none.

    Example:
        >>> from zoneinfo import ZoneInfo
        >>> clock = Clock(ZoneInfo("UTC"), datetime(2026, 1, 1, tzinfo=UTC))
        >>> line = split_line("Dec 31 23:59:01 n1 kernel: [5.1] NVRM: loading", clock=clock)
        >>> line.ts.isoformat(), line.host, line.message
        ('2025-12-31T23:59:01+00:00', 'n1', 'NVRM: loading')
    """
    text = text.lstrip("\0")  # what a file is filled up with after a crash
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    entry = read_entry(text) if "{" in text[:JSON_WITHIN] else None
    if entry is None:
        return _split_text(text[:TEXT_LENGTH], clock, text)
    # The entry's message stands for the line: rules that look for words must find them, also where
    # the journal wrote bytes.
    message = entry.message[:TEXT_LENGTH]
    inner = _split_text(message, clock, message)
    host = entry.host if entry.host and _is_host(entry.host) else None
    entry_ts = believed(entry.ts, clock)
    is_from_boot = inner.is_from_boot and entry_ts is None
    return KernelLine(
        entry_ts or inner.ts,
        host or inner.host,
        inner.message,
        message,
        inner.since_boot,
        is_from_boot,
        entry.boot_id,
    )


def believed(ts: datetime | None, clock: Clock) -> datetime | None:
    """A time, unless it is that of a clock which cannot be right.

    Args:
        ts: UTC time.
        clock: When the log was read.
    """
    if ts is None or not EARLIEST <= ts <= clock.read_until + CLOCK_SLACK:
        return None
    return ts


def _split_text(text: str, clock: Clock, whole: str) -> KernelLine:
    ts: datetime | None = None
    since_boot: timedelta | None = None
    host: str | None = None
    rest = text.strip()
    gathered = _GATHERED.match(rest) if _prefix(rest) is None else None
    after = rest[gathered.end() :] if gathered is not None else ""
    if gathered is not None and (after.startswith("NVRM: ") or _tells_time(_prefix(after))):
        host, rest = gathered["host"], after
    for _ in range(_MOST_PREFIXES):
        found = _prefix(rest)
        if found is None:
            break
        rest = rest[found.end() :].lstrip()
        parts = found.groupdict()
        host = parts.get("host") or host
        if parts.get("up") or parts.get("us"):
            since_boot = _since_boot(parts)
        elif parts.get("h") or parts.get("epoch"):
            ts = _time(parts, clock) or ts
            host = _tagged_host(rest) or host
    from_boot = None if ts else _from_boot(since_boot, clock)
    return KernelLine(ts or from_boot, host, rest, whole, since_boot, from_boot is not None)


def _prefix(rest: str) -> re.Match[str] | None:
    first = rest[:1]
    if first == "[":
        patterns = _AFTER_BRACKET
    elif first == "<":
        patterns = _AFTER_ANGLE
    elif "0" <= first <= "9":
        patterns = _AFTER_DIGIT
    elif "A" <= first <= "Z":
        patterns = _AFTER_UPPER
    else:
        patterns = _AFTER_LOWER
    for pattern in patterns:
        found = pattern.match(rest)
        if found is not None:
            return found
    return None


def _tells_time(found: re.Match[str] | None) -> bool:
    return found is not None and any(found.groupdict().get(key) for key in ("h", "up", "epoch"))


def _is_host(text: str) -> bool:
    return re.fullmatch(_HOST, text, re.ASCII) is not None


def _tagged_host(rest: str) -> str | None:
    """The host of `worker4 kubelet[123]: ...`, which stands right after the time."""
    found = _TAGGED_HOST.match(rest)
    return found["host"] if found and found["host"] not in _NO_HOST else None


def _since_boot(parts: dict[str, str | None]) -> timedelta | None:
    seconds, micros = parts.get("up"), parts.get("us")
    try:
        if seconds:
            return timedelta(seconds=float(seconds))
        return timedelta(microseconds=int(micros or 0))
    except OverflowError:
        return None


def _from_boot(since_boot: timedelta | None, clock: Clock) -> datetime | None:
    if clock.boot_time is None or since_boot is None:
        return None
    try:
        return believed(clock.boot_time + since_boot, clock)
    except OverflowError:
        return None


def _time(parts: dict[str, str | None], clock: Clock) -> datetime | None:
    """The UTC time that a prefix tells, where it can be believed."""
    micros = int((parts.get("f") or "").ljust(6, "0")[:6])
    epoch = parts.get("epoch")
    if epoch:
        since = timedelta(seconds=int(epoch), microseconds=micros)
        return believed(datetime(1970, 1, 1, tzinfo=UTC) + since, clock)
    return believed(_calendar_time(parts, clock, micros), clock)


def _calendar_time(parts: dict[str, str | None], clock: Clock, micros: int) -> datetime | None:
    """The UTC time of a date and a time of day; their missing parts come from the clock."""
    month = _MONTHS.get(parts.get("mon") or "") or int(parts.get("n") or 0)
    day = int(parts["d"] or 0)
    time = (int(parts["h"] or 0), int(parts["m"] or 0), int(parts["s"] or 0))
    year = parts.get("y") or parts.get("late")
    if year is None:
        return latest_year(
            (month, day), time, micros=micros, zone=clock.zone, read_until=clock.read_until
        )
    local = wall_clock((int(year), month, day), time, micros=micros)
    if local is None:
        return None
    offset, zone = parts.get("off"), parts.get("zone")
    if zone:
        return named_zone_to_utc(local, zone, clock.zone)
    return _with_offset(local, offset.strip()) if offset else to_utc(local, clock.zone)


def _with_offset(local: datetime, offset: str) -> datetime | None:
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
