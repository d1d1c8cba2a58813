"""`nvidia-smi --query-gpu=... --format=csv` with its header: rows to `raw/gpu_telemetry`.

No command is run here, and the XML report (`-q -x`) is another format.

A GPU that nvidia-smi has lost stands in the way of no other: its line becomes an `off_bus` event
in `raw/kernel_log`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from features.errors import SourceError
from features.raw_tables import RAW_KERNEL_LOG
from features.telemetry_metrics import METRIC_BY_COLUMN
from pipelines.sources.dcgm_fields import is_blank
from pipelines.sources.files import decode, node_in_name, read_bytes
from pipelines.sources.local_time import to_utc, wall_clock, zone_of
from pipelines.sources.pci_address import canonical_pci, first_pci
from pipelines.sources.result import ReadTally, SourceResult, as_table, merge
from pipelines.sources.telemetry_rows import TELEMETRY, TelemetryRows

SOURCE: Final = "nvidia_smi_csv"

_ALIASES: Final = {
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.current.mem": "clocks.current.memory",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
}
_METRIC_BY_FIELD: Final = {
    "temperature.gpu": "gpu_temp_c",
    "temperature.memory": "memory_temp_c",
    "power.draw": "power_w",
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.current.memory": "memory_clock_mhz",
    "utilization.gpu": "gpu_util_pct",
    "utilization.memory": "memory_util_pct",
    "memory.used": "fb_used_mib",
    "memory.free": "fb_free_mib",
    "ecc.errors.corrected.volatile.total": "ecc_sbe_volatile",
    "ecc.errors.uncorrected.volatile.total": "ecc_dbe_volatile",
    "ecc.errors.corrected.aggregate.total": "ecc_sbe_aggregate",
    "ecc.errors.uncorrected.aggregate.total": "ecc_dbe_aggregate",
    "remapped_rows.correctable": "remapped_rows_correctable",
    "remapped_rows.uncorrectable": "remapped_rows_uncorrectable",
    "remapped_rows.failure": "row_remap_failure",
    "remapped_rows.pending": "row_remap_pending",
    "clocks_event_reasons.active": "clock_event_reasons",
}
"""Query fields of `nvidia-smi --help-query-gpu` (and the remapped-rows query) by our columns."""

_KNOWN_FIELDS: Final = {"timestamp", "uuid", "index", "name", "pci.bus_id", *_METRIC_BY_FIELD}

_UNKNOWN: Final = re.compile(
    r"\[?(?:n/?a|not supported|unknown error|gpu is lost|insufficient permissions|"
    r"not found|requested functionality has been deprecated)\]?|err!|",
    re.IGNORECASE,
)
_LOST: Final = re.compile(
    r"gpu is lost|unable to determine the device handle|fallen off the bus", re.IGNORECASE
)
_TIMESTAMP: Final = re.compile(
    r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII
)
_NUMBER: Final = re.compile(r"(?P<number>[+-]?\d+(?:\.\d+)?)(?: ?(?P<unit>\S+))?", re.ASCII)
_HEX: Final = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII | re.IGNORECASE)
_FLAGS: Final = {"yes": 1.0, "no": 0.0, "active": 1.0, "not active": 0.0}
_UNIT_SCALES: Final = {"mw": 1e-3, "kib": 1 / 1024, "gib": 1024.0, "khz": 1e-3, "ghz": 1e3}


@dataclass(frozen=True)
class _Header:
    """Columns by field name, and the unit that the header states for each."""

    places: Mapping[str, int]
    units: Mapping[str, str]
    width: int
    text: str


@dataclass(frozen=True)
class _Lost:
    """A GPU that nvidia-smi could not reach."""

    line: str
    pci_bus_id: str | None
    after: datetime | None  # the last time seen before the line


def parse_nvidia_smi_csv(
    data: bytes | str,
    *,
    origin: str,
    time_zone: str,
    ingested_at: datetime,
    node: str | None = None,
) -> SourceResult:
    """Reads the output of one or more query calls, one after the other.

    Args:
        data: The text; a header that comes again (appended output) is skipped.
        origin: File or address, for quarantine and counts.
        time_zone: Zone of the machine's clock; nvidia-smi prints no offset.
        ingested_at: When it is read, UTC.
        node: Node the output is from.

    Returns:
        `raw/gpu_telemetry`, and in `raw/kernel_log` one `off_bus` event per line about a lost
        GPU. Such a line has no time: the event takes that of the next row (else the last one),
        so that it may seem late but is never known before it happened.

    Raises:
        SourceError: There is no header with `timestamp` and `uuid`, or no such time zone.
    """
    zone = zone_of(time_zone, origin=origin)
    text = data if isinstance(data, str) else decode(data)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    tally = ReadTally(table=TELEMETRY, source=SOURCE, origin=origin)
    tally.read(len(lines))
    reader = _Reader(
        tally, TelemetryRows(SOURCE, ingested_at), zone=zone, node=node, ingested_at=ingested_at
    )
    header: _Header | None = None
    for line in (line.strip() for line in lines):
        cells = _cells(line)
        if not line or (header is not None and line == header.text):
            tally.skipped()
        elif _LOST.search(line) and (header is None or len(cells) != header.width):
            reader.lose(line)
        elif header is not None:
            reader.take(line, cells, header=header)
        elif _KNOWN_FIELDS.isdisjoint(_field_names(cells)):
            tally.quarantined("comes before any header", line)
        else:
            header = _header(line, origin=origin)
            tally.skipped()
    if header is None:
        _refuse_header(_cells(lines[0]) if lines else [], origin=origin, column="uuid")
    return tally.result({TELEMETRY: reader.rows.frame(), **reader.lost_gpus()})


def read_nvidia_smi_csv(
    paths: Iterable[Path], *, time_zone: str, ingested_at: datetime
) -> SourceResult:
    """Reads saved query output.

    Args:
        paths: Files, each named after its node: `<node>.csv` or `<node>__<anything>.csv`.
        time_zone: Zone of the machines' clocks.
        ingested_at: When they are read, UTC.

    Returns:
        `raw/gpu_telemetry` and `raw/kernel_log` of all files.

    Raises:
        SourceError: A file cannot be read or has no usable header.
    """
    return merge(
        parse_nvidia_smi_csv(
            read_bytes(path),
            origin=str(path),
            time_zone=time_zone,
            ingested_at=ingested_at,
            node=node_in_name(path),
        )
        for path in paths
    )


class _Reader:
    """Takes the lines after the header into rows and lost-GPU events."""

    def __init__(
        self,
        tally: ReadTally,
        rows: TelemetryRows,
        *,
        zone: ZoneInfo,
        node: str | None,
        ingested_at: datetime,
    ) -> None:
        self.rows = rows
        self._tally = tally
        self._zone = zone
        self._node = node
        self._ingested_at = ingested_at
        self._last_ts: datetime | None = None
        self._waiting: list[_Lost] = []
        self._events: list[dict[str, Any]] = []

    def take(self, line: str, cells: Sequence[str], *, header: _Header) -> None:
        """Takes one row; a field that cannot be read spoils only itself."""
        if len(cells) != header.width:
            self._tally.quarantined(f"{len(cells)} fields, the header has {header.width}", line)
            return
        ts = _timestamp(cells[header.places["timestamp"]], self._zone)
        gpu_uuid = cells[header.places["uuid"]]
        if ts is None:
            self._tally.quarantined("timestamp is not YYYY/MM/DD HH:MM:SS.mmm", line)
            return
        self._settle(ts)
        if _LOST.search(line):
            place = header.places.get("pci.bus_id")
            pci = canonical_pci(cells[place]) if place is not None else None
            self._emit(_Lost(line, pci, ts), ts)
        if _UNKNOWN.fullmatch(gpu_uuid):
            if _LOST.search(line):
                self._tally.parsed()
            else:
                self._tally.quarantined("uuid is unknown", line)
            return
        self._fill(line, cells, header=header, gpu=(gpu_uuid, ts))

    def _fill(
        self, line: str, cells: Sequence[str], *, header: _Header, gpu: tuple[str, datetime]
    ) -> None:
        index = header.places.get("index")
        number = cells[index] if index is not None else ""
        known = number.isascii() and number.isdecimal() and len(number) < 6
        self.rows.touch(*gpu, node=self._node, gpu_index=int(number) if known else None)
        broken: list[str] = []
        for field, column in _METRIC_BY_FIELD.items():
            if field not in header.places:
                continue
            cell = cells[header.places[field]]
            if _UNKNOWN.fullmatch(cell):
                continue
            value = _number(cell, stated_unit=header.units[field])
            if value is None:
                broken.append(f"{field} is not a number")
            elif not is_blank(value):
                rule = self.rows.put(*gpu, metric=METRIC_BY_COLUMN[column], value=value)
                broken += [rule] if rule else []
        if broken:
            self._tally.quarantined(broken[0], line)
        else:
            self._tally.parsed()

    def lose(self, line: str) -> None:
        """Keeps a line about a lost GPU until a row tells the time."""
        self._tally.parsed()
        self._waiting.append(_Lost(line, _device_handle(line), self._last_ts))

    def _settle(self, ts: datetime) -> None:
        self._last_ts = ts
        for lost in self._waiting:
            self._emit(lost, ts)
        self._waiting.clear()

    def _emit(self, lost: _Lost, ts: datetime | None) -> None:
        self._events.append(
            {
                "node": self._node,
                "ts": ts,
                "kind": "off_bus",
                "pci_bus_id": lost.pci_bus_id,
                "line": lost.line,
                "source": SOURCE,
                "ingested_at": self._ingested_at,
            }
        )

    def lost_gpus(self) -> Mapping[str, Any]:
        """`raw/kernel_log` with the events, where there are any."""
        for lost in self._waiting:
            self._emit(lost, lost.after)
        self._waiting.clear()
        if not self._events:
            return {}
        return {RAW_KERNEL_LOG.asset_key: as_table(RAW_KERNEL_LOG, self._events)}


def _header(line: str, *, origin: str) -> _Header:
    """Reads the header; a name may come with its unit in brackets."""
    cells = _cells(line)
    names = _field_names(cells)
    units = [cell.partition(" [")[2].rstrip("]") for cell in cells]
    for column in ("uuid", "timestamp"):
        if column not in names:
            _refuse_header(names, origin=origin, column=column)
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    return _Header(places, {name: units[at] for name, at in places.items()}, len(names), line)


def _cells(line: str) -> list[str]:
    """Fields of a line; nvidia-smi quotes nothing, and no field it prints holds a comma."""
    return [cell.strip() for cell in line.split(",")]


def _field_names(cells: Sequence[str]) -> list[str]:
    names = [cell.partition(" [")[0].strip() for cell in cells]
    return [_ALIASES.get(name, name) for name in names]


def _refuse_header(names: Sequence[str], *, origin: str, column: str) -> None:
    near = get_close_matches(column, names, n=3)
    hint = f" (nearest: {', '.join(near)})" if near else ""
    raise SourceError(
        f"{origin}: column {column!r} is missing from the header. Found: "
        f"{', '.join(names) or '(no header)'}{hint}. Query with "
        f"--query-gpu=timestamp,index,uuid,... --format=csv and without noheader."
    )


def _timestamp(cell: str, zone: ZoneInfo) -> datetime | None:
    found = _TIMESTAMP.fullmatch(cell)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[at]) for at in range(1, 7))
    micros = int((found[7] or "").ljust(6, "0"))
    local = wall_clock((year, month, day), (hour, minute, second), micros=micros)
    return None if local is None else to_utc(local, zone)


def _number(cell: str, *, stated_unit: str) -> float | None:
    """Reads `35 W`, `97 %`, `350.12`, `0x4`, `Yes`; the cell's unit goes before the header's."""
    if cell.lower() in _FLAGS:
        return _FLAGS[cell.lower()]
    if _HEX.fullmatch(cell):
        return float(int(cell, 16))
    found = _NUMBER.fullmatch(cell)
    if found is None:
        return None
    unit = (found["unit"] or stated_unit).lower()
    return float(found["number"]) * _UNIT_SCALES.get(unit, 1.0)


def _device_handle(line: str) -> str | None:
    """The address in `device handle for GPU0000:8A:00.0`, which follows "GPU" without a space."""
    return first_pci(re.sub(r"GPU ?(?=[0-9A-Fa-f]{4,8}:)", " ", line))
