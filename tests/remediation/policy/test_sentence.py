"""A decision in one sentence: exact for the common cases, and readable for all."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.vocabulary import FAULT_TYPES
from remediation.cluster.state import ClusterState, JobView
from remediation.policy.choice import decide, node_scores_of
from remediation.policy.sentence import risk_words
from remediation.site import Site, Window

JOB = JobView(
    job_id="7",
    nodes=("a",),
    n_gpus=8,
    checkpoint_age_h=0.4,
    remaining_h=20.0,
    is_requeue_allowed=True,
)


def sentence(kit, score=0.95, *, jobs=(), site=None, fault="nvlink", extra=(), **node):
    (rated,) = node_scores_of(kit.published({"a": score}), 24)
    state = ClusterState(as_of=kit.start, nodes=(kit.node("a", **node), *extra), jobs=jobs)
    scores = [replace(rated, fault_type=fault)]
    return decide(scores, state, site=site or Site(), now=kit.start)[0].sentence


def test_an_idle_node_is_drained_in_few_words(kit):
    assert sentence(kit, 0.81) == (
        "Drain, as it is idle: 81% to fail within 24 h (NVLink); this saves 7.3 of the 63 "
        "GPU-hours that waiting is expected to cost."
    )


def test_a_checkpoint_before_the_drain_says_until_when(kit):
    assert sentence(kit, jobs=(JOB,)) == (
        "Have 1 job on 8 GPUs write a checkpoint, and drain in 30 min: 95% to fail within 24 h "
        "(NVLink); this saves 3.0 of the 74 GPU-hours that waiting is expected to cost; assumed: "
        "30 min to find another node."
    )


def test_watching_says_what_the_cheapest_action_costs_more_and_why_no_other_is_taken(kit):
    assert sentence(kit, jobs=(JOB,), fault="thermal") == (
        "Watch: 95% to fail within 24 h (overheating), but a drain after its jobs, the cheapest "
        "action, costs 1.8 GPU-hours more than waiting, which is expected to cost 74; such a "
        "fault waits for an idle gap; it runs 1 job on 8 GPUs; assumed: 30 min to find another "
        "node."
    )


def test_below_the_threshold_there_is_nothing_to_do(kit):
    assert sentence(kit, 0.031) == (
        "Nothing to do: 3% to fail within 24 h (NVLink), below the alert threshold of 50%."
    )
    assert "under 1% to fail" in sentence(kit, 0.002)


@pytest.mark.parametrize(
    ("may", "said"),
    [
        (False, "its jobs may not be interrupted"),
        (None, "it is unknown whether its jobs may be requeued, so they are left alone"),
    ],
)
def test_g25_why_jobs_are_left_alone_is_said(kit, may, said):
    assert said in sentence(kit, jobs=(replace(JOB, is_requeue_allowed=may),))


def test_g27_replacements_are_named_and_none_is_assumed(kit):
    spare, site = kit.node("spare-1"), Site(standby=("spare*",), loaned=("inf*",))
    assert "standby node spare-1 can take over" in sentence(
        kit, jobs=(JOB,), site=site, extra=(spare,)
    )
    loaned = sentence(kit, jobs=(JOB,), site=site, extra=(kit.node("inf-1"),))
    assert "loaned server inf-1 can be called back" in loaned
    assert "assumed: 30 min to find another node" in sentence(kit, jobs=(JOB,), site=site)


def test_an_elastic_job_is_said_to_go_on(kit):
    job = replace(JOB, nodes=("a", "b"), n_gpus=16, min_nodes=1)
    assert "1 elastic job can go on with a node less" in sentence(kit, jobs=(job,))


def test_maintenance_that_ends_the_risk_is_named(kit):
    start = kit.start + timedelta(minutes=90)
    window = Window(name="cooling", start=start, end=start + timedelta(hours=1))
    said = sentence(kit, site=Site(maintenance=(window,)))
    assert "maintenance 'cooling' starts in 90 min and ends the risk" in said


@pytest.mark.parametrize("fault", FAULT_TYPES)
def test_every_fault_type_has_words_of_its_own(fault):
    assert "unknown" not in risk_words(0.5, 24, fault, is_prior=False)


def test_a_prior_is_said_to_be_one():
    assert "from published rates only" in risk_words(0.5, 24, "power", is_prior=True)


maybe = st.sampled_from


@given(
    score=st.floats(0, 1),
    fault=maybe([None, *FAULT_TYPES]),
    n_jobs=st.integers(0, 3),
    gpus=maybe([None, 1, 8, 4096]),
    left=maybe([None, 0.0, 0.1, 5.0, 100.0]),
    may=maybe([None, True, False]),
    min_nodes=maybe([None, 1]),
)
def test_every_decision_is_one_sentence_short_enough_to_be_read_out(
    kit_once, score, fault, n_jobs, gpus, left, may, min_nodes
):
    jobs = tuple(
        JobView(
            job_id=str(n),
            nodes=("a", "b"),
            n_gpus=gpus,
            remaining_h=left,
            is_requeue_allowed=may,
            min_nodes=min_nodes,
        )
        for n in range(n_jobs)
    )
    said = sentence(kit_once, score, jobs=jobs, fault=fault)
    assert said.endswith(".")
    assert ". " not in said
    assert said.isprintable()
    assert len(said) <= 420
    assert "-0" not in said


@pytest.fixture(scope="module")
def kit_once():
    from tests.remediation.conftest import Kit

    return Kit()
