"""Rules of what signs and the record of incidents let a reader catch, against a walk by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import DataError
from simulation.fleet.ceiling import Reader, recall_ceiling
from simulation.fleet.generate import Fleet, simulate_failures
from simulation.fleet.incidents import Incident
from simulation.fleet.record_ceiling import recall_by_record
from simulation.fleet.regime import Regime
from simulation.writers.truth_tables import truth_tables

HORIZON_H = 24
BUDGETS = st.floats(0.0, 1 / HORIZON_H)


@pytest.fixture(scope="module")
def fleet(demo: Regime) -> Fleet:
    return simulate_failures(demo.model_copy(update={"nodes": 48}), seed=3)


def recall(fleet: Fleet, budget: float) -> dict[str, float]:
    return recall_by_record(fleet, horizon_h=HORIZON_H, reader=Reader(budget=budget))


def alerts_by_hand(incident: Incident, days: float) -> int:
    """Alerts from the first look that sees its signs to the last half an hour ahead; 0: none."""
    signs = incident.precursor
    looks = [
        tick
        for tick in range(int(days * 24))
        if signs and signs.start_s < tick * 3600 <= incident.onset_s - 1800
    ]
    return (looks[-1] - looks[0]) // HORIZON_H + 1 if looks else 0


def covered_by_hand(fleet: Fleet, left: float) -> dict[str, float]:
    """Share of each class's hazard on the node-days with the most failures for their time."""
    regime, days = fleet.regime, math.ceil(fleet.regime.days)
    per_day = 8 * sum(f.per_gpu_year for f in regime.faults) * regime.hazard_multiplier / 365
    nodes_by_rank: dict[float, list[int]] = {}
    for (index, truth), day in itertools.product(enumerate(fleet.nodes), range(days)):
        known = sum(i.is_noticed and i.detected_s <= day * 86400 for i in truth.incidents)
        rank = (regime.frailty.node_shape + known) / (regime.frailty.node_shape + per_day * day)
        nodes_by_rank.setdefault(round(rank, 9), []).append(index)
    covered = np.zeros(len(fleet.nodes))
    for rank in sorted(nodes_by_rank, reverse=True):
        nodes = nodes_by_rank[rank]
        for index in nodes:
            covered[index] += min(1.0, max(0.0, left / len(nodes))) / days
        left -= len(nodes)
    hazard = np.array([truth.expected_by_fault for truth in fleet.nodes])
    names = [fault.fault_type for fault in regime.faults]
    return dict(zip(names, covered @ hazard / hazard.sum(axis=0), strict=True))


def by_hand(fleet: Fleet, budget: float) -> dict[str, float]:
    """The same, one sign and one node-day after the other."""
    left = budget * fleet.regime.days * 24 * len(fleet.nodes)
    seen = [one for one in fleet.incidents if one.is_noticed]
    costs = [alerts_by_hand(one, fleet.regime.days) for one in seen]
    caught = set()
    for cost, number in sorted(zip(costs, range(len(seen)), strict=True)):
        if 0 < cost <= left:
            left -= cost
            caught.add(number)
    chance = covered_by_hand(fleet, left)
    found: dict[str, list[float]] = {}
    for number, one in enumerate(seen):
        share = 1.0 if number in caught else chance[one.fault.fault_type]
        for key in ("all", one.fault.fault_type):
            found.setdefault(key, []).append(share)
    return {name: float(np.mean(shares)) for name, shares in found.items()}


@pytest.mark.parametrize("budget", [0.0002, 0.001, 0.01])
def test_it_is_what_a_walk_over_signs_and_node_days_finds(fleet: Fleet, budget: float) -> None:
    assert recall(fleet, budget) == pytest.approx(by_hand(fleet, budget), abs=1e-6)


def test_an_alert_on_every_node_all_the_time_catches_everything_and_none_nothing(
    fleet: Fleet,
) -> None:
    assert list(recall(fleet, 1.0).values()) == pytest.approx([1.0] * len(recall(fleet, 1.0)))
    assert set(recall(fleet, 0.0).values()) == {0.0}


@settings(max_examples=25)
@given(one=BUDGETS, other=BUDGETS)
def test_more_alerts_never_catch_less(fleet: Fleet, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert recall(fleet, low)["all"] <= recall(fleet, high)["all"] + 1e-9


@pytest.mark.parametrize("budget", [0.004, 0.01])
def test_who_knows_every_hazard_catches_more(fleet: Fleet, budget: float) -> None:
    bounds = recall_ceiling(
        truth_tables(fleet), horizons_h=[HORIZON_H], reader=Reader(budget=budget)
    )
    every = bounds.filter(fault_type="all").row(0, named=True)
    # Hazards are sampled at some ticks: about as much, at the least.
    found = recall(fleet, budget)["all"]
    assert every["ceiling_by_signs"] < found < every["ceiling_at_budget"] + 0.02


def test_a_fleet_in_which_nothing_is_noticed_has_no_recall(demo: Regime) -> None:
    still = demo.model_copy(update={"nodes": 4, "hazard_multiplier": 0.0})
    assert recall(simulate_failures(still, seed=1), 0.01) == {}


def test_a_horizon_shorter_than_a_tick_is_refused(fleet: Fleet) -> None:
    with pytest.raises(DataError, match="at least a tick, 1 h, got 0.5 h"):
        recall_by_record(fleet, horizon_h=0.5, reader=Reader())
