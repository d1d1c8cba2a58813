"""Dual-phase replay: one fault is isolated, several are named honestly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from models.localization.replay import isolate, plan_for, plan_replay

SIZES = st.integers(1, 7).flatmap(lambda m: st.tuples(st.just(m), st.integers(m, 9)))


def failing(plan, faulty):
    """Groups of each phase that hold a faulty machine."""
    return {
        "first_failed": [g for g, group in enumerate(plan.first) if faulty & set(group)],
        "second_failed": [g for g, group in enumerate(plan.second) if faulty & set(group)],
    }


def test_the_published_example_isolates_machine_13():
    plan = plan_replay(4, 6)
    assert failing(plan, {13}) == {"first_failed": [3], "second_failed": [1]}
    assert isolate(plan, first_failed=[3], second_failed=[1]).machines == (13,)


@given(SIZES, st.data())
def test_one_fault_is_isolated_whatever_the_sizes(sizes, data):
    plan = plan_replay(*sizes)
    faulty = data.draw(st.integers(0, plan.m * plan.n - 1))
    found = isolate(plan, **failing(plan, {faulty}))
    assert (found.machines, found.is_exact) == ((faulty,), True)


@given(SIZES, st.data())
def test_several_faults_are_among_the_suspects_and_called_no_single_one(sizes, data):
    plan = plan_replay(*sizes)
    machines = st.integers(0, plan.m * plan.n - 1)
    faulty = data.draw(st.sets(machines, min_size=2, max_size=4)) if plan.m * plan.n > 1 else {0}
    failed = failing(plan, faulty)
    found = isolate(plan, **failed)
    assert faulty <= set(found.machines)
    assert found.is_exact == (len(faulty) == 1)
    assert len(found.machines) <= len(failed["first_failed"]) * len(failed["second_failed"])


@given(SIZES)
def test_each_phase_cuts_all_machines_once_into_equal_groups(sizes):
    plan = plan_replay(*sizes)
    for phase in (plan.first, plan.second):
        assert sorted(x for group in phase for x in group) == list(range(plan.m * plan.n))
        assert {len(group) for group in phase} == {plan.m}


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ([], [], "did not repeat"),
        ([1], [], "in one phase only"),
        ([], [2], "in one phase only"),
        ([0], [5], "share no machine"),
        ([3], [1], "one fault"),
        ([3, 4], [1], "at least 2 faults"),
    ],
)
def test_every_outcome_has_its_words(first, second, said):
    found = isolate(plan_replay(4, 6), first_failed=first, second_failed=second)
    assert said in found.note


def test_a_plan_of_a_job_keeps_whole_pipelines():
    assert (plan_for(pp=2, dp=12, k=2).m, plan_for(pp=2, dp=12, k=2).n) == (4, 6)
    with pytest.raises(DataError, match="no multiple of k = 5"):
        plan_for(pp=2, dp=12, k=5)
    with pytest.raises(DataError, match="expected 1 <= m <= n, got m = 8, n = 3"):
        plan_for(pp=2, dp=12, k=4)


def test_a_group_that_does_not_exist_is_refused():
    with pytest.raises(DataError, match="no group 6; groups are 0 to 5"):
        isolate(plan_replay(4, 6), first_failed=[6], second_failed=[0])
