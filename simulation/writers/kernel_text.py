"""Writes kernel logs as text, in the forms that different sites and tools give them.

What the kernel says is in `simulation.fleet.kernel_lines`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from simulation.fleet.events import NodeEvents
from simulation.fleet.kernel_lines import KernelLine
from simulation.fleet.regime import Regime

_UP_BEFORE_START_S: Final = 21 * 86400.0
"""How long nodes had been up when the record began."""

_CUT_OFF: Final = "NVRM: Xid (PCI:0000:"
"""A line cut off while it was written: an Xid without a code."""


def message(line: KernelLine, *, bus: str | None, names_process: bool) -> str:
    """The message as the driver prints it.

    Args:
        line: The line.
        bus: PCI bus of the GPU.
        names_process: Whether this driver release names the process.

    Returns:
        One line of text, without time and host.
    """
    if line.code is None:
        return line.text
    head = f"NVRM: Xid (PCI:0000:{bus}:00): {line.code}, "
    if not names_process:
        return head + line.text
    if line.process is None:
        return f"{head}pid='<unknown>', name=<unknown>, {line.text}"
    return f"{head}pid={line.process[0]}, name={line.process[1]}, {line.text}"


def _iso_syslog(at: datetime, host: str, uptime_s: float, text: str) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 {host} kernel: [{uptime_s:13.6f}] {text}"


def _dmesg_ctime(at: datetime, host: str, uptime_s: float, text: str) -> str:  # noqa: ARG001
    day = f"{at:%a %b} {at.day:2d}"
    return f"[{day} {at:%H:%M:%S %Y}] {text}"


def _dmesg_iso(at: datetime, host: str, uptime_s: float, text: str) -> str:  # noqa: ARG001
    level = "warn" if "Xid" in text else "info"
    return f"kern  :{level:<6}: {at:%Y-%m-%dT%H:%M:%S},{at.microsecond:06d}+00:00 {text}"


def _iso_plain(at: datetime, host: str, uptime_s: float, text: str) -> str:  # noqa: ARG001
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 {host} kernel: {text}"


FORMS: Final[tuple[Callable[[datetime, str, float, str], str], ...]] = (
    _iso_syslog,
    _dmesg_ctime,
    _dmesg_iso,
    _iso_plain,
)
"""rsyslog with uptime, `dmesg -T`, `dmesg --decode --time-format=iso`, rsyslog without uptime."""


def write_kernel_log(
    events: NodeEvents,
    path: Path,
    *,
    regime: Regime,
    index: int,
    n_bad: int,
) -> dict[Path, int]:
    """Writes one node's log; the form follows from the node's index.

    Args:
        events: What happened on the node.
        path: File to write, named after the node.
        regime: The fleet's parameters.
        index: The node's index.
        n_bad: Broken lines to put in.

    Returns:
        The file with the number of bad lines in it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    form = FORMS[index % len(FORMS)]
    names_process = index % 5 != 4  # every fifth node has a driver of the older kind
    buses = regime.hardware.pci_buses
    rendered = []
    for line in events.lines:
        at = regime.start + timedelta(microseconds=round(line.at_s * 1e6))
        bus = None if line.slot is None else buses[line.slot]
        text = message(line, bus=bus, names_process=names_process)
        rendered.append(form(at, path.stem, _uptime(line.at_s, events), text))
    for i in _spread(n_bad, len(rendered)):
        at = regime.start + timedelta(microseconds=round(events.lines[i].at_s * 1e6))
        rendered[i] += "\n" + form(at, path.stem, _uptime(events.lines[i].at_s, events), _CUT_OFF)
    path.write_text("\n".join(rendered) + "\n", encoding="utf-8", newline="\n")
    return {path: n_bad if rendered else 0}


def _uptime(at_s: float, events: NodeEvents) -> float:
    """Seconds since the last boot; a boot's own lines come in the minute before it is done."""
    booted = [boot.up_s - 60.0 for boot in events.boots if boot.up_s - 60 <= at_s]
    return at_s - booted[-1] if booted else at_s + _UP_BEFORE_START_S


def _spread(count: int, length: int) -> Sequence[int]:
    """Places of `count` lines among `length`, evenly."""
    return [length * (i + 1) // (count + 1) for i in range(count if length else 0)]
