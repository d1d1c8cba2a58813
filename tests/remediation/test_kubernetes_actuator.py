"""The Kubernetes actuator on an API that does what it is asked; faults are in `_faults`."""

import json
from datetime import timedelta

import pytest

from remediation.actuators.kubernetes_drain import DrainRules
from remediation.actuators.kubernetes_plan import planned_hold, planned_return
from remediation.actuators.protocol import carry_out
from tests.remediation.kubernetes_fake import START, Bench, Fault, reason

NOTICE_TEXT = f"2026-01-05T10:30:00Z node=n1 id={'a' * 16}"


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.add_node()
    return bench


def held_by_us(bench: Bench) -> Bench:
    assert bench.actuator.cordon(bench.order()).status == "done"
    return bench


def evicted(bench: Bench) -> list[str]:
    return [path.split("/")[-2] for method, path in bench.api.carried_out if method == "POST"]


def notice_of(bench: Bench, pod: str) -> str | None:
    found = bench.api.store.get("pods", "default", pod)
    return found["metadata"]["annotations"].get("forewarn/drain-notice")


class TestCordon:
    def test_a_cordon_is_one_patch_with_our_marks(self, bench):
        outcome = bench.actuator.cordon(bench.order())
        assert (outcome.status, outcome.detail) == ("done", "held")
        assert bench.api.carried_out == [("PATCH", "/api/v1/nodes/n1")]
        assert len(outcome.commands) == 1
        node = bench.node()
        assert node["spec"]["unschedulable"] is True
        assert node["metadata"]["annotations"] == {"forewarn/reason": str(reason())}
        view = bench.actuator.state("n1")
        assert (view.state, view.owner, view.actor) == ("drain", "forewarn", "forewarn")

    def test_what_is_read_in_a_list_and_alone_is_the_same(self, bench):
        held_by_us(bench)
        assert bench.cluster.read().by_name["n1"] == bench.actuator.state("n1")

    def test_g13_the_same_order_again_does_nothing(self, bench):
        order = bench.order()
        bench.actuator.cordon(order)
        again = bench.actuator.cordon(order)
        assert (again.status, again.detail, again.commands) == ("done", "held already", ())
        assert len(bench.api.carried_out) == 1

    @pytest.mark.parametrize(
        "change",
        [
            {"spec": {"unschedulable": True}},
            {"spec": {"taints": [{"key": "x/quarantine", "effect": "NoSchedule"}]}},
            {"status": {"nodeInfo": {"bootID": "boot-2"}}},
            {"status": {"allocatable": {"nvidia.com/gpu": "7"}}},
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        ],
    )
    def test_g11_a_node_that_changed_since_is_left_alone(self, bench, change):
        order = bench.order()
        bench.patch_node(change)
        assert bench.actuator.cordon(order).status == "not_done"
        assert bench.api.carried_out == []

    @pytest.mark.parametrize(
        "change",
        [
            {"spec": {"unschedulable": True}},
            {"spec": {"taints": [{"key": "x/quarantine", "effect": "NoSchedule"}]}},
            {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
        ],
    )
    def test_g09_a_node_held_by_another_or_not_up_is_never_taken(self, bench, change):
        bench.patch_node(change)
        assert bench.actuator.cordon(bench.order()).status == "not_done"
        assert bench.api.carried_out == []

    def test_g11_a_heartbeat_between_look_and_patch_is_no_change(self, bench):
        def beat(number, method, path):
            if method == "PATCH" and not bench.api.carried_out:
                bench.beat()
                bench.api.fault = lambda *_: None

        bench.api.fault = beat
        assert bench.actuator.cordon(bench.order()).status == "done"
        assert [method for method, _ in bench.api.calls] == ["GET", "PATCH", "GET", "PATCH"]

    def test_g11_a_person_between_look_and_patch_wins(self, bench):
        def cordon_first(number, method, path):
            if method == "PATCH":
                bench.api.fault = lambda *_: None
                bench.patch_node({"spec": {"unschedulable": True}})

        bench.api.fault = cordon_first
        outcome = bench.actuator.cordon(bench.order())
        assert outcome.status == "not_done"
        assert "cordoned by kubectl" in outcome.detail
        assert "annotations" not in bench.node()["metadata"]

    def test_taints_of_others_stay(self, bench):
        theirs = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}
        bench.patch_node({"spec": {"taints": [theirs]}})
        held_by_us(bench)
        assert bench.node()["spec"]["taints"][0] == theirs

    def test_a_node_that_is_gone_is_not_taken(self, bench):
        order = bench.order()
        bench.api.store.remove("nodes", None, "n1")
        assert bench.actuator.cordon(order).status == "not_done"


