"""Rules of choosing a threshold."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from models.thresholds import threshold_for_budget, threshold_for_precision
from models.warnings import WarningPolicy, raise_alerts

HOUR = timedelta(hours=1)
POLICY = WarningPolicy(threshold=1.0, tick=HOUR, cooldown=6 * HOUR)
EVEN = pl.col("node").str.slice(5).cast(pl.Int64) % 2 == 0


@pytest.fixture(scope="module")
def scored(rows, model) -> pl.DataFrame:
    # Ties are broken, for a budget can be used up only where scores differ.
    noise = 1e-9 * np.random.default_rng(1).random(rows.height)
    return rows.with_columns(score=pl.Series(model.scores(rows) + noise))


@pytest.mark.parametrize("budget", [50, 300, 2000])
def test_the_budget_is_kept_and_nearly_used(scored, budget) -> None:
    choice = threshold_for_budget(scored, policy=POLICY, alerts_per_1000_nodes_per_day=budget)
    allowed = budget * 10 * 150 / 24 / 1000
    spent = raise_alerts(scored, replace(POLICY, threshold=choice.threshold)).height
    assert 0.7 * allowed - 1 <= spent <= allowed
    assert f"{spent} alerts" in choice.explanation


def test_no_threshold_keeps_to_a_budget_below_one_alert(scored) -> None:
    choice = threshold_for_budget(scored, policy=POLICY, alerts_per_1000_nodes_per_day=1)
    assert choice.threshold is None
    assert "No threshold" in choice.explanation


def test_a_budget_of_nothing_is_refused(scored) -> None:
    with pytest.raises(DataError, match="positive"):
        threshold_for_budget(scored, policy=POLICY, alerts_per_1000_nodes_per_day=0)


def test_rows_without_scores_are_refused(scored) -> None:
    unknown = scored.with_columns(score=pl.lit(None, dtype=pl.Float64))
    with pytest.raises(DataError, match="no row has a score"):
        threshold_for_budget(unknown, policy=POLICY, alerts_per_1000_nodes_per_day=10)


def test_a_precision_within_reach_is_guaranteed(scored, incidents, model) -> None:
    choice = threshold_for_precision(
        scored.filter(EVEN),
        scored.filter(~EVEN),
        incidents=incidents,
        task=model.task,
        policy=POLICY,
        precision=0.5,
    )
    assert choice.threshold is not None
    assert "Lowest threshold tested with precision >= 0.5" in choice.explanation


def test_a_higher_precision_asks_for_a_higher_threshold(scored, incidents, model) -> None:
    found = [
        threshold_for_precision(
            scored.filter(EVEN),
            scored.filter(~EVEN),
            incidents=incidents,
            task=model.task,
            policy=POLICY,
            precision=wanted,
        ).threshold
        for wanted in (0.3, 0.6)
    ]
    assert found[0] < found[1]


def test_when_no_threshold_qualifies_it_says_so(scored, incidents, model) -> None:
    rng = np.random.default_rng(1)
    noise = scored.with_columns(score=pl.Series(rng.random(scored.height)))
    choice = threshold_for_precision(
        noise.filter(EVEN),
        noise.filter(~EVEN),
        incidents=incidents,
        task=model.task,
        policy=POLICY,
        precision=0.9,
    )
    assert choice.threshold is None
    assert "No threshold qualifies for precision >= 0.9" in choice.explanation


def test_what_passes_on_the_tuning_part_alone_is_not_chosen(scored, incidents, model) -> None:
    rng = np.random.default_rng(1)
    noise = scored.with_columns(score=pl.Series(rng.random(scored.height)))
    choice = threshold_for_precision(
        scored.filter(EVEN),
        noise.filter(~EVEN),
        incidents=incidents,
        task=model.task,
        policy=POLICY,
        precision=0.6,
    )
    assert choice.threshold is None
    assert "on the test part" in choice.explanation


def test_a_share_out_of_range_is_refused(scored, incidents, model) -> None:
    with pytest.raises(DataError, match="precision must be in"):
        threshold_for_precision(
            scored, scored, incidents=incidents, task=model.task, policy=POLICY, precision=1.0
        )
