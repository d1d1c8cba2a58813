"""What a page of telemetry tells besides readings: where each GPU was seen, and what it covers.

Readings are not looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

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


Sight = tuple[int, int, str, str | None, str | None, str | None, str | None]
"""A GPU seen at a moment, in the columns of `SIGHTS`."""

SIGHTS: Final = pl.Schema(
    {
        "reading": pl.Int64(),  # place of the reading among those of the chunk
        "ts": pl.Int64(),  # microseconds since 1970
        "gpu_uuid": pl.String(),
        "node": pl.String(),  # null where nobody knows
        "slot": pl.String(),  # slot or index on the node
        "pci_bus_id": pl.String(),
        "model": pl.String(),
    }
)
"""Columns of a frame of sights."""

_SPANS: Final = {
    name: pl.Int64() if dtype == UTC_TIME else dtype
    for name, dtype in RAW_COVERAGE.schema.items()
    if name not in ("source", "ingested_at")
}
_PLACE: Final = ("gpu_uuid", "node", "slot", "pci_bus_id", "model")


def microseconds(ts: datetime) -> int:
    """A time as microseconds since 1970."""
    return (ts - _EPOCH) // _MICROSECOND


def build_inventory(sights: pl.DataFrame, *, source: str, ingested_at: datetime) -> pl.DataFrame:
    """Where GPUs were seen: per reading the first and last sight of each GPU in each place.

    Args:
        sights: What was seen, in any order of time, in the columns of `SIGHTS`.
        source: Kind of source.
        ingested_at: When it was read, UTC.

    Returns:
        `raw/inventory`. A GPU whose node nobody knows has no row.
    """
    spans = (
        sights.filter(pl.col("node").is_not_null())
        .group_by("reading", *_PLACE, maintain_order=True)
        .agg(pl.col("ts").min().alias("first"), pl.col("ts").max().alias("last"))
    )
    ends = pl.concat_list("first", "last").list.unique(maintain_order=True)
    rows = spans.with_columns(ts=ends).explode("ts")
    return _frame(RAW_INVENTORY, rows, source=source, ingested_at=ingested_at)


def build_coverage(
    readings: Sequence[Reading],
    sights: pl.DataFrame,
    *,
    source: str,
    ingested_at: datetime,
    site: str | None = None,
    every_s: float | None = None,
) -> pl.DataFrame:
    """What readings speak of, whether or not they gave rows.

    Args:
        readings: The readings.
        sights: What was seen in them, in the columns of `SIGHTS`.
        source: Kind of source.
        ingested_at: When they were read, UTC.
        site: Name of the site, for a reading that names neither node nor GPU.
        every_s: Usual time between readings in seconds.

    Returns:
        `raw/coverage`: per reading the nodes that its rows are of, else the node it is of; GPUs
        where no node is known; else the site.
    """
    is_of_node = pl.col("node").is_not_null()
    told = sights.group_by(
        "reading",
        pl.when(is_of_node).then(pl.lit("node")).otherwise(pl.lit("gpu")).alias("kind"),
        pl.when(is_of_node).then("node").otherwise("gpu_uuid").alias("id"),
        maintain_order=True,
    ).agg(pl.col("ts").min().alias("first"), pl.col("ts").max().alias("last"))
    named: list[dict[tuple[str, str], tuple[int, int]]] = [{} for _ in readings]
    for number, kind, entity, first, last in told.iter_rows():
        named[number][kind, entity] = (first, last)
    rows: list[tuple[Any, ...]] = []
    for reading, spans in zip(readings, named, strict=True):
        span = (microseconds(reading.start), microseconds(reading.end))
        has_node = any(kind == "node" for kind, _ in spans)
        if reading.is_readable and reading.node and not has_node:
            spans["node", reading.node] = span
        elif reading.is_readable and site and not spans:
            spans["site", site] = span
        rows += [(*entity, *times, every_s, reading.origin) for entity, times in spans.items()]
    frame = pl.DataFrame(rows, _SPANS, orient="row")
    return _frame(RAW_COVERAGE, frame, source=source, ingested_at=ingested_at)


def _frame(
    contract: TableContract, rows: pl.DataFrame, *, source: str, ingested_at: datetime
) -> pl.DataFrame:
    """All columns but the two last, times as microseconds, to a contract's frame."""
    about = {
        "source": pl.lit(source).alias("source"),
        "ingested_at": pl.lit(ingested_at, UTC_TIME).alias("ingested_at"),
    }
    return rows.select(
        about[name] if name in about else pl.col(name).cast(dtype)
        for name, dtype in contract.schema.items()
    )