class TestDrain:
    def test_g14_drained_only_when_jobs_have_ended_and_pods_are_gone(self, bench):
        bench.add_pod("w0")
        bench.add_pod("agent", owner=("DaemonSet", "agent"), gpus=0)
        outcome = carry_out(bench.actuator, bench.order("drain_now"))
        assert (outcome.status, outcome.detail) == ("done", "drained")
        assert bench.pod_names() == ["agent"]
        assert bench.actuator.progress("n1").is_drained
        assert [method for method, _ in bench.api.carried_out] == ["PATCH", "POST"]

    def test_a_pod_that_takes_long_to_end_is_waited_for_then_told(self, bench):
        bench.add_pod("w0", metadata={"finalizers": ["x"]})
        outcome = bench.actuator.drain(bench.order("drain_now"))
        assert outcome.detail == "draining: default/w0 (is ending)"
        assert bench.api.now - START >= timedelta(seconds=30)
        again = bench.actuator.drain(bench.order("drain_now"))
        assert again.detail == "draining: default/w0 (is ending)"
        assert evicted(bench) == ["w0"]

    def test_a_pod_that_someone_else_sent_away_is_waited_for(self, bench):
        bench.add_pod("w0")
        bench.api.store.delete_pod("default", "w0", 30)
        assert bench.actuator.drain(bench.order("drain_now")).detail == "drained"
        assert evicted(bench) == []

    def test_g21_what_a_drain_never_touches(self, bench):
        bench.add_pod("mirror", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
        bench.add_pod("daemon", owner=("DaemonSet", "d"))
        bench.add_pod("bare", owner=None)
        bench.add_pod("kept", metadata={"annotations": {"forewarn/eviction": "never"}})
        bench.add_pod("done", status={"phase": "Succeeded"})
        bench.add_pod("going", metadata={"finalizers": ["x"]})
        bench.api.store.delete_pod("default", "going", 30)
        outcome = bench.actuator.drain(bench.order("drain_now"))
        assert evicted(bench) == []
        assert outcome.detail == (
            "draining: default/bare (nobody would make it anew), default/going (is ending), "
            "default/kept (says that it must not be evicted)"
        )
        assert not bench.actuator.progress("n1").is_drained

    def test_g21_a_bare_pod_goes_only_if_told_to(self, bench):
        bench.rules = DrainRules(evicts_bare=True)
        bench.add_pod("bare", owner=None)
        assert bench.actuator.drain(bench.order("drain_now")).detail == "drained"

    def test_g21_a_budget_is_asked_again_within_bounds_and_holds_no_other_pod(self, bench):
        labels = {"app": "web"}
        bench.add_pod("web", metadata={"labels": labels}, owner=("ReplicaSet", "web"))
        bench.add_pod("w0")
        spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
        bench.api.store.put("poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": spec})
        outcome = bench.actuator.drain(bench.order("drain_now"))
        assert outcome.status == "done"
        assert outcome.detail.startswith("draining: default/web (HTTP 429 Cannot evict pod")
        assert evicted(bench) == ["w0"]
        asked = [path for _, path in bench.api.calls if path.endswith("web/eviction")]
        assert len(asked) == 3
        bench.api.store.remove("poddisruptionbudgets", "default", "b")
        assert bench.actuator.drain(bench.order("drain_now")).detail == "drained"

    def test_a_budget_that_asks_for_a_long_wait_is_left_to_the_next_call(self, bench):
        bench.add_pod("w0")
        bench.api.fault = lambda number, method, path: (
            Fault("before", 429, "600") if method == "POST" else None
        )
        bench.actuator.drain(bench.order("drain_now"))
        assert [method for method, _ in bench.api.calls].count("POST") == 1
        assert bench.api.now - START < timedelta(seconds=1)

    def test_only_the_very_pod_is_evicted_not_its_namesake(self, bench):
        old = bench.add_pod("w-0", owner=("StatefulSet", "w"))

        def replace_first(number, method, path):
            if method == "POST":
                bench.api.store.remove("pods", "default", "w-0")
                bench.add_pod("w-0", "n2", owner=("StatefulSet", "w"))

        bench.api.fault = replace_first
        assert bench.actuator.drain(bench.order("drain_now")).detail == "drained"
        assert evicted(bench) == []
        assert (
            bench.api.store.get("pods", "default", "w-0")["metadata"]["uid"]
            != (old["metadata"]["uid"])
        )

    def test_after_jobs_nothing_is_evicted_while_a_job_runs(self, bench):
        bench.add_pod("w0")
        bench.add_pod("web", owner=("ReplicaSet", "web"), gpus=0)
        order = bench.order("drain_after_jobs")
        outcome = bench.actuator.drain(order)
        assert outcome.detail == "draining: default/w0 (runs), default/web (runs)"
        assert evicted(bench) == []
        bench.api.store.remove("pods", "default", "w0")
        assert bench.actuator.drain(order).detail == "drained"
        assert evicted(bench) == ["web"]

    def test_pods_with_shares_of_gpus_are_jobs_too(self, bench):
        share = {"limits": {"nvidia.com/mig-1g.10gb": "1"}}
        spec = {"nodeName": "n1", "containers": [{"name": "m", "resources": share}]}
        bench.add_pod("mig", owner=("ReplicaSet", "web"), spec=spec)
        bench.actuator.drain(bench.order("drain_after_jobs"))
        assert evicted(bench) == []

    def test_a_node_that_cannot_be_taken_has_no_pod_evicted(self, bench):
        bench.add_pod("w0")
        bench.patch_node({"spec": {"unschedulable": True}})
        assert bench.actuator.drain(bench.order("drain_now")).status == "not_done"
        assert evicted(bench) == []

    def test_our_own_cordon_may_become_a_drain(self, bench):
        held_by_us(bench)
        bench.add_pod("w0")
        order = bench.order("drain_now", reason=reason("b" * 16))
        assert bench.actuator.drain(order).detail == "drained"
        assert bench.node()["spec"]["taints"][0]["value"] == "b" * 16


