"""What a page of telemetry tells besides readings: where each GPU was seen, and what it covers.

Readings are not looked at.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import polars as pl

from features.contracts import UTC_TIME, TableContract
from features.raw_tables import RAW_COVERAGE, RAW_INVENTORY

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Reading:
    """One reading of a source: a page, a file, a scrape.

    Attributes:
        origin: File or address.
        node: Node it is of, where that is known without its lines.
        start: First moment it speaks of, UTC.
        end: Last moment, inclusive.
        is_readable: Whether it was understood at all: what was not covers nothing.
    """

    origin: str
    node: str | None
    start: datetime
    end: datetime
    is_readable: bool = True


class Sight(NamedTuple):
    """A GPU seen at a moment.

    Attributes:
        reading: Place of the reading among those of the chunk.
        ts_us: When, in microseconds since 1970.
        gpu_uuid: The GPU.
        node: Where; None where nobody knows.
        slot: Slot or index on the node.
        pci_bus_id: Address.
        model: Product name.
    """

    reading: int
    ts_us: int
    gpu_uuid: str
    node: str | None
    slot: str | None
    pci_bus_id: str | None
    model: str | None


def microseconds(ts: datetime) -> int:
    """A time as microseconds since 1970."""
    return (ts - _EPOCH) // _MICROSECOND


def build_inventory(sights: Iterable[Sight], *, source: str, ingested_at: datetime) -> pl.DataFrame:
    """Where GPUs were seen: per reading the first and last sight of each GPU in each place.

    Args:
        sights: What was seen, in any order of time.
        source: Kind of source.
        ingested_at: When it was read, UTC.

    Returns:
        `raw/inventory`. A GPU whose node nobody knows has no row.
    """
    spans: dict[tuple[Any, ...], tuple[int, int]] = {}
    for reading, ts_us, *place in sights:
        if place[1] is None:
            continue
        key = (reading, *place)
        first, last = spans.get(key, (ts_us, ts_us))
        spans[key] = (min(first, ts_us), max(last, ts_us))
    rows = [
        (ts_us, *key[1:])
        for key, (first, last) in spans.items()
        for ts_us in ((first,) if first == last else (first, last))
    ]
    return _frame(RAW_INVENTORY, rows, source=source, ingested_at=ingested_at)


def build_coverage(
    readings: Sequence[Reading],
    sights: Iterable[Sight],
    *,
    source: str,
    ingested_at: datetime,
    site: str | None = None,
    every_s: float | None = None,
) -> pl.DataFrame:
    """What readings speak of, whether or not they gave rows.

    Args:
        readings: The readings.
        sights: What was seen in them.
        source: Kind of source.
        ingested_at: When they were read, UTC.
        site: Name of the site, for a reading that names neither node nor GPU.
        every_s: Usual time between readings in seconds.

    Returns:
        `raw/coverage`: per reading the nodes that its rows are of, else the node it is of; GPUs
        where no node is known; else the site.
    """
    named: list[dict[tuple[str, str], tuple[int, int]]] = [{} for _ in readings]
    for sight in sights:
        entity = ("node", sight.node) if sight.node else ("gpu", sight.gpu_uuid)
        spans = named[sight.reading]
        first, last = spans.get(entity, (sight.ts_us, sight.ts_us))
        spans[entity] = (min(first, sight.ts_us), max(last, sight.ts_us))
    rows: list[tuple[Any, ...]] = []
    for reading, spans in zip(readings, named, strict=True):
        span = (microseconds(reading.start), microseconds(reading.end))
        has_node = any(kind == "node" for kind, _ in spans)
        if reading.is_readable and reading.node and not has_node:
            spans["node", reading.node] = span
        elif reading.is_readable and site and not spans:
            spans["site", site] = span
        rows += [(*entity, *times, every_s, reading.origin) for entity, times in spans.items()]
    return _frame(RAW_COVERAGE, rows, source=source, ingested_at=ingested_at)


def _frame(
    contract: TableContract, rows: list[tuple[Any, ...]], *, source: str, ingested_at: datetime
) -> pl.DataFrame:
    """Rows of all columns but the two last, times as microseconds, to a contract's frame."""
    if not rows:
        return contract.empty()
    about = {
        "source": pl.lit(source).alias("source"),
        "ingested_at": pl.lit(ingested_at, UTC_TIME).alias("ingested_at"),
    }
    names = [name for name in contract.schema.names() if name not in about]
    kinds = {name: contract.schema[name] for name in names}
    told = [
        pl.Series(name, values, pl.Int64 if kinds[name] == UTC_TIME else kinds[name])
        for name, values in zip(names, map(list, zip(*rows, strict=True)), strict=True)
    ]
    return pl.DataFrame(told).select(
        about[name] if name in about else pl.col(name).cast(dtype)
        for name, dtype in contract.schema.items()
    )
