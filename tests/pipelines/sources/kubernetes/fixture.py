"""Kubernetes objects as the API gives them, for tests; no assertion lives here."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
READY_SINCE = "2026-01-05T00:00:00Z"


def at(clock: str) -> str:
    """A time of the test's day as the API writes it."""
    return f"2026-01-05T{clock}Z"


def utc(clock: str) -> datetime:
    """The same moment."""
    return datetime.fromisoformat(at(clock))


def condition(kind: str, status: str, since: str = "00:00:00", **fields: Any) -> Object:
    """A condition of a node or a pod."""
    return {"type": kind, "status": status, "lastTransitionTime": at(since), **fields}


def node(
    name: str = "gpu001",
    *,
    conditions: Sequence[Object] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """A node; ready unless other conditions are given."""
    born = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    found = [condition("Ready", "True")] if conditions is None else list(conditions)
    status = {"conditions": found}
    return {
        "kind": "Node",
        "metadata": {**born, **(metadata or {})},
        "spec": spec,
        "status": status,
    }


def pod(
    name: str = "train-0",
    *,
    node: str | None = "gpu001",
    gpus: Any = 8,
    owner: tuple[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    **status: Any,
) -> Object:
    """A pod that runs on a node since 01:00."""
    about: Object = {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}",
        "creationTimestamp": at("00:30:00"),
    }
    if owner is not None:
        api = "batch/v1" if owner[0] == "Job" else "example.com/v1"
        about["ownerReferences"] = [
            {"apiVersion": api, "kind": owner[0], "name": owner[1], "controller": True}
        ]
    limits = {} if gpus is None else {"nvidia.com/gpu": gpus}
    wanted: Object = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    if node is not None:
        wanted["nodeName"] = node
    return {
        "kind": "Pod",
        "metadata": {**about, **(metadata or {})},
        "spec": {**wanted, **(spec or {})},
        "status": {"phase": "Running", "startTime": at("01:00:00"), **status},
    }


def container(
    state: Mapping[str, Any], *, restarts: int = 0, last: Mapping[str, Any] | None = None
) -> Object:
    """Status of the container `main`."""
    return {
        "name": "main",
        "restartCount": restarts,
        "state": dict(state),
        "lastState": dict(last or {}),
    }


def ended(code: int, until: str, *, since: str = "01:00:10", **fields: Any) -> Object:
    """State of a container that terminated."""
    times = {"startedAt": at(since), "finishedAt": at(until)}
    return {"terminated": {"exitCode": code, **times, **fields}}


def event(reason: str, message: str = "", *, about: str = "gpu001", **fields: Any) -> Object:
    """A core/v1 event about a node at 06:00."""
    times = {"firstTimestamp": at("06:00:00"), "lastTimestamp": at("06:00:00")}
    return {
        "kind": "Event",
        "metadata": {"name": f"{about}.1", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": about},
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": about},
        **times,
        **fields,
    }
