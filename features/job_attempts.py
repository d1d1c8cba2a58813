"""Attempts of jobs, put together from records that were read again and again.

How records are read is in `pipelines.sources`; the table itself is built in
`features.core_build`.
"""

from typing import Final

import polars as pl

from features.scheduler_states import OPEN_JOB_STATES, job_cause

_ARRAY: Final = r"^(\d+)_\["
_COLUMNS: Final = ("user", "partition", "nodes", "n_gpus", "submit", "start", "end")
_TELLING_STATES: Final = ("OUT_OF_MEMORY", "NODE_FAIL")


def job_attempts(parents: pl.DataFrame) -> pl.DataFrame:
    """One row per attempt, from the records of jobs (not steps) in any order.

    Records of one job with one start are one attempt: that of its end counts, however late an
    earlier one is read, and what it leaves open is filled from the others. A record without a
    start is part of the attempt that ended then, or else an attempt that never began; while it
    waits, it stands only until something newer is known. Of the waiting rest of a job array,
    whose name changes with every task that starts, the latest record counts.

    Args:
        parents: Rows of raw/job_log without a step.

    Returns:
        job_id, user, partition, nodes, n_gpus, submit, start, end, state, exit_code, sorted by
        (job_id, start), those without a start by their end, or else last.
    """
    is_open = pl.col("state").is_in(list(OPEN_JOB_STATES))
    is_waiting = pl.col("start").is_null() & is_open
    ranked = parents.with_columns(is_open.alias("is_open")).sort(
        "is_open", "ingested_at", "end", "submit", descending=[False, True, True, True],
        nulls_last=True, maintain_order=True,
    )  # fmt: skip
    started = _one_per(ranked.filter(pl.col("start").is_not_null()), "job_id", "start")
    never = ranked.filter(pl.col("start").is_null() & ~pl.col("is_open"))
    never = never.join(started, on=["job_id", "end"], how="anti")
    decided = pl.concat([started, _one_per(never, "job_id", "end")])
    waiting = _latest_waiting(ranked.filter(is_waiting))
    newest = decided.group_by("job_id").agg(
        pl.col("submit").max().alias("known"), pl.col("submit").has_nulls().alias("is_vague")
    )
    waiting = (
        waiting.join(newest, on="job_id", how="left")
        .filter(pl.col("is_vague").is_null() | (~pl.col("is_vague") & _is_newer()))
        .drop("known", "is_vague")
    )
    moment = pl.coalesce("start", "end", "submit")
    both = pl.concat([decided, waiting.select(decided.columns)]).with_columns(
        pl.when(is_waiting).then(pl.lit(2)).otherwise(pl.lit(1)).alias("place")
    )
    return _closed(both.sort("job_id", "place", moment, nulls_last=True, maintain_order=True))


def step_causes(steps: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    """What the steps of an attempt tell of its end: one that ran out of memory, or lost its node.

    Args:
        steps: Rows of raw/job_log with a step.
        attempts: Attempts with job_id, attempt, start, end.

    Returns:
        job_id, attempt, step_cause: the gravest first, one row per attempt that a step explains.
    """
    telling = steps.filter(pl.col("state").is_in(_TELLING_STATES))
    causes = {state: job_cause(state) for state in _TELLING_STATES}
    moment = pl.coalesce("step_end", "step_start")
    is_within = (pl.col("start").is_null() | (moment >= pl.col("start"))) & (
        pl.col("end").is_null() | (pl.coalesce("step_start", "step_end") <= pl.col("end"))
    )
    return (
        telling.select(
            "job_id",
            pl.col("start").alias("step_start"),
            pl.col("end").alias("step_end"),
            pl.col("state").replace_strict(causes, return_dtype=pl.String).alias("step_cause"),
        )
        .join(attempts.select("job_id", "attempt", "start", "end"), on="job_id")
        .filter(is_within.fill_null(value=True))
        .sort("job_id", "attempt", "step_cause")
        .unique(["job_id", "attempt"], keep="first", maintain_order=True)
        .select("job_id", "attempt", "step_cause")
    )


def _is_newer() -> pl.Expr:
    """Whether a waiting record was submitted after everything that is known of its job."""
    return (pl.col("submit") > pl.col("known")).fill_null(value=False)


def _one_per(ranked: pl.DataFrame, *key: str) -> pl.DataFrame:
    """One row per key: the first, its gaps filled from the others."""
    is_repeat = pl.struct(key).is_duplicated()
    single = ranked.filter(~is_repeat)
    others = [name for name in _COLUMNS if name not in key]
    merged = (
        ranked.filter(is_repeat)
        .group_by(key, maintain_order=True)
        .agg(pl.col("state", "exit_code", "is_open").first(), pl.col(others).drop_nulls().first())
    )
    names = ["job_id", *_COLUMNS, "state", "exit_code", "is_open"]
    return pl.concat([single.select(names), merged.select(names)])


def _latest_waiting(waiting: pl.DataFrame) -> pl.DataFrame:
    """The latest record of each job that waits, and of the waiting rest of each array."""
    array = pl.col("job_id").str.extract(_ARRAY)
    latest = waiting.sort("ingested_at", "submit", descending=True, maintain_order=True)
    return latest.unique(
        pl.coalesce(array + pl.lit("_["), pl.col("job_id")), keep="first", maintain_order=True
    )


def _closed(attempts: pl.DataFrame) -> pl.DataFrame:
    """Ends attempts that look open though a later one began: only one of a job can run.

    When it ended nobody said; it was by the time the job was queued again.
    """
    later_submit = pl.col("submit").shift(-1).over("job_id")
    later_start = pl.col("start").shift(-1).over("job_id")
    is_past = pl.col("is_open") & pl.col("start").is_not_null() & later_start.is_not_null()
    is_requeue = later_submit.is_between(pl.col("start"), later_start).fill_null(value=False)
    end = pl.when(is_requeue).then(later_submit).otherwise(later_start)
    return attempts.with_columns(
        pl.when(is_past).then(end).otherwise("end").alias("end"),
        pl.when(is_past).then(pl.lit("REQUEUED")).otherwise("state").alias("state"),
    ).drop("place", "is_open")
