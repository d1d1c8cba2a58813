"""Returning nodes by the Kubernetes actuator: only what is wholly ours, and without residue."""

import pytest

from remediation.cluster.state import NodeView
from tests.remediation.kubernetes_fake import Bench


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.add_node()
    return bench


def held_by_us(bench: Bench) -> None:
    assert bench.actuator.cordon(bench.order()).status == "done"


def notice_of(bench: Bench, pod: str) -> str | None:
    found = bench.api.store.get("pods", "default", pod)
    return found["metadata"]["annotations"].get("forewarn/drain-notice")


class TestUndrain:
    def test_g09_our_own_hold_is_undone_without_residue(self, bench):
        before = bench.node()
        held_by_us(bench)
        outcome = bench.actuator.undrain(bench.order())
        assert (outcome.status, outcome.detail) == ("done", "our marks are off")
        after = bench.node()
        assert after["spec"] == {}
        assert after["metadata"]["annotations"] == {}
        assert before["status"] == after["status"]

    def test_notices_are_withdrawn(self, bench):
        bench.add_pod("w0")
        bench.add_pod("w1", "n2")
        bench.actuator.drain(bench.order("checkpoint_then_drain"))
        bench.actuator.undrain(bench.order())
        assert [notice_of(bench, name) for name in ("w0", "w1")] == [None, None]

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"metadata": {"annotations": {"forewarn/reason": None}}}, "changed our marks"),
            ({"metadata": {"annotations": {"forewarn/reason": "mine"}}}, "changed our marks"),
            ({"spec": {"taints": None}}, "changed our marks"),
            ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "ready"),
            ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "ready"),
        ],
    )
    def test_g09_g17_what_is_not_wholly_ours_or_not_ready_is_left_alone(self, bench, change, why):
        held_by_us(bench)
        bench.patch_node(change)
        before = bench.node()
        outcome = bench.actuator.undrain(bench.order())
        assert outcome.status == "not_done"
        assert why in outcome.detail
        assert bench.node() == before

    def test_g09_a_node_that_another_tool_holds_too_stays_as_it_is(self, bench):
        held_by_us(bench)
        taints = bench.node()["spec"]["taints"]
        theirs = {"key": "x/quarantine", "effect": "NoExecute"}
        bench.patch_node({"spec": {"taints": [*taints, theirs]}})
        outcome = bench.actuator.undrain(bench.order())
        assert outcome.status == "not_done"
        assert "another tool holds it too: taint x/quarantine" in outcome.detail

    def test_g09_a_cordon_of_a_person_is_never_lifted(self, bench):
        bench.patch_node({"spec": {"unschedulable": True}})
        assert bench.actuator.undrain(bench.order()).status == "not_done"
        assert bench.node()["spec"] == {"unschedulable": True}

    def test_g10_a_persons_uncordon_leaves_no_residue(self, bench):
        held_by_us(bench)
        bench.patch_node({"spec": {"unschedulable": False}})
        view = bench.actuator.state("n1")
        assert (view.state, view.owner) == ("up", "none")
        assert view.reason.startswith("forewarn:")
        assert bench.actuator.undrain(bench.order()).status == "done"
        node = bench.node()
        assert node["spec"] == {"unschedulable": False}
        assert node["metadata"]["annotations"] == {}
        assert bench.actuator.undrain(bench.order()).status == "not_done"

    def test_g09_g10_lifted_and_set_anew_by_a_person_stays_cordoned(self, bench):
        held_by_us(bench)
        bench.patch_node({"spec": {"unschedulable": False}})
        bench.patch_node({"spec": {"unschedulable": True}}, manager="kubectl-cordon")
        assert bench.actuator.state("n1").owner == "other"
        outcome = bench.actuator.undrain(bench.order())
        assert (outcome.status, outcome.detail) == (
            "done",
            "our marks are off; drain (cordoned by kubectl-cordon)",
        )
        assert bench.node()["spec"] == {"unschedulable": True}

    def test_g12_another_boot_than_the_one_just_read_is_not_returned(self, bench):
        held_by_us(bench)
        order = bench.order()
        bench.patch_node({"status": {"nodeInfo": {"bootID": "boot-2"}}})
        assert bench.actuator.undrain(order).status == "not_done"

    def test_only_the_state_of_the_node_counts_not_what_was_expected(self, bench):
        held_by_us(bench)
        expected = NodeView(name="n1", state="up", boot_id=bench.order().expected.boot_id)
        assert bench.actuator.undrain(bench.order(expected=expected)).status == "done"
