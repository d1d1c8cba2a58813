"""Costs that can be followed by hand, and as the mean over every moment of a failure."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediation.cluster.state import JobView, NodeView
from remediation.policy.capacity import Spare
from remediation.policy.costs import Outlook, weigh
from remediation.site import Costs

JOB = JobView(
    job_id="7",
    nodes=("a", "b"),
    n_gpus=16,
    checkpoint_age_h=1.0,
    remaining_h=6.0,
    is_requeue_allowed=True,
)
NODE = NodeView(name="a", state="up", n_gpus=8)
STANDBY = Outlook(replacement=Spare(kind="standby", name="spare-1"))


def weighed(jobs=(JOB,), *, score=0.5, outlook=Outlook(), node=NODE, **costs):  # noqa: B008
    return weigh(node, jobs, score=score, horizon_h=24, costs=Costs(**costs), outlook=outlook)


def test_a_job_counts_with_all_its_gpus_wherever_they_are():
    weighing = weighed()
    # A failure costs the job's 16 GPUs 1 h of work, 0.5 h of hanging, 0.5 h of waiting for a node
    # and 0.25 h of restart: 36. It is there for 6 of 24 h; after it new jobs on 8 GPUs bear 1.75
    # each. The repair takes 8 GPUs for 8 h.
    assert weighing.waiting == pytest.approx(0.5 / 24 * (36 * 6 + 1.75 * 8 * 18) + 0.5 * 64)
    out = 8 * 0.5 + 0.5 * 64
    assert weighing.acting["cordon"] == pytest.approx(0.5 / 24 * 36 * 6 + 8 * 18 + 0.5 * 64)
    assert weighing.acting["drain_after_jobs"] == pytest.approx(0.5 / 24 * 36 * 6 + out)
    assert weighing.acting["checkpoint_then_drain"] == pytest.approx(
        0.5 / 24 * 36 * 0.5 + 16 * 0.75 + out
    )
    assert weighing.acting["drain_now"] == pytest.approx(16 * 0.75 + 16 * 1 + out)
    assert weighing.preemption == 0.5
    assert weighing.assumed == ("30 min to find another node",)


def test_a_job_that_ends_before_the_failure_is_likely_bears_little_of_it():
    short, long = (replace(JOB, remaining_h=hours) for hours in (0.5, 23.0))
    gain = [
        one.waiting - one.acting["drain_after_jobs"] for one in (weighed([short]), weighed([long]))
    ]
    assert weighed([short]).acting["drain_after_jobs"] < weighed([long]).acting["drain_after_jobs"]
    assert gain[0] > gain[1]


def test_jobs_that_are_said_to_use_more_gpus_than_there_are_fill_the_node_and_no_more():
    full = replace(JOB, nodes=("a",), n_gpus=8)
    one, two = weighed([full]), weighed([full, replace(full, job_id="8")])
    idle = [
        weighing.acting["cordon"] - weighing.acting["drain_after_jobs"] for weighing in (one, two)
    ]
    assert idle[0] == pytest.approx(idle[1])


def test_a_job_that_ends_within_the_notice_is_not_interrupted_by_it():
    soon = replace(JOB, remaining_h=0.4)
    assert weighed([soon]).acting["checkpoint_then_drain"] < 16 * 0.75 + 8 * 0.5 + 0.5 * 64


def test_a_replacement_shortens_every_restart_and_a_standby_node_most():
    nothing, standby = weighed(), weighed(outlook=STANDBY)
    loaned = weighed(outlook=Outlook(replacement=Spare(kind="loaned", name="inf-1")))
    for action in ("checkpoint_then_drain", "drain_now"):
        assert standby.acting[action] < loaned.acting[action] < nothing.acting[action]
    assert standby.waiting < loaned.waiting < nothing.waiting
    assert standby.acting["drain_now"] == pytest.approx(16 / 60 + 16 + 4 + 32)
    assert "30 min to find another node" not in standby.assumed


def test_an_elastic_job_with_a_node_to_spare_gives_it_up_instead_of_stopping():
    elastic = replace(JOB, min_nodes=1)
    rigid = replace(JOB, min_nodes=2)
    assert weighed([elastic]).preemption == 0
    assert weighed([rigid]).preemption == 0.5
    notice = weighed([elastic]).acting["checkpoint_then_drain"]
    assert notice == pytest.approx(0.5 / 24 * 16 * 1.75 * 0.5 + 16 / 60 + 4 + 32)


def test_maintenance_within_the_horizon_ends_the_risk():
    near, far = (
        weighed(outlook=Outlook(maintenance="m", maintenance_in_h=hours)) for hours in (1.0, 20.0)
    )
    never = weighed()
    assert near.waiting < far.waiting < never.waiting
    assert near.waiting <= min(near.acting.values())
    assert near.waiting == pytest.approx(0.5 / 24 * (36 + 64))


def test_g27_what_is_unknown_is_assumed_and_named():
    job = JobView(job_id="7", nodes=("a",))
    weighing = weighed([job], node=replace(NODE, n_gpus=None))
    assert weighing.assumed == (
        "8 GPUs on the node",
        "whole nodes for jobs of unknown size",
        "checkpoint 30 min old",
        "12 h until its jobs end",
        "30 min to find another node",
    )


@given(score=st.floats(0, 1), more=st.floats(0, 1))
def test_a_higher_score_never_makes_waiting_better_than_acting(score, more):
    low, high = sorted((score, more))
    gains = []
    for value in (low, high):
        weighing = weighed(score=value)
        gains.append(weighing.waiting - min(weighing.acting.values()))
    assert gains[0] <= gains[1] + 1e-9


def mean_over_moments(jobs, score, until, action):
    """What a failure costs, on the mean of 24,000 moments in 24 h, and what is idle meanwhile."""
    steps, total = 24_000, 0.0
    last = min(until, max((job.remaining_h for job in jobs), default=0.0))
    for step in range(steps):
        at = (step + 0.5) * 24 / steps
        if at >= until:
            continue
        here = [job for job in jobs if job.remaining_h > at]
        shares = sum(job.n_gpus / len(job.nodes) for job in here)
        lost = sum(job.n_gpus * (max(job.checkpoint_age_h, 0.5) + 1.25) for job in here)
        if action == "waiting":
            total += score * (lost + (8 - shares) * 1.75 + 64) / steps
        elif action == "cordon":
            total += (score * (lost + 64) + (8 - shares) * 24) / steps
        else:
            total += (score * lost + (8 - shares) * 24 * (at < last)) / steps
    return total + (0 if action != "drain_after_jobs" else 4 + score * 64)


hours = st.sampled_from([0.25, 1.0, 3.0, 12.0, 40.0])


@given(
    remaining=st.lists(hours, max_size=3),
    ages=st.tuples(hours, hours, hours),
    score=st.floats(0, 1),
    until=st.sampled_from([10.0, 24.0]),
    action=st.sampled_from(["waiting", "cordon", "drain_after_jobs"]),
)
def test_costs_are_the_mean_over_every_moment_of_a_failure(remaining, ages, score, until, action):
    jobs = [
        JobView(job_id=str(n), nodes=("a",), n_gpus=2, checkpoint_age_h=ages[n], remaining_h=left)
        for n, left in enumerate(remaining)
    ]
    outlook = Outlook() if until == 24 else Outlook(maintenance="m", maintenance_in_h=until)
    weighing = weighed(jobs, score=score, outlook=outlook)
    found = weighing.waiting if action == "waiting" else weighing.acting[action]
    assert found == pytest.approx(mean_over_moments(jobs, score, until, action), rel=1e-3, abs=0.05)
