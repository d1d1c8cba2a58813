"""The objects of the Kubernetes stand-in: versions, history, selectors, patches and evictions.

Nothing is known here of HTTP (see `kubernetes_server`).
"""

import copy
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.real.kubernetes_resources import RESOURCES, Object, Selector

Key = tuple[str, str, str]


# Strategic merge joins these lists by a key; others, taints among them, it replaces.
_MERGE_KEYS: Final = {"conditions": "type", "containers": "name", "ownerReferences": "uid"}


class ApiError(Exception):
    """A refusal in the words of the API.

    Args:
        code: HTTP status.
        reason: The API's word for it.
        message: In words.
        details: Further fields.
    """

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": details.pop("metadata", {}),
            "status": "Failure",
            "reason": reason,
            "message": message,
            "details": details,
            "code": code,
        }


@dataclass(frozen=True)
class Change:
    """One entry of the history.

    Attributes:
        version: Resource version it made.
        kind: ADDED, MODIFIED or DELETED.
        plural: Kind of object.
        found: The object after it.
    """

    version: int
    kind: str
    plural: str
    found: Object


class Store:
    """All objects and their history; safe to share between threads.

    Attributes:
        changed: Held while objects are read or written; notified after each change.
        version: The latest resource version.
        oldest: Versions before this one have been forgotten.
        dying_s: How long an evicted pod takes to go.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = 1
        self.oldest = 0
        self.dying_s = 0.2
        self._objects: dict[Key, Object] = {}
        self._history: list[Change] = []
        self._tokens: dict[str, tuple[int, list[Object]]] = {}
        self._timers: list[threading.Timer] = []

    def put(self, plural: str, found: Mapping[str, Any]) -> Object:
        """Adds an object or replaces it, with the fields that a server fills in."""
        with self.changed:
            resource = next(r for r in RESOURCES if r.plural == plural)
            new = copy.deepcopy(dict(found))
            metadata = new.setdefault("metadata", {})
            if resource.is_namespaced:
                metadata.setdefault("namespace", "default")
            key = (plural, metadata.get("namespace", ""), metadata["name"])
            old = self._objects.get(key)
            new["apiVersion"], new["kind"] = resource.api_version, resource.kind
            metadata.setdefault("uid", old["metadata"]["uid"] if old else str(uuid.uuid4()))
            metadata.setdefault("creationTimestamp", rfc3339())
            self._objects[key] = new
            self._record("ADDED" if old is None else "MODIFIED", plural, new)
            return copy.deepcopy(new)

    def get(self, plural: str, namespace: str | None, name: str) -> Object:
        """One object.

        Raises:
            ApiError: 404.
        """
        with self.changed:
            found = self._objects.get((plural, namespace or "", name))
            if found is None:
                raise ApiError(
                    404, "NotFound", f'{plural} "{name}" not found', name=name, kind=plural
                )
            return copy.deepcopy(found)

    def remove(self, plural: str, namespace: str | None, name: str) -> Object:
        """Takes an object away at once.

        Raises:
            ApiError: 404.
        """
        with self.changed:
            found = self.get(plural, namespace, name)
            del self._objects[plural, namespace or "", name]
            self._record("DELETED", plural, found)
            return found

    def select(self, selector: Selector) -> tuple[list[Object], int]:
        """Objects by namespace and name, and the version at which they were so."""
        with self.changed:
            found = [
                copy.deepcopy(self._objects[key])
                for key in sorted(self._objects)
                if selector.fits(key[0], self._objects[key])
            ]
            return found, self.version

    def page(self, selector: Selector, limit: int, token: str) -> Object:
        """A part of a list, with the token of the rest.

        Raises:
            ApiError: 410: the token has expired.
        """
        with self.changed:
            if token and token not in self._tokens:
                raise ApiError(410, "Expired", "The provided continue parameter is too old")
            if token:
                version, rest = self._tokens.pop(token)
            else:
                rest, version = self.select(selector)
            shown, later = (rest[:limit], rest[limit:]) if limit else (rest, [])
            metadata: Object = {"resourceVersion": str(version)}
            if later:
                metadata["continue"] = uuid.uuid4().hex
                metadata["remainingItemCount"] = len(later)
                self._tokens[metadata["continue"]] = (version, later)
            return {"metadata": metadata, "items": shown}

    def expire(self) -> None:
        """Forgets the history and all tokens, as a compaction does."""
        with self.changed:
            self._tokens.clear()
            self.oldest = self.version

    def patch(
        self,
        plural: str,
        namespace: str | None,
        name: str,
        change: Object,
        *,
        by_key: bool,
        manager: str = "unknown",
    ) -> Object:
        """Merges a change into an object.

        Args:
            plural: Kind of object.
            namespace: Its namespace.
            name: Its name.
            change: Null removes a field; a resource version must be the present one.
            by_key: Whether lists with a key are joined (strategic merge).
            manager: Who changes it; noted where it changes a node's `spec.unschedulable`.

        Raises:
            ApiError: 404, or 409 where the object has changed since that version, or is another.
        """
        with self.changed:
            found = self.get(plural, namespace, name)
            self.check_version(found, change)
            _check_uid(found, (change.get("metadata") or {}).get("uid"))
            new = merged(found, change, by_key=by_key)
            if new.get("spec", {}).get("unschedulable") != found.get("spec", {}).get(
                "unschedulable"
            ):
                owned = {"f:spec": {"f:unschedulable": {}}}
                new["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": owned}]
            return self.put(plural, new)

    def check_version(self, found: Object, change: Object) -> None:
        """Refuses a change that was made of an older version.

        Raises:
            ApiError: 409.
        """
        wanted = (change.get("metadata") or {}).get("resourceVersion")
        if wanted and wanted != found["metadata"]["resourceVersion"]:
            name = found["metadata"]["name"]
            raise ApiError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on "{name}": the object has been modified; please '
                f"apply your changes to the latest version and try again",
                name=name,
            )

    def since(self, version: int) -> list[Change]:
        """The history after a version."""
        with self.changed:
            return [change for change in self._history if change.version > version]

    def delete_pod(self, namespace: str | None, name: str, patience_s: int) -> Object:
        """Marks a pod as going; it is gone after `dying_s`, at once without patience.

        Raises:
            ApiError: 404.
        """
        with self.changed:
            found = self.get("pods", namespace, name)
            if patience_s == 0:
                return self.remove("pods", namespace, name)
            found["metadata"]["deletionTimestamp"] = rfc3339(patience_s)
            found["metadata"]["deletionGracePeriodSeconds"] = patience_s
            marked = self.put("pods", found)
            uid = marked["metadata"]["uid"]
            timer = threading.Timer(self.dying_s, self._gone, (namespace, name, uid))
            timer.daemon = True
            self._timers.append(timer)
            timer.start()
            return marked

    def evict(self, namespace: str | None, name: str, options: Object) -> None:
        """Asks for a pod to go, as far as disruption budgets allow it.

        Raises:
            ApiError: 404; 409 where another pod was meant; 429 where a budget forbids it; 500
                where two budgets speak of it.
        """
        with self.changed:
            pod = self.get("pods", namespace, name)
            _check_uid(pod, (options.get("preconditions") or {}).get("uid"))
            budgets = [budget for budget in self._budgets() if _is_of(budget, pod)]
            if len(budgets) > 1:
                raise ApiError(
                    500,
                    "InternalError",
                    "This pod has more than one PodDisruptionBudget, which the eviction "
                    "subresource does not support.",
                )
            for budget in budgets:
                self._allow(budget)
            if not options.get("dryRun"):
                self.delete_pod(namespace, name, options.get("gracePeriodSeconds", 30))

    def close(self) -> None:
        """Stops what would still happen."""
        for timer in self._timers:
            timer.cancel()

    def _allow(self, budget: Object) -> None:
        needed = int(budget["spec"].get("minAvailable", 0))
        pods, _ = self.select(Selector("pods"))
        healthy = [pod for pod in pods if _is_of(budget, pod) and _is_healthy(pod)]
        if len(healthy) - 1 < needed:
            name = budget["metadata"]["name"]
            told = (
                f"The disruption budget {name} needs {needed} healthy pods and has {len(healthy)}"
            )
            raise ApiError(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                causes=[{"reason": "DisruptionBudget", "message": f"{told} currently"}],
            )

    def _budgets(self) -> list[Object]:
        return self.select(Selector("poddisruptionbudgets"))[0]

    def _gone(self, namespace: str | None, name: str, uid: str) -> None:
        with self.changed:
            found = self._objects.get(("pods", namespace or "", name))
            if found is not None and found["metadata"]["uid"] == uid:
                self.remove("pods", namespace, name)

    def _record(self, kind: str, plural: str, found: Object) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self._history.append(Change(self.version, kind, plural, copy.deepcopy(found)))
        self.changed.notify_all()


def _check_uid(found: Object, wanted: str | None) -> None:
    uid = found["metadata"]["uid"]
    if wanted and wanted != uid:
        told = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
        raise ApiError(409, "Conflict", told)


def rfc3339(after_s: float = 0) -> str:
    """The present, or some seconds later, as the API writes it."""
    return (datetime.now(UTC) + timedelta(seconds=after_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def merged(old: Any, change: Any, *, by_key: bool) -> Any:
    """A merge patch (RFC 7386); with `by_key`, lists that have a key are joined by it."""
    if not isinstance(change, dict):
        return change
    new = dict(old) if isinstance(old, dict) else {}
    for field, value in change.items():
        if value is None:
            new.pop(field, None)
        elif by_key and isinstance(value, list) and field in _MERGE_KEYS:
            new[field] = _joined(new.get(field) or [], value, _MERGE_KEYS[field])
        elif not field.startswith("$"):
            new[field] = merged(new.get(field), value, by_key=by_key)
    return new


def _joined(old: list[Object], changes: list[Object], key: str) -> list[Object]:
    by_name = {item[key]: item for item in old}
    for change in changes:
        if change.get("$patch") == "delete":
            by_name.pop(change[key], None)
        else:
            by_name[change[key]] = merged(by_name.get(change[key]), change, by_key=True)
    return list(by_name.values())


def _is_of(budget: Object, pod: Object) -> bool:
    wanted = budget["spec"].get("selector", {}).get("matchLabels") or {}
    labels = pod["metadata"].get("labels") or {}
    is_near = budget["metadata"].get("namespace") == pod["metadata"].get("namespace")
    return is_near and all(labels.get(key) == value for key, value in wanted.items())


def _is_healthy(pod: Object) -> bool:
    is_running = pod.get("status", {}).get("phase") == "Running"
    return is_running and "deletionTimestamp" not in pod["metadata"]
