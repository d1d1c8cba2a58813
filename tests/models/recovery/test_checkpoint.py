"""Checkpoint intervals: Young and Daly's, the hazard behind a score, advice without leaks."""

from datetime import UTC, datetime, timedelta
from math import exp

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from features.tables import CORE_JOBS, NODE_SCORES
from models.recovery.checkpoint import (
    ADVICE_SCHEMA,
    AdviceBasis,
    advise_intervals,
    best_interval_min,
    hazard_per_day,
)

T = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
BASIS = AdviceBasis(as_of=T, save_min=1.0, usual_per_node_day=0.01)


def jobs(*rows):
    full = [
        {"job_id": j, "attempt": 0, "nodes": nodes, "start": start, "end": end}
        for j, nodes, start, end in rows
    ]
    return pl.DataFrame(full, schema=CORE_JOBS.schema)


def scores(*rows):
    full = [
        {"entity_kind": "node", "entity_id": n, "as_of": at, "horizon_h": h, "score": p}
        for n, at, h, p in rows
    ]
    return pl.DataFrame(full, schema=NODE_SCORES.schema)


NO_SCORES = scores()


@given(save=st.floats(0.01, 100), rate=st.floats(0.001, 100))
def test_no_other_interval_loses_less(save, rate):
    def lost(interval):
        return save / interval + rate / 1440 * interval / 2

    best = best_interval_min(save_min=save, failures_per_day=rate)
    assert lost(best) <= min(lost(best * factor) for factor in (0.5, 0.9, 1.1, 2))


def test_without_failures_there_is_no_interval():
    assert best_interval_min(save_min=1, failures_per_day=0) is None


@pytest.mark.parametrize(("save", "rate"), [(0, 1), (-1, 1), (1, -1), (float("nan"), 1)])
def test_what_is_no_time_or_rate_is_refused(save, rate):
    with pytest.raises(DataError, match="save time above 0"):
        best_interval_min(save_min=save, failures_per_day=rate)


@given(rate=st.floats(0, 5), horizon=st.sampled_from([1, 24, 168]))
def test_the_hazard_of_a_score_gives_the_score_back(rate, horizon):
    score = 1 - exp(-rate * horizon / 24)
    if score < 1 - 1e-6:
        assert hazard_per_day(score, horizon_h=horizon) == pytest.approx(rate, abs=1e-9, rel=1e-6)


def test_a_certain_failure_is_a_finite_hazard():
    assert 0 < hazard_per_day(1.0, horizon_h=24) < 30


def test_hazards_of_the_nodes_add_up_and_unscored_nodes_count_with_the_usual_rate():
    running = jobs(("j", ["n1", "n2", "n3"], T - HOUR, None))
    given_scores = scores(("n1", T, 24, 0.5), ("n2", T, 24, None), ("n9", T, 24, 0.9))
    [row] = advise_intervals(running, given_scores, basis=BASIS).rows(named=True)
    rate = hazard_per_day(0.5, horizon_h=24) + 2 * 0.01
    assert (row["n_nodes"], row["n_unknown"]) == (3, 2)
    assert row["failures_per_day"] == pytest.approx(rate)
    assert row["interval_min"] == pytest.approx((2 * 1440 / rate) ** 0.5)
    assert row["usual_interval_min"] == pytest.approx((2 * 1440 / 0.03) ** 0.5)


def test_the_latest_score_of_the_horizon_counts_until_it_is_too_old():
    running = jobs(("j", ["n1"], T - HOUR, None))
    known = scores(
        ("n1", T - 2 * HOUR, 24, 0.1), ("n1", T - HOUR, 24, 0.5), ("n1", T - HOUR, 168, 0.9)
    )
    [row] = advise_intervals(running, known, basis=BASIS).rows(named=True)
    assert row["failures_per_day"] == pytest.approx(hazard_per_day(0.5, horizon_h=24))
    old = scores(("n1", T - 6 * HOUR, 24, 0.5))
    assert advise_intervals(running, old, basis=BASIS)["n_unknown"].to_list() == [1]


def test_only_jobs_that_run_are_advised_the_riskiest_first():
    listed = jobs(
        ("ended", ["n1"], T - 2 * HOUR, T),
        ("later", ["n1"], T, None),
        ("nowhere", None, T - HOUR, None),
        ("small", ["n1"], T - HOUR, T + HOUR),
        ("big", ["n1", "n2"], T - HOUR, None),
    )
    found = advise_intervals(listed, NO_SCORES, basis=BASIS)
    assert found.schema == ADVICE_SCHEMA
    assert found["job_id"].to_list() == ["big", "small"]


@given(after=st.integers(0, 5), score=st.floats(0, 1))
def test_scores_and_jobs_after_as_of_change_nothing(after, score):
    running = jobs(("j", ["n1"], T - HOUR, None))
    known = scores(("n1", T, 24, 0.2))
    later = pl.concat([known, scores(("n1", T + (after + 1) * HOUR, 24, score))])
    more = pl.concat([running, jobs(("k", ["n1"], T + after * HOUR, None))])
    assert advise_intervals(more, later, basis=BASIS).equals(
        advise_intervals(running, known, basis=BASIS)
    )
