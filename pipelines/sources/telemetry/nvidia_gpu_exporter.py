"""What nvidia_gpu_exporter serves (`nvidia_smi_...`), saved to files, to `raw/gpu_telemetry`.

It runs `nvidia-smi --query-gpu` and names its metrics after the query fields, in base units. How
pages become rows is in `telemetry.pages`; the query fields themselves are in `smi_fields`.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from features.telemetry_metrics import METRIC_BY_COLUMN
from pipelines.sources.result import SourceResult
from pipelines.sources.telemetry.dcgm_fields import ExporterName
from pipelines.sources.telemetry.dcgm_text import CHUNK_SAMPLES, stream_dcgm_text
from pipelines.sources.telemetry.pages import NodeFrom, PageBatch
from pipelines.sources.telemetry.series import Dialect
from pipelines.sources.telemetry.smi_fields import QUERY_FIELDS

SOURCE: Final = "nvidia_gpu_exporter"

_PREFIX: Final = "nvidia_smi_"
_SUFFIXES: Final = {
    "W": (("_watts", 1.0),),
    "MHz": (("_clock_hz", 1e-6), ("_hz", 1e-6)),
    "MiB": (("_bytes", 2.0**-20),),
    "%": (("_ratio", 100.0),),
    "us": (("_seconds", 1e6), ("_us", 1.0)),
}
"""How a base unit is written at the end of a name, with the factor to the metric's unit."""

IDENTITIES: Final = frozenset({f"{_PREFIX}gpu_info"})


def _by_name() -> dict[str, ExporterName]:
    """Query field `power.draw` gives `nvidia_smi_power_draw_watts`; some releases wrote no unit."""
    table: dict[str, ExporterName] = {}
    for rank, (column, field) in enumerate(
        (column, field) for column, fields in QUERY_FIELDS.items() for field in fields
    ):
        metric = METRIC_BY_COLUMN[column]
        stem = _PREFIX + re.sub(r"[^a-z0-9]+", "_", field.lower())
        for suffix, scale in (("", 1.0), *_SUFFIXES.get(metric.unit, ())):
            table.setdefault(stem + suffix, ExporterName(metric, scale, rank=rank))
    return table


_BY_NAME: Final = _by_name()


def gpu_exporter_name(name: str) -> ExporterName | None:
    """Looks up a metric name of nvidia_gpu_exporter.

    Args:
        name: Name in the exposition, in any case.

    Returns:
        What it stands for, or None for a field the project does not use.

    Example:
        >>> gpu_exporter_name("nvidia_smi_clocks_current_sm_clock_hz").scale
        1e-06
    """
    return _BY_NAME.get(name.lower())


DIALECT: Final = Dialect(SOURCE, gpu_exporter_name, {}, IDENTITIES)


def parse_nvidia_gpu_exporter(
    data: bytes,
    *,
    origin: str,
    ts: datetime,
    ingested_at: datetime,
    node: str | None = None,
) -> SourceResult:
    """Reads one scrape.

    Args:
        data: Body of the scrape.
        origin: File or address, for quarantine and counts.
        ts: Time of the scrape, UTC.
        ingested_at: When it is read, UTC.
        node: Node it is from; the exporter itself names none.

    Returns:
        `raw/gpu_telemetry`, `raw/inventory`, `raw/coverage`.
    """
    batch = PageBatch(DIALECT, ingested_at=ingested_at)
    batch.add(data, origin=origin, ts=ts, node=node)
    return batch.result()


def stream_nvidia_gpu_exporter(
    paths: Path | Iterable[Path],
    *,
    ingested_at: datetime,
    ts: datetime | None = None,
    node_from: NodeFrom = "label",
    site: str | None = None,
    every_s: float | None = None,
    chunk_samples: int = CHUNK_SAMPLES,
) -> Iterator[SourceResult]:
    """Reads saved scrapes in chunks; arguments and files as in `dcgm_text.stream_dcgm_text`.

    Args:
        paths: A file or files, named `<node>__2026-01-05T00-05-00Z.prom` unless `ts` is given.
        ingested_at: When they are read, UTC.
        ts: Time of the scrape, UTC, where the names do not tell.
        node_from: Whose word counts where both know a node.
        site: Name of the site, for the coverage of scrapes that name no node.
        every_s: Usual time between scrapes in seconds.
        chunk_samples: Samples after which a chunk is given out.

    Returns:
        Chunks of whole scrapes.

    Raises:
        SourceError: A file cannot be read, or nothing tells when it was scraped.
    """
    return stream_dcgm_text(
        paths,
        ingested_at=ingested_at,
        ts=ts,
        node_from=node_from,
        site=site,
        every_s=every_s,
        dialect=DIALECT,
        chunk_samples=chunk_samples,
    )
