"""Text of `scontrol show node` and `sinfo` to `raw/node_states`: what a look at the nodes says.

The JSON forms are in `slurm.json_documents`, the record of past outages in `slurm.events`.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final
from zoneinfo import ZoneInfo

from features.errors import SourceError
from features.raw_tables import RAW_NODE_STATES
from pipelines.sources.files import decode
from pipelines.sources.local_time import zone_of
from pipelines.sources.result import SourceResult
from pipelines.sources.slurm.fields import RefusedError, moment, node_names
from pipelines.sources.slurm.sightings import SlurmRows, sighting_rows

_RECORD: Final = re.compile(r"^(?=NodeName=)", re.MULTILINE)
_NAME: Final = re.compile(r"NodeName=(\S+)")
_STATE: Final = re.compile(r"(?:^|\s)State=(\S+)")
_REASON: Final = re.compile(r"(?:^|\s)Reason=(.*?)\s\[([^\[\]@\s]+)@([^\]\s]+)\]", re.DOTALL)
_PLAIN_REASON: Final = re.compile(r"(?:^|\s)Reason=([^\n]*)")

_NODE_COLUMNS: Final = ("NODELIST", "HOSTNAMES", "NODEHOST", "NODE", "NODENAME", "NODES_LIST")
_STATE_COLUMNS: Final = ("STATECOMPLETE", "STATELONG", "STATE", "STATECOMPACT")
_KNOWN_COLUMNS: Final = (*_NODE_COLUMNS, *_STATE_COLUMNS, "REASON", "TIMESTAMP", "USER")


def parse_scontrol_nodes(
    data: bytes,
    *,
    origin: str,
    seen_at: datetime,
    time_zone: str | None,
    ingested_at: datetime,
    site: str = "site",
    every_s: float | None = None,
) -> SourceResult:
    """Reads `scontrol show node`, with or without `-o`.

    Args:
        data: The text.
        origin: File or command.
        seen_at: When the command ran.
        time_zone: Zone of its clock; None: times are seconds since the epoch.
        ingested_at: When it is read, UTC.
        site: Name of the site, for its coverage.
        every_s: How often it is asked for, where that is known.

    Returns:
        `raw/node_states`, `raw/coverage`. A record is a node.

    Raises:
        SourceError: It is no output of scontrol, or its times are ambiguous.
    """
    zone = zone_of(time_zone, origin=origin) if time_zone is not None else None
    head, *records = _RECORD.split(decode(data).replace("\r\n", "\n"))
    if not records:
        raise SourceError(
            f"{origin}: this is no output of scontrol show node: no line begins with NodeName=. "
            f"It begins with {head.strip()[:60]!r}. Run: scontrol -o show node"
        )
    rows = SlurmRows("scontrol", origin, ingested_at, RAW_NODE_STATES.asset_key)
    if head.strip():
        rows.tally.read()
        rows.tally.quarantined("text before the first node", head.strip())
    for record in records:
        rows.tally.read()
        try:
            rows.states += _node(record, zone, seen_at)
            rows.tally.parsed()
        except RefusedError as refused:
            rows.tally.quarantined(str(refused), record)
    rows.sees(site, seen_at, every_s=every_s)
    return rows.result()


def _node(record: str, zone: ZoneInfo | None, seen_at: datetime) -> list[dict[str, Any]]:
    name, state = _NAME.match(record), _STATE.search(record)
    if name is None or state is None:
        raise RefusedError("a node without a name or a state")
    found = _REASON.search(record)
    if found is None:
        plain = _PLAIN_REASON.search(record)
        return sighting_rows(name[1], state[1], reason=plain and plain[1], seen_at=seen_at)
    return sighting_rows(
        name[1],
        state[1],
        reason=" ".join(found[1].split()),
        actor=found[2],
        since=moment("Reason", found[3], zone),
        seen_at=seen_at,
    )


def parse_sinfo(
    data: bytes,
    *,
    origin: str,
    seen_at: datetime,
    time_zone: str | None,
    ingested_at: datetime,
    site: str = "site",
    every_s: float | None = None,
    columns: Sequence[str] | None = None,
) -> SourceResult:
    """Reads the text of `sinfo`: columns between `|`, or the usual table.

    Args:
        data: The text.
        origin: File or command.
        seen_at: When the command ran.
        time_zone: Zone of its clock; None: times are seconds since the epoch.
        ingested_at: When it is read, UTC.
        site: Name of the site, for its coverage.
        every_s: How often it is asked for, where that is known.
        columns: Column names of output without a header (`--noheader`), in sinfo's spelling:
            NODELIST, STATE, REASON, TIMESTAMP, USER; others are not used.

    Returns:
        `raw/node_states`, `raw/coverage`. A record is a line; a node that stands in several
        partitions is taken once.

    Raises:
        SourceError: There is no column with nodes or states, or times are ambiguous.
    """
    zone = zone_of(time_zone, origin=origin) if time_zone is not None else None
    lines = [line for line in decode(data).splitlines() if line.strip()]
    table = _Table(lines, columns, origin=origin)
    rows = SlurmRows("sinfo", origin, ingested_at, RAW_NODE_STATES.asset_key)
    rows.tally.read(len(lines))
    rows.tally.skipped(len(lines) - len(table.body))
    known: set[tuple[str, str]] = set()
    for line in table.body:
        try:
            fields = table.fields(line)
            nodes = node_names(fields["node"]) or [""]  # which is refused below
            new = [node for node in nodes if (node, fields["state"]) not in known]
            since = moment("TIMESTAMP", fields.get("TIMESTAMP", ""), zone)
            for node in new:
                rows.states += sighting_rows(
                    node,
                    fields["state"],
                    reason=fields.get("REASON"),
                    actor=fields.get("USER"),
                    since=since,
                    seen_at=seen_at,
                )
            known.update((node, fields["state"]) for node in new)
            rows.tally.parsed(bool(new))
            rows.tally.skipped(not new)
        except RefusedError as refused:
            rows.tally.quarantined(str(refused), line)
    rows.sees(site, seen_at, every_s=every_s)
    return rows.result()


def _is_header(line: str) -> bool:
    words = {word.strip().upper() for word in re.split(r"[|\s]+", line)}
    return not words.isdisjoint(_NODE_COLUMNS) and not words.isdisjoint(_STATE_COLUMNS)


class _Table:
    """Where the columns of sinfo's output are."""

    def __init__(self, lines: list[str], columns: Sequence[str] | None, *, origin: str) -> None:
        # `sinfo -l` prints the date above its columns.
        header = next((line for line in lines[:2] if _is_header(line)), lines[0] if lines else "")
        self._delimiter = "|" if "|" in header else None
        given = columns if columns is not None else header.split(self._delimiter)
        # Both STATE and STATELONG print the heading STATE: of repeats the first is taken.
        self._names = [name.strip().upper() for name in given]
        above = lines.index(header) if header else 0
        self.body = lines if columns is not None else [x for x in lines[above:] if x != header]
        self._node = self._place(_NODE_COLUMNS, origin)
        self._state = self._place(_STATE_COLUMNS, origin)

    def _place(self, wanted: Sequence[str], origin: str) -> int:
        for name in wanted:
            if name in self._names:
                return self._names.index(name)
        near = [x for name in self._names for x in get_close_matches(name, _KNOWN_COLUMNS, n=1)]
        hint = f" Close to it: {', '.join(near)}." if near else ""
        raise SourceError(
            f"{origin}: this is no output of sinfo: none of the columns {', '.join(wanted)} is "
            f"there. Found: {', '.join(self._names[:20])[:200]}.{hint} Run: sinfo -N -o "
            f"'%N|%T|%H|%U|%E', or list the columns of output without a header."
        )

    def fields(self, line: str) -> dict[str, str]:
        """Node, state and the other columns of a line."""
        values = line.split(self._delimiter)
        surplus = len(values) - len(self._names)
        if surplus and self._delimiter and not values[-1].strip():
            values.pop()  # --Format with | behind each field closes the line with it
            surplus -= 1
        if surplus > 0 and self._names.count("REASON") == 1:
            at = self._names.index("REASON")
            whole = (self._delimiter or " ").join(values[at : at + surplus + 1])
            values[at : at + surplus + 1] = [whole]
            surplus = 0
        if surplus:
            raise RefusedError(f"{len(self._names)} columns expected")
        by_name = {name: values[at].strip() for at, name in reversed([*enumerate(self._names)])}
        return by_name | {"node": values[self._node].strip(), "state": values[self._state].strip()}
