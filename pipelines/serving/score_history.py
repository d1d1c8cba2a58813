"""Which rows of a tick are worth keeping in the score database; frames in, frames out.

Every row of every tick stays in the Parquet files. A database that took all 600,000 rows of
200,000 GPUs and three horizons each hour would grow by gigabytes a day, almost all of it GPUs that
are as quiet as an hour ago.
"""

import math
from dataclasses import dataclass

import polars as pl

KEY = ("entity_id", "horizon_h")


@dataclass(frozen=True, kw_only=True)
class HistoryRule:
    """What is kept.

    Attributes:
        floor: Scores below are quiet, all alike.
        step: Scores are cut into levels, each so many times the one before; a row enters the
            history when its level, status or model is not that of the tick before. So a score
            that is not in the history lies within this factor of the one before it that is.
        most_gpu_rows: GPU rows of a tick that are kept at most, highest scores first, then
            unknown ones.
        days: Days that history is kept.
    """

    floor: float = 0.005
    step: float = 2.0
    most_gpu_rows: int = 20_000
    days: int = 90


def loud(scores: pl.DataFrame, rule: HistoryRule) -> pl.DataFrame:
    """The GPU rows that the latest table takes: not quiet, or not known.

    Args:
        scores: scores/gpu_scores of one tick.
        rule: What is kept.

    Returns:
        At most `most_gpu_rows` of them.
    """
    return (
        scores.filter((pl.col("score") >= rule.floor) | pl.col("score").is_null())
        .sort(["score", *KEY], descending=[True, False, False], nulls_last=True)
        .head(rule.most_gpu_rows)
    )


def changed(
    kept: pl.DataFrame, before: pl.DataFrame, *, every: pl.DataFrame, rule: HistoryRule
) -> pl.DataFrame:
    """The rows that enter the history.

    Args:
        kept: Rows of the tick that the latest table takes.
        before: Rows that it held so far: `entity_id`, `horizon_h`, `score`, `status`,
            `model_version`. A row that it did not hold was quiet.
        every: All rows of the tick, for those that have gone quiet.
        rule: What is kept.

    Returns:
        Rows of `every`.
    """
    then = before.select(*KEY, _level(rule).alias("level"), "status", "model_version")
    now = kept.with_columns(_level(rule).alias("level"))
    joined = now.join(then, on=KEY, how="left", suffix="_before")
    is_new = pl.col("level_before").is_null() | pl.any_horizontal(
        pl.col(name) != pl.col(f"{name}_before") for name in ("level", "status", "model_version")
    )
    fresh = joined.filter(is_new).select(*KEY)
    gone = then.join(kept, on=KEY, how="anti").select(*KEY)
    return every.join(pl.concat([fresh, gone]), on=KEY, how="semi")


def _level(rule: HistoryRule) -> pl.Expr:
    """The level of a score: -1 unknown, 0 quiet, then one more for each step above the floor."""
    above = (pl.col("score") / rule.floor).log() / math.log(rule.step)
    return (
        pl.when(pl.col("score").is_null())
        .then(-1)
        .when(pl.col("score") < rule.floor)
        .then(0)
        .otherwise(above.floor().cast(pl.Int32, strict=False) + 1)
        .cast(pl.Int32)
    )
