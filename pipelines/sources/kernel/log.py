"""Kernel and fabric logs (dmesg, syslog, journal, kmsg, fabric manager) to `raw/kernel_log`.

What a single line says is read in `kernel.line` and `kernel.events`, what spans several lines in
`kernel.reader`; repeats are counted later, in `features`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from features.raw_tables import RAW_COVERAGE, RAW_KERNEL_LOG
from pipelines.sources.files import node_in_name
from pipelines.sources.kernel.line import TEXT_LENGTH, Clock
from pipelines.sources.kernel.log_bytes import BLOCK_BYTES, BROKEN_OFF, BrokenLogError, read_blocks
from pipelines.sources.kernel.reader import Fates, KernelReader
from pipelines.sources.local_time import zone_of
from pipelines.sources.result import ReadTally, SourceResult, as_table, merge

SOURCE: Final = "kernel_log"

LINE_LENGTH: Final = TEXT_LENGTH
"""Characters of a line that are kept."""

CHUNK_BYTES: Final = 64 << 20
CHUNK_ROWS: Final = 200_000

_PACKED: Final = (".gz", ".xz", ".bz2", ".zst")
_ROTATED: Final = re.compile(r"\.log(?:[.-]\d{1,10}|\.old)*$")
_NO_NODES: Final = (
    "dmesg", "fabricmanager", "journal", "kern", "kernel", "kmsg", "messages", "syslog",
)  # fmt: skip


@dataclass(frozen=True)
class _Log:
    """What is known of a log besides its bytes."""

    origin: str
    clock: Clock
    node: str | None
    site: str
    ingested_at: datetime


def stream_kernel_log(
    path: Path,
    *,
    time_zone: str,
    ingested_at: datetime,
    node: str | None = None,
    boot_time: datetime | None = None,
    read_until: datetime | None = None,
    site: str = "site",
    block_bytes: int = BLOCK_BYTES,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[SourceResult]:
    """Reads a saved kernel or fabric log of any size in bounded memory.

    Args:
        path: The file, plain or compressed (gzip, xz, bzip2, Zstandard).
        time_zone: Zone of the machine's clock, for times without an offset.
        ingested_at: When it is read, UTC.
        node: Node the log is from, where its lines name no host; None: as the file name tells
            (`<node>.log`, `<node>__<anything>.log`, also rotated and compressed).
        boot_time: When the machine booted (the last time, where the log has several boots), UTC;
            without it lines that only have seconds since boot have no time.
        read_until: When the log ended, UTC, to find the year of lines without one; None:
            `ingested_at`.
        site: Name of the site, for the coverage of a log that names several hosts.
        block_bytes: Bytes read at once; makes no difference to the rows.
        chunk_bytes: Bytes of input per result, about; makes no difference to the rows.

    Yields:
        `raw/kernel_log`, and with the last result `raw/coverage`: a row from the first to the
        last readable time of any line, for each boot of the log. Lines about something else are
        skipped; a line that says Xid and cannot be read is quarantined, and so is the end of a
        damaged compressed file.

    Raises:
        SourceError: The file cannot be read, or there is no such time zone.
    """
    origin = str(path)
    clock = Clock(zone_of(time_zone, origin=origin), read_until or ingested_at, boot_time)
    log = _Log(origin, clock, node or node_of_log(path), site, ingested_at)
    blocks = read_blocks(path, block_bytes=block_bytes)
    return _stream(blocks, log, chunk_bytes=chunk_bytes)


def parse_kernel_log(
    data: bytes | str,
    *,
    origin: str,
    time_zone: str,
    ingested_at: datetime,
    node: str | None = None,
    boot_time: datetime | None = None,
    read_until: datetime | None = None,
    site: str = "site",
) -> SourceResult:
    """Reads a kernel or fabric log that is in memory.

    Args:
        data: The log; bytes that are not UTF-8 become U+FFFD.
        origin: File or address, for quarantine and counts.
        time_zone: See `stream_kernel_log`.
        ingested_at: When it is read, UTC.
        node: Node the log is from, where its lines name no host.
        boot_time: See `stream_kernel_log`.
        read_until: See `stream_kernel_log`.
        site: See `stream_kernel_log`.

    Returns:
        See `stream_kernel_log`.

    Raises:
        SourceError: There is no such time zone.
    """
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    clock = Clock(zone_of(time_zone, origin=origin), read_until or ingested_at, boot_time)
    blocks = (raw[at : at + BLOCK_BYTES] for at in range(0, len(raw), BLOCK_BYTES))
    log = _Log(origin, clock, node, site, ingested_at)
    return merge(_stream(blocks, log, chunk_bytes=CHUNK_BYTES))


def _stream(blocks: Iterable[bytes], log: _Log, *, chunk_bytes: int) -> Iterator[SourceResult]:
    reader = KernelReader(clock=log.clock, node=log.node)
    account = _Account(log.origin)
    rows: list[dict[str, Any]] = []
    n_bytes = 0
    is_whole = True
    try:
        for block in blocks:
            reader.scan.feed(block)
            n_bytes += len(block)
            rows += reader.rows()
            if n_bytes >= chunk_bytes or len(rows) >= CHUNK_ROWS:
                tables = {RAW_KERNEL_LOG.asset_key: _rows_table(rows, log)}
                yield account.tally(reader).result(tables)
                rows, n_bytes = [], 0
    except BrokenLogError:
        is_whole = False
    reader.finish()
    tally = account.tally(reader)
    if not is_whole:
        tally.read()
        tally.quarantined(BROKEN_OFF, log.origin)
    yield tally.result(
        {
            RAW_KERNEL_LOG.asset_key: _rows_table(rows + reader.rows(), log),
            RAW_COVERAGE.asset_key: as_table(RAW_COVERAGE, _coverage(reader, log)),
        }
    )


class _Account:
    """Counts what became of the lines since the last chunk."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._told = Fates()
        self._n_lines = 0

    def tally(self, reader: KernelReader) -> ReadTally:
        """The account of the lines decided since."""
        tally = ReadTally(table=RAW_KERNEL_LOG.asset_key, source=SOURCE, origin=self._origin)
        fates, told = reader.fates, self._told
        n_lines = reader.scan.n_lines - reader.n_undecided()
        tally.read(n_lines - self._n_lines)
        tally.parsed(fates.parsed - told.parsed)
        # Lines that the scan passed over are about something else; those it handed over are
        # counted one by one.
        decided = fates.handed - reader.n_undecided()
        passed_over = n_lines - decided
        tally.skipped(passed_over + fates.skipped - told.skipped)
        refused = {}
        for rule, (count, example) in fates.refused.items():
            tally.quarantined(rule, example, count=count)
            refused[rule] = (0, example)
        fates.refused = {}
        self._n_lines = n_lines
        self._told = Fates(fates.handed, fates.parsed, fates.skipped + passed_over)
        return tally


def _rows_table(rows: list[dict[str, Any]], log: _Log) -> Any:
    origin = {"source": SOURCE, "ingested_at": log.ingested_at}
    return as_table(RAW_KERNEL_LOG, [row | origin for row in rows])


def _coverage(reader: KernelReader, log: _Log) -> list[dict[str, Any]]:
    """A row per stretch, for the log's node, or for the site where it names several."""
    hosts = reader.stretches.hosts
    is_site = len(hosts) > 1
    entity = log.site if is_site else next(iter(hosts), log.node)
    if entity is None:
        return []
    return [
        {
            "entity_kind": "site" if is_site else "node",
            "entity_id": entity,
            "start": stretch.start,
            "end": stretch.end,
            "origin": log.origin,
            "source": SOURCE,
            "ingested_at": log.ingested_at,
        }
        for stretch in reader.stretches.closed
    ]


def node_of_log(path: Path) -> str | None:
    """The node a log is named after, past `.gz`, `.1` and the like; names of services are none."""
    name = path.name
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    node = node_in_name(Path(f"{_ROTATED.sub('', name)}.log"))
    if node is None or re.split(r"[.-]", node.lower())[0] in _NO_NODES:
        return None
    return node
