"""The guarantee of precision, on fleets whose truth is known."""

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from models.evaluation.event_metrics import caught_pairs
from models.policies.thresholds import BUDGET_CONFIDENCE
from models.policies.tuning import PolicyGrid
from models.policies.warnings import WarningPolicy
from simulation.guarantees import Kept, Size, check_budget, check_hardest, check_precision
from simulation.score_fleets import TASK, TICK, ScoreProcess, draw_fleet

DAY = (timedelta(hours=24),)
GRIDS = {"1 of 1": PolicyGrid(tick=TICK, persistence=((1, 1),), cooldowns=DAY)}
BOTH = GRIDS | {"2 of 3": PolicyGrid(tick=TICK, persistence=((2, 3),), cooldowns=DAY)}
FEW = Size(n_fleets=8, n_nodes=600, days=40, truth_nodes=3000)
REGIMES = {
    "independent": ScoreProcess(),
    "wrong about single nodes": ScoreProcess(level_sd=1.0, slope=2.0),
    "in batches": ScoreProcess(incidents_per_node_day=0.003, shared_causes_per_day=0.5),
}


@pytest.mark.parametrize("regime", ["independent", "in batches"])
def test_a_promise_of_precision_is_kept_on_a_few_fleets(regime) -> None:
    found = check_precision(REGIMES[regime], grids=GRIDS, precisions=(0.5, 0.85), size=FEW)
    assert found["1 of 1"][0].n_given > 4  # a promise never made is easily kept
    assert all(kept.is_within_error for kept in found["1 of 1"])


@pytest.mark.slow
@pytest.mark.parametrize("regime", REGIMES)
def test_a_promise_of_precision_is_kept_on_200_fleets(regime) -> None:
    precisions = (0.5, 0.7, 0.85, 0.95)
    found = check_precision(REGIMES[regime], grids=BOTH, precisions=precisions, size=Size())
    for promises in found.values():
        assert promises[0].n_given > 180
        assert all(kept.is_within_error for kept in promises)


def test_drift_can_break_what_a_stationary_fleet_keeps() -> None:
    served = ScoreProcess(spells_per_node_day=0.01)
    found = check_precision(ScoreProcess(), grids=GRIDS, precisions=(0.7,), size=FEW, served=served)
    assert not found["1 of 1"][0].is_within_error


def test_a_policy_rarely_passes_for_just_the_precision_it_has_and_often_for_less() -> None:
    policy = WarningPolicy(threshold=0.2, tick=TICK, cooldown=DAY[0])
    size = replace(FEW, n_fleets=20)
    (kept,) = check_hardest(ScoreProcess(), policies=[policy], size=size)
    assert 0.3 < kept.precision < 0.6
    assert kept.n_broken <= 3
    easier = check_precision(ScoreProcess(), grids=GRIDS, precisions=(0.3,), size=FEW)
    assert easier["1 of 1"][0].n_given == FEW.n_fleets


def test_a_budget_is_spent_on_other_nodes_as_on_those_it_was_tuned_on() -> None:
    found = check_budget(ScoreProcess(), grids=GRIDS, budget=4.0, size=FEW)["1 of 1"]
    assert found.n_given == FEW.n_fleets
    assert 2.0 < found.mean_rate < 4.5
    assert found.mean_recall > 0.4


CLUSTERED = {
    "alerts of few nodes": ScoreProcess(level_sd=2.0, slope=2.0),
    "alerts of the same days": REGIMES["in batches"],
}


@pytest.mark.parametrize("regime", CLUSTERED)
def test_a_budget_is_kept_by_other_nodes_as_often_as_promised_and_not_without_a_margin(
    regime,
) -> None:
    size = Size(n_fleets=60, n_nodes=300, days=30, truth_nodes=300)
    promised, plain = (
        check_budget(CLUSTERED[regime], grids=GRIDS, budget=10.0, size=size, confidence=confidence)
        for confidence in (BUDGET_CONFIDENCE, 0.5)
    )
    kept, broken = promised["1 of 1"], plain["1 of 1"]
    assert kept.n_given == broken.n_given == size.n_fleets
    assert kept.broken_interval[0] < 1.0 - BUDGET_CONFIDENCE < broken.broken_interval[0]
    assert kept.mean_rate > 4.0  # a budget that is hardly spent is easily kept


def test_the_share_of_broken_promises_is_judged_with_its_sampling_error() -> None:
    def kept(n_broken: int) -> Kept:
        return Kept(precision=0.9, n_fleets=200, n_given=200, n_broken=n_broken, mean_recall=0.5)

    assert kept(10).is_within_error
    assert kept(15).is_within_error
    assert not kept(16).is_within_error
    assert kept(0).broken_interval[0] == 0.0
    few = replace(kept(2), n_given=4)
    assert few.broken_interval == pytest.approx((0.001, 0.036), abs=0.001)
    assert few.broken_interval_of_given == pytest.approx((0.068, 0.932), abs=0.001)
    assert replace(few, n_given=0, n_broken=0).broken_interval_of_given is None


def test_a_fleet_is_the_same_for_the_same_seed() -> None:
    first, second = (draw_fleet(ScoreProcess(), n_nodes=20, days=10, seed=3) for _ in range(2))
    assert first.rows.equals(second.rows)
    assert first.incidents.equals(second.incidents)


def test_labels_of_a_fleet_are_what_its_incidents_say() -> None:
    process = ScoreProcess(incidents_per_node_day=0.05)
    fleet = draw_fleet(process, n_nodes=50, days=20, seed=1, floor=-99.0)
    known = fleet.rows.drop_nulls("label")
    caught = caught_pairs(known, fleet.incidents, task=TASK).select("entity_id", "as_of").unique()
    positive = known.filter(pl.col("label") == 1).select("entity_id", "as_of")
    assert caught.sort("entity_id", "as_of").equals(positive.sort("entity_id", "as_of"))
    assert positive.height > 300
    assert fleet.rows["label"].null_count() > 50 * 24


def test_announced_incidents_raise_scores_and_others_do_not() -> None:
    def mean_score(announced: float) -> float:
        process = ScoreProcess(
            announced=announced, incidents_per_node_day=0.02, spells_per_node_day=0.0
        )
        rows = draw_fleet(process, n_nodes=100, days=20, seed=2, floor=-99.0).rows
        return rows.filter(pl.col("label") == 1)["score"].mean()

    assert mean_score(1.0) > 10 * mean_score(0.0)
