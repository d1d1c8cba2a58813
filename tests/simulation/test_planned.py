from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from simulation.fleet.generate import Fleet, simulate_failures
from simulation.fleet.planned import PlannedWork, around_repair, plan_work
from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import DAYS_PER_YEAR
from simulation.regimes.load import load_regime, regime_names

DRIVER = PlannedWork("driver", 1000, 2000, 3000)
REBOOT = PlannedWork("reboot", 8000, 8500, 9000)


@pytest.fixture(scope="module")
def year() -> Fleet:
    return simulate_failures(load_regime("h100").with_size(nodes=500, days=365), seed=6)


def _busy(regime: Regime) -> Regime:
    often = {"reboots_per_node_year": 12.0, "holds_per_node_year": 6.0}
    plan = regime.disturbances.model_copy(update=often)
    return regime.model_copy(update={"disturbances": plan})


def test_works_of_a_node_never_overlap_and_lie_in_the_record() -> None:
    regime = _busy(load_regime("h100").with_size(nodes=40, days=365))
    kinds = set()
    for index in range(40):
        works = plan_work(regime, seed=1, index=index)
        kinds |= {work.what for work in works}
        assert all(0 < w.drain_s <= w.work_s < w.end_s < 365 * 86400 for w in works)
        assert all(a.end_s < b.drain_s for a, b in pairwise(works))
    assert kinds == {"driver", "reboot", "hold"}


def test_reboots_and_holds_are_as_many_as_stated(year: Fleet) -> None:
    plan = year.regime.disturbances
    for what, rate in (
        ("reboot", plan.reboots_per_node_year),
        ("hold", plan.holds_per_node_year),
    ):
        drawn = [
            work
            for index in range(500)
            for work in plan_work(year.regime, seed=6, index=index)
            if work.what == what
        ]
        expected = rate * 500 * 365 / DAYS_PER_YEAR
        assert abs(len(drawn) - expected) < 4 * sqrt(expected) + 0.01 * expected


def test_a_driver_update_that_meets_a_repair_comes_after_it() -> None:
    left = around_repair((DRIVER, REBOOT), onset_s=500, end_s=1500, last_s=100_000)
    assert left == (DRIVER.shifted(1500 + 3600), REBOOT)


def test_other_work_that_meets_a_repair_is_part_of_it() -> None:
    assert around_repair((DRIVER, REBOOT), onset_s=8600, end_s=9500, last_s=100_000) == (DRIVER,)


def test_an_update_postponed_beyond_the_record_is_left_out() -> None:
    assert around_repair((DRIVER,), onset_s=500, end_s=1500, last_s=6000) == ()


def test_an_update_postponed_into_other_work_takes_its_place() -> None:
    left = around_repair((DRIVER, REBOOT), onset_s=500, end_s=4000, last_s=100_000)
    assert left == (DRIVER.shifted(7600),)


def test_every_node_gets_the_driver_once_and_keeps_it(year: Fleet) -> None:
    late = [truth for truth in year.nodes if truth.new_driver_s > year.end_s]
    assert len(late) < 3  # updates postponed again and again by a lemon's repairs
    for truth in year.nodes:
        assert sum(work.what == "driver" for work in truth.planned) <= 1
        for service in truth.services:
            assert service.has_new_driver == (service.from_s >= truth.new_driver_s)


@pytest.mark.parametrize("name", [name for name in regime_names() if name != "demo"])
def test_few_nodes_are_out_for_planned_work_at_a_time(name: str) -> None:
    regime = load_regime(name).with_size(nodes=600, days=None)
    spans = [
        (work.drain_s, work.end_s)
        for index in range(600)
        for work in plan_work(regime, seed=2, index=index)
    ]
    assert len(spans) > 100
    edges = sorted([(at, 1) for at, _ in spans] + [(at, -1) for _, at in spans])
    assert np.cumsum([step for _, step in edges]).max() <= 0.04 * 600
