"""What kernel messages say about hardware and drivers: Xid, SXid, bus losses, memory, links.

Lines are taken apart in `pipelines.sources.kernel_line`; what an event means for health is in
`features.catalogue`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipelines.sources.pci_address import canonical_pci, first_pci


@dataclass(frozen=True)
class KernelEvent:
    """What one message reports.

    Attributes:
        kind: xid, sxid, off_bus, gsp, aer, mce, edac, oom, hung_task, link or unknown.
        code: Xid or SXid code.
        pci_bus_id: Device, in canonical spelling.
        pid: Process named in the message.
        process: Its name.
    """

    kind: str
    code: int | None = None
    pci_bus_id: str | None = None
    pid: int | None = None
    process: str | None = None


class UnreadableXidError(Exception):
    """A message that says Xid or SXid, but not which; it never leaves this package."""


_MARKERS: Final = (
    "Xid", "NVRM", "fallen off", "GSP", "AER", "PCIe Bus Error", "Hardware Error", "mce:", "EDAC",
    "Killed process", "blocked for more than", "ink down", "ink Down", "ink is Down", "ink is down",
    "LINK_DOWN", "ink DOWN", "amdgpu", "hardware errors detected", "RAS",
)  # fmt: skip
"""One of these is in every message that can be an event: a cheap look before any pattern."""

_XID: Final = re.compile(
    r"(?P<kind>S?Xid)\s*\((?:PCI:)?(?P<device>[^()\s]{0,40})\)\s*:?\s*(?P<code>\d{1,9})\b"
    r"(?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
_SAYS_XID: Final = re.compile(r"\bS?Xid\s*\(|NVRM:\s*S?Xid\b|nvswitch\d*:\s*SXid\b", re.ASCII)
_PID: Final = re.compile(r"\bpid=(?P<pid>\d{1,18})\b", re.ASCII)
_NAME: Final = re.compile(r"\bname=(?P<name>[^,]{1,200})")
# Words in any order are looked for by lookaheads from the start: `.*a.*b.*c` on a line that repeats
# them takes cubic time.
_OFF_BUS: Final = re.compile(r"fallen off the bus", re.IGNORECASE)
_GSP: Final = re.compile(
    r"^(?=.*NVRM)(?=.*(?:\bGSP\b|_kgsp))"
    r"(?=.*(?:time ?out|timed out|heartbeat|crash|fail|not respond|error))",
    re.IGNORECASE,
)
_AER: Final = re.compile(
    r"\bAER:.*\berrors? (?:message )?received|\bAER:.*\bPCIe Bus Error|PCIe Bus Error: severity",
    re.IGNORECASE,
)
_AER_DEVICE: Final = re.compile(r"(?:received|from)\b:?\s*(?P<device>[0-9a-fA-F:.]{7,16})")
_EDAC: Final = re.compile(
    r"^(?=.*\bEDAC\b)(?=.*(?:\b[CU]E\b|\b(?:un)?corrected\b))(?=.*(?:error|row|page|memory))"
)
_AMD: Final = re.compile(
    r"^(?=.*\bamdgpu\b)(?=.*(?:\bRAS\b|\bras\b|poison|hardware errors? detected|"
    r"uncorrectable|ECC error|GPU reset|ring \S+ timeout))"
)
_MCE: Final = re.compile(
    r"\bmce: .*(?:machine check|hardware error)|\[Hardware Error\]|\bmachine check events? logged",
    re.IGNORECASE,
)
_OOM: Final = re.compile(r"Killed process (?P<pid>\d{1,18}) \((?P<name>[^)]{0,100})\)", re.ASCII)
_HUNG: Final = re.compile(
    r"\btask (?P<name>\S{1,100}):(?P<pid>\d{1,18}) blocked for more than \d+ seconds", re.ASCII
)
_LINK: Final = re.compile(
    r"\b(?:mlx[45]\w*|ib\d+|ib_\w+|hfi1\w*|ice|i40e|ixgbe|bnxt_en|bnx2x|igb|e1000e|cxgb4|efa|"
    r"nfp|qede)\b.*\bLink (?:is )?down\b",
    re.IGNORECASE,
)
_DRIVER: Final = re.compile(r"NVRM.*(?:RmInitAdapter failed|rm_init_adapter failed)")


def may_report(line: str) -> bool:
    """Whether a line can report anything at all: true for every line that `read_event` takes.

    Args:
        line: A whole line, before it is taken apart.
    """
    return any(marker in line for marker in _MARKERS)


def read_event(message: str) -> KernelEvent | None:
    """Understands one message.

    Args:
        message: Text after time, host and tag.

    Returns:
        The event, or None for a message about something else.

    Raises:
        UnreadableXidError: It says Xid or SXid in the driver's manner, but has no code.
    """
    xid = _XID.search(message)
    if xid is not None:
        return _xid_event(xid)
    if _SAYS_XID.search(message):
        raise UnreadableXidError
    for pattern, build in _KINDS:
        found = pattern.search(message)
        if found is not None:
            return build(message, found)
    return None


def _xid_event(found: re.Match[str]) -> KernelEvent:
    kind = "sxid" if found["kind"] == "SXid" else "xid"
    pid, name = _PID.search(found["rest"]), _NAME.search(found["rest"])
    process = name["name"].strip().strip("'") if name else ""
    return KernelEvent(
        kind,
        code=int(found["code"]),
        pci_bus_id=canonical_pci(found["device"]),
        pid=int(pid["pid"]) if pid else None,
        process=None if process in ("", "<unknown>") else process,
    )


def _device_event(kind: str) -> Callable[[str, re.Match[str]], KernelEvent]:
    return lambda message, _: KernelEvent(kind, pci_bus_id=first_pci(message))


def _process_event(kind: str) -> Callable[[str, re.Match[str]], KernelEvent]:
    return lambda _, found: KernelEvent(kind, pid=int(found["pid"]), process=found["name"] or None)


def _aer_event(message: str, _: re.Match[str]) -> KernelEvent:
    """The port reports, but the device at fault is the one the error was received from."""
    at_fault = _AER_DEVICE.search(message)
    device = canonical_pci(at_fault["device"].rstrip(":.")) if at_fault else None
    return KernelEvent("aer", pci_bus_id=device or first_pci(message))


_KINDS: Final[tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], KernelEvent]], ...]] = (
    (_OFF_BUS, _device_event("off_bus")),
    (_GSP, _device_event("gsp")),
    (_AER, _aer_event),
    (_AMD, _device_event("unknown")),
    (_EDAC, _device_event("edac")),
    (_MCE, _device_event("mce")),
    (_OOM, _process_event("oom")),
    (_HUNG, _process_event("hung_task")),
    (_LINK, _device_event("link")),
    (_DRIVER, _device_event("unknown")),
)
"""Patterns in the order they are tried; EDAC and AMD lines may carry [Hardware Error] too."""
