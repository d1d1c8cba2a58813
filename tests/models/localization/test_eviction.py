"""From ranks that stand out to machines: the cheapest cover, against trying every cover."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.localization.eviction import cover_cost, explain
from models.localization.layout import Layout

# 32 machines: 8 replicas of 4 stages, a machine per stage.
LAYOUT = Layout(tp=2, pp=4, dp=8, per_machine=2, order="tp-pp-dp")


def machine_ranks(*machines):
    return [rank for machine in machines for rank in LAYOUT.ranks_of(machine)]


def blamed(*machines):
    return [
        (b.group.kind, sorted(b.group.machines))
        for b in explain(machine_ranks(*machines), LAYOUT).blamed
    ]


def test_one_machine_alone_is_evicted_alone():
    assert blamed(5) == [("machine", [5])]
    assert explain([10], LAYOUT).machines == (5,)


def test_neighbours_of_one_pipeline_are_evicted_with_the_pipeline():
    assert blamed(4, 6) == [("pp", [4, 5, 6, 7])]


def test_machines_of_a_wide_group_that_looks_healthy_are_evicted_alone():
    wide = Layout(tp=2, pp=2, dp=64, per_machine=2, order="tp-pp-dp")
    found = explain([*wide.ranks_of(0), *wide.ranks_of(62)], wide)
    assert (found.machines, len(found.blamed)) == ((0, 62), 2)


def test_two_faults_are_two_groups():
    assert blamed(4, 5, 6, 17) == [("pp", [4, 5, 6, 7]), ("machine", [17])]


def test_nobody_is_nobody():
    found = explain([], LAYOUT)
    assert (found.blamed, found.machines, found.is_too_wide) == ((), (), False)


def test_more_than_one_machine_and_a_quarter_of_all_is_too_wide():
    assert explain(machine_ranks(*range(9)), LAYOUT).is_too_wide
    assert not explain(machine_ranks(*range(8)), LAYOUT).is_too_wide
    assert not explain([0], Layout(dp=2, per_machine=1)).is_too_wide


SMALL = Layout(tp=1, pp=3, dp=3, per_machine=1, order="pp-dp-tp")


@settings(max_examples=60)
@given(st.sets(st.integers(0, 8), min_size=1, max_size=6))
def test_no_cover_is_cheaper(ranks):
    found = explain(ranks, SMALL)
    marked = frozenset(SMALL.machine(rank) for rank in ranks)
    covers = [
        groups
        for size in range(1, len(marked) + 1)
        for groups in combinations(SMALL.groups, size)
        if marked <= frozenset().union(*(group.machines for group in groups))
    ]
    cost = cover_cost([b.group for b in found.blamed], SMALL)
    assert cost == min(cover_cost(groups, SMALL) for groups in covers)


@given(st.sets(st.integers(0, LAYOUT.n_ranks - 1)))
def test_every_rank_that_stands_out_is_evicted_and_explained(ranks):
    found = explain(ranks, LAYOUT)
    assert {LAYOUT.machine(rank) for rank in ranks} <= set(found.machines)
    assert set(ranks) == {rank for one in found.blamed for rank in one.ranks}
    evicted = set().union(*(one.group.machines for one in found.blamed))
    assert evicted == set(found.machines)


@pytest.mark.parametrize("n_machines", [1, 2])
def test_tiny_jobs_have_an_answer_too(n_machines):
    layout = Layout(dp=n_machines, per_machine=1)
    assert explain([0], layout).machines == (0,)
