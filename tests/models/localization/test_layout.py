"""How ranks lie: places, groups and their machines, against plain counting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError
from models.localization.layout import ORDERS, Layout, ranges

LAYOUTS = st.builds(
    Layout,
    tp=st.integers(1, 4),
    pp=st.integers(1, 4),
    dp=st.integers(1, 4),
    per_machine=st.integers(1, 8),
    order=st.sampled_from(ORDERS),
)


@given(LAYOUTS)
def test_every_place_is_taken_once(layout):
    places = {layout.place(rank) for rank in range(layout.n_ranks)}
    assert places == {
        (t, p, d) for t in range(layout.tp) for p in range(layout.pp) for d in range(layout.dp)
    }


@given(LAYOUTS)
def test_every_group_holds_the_ranks_that_share_its_other_places(layout):
    shared = {"tp": (1, 2), "pp": (0, 2), "dp": (0, 1), "tp-pp": (2,)}
    for group in layout.groups:
        assert group.machines == {layout.machine(rank) for rank in group.ranks}
        if group.kind == "machine":
            assert group.ranks == tuple(layout.ranks_of(*group.machines))
            continue
        [key] = {tuple(layout.place(r)[axis] for axis in shared[group.kind]) for r in group.ranks}
        assert group.ranks == tuple(
            r
            for r in range(layout.n_ranks)
            if tuple(layout.place(r)[axis] for axis in shared[group.kind]) == key
        )


@given(LAYOUTS)
def test_groups_differ_in_machines_and_every_machine_is_one(layout):
    machines = [group.machines for group in layout.groups]
    assert len(machines) == len(set(machines))
    assert {frozenset({m}) for m in range(layout.n_machines)} <= set(machines)
    for machine, groups in layout.groups_by_machine.items():
        assert groups[0].machines == {machine}
        assert all(machine in group.machines for group in groups)


def test_megatron_numbers_tp_first_and_pp_last():
    layout = Layout(tp=8, pp=4, dp=2)
    assert [layout.place(rank) for rank in (7, 8, 16, 63)] == [
        (7, 0, 0), (0, 0, 1), (0, 1, 0), (7, 3, 1),
    ]  # fmt: skip


def test_a_group_of_all_machines_tells_nothing_and_is_left_out():
    assert {group.kind for group in Layout(dp=16, per_machine=8).groups} == {"machine"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tp": 0}, "at least 1, got tp 0"),
        ({"per_machine": -1}, "got per_machine -1"),
        ({"order": "tp-pp"}, "unknown order 'tp-pp'; expected one of tp-pp-dp"),
    ],
)
def test_what_is_no_layout_is_refused(wrong, said):
    with pytest.raises(SettingsError, match=said):
        Layout(**{"dp": 2} | wrong)


@given(st.sets(st.integers(0, 30)))
def test_ranges_name_each_number_once(numbers):
    parts = [part.split("-") for part in ranges(numbers).split(", ") if part]
    assert [n for a, *b in parts for n in range(int(a), int((b or [a])[0]) + 1)] == sorted(numbers)
