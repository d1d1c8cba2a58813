"""`nvidia-smi -q -x`: the XML report to `raw/gpu_telemetry` and `raw/inventory`.

Which elements give which column is in `smi_elements`; the CSV of queries is read in
`nvidia_smi_csv`. Reports printed one after the other (`-l`) are read one by one.

The XML parser of the standard library is exposed to entity bombs: a report with an internal
document type or any entity of its own is refused before it is expanded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from xml.parsers import expat
from zoneinfo import ZoneInfo

from pipelines.sources.files import decode, node_in_name, read_bytes, time_in_name
from pipelines.sources.local_time import to_utc, wall_clock, zone_of
from pipelines.sources.pci_address import canonical_pci
from pipelines.sources.result import ReadTally, SourceResult
from pipelines.sources.telemetry.gpu_identity import canonical_gpu_uuid
from pipelines.sources.telemetry.rows import TELEMETRY
from pipelines.sources.telemetry.smi_elements import readings_of
from pipelines.sources.telemetry.smi_fields import FAILED, FIRST_YEAR, LOST
from pipelines.sources.telemetry.smi_rows import SmiRows

SOURCE: Final = "nvidia_smi_xml"

_START: Final = re.compile(r"<\?xml\b|<!DOCTYPE\b|<nvidia_smi_log\b")
_END: Final = "</nvidia_smi_log>"
_TIMESTAMP: Final = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})", re.ASCII
)
_MONTHS: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
# Names of processes stand in a report as they are: with control characters, which XML has no
# place for, and with an ampersand, which would begin an entity.
_NO_XML: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_BARE_AMPERSAND: Final = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});)")
_DEEPEST: Final = 64  # reports are eight deep
_SKIPPED: Final = frozenset({"processes", "accounted_processes", "supported_clocks"})
"""Elements of a GPU that say nothing of its health and make up most of a report."""


class _RefusedError(ValueError):
    """A report that is not read."""


class _Report:
    """One report while it is parsed: its time, and the texts of each GPU by path."""

    def __init__(self) -> None:
        self.timestamp = ""
        self.gpus: list[dict[str, str]] = []
        self._gpu: dict[str, str] | None = None
        self._path: list[str] = []
        self._text: list[str] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.EntityDeclHandler = self._entity
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text.append

    def parse(self, text: str) -> str | None:
        """Parses a report; what is wrong with it, the GPUs before that are kept."""
        text = _BARE_AMPERSAND.sub("&amp;", _NO_XML.sub("\ufffd", text))
        try:
            self._parser.Parse(text.encode("utf-8", errors="replace"), True)  # noqa: FBT003
        except expat.ExpatError as error:
            return f"report is not valid XML: {expat.ErrorString(error.code)}"
        except _RefusedError as error:
            return str(error)
        return None

    def _doctype(self, *doctype: object) -> None:
        """Name, two ids, and whether there is an internal part: only that can do harm."""
        if doctype[-1]:
            raise _RefusedError("report has a document type of its own")

    def _entity(self, *_: object) -> None:
        raise _RefusedError("report has entities of its own")

    def _begin(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._path.append(tag)
        self._text.clear()
        if len(self._path) > _DEEPEST:
            raise _RefusedError(f"report is more than {_DEEPEST} deep")
        if tag == "gpu" and len(self._path) == 2:
            self._gpu = {"@id": attributes.get("id", "")}

    def _end(self, _: str) -> None:
        text = "".join(self._text).strip()
        self._text.clear()
        path = self._path[2:]
        if self._path == ["nvidia_smi_log", "timestamp"]:
            self.timestamp = text
        elif self._gpu is not None and len(self._path) == 2:
            self.gpus.append(self._gpu)
            self._gpu = None
        elif self._gpu is not None and text and path[0] not in _SKIPPED:
            # Only the first of several: what is repeated is of a MIG instance, not of the GPU.
            self._gpu.setdefault("/".join(path), text)
        self._path.pop()


def parse_nvidia_smi_xml(
    data: bytes | str,
    *,
    origin: str,
    time_zone: str,
    ingested_at: datetime,
    node: str | None = None,
    ts: datetime | None = None,
) -> SourceResult:
    """Reads one or more reports, one after the other.

    Args:
        data: The text. Lines between reports are about GPUs that were lost, or noise.
        origin: File or address, for quarantine and counts.
        time_zone: Zone of the machine's clock, for nvidia-smi prints no offset.
        ingested_at: When it is read, UTC.
        node: Node the report is from.
        ts: When it was made, UTC, for a report without a time that can be read.

    Returns:
        `raw/gpu_telemetry`, `raw/inventory`, `raw/coverage`; in `raw/kernel_log` an `off_bus`
        event per GPU that nvidia-smi had lost. The account counts GPUs, broken reports and lines
        outside of reports.

    Raises:
        SourceError: There is no such time zone.
    """
    zone = zone_of(time_zone, origin=origin)
    reader = _Reader(
        ReadTally(table=TELEMETRY, source=SOURCE, origin=origin),
        SmiRows(SOURCE, origin=origin, node=node, ingested_at=ingested_at),
        zone=zone,
        ts=ts,
    )
    for text, is_report in _pieces(data if isinstance(data, str) else decode(data)):
        if is_report:
            reader.take_report(text)
        else:
            reader.take_lines(text)
    return reader.result()


def stream_nvidia_smi_xml(
    paths: Path | Iterable[Path], *, time_zone: str, ingested_at: datetime
) -> Iterator[SourceResult]:
    """Reads saved reports, one chunk per file.

    Args:
        paths: A file or files, each named after its node: `<node>.xml` or `<node>__<anything>.xml`.
        time_zone: Zone of the machines' clocks.
        ingested_at: When they are read, UTC.

    Yields:
        The outcome of each file.

    Raises:
        SourceError: A file cannot be read.
    """
    for path in [paths] if isinstance(paths, Path) else paths:
        yield parse_nvidia_smi_xml(
            read_bytes(path),
            origin=str(path),
            time_zone=time_zone,
            ingested_at=ingested_at,
            node=node_in_name(path),
            ts=time_in_name(path),
        )


class _Reader:
    """Takes reports and the lines around them."""

    def __init__(
        self, tally: ReadTally, rows: SmiRows, *, zone: ZoneInfo, ts: datetime | None
    ) -> None:
        self._tally = tally
        self._rows = rows
        self._zone = zone
        self._ts = ts

    def take_lines(self, text: str) -> None:
        """Takes what stands outside of reports."""
        lines = text.split("\n")
        for line in (line.strip() for line in lines):
            if not line:
                continue
            self._tally.read()
            if LOST.search(line):
                self._tally.parsed()
                self._rows.lose(line)
            elif FAILED.search(line):
                self._tally.quarantined("nvidia-smi itself could not work", line)
            else:
                self._tally.quarantined("stands outside of a report", line)

    def take_report(self, text: str) -> None:
        """Takes one report; one that breaks off gives the GPUs before that."""
        report = _Report()
        broken = report.parse(text)
        ts = _timestamp(report.timestamp, self._zone) or self._ts
        self._tally.read(len(report.gpus))
        if broken:
            self._tally.read()
            self._tally.quarantined(broken, text[-200:] if report.gpus else text[:200])
        if ts is None:
            for gpu in report.gpus:
                self._tally.quarantined(
                    "report has no time", report.timestamp or gpu.get("uuid", gpu["@id"])
                )
            return
        self._rows.settle(ts)
        for gpu in report.gpus:
            self._take_gpu(gpu, ts)

    def result(self) -> SourceResult:
        """What was taken."""
        return self._tally.result(self._rows.tables(default_ts=self._ts))

    def _take_gpu(self, gpu: Mapping[str, str], ts: datetime) -> None:
        pci = canonical_pci(gpu.get("pci/pci_bus_id", "")) or canonical_pci(gpu["@id"])
        said_lost = next((f"{key}: {text}" for key, text in gpu.items() if LOST.search(text)), None)
        if said_lost:
            self._rows.emit(f"GPU {gpu['@id']} {said_lost}", ts=ts, pci_bus_id=pci)
        gpu_uuid = canonical_gpu_uuid(gpu.get("uuid", ""))
        if gpu_uuid is None:
            if said_lost:
                self._tally.parsed()
            else:
                self._tally.quarantined("uuid is unknown", str(dict(list(gpu.items())[:6])))
            return
        self._rows.touch(
            gpu_uuid,
            ts,
            index="",  # a report has none, and its order shifts when a GPU is lost
            pci_bus_id=pci,
            model=gpu.get("product_name", ""),
        )
        broken = []
        for metric, value in readings_of(gpu):
            rule = (
                value
                if isinstance(value, str)
                else self._rows.put(gpu_uuid, ts, metric=metric, value=value)
            )
            broken += [rule] if rule else []
        if broken:
            self._tally.quarantined(broken[0], f"{gpu_uuid}: {'; '.join(broken)}")
        else:
            self._tally.parsed()


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Reports and what stands between them, each with whether it is a report."""
    at = 0
    while at < len(text):
        found = _START.search(text, at)
        if found is None:
            yield text[at:], False
            return
        if found.start() > at:
            yield text[at : found.start()], False
        end = text.find(_END, found.start())
        stop = len(text) if end < 0 else end + len(_END)
        again = text.find("<?xml", found.start() + 5)
        if 0 <= again < stop:  # the report before broke off
            stop = again
        yield text[found.start() : stop], True
        at = stop


def _timestamp(text: str, zone: ZoneInfo) -> datetime | None:
    """Reads `Fri Jan 27 11:32:31 2023`."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None or found[1] not in _MONTHS:
        return None
    month = _MONTHS.index(found[1]) + 1
    day, hour, minute, second, year = (int(found[at]) for at in range(2, 7))
    local = wall_clock((year, month, day), (hour, minute, second), micros=0)
    return None if local is None or local.year < FIRST_YEAR else to_utc(local, zone)
