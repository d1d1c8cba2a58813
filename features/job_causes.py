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
    told = raw.filter(pl.col("job_id").is_not_null())
    return _most_telling(told, by=["job_id"]).select(CAUSE_SCHEMA.names())


def explain_jobs(jobs: pl.DataFrame, output: pl.DataFrame) -> pl.DataFrame:
    """Attempts whose cause the scheduler did not know, explained by the job's output.

    A job's output holds all its attempts. A line with a time is about the attempt that had begun
    last by then, one that came again about later attempts too; a line without a time is about
    the last attempt that began. So what a later attempt writes changes no earlier one.

    Args:
        jobs: core/jobs.
        output: raw/job_output.

    Returns:
        The jobs; `cause` of attempts that ended badly, where it was unknown, is that of their
        output.
    """
    causes = _most_telling(_by_attempt(jobs, output), by=["job_id", "attempt"])
    told = causes.filter(pl.col("cause") != "unknown").select("job_id", "attempt", told="cause")
    is_open = pl.col("cause") == "unknown"
    return (
        jobs.join(told, on=["job_id", "attempt"], how="left", maintain_order="left")
        .with_columns(
            pl.when(is_open).then(pl.coalesce("told", "cause")).otherwise("cause").alias("cause")
        )
        .drop("told")
    )


def _by_attempt(jobs: pl.DataFrame, output: pl.DataFrame) -> pl.DataFrame:
    """Rows of output with each attempt that they may be about."""
    is_alone = pl.len().over("job_id") == 1
    attempts = (
        jobs.select("job_id", "attempt", "start")
        .filter(pl.col("start").is_not_null() | is_alone)  # one that waits has written nothing
        .sort("job_id", "attempt")
        .with_columns(
            pl.col("start").shift(-1).over("job_id").alias("next_start"),
            (pl.col("attempt") == pl.col("attempt").min().over("job_id")).alias("is_first"),
        )
    )
    ts, is_last = pl.col("ts"), pl.col("next_start").is_null()
    # Clocks differ: a line that seems to lie before the first attempt is about that one.
    has_begun = pl.col("is_first") | (pl.col("start") <= ts)
    is_own = has_begun & (is_last | (ts < pl.col("next_start")))
    came_again = (pl.col("count") > 1) & (ts < pl.col("start"))
    is_about = pl.when(ts.is_null()).then(is_last).otherwise(is_own | came_again)
    return output.join(attempts, on="job_id").filter(is_about)


def _most_telling(rows: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """The row that explains each job or attempt, sorted by them."""
    ranked = rows.sort(*_ORDER, nulls_last=True)
    return ranked.unique(by, keep="first", maintain_order=True).sort(by)


def _rank(row: Mapping[str, Any]) -> tuple[tuple[bool, Any], ...]:
    """Sorts like `_ORDER`, what is unknown last."""
    values = (row.get(name) for name in _ORDER)
    return tuple((value is None, 0 if value is None else value) for value in values)
