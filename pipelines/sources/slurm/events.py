"""Text of `sacctmgr list event -P`: slurmdbd's record of when nodes were down or drained.

A look at the nodes now is in `slurm.nodes`; what the states mean in `features.scheduler_states`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from features.errors import SourceError
from features.raw_tables import RAW_NODE_STATES
from pipelines.sources.files import decode
from pipelines.sources.local_time import zone_of
from pipelines.sources.result import SourceResult
from pipelines.sources.slurm.fields import NO_VALUE, RefusedError, moment, node_names
from pipelines.sources.slurm.sightings import SlurmRows, user_name
from pipelines.sources.slurm.torn_lines import join_torn

_NEEDED: Final = ("NodeName", "TimeStart", "TimeEnd", "State")
_BACK: Final = "UP"


def parse_events(
    data: bytes, *, origin: str, time_zone: str | None, ingested_at: datetime
) -> SourceResult:
    """Reads `sacctmgr list event -P`.

    An event is an interval with exact bounds. Where it ended the node came back, which is a row
    of its own (state UP, open): it lasts until something else is known.

    Args:
        data: The text, with its header.
        origin: File or command.
        time_zone: Zone of its clock; None: times are seconds since the epoch.
        ingested_at: When it is read, UTC.

    Returns:
        `raw/node_states`. Events of the whole cluster and those without length (Slurm writes one
        when it starts) are skipped.

    Raises:
        SourceError: It is no list of events, or its times are ambiguous.
    """
    zone = zone_of(time_zone, origin=origin) if time_zone is not None else None
    lines = decode(data).split("\n")
    header = lines[0].removesuffix("\r")
    names = header.split("|")
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise SourceError(
            f"{origin}: this is no output of sacctmgr list event -P: column {missing[0]} is "
            f"missing from its first line. Found: {header[:120]!r}. Run: sacctmgr -P list event "
            f"start=2026-01-01"
        )
    rows = SlurmRows("sacctmgr", origin, ingested_at, RAW_NODE_STATES.asset_key)
    if not lines[-1]:
        lines.pop()
    rows.tally.read(len(lines))
    rows.tally.skipped(bool(lines))  # the header
    body = [line.removesuffix("\r") for line in lines[1:]]
    for record in join_torn(body, delimiter="|", width=len(names)):
        n_lines = record.count("\n") + 1
        if not record.strip() or record == header:
            rows.tally.skipped(n_lines)
            continue
        try:
            found = _event(_fields(record, names), zone)
        except RefusedError as refused:
            rows.tally.quarantined(str(refused), record, count=n_lines)
            continue
        rows.states += found
        rows.tally.parsed(n_lines if found else 0)
        rows.tally.skipped(0 if found else n_lines)
    return rows.result()


def _fields(record: str, names: list[str]) -> Mapping[str, str]:
    """Column -> value; only a reason can hold the delimiter."""
    values = record.split("|")
    surplus = len(values) - len(names)
    if surplus > 0 and "Reason" in names:
        at = names.index("Reason")
        values[at : at + surplus + 1] = ["|".join(values[at : at + surplus + 1])]
        surplus = 0
    if surplus:
        raise RefusedError(f"{len(names)} columns expected")
    return dict(zip(names, values, strict=True))


def _event(fields: Mapping[str, str], zone: ZoneInfo | None) -> list[dict[str, Any]]:
    """The rows of an event; none where it is about no node or about no time."""
    start = moment("TimeStart", fields["TimeStart"], zone)
    end = moment("TimeEnd", fields["TimeEnd"], zone)
    nodes = node_names(fields["NodeName"])
    if nodes is None or (start is not None and start == end):
        return []
    if start is None:
        raise RefusedError("an event without a start")
    if end is not None and end < start:
        raise RefusedError("an event that ends before it starts")
    state = fields["State"].strip()
    if not state:
        raise RefusedError("an event of a node without a state")
    reason, actor = fields.get("Reason", "").strip(), user_name(fields.get("User", ""))
    rows: list[dict[str, Any]] = []
    for node in nodes:
        about = {"node": node, "actor": actor}
        rows.append(
            about
            | {"state": state, "reason": None if reason in NO_VALUE else reason}
            | {"valid_from": start, "valid_to": end}
        )
        if end is not None:
            rows.append({"node": node, "state": _BACK, "valid_from": end, "valid_to": None})
    return rows
