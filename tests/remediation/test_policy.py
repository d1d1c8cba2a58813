"""Costs and the choice of an action, with numbers that can be followed by hand."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from remediation.cluster import JobView
from remediation.costs import weigh
from remediation.decision import decision_id_of
from remediation.policy import adequate_actions, node_scores_of
from remediation.preemption import server_preemption_cost
from remediation.site import Costs, Site

JOB = JobView(
    job_id="7",
    nodes=("a", "b"),
    n_gpus=16,
    checkpoint_age_h=1.0,
    remaining_h=6.0,
    is_requeue_allowed=True,
)


def test_a_job_counts_with_all_its_gpus_wherever_they_are(kit):
    weighing = weigh(kit.node("a"), [JOB], score=0.5, horizon_h=24, costs=Costs())
    # 16 GPUs lose 1 h of work, hang 0.5 h, restart 0.25 h; 8 GPUs are repaired for 8 h.
    assert weighing.waiting == pytest.approx(0.5 * (16 * 1.75 + 8 * 8))
    # The job bears 6 / 24 of the risk; the node is out 0.5 h, and 8 h where it was failing.
    assert weighing.acting["drain_after_jobs"] == pytest.approx(
        0.5 * 28 * 0.25 + 8 * 0.5 + 0.5 * 64
    )
    assert weighing.acting["drain_now"] == pytest.approx(16 * 0.25 + 16 * 1 + 8 * 0.5 + 0.5 * 64)
    assert weighing.preemption == 0.5
    assert weighing.assumed == ()


def test_g27_what_is_unknown_is_assumed_and_named(kit):
    job = JobView(job_id="7", nodes=("a",))
    weighing = weigh(kit.node("a", n_gpus=None), [job], score=0.5, horizon_h=24, costs=Costs())
    assert weighing.assumed == (
        "8 GPUs on the node",
        "whole nodes for jobs of unknown size",
        "checkpoint 30 min old",
        "12 h until its jobs end",
    )


@given(score=st.floats(0, 1), more=st.floats(0, 1))
def test_a_higher_score_never_makes_waiting_better_than_acting(kit_node, score, more):
    low, high = sorted((score, more))
    gains = []
    for value in (low, high):
        weighing = weigh(kit_node, [JOB], score=value, horizon_h=24, costs=Costs())
        gains.append(weighing.waiting - min(weighing.acting.values()))
    assert gains[0] <= gains[1] + 1e-9


@pytest.fixture(scope="module")
def kit_node():
    from remediation.cluster import NodeView

    return NodeView(name="a", state="up", n_gpus=8)


@pytest.mark.parametrize(
    ("fault", "job", "expected"),
    [
        (None, None, {"cordon", "drain_after_jobs"}),
        ("thermal", JOB, {"cordon", "drain_after_jobs"}),
        ("hbm_uncorrectable", JOB, {"checkpoint_then_drain", "drain_now"}),
        (
            "nvlink",
            JOB,
            {"cordon", "drain_after_jobs", "checkpoint_then_drain", "drain_now"},
        ),
        (
            "hbm_uncorrectable",
            replace(JOB, is_requeue_allowed=None),
            {"cordon", "drain_after_jobs"},
        ),
    ],
)
def test_g25_the_fault_and_the_jobs_say_which_actions_suit(fault, job, expected):
    jobs = [] if job is None else [job]
    assert set(adequate_actions(fault, jobs, site=Site())) == expected


def test_g25_a_listed_partition_may_be_interrupted():
    job = replace(JOB, is_requeue_allowed=False, partition="scratch")
    site = Site(interruptible_partitions=("scratch",))
    assert "drain_now" in adequate_actions("nvlink", [job], site=site)


def test_an_idle_server_costs_no_preemption():
    assert server_preemption_cost([]) == 0


def test_the_horizon_of_the_site_must_be_published_once_per_node(kit):
    tick = kit.published({"a": 0.9})
    with pytest.raises(DataError, match="none has horizon_h 72, found \\[24\\]"):
        node_scores_of(tick, 72)
    twice = replace(tick, node_scores=pl.concat([tick.node_scores, tick.node_scores]))
    with pytest.raises(DataError, match="node a has 2 scores"):
        node_scores_of(twice, 24)


def test_a_decision_id_is_stable_and_differs_with_each_part(kit):
    parts = {
        "node": "a",
        "boot_id": "b",
        "as_of": kit.start,
        "horizon_h": 24,
        "model_version": "17",
    }
    changes = (
        {"node": "b"},
        {"boot_id": None},
        {"as_of": kit.start + kit.tick},
        {"horizon_h": 1},
        {"model_version": "18"},
    )
    ids = {decision_id_of(**(parts | change)) for change in ({}, {}, *changes)}
    assert len(ids) == 1 + len(changes)
