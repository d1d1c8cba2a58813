"""What kernel and fabric messages say about hardware and drivers: Xid, SXid, bus losses, links.

Lines are taken apart in `pipelines.sources.kernel.line`; what an event means for health is in
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
        kind: xid, sxid, off_bus, gsp, aer, mce, edac, oom, hung_task, link, nvlink or unknown.
        code: Xid or SXid code.
        pci_bus_id: Device, in canonical spelling.
        pid: Process named in the message.
        process: Its name.
        severity: corrected, nonfatal, uncorrected or fatal, where the message tells.
        may_go_on: Whether the message ends with the code, whose last digits may be on the next
            line where a terminal wrapped it.
    """

    kind: str
    code: int | None = None
    pci_bus_id: str | None = None
    pid: int | None = None
    process: str | None = None
    severity: str | None = None
    may_go_on: bool = False


class UnreadableXidError(Exception):
    """A message that says Xid or SXid, but not which; it never leaves this package."""


MARKERS: Final = (
    "NVRM", "Xid (", "allen off", "PCIe Bus Error", "AER:", "Hardware Error", "mce:", "EDAC",
    "Killed process", "blocked for more than", " down", " Down", " DOWN", "LINK_DOWN",
    "Port module", "amdgpu", "NVSwitch", "GPU NVL", "runk ", "Linux version", "-- Boot",
    "-- Reboot", '"MESSAGE":[', '"MESSAGE" : [', '"MESSAGE": [',
)  # fmt: skip
"""One of these is in every line that can report an event or a boot: what a scan looks for."""

