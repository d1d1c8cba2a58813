"""When a landed row is over, and in which bucket of time old rows of a table lie together.

Parts are written and removed in `pipelines.retention.compaction_landing`; how long rows are kept is
decided in `pipelines.retention.chores`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Final, Literal

import polars as pl

from features.raw_tables import (
    RAW_COVERAGE,
    RAW_GPU_TELEMETRY,
    RAW_INVENTORY,
    RAW_JOB_LOG,
    RAW_JOB_OUTPUT,
    RAW_KERNEL_LOG,
    RAW_NODE_STATES,
    RAW_TRAINING_METRICS,
)
from features.tables import CORE_MAINTENANCE, CORE_TOPOLOGY

Unit = Literal["day", "month", "whole"]
OPEN: Final = "open"
"""Bucket of rows that hold until something else is said: a node that is up since last year."""
_WHOLE: Final = "whole"
_BUCKET_NAME: Final = re.compile(
    r".*/(\d{4}-\d\d-\d\d|\d{4}-\d\d|open|whole)_[0-9a-f]{12}\.parquet$"
)


@dataclass(frozen=True)
class RowAge:
    """How the rows of a table grow old.

    Attributes:
        over: Columns, of which the first that is known says when a row was over.
        unit: How much time lies together.
        is_open: Rows that hold until something else is said; None: there are none.
    """

    over: tuple[str, ...]
    unit: Unit
    is_open: pl.Expr | None = None

    def when(self) -> pl.Expr:
        """When a row was over."""
        return pl.coalesce(*self.over)

    def bucket(self) -> pl.Expr:
        """The bucket of a row."""
        if self.unit == "whole":
            return pl.lit(_WHOLE)
        form = "%Y-%m-%d" if self.unit == "day" else "%Y-%m"
        dated = self.when().dt.strftime(form)
        return (
            dated
            if self.is_open is None
            else pl.when(self.is_open).then(pl.lit(OPEN)).otherwise(dated)
        )


ROW_AGE: Final[Mapping[str, RowAge]] = {
    RAW_GPU_TELEMETRY.asset_key: RowAge(("ts",), "day"),
    RAW_KERNEL_LOG.asset_key: RowAge(("ts", "ingested_at"), "day"),
    RAW_COVERAGE.asset_key: RowAge(("end",), "day"),
    RAW_JOB_LOG.asset_key: RowAge(("end", "start", "submit", "filed_at", "ingested_at"), "month"),
    RAW_JOB_OUTPUT.asset_key: RowAge(("ts", "ingested_at"), "month"),
    RAW_TRAINING_METRICS.asset_key: RowAge(("ts", "ingested_at"), "month"),
    RAW_INVENTORY.asset_key: RowAge(("ts",), "month"),
    RAW_NODE_STATES.asset_key: RowAge(
        ("valid_to", "valid_from", "ingested_at"), "month", is_open=pl.col("valid_to").is_null()
    ),
    CORE_TOPOLOGY.asset_key: RowAge((), "whole"),
    CORE_MAINTENANCE.asset_key: RowAge((), "whole"),
}
"""Whole tables hold what is said again and again; once equal rows lie together they do not grow."""


def bucket_of(path: str) -> str | None:
    """The bucket that a part was made for; None: it is as it landed.

    >>> bucket_of("raw/job_log/2026-01_0123456789ab.parquet")
    '2026-01'
    """
    found = _BUCKET_NAME.match(path)
    return found.group(1) if found else None


def bucket_end(bucket: str) -> datetime | None:
    """When the last row of a bucket can have been over; None: it has no end.

    >>> bucket_end("2026-12").isoformat(), bucket_end("open")
    ('2027-01-01T00:00:00+00:00', None)
    """
    if bucket in (OPEN, _WHOLE):
        return None
    is_day = len(bucket) == len("2026-01-05")
    start = datetime.fromisoformat(bucket if is_day else f"{bucket}-01").replace(tzinfo=UTC)
    if start.year == MAXYEAR:  # a clock that was wrong
        return None
    if is_day:
        return start + timedelta(days=1)
    return (start + timedelta(days=32)).replace(day=1)


def still_open(rows: pl.DataFrame, *, before: datetime) -> pl.DataFrame:
    """Open rows without those that a later one of their node ended before a moment.

    Args:
        rows: raw/node_states without an end.
        before: The moment.
    """
    earlier = pl.col("valid_from").filter(pl.col("valid_from") < before)
    held = earlier.max().over("node", "source")
    is_needed = pl.col("valid_from").is_null() | (pl.col("valid_from") >= before)
    return rows.filter(is_needed | (pl.col("valid_from") == held))


_ATTRIBUTES: Final = ("slot", "pci_bus_id", "model")


def without_repeated_sights(sights: pl.DataFrame) -> pl.DataFrame:
    """Sights of GPUs that stayed where they were: of each only the first and the last.

    A stay begins with its first sight and ends with one that contradicts it, so what lies between
    equal sights says nothing. A GPU that moved, or that shares an address with another, keeps
    every sight: there, how often something was seen decides what is believed.

    Args:
        sights: raw/inventory, with any further columns.
    """
    values = sights.group_by("gpu_uuid").agg(
        pl.col("node").n_unique().alias("nodes"),
        pl.max_horizontal(pl.col(name).drop_nulls().n_unique() for name in _ATTRIBUTES).alias(
            "values"
        ),
    )
    still = values.filter(pl.col("nodes") == 1, pl.col("values") <= 1)["gpu_uuid"]
    shared = [
        sights.drop_nulls(name).filter(pl.col("gpu_uuid").n_unique().over("node", name) > 1)[
            "gpu_uuid"
        ]
        for name in ("slot", "pci_bus_id")
    ]
    is_calm = pl.col("gpu_uuid").is_in(still.implode()) & ~pl.col("gpu_uuid").is_in(
        pl.concat(shared).unique().implode()
    )
    same = ["gpu_uuid", "node", *_ATTRIBUTES, "source"]
    is_edge = (pl.col("ts") == pl.col("ts").min().over(same)) | (
        pl.col("ts") == pl.col("ts").max().over(same)
    )
    return sights.filter(~is_calm | is_edge)


def once(rows: pl.DataFrame, *, settled: pl.Series) -> pl.DataFrame:
    """Rows without repetitions among those of some readings; the first word of each stays.

    Args:
        rows: Landed rows, with the reading that each is from in `_reading`.
        settled: Ids of readings that nothing will supersede.
    """
    is_settled = pl.col("_reading").is_in(settled.implode())
    same = [name for name in rows.columns if name not in ("ingested_at", "_reading")]
    order = ["ingested_at"] if "ingested_at" in rows.columns else ["_reading"]
    first = (
        rows.filter(is_settled)
        .sort(order, maintain_order=True)
        .unique(same, keep="first", maintain_order=True)
    )
    return pl.concat([first, rows.filter(~is_settled)])
