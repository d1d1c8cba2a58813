"""Rules of calibration per week."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson

from features.contracts import UTC_TIME
from features.errors import DataError
from models.drift.calibration import calibration_by_week, calibration_moments
from models.evaluation.intervals import poisson_interval

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)


def scored(rate: float, *, score: float = 0.01, n: int = 400, seed: int = 1) -> pl.DataFrame:
    """Every GPU at the days of a week, failing at `rate` a day where `score` was said."""
    moments = calibration_moments(MONDAY, horizon=DAY)
    size = n * len(moments)
    return pl.DataFrame(
        {
            "entity_id": np.repeat([f"gpu-{i}" for i in range(n)], len(moments)),
            "as_of": pl.Series(moments * n, dtype=UTC_TIME),
            "score": np.full(size, score),
            "label": (np.random.default_rng(seed).random(size) < rate).astype(int),
        }
    )


def judge(rows: pl.DataFrame):
    return calibration_by_week(rows, start=MONDAY, horizon=DAY)


def test_true_scores_are_seldom_an_alarm() -> None:
    alarms = sum(judge(scored(0.01, n=100, seed=seed)).is_alarm for seed in range(60))
    assert alarms <= 2  # at most 1 % by construction


@pytest.mark.parametrize(("rate", "side"), [(0.03, "more"), (0.002, "less")])
def test_scores_that_promise_wrongly_are_an_alarm(rate, side) -> None:
    found = judge(scored(rate))
    assert found.is_alarm
    assert found.low > 1.0 if side == "more" else found.high < 1.0
    assert (found.n_rows, found.expected) == (2800, pytest.approx(28.0))


def test_a_sure_but_small_error_is_no_alarm() -> None:
    found = judge(scored(0.24, score=0.20, n=4000))
    assert found.low > 1.0
    assert not found.is_alarm


def test_rows_nearer_than_a_horizon_are_one_observation() -> None:
    rows = scored(0.03)
    between = rows.with_columns(pl.col("as_of") + timedelta(hours=5), label=pl.lit(1))
    assert judge(pl.concat([rows, between.cast(rows.schema)])) == judge(rows)


def test_unknown_scores_and_outcomes_are_left_out() -> None:
    rows = scored(0.01)
    unknown = rows.head(5).with_columns(label=pl.lit(None, dtype=pl.Int64))
    assert judge(pl.concat([unknown, rows.tail(-5)])).n_rows == rows.height - 5
    assert judge(rows.clear()) is None


def test_a_long_horizon_is_looked_at_once_a_week() -> None:
    assert calibration_moments(MONDAY, horizon=timedelta(days=7)) == [MONDAY + 7 * DAY]
    assert calibration_moments(MONDAY, horizon=timedelta(days=30)) == [MONDAY + 7 * DAY]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(DataError, match="'label' is missing"):
        judge(scored(0.01).drop("label"))


@given(st.integers(0, 200), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_ends_of_the_interval_are_the_rates_that_just_explain_the_count(
    count, confidence
) -> None:
    low, high = poisson_interval(count, confidence=confidence)
    tail = (1 - confidence) / 2
    assert poisson.cdf(count, high) == pytest.approx(tail, rel=1e-6)
    assert count == 0 or poisson.sf(count - 1, low) == pytest.approx(tail, rel=1e-6)
