"""`nvidia-smi --query-gpu=... --format=csv` with its header: rows to `raw/gpu_telemetry`.

No command is run here; the XML report (`-q -x`) is read in `nvidia_smi_xml`.

A GPU that nvidia-smi has lost stands in the way of no other: its line becomes an `off_bus` event
in `raw/kernel_log`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from features.errors import SourceError
from pipelines.sources.files import decode, node_in_name, read_bytes, time_in_name
from pipelines.sources.local_time import to_utc, wall_clock, zone_of
from pipelines.sources.pci_address import canonical_pci
from pipelines.sources.result import ReadTally, SourceResult
from pipelines.sources.telemetry.gpu_identity import canonical_gpu_uuid
from pipelines.sources.telemetry.rows import TELEMETRY
from pipelines.sources.telemetry.smi_fields import (
    FAILED,
    FIRST_YEAR,
    LOST,
    METRIC_BY_FIELD,
    QUERY_FIELDS,
    smi_value,
)
from pipelines.sources.telemetry.smi_rows import SmiRows

SOURCE: Final = "nvidia_smi_csv"

_ALIASES: Final = {
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_name": "name",
    "gpu_serial": "serial",
}
_KNOWN_FIELDS: Final = {"timestamp", "uuid", "index", "name", "pci.bus_id", *METRIC_BY_FIELD}
_RANK: Final = {
    field.lower(): rank for fields in QUERY_FIELDS.values() for rank, field in enumerate(fields)
}
_TIMESTAMP: Final = re.compile(
    r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII
)


@dataclass(frozen=True)
class _Header:
    """Columns by field name, and the unit that the header states for each."""

    places: Mapping[str, int]
    units: Mapping[str, str]
    width: int
    text: str


def parse_nvidia_smi_csv(
    data: bytes | str,
    *,
    origin: str,
    time_zone: str,
    ingested_at: datetime,
    node: str | None = None,
    ts: datetime | None = None,
) -> SourceResult:
    """Reads the output of one or more query calls, one after the other.

    Args:
        data: The text; a header that comes again (appended output) is skipped.
        origin: File or address, for quarantine and counts.
        time_zone: Zone of the machine's clock, for nvidia-smi prints no offset.
        ingested_at: When it is read, UTC.
        node: Node the output is from.
        ts: When the query was made, UTC, for output without the field `timestamp`.

    Returns:
        `raw/gpu_telemetry`, `raw/inventory`, `raw/coverage`, and in `raw/kernel_log` one
        `off_bus` event per line about a lost GPU. Such a line has no time: the event takes that
        of the next row (else the last one), so that it may seem late but is never known before
        it happened.

    Raises:
        SourceError: There is no header with `uuid`, and with `timestamp` where `ts` is not
            given; or no such time zone.
    """
    zone = zone_of(time_zone, origin=origin)
    text = data if isinstance(data, str) else decode(data)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    reader = _Reader(
        ReadTally(table=TELEMETRY, source=SOURCE, origin=origin),
        SmiRows(SOURCE, origin=origin, node=node, ingested_at=ingested_at),
        zone=zone,
        ts=ts,
    )
    has_header = reader.read(lines, origin=origin)
    if not has_header and not reader.has_failed:
        _refuse_header(_cells(lines[0]) if lines else [], origin=origin, column="uuid")
    return reader.result()


def stream_nvidia_smi_csv(
    paths: Path | Iterable[Path], *, time_zone: str, ingested_at: datetime
) -> Iterator[SourceResult]:
    """Reads saved query output, one chunk per file.

    Args:
        paths: A file or files, each named after its node: `<node>.csv`, `<node>__<anything>.csv`,
            or with the time of the query, `<node>__2026-01-05T00-05-00Z.csv`.
        time_zone: Zone of the machines' clocks.
        ingested_at: When they are read, UTC.

    Yields:
        The outcome of each file.

    Raises:
        SourceError: A file cannot be read or has no usable header.
    """
    for path in [paths] if isinstance(paths, Path) else paths:
        yield parse_nvidia_smi_csv(
            read_bytes(path),
            origin=str(path),
            time_zone=time_zone,
            ingested_at=ingested_at,
            node=node_in_name(path),
            ts=time_in_name(path),
        )


class _Reader:
    """Takes lines into rows and lost-GPU events."""

    def __init__(
        self, tally: ReadTally, rows: SmiRows, *, zone: ZoneInfo, ts: datetime | None
    ) -> None:
        self._tally = tally
        self._rows = rows
        self._zone = zone
        self._ts = ts
        self.has_failed = False

    def read(self, lines: Sequence[str], *, origin: str) -> bool:
        """Takes all lines; whether a header was among them."""
        header: _Header | None = None
        self._tally.read(len(lines))
        for line in (line.strip() for line in lines):
            cells = _cells(line)
            if not line or (header is not None and line == header.text):
                self._tally.skipped()
            elif LOST.search(line) and (header is None or len(cells) != header.width):
                self._tally.parsed()
                self._rows.lose(line)
            elif FAILED.search(line):
                self.has_failed = True
                self._tally.quarantined("nvidia-smi itself could not work", line)
            elif not _KNOWN_FIELDS.isdisjoint(_field_names(cells)) and "uuid" in _field_names(
                cells
            ):
                header = _header(line, origin=origin, has_ts=self._ts is not None)
                self._tally.skipped()
            elif header is not None:
                self._take(line, cells, header=header)
            elif _KNOWN_FIELDS.isdisjoint(_field_names(cells)):
                self._tally.quarantined("comes before any header", line)
            else:
                _refuse_header(_field_names(cells), origin=origin, column="uuid")
        return header is not None

    def result(self) -> SourceResult:
        """What was taken."""
        return self._tally.result(self._rows.tables(default_ts=self._ts))

    def _take(self, line: str, cells: Sequence[str], *, header: _Header) -> None:
        """Takes one row; a field that cannot be read spoils only itself."""
        if len(cells) != header.width:
            self._tally.quarantined(f"{len(cells)} fields, the header has {header.width}", line)
            return
        place = header.places.get("timestamp")
        ts = self._ts if place is None else _timestamp(cells[place], self._zone)
        if ts is None:
            self._tally.quarantined("timestamp is not YYYY/MM/DD HH:MM:SS.mmm", line)
            return
        if ts.year < FIRST_YEAR:
            self._tally.quarantined(f"timestamp is before {FIRST_YEAR}", line)
            return
        self._rows.settle(ts)
        pci = canonical_pci(_cell(cells, header, "pci.bus_id"))
        if LOST.search(line):
            self._rows.emit(line, ts=ts, pci_bus_id=pci)
        gpu_uuid = canonical_gpu_uuid(_cell(cells, header, "uuid"))
        if gpu_uuid is None:
            if LOST.search(line):
                self._tally.parsed()
            else:
                self._tally.quarantined("uuid is unknown", line)
            return
        self._rows.touch(
            gpu_uuid,
            ts,
            index=_cell(cells, header, "index"),
            pci_bus_id=pci,
            model=_cell(cells, header, "name"),
        )
        broken = self._fill(cells, header=header, gpu=(gpu_uuid, ts))
        if broken:
            self._tally.quarantined(broken[0], line)
        else:
            self._tally.parsed()

    def _fill(
        self, cells: Sequence[str], *, header: _Header, gpu: tuple[str, datetime]
    ) -> list[str]:
        """Puts the values of a row; the rules that some of them break."""
        broken: list[str] = []
        filled: set[str] = set()
        fields = sorted(header.places.keys() & METRIC_BY_FIELD.keys(), key=_RANK.__getitem__)
        for field in fields:
            metric = METRIC_BY_FIELD[field]
            text = cells[header.places[field]]
            value = smi_value(text, metric, stated_unit=header.units[field])
            if isinstance(value, str):
                broken.append(f"{field} {value}")
            elif value is not None and metric.column not in filled:
                filled.add(metric.column)
                rule = self._rows.put(*gpu, metric=metric, value=value)
                broken += [rule] if rule else []
        return broken


def _cell(cells: Sequence[str], header: _Header, field: str) -> str:
    return cells[header.places[field]] if field in header.places else ""


def _header(line: str, *, origin: str, has_ts: bool) -> _Header:
    """Reads the header; a name may come with its unit in brackets."""
    cells = _cells(line)
    names = _field_names(cells)
    units = [cell.partition(" [")[2].rstrip("]") for cell in cells]
    if "timestamp" not in names and not has_ts:
        _refuse_header(names, origin=origin, column="timestamp")
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    return _Header(places, {name: units[at] for name, at in places.items()}, len(names), line)


def _cells(line: str) -> list[str]:
    """Fields of a line; nvidia-smi quotes nothing, and no field it prints holds a comma."""
    return [cell.strip() for cell in line.split(",")]


def _field_names(cells: Sequence[str]) -> list[str]:
    names = [cell.partition(" [")[0].strip().lower() for cell in cells]
    return [_ALIASES.get(name, name) for name in names]


def _refuse_header(names: Sequence[str], *, origin: str, column: str) -> None:
    near = get_close_matches(column, names, n=3)
    hint = f" (nearest: {', '.join(near)})" if near else ""
    raise SourceError(
        f"{origin}: column {column!r} is missing from the header. Found: "
        f"{', '.join(names) or '(no header)'}{hint}. Query with "
        f"--query-gpu=timestamp,index,uuid,... --format=csv and without noheader; or name the "
        f"file <node>__YYYY-MM-DDTHH-MM-SSZ.csv after the time (UTC) of the query."
    )


def _timestamp(cell: str, zone: ZoneInfo) -> datetime | None:
    found = _TIMESTAMP.fullmatch(cell)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[at]) for at in range(1, 7))
    micros = int((found[7] or "").ljust(6, "0"))
    local = wall_clock((year, month, day), (hour, minute, second), micros=micros)
    return None if local is None else to_utc(local, zone)
