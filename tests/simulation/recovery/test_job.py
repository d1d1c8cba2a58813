"""The recovery simulation: what each cause costs to the second, and the published ETTR."""

from dataclasses import replace
from itertools import pairwise
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SettingsError
from models.recovery.ladder import PUBLISHED_SHARES
from simulation.recovery import job as module
from simulation.recovery.job import run_job
from simulation.recovery.parameters import (
    BYTEROBUST,
    MACHINE_CAUSES,
    PLAIN,
    REGIMES,
    REQUEUE,
    RESCHEDULE,
    SHARES,
    SOURCES,
    Foresight,
    Regime,
)

DAY = 86400
EXACT = Regime(
    days=30, n_nodes=40, mtbi_h=20, detect_s=1, detect_hang_s=20, localize_s=300, diagnose_s=4000,
    refail_s=50_000, replay_s=600_000, swap_s=7, reschedule_s=80, in_place_s=0.5, step_s=0,
    checkpoint_stall=0, over_evicted=8, pool_p_fail=1, refill_h=0,
)  # fmt: skip
"""Each part has digits of its own, so that a sum tells what it is made of; nothing is lost to
steps, and the pool holds every node."""

COSTS = {
    "change": 0.5,
    "network": 1 + 7,
    "machine": 1 + 4000 + 7,
    "transient": 1 + 4000 + 0.5,
    "code": 1 + 4000 + (0.5 + 50_000 + 1) + 0.5,
    "silent": 1 + 4000 + 2 * (0.5 + 50_000 + 1) + 600_000 + 7,
    "hang": 20 + 300 + 7,
    "slow": 20 + 300 + 7,
}


def only(cause, monkeypatch):
    monkeypatch.setattr(module, "SHARES", {name: float(name == cause) for name in SHARES})


@pytest.mark.parametrize(("cause", "cost"), COSTS.items())
def test_an_incident_costs_what_the_steps_of_its_ladder_cost(cause, cost, monkeypatch):
    only(cause, monkeypatch)
    run = run_job(EXACT, seed=3)
    stops = {s.end_s - s.start_s for s in run.stretches[:-1] if not s.is_productive}
    assert [round(stop, 6) for stop in stops] == pytest.approx([cost] * len(stops))
    assert stops


def test_every_published_cause_has_a_cost_here():
    assert set(COSTS) == set(SHARES)
    assert sum(SHARES.values()) == pytest.approx(1)
    assert set(MACHINE_CAUSES) < set(SHARES)


def test_without_a_pool_an_eviction_waits_for_a_replacement(monkeypatch):
    only("network", monkeypatch)
    run = run_job(replace(EXACT, pool_p_fail=0), seed=3)
    assert run.longest_stop_min == pytest.approx((1 + 80) / 60)
    assert run.short == run.incidents["eviction"]


def test_a_pool_that_is_used_up_is_short_until_it_is_refilled(monkeypatch):
    only("network", monkeypatch)
    forever = replace(EXACT, pool_p_fail=0.001, refill_h=1e6)
    run = run_job(forever, seed=3)
    assert run.evicted > run.short > 0
    assert run_job(replace(forever, refill_h=0), seed=3).short == 0


def test_more_suspects_than_the_budget_are_left_to_a_person(monkeypatch):
    only("hang", monkeypatch)
    run = run_job(replace(EXACT, budget=7, person_s=9e5), seed=3)
    assert (run.evicted, set(run.incidents)) == (0, {"person"})
    assert run.longest_stop_min == pytest.approx((20 + 300 + 9e5) / 60)


def test_work_since_the_last_checkpoint_is_lost_with_the_step_under_way(monkeypatch):
    only("change", monkeypatch)
    assert run_job(replace(EXACT, step_s=60), seed=3).longest_stop_min == pytest.approx(0.5 / 60)
    only("network", monkeypatch)
    run = run_job(replace(EXACT, step_s=60, checkpoint_steps=10), seed=3)
    stops = [s.end_s - s.start_s for s in run.stretches if not s.is_productive]
    assert 8 < min(stops) < max(stops) < 8 + 11 * 60


