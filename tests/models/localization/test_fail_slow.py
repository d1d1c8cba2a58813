"""Fail-slow by vote: who is flagged most often, and when that is too seldom."""

from models.localization.fail_slow import vote
from models.localization.layout import Layout

LAYOUT = Layout(dp=8, per_machine=1)


def voted(*rounds):
    found = vote(rounds, LAYOUT)
    machines = None if found.group is None else sorted(found.group.machines)
    return machines, found.n_flags, found.is_sure


def test_who_stands_out_again_and_again_wins_over_chance():
    assert voted([3], [3], [5], [3], [1]) == ([3], 3, True)


def test_half_of_the_rounds_or_fewer_are_not_sure():
    assert voted([3], [3], [5], [1]) == ([3], 2, False)
    assert voted([3], [3], [5]) == ([3], 2, True)


def test_a_round_in_which_nobody_or_too_many_stand_out_flags_nobody():
    assert voted([], [0, 1, 2, 3, 4], []) == (None, 0, False)
    assert voted([3], [3], [0, 1, 2, 3, 4]) == ([3], 2, True)


def test_without_rounds_nobody_wins():
    assert voted() == (None, 0, False)


def test_the_group_with_most_ranks_of_a_round_is_flagged():
    layout = Layout(dp=16, per_machine=2)
    found = vote([[0, 6, 7]], layout)
    assert sorted(found.group.machines) == [3]


def test_of_equals_the_one_with_fewer_machines_wins():
    layout = Layout(tp=1, pp=4, dp=4, per_machine=1, order="pp-dp-tp")
    found = vote([[0, 1, 2], [9]], layout)
    assert [len(group.machines) for group in found.flagged] == [4, 1]
    assert sorted(found.group.machines) == [9]
