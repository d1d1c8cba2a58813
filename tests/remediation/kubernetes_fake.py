"""A Kubernetes API in memory, with faults at any call; no assertion lives here."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from remediation.actuators.exchange import Answer, NoAnswerError, Waits
from remediation.actuators.kubernetes import KubernetesActuator
from remediation.actuators.kubernetes_api import Limits
from remediation.actuators.kubernetes_cluster import KubernetesCluster
from remediation.actuators.kubernetes_drain import DrainRules
from remediation.actuators.protocol import Order
from remediation.cluster.reasons import Reason
from tests.real.kubernetes_resources import Object, Selector
from tests.real.kubernetes_store import ApiError, Store

START = datetime(2026, 1, 5, 10, tzinfo=UTC)


def reason(decision: str = "a" * 16) -> Reason:
    return Reason(
        score=0.9, horizon_h=24, fault_type=None, model_version="17", decision_id=decision
    )


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one call.

    Attributes:
        kind: before (an answer instead of the effect), after (an answer after it), lost (no
            answer, no effect), late (no answer, the effect is there), slow (no answer; the
            effect comes with the next sleep), unreachable (surely not sent).
        code: HTTP status of the answer.
        retry_after: Its header.
    """

    kind: str
    code: int = 500
    retry_after: str = ""


class FakeStore(Store):
    """Objects whose deletion waits for `reap`, not for a clock."""

    def delete_pod(self, namespace: str | None, name: str, patience_s: int) -> Object:
        found = self.get("pods", namespace, name)
        found["metadata"]["deletionTimestamp"] = "2026-01-05T10:00:00Z"
        return self.put("pods", found)

    def reap(self) -> None:
        for pod in self.select(Selector("pods"))[0]:
            if pod["metadata"].get("deletionTimestamp") and not pod["metadata"].get("finalizers"):
                self.remove("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])


@dataclass
class FakeApi:
    """Answers as an API server would.

    Attributes:
        store: The objects.
        fault: Says what goes wrong with a call, by its number, method and path.
        calls: Calls so far.
        carried_out: Changes that took effect.
        now: The clock; sleeping moves it, and lets pods go.
    """

    store: FakeStore = field(default_factory=FakeStore)
    fault: Callable[[int, str, str], Fault | None] = lambda number, method, path: None
    calls: list[tuple[str, str]] = field(default_factory=list)
    carried_out: list[tuple[str, str]] = field(default_factory=list)
    now: datetime = START
    late: list[Callable[[], Any]] = field(default_factory=list)

    address = "http://fake"

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        body: Mapping[str, Any] | None,
    ) -> Answer:
        fault = self.fault(len(self.calls), method, path)
        self.calls.append((method, path))
        if fault is None:
            return self._answer(method, path, params, body)
        if fault.kind == "unreachable":
            raise NoAnswerError("refused", may_have_acted=False)
        if fault.kind == "slow":
            self.late.append(lambda: self._answer(method, path, params, body))
        if fault.kind in ("after", "late"):
            self._answer(method, path, params, body)
        if fault.kind in ("before", "after"):
            status = ApiError(fault.code, "Fault", "set by the test").status
            return Answer(fault.code, json.dumps(status).encode(), fault.retry_after)
        raise NoAnswerError("timed out", may_have_acted=True)

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        while self.late:
            self.late.pop(0)()
        self.store.reap()

    @property
    def waits(self) -> Waits:
        return Waits(sleep=self.sleep, now=lambda: self.now)

    def _answer(self, method, path, params, body) -> Answer:
        try:
            return self._right(method, path, params, body)
        except ApiError as error:
            return Answer(error.code, json.dumps(error.status).encode())

    def _right(self, method, path, params, body) -> Answer:
        parts = [unquote(part) for part in path.removeprefix("/api/v1/").split("/")]
        namespace = parts.pop(1) if parts[0] == "namespaces" else None
        parts = parts[1:] if parts[0] == "namespaces" else parts
        plural, name = parts[0], parts[1] if len(parts) > 1 else None
        if method == "GET" and name is None:
            selector = Selector(
                plural, namespace, params.get("labelSelector", ""), params.get("fieldSelector", "")
            )
            page = self.store.page(selector, int(params["limit"]), params.get("continue", ""))
            return Answer(200, json.dumps(page).encode())
        if method == "GET":
            return Answer(200, json.dumps(self.store.get(plural, namespace, name)).encode())
        if method == "POST":
            self.store.evict(namespace, name, body["deleteOptions"])
            self.carried_out.append((method, path))
            return Answer(201, b'{"kind":"Status"}')
        found = self.store.patch(
            plural, namespace, name, dict(body), by_key=False, manager=params["fieldManager"]
        )
        self.carried_out.append((method, path))
        return Answer(200, json.dumps(found).encode())


@dataclass
class Bench:
    """A small cluster behind a fake API, with the actuator under test."""

    api: FakeApi = field(default_factory=FakeApi)
    limits: Limits = field(default_factory=lambda: Limits(first_wait_s=0.1))
    rules: DrainRules = field(default_factory=DrainRules)

    @property
    def cluster(self) -> KubernetesCluster:
        return KubernetesCluster(self.api, limits=self.limits, waits=self.api.waits)

    @property
    def actuator(self) -> KubernetesActuator:
        return KubernetesActuator(self.api, self.cluster, self.rules)

    def add_node(self, name: str = "n1", **changes: Any) -> Object:
        labels = {"topology.kubernetes.io/rack": "r1", "node-pool": "a100"}
        node = {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {
                "allocatable": {"nvidia.com/gpu": "8"},
                "nodeInfo": {"bootID": "boot-1"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        return self.api.store.put("nodes", node | changes)

    def add_pod(self, name: str, node: str = "n1", **changes: Any) -> Object:
        """A running pod of a Job `train`, with 8 GPUs."""
        owner = changes.pop("owner", ("PyTorchJob", "train"))
        gpus = changes.pop("gpus", 8)
        metadata: Object = {"name": name, "labels": {}, "annotations": {}}
        metadata |= changes.pop("metadata", {})
        if owner is not None:
            kind, own = owner
            metadata["ownerReferences"] = [{"kind": kind, "name": own, "controller": True}]
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        pod = {
            "metadata": metadata,
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
            "status": {"phase": "Running", "startTime": "2026-01-05T08:00:00Z"},
        }
        return self.api.store.put("pods", pod | changes)

    def node(self, name: str = "n1") -> Object:
        return self.api.store.get("nodes", None, name)

    def pod_names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.api.store.select(Selector("pods"))[0]]

    def order(self, action: str = "cordon", name: str = "n1", **changes: Any) -> Order:
        expected = KubernetesCluster(FakeApi(self.api.store)).view(self.node(name))
        order = Order(action=action, expected=expected, reason=reason(), notice_minutes=30)
        return replace(order, **changes)

    def patch_node(self, change: Object, *, manager: str = "kubectl", name: str = "n1") -> None:
        """A change by someone else."""
        self.api.store.patch("nodes", None, name, change, by_key=False, manager=manager)

    def beat(self, name: str = "n1") -> None:
        """A heartbeat: the version moves, nothing that matters does."""
        self.patch_node({"status": {"heartbeat": str(self.api.store.version)}}, name=name)
