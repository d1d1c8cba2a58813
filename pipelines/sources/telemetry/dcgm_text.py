"""What dcgm-exporter serves, saved to files: exposition text to `raw/gpu_telemetry`.

The text format is in `exposition`, field names in `dcgm_names`; how pages become rows is in
`telemetry.pages`.

`DCGM_FI_DEV_XID_ERRORS` is the last Xid and sticks: after a repair it still says 79, and a second
79 changes nothing. It becomes a column, never an event; events come from the kernel log.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from features.errors import SourceError
from pipelines.sources.files import node_in_name, read_bytes, time_in_name
from pipelines.sources.result import SourceResult
from pipelines.sources.telemetry.dcgm_fields import exporter_name
from pipelines.sources.telemetry.dcgm_names import AMBIGUOUS_NAMES
from pipelines.sources.telemetry.pages import NodeFrom, PageBatch
from pipelines.sources.telemetry.series import Dialect

SOURCE: Final = "dcgm_text"

DIALECT: Final = Dialect(SOURCE, exporter_name, AMBIGUOUS_NAMES)

CHUNK_SAMPLES: Final = 1_500_000
"""Samples after which a chunk is given out: about 75,000 rows of an exporter with 20 metrics."""

PAGE_BYTES: Final = 64_000_000
"""Length of a page at which a file of many pages is cut; a GPU's row never reaches over a cut."""


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
        `raw/gpu_telemetry`, one row per GPU and moment, MIG instances folded into their GPU;
        `raw/inventory`; `raw/coverage`, which names the node also where it gave no row.
    """
    batch = PageBatch(DIALECT, ingested_at=ingested_at, node_from=node_from)
    text = data if isinstance(data, bytes) else data.encode("utf-8", errors="replace")
    batch.add(text, origin=origin, ts=ts, node=node)
    return batch.result()


def stream_dcgm_text(
    paths: Path | Iterable[Path],
    *,
    ingested_at: datetime,
    ts: datetime | None = None,
    node_from: NodeFrom = "label",
    site: str | None = None,
    every_s: float | None = None,
    dialect: Dialect = DIALECT,
    chunk_samples: int = CHUNK_SAMPLES,
) -> Iterator[SourceResult]:
    """Reads saved scrapes in chunks.

    Args:
        paths: A file or files; each is one scrape, named `<node>__2026-01-05T00-05-00Z.prom` or
            `2026-01-05T00-05-00Z.prom` unless `ts` is given.
        ingested_at: When they are read, UTC.
        ts: Time of the scrape, UTC, where the names do not tell.
        node_from: See `parse_dcgm_text`.
        site: Name of the site, for the coverage of scrapes that name no node.
        every_s: Usual time between scrapes in seconds.
        dialect: The exporter's names.
        chunk_samples: Samples after which a chunk is given out.

    Yields:
        Chunks of whole scrapes; where they are cut changes no row.

    Raises:
        SourceError: A file cannot be read, or nothing tells when it was scraped.
    """
    batch = PageBatch(
        dialect, ingested_at=ingested_at, node_from=node_from, site=site, every_s=every_s
    )
    for path in [paths] if isinstance(paths, Path) else paths:
        moment = scrape_time(path) if ts is None else ts
        node = node_in_name(path) if time_in_name(path) else None
        for data in _pages(read_bytes(path)):
            batch.add(data, origin=str(path), ts=moment, node=node)
            if batch.n_samples >= chunk_samples or batch.n_bytes >= PAGE_BYTES:
                yield batch.result()
    if not batch.is_empty:
        yield batch.result()


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


def _pages(data: bytes) -> Iterator[bytes]:
    """A file in pieces that end at a line; nearly always there is one."""
    begin = 0
    while True:
        end = data.find(b"\n", begin + PAGE_BYTES) + 1
        if not end:
            yield data[begin:] if begin else data
            return
        yield data[begin:end]
        begin = end