class TestCheckpoint:
    def test_notice_first_and_eviction_only_in_a_call_after_the_deadline(self, bench):
        bench.add_pod("w0")
        order = bench.order("checkpoint_then_drain")
        first = bench.actuator.drain(order)
        assert first.detail == "draining until 2026-01-05T10:30:00Z: default/w0 (runs)"
        assert notice_of(bench, "w0") == NOTICE_TEXT
        bench.api.now = START + timedelta(minutes=29)
        bench.actuator.drain(order)
        assert evicted(bench) == []
        assert bench.actuator.progress("n1").deadline == START + timedelta(minutes=30)
        bench.api.now = START + timedelta(minutes=30)
        assert bench.actuator.drain(order).detail == "drained"
        assert evicted(bench) == ["w0"]

    def test_the_deadline_stands_on_the_node_and_does_not_move(self, bench):
        order = bench.order("checkpoint_then_drain")
        for minutes in (0, 10, 20):
            bench.api.now = START + timedelta(minutes=minutes)
            bench.actuator.drain(order)
        marks = bench.node()["metadata"]["annotations"]
        assert marks["forewarn/deadline"] == "2026-01-05T10:30:00Z"
        assert bench.api.carried_out == [("PATCH", "/api/v1/nodes/n1")]

    def test_notice_reaches_the_job_on_other_nodes_too(self, bench):
        bench.add_pod("w0")
        bench.add_pod("w1", "n2")
        bench.add_pod("other", "n2", owner=("PyTorchJob", "other"))
        order = bench.order("checkpoint_then_drain")
        bench.actuator.drain(order)
        assert notice_of(bench, "w1") == NOTICE_TEXT
        assert notice_of(bench, "other") is None
        n_before = len(bench.api.carried_out)
        bench.actuator.drain(order)
        assert len(bench.api.carried_out) == n_before

    def test_a_pod_that_was_never_told_is_not_evicted_at_the_deadline(self, bench):
        bench.add_pod("w0")
        bench.api.fault = lambda number, method, path: (
            Fault("before", 403) if method == "PATCH" and "pods" in path else None
        )
        order = bench.order("checkpoint_then_drain")
        bench.actuator.drain(order)
        bench.api.now = START + timedelta(hours=1)
        outcome = bench.actuator.drain(order)
        assert evicted(bench) == []
        assert "no notice could be given: HTTP 403" in outcome.detail
        bench.api.fault = lambda *_: None
        bench.actuator.drain(order)
        assert (notice_of(bench, "w0"), evicted(bench)) == (NOTICE_TEXT, [])
        assert bench.actuator.drain(order).detail == "drained"

    def test_a_deadline_that_a_person_made_unreadable_evicts_nobody(self, bench):
        bench.add_pod("w0")
        order = bench.order("checkpoint_then_drain")
        bench.actuator.drain(order)
        bench.patch_node({"metadata": {"annotations": {"forewarn/deadline": "soon"}}})
        bench.api.now = START + timedelta(hours=1)
        assert bench.actuator.drain(order).status == "done"
        assert evicted(bench) == []