def test_a_job_that_nothing_stops_loses_only_its_checkpoints():
    run = run_job(replace(BYTEROBUST, mtbi_h=1e9), seed=0)
    assert (run.ettr, run.longest_stop_min) == (pytest.approx(1 - 0.0071), 0)


@settings(max_examples=15)
@given(st.integers(0, 99), st.sampled_from(sorted(REGIMES)), st.floats(0, 1))
def test_stretches_fill_the_days_and_a_seed_decides_all(seed, name, recall):
    regime = replace(REGIMES[name], days=10)
    run = run_job(regime, seed=seed, foresight=Foresight(recall=recall, precision=0.5))
    assert run == run_job(regime, seed=seed, foresight=Foresight(recall=recall, precision=0.5))
    assert (run.stretches[0].start_s, run.stretches[-1].end_s) == (0, pytest.approx(10 * DAY))
    assert all(a.end_s == b.start_s for a, b in pairwise(run.stretches))
    assert 0 <= run.worst_hour <= run.ettr <= 1


def test_byterobusts_parameters_give_the_published_ettr_within_a_point():
    assert mean(run_job(BYTEROBUST, seed=seed).ettr for seed in range(5)) == pytest.approx(
        0.97, abs=0.01
    )


def test_incidents_end_in_the_published_proportions():
    runs = [run_job(BYTEROBUST, seed=seed) for seed in range(5)]
    total = sum(sum(run.incidents.values()) for run in runs)
    for name, published in PUBLISHED_SHARES.items():
        share = sum(run.incidents.get(name, 0) for run in runs) / total
        assert share == pytest.approx(published, abs=0.05)


def test_each_step_back_to_plain_recovery_costs_more():
    ladder = [BYTEROBUST, RESCHEDULE, REQUEUE, PLAIN]
    values = [mean(run_job(regime, seed=s).ettr for s in range(3)) for regime in ladder]
    assert values == sorted(values, reverse=True)


def test_foresight_of_all_machine_incidents_leaves_only_swaps():
    run = run_job(BYTEROBUST, seed=1, foresight=Foresight(recall=1.0))
    assert set(run.incidents) == {"change", "reattempt", "rollback"}
    assert run.drains == {"right": run.evicted}


def test_no_foresight_and_foresight_that_comes_too_late_change_nothing():
    without = run_job(BYTEROBUST, seed=1)
    assert run_job(BYTEROBUST, seed=1, foresight=Foresight()) == without
    late = Foresight(recall=1.0, lead_s=1799, drain_s=1800)
    assert run_job(BYTEROBUST, seed=1, foresight=late) == without


def test_wrong_alerts_cost_a_swap_each_in_the_stated_proportion():
    run = run_job(PLAIN, seed=1, foresight=Foresight(recall=1.0, precision=0.5))
    assert run.drains["wrong"] / run.drains["right"] == pytest.approx(1, abs=0.25)


def test_every_parameter_has_a_source_or_says_it_is_ours():
    unsourced = set(Regime.__dataclass_fields__) - set(SOURCES)
    assert unsourced == {"n_nodes", "days", "budget"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"mtbi_h": 0},
        {"swap_s": -1},
        {"days": float("inf")},
        {"checkpoint_stall": 1},
        {"pool_p_fail": 2},
    ],
)
def test_a_regime_out_of_range_is_refused(wrong):
    with pytest.raises(SettingsError, match="out of range"):
        Regime(**wrong)


@pytest.mark.parametrize("wrong", [{"recall": 1.1}, {"precision": 0}])
def test_foresight_out_of_range_is_refused(wrong):
    with pytest.raises(SettingsError, match="expected a recall of 0 to 1"):
        Foresight(**wrong)
