"""Runs side by side: the same jobs for all, ratios by hand, and the published direction."""

import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from simulation.scheduling.comparison import Setting, build_case, compare, ratio_to
from simulation.scheduling.policies import FIFO, LOANING, LYRA, RANDOM, SCALING, SJF
from simulation.scheduling.servers import Shape
from simulation.scheduling.workload import Mix
from tests.simulation.scheduling.test_workload import trace

PHILLY = Path(__file__).parents[3] / "../shared/data/philly/jobs.csv"
SMALL = Setting(mix=Mix(days=2), shape=Shape(training=4, inference=4))


def runs(times):
    """Rows of (policy, seed, seconds)."""
    return pl.DataFrame(
        [
            {"policy": policy, "load": 0.9, "seed": seed, "queuing_s": seconds}
            for policy, seed, seconds in times
        ]
    )


def ratio(frame, **changed):
    asked = {"policy": "b", "baseline": "a", "load": 0.9, "measure": "queuing_s"} | changed
    return ratio_to(frame, **asked)


def test_a_ratio_is_taken_seed_by_seed_with_students_interval():
    found = ratio(runs([("a", 0, 200.0), ("a", 1, 800.0), ("b", 0, 100.0), ("b", 1, 100.0)]))
    assert found.value == pytest.approx(4.0)
    # Two logarithms, ln 2 and ln 8: standard error ln 2, Student's t with one degree 12.706.
    assert math.log(found.high / found.value) == pytest.approx(12.7062 * math.log(2.0), rel=1e-4)
    assert found.low * found.high == pytest.approx(16.0)


def test_one_seed_has_no_interval():
    found = ratio(runs([("a", 0, 300.0), ("b", 0, 100.0)]))
    assert (found.value, found.low, found.high) == (pytest.approx(3.0), None, None)


@pytest.mark.parametrize("seconds", [(0.0, 0.0), (0.0, 5.0), (5.0, 0.0)])
def test_no_ratio_is_made_where_nobody_waited(seconds):
    assert ratio(runs([("a", 0, seconds[0]), ("b", 0, seconds[1])])).value is None


def test_every_policy_has_the_same_jobs_and_a_seed_gives_the_same_rows():
    tiny = replace(SMALL, mix=Mix(days=1, n_jobs=60))
    asked = {"policies": (FIFO, LYRA, RANDOM), "loads": [0.8, 1.0], "seeds": [0, 1]}
    once, again = (compare(trace(), tiny, **asked) for _ in range(2))
    assert once.equals(again)
    assert once.height == 2 * 2 * 3
    assert once.group_by("load", "seed").agg(pl.col("n_jobs").n_unique())["n_jobs"].max() == 1


def test_use_of_the_training_cluster_is_the_work_done_in_the_horizon():
    case = build_case(trace(), SMALL, seed=0)
    outcome = case.run(FIFO)
    assert 0.3 < outcome.training_use <= 1.0
    used = (case.needed - SMALL.traffic.headroom_servers(SMALL.shape)).mean() / 4
    assert outcome.all_use == pytest.approx((outcome.training_use + used) / 2)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(not PHILLY.is_file(), reason="the Philly jobs (../shared/data) are not here")
def test_both_mechanisms_shorten_waiting_and_completion_on_philly():
    case = build_case(pl.read_csv(PHILLY, try_parse_dates=True), Setting(), seed=1)
    found = {policy: case.run(policy) for policy in (FIFO, SJF, LOANING, SCALING, LYRA)}
    assert found[LYRA].n_jobs > 50_000
    for measure, least in (("queuing_s", 1.4), ("completion_s", 1.3)):
        seconds = {policy: getattr(outcome, measure) for policy, outcome in found.items()}
        assert seconds[FIFO] / seconds[LYRA] >= least
        for part in (LOANING, SCALING):
            assert seconds[LYRA] < seconds[part] < seconds[SJF] < seconds[FIFO]
    assert found[LYRA].all_use > found[FIFO].all_use
    assert found[FIFO].preemptions == 0
