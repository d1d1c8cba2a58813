"""Where Slurm's nodes stand and when they are reserved for work on them: topology, reservations.

States of nodes are in `slurm.nodes`.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from features.errors import DataError, SourceError
from features.hostlist import expand_hostlist
from features.tables import CORE_MAINTENANCE, CORE_TOPOLOGY
from pipelines.sources.files import decode
from pipelines.sources.local_time import zone_of
from pipelines.sources.result import SourceResult
from pipelines.sources.slurm.fields import RefusedError, duration, moment, node_names
from pipelines.sources.slurm.sightings import SlurmRows

_RESERVATION: Final = re.compile(r"^(?=ReservationName=)", re.MULTILINE)
_PAIR: Final = re.compile(r"(?:^|(?<=\s))([A-Za-z][A-Za-z0-9_]*)=(\S*)")
_CONTINUED: Final = re.compile(r"\\\s*\n")
_SWITCH: Final = re.compile(r"\s*(?:SwitchName|BlockName)=", re.IGNORECASE)


def parse_reservations(
    data: bytes, *, origin: str, time_zone: str | None, ingested_at: datetime
) -> SourceResult:
    """Reads `scontrol show reservation`, with or without `-o`.

    Args:
        data: The text.
        origin: File or command.
        time_zone: Zone of its clock; None: times are seconds since the epoch.
        ingested_at: When it is read, UTC.

    Returns:
        `core/maintenance` of reservations with the flag MAINT; the others are skipped.

    Raises:
        SourceError: It is no list of reservations, or its times are ambiguous.
    """
    zone = zone_of(time_zone, origin=origin) if time_zone is not None else None
    rows = SlurmRows("scontrol", origin, ingested_at, CORE_MAINTENANCE.asset_key)
    head, *records = _RESERVATION.split(decode(data).replace("\r\n", "\n"))
    if head.strip() and not head.startswith("No reservations"):
        raise SourceError(
            f"{origin}: this is no output of scontrol show reservation: it begins with "
            f"{head.strip()[:60]!r}. Run: scontrol -o show reservation"
        )
    for record in records:
        fields = dict(_PAIR.findall(record))
        start, end = fields.get("StartTime", ""), fields.get("EndTime", "")
        rows.tally.read()
        try:
            ends = moment("EndTime", end, zone)
            starts = moment("StartTime", start, zone)
            length = duration(fields.get("Duration", ""))
            if ends is None and starts is not None and length is not None:
                ends = starts + length
            found = maintenance_rows(
                fields["ReservationName"],
                flags=fields.get("Flags", "").split(","),
                nodes=node_names(fields.get("Nodes", "")),
                span=(starts, ends),
            )
        except (RefusedError, OverflowError) as refused:
            rows.tally.quarantined(str(refused), record)
            continue
        rows.maintenance += found
        rows.tally.parsed(bool(found))
        rows.tally.skipped(not found)
    return rows.result()


def maintenance_rows(
    name: str,
    *,
    flags: Iterable[str],
    nodes: list[str] | None,
    span: tuple[datetime | None, datetime | None],
) -> list[dict[str, Any]]:
    """Rows of `core/maintenance` of a reservation; none where it is not for maintenance.

    Args:
        name: The reservation.
        flags: Its flags.
        nodes: Its nodes.
        span: Start and end.

    Raises:
        RefusedError: It has no start, or ends before it.
    """
    if "MAINT" not in {flag.strip().upper() for flag in flags} or not nodes:
        return []
    start, end = span
    if start is None:
        raise RefusedError("a reservation without a start")
    if end is not None and end < start:
        raise RefusedError("a reservation that ends before it starts")
    reason = f"reservation {name}"
    return [
        {"node": node, "start": start, "end": end, "kind": "maintenance", "reason": reason}
        for node in nodes
    ]


def parse_topology(data: bytes, *, origin: str, ingested_at: datetime) -> SourceResult:
    """Reads `scontrol show topology` or a `topology.conf`.

    Args:
        data: The text.
        origin: File or command.
        ingested_at: When it is read, UTC.

    Returns:
        `core/topology`: for each node its leaf switch at level `switch`, and the switches above
        it at `switch_1`, `switch_2`, ...; a block (topology/block) is level `block`. Whether a
        node always stood there is not known, so the rows have no bounds.

    Raises:
        SourceError: It holds neither switches nor blocks.
    """
    rows = SlurmRows("scontrol", origin, ingested_at, CORE_TOPOLOGY.asset_key)
    text = _CONTINUED.sub(" ", decode(data).replace("\r\n", "\n"))
    lines = [line for line in text.split("\n") if line.strip()]
    switches: list[dict[str, str]] = []
    rows.tally.read(len(lines))
    for line in lines:
        if _SWITCH.match(line) is None:
            rows.tally.skipped()  # comments, BlockSizes
            continue
        try:
            fields = {key.lower(): value for key, value in _PAIR.findall(line.split("#")[0])}
            expand_hostlist(fields.get("nodes") or "none")
            expand_hostlist(fields.get("switches") or "none")
        except DataError:
            rows.tally.quarantined("a switch whose nodes are no hostlist", line)
            continue
        switches.append(fields)
        rows.tally.parsed()
    if lines and not switches:
        raise SourceError(
            f"{origin}: neither SwitchName= nor BlockName= begins a line. It begins with "
            f"{lines[0].strip()[:60]!r}. Give a topology.conf or the output of: scontrol show "
            f"topology"
        )
    rows.topology = [
        {"node": node, "level": level, "place": place}
        for node, level, place in sorted(set(_places(switches)))
    ]
    return rows.result()


def _places(switches: list[dict[str, str]]) -> Iterator[tuple[str, str, str]]:
    above: dict[str, str] = {}
    for fields in switches:
        if fields.get("switches"):
            for below in expand_hostlist(fields["switches"]):
                above.setdefault(below, fields.get("switchname", ""))
    for fields in switches:
        # scontrol lists under an upper switch the nodes below it too: only leaves count.
        if not fields.get("nodes") or fields.get("switches"):
            continue
        block, switch = fields.get("blockname"), fields.get("switchname")
        places = [("block", block)] if block else _upwards(switch or "", above)
        for node in expand_hostlist(fields["nodes"]):
            for level, place in places:
                yield node, level, place


def _upwards(switch: str, above: dict[str, str]) -> list[tuple[str, str]]:
    """The leaf switch and those above it; a circle is gone round once."""
    places, height = [("switch", switch)], 0
    while (upper := above.get(places[-1][1])) and upper not in {place for _, place in places}:
        height += 1
        places.append((f"switch_{height}", upper))
    return places
