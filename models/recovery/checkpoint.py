"""How often a job should save its state, from the hazard that the scores of its nodes say.

ETTR for a given interval is in `.ettr`; scores are made in `models.scoring`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log1p, sqrt
from typing import Final

import polars as pl

from features.errors import DataError

_CERTAIN: Final = 1 - 1e-9
"""A score of 1 would be an endless hazard."""

ADVICE_SCHEMA: Final = pl.Schema(
    {
        "job_id": pl.String(),
        "n_nodes": pl.Int64(),
        "n_unknown": pl.Int64(),
        "failures_per_day": pl.Float64(),
        "interval_min": pl.Float64(),
        "usual_interval_min": pl.Float64(),
    }
)


def best_interval_min(*, save_min: float, failures_per_day: float) -> float | None:
    """The interval of Young and Daly, dt* = sqrt(2 w / (N r)).

    Args:
        save_min: Time that training stands still for one checkpoint, w, in minutes.
        failures_per_day: Failures of the whole job per day, N r.

    Returns:
        Minutes between two checkpoints; None where no failure is expected.

    Raises:
        DataError: A number is out of range.

    >>> round(best_interval_min(save_min=1, failures_per_day=13), 1)
    14.9
    """
    if not save_min > 0 or not failures_per_day >= 0:
        raise DataError(
            f"checkpoint interval: expected a save time above 0 and failures >= 0 per day, got "
            f"{save_min} min and {failures_per_day}"
        )
    if failures_per_day == 0:
        return None
    return sqrt(2 * save_min * 1440 / failures_per_day)


def hazard_per_day(score: float, *, horizon_h: float) -> float:
    """The constant failure rate that gives a score over its horizon.

    Args:
        score: Probability of a failure within the horizon.
        horizon_h: The horizon, in hours.

    >>> round(hazard_per_day(0.5, horizon_h=24), 3)
    0.693
    """
    return -log1p(-min(score, _CERTAIN)) * 24 / horizon_h


@dataclass(frozen=True, kw_only=True)
class AdviceBasis:
    """What the advice takes as given.

    Attributes:
        as_of: Moment of the advice; scores and jobs from then on are not looked at.
        save_min: Time that training stands still for one checkpoint, in minutes.
        usual_per_node_day: Failures per node and day where no score is known, and for the
            interval to compare with.
        horizon_h: Horizon of the scores to take, in hours.
        max_age: Scores older than this are unknown.
    """

    as_of: datetime
    save_min: float
    usual_per_node_day: float
    horizon_h: int = 24
    max_age: timedelta = timedelta(hours=6)


def advise_intervals(
    jobs: pl.DataFrame, scores: pl.DataFrame, *, basis: AdviceBasis
) -> pl.DataFrame:
    """Advice for every job that runs, the one with most failures ahead first.

    A failure of any node ends the job's attempt, so the hazards of its nodes add up. A node
    without a score counts with the usual rate, never with none.

    Args:
        jobs: core/jobs.
        scores: scores/node_scores.
        basis: What is taken as given.

    Returns:
        A row per running attempt whose nodes are known: `n_unknown` of its `n_nodes` have no
        score; `interval_min` is the advice, `usual_interval_min` what it would be at the usual
        rate; null: no failure expected.
    """
    running = jobs.filter(
        pl.col("start") < basis.as_of,
        pl.col("end").is_null() | (pl.col("end") > basis.as_of),
        pl.col("nodes").list.len() > 0,
    )
    hazard = _hazards(scores, basis)
    rows = [
        _advice(job_id, sorted(set(nodes)), hazard, basis)
        for job_id, nodes in running.select("job_id", "nodes").iter_rows()
    ]
    return pl.DataFrame(rows, schema=ADVICE_SCHEMA, orient="row").sort(
        "failures_per_day", "job_id", descending=[True, False]
    )


def _hazards(scores: pl.DataFrame, basis: AdviceBasis) -> dict[str, float]:
    """Node -> failures per day by its latest score of the horizon, where one is known."""
    latest = (
        scores.filter(
            pl.col("as_of") <= basis.as_of,
            pl.col("as_of") > basis.as_of - basis.max_age,
            pl.col("horizon_h") == basis.horizon_h,
        )
        .sort("as_of")
        .unique("entity_id", keep="last")
        .filter(pl.col("score").is_not_null())
    )
    return {
        node: hazard_per_day(score, horizon_h=basis.horizon_h)
        for node, score in latest.select("entity_id", "score").iter_rows()
    }


def _advice(
    job_id: str, nodes: list[str], hazard: dict[str, float], basis: AdviceBasis
) -> tuple[object, ...]:
    usual = basis.usual_per_node_day
    rate = sum(hazard.get(node, usual) for node in nodes)
    unknown = sum(node not in hazard for node in nodes)
    intervals = (
        best_interval_min(save_min=basis.save_min, failures_per_day=one)
        for one in (rate, usual * len(nodes))
    )
    return (job_id, len(nodes), unknown, rate, *intervals)
