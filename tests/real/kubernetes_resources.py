"""Kinds of objects that the Kubernetes stand-in serves, and the selectors that ask for them.

Objects are kept in `kubernetes_store`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Object = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """A kind of object that the stand-in serves.

    Attributes:
        plural: Its name in paths.
        api_version: Group and version.
        kind: Its kind.
        is_namespaced: Whether it lives in a namespace.
    """

    plural: str
    api_version: str
    kind: str
    is_namespaced: bool

    @property
    def base(self) -> str:
        """Path of its group and version."""
        return (
            f"/api/{self.api_version}" if self.api_version == "v1" else f"/apis/{self.api_version}"
        )


RESOURCES: Final = (
    Resource("nodes", "v1", "Node", False),
    Resource("namespaces", "v1", "Namespace", False),
    Resource("pods", "v1", "Pod", True),
    Resource("events", "v1", "Event", True),
    Resource("daemonsets", "apps/v1", "DaemonSet", True),
    Resource("replicasets", "apps/v1", "ReplicaSet", True),
    Resource("statefulsets", "apps/v1", "StatefulSet", True),
    Resource("jobs", "batch/v1", "Job", True),
    Resource("poddisruptionbudgets", "policy/v1", "PodDisruptionBudget", True),
    Resource("resourceclaims", "resource.k8s.io/v1", "ResourceClaim", True),
    Resource("resourceslices", "resource.k8s.io/v1", "ResourceSlice", False),
)


@dataclass(frozen=True)
class Selector:
    """Which objects are asked for.

    Attributes:
        plural: Kind of object.
        namespace: Namespace; None: all.
        labels: Label selector as the API writes it.
        fields: Field selector.
    """

    plural: str
    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    def fits(self, plural: str, found: Object) -> bool:
        """Whether an object is meant."""
        metadata = found["metadata"]
        if plural != self.plural or self.namespace not in (None, metadata.get("namespace")):
            return False
        labels = metadata.get("labels") or {}
        return all(_label_fits(part, labels) for part in _parts(self.labels)) and all(
            _field_fits(part, found) for part in _parts(self.fields)
        )


def _parts(selector: str) -> list[str]:
    """Requirements of a selector; commas within brackets part nothing."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", selector) if part.strip()]


def _label_fits(part: str, labels: Mapping[str, str]) -> bool:
    among = re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", part)
    if among:
        values = [value.strip() for value in among[3].split(",")]
        return (labels.get(among[1]) in values) == (among[2] == "in")
    equal = re.fullmatch(r"([^=!\s]+)\s*(==|=|!=)\s*(\S*)", part)
    if equal:
        return (labels.get(equal[1]) == equal[3]) == (equal[2] != "!=")
    return part[1:] not in labels if part.startswith("!") else part in labels


def _field_fits(part: str, found: Object) -> bool:
    path, wanted = re.split(r"!?==?", part, maxsplit=1)
    value: Any = found
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    text = {True: "true", False: "false", None: ""}.get(value, value)
    return (str(text) == wanted) == ("!=" not in part)
