"""Rules of choosing a policy: by budget, or by a precision that holds."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from models.policies.rows import Episodes, PolicyRows, policy_rows
from models.policies.thresholds import SequenceEnd, next_alerts, spend_budget
from models.policies.tuning import PolicyGrid, halves_by_node, tune_for_budget, tune_for_precision
from models.policies.warnings import raise_alerts

HOUR = timedelta(hours=1)
GRID = PolicyGrid(tick=HOUR, cooldowns=(6 * HOUR, 2 * HOUR))
EVEN = pl.col("node").str.slice(5).cast(pl.Int64) % 2 == 0


@pytest.fixture(scope="module")
def scored(rows, model) -> pl.DataFrame:
    noise = 1e-9 * np.random.default_rng(1).random(rows.height)
    return rows.with_columns(score=pl.Series(model.scores(rows) + noise))


@pytest.fixture(scope="module")
def prepare(incidents, model):
    def prepared(rows: pl.DataFrame) -> PolicyRows:
        return policy_rows(rows, incidents=incidents, task=model.task, tick=HOUR)

    return prepared


@pytest.fixture(scope="module")
def noise(scored) -> pl.DataFrame:
    return scored.with_columns(score=pl.Series(np.random.default_rng(1).random(scored.height)))


def test_the_budget_is_kept_and_told(scored, prepare) -> None:
    rows = prepare(scored)
    choice = tune_for_budget(rows, GRID, alerts_per_1000_nodes_per_day=1000)
    spent = raise_alerts(scored, choice.policy).height
    assert choice.threshold == choice.policy.threshold
    assert spent <= 1000 * rows.node_days / 1000
    assert f"{spent} alerts" in choice.explanation
    assert f"of {rows.n_incidents} incidents caught" in choice.explanation


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (1000, "At most {} alerts of as many nodes in as long a time are expected with 95 %"),
        (10, "No margin is left, for so few prove nothing: at most {} alerts of as many nodes"),
    ],
)
def test_the_margin_is_told_or_that_there_is_none(prepare, scored, budget, said) -> None:
    rows = prepare(scored)
    choice = tune_for_budget(rows, GRID, alerts_per_1000_nodes_per_day=budget)
    alerts = rows.alerts(choice.policy)
    expected = next_alerts(alerts.size, clustering=rows.clustering(alerts), confidence=0.95)
    assert said.format(expected) in choice.explanation
    assert (expected <= budget * rows.node_days / 1000) == ("At most" in choice.explanation)


def test_a_strictest_threshold_that_proves_nothing_says_so(prepare, scored) -> None:
    choice = tune_for_budget(
        prepare(scored.with_columns(score=pl.lit(1.0))),
        replace(GRID, persistence=((1, 1),)),
        alerts_per_1000_nodes_per_day=16_100,
    )
    assert choice.threshold == 1.0
    assert "No margin is left, for no threshold is stricter: at most" in choice.explanation


def test_another_policy_is_taken_only_where_it_catches_clearly_more(prepare, scored) -> None:
    rows = prepare(scored)
    allowed = 1000 * rows.node_days / 1000
    found = [spend_budget(rows, policy, allowed=allowed) for policy in GRID.policies()]
    choice = tune_for_budget(rows, GRID, alerts_per_1000_nodes_per_day=1000)
    taken = next(one for one in found if one.policy == choice.policy)
    assert len(taken.caught) >= len(found[0].caught)
    if taken is not found[0]:
        alone = len(set(taken.caught) ^ set(found[0].caught))
        assert len(taken.caught) - len(found[0].caught) > alone**0.5


def test_equal_policies_leave_the_default(prepare, scored) -> None:
    # A row is above or not at a whole run of ticks: persistence changes nothing that is caught.
    always = scored.with_columns(score=pl.col("label").cast(pl.Float64))
    choice = tune_for_budget(prepare(always), GRID, alerts_per_1000_nodes_per_day=5000)
    assert (choice.policy.n, choice.policy.k) == GRID.persistence[0]


def test_no_threshold_keeps_to_a_budget_below_one_alert(prepare, scored) -> None:
    strict = replace(GRID, persistence=((1, 1),))
    choice = tune_for_budget(prepare(scored), strict, alerts_per_1000_nodes_per_day=1)
    assert (choice.threshold, choice.policy) == (None, None)
    assert "No threshold" in choice.explanation


def test_a_budget_of_nothing_is_refused(prepare, scored) -> None:
    with pytest.raises(DataError, match="positive"):
        tune_for_budget(prepare(scored), GRID, alerts_per_1000_nodes_per_day=0)


def test_a_precision_within_reach_is_given_with_its_episodes(prepare, scored) -> None:
    tune, test = prepare(scored.filter(EVEN)), prepare(scored.filter(~EVEN))
    choice = tune_for_precision(tune, test, GRID, precision=0.4)
    found = test.outcome(choice.policy)
    assert found.precision > 0.4
    assert f"{found.n_true} of {found.size} episodes were true" in choice.explanation


def test_a_higher_precision_catches_no_more(prepare, scored) -> None:
    tune, test = prepare(scored.filter(EVEN)), prepare(scored.filter(~EVEN))
    caught = []
    for precision in (0.2, 0.4):
        choice = tune_for_precision(tune, test, GRID, precision=precision)
        caught.append(test.outcome(choice.policy).n_true)
    assert caught[0] >= caught[1]


def test_what_the_tuning_part_alone_promises_is_refused_with_what_is_missing(
    prepare, scored, noise
) -> None:
    tune, test = prepare(scored.filter(EVEN)), prepare(noise.filter(~EVEN))
    choice = tune_for_precision(tune, test, GRID, precision=0.5)
    assert choice.policy is None
    assert "on the test part. At least" in choice.explanation
    assert "independent episodes must be true" in choice.explanation


def test_persistence_and_cooldown_do_not_depend_on_the_test_part(
    monkeypatch, prepare, scored, noise
) -> None:
    tried = []

    def remember(rows, policies, **_):
        tried.append(policies)
        return SequenceEnd(None, Episodes(0, 0, 0.0), 0)

    monkeypatch.setattr("models.policies.tuning.try_in_order", remember)
    tune = prepare(scored.filter(EVEN))
    for test in (scored.filter(~EVEN), noise.filter(~EVEN)):
        tune_for_precision(tune, prepare(test), GRID, precision=0.5)
    assert tried[0] == tried[1]
    assert len({(one.n, one.k, one.cooldown) for one in tried[0]}) == 1
    thresholds = [one.threshold for one in tried[0]]
    assert thresholds == sorted(thresholds, reverse=True)


def test_another_policy_is_tested_only_where_it_catches_clearly_more(
    monkeypatch, prepare, scored
) -> None:
    tried = []

    def remember(rows, policies, **_):
        tried.append(policies)
        return SequenceEnd(None, Episodes(0, 0, 0.0), 0)

    monkeypatch.setattr("models.policies.tuning.try_in_order", remember)
    noise = pl.Series(np.random.default_rng(3).random(scored.height))
    tune = prepare(scored.with_columns(pl.col("score") + 0.5 * noise))
    alone = [
        replace(GRID, persistence=(pair,), cooldowns=(cooldown,))
        for pair in GRID.persistence
        for cooldown in GRID.cooldowns
    ]
    for grid in (GRID, *alone):
        tune_for_precision(tune, tune, grid, precision=0.3)
    caught = [
        max((set(tune.caught_by(tune.alerts(one))) for one in policies), key=len)
        for policies in tried
    ]
    taken, default, *others = caught
    gained, lost = len(taken - default), len(default - taken)
    assert tried[0] == tried[1] or gained - lost > (gained + lost) ** 0.5
    assert max(len(one) for one in others) > len(default)  # the most would have been another


def test_scores_without_signal_get_no_guarantee(prepare, noise) -> None:
    tune, test = prepare(noise.filter(EVEN)), prepare(noise.filter(~EVEN))
    choice = tune_for_precision(tune, test, GRID, precision=0.9)
    assert choice.policy is None
    assert "No threshold qualifies for precision >= 0.9" in choice.explanation


def test_scores_that_are_all_alike_get_no_guarantee(prepare, scored) -> None:
    alike = prepare(scored.with_columns(score=pl.lit(1.0)))
    assert alike.outcome(replace(GRID.policies()[0], threshold=1.0)).size > 30
    choice = tune_for_precision(alike, alike, GRID, precision=0.9)
    assert choice.policy is None
    assert "No threshold qualifies for precision >= 0.9" in choice.explanation


def test_a_part_without_scores_gets_no_guarantee(prepare, scored) -> None:
    choice = tune_for_precision(prepare(scored), prepare(scored.clear()), GRID, precision=0.5)
    assert choice.policy is None
    assert "it takes scored nodes" in choice.explanation


def test_a_share_out_of_range_is_refused(prepare, scored) -> None:
    rows = prepare(scored)
    with pytest.raises(DataError, match="precision must be in"):
        tune_for_precision(rows, rows, GRID, precision=1.0)


def test_the_halves_share_no_node_and_lose_no_row(scored) -> None:
    tune, test = halves_by_node(scored)
    assert tune.height + test.height == scored.height
    assert not set(tune["node"]) & set(test["node"])
    assert tune["node"].n_unique() > 2
    assert test["node"].n_unique() > 2
