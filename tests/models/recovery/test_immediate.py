"""Immediate rules: which alerts evict a machine without any test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.recovery.immediate import Alert, immediate_evictions


def evicted(*alerts):
    return [(one.machine, one.at_s) for one in immediate_evictions(alerts)]


@pytest.mark.parametrize("kind", ["gpu_unavailable", "disk_fault"])
def test_what_surely_is_broken_is_evicted_at_once(kind):
    assert evicted(Alert(7, "a", kind)) == [("a", 7)]


@pytest.mark.parametrize(
    ("times", "found"),
    [((0,), []), ((0, 299), [("a", 299)]), ((0, 300), []), ((0, 300, 599), [("a", 599)])],
)
def test_the_network_may_flap_once_in_five_minutes(times, found):
    assert evicted(*(Alert(at, "a", "network") for at in times)) == found


def test_a_switch_must_be_down_twice_in_a_row():
    down = Alert(0, "a", "switch_down")
    again = Alert(60, "a", "switch_down")
    assert evicted(down, again) == [("a", 60)]
    assert evicted(down, Alert(30, "a", "switch_down", is_bad=False), again) == []


def test_alerts_of_other_machines_and_kinds_do_not_add_up():
    assert evicted(Alert(0, "a", "network"), Alert(1, "b", "network")) == []
    assert evicted(Alert(0, "a", "network"), Alert(1, "a", "switch_down")) == []


@given(
    st.lists(
        st.builds(
            Alert,
            st.integers(0, 900),
            st.sampled_from("ab"),
            st.sampled_from(["gpu_unavailable", "network", "switch_down"]),
            st.booleans(),
        ),
        max_size=8,
    ),
    st.randoms(),
)
def test_each_machine_is_evicted_once_in_order_whatever_the_order_of_alerts(alerts, rng):
    found = immediate_evictions(alerts)
    assert len({one.machine for one in found}) == len(found)
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)
    mixed = alerts.copy()
    rng.shuffle(mixed)
    clean = [a for a in alerts if a.is_bad]
    shuffled = [a for a in mixed if a.is_bad]
    assert immediate_evictions(clean) == immediate_evictions(shuffled)
