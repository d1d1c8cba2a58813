"""Reads the commonest shape of an Xid line, a syslog line of the kernel's, in one go.

Every other shape is left to `kernel.line` and `kernel.events`, which read these lines as well, and
the same way, but try a dozen shapes in turn.
"""

import re
from datetime import timedelta
from typing import Final

from pipelines.sources.kernel.events import KernelEvent
from pipelines.sources.kernel.line import TEXT_LENGTH, Clock, KernelLine, believed
from pipelines.sources.local_time import latest_year
from pipelines.sources.pci_address import canonical_pci

_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_LINE: Final = re.compile(
    rf"({'|'.join(_MONTHS)}) {{1,2}}(\d{{1,2}}) (\d\d):(\d\d):(\d\d) "
    r"([A-Za-z][A-Za-z0-9_.-]{0,63}) kernel: \[ {0,9}(\d{1,9}\.\d{1,9})\] (?=NVRM: Xid \()",
    re.ASCII,
)
_NO_HOSTS: Final = ("stdout", "stderr")  # words of a container runtime
_XID: Final = re.compile(
    r"NVRM: Xid \(([A-Za-z0-9:.]{1,40})\): (\d{1,9}), "
    r"pid=(?:(\d{1,18})|'<unknown>'|<unknown>), name=(?:([\w./:+-]{1,200})|<unknown>)(,.*)",
    re.ASCII | re.DOTALL,
)
_NEEDS_CARE: Final = ("fatal", "severity", "pid=")


def quick_line(text: str, *, clock: Clock) -> KernelLine | None:
    """Takes an Xid line of a syslog apart.

    Args:
        text: One line.
        clock: How incomplete times are read.

    Returns:
        What `split_line` returns, or None for a line of any other shape.
    """
    found = _LINE.match(text)
    if found is None or len(text) > TEXT_LENGTH:
        return None
    month, day, hour, minute, second, host, since_boot = found.groups()
    month_day = (_MONTHS.index(month) + 1, int(day))
    time = (int(hour), int(minute), int(second))
    ts = latest_year(month_day, time, zone=clock.zone, read_until=clock.read_until)
    ts = believed(ts, clock)
    if ts is None or host in _NO_HOSTS:
        return None
    message = text[found.end() :].rstrip()
    return KernelLine(ts, host, message, text, timedelta(seconds=float(since_boot)))


def quick_xid(message: str) -> KernelEvent | None:
    """Understands an Xid message that names a process or says that it knows none.

    Args:
        message: Text after time, host and tag.

    Returns:
        What `read_event` returns, or None for a message of any other shape.
    """
    found = _XID.match(message)
    if found is None or not message.isascii():
        return None
    device, code, pid, process, told = found.groups()
    lower = told.lower()
    if any(word in lower for word in _NEEDS_CARE):
        return None
    return KernelEvent(
        "xid",
        code=int(code),
        pci_bus_id=canonical_pci(device),
        pid=int(pid) if pid else None,
        process=process,
    )
