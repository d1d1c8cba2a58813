"""Single readings gathered into one wide row per GPU and moment, as `raw/gpu_telemetry` wants.

Formats and field names are not known here; duplicates of whole rows are left to `features`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.contracts import UTC_TIME
from features.raw_tables import RAW_GPU_TELEMETRY
from features.telemetry_metrics import METRICS, Metric
from pipelines.sources.result import as_table

TELEMETRY: Final = RAW_GPU_TELEMETRY.asset_key


@dataclass
class TelemetryRows:
    """Rows under construction.

    Attributes:
        source: Kind of source.
        ingested_at: When the rows were read.
    """

    source: str
    ingested_at: datetime
    _rows: dict[tuple[str, datetime], dict[str, Any]] = field(default_factory=dict)

    def touch(
        self, gpu_uuid: str, ts: datetime, *, node: str | None, gpu_index: int | None
    ) -> None:
        """Makes sure that the GPU has a row at this moment; what is known of it stays.

        Args:
            gpu_uuid: The GPU.
            ts: Moment of the sample.
            node: Node name as the source gives it.
            gpu_index: Index on the node.
        """
        row = self._rows.setdefault(
            (gpu_uuid, ts),
            {
                "gpu_uuid": gpu_uuid,
                "ts": ts,
                "node": None,
                "gpu_index": None,
                "source": self.source,
                "ingested_at": self.ingested_at,
            },
        )
        if row["node"] is None:
            row["node"] = node
        if row["gpu_index"] is None:
            row["gpu_index"] = gpu_index

    def put(self, gpu_uuid: str, ts: datetime, *, metric: Metric, value: float) -> str | None:
        """Takes one reading into the GPU's row.

        Args:
            gpu_uuid: A GPU that has been touched at `ts`.
            ts: Moment of the sample.
            metric: What was read.
            value: The reading in the metric's unit.

        Returns:
            None where it was taken (or repeats what the row holds), else the rule it breaks: a
            bad reading spoils its own cell, not the whole row.
        """
        row = self._rows[gpu_uuid, ts]
        broken = range_rule(metric, value)
        if broken is not None:
            return broken
        stored = float(value) if metric.dtype.is_float() else round(value)
        if row.setdefault(metric.column, stored) != stored:
            return f"{metric.column} differs from an earlier line of the same GPU and moment"
        return None

    def frame(self) -> pl.DataFrame:
        """The rows so far, as `raw/gpu_telemetry`."""
        return as_table(RAW_GPU_TELEMETRY, list(self._rows.values()))


def telemetry_frame(
    sights: pl.DataFrame,
    columns: Mapping[str, npt.NDArray[np.float64]],
    *,
    source: str,
    ingested_at: datetime,
) -> pl.DataFrame:
    """Puts sights and columns of readings together.

    Args:
        sights: Who and where, one per row, in the columns of `SIGHTS`.
        columns: Values by metric column, one per row; NaN: unknown.
        source: Kind of source.
        ingested_at: When it was read, UTC.

    Returns:
        `raw/gpu_telemetry`; metrics without a column are null.
    """
    about = {
        "source": pl.lit(source).alias("source"),
        "ingested_at": pl.lit(ingested_at, UTC_TIME).alias("ingested_at"),
    }
    told = sights.select("gpu_uuid", "ts", "node", gpu_index="slot").with_columns(
        pl.Series(name, values) for name, values in columns.items()
    )
    known = set(told.columns)
    # One query for all columns: each by itself would take longer than reading a page.
    return told.select(
        about.get(name) if name in about else (_TAKEN if name in known else _ABSENT)[name]
        for name in _ABSENT
    )


_ABSENT: Final = {
    name: pl.lit(None, dtype).alias(name) for name, dtype in RAW_GPU_TELEMETRY.schema.items()
}
_METRICS: Final = {metric.column for metric in METRICS}
_TAKEN: Final = {
    name: (pl.col(name).fill_nan(None) if name in _METRICS else pl.col(name)).cast(dtype)
    for name, dtype in RAW_GPU_TELEMETRY.schema.items()
}


def range_rule(metric: Metric, value: float) -> str | None:
    """Holds a reading against its metric's range.

    Args:
        metric: What was read.
        value: The reading in the metric's unit.

    Returns:
        The rule it breaks, in words, or None.
    """
    if not math.isfinite(value):
        return f"{metric.column} is not finite"
    if value < metric.minimum:
        return f"{metric.column} < {metric.minimum:g}"
    if value > metric.maximum:
        return f"{metric.column} > {metric.maximum:g}"
    return None
