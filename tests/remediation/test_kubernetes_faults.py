"""Each call of the Kubernetes actuator goes wrong in each way: outcomes stay true, acts single."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remediation.actuators.kubernetes_nodes import hold_of
from tests.remediation.kubernetes_fake import Bench, FakeApi, Fault

ANSWERS = [
    Fault("before", 403),
    Fault("before", 404),
    Fault("before", 409),
    Fault("before", 410),
    Fault("before", 422),
    Fault("before", 429),
    Fault("before", 429, "3"),
    Fault("before", 429, "3600"),
    Fault("before", 500),
    Fault("before", 503, "1"),
    Fault("unreachable"),
]
SILENCES = [
    Fault("after", 500),
    Fault("after", 502),
    Fault("after", 504),
    Fault("lost"),
    Fault("late"),
    Fault("slow"),
]
LIE = Fault("before", 200)  # fine by its status, and not what was asked for
FAULTS = [*ANSWERS, *SILENCES, LIE]
UNCLEAR = [*SILENCES, LIE, Fault("before", 500), Fault("before", 503, "1")]


def world(*, is_held: bool = False) -> Bench:
    bench = Bench()
    bench.add_node()
    bench.add_pod("w0")
    bench.add_pod("w1", "n2")
    bench.add_pod("web", owner=("ReplicaSet", "web"), gpus=0)
    if is_held:
        assert bench.actuator.cordon(bench.order()).status == "done"
        bench.api.carried_out.clear()
        bench.api.calls.clear()
    return bench


def patches(bench: Bench) -> int:
    return bench.api.carried_out.count(("PATCH", "/api/v1/nodes/n1"))


def check_node(bench: Bench, status: str, *, done: str, untouched: str) -> None:
    """What an outcome says of the node is so, also once everything under way has arrived."""
    bench.api.fault = lambda *_: None
    if status != "ambiguous":
        expected = done if status == "done" else untouched
        assert hold_of(bench.node()) == expected
        bench.api.sleep(60)
        assert hold_of(bench.node()) == expected
    bench.api.sleep(60)
    assert hold_of(bench.node()) in (done, untouched)
    assert patches(bench) <= 1


def n_calls(do) -> int:
    bench = world(is_held=do == "undrain")
    act(bench, do)
    return len(bench.api.calls)


def act(bench: Bench, do: str, order=None):
    order = order or bench.order("drain_now" if do == "drain" else "cordon")
    return getattr(bench.actuator, do)(order)


def run(bench: Bench, do: str):
    order = bench.order("drain_now" if do == "drain" else "cordon")
    done, untouched = ("none", "ours") if do == "undrain" else ("ours", "none")
    first = act(bench, do, order)
    check_node(bench, first.status, done=done, untouched=untouched)
    return order, first


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.kind}-{f.code}-{f.retry_after}")
@pytest.mark.parametrize("do", ["cordon", "drain", "undrain"])
def test_g13_a_fault_at_any_call_gives_a_true_outcome_and_nothing_is_done_twice(do, fault):
    for call in range(n_calls(do)):
        bench = world(is_held=do == "undrain")
        bench.api.fault = lambda number, method, path, at=call: fault if number == at else None
        order, first = run(bench, do)
        if fault in ANSWERS:
            assert first.status != "ambiguous", call
        again = act(bench, do, order)
        assert again.status != "ambiguous"
        assert patches(bench) <= 1
        assert max(Counter(bench.api.carried_out).values()) == 1, call
        if do == "drain":
            assert again.detail == "drained"


@pytest.mark.parametrize("fault", SILENCES, ids=lambda f: f"{f.kind}-{f.code}")
@pytest.mark.parametrize("do", ["cordon", "undrain"])
def test_g13_one_silence_is_resolved_by_the_version_that_the_patch_was_made_from(do, fault):
    bench = world(is_held=do == "undrain")
    bench.api.fault = lambda number, method, path: (
        fault if method == "PATCH" and not bench.api.late and number <= 1 else None
    )
    _, first = run(bench, do)
    assert first.status == "done"


def test_g13_endless_silence_is_ambiguous_and_nothing_else():
    bench = world()
    bench.api.fault = lambda number, method, path: Fault("lost") if method == "PATCH" else None
    outcome = act(bench, "cordon")
    assert outcome.status == "ambiguous"
    assert len(outcome.commands) == 4


def test_g13_silence_then_a_heartbeat_is_surely_not_done():
    bench = world()

    def lose_then_beat(number, method, path):
        if method == "PATCH":
            return Fault("lost")
        if number > 0:
            bench.beat()
        return None

    bench.api.fault = lose_then_beat
    order, first = run(bench, "cordon")
    assert (first.status, hold_of(bench.node())) == ("not_done", "none")
    assert act(bench, "cordon", order).status == "done"


def test_g13_a_person_who_undoes_at_once_is_not_overruled():
    bench = world()

    def land_then_undo(number, method, path):
        if method == "PATCH":
            return Fault("late")
        if number == 2:
            bench.patch_node(
                {
                    "spec": {"unschedulable": False, "taints": None},
                    "metadata": {"annotations": {"forewarn/reason": None}},
                }
            )
        return None

    bench.api.fault = land_then_undo
    assert act(bench, "cordon").status == "not_done"
    assert [method for method, _ in bench.api.calls] == ["GET", "PATCH", "GET"]


def test_g13_a_patch_that_landed_and_was_half_undone_is_a_persons():
    bench = world()

    def land_then_change(number, method, path):
        if method == "PATCH":
            return Fault("late")
        if number == 2:
            bench.patch_node({"metadata": {"annotations": {"forewarn/reason": None}}})
        return None

    bench.api.fault = land_then_change
    outcome = act(bench, "cordon")
    assert outcome.status == "ambiguous"
    assert "our marks are on the node" in outcome.detail


def test_g13_a_server_that_says_done_but_does_not_show_it_is_ambiguous():
    bench = world()

    class Stripped(FakeApi):
        def ask(self, method, path, *, params, body):
            if method == "PATCH" and body is not None:
                body = {**body, "spec": {"unschedulable": True}}
            return super().ask(method, path, params=params, body=body)

    bench.api = Stripped(bench.api.store)
    assert act(bench, "cordon").status == "ambiguous"


def test_g13_an_eviction_that_nobody_answers_is_ambiguous():
    bench = world()
    bench.api.fault = lambda number, method, path: (
        Fault("lost") if path.endswith("w0/eviction") else None
    )
    outcome = act(bench, "drain")
    assert outcome.status == "ambiguous"
    assert "default/w0" in outcome.detail
    assert "web" not in bench.pod_names()


def test_g21_two_budgets_on_a_pod_are_a_failure_that_is_told_not_a_riddle():
    bench = world()
    for name in ("one", "two"):
        spec = {"minAvailable": 0, "selector": {"matchLabels": {}}}
        bench.api.store.put("poddisruptionbudgets", {"metadata": {"name": name}, "spec": spec})
    outcome = act(bench, "drain")
    assert outcome.status == "done"
    assert "more than one PodDisruptionBudget" in outcome.detail


def test_g13_an_unreadable_state_stops_the_evictions():
    bench = world()

    def dark(number, method, path):
        if method == "POST":
            bench.api.fault = lambda *_: Fault("before", 503)
            return Fault("lost")
        return None

    bench.api.fault = dark
    outcome = act(bench, "drain")
    assert outcome.status == "ambiguous"
    assert "cannot be told" in outcome.detail


events = st.lists(st.sampled_from([*FAULTS, None, None, "beat"]), max_size=14)


@settings(max_examples=300, deadline=None)
@given(events=events, do=st.sampled_from(["cordon", "drain", "undrain"]))
def test_g13_any_sequence_of_faults_and_heartbeats_keeps_outcomes_true(events, do):
    bench = world(is_held=do == "undrain")
    left = list(events)

    def next_fault(number, method, path):
        found = left.pop(0) if left else None
        if found == "beat":
            bench.beat()
            return None
        return found

    bench.api.fault = next_fault
    order, first = run(bench, do)
    if not any(one in UNCLEAR for one in events):
        assert first.status != "ambiguous"
    again = act(bench, do, order)
    assert again.status != "ambiguous"
    assert patches(bench) <= 1
    if do != "undrain":
        assert hold_of(bench.node()) == "ours"
    if do == "drain":
        assert again.detail == "drained"
        assert "w0" not in bench.pod_names()
