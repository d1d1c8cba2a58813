"""Builds `core/training_metrics`: one row per job and step from what loggers reported.

How reports are read is in `pipelines.sources`.
"""

from typing import Final

import polars as pl

from features.core_build import Built
from features.tables import CORE_TRAINING_METRICS

_KEY: Final = ("job_id", "step")
_METRICS: Final = ("loss", "grad_norm", "step_time_s", "checkpoint_step")


def build_training_metrics(raw: pl.DataFrame) -> Built:
    """One row per job and step.

    A step that was reported more than once (by several loggers, by one logger per metric, or
    again after a restart from an earlier checkpoint) is one row: each column takes its latest
    known value, and `ts` is that of the latest report. A report without a time is older than any
    with one; reports of one moment are told apart by when and by whom they were read, then by
    value, so that the order of the rows changes nothing.

    Args:
        raw: raw/training_metrics. NaN and infinity are values, null is not.

    Returns:
        core/training_metrics, sorted by (job_id, step).
    """
    ordered = raw.sort("ts", "ingested_at", "source", *_METRICS, nulls_last=False)
    latest = ordered.group_by(_KEY).agg(pl.col("ts", *_METRICS).drop_nulls().last())
    columns = CORE_TRAINING_METRICS.schema.names()
    enforced = CORE_TRAINING_METRICS.enforce(latest.select(columns).sort(_KEY))
    return Built(
        enforced.frame,
        enforced.rejects,
        n_read=raw.height,
        n_merged=raw.height - latest.height,
    )
