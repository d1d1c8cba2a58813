"""Rules of choosing a threshold of one policy."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, nbinom

from features.errors import DataError
from models.policies.rows import Episodes, PolicyRows, policy_rows
from models.policies.thresholds import (
    PLAIN_COUNT,
    chance_if_lower,
    missing_episodes,
    next_alerts,
    spend_budget,
    try_in_order,
)
from models.policies.warnings import WarningPolicy, raise_alerts

HOUR = timedelta(hours=1)
POLICY = WarningPolicy(threshold=1.0, tick=HOUR, cooldown=6 * HOUR)


@pytest.fixture(scope="module")
def scored(rows, model) -> pl.DataFrame:
    # Ties are broken, for a budget can be used up only where scores differ.
    noise = 1e-9 * np.random.default_rng(1).random(rows.height)
    return rows.with_columns(score=pl.Series(model.scores(rows) + noise))


@pytest.fixture(scope="module")
def prepare(incidents, model):
    def prepared(rows: pl.DataFrame) -> PolicyRows:
        return policy_rows(rows, incidents=incidents, task=model.task, tick=HOUR)

    return prepared


@pytest.fixture(scope="module")
def prepared(scored, prepare) -> PolicyRows:
    return prepare(scored)


COUNTS = st.integers(0, 3000)
CLUSTERING = st.floats(1.0, 50.0)
CONFIDENCE = st.floats(0.5, 0.99)


@pytest.mark.parametrize("allowed", [3, 10, 20, 60, 90, 125])
def test_without_margin_the_budget_is_kept_and_nearly_used(scored, prepared, allowed) -> None:
    spent = spend_budget(prepared, POLICY, allowed=allowed, confidence=0.5)
    assert raise_alerts(scored, spent.policy).height == spent.n_alerts
    assert 0.95 * allowed - 1 <= spent.n_alerts <= allowed


@pytest.mark.parametrize("allowed", [40, 60, 90, 125])
def test_what_is_expected_next_keeps_to_the_budget_and_nearly_uses_it(prepared, allowed) -> None:
    spent = spend_budget(prepared, POLICY, allowed=allowed)
    assert spent.n_alerts < spent.n_expected
    assert 0.9 * allowed - 1 <= spent.n_expected <= allowed


@pytest.mark.parametrize("allowed", [1, 3, PLAIN_COUNT, PLAIN_COUNT + 2])
def test_of_few_alerts_the_count_itself_is_held_to_the_budget(prepared, allowed) -> None:
    spent = spend_budget(prepared, POLICY, allowed=allowed)
    assert spent.n_alerts == min(allowed, PLAIN_COUNT)
    assert spent.n_expected > allowed


def test_the_strictest_threshold_need_not_prove_anything(scored, prepare) -> None:
    tied = prepare(scored.with_columns(score=pl.lit(1.0)))
    n_alerts = tied.alerts(POLICY).size
    assert n_alerts > PLAIN_COUNT
    spent = spend_budget(tied, POLICY, allowed=n_alerts)
    assert (spent.policy.threshold, spent.n_alerts) == (1.0, n_alerts)
    assert spent.n_expected > n_alerts
    assert spend_budget(tied, POLICY, allowed=n_alerts - 1).policy is None


def test_a_larger_budget_never_spends_less(prepared) -> None:
    spent = [spend_budget(prepared, POLICY, allowed=allowed).n_alerts for allowed in range(1, 120)]
    assert spent == sorted(spent)
    assert len(set(spent)) > 30


def test_alerts_that_cluster_by_node_leave_more_of_the_budget(scored, prepare) -> None:
    # The same alerts at the same times, half of them told of one node.
    is_even = pl.col("node").str.slice(5).cast(pl.Int64) % 2 == 0
    one = pl.when(is_even).then(pl.lit("node-0")).otherwise("node")
    spread, clustered = (
        spend_budget(prepare(rows), POLICY, allowed=60)
        for rows in (scored, scored.with_columns(node=one))
    )
    assert PLAIN_COUNT < clustered.n_alerts < spread.n_alerts


@given(COUNTS, CLUSTERING, CONFIDENCE)
def test_no_fewer_alerts_are_expected_than_were_raised(n_alerts, clustering, confidence) -> None:
    found = next_alerts(n_alerts, clustering=clustering, confidence=confidence)
    assert found >= n_alerts
    more = next_alerts(n_alerts + 1, clustering=clustering, confidence=confidence)
    assert found <= more
    assert next_alerts(n_alerts, clustering=clustering, confidence=0.5) == n_alerts


@given(COUNTS, CLUSTERING, CLUSTERING, CONFIDENCE, CONFIDENCE)
def test_more_alerts_are_expected_the_more_they_cluster_and_the_surer(n, one, other, sure, surer):
    (one, other), (sure, surer) = sorted((one, other)), sorted((sure, surer))
    expected = next_alerts(n, clustering=one, confidence=sure)
    assert expected <= next_alerts(n, clustering=other, confidence=sure)
    assert expected <= next_alerts(n, clustering=one, confidence=surer)


@given(COUNTS, st.sampled_from([0.6, 0.8, 0.9, 0.95]))
def test_of_independent_alerts_the_bound_is_the_exact_one(n_alerts, confidence) -> None:
    found = next_alerts(n_alerts, clustering=1.0, confidence=confidence)
    assert found == nbinom.isf(1.0 - confidence, n_alerts + 1, 0.5)


def test_no_threshold_keeps_to_a_budget_below_one_alert(prepared) -> None:
    spent = spend_budget(prepared, POLICY, allowed=0.5)
    assert (spent.policy, spent.caught) == (None, ())
    assert spent.n_alerts >= 1


def test_rows_without_scores_are_refused(scored, incidents, model) -> None:
    unknown = scored.with_columns(score=pl.lit(None, dtype=pl.Float64))
    empty = policy_rows(unknown, incidents=incidents, task=model.task, tick=HOUR)
    with pytest.raises(DataError, match="no row has a score"):
        spend_budget(empty, POLICY, allowed=10)


@given(st.integers(1, 60), st.integers(0, 60), st.sampled_from([0.5, 0.85, 0.95]))
def test_the_chance_of_independent_episodes_is_the_exact_binomial_one(true, false, precision):
    n = true + false
    found = chance_if_lower(Episodes(true, false, float(n)), precision=precision)
    assert found == pytest.approx(binom.sf(true - 1, n, precision), rel=1e-9, abs=1e-300)


@given(st.integers(1, 60), st.integers(0, 9), st.floats(0.1, 1.0))
def test_fewer_effective_episodes_of_one_precision_never_prove_more(true, false, share) -> None:
    whole = Episodes(true, false, float(true + false))
    fewer = replace(whole, n_effective=share * whole.size)
    if whole.precision > 0.85:
        assert chance_if_lower(fewer, precision=0.8) >= chance_if_lower(whole, precision=0.8)


def test_no_true_episode_proves_nothing() -> None:
    assert chance_if_lower(Episodes(0, 0, 0.0), precision=0.5) == 1.0
    assert chance_if_lower(Episodes(0, 4, 4.0), precision=0.5) == 1.0


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Episodes(8, 1, 9.0), "At least 19 of 19 independent episodes must be true; 8 of 9 were."),
        (Episodes(20, 3, 23.0), "At least 23 of 23"),
        (Episodes(60, 12, 36.0), "60 of 72 were, worth 36 independent ones."),
    ],
)
def test_what_is_missing_is_said(found, said) -> None:
    words = missing_episodes(found, precision=0.85, confidence=0.95)
    assert said in words
    needed, n = (int(word) for word in words.split(" independent")[0].split()[2::2])
    assert binom.sf(needed - 1, n, 0.85) <= 0.05 < binom.sf(needed - 2, n, 0.85)


def outcomes(monkeypatch, found: dict[float, Episodes]) -> list[WarningPolicy]:
    monkeypatch.setattr(PolicyRows, "outcome", lambda _, policy: found[policy.threshold])
    return [replace(POLICY, threshold=threshold) for threshold in found]


def test_the_first_that_does_not_pass_ends_the_sequence(monkeypatch, prepared) -> None:
    good, bad = Episodes(50, 1, 51.0), Episodes(50, 30, 80.0)
    policies = outcomes(monkeypatch, {0.9: good, 0.8: bad, 0.7: good})
    ended = try_in_order(prepared, policies, precision=0.85, confidence=0.95)
    assert (ended.policy.threshold, ended.episodes, ended.n_tried) == (0.9, good, 2)


def test_where_the_first_does_not_pass_none_is_chosen_and_its_episodes_are_told(
    monkeypatch, prepared
) -> None:
    good, bad = Episodes(50, 1, 51.0), Episodes(5, 0, 5.0)
    policies = outcomes(monkeypatch, {0.9: bad, 0.8: good})
    ended = try_in_order(prepared, policies, precision=0.85, confidence=0.95)
    assert (ended.policy, ended.episodes, ended.n_tried) == (None, bad, 1)
