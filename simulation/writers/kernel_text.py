"""Writes kernel logs as text, in the forms that different sites and tools give them.

What the kernel says is in `simulation.fleet.kernel_lines`.
"""

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from simulation.fleet.events import NodeEvents
from simulation.fleet.hardware import Node
from simulation.fleet.kernel_lines import KernelLine
from simulation.fleet.regime import Regime
from simulation.fleet.regime_site import LogForm

DATED_WITHOUT_YEAR_D: Final = 360
"""Longest record whose lines can be dated by month and day, in days."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

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


def _iso_uptime(at: datetime, host: str, uptime_s: float, text: str) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 {host} kernel: [{uptime_s:13.6f}] {text}"


def _dmesg_ctime(at: datetime, host: str, uptime_s: float, text: str) -> str:  # noqa: ARG001
    day = f"{at:%a %b} {at.day:2d}"
    return f"[{day} {at:%H:%M:%S %Y}] {text}"


def _dmesg_iso(at: datetime, host: str, uptime_s: float, text: str) -> str:  # noqa: ARG001
    level = "warn" if "Xid" in text else "info"
    return f"kern  :{level:<6}: {at:%Y-%m-%dT%H:%M:%S},{at.microsecond:06d}+00:00 {text}"


def _iso(at: datetime, host: str, uptime_s: float, text: str) -> str:  # noqa: ARG001
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 {host} kernel: {text}"


def _rfc3164(at: datetime, host: str, uptime_s: float, text: str) -> str:
    return f"{at:%b} {at.day:2d} {at:%H:%M:%S} {host} kernel: [{uptime_s:13.6f}] {text}"


def _journald(at: datetime, host: str, uptime_s: float, text: str) -> str:
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    entry = {
        "__REALTIME_TIMESTAMP": str(micros),
        "__MONOTONIC_TIMESTAMP": str(round(uptime_s * 1e6)),
        "_HOSTNAME": host,
        "_TRANSPORT": "kernel",
        "SYSLOG_IDENTIFIER": "kernel",
        "PRIORITY": "4",
        "MESSAGE": text,
    }
    return json.dumps(entry)


FORMS: Final[dict[LogForm, Callable[[datetime, str, float, str], str]]] = {
    "iso_uptime": _iso_uptime,
    "dmesg_ctime": _dmesg_ctime,
    "dmesg_iso": _dmesg_iso,
    "iso": _iso,
    "rfc3164": _rfc3164,
    "journald": _journald,
}
"""rsyslog with uptime, `dmesg -T`, `dmesg --decode --time-format=iso`, rsyslog without uptime, the
old syslog form without a year, and `journalctl -o json`."""

NAMES_HOST: Final[tuple[LogForm, ...]] = ("iso_uptime", "iso", "rfc3164", "journald")
"""Forms that a log host can collect from many nodes into one file."""


def write_node_log(
    node: Node, events: NodeEvents, folder: Path, *, regime: Regime, n_bad: int
) -> dict[Path, int]:
    """Writes one node's log; the form follows from the node's index.

    Args:
        node: The node.
        events: What happened on it.
        folder: Folder to write to; the file is named after the node.
        regime: The fleet's parameters.
        n_bad: Broken lines to put in.

    Returns:
        The file with the number of bad lines in it.
    """
    forms = _forms(regime)
    lines = _rendered(node, events, regime, form=forms[node.index % len(forms)], n_bad=n_bad)
    path = folder / f"{node.name}.log"
    _write(path, [text for _, text in lines], regime=regime)
    return {path: n_bad if events.lines else 0}


def write_collected_log(
    nodes: Sequence[tuple[Node, NodeEvents]], path: Path, *, regime: Regime, n_bad: int
) -> dict[Path, int]:
    """Writes the log of a log host that collects from many nodes, by time.

    Args:
        nodes: The nodes and what happened on them.
        path: File to write; its form follows from the first node's index.
        regime: The fleet's parameters.
        n_bad: Broken lines to put in.

    Returns:
        The file with the number of bad lines in it.
    """
    forms = [form for form in _forms(regime) if form in NAMES_HOST] or ["iso"]
    form = forms[nodes[0][0].index // max(1, len(nodes)) % len(forms)]
    lines: list[tuple[float, str]] = []
    bad = 0
    for node, events in nodes:
        own_bad = n_bad if not bad and events.lines else 0
        lines += _rendered(node, events, regime, form=form, n_bad=own_bad)
        bad += own_bad
    lines.sort(key=lambda line: line[0])
    _write(path, [text for _, text in lines], regime=regime)
    return {path: bad}


def _forms(regime: Regime) -> Sequence[LogForm]:
    """The site's forms; over more than a year none tells the time that does not give the year."""
    is_long = regime.days > DATED_WITHOUT_YEAR_D
    return ["iso" if form == "rfc3164" and is_long else form for form in regime.logs.forms]


def _rendered(
    node: Node, events: NodeEvents, regime: Regime, *, form: LogForm, n_bad: int
) -> list[tuple[float, str]]:
    """A node's lines with their times; some broken ones follow lines of the same moment."""
    render = FORMS[form]
    buses = regime.hardware.pci_buses
    names_process = not is_nameless(regime, node)
    cut_after = set(_spread(n_bad, len(events.lines)))
    rendered = []
    for number, line in enumerate(events.lines):
        at = regime.start + timedelta(microseconds=round(line.at_s * 1e6))
        bus = None if line.slot is None else buses[line.slot]
        texts = [message(line, bus=bus, names_process=names_process)]
        texts += [_CUT_OFF] if number in cut_after else []
        uptime_s = _uptime(line.at_s, node, events)
        rendered += [(line.at_s, render(at, node.name, uptime_s, text)) for text in texts]
    return rendered


def is_nameless(regime: Regime, node: Node) -> bool:
    """Whether the node's driver names no process in an Xid line, evenly spread over the fleet."""
    share = regime.logs.nameless_share
    return int((node.index + 1) * share) > int(node.index * share)


def _write(path: Path, lines: Sequence[str], *, regime: Regime) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    # Lines without a year are dated by when their file was last written.
    ended = (regime.start + timedelta(days=regime.days)).timestamp()
    os.utime(path, (ended, ended))


def _uptime(at_s: float, node: Node, events: NodeEvents) -> float:
    """Seconds since the last boot; a boot's own lines come in the minute before it is done."""
    booted = [boot.up_s - 60.0 for boot in events.boots if boot.up_s - 60 <= at_s]
    return at_s - booted[-1] if booted else at_s + node.up_before_s


def _spread(count: int, length: int) -> Sequence[int]:
    """Places of `count` lines among `length`, evenly."""
    return [length * (i + 1) // (count + 1) for i in range(count if length else 0)]
