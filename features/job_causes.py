"""Why a job failed, concluded from the rows its own output gave: cause against collateral damage.

Which line means what is said by a rule file and read in `pipelines.sources.jobs.rules`; end states
of the scheduler are in `features.scheduler_states`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

CAUSE_SCHEMA: Final = pl.Schema(
    {"job_id": pl.String, "fault_class": pl.String, "cause": pl.String, "node": pl.String}
)

_ORDER: Final = ("is_collateral", "priority", "ts", "position", "rule", "node", "rank", "line")


def job_cause_of(rows: Iterable[Mapping[str, Any]]) -> tuple[str, str] | None:
    """The class and cause that explain a job.

    What another process' end brought about explains a job only where nothing else does. Of the
    rest the most specific class wins (lowest priority), of equals the earliest line: when one rank
    dies of a memory error and the others time out waiting for it, the memory error is why.

    Args:
        rows: Rows of raw/job_output of one job, of one or of many files, in any order.

    Returns:
        (fault_class, cause), or None where there are no rows.

    >>> ecc = {"is_collateral": False, "priority": 10, "fault_class": "gpu_memory_ecc"}
    >>> timeout = {"is_collateral": False, "priority": 60, "fault_class": "collective_timeout"}
    >>> job_cause_of([timeout | {"cause": "hang"}, ecc | {"cause": "hardware"}])
    ('gpu_memory_ecc', 'hardware')
    """
    ranked = sorted(rows, key=_rank)
    return (ranked[0]["fault_class"], ranked[0]["cause"]) if ranked else None


def job_causes(raw: pl.DataFrame) -> pl.DataFrame:
    """The explanation of every job, as `job_cause_of` gives it, with the node it happened on.

    Args:
        raw: raw/job_output.

    Returns:
        job_id, fault_class, cause, node (of the deciding line; null where it names none), one row
        per job, sorted by job_id. Rows without a job explain none.
    """
    return (
        raw.filter(pl.col("job_id").is_not_null())
        .sort(*_ORDER, nulls_last=True)
        .unique("job_id", keep="first", maintain_order=True)
        .select(CAUSE_SCHEMA.names())
        .sort("job_id")
    )


def explain_jobs(jobs: pl.DataFrame, causes: pl.DataFrame) -> pl.DataFrame:
    """Jobs whose cause the scheduler did not know, explained by their output.

    A job's output holds all its attempts: what its end says is about the last one.

    Args:
        jobs: core/jobs.
        causes: What `job_causes` gives.

    Returns:
        The jobs; `cause` of the last attempt that ended badly, where it was unknown, is that of
        its output.
    """
    told = causes.filter(pl.col("cause") != "unknown").select("job_id", told="cause")
    is_last = pl.col("attempt") == pl.col("attempt").max().over("job_id")
    is_open = is_last & (pl.col("cause") == "unknown")
    return (
        jobs.join(told, on="job_id", how="left", maintain_order="left")
        .with_columns(
            pl.when(is_open).then(pl.coalesce("told", "cause")).otherwise("cause").alias("cause")
        )
        .drop("told")
    )


def _rank(row: Mapping[str, Any]) -> tuple[tuple[bool, Any], ...]:
    """Sorts like `_ORDER`, what is unknown last."""
    values = (row.get(name) for name in _ORDER)
    return tuple((value is None, 0 if value is None else value) for value in values)
