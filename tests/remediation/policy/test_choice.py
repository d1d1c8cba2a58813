"""The choice of an action and the order of nodes; what actions cost is in test_costs."""

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from remediation.cluster.state import ClusterState, JobView
from remediation.decision import decision_id_of
from remediation.policy.choice import adequate_actions, decide, node_scores_of
from remediation.site import Site, Window

JOB = JobView(
    job_id="7",
    nodes=("a", "b"),
    n_gpus=16,
    checkpoint_age_h=1.0,
    remaining_h=6.0,
    is_requeue_allowed=True,
)


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


def test_g25_an_elastic_job_with_a_node_to_spare_may_lose_one():
    rigid = replace(JOB, is_requeue_allowed=False)
    elastic = replace(rigid, min_nodes=1)
    assert "drain_now" not in adequate_actions("nvlink", [rigid], site=Site())
    assert "drain_now" in adequate_actions("nvlink", [elastic], site=Site())


def test_g25_a_listed_partition_may_be_interrupted():
    job = replace(JOB, is_requeue_allowed=False, partition="scratch")
    site = Site(interruptible_partitions=("scratch",))
    assert "drain_now" in adequate_actions("nvlink", [job], site=site)


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


def decisions(kit, scores, *, jobs=(), nodes=None, site=None, fault="nvlink"):
    rated = [replace(one, fault_type=fault) for one in node_scores_of(kit.published(scores), 24)]
    views = tuple(kit.node(name) for name in scores) if nodes is None else nodes
    state = ClusterState(as_of=kit.start, nodes=views, jobs=jobs)
    return decide(rated, state, site=site or Site(), now=kit.start)


def test_nothing_is_weighed_below_the_threshold(kit):
    (one,) = decisions(kit, {"a": 0.49})
    assert (one.wanted, one.cost_of_acting, one.cost_of_waiting) == ("none", None, None)


def test_an_action_must_save_more_than_rounding(kit):
    # With every GPU in use until maintenance, a cordon costs exactly what waiting does.
    window = Window(name="m", start=kit.start + kit.tick, end=kit.start + 2 * kit.tick)
    (one,) = decisions(kit, {"a": 0.9}, jobs=(JOB,), site=Site(maintenance=(window,)))
    assert one.wanted == "watch"
    assert "no action saves any of the" in one.sentence


def test_g22_a_node_that_goes_to_maintenance_soon_waits_for_it(kit):
    def wanted(hours, *, nodes="*"):
        start = kit.start + timedelta(hours=hours)
        window = Window(name="m", start=start, end=start + timedelta(hours=1), nodes=(nodes,))
        (one,) = decisions(kit, {"a": 0.7}, site=Site(maintenance=(window,)))
        return one.wanted

    assert wanted(1) == "watch"
    assert wanted(23) == "drain_after_jobs"
    assert wanted(30) == "drain_after_jobs"
    assert wanted(-0.5) == "drain_after_jobs"  # begun already: a guard's business
    assert wanted(1, nodes="b*") == "drain_after_jobs"


def test_thermal_waits_for_an_idle_gap_and_uncorrectable_memory_does_not(kit):
    job = replace(JOB, nodes=("a",), n_gpus=8, remaining_h=20.0)
    (hot,) = decisions(kit, {"a": 0.99}, jobs=(job,), fault="thermal")
    (memory,) = decisions(kit, {"a": 0.99}, jobs=(job,), fault="hbm_uncorrectable")
    assert hot.wanted in ("watch", "cordon", "drain_after_jobs")
    assert memory.wanted == "checkpoint_then_drain"


SHARED = replace(JOB, nodes=("b", "c"), n_gpus=64, remaining_h=24.0)


def test_the_other_node_of_a_job_comes_later_once_the_job_is_gone(kit):
    """b and c share a job; whichever is taken first, the other is then worth an idle node."""
    scores = {"a": 0.89, "b": 0.9, "c": 0.88}
    found = decisions(kit, scores, jobs=(SHARED,))
    assert [one.node for one in found] == ["b", "a", "c"]
    assert [one.benefit for one in found] != sorted((one.benefit for one in found), reverse=True)


