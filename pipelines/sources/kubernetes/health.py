"""Hardware facts in the words of Kubernetes events and node conditions: Xids, OOM, lost GPUs.

Lines of the kernel itself are read in `kernel.log`; this only finds what agents pass on.
"""

import re
from datetime import datetime
from typing import Any, Final

from pipelines.sources.kernel.events import KernelEvent, UnreadableXidError, read_event
from pipelines.sources.kubernetes.objects import cut
from pipelines.sources.pci_address import first_pci

# Xid=79, XID 79, Xid error: 79, XID(79), and an agent's "...XidError: ... ErrorCode:79 ...".
_XID: Final = re.compile(
    r"\b(?P<kind>S?Xid)(?:Critical)?(?:[ _]?errors?)?(?:[ _]?(?:code|event))?[\s:=('\"#]{1,4}"
    r"(?P<code>\d{1,5})\b(?![.:-]\w)",
    re.IGNORECASE | re.ASCII,
)
_OF_XIDS: Final = re.compile(  # SysLogsXIDError is about Xids, for all its small s before them
    r"\w{0,60}?(?P<kind>S?X[Ii][Dd])\w{0,60}:", re.ASCII
)
_ERROR_CODE: Final = re.compile(r"\bErrorCode:\s?(?P<code>\d{1,5})\b", re.ASCII)
_OFF_BUS: Final = re.compile(r"fallen off the bus|\bgpu\b.{0,40}\b(?:is )?lost\b", re.IGNORECASE)
_OOM: Final = re.compile(r"victim process: (?P<name>[^,]{1,100}), pid: (?P<pid>\d{1,18})", re.ASCII)


def health_rows(words: str, *, node: str | None, ts: datetime | None) -> list[dict[str, Any]]:
    """What a message says about hardware.

    Args:
        words: Reason and message.
        node: Node it is about.
        ts: When it was so.

    Returns:
        Rows of raw/kernel_log without source and ingested_at, one per Xid or device named; none
        where it tells nothing of hardware.
    """
    line = cut(words)
    return [
        {
            "node": node,
            "ts": ts,
            "kind": event.kind,
            "code": event.code,
            "pci_bus_id": event.pci_bus_id,
            "pid": event.pid,
            "process": event.process,
            "line": line,
        }
        for event in dict.fromkeys(_events(line))
    ]


def _events(line: str) -> list[KernelEvent]:
    try:
        event = read_event(line)
    except UnreadableXidError:
        event = None
    if event is not None and event.kind in ("xid", "sxid"):
        return [event]
    coded = _coded(line)
    if coded:
        return coded
    if event is not None:
        return [event]
    victim = _OOM.search(line)
    if victim is not None:
        return [KernelEvent("oom", pid=int(victim["pid"]), process=victim["name"])]
    return [KernelEvent("off_bus", pci_bus_id=first_pci(line))] if _OFF_BUS.search(line) else []


def _coded(line: str) -> list[KernelEvent]:
    """Every code that the line names, each with the address that follows it."""
    of_xids = _OF_XIDS.match(line)
    found = list(_ERROR_CODE.finditer(line)) if of_xids else []
    found = found or list(_XID.finditer(line))
    events = []
    for at, code in enumerate(found):
        kind = code.groupdict().get("kind") or (of_xids["kind"] if of_xids else "xid")
        until = found[at + 1].start() if at + 1 < len(found) else len(line)
        address = first_pci(line[code.end() : until]) or first_pci(line)
        events.append(KernelEvent(kind.lower(), code=int(code["code"]), pci_bus_id=address))
    return events