_XID: Final = re.compile(
    r"(?P<kind>S?Xid)\s{0,9}\((?P<device>[^()\n]{0,80})\)\s{0,9}:?\s{0,9}(?P<code>\d{1,9})\b"
    r"(?P<rest>.*)",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
_SAYS_XID: Final = re.compile(
    r"\bS?Xid\s*\(|NVRM:\s*S?Xid\b|nvswitch\d*:\s*SXid\b", re.ASCII | re.I
)
_NAMES_WITHIN: Final = 300
_PID: Final = re.compile(r"\bpid='?(?P<pid>\d{1,18})\b", re.ASCII)
_NAME: Final = re.compile(r"\bname=(?P<name>[^,]{1,200})")
# Words in any order are looked for by lookaheads from the start: `.*a.*b.*c` on a line that repeats
# them takes cubic time.
_OFF_BUS: Final = re.compile(
    r"^(?:(?=.*(?:NVRM|GPU|nvidia|NVIDIA)).*\b|\s*)[Ff]allen off(?: the bus|\s*$)", re.DOTALL
)
_GSP: Final = re.compile(
    r"^(?=.*NVRM)(?=.*(?:\bGSP\b|_kgsp))"
    r"(?=.*(?:time ?out|timed out|heartbeat|crash|fail|not respond|error))",
    re.IGNORECASE,
)
_AER: Final = re.compile(
    r"\bAER:.*\berrors? (?:message )?received|\bAER:.*\bPCIe Bus Error|PCIe Bus Error: severity",
    re.IGNORECASE,
)
_SEVERITY: Final = re.compile(
    r"\b(?:(?P<nonfatal>non[- ]?fatal|severity 0)|(?P<fatal>fatal|severity 1))\b", re.IGNORECASE
)
_CORRECTION: Final = re.compile(
    r"\b(?:(?P<uncorrected>uncorrect\w{2,5})|(?P<corrected>correct\w{2,5}))\b", re.IGNORECASE
)
_EDAC_SEVERITY: Final = re.compile(
    r"\b(?:(?P<uncorrected>UE|uncorrected)|(?P<corrected>CE|corrected))\b"
)
_AER_DEVICE: Final = re.compile(r"(?:received|from)\b:?\s*(?P<device>[0-9a-fA-F:.]{7,16})")
_EDAC: Final = re.compile(
    r"^(?=.*\bEDAC\b)(?=.*(?:\b[CU]E\b|\b(?:un)?corrected\b))(?=.*(?:error|row|page|memory))"
)
_AMD: Final = re.compile(
    r"^(?=.*\bamdgpu\b)(?=.*(?:\bRAS\b|\bras\b|[Pp]oison|hardware errors? detected|"
    r"uncorrectable|ECC error|GPU reset|ring \S+ timeout))"
)
_MCE: Final = re.compile(
    r"\bmce: .*(?:machine check|hardware error)|\[Hardware Error\]|\bmachine check events? logged",
    re.IGNORECASE,
)
# A name may hold brackets, as that of `(sd-pam)` does.
_OOM: Final = re.compile(
    r"Killed process (?P<pid>\d{1,18})(?:, UID \d{1,10},)? "
    r"\((?P<name>.{0,100}?)\)(?=,|\s*$| total-vm)",
    re.ASCII,
)
_HUNG: Final = re.compile(
    r"\btask (?P<name>\S{1,100}):(?P<pid>\d{1,18}) blocked for more than \d+ seconds", re.ASCII
)
_LINK: Final = re.compile(
    r"^(?=.*\b(?:mlx[45]\w*|ib\d{1,4}|ib_\w+|ibp\w+|hfi1\w*|ice|i40e|ixgbe|bnxt_en|bnx2x|igb|"
    r"e1000e|cxgb4|efa|nfp|qede|irdma|atlantic|sfc|ena)\b)"
    r"(?=.*(?:\blink (?:is )?down\b|\bLINK_DOWN\b|"
    r"\bPort module event.*(?:unplugged|error|high temp)))",
    re.IGNORECASE,
)
_DRIVER: Final = re.compile(r"NVRM.*(?:RmInitAdapter failed|rm_init_adapter failed)")
_FABRIC_SXID: Final = re.compile(
    r"detected NVSwitch (?P<severity>non-fatal|fatal) error (?P<code>\d{1,9})\b"
    r"(?:.{0,200}\bpci bus id (?P<device>[0-9a-fA-F:.]{7,16}))?",
    re.IGNORECASE,
)
_FABRIC_NVLINK: Final = re.compile(
    r"detected (?:stale )?GPU NVL (?:non[- ]?)?fatal error on|\btrunk (?:port|link) failure",
    re.IGNORECASE,
)
_FABRIC_ERROR: Final = re.compile(r"\[(?:ERROR|CRITICAL)\] \[tid \d{1,12}\].*\bNVSwitch\b")


# These programs write down what users typed, which may be what the driver wrote.
_TYPED: Final = re.compile(
    r"(?:\S{1,253} )?(?:sudo|su|sshd(?:-session)?|login|crond?|CRON|bash|auditd?|audisp\S{0,20}|"
    r"polkitd|systemd-logind)(?:\[\d{1,10}\])?: ",
    re.ASCII,
)


def quotes_users(message: str) -> bool:
    """Whether a message begins with the tag of a program that writes down what users type.

    Args:
        message: Text after the time, perhaps with a host before the tag.
    """
    return _TYPED.match(message) is not None


_XID_START: Final = "NVRM: Xid ("


def parts_of(message: str) -> list[str]:
    """Takes messages apart that ran together in one line, as those of several processors do.

    Args:
        message: Text after time, host and tag.

    Returns:
        The text up to the second Xid, up to the third, and so on; mostly the message alone.
    """
    first, *others = message.split(_XID_START)
    if len(others) < 2:
        return [message]
    return [first + _XID_START + others[0], *(_XID_START + other for other in others[1:])]


def read_event(message: str) -> KernelEvent | None:
    """Understands one message.

    Args:
        message: Text after time, host and tag.

    Returns:
        The event, or None for a message about something else.

    Raises:
        UnreadableXidError: It says Xid or SXid in the driver's manner, but has no code.
    """
    if quotes_users(message):
        return None
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
    kind = found["kind"].lower()
    rest = found["rest"]
    # The driver writes pid and name first; the same words may be in the text that follows.
    pid, name = _PID.search(rest[:_NAMES_WITHIN]), _NAME.search(rest[:_NAMES_WITHIN])
    told = rest[name.end() :] if name else rest
    return KernelEvent(
        kind,
        code=int(found["code"]),
        # An instance of a GPU (MIG) stands behind its address: `PCI:0000:1b:00 GPU-I:05`.
        pci_bus_id=canonical_pci(found["device"].strip().partition(" ")[0]),
        pid=int(pid["pid"]) if pid else None,
        process=_process(name["name"]) if name else None,
        severity=_severity(_SEVERITY, told),
        may_go_on=not rest.strip(),
    )


def _process(name: str) -> str | None:
    """A process name without quotes and without anything a terminal would obey."""
    if not name.isprintable():
        name = "".join(letter for letter in name if letter.isprintable())
    clean = name.strip().strip("'")
    return None if clean in ("", "<unknown>") else clean


def _severity(pattern: re.Pattern[str], message: str) -> str | None:
    found = pattern.search(message)
    return found.lastgroup if found else None


def _device_event(kind: str) -> Callable[[str, re.Match[str]], KernelEvent]:
    return lambda message, _: KernelEvent(kind, pci_bus_id=first_pci(message))


def _process_event(kind: str) -> Callable[[str, re.Match[str]], KernelEvent]:
    return lambda _, found: KernelEvent(
        kind, pid=int(found["pid"]), process=_process(found["name"] or "")
    )


def _aer_event(message: str, _: re.Match[str]) -> KernelEvent:
    """The port reports, but the device at fault is the one the error was received from."""
    at_fault = _AER_DEVICE.search(message)
    device = canonical_pci(at_fault["device"].rstrip(":.")) if at_fault else None
    severity = _severity(_SEVERITY, message) or _severity(_CORRECTION, message)
    return KernelEvent("aer", pci_bus_id=device or first_pci(message), severity=severity)


def _edac_event(message: str, _: re.Match[str]) -> KernelEvent:
    severity = _severity(_EDAC_SEVERITY, message)
    return KernelEvent("edac", pci_bus_id=first_pci(message), severity=severity)


def _switch_event(_: str, found: re.Match[str]) -> KernelEvent:
    """The fabric manager's word for an SXid."""
    return KernelEvent(
        "sxid",
        code=int(found["code"]),
        pci_bus_id=canonical_pci((found["device"] or "").rstrip(":.")),
        severity=found["severity"].lower().replace("-", ""),
    )


def _nvlink_event(message: str, _: re.Match[str]) -> KernelEvent:
    return KernelEvent("nvlink", severity=_severity(_SEVERITY, message))


_KINDS: Final[tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], KernelEvent]], ...]] = (
    (_OFF_BUS, _device_event("off_bus")),
    (_GSP, _device_event("gsp")),
    (_AER, _aer_event),
    (_AMD, _device_event("unknown")),
    (_EDAC, _edac_event),
    (_MCE, _device_event("mce")),
    (_OOM, _process_event("oom")),
    (_HUNG, _process_event("hung_task")),
    (_LINK, _device_event("link")),
    (_DRIVER, _device_event("unknown")),
    (_FABRIC_SXID, _switch_event),
    (_FABRIC_NVLINK, _nvlink_event),
    (_FABRIC_ERROR, _device_event("unknown")),
)
"""Patterns in the order they are tried; EDAC and AMD lines may carry [Hardware Error] too."""
