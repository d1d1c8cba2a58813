"""What dcgm-exporter serves, saved to a file: exposition text to `raw/gpu_telemetry`.

The text format itself is in `pipelines.sources.exposition`, field names in `dcgm_fields`.
`DCGM_FI_DEV_XID_ERRORS` is the last Xid and sticks: it becomes a column, never an event.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from features.errors import SourceError
from pipelines.sources.dcgm_fields import (
    AMBIGUOUS_NAMES,
    PER_INSTANCE,
    ExporterName,
    exporter_name,
    is_blank,
    stated_scale,
)
from pipelines.sources.exposition import Comment, Malformed, Sample, parse_exposition
from pipelines.sources.files import decode, node_in_name, read_bytes, time_in_name
from pipelines.sources.result import ReadTally, SourceResult, merge
from pipelines.sources.telemetry_rows import TELEMETRY, TelemetryRows

SOURCE: Final = "dcgm_text"

NodeFrom = Literal["label", "file_name"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT: Final = re.compile(r"\(in (?P<unit>[A-Za-z]+)\)")


def parse_dcgm_text(
    data: bytes | str,
    *,
    origin: str,
    ts: datetime,
    ingested_at: datetime,
    node: str | None = None,
    node_from: NodeFrom = "label",
) -> SourceResult:
    """Reads one scrape.

    Args:
        data: Body of the scrape.
        origin: File or address, for quarantine and counts.
        ts: Time of the scrape, UTC; a timestamp in a line goes before it.
        ingested_at: When it is read, UTC.
        node: Node the scrape is from, where the file's name says so.
        node_from: Whose word counts where both know a node: the label's, or the file name's
            (for exporters whose Hostname label is the pod).

    Returns:
        `raw/gpu_telemetry`, one row per GPU and moment. MIG instances fold into their GPU.
    """
    tally = ReadTally(table=TELEMETRY, source=SOURCE, origin=origin)
    rows = TelemetryRows(SOURCE, ingested_at)
    stated: dict[str, float] = {}
    for line in parse_exposition(data if isinstance(data, str) else decode(data)):
        tally.read()
        if isinstance(line, Malformed):
            tally.quarantined(line.rule, line.text)
        elif isinstance(line, Comment):
            tally.skipped()
            _learn_unit(line, stated)
        else:
            _take(line, rows=rows, tally=tally, stated=stated, ts=ts, node=node, by=node_from)
    return tally.result({TELEMETRY: rows.frame()})


def read_dcgm_text(
    paths: Iterable[Path],
    *,
    ingested_at: datetime,
    ts: datetime | None = None,
    node_from: NodeFrom = "label",
) -> SourceResult:
    """Reads saved scrapes.

    Args:
        paths: Files; each is one scrape, named `<node>__2026-01-05T00-05-00Z.prom` or
            `2026-01-05T00-05-00Z.prom` unless `ts` is given.
        ingested_at: When they are read, UTC.
        ts: Time of the scrape, UTC, where the names do not tell.
        node_from: See `parse_dcgm_text`.

    Returns:
        `raw/gpu_telemetry` of all files.

    Raises:
        SourceError: A file cannot be read, or nothing tells when it was scraped.
    """
    return merge(
        parse_dcgm_text(
            read_bytes(path),
            origin=str(path),
            ts=scrape_time(path) if ts is None else ts,
            ingested_at=ingested_at,
            node=node_in_name(path) if time_in_name(path) else None,
            node_from=node_from,
        )
        for path in paths
    )


def scrape_time(path: Path) -> datetime:
    """When a saved scrape was taken, by its name.

    Args:
        path: The file.

    Returns:
        UTC time.

    Raises:
        SourceError: The name tells no time. A file's modification time is not taken for it:
            copying changes it.
    """
    ts = time_in_name(path)
    if ts is None:
        raise SourceError(
            f"{path}: exposition text carries no time of its own, and the file's name tells none. "
            f"Expected <node>__YYYY-MM-DDTHH-MM-SSZ.prom (UTC), got {path.name!r}. Rename the "
            f"file so, or give the scrape time as ts."
        )
    return ts


def _learn_unit(line: Comment, stated: dict[str, float]) -> None:
    """Remembers the factor a HELP line implies, for units that changed between releases."""
    name = exporter_name(line.help_of) if line.help_of else None
    unit = _UNIT.search(line.text) if name is not None else None
    if name is None or unit is None or line.help_of is None:
        return
    scale = stated_scale(name.metric, unit["unit"])
    if scale is not None:
        stated[line.help_of.lower()] = scale


def _take(
    line: Sample,
    *,
    rows: TelemetryRows,
    tally: ReadTally,
    stated: Mapping[str, float],
    ts: datetime,
    node: str | None,
    by: NodeFrom,
) -> None:
    """Puts one sample into its GPU's row, or counts why not."""
    name = exporter_name(line.name)
    if name is None:
        reason = AMBIGUOUS_NAMES.get(line.name.lower())
        if reason is None:
            tally.skipped()
        else:
            tally.quarantined(f"{line.name} is {reason}", line.text)
        return
    labels = {key.lower(): value for key, value in line.labels.items()}
    gpu_uuid = labels.get("uuid", "")
    if not gpu_uuid:
        tally.quarantined("no UUID label: the GPU is unknown", line.text)
        return
    if labels.get("gpu_i_id") and name.metric.column in PER_INSTANCE:
        tally.skipped()
        return
    moment = ts if line.ts_ms is None else _moment(line.ts_ms)
    if moment is None:
        tally.quarantined("timestamp is beyond the years that exist", line.text)
        return
    said = labels.get("hostname") or None
    rows.touch(
        gpu_uuid,
        moment,
        node=(node or said) if by == "file_name" else (said or node),
        gpu_index=_index(labels.get("gpu", "")),
    )
    broken = _put(line, name, rows=rows, gpu=(gpu_uuid, moment), stated=stated)
    if broken is None:
        tally.parsed()
    else:
        tally.quarantined(broken, line.text)


def _put(
    line: Sample,
    name: ExporterName,
    *,
    rows: TelemetryRows,
    gpu: tuple[str, datetime],
    stated: Mapping[str, float],
) -> str | None:
    """Scales and stores a reading; a blank leaves the cell null."""
    if is_blank(line.value):
        return None
    scale = stated.get(line.name.lower(), name.scale)
    value = line.value if scale == 1 else line.value * scale
    return rows.put(*gpu, metric=name.metric, value=value)


def _moment(ts_ms: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=ts_ms)
    except OverflowError:
        return None


def _index(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None