def test_a_node_that_only_waits_for_its_jobs_takes_none_along(kit):
    job = replace(SHARED, is_requeue_allowed=False, remaining_h=2.0)
    # Without the job, c would be worth more than d.
    found = decisions(kit, {"b": 0.9, "c": 0.88, "d": 0.8143}, jobs=(job,))
    assert [(one.node, one.wanted) for one in found] == [(n, "drain_after_jobs") for n in "bdc"]


def test_a_replacement_is_given_once_and_to_the_first(kit):
    jobs = tuple(
        replace(JOB, job_id=name, nodes=(name,), n_gpus=8, remaining_h=24.0) for name in "ab"
    )
    nodes = (kit.node("a"), kit.node("b"), kit.node("spare-1"))
    site = Site(standby=("spare*",))
    scores = {"a": 0.9, "b": 0.89, "spare-1": 0.1}
    found = decisions(kit, scores, jobs=jobs, nodes=nodes, site=site, fault="hbm_uncorrectable")
    first, second = found[:2]
    assert (first.node, second.node) == ("a", "b")
    assert "standby node spare-1 can take over" in first.sentence
    assert "30 min to find another node" in second.sentence
    assert second.cost_of_acting > first.cost_of_acting


@pytest.mark.parametrize(
    ("begins_h", "replaces"), [(-1, False), (5, False), (30, True), (-9, True)]
)
def test_a_spare_that_maintenance_takes_within_the_horizon_replaces_nothing(
    kit, begins_h, replaces
):
    job = replace(JOB, nodes=("a",), n_gpus=8, remaining_h=24.0)
    nodes = (kit.node("a"), kit.node("spare-1"))
    start = kit.start + timedelta(hours=begins_h)
    window = Window(name="m", start=start, end=start + timedelta(hours=4), nodes=("spare*",))
    site = Site(standby=("spare*",), maintenance=(window,))
    (one,) = decisions(kit, {"a": 0.9}, jobs=(job,), nodes=nodes, site=site)
    assert ("spare-1" in one.sentence) == replaces


def test_a_replacement_goes_to_no_node_that_only_waits_for_its_jobs(kit):
    jobs = tuple(
        replace(JOB, job_id=name, nodes=(name,), n_gpus=8, remaining_h=24.0, is_requeue_allowed=may)
        for name, may in (("a", False), ("b", True))
    )
    nodes = (kit.node("a"), kit.node("b"), kit.node("spare-1"))
    scores = {"a": 0.99, "b": 0.89, "spare-1": 0.1}
    found = decisions(kit, scores, jobs=jobs, nodes=nodes, site=Site(standby=("spare*",)))
    by_node = {one.node: one for one in found}
    assert "standby node spare-1" in by_node["b"].sentence


@given(
    scores=st.lists(st.floats(0, 1), min_size=1, max_size=6),
    spans=st.lists(st.sets(st.integers(0, 5), min_size=1), max_size=4),
    hours=st.sampled_from([1.0, 6.0, 24.0]),
)
def test_each_decision_is_the_one_that_the_node_alone_would_get(kit_once, scores, spans, hours):
    """Fast in bulk, the same one by one: without spares, only the order depends on the others."""
    names = [f"n{i}" for i in range(6)]
    jobs = tuple(
        replace(JOB, job_id=str(i), nodes=tuple(names[k] for k in sorted(span)), remaining_h=hours)
        for i, span in enumerate(spans)
    )
    nodes = tuple(kit_once.node(name) for name in names)
    by_name = dict(zip(names, scores, strict=False))
    together = decisions(kit_once, by_name, jobs=jobs, nodes=nodes)
    alone = [
        one
        for name, score in by_name.items()
        for one in decisions(kit_once, {name: score}, jobs=jobs, nodes=nodes)
    ]
    assert sorted(together, key=lambda one: one.node) == alone


@pytest.fixture(scope="module")
def kit_once():
    from tests.remediation.conftest import Kit

    return Kit()