class TestInTheHook:
    """A run of the real hook with this actuator; what the hook decides is tested elsewhere."""

    @pytest.fixture(autouse=True)
    def idle(self, bench):
        bench.add_node("n2")  # the last manageable node is never taken

    def run(self, kit, bench, world):
        world.now = bench.api.now
        world.scores = kit.published({"n1": 0.95}, as_of=bench.api.now)
        return world.run(cluster=bench.cluster, actuator=bench.actuator)

    def test_g11_g20_a_run_holds_the_node_and_writes_before_and_after(self, kit, bench):
        world = kit.world({"n1": 0.95})
        run = self.run(kit, bench, world)
        assert [outcome.status for outcome in run.outcomes.values()] == ["done"]
        (result,) = world.ledger.entries(kinds=("result",))
        assert result.body["after"]["state"] == "drain"
        assert result.body["commands"][0][:2] == ["PATCH", "/api/v1/nodes/n1"]
        self.run(kit, bench, world)
        assert bench.api.carried_out == [("PATCH", "/api/v1/nodes/n1")]

    def test_g10_kubectl_uncordon_is_noted_and_starts_the_cool_down(self, kit, bench):
        world = kit.world({"n1": 0.95})
        self.run(kit, bench, world)
        bench.patch_node({"spec": {"unschedulable": None}}, manager="kubectl-uncordon")
        bench.api.now += kit.tick
        run = self.run(kit, bench, world)
        (released,) = world.ledger.entries(kinds=("released",))
        assert released.body["why"] == "undrained"
        assert run.outcomes == {}

    def test_g13_a_run_that_died_after_the_patch_finds_it_by_the_reason(self, kit, bench):
        world = kit.world({"n1": 0.95})

        class Crash(BaseException):
            pass

        def die(number, method, path):
            if ("PATCH", "/api/v1/nodes/n1") in bench.api.carried_out:
                raise Crash

        bench.api.fault = die
        with pytest.raises(Crash):
            self.run(kit, bench, world)
        bench.api.fault = lambda *_: None
        self.run(kit, bench, world)
        (result,) = world.ledger.entries(kinds=("result",))
        assert result.body["status"] == "done"
        assert bench.api.carried_out == [("PATCH", "/api/v1/nodes/n1")]


@pytest.mark.parametrize(
    ("action", "due"),
    [
        ("cordon", None),
        ("drain_after_jobs", "of node n1, once no job runs on it"),
        ("checkpoint_then_drain", "of node n1, after the deadline"),
        ("drain_now", "of node n1, at once"),
    ],
)
def test_a_dry_run_shows_the_patch_that_would_be_sent(bench, action, due):
    order = bench.order(action)
    planned = planned_hold(order, now=START)
    carry_out(bench.actuator, order)
    sent = bench.actuator.cordon(bench.order(action, reason=reason("b" * 16))).commands[0]
    assert planned[0][:2] == sent[:2]
    shown, real = json.loads(planned[0][2]), json.loads(sent[2])
    del real["metadata"]["resourceVersion"]
    assert shown["spec"].keys() == real["spec"].keys()
    assert shown["metadata"].keys() == real["metadata"].keys()
    assert [command[-1] for command in planned[1:]] == ([due] if due else [])


def test_a_dry_run_shows_how_a_node_would_be_returned(bench):
    held_by_us(bench)
    planned = planned_return(bench.order())
    sent = bench.actuator.undrain(bench.order()).commands
    real = json.loads(sent[0][2])
    del real["metadata"]["resourceVersion"]
    assert json.loads(planned[0][2]) == real
