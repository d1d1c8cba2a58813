"""A plain-HTTP stand-in for a Kubernetes API server, for tests of reading and of draining.

Discovery, lists in pages, watches, patches, deletes and evictions; a hook for faults and a log of
calls. What it must do is judged by the real kubectl. No scheduler, kubelet or controller runs:
objects stay as they are put. Objects are kept in `kubernetes_store`.
"""

import http.server
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from tests.real.kubernetes_resources import RESOURCES, Object, Resource, Selector
from tests.real.kubernetes_store import ApiError, Store

_PATH: Final = re.compile(
    r"(?P<base>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>eviction|status))?"
)
_VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]
_GROUPS: Final = sorted(
    {r.api_version.partition("/")[0] for r in RESOURCES if "/" in r.api_version}
)
_PATCHES: Final = {
    "application/merge-patch+json": False,
    "application/strategic-merge-patch+json": True,
}


@dataclass(frozen=True)
class Call:
    """One request as it came in.

    Attributes:
        method: GET, POST, ...
        path: Path without the query.
        query: The query.
        body: The body; None: it had none.
        headers: Headers by lower-case name.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    headers: Mapping[str, str]

    @property
    def line(self) -> str:
        """Method and path, for comparing sequences of calls."""
        return f"{self.method} {self.path}"

    @property
    def manager(self) -> str:
        """Who makes it, as the API would note it."""
        agent = self.headers.get("user-agent", "").partition("/")[0]
        return self.query.get("fieldManager") or agent


@dataclass(frozen=True)
class Fault:
    """An answer given instead of the right one.

    Attributes:
        code: HTTP status.
        body: The body; None: a Status object.
        headers: Further headers.
        cuts_off: Whether the connection breaks in the middle of the body.
        drops: Whether the connection is closed without any answer.
        is_after: Whether the request is carried out before all that.
    """

    code: int
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cuts_off: bool = False
    drops: bool = False
    is_after: bool = False


FaultHook = Callable[[Call], Fault | None]


class KubernetesServer:
    """The stand-in; a context manager that serves on a free loopback port.

    Args:
        token: Bearer token that every request must carry; None: none is asked for.

    Attributes:
        store: The objects.
        fault: Looks at each call before it is answered; None, or one that returns None: no fault.
        calls: All calls so far, in order.
    """

    def __init__(self, *, token: str | None = None) -> None:
        self.store = Store()
        self.fault: FaultHook | None = None
        self.calls: list[Call] = []
        self.token = token
        self.is_closing = False
        handler = type("Handler", (_Handler,), {"api": self})
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.is_closing = True
        with self.store.changed:
            self.store.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self.store.close()

    def kubeconfig(self) -> Object:
        """A kubeconfig for this server, as a document."""
        user = {"token": self.token} if self.token else {}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }

    def add_node(self, name: str, *, gpus: int = 8, **fields: Any) -> Object:
        """A ready node with GPUs; `fields` replace `spec` or `status`."""
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.present": "true"}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-05T00:00:00Z"}
        plain = {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [ready]},
        }
        return self.store.put("nodes", {**plain, **fields})

    def add_pod(
        self,
        name: str,
        node: str | None,
        *,
        namespace: str = "default",
        owner: tuple[str, str] | None = ("ReplicaSet", "web"),
        labels: Mapping[str, str] | None = None,
        gpus: int = 1,
    ) -> Object:
        """A running pod; with an owner it is controlled by it."""
        metadata: Object = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
        if owner is not None:
            kind, own = owner
            version = next((r.api_version for r in RESOURCES if r.kind == kind), "example.com/v1")
            metadata["ownerReferences"] = [
                {"apiVersion": version, "kind": kind, "name": own, "uid": own, "controller": True}
            ]
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        spec: Object = {"containers": [{"name": "main", "image": "x", "resources": resources}]}
        if node is not None:
            spec["nodeName"] = node
        status = {"phase": "Running", "startTime": "2026-01-05T01:00:00Z"}
        return self.store.put("pods", {"metadata": metadata, "spec": spec, "status": status})


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one connection."""

    api: KubernetesServer
    _fault: Fault | None = None
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Says nothing: calls are in the log of the stand-in."""

    def answer(self) -> None:
        """Answers one request of any method."""
        call = self._call()
        self.api.calls.append(call)
        self._fault = self.api.fault(call) if self.api.fault is not None else None
        if self._fault is not None and not self._fault.is_after:
            self._fail(self._fault)
            return
        try:
            self._check_token(call)
            self._answer(call)
        except ApiError as error:
            self._send(error.code, error.status)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer  # noqa: N815

    def _check_token(self, call: Call) -> None:
        if self.api.token and call.headers.get("authorization") != f"Bearer {self.api.token}":
            raise ApiError(401, "Unauthorized", "Unauthorized")

    def _call(self) -> Call:
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(size)
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return Call(self.command, parts.path, query, json.loads(raw) if raw else None, headers)

    def _answer(self, call: Call) -> None:
        document = _discovery(call.path)
        if document is not None and call.method == "GET":
            self._send(200, document)
            return
        found = _PATH.fullmatch(call.path)
        resource = None if found is None else _resource(found["base"], found["plural"])
        if found is None or resource is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        where = (resource.plural, found["namespace"], found["name"])
        if found["name"] is None:
            self._answer_collection(call, resource, found["namespace"])
        elif found["sub"] == "eviction" and call.method == "POST":
            self.api.store.evict(*where[1:], (call.body or {}).get("deleteOptions") or {})
            done = {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
            self._send(201, done)
        else:
            self._send(200, self._change(call, *where))

    def _answer_collection(self, call: Call, resource: Resource, namespace: str | None) -> None:
        if call.method == "POST":
            found = {**call.body, "metadata": {**call.body["metadata"]}}
            if namespace:
                found["metadata"]["namespace"] = namespace
            self._send(201, self.api.store.put(resource.plural, found))
            return
        if call.method != "GET":
            raise ApiError(405, "MethodNotAllowed", call.method)
        query = call.query
        by = (query.get("labelSelector", ""), query.get("fieldSelector", ""))
        selector = Selector(resource.plural, namespace, *by)
        if query.get("watch") in ("1", "true", "True"):
            self._watch(call, selector, resource)
            return
        limit = int(query.get("limit") or 0)
        page = self.api.store.page(selector, limit, query.get("continue", ""))
        for item in page["items"]:  # a server leaves out of items what the list says
            del item["kind"], item["apiVersion"]
        kind = f"{resource.kind}List"
        self._send(200, {"kind": kind, "apiVersion": resource.api_version, **page})

    def _change(self, call: Call, plural: str, namespace: str | None, name: str) -> Object:
        """Reads or changes one object; what it is now."""
        store, body = self.api.store, call.body or {}
        if call.method == "PATCH":
            kind = call.headers.get("content-type", "").partition(";")[0]
            if kind not in _PATCHES:
                raise ApiError(415, "UnsupportedMediaType", f"{kind} is not served here")
            how = {"by_key": _PATCHES[kind], "manager": call.manager}
            return store.patch(plural, namespace, name, body, **how)
        with store.changed:
            found = store.get(plural, namespace, name)
            if call.method == "PUT":
                store.check_version(found, body)
                return store.put(plural, body)
            if call.method == "DELETE" and plural == "pods":
                return store.delete_pod(namespace, name, body.get("gracePeriodSeconds", 30))
            return store.remove(plural, namespace, name) if call.method == "DELETE" else found

    def _watch(self, call: Call, selector: Selector, resource: Resource) -> None:
        """Streams changes until the time is over; one that begins too far back is told so."""
        store = self.api.store
        version = int(call.query.get("resourceVersion") or 0)
        until = time.monotonic() + float(call.query.get("timeoutSeconds") or 30)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if version and version < store.oldest:
            gone = ApiError(410, "Expired", f"too old resource version: {version}")
            self._stream({"type": "ERROR", "object": gone.status})
            self.wfile.write(b"0\r\n\r\n")
            return
        if not version or call.query.get("sendInitialEvents") == "true":
            found, version = store.select(selector)
            for item in found:
                self._stream({"type": "ADDED", "object": item})
            if call.query.get("sendInitialEvents") == "true":
                self._mark(resource, version, {"k8s.io/initial-events-end": "true"})
        while time.monotonic() < until and not self.api.is_closing:
            with store.changed:
                changes = store.since(version)
                if not changes:
                    store.changed.wait(min(0.5, max(0.0, until - time.monotonic())))
            for change in changes:
                version = change.version
                if selector.fits(change.plural, change.found):
                    self._stream({"type": change.kind, "object": change.found})
        if call.query.get("allowWatchBookmarks") in ("1", "true", "True"):
            self._mark(resource, version, {})
        self.wfile.write(b"0\r\n\r\n")

    def _mark(self, resource: Resource, version: int, annotations: Mapping[str, str]) -> None:
        """A bookmark: everything up to this version has been told."""
        metadata = {"resourceVersion": str(version), "annotations": annotations}
        head = {"kind": resource.kind, "apiVersion": resource.api_version}
        self._stream({"type": "BOOKMARK", "object": {**head, "metadata": metadata}})

    def _stream(self, event: Object) -> None:
        line = json.dumps(event).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def _send(self, code: int, document: Object) -> None:
        if self._fault is not None:
            self._fail(self._fault)
            return
        self._reply(code, json.dumps(document).encode(), {})

    def _fail(self, fault: Fault) -> None:
        if fault.drops:
            self.close_connection = True
            return
        body = fault.body
        if body is None:
            body = json.dumps(ApiError(fault.code, "Fault", "set by the test").status).encode()
        if fault.cuts_off:
            self.send_response(fault.code)
            self.send_header("Content-Length", str(len(body) + 100))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True
            return
        self._reply(fault.code, body, fault.headers)

    def _reply(self, code: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _resource(base: str, plural: str) -> Resource | None:
    return next((r for r in RESOURCES if (r.base, r.plural) == (base, plural)), None)


def _discovery(path: str) -> Object | None:
    """What clients ask before anything else; None: the path is no such question."""
    if path == "/version":
        return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(g) for g in _GROUPS]}
    group = path.removeprefix("/apis/")
    if group in _GROUPS:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
    own = [resource for resource in RESOURCES if resource.base == path]
    if not own:
        return None
    served = [
        {
            "name": r.plural,
            "singularName": r.kind.lower(),
            "namespaced": r.is_namespaced,
            "kind": r.kind,
            "verbs": _VERBS,
        }
        for r in own
    ]
    if path == "/api/v1":
        eviction = {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
        named = {"name": "pods/eviction", "singularName": "", "namespaced": True}
        served.append({**named, **eviction})
    head = {"kind": "APIResourceList", "apiVersion": "v1"}
    return {**head, "groupVersion": own[0].api_version, "resources": served}


def _group(name: str) -> Object:
    version = next(r.api_version for r in RESOURCES if r.api_version.startswith(f"{name}/"))
    served = {"groupVersion": version, "version": version.partition("/")[2]}
    return {"name": name, "versions": [served], "preferredVersion": served}
