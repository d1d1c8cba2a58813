"""Kubernetes nodes: what their objects say, which marks on them are ours, and how marks change.

Pure; nothing is asked or changed here. Pods are in `kubernetes_pods`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from features.errors import SourceError
from remediation.actuators.kubernetes_api import MANAGER, Json
from remediation.cluster.reasons import Reason, is_ours
from remediation.cluster.state import NodeState, NodeView
from remediation.site import matches

REASON: Final = "forewarn/reason"
"""Annotation of a node that we hold: our reason string."""

DEADLINE: Final = "forewarn/deadline"
"""Annotation of a node whose jobs were given notice: when they have to go."""

TAINT: Final = "forewarn/cordon"
"""Key of our own taint (NoSchedule); its value is the decision's id."""

_DOWN_TAINTS: Final = frozenset(
    {"node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"}
)
_UNKNOWN_TAINTS: Final = frozenset({"node.cloudprovider.kubernetes.io/uninitialized"})
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
# Those of the control plane repeat the node's conditions or its cordon.
_OF_CONDITIONS: Final = re.compile(
    r"node\.kubernetes\.io/(unschedulable|not-ready|unreachable|(memory|disk|pid)-pressure|"
    r"network-unavailable)"
)
# A taint set because of trouble or planned work, by whichever tool; others (`nvidia.com/gpu`,
# a team's name) only keep other pods away.
_TROUBLE_WORDS: Final = (
    r"unhealthy|not-?healthy|fail(?!ure-domain|over)|(?<!de)fault|error|xid|quarantin|maint|cordon|drain|"
    r"repair|remediat|broken|problem|degraded|disrupt|terminat|tobedeleted|out-of-service|reboot|"
    r"evict|shutdown|upgrad|decommission|unusable|bad-?(?:gpu|node)"
)
_TROUBLE: Final = re.compile(_TROUBLE_WORDS, re.IGNORECASE)
_TROUBLE_VALUE: Final = re.compile(rf"(?:{_TROUBLE_WORDS})[a-z]*", re.IGNORECASE)
_WORSE: Final = {"up": 0, "unknown": 1, "drain": 2, "down": 3}
_WORDS: Final = 300

Hold = Literal["none", "ours", "residue", "partial", "other"]


@dataclass(frozen=True, kw_only=True)
class NodeReading:
    """Where a site's nodes say what; of several labels the first that is present counts.

    Attributes:
        racks: Labels that name the rack.
        switches: Labels that name the leaf switch.
        pools: Labels that name the pool; it counts as the node's partition.
        gpu_resources: Resources that are whole GPUs.
        drain_taints: Patterns of taint keys that mean that another tool holds the node, beside
            those whose words say so.
        usual_taints: Patterns of taint keys that never mean that.
    """

    racks: tuple[str, ...] = (
        "topology.kubernetes.io/rack",
        "cloud.google.com/gce-topology-subblock",
    )
    switches: tuple[str, ...] = (
        "network.topology.nvidia.com/leaf",
        "topology.k8s.aws/network-node-layer-3",
    )
    pools: tuple[str, ...] = (
        "karpenter.sh/nodepool",
        "eks.amazonaws.com/nodegroup",
        "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool",
        "node-pool",
    )
    gpu_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    drain_taints: tuple[str, ...] = ()
    usual_taints: tuple[str, ...] = ()


def node_view(node: Json, reading: NodeReading) -> NodeView:
    """A node as the hook sees it.

    Ready=False is down: its kubelet says so. Ready=Unknown is unknown, however long it lasts: the
    kubelet is silent, and silence says neither sick nor healthy; both keep the hook from acting
    and from returning it, so nothing is gained by guessing. A cordon is known without the
    kubelet, and counts also on a silent node. Of several states the worst counts: down, drain,
    unknown, up, as everywhere in the project.

    The boot id is that of the node object and of the kernel together: a machine that was replaced
    under its name, or only rebooted, is another.

    Args:
        node: A Node as the API gives it.
        reading: Where it says what.

    Raises:
        SourceError: It has no name.
    """
    metadata = _object(node, "metadata")
    name, uid = metadata.get("name"), metadata.get("uid")
    if not isinstance(name, str) or not name:
        raise SourceError("a node of the cluster has no name; the answer is not the API's")
    labels = _object(metadata, "labels")
    state, reason, actor = max(_findings(node, reading), key=lambda one: _WORSE[one[0]])
    boot = _object(_object(node, "status"), "nodeInfo").get("bootID")
    mark = own_reason(node)
    hold = hold_of(node)
    is_shown = hold == "ours" or (hold == "residue" and state == "up")
    pool = _label(labels, reading.pools)
    return NodeView(
        name=name,
        state=state,
        # What we wrote stays in sight also on a node that is down, or that a person returned.
        reason=mark if is_shown else reason,
        actor=MANAGER if hold == "ours" else actor,
        boot_id=f"{uid}/{boot}" if uid and boot else None,
        rack=_label(labels, reading.racks),
        switch=_label(labels, reading.switches),
        partitions=() if pool is None else (pool,),
        n_gpus=_n_gpus(node, reading),
    )


def hold_of(node: Json) -> Hold:
    """Whose the node's cordon is, and what of ours is on it.

    Returns:
        none: Nothing of ours, no cordon. other: Nothing of ours, someone else's cordon.
        ours: Cordon, reason and taint are ours, and nobody has cordoned it since.
        residue: Marks of ours on a node whose cordon a person has lifted, or set anew.
        partial: Cordoned, but some of our marks are gone: a person has changed them.
    """
    is_cordoned = is_unschedulable(node)
    has_reason, has_taint = own_reason(node) is not None, own_taint(node) is not None
    if not has_reason and not has_taint:
        return "other" if is_cordoned else "none"
    if not is_cordoned or cordoned_by(node) not in (None, MANAGER):
        return "residue"
    return "ours" if has_reason and has_taint else "partial"


def is_unschedulable(node: Json) -> bool:
    """Whether the node is cordoned."""
    return _object(node, "spec").get("unschedulable") is True


def own_reason(node: Json) -> str | None:
    """Our reason on the node; None: there is none, or the annotation is not ours."""
    found = _object(_object(node, "metadata"), "annotations").get(REASON)
    return found if isinstance(found, str) and is_ours(found) else None


def own_taint(node: Json) -> str | None:
    """The decision's id in our taint; None: there is none."""
    found = next((taint for taint in _taints(node) if taint.get("key") == TAINT), None)
    return None if found is None else str(found.get("value", ""))


def cordoned_by(node: Json) -> str | None:
    """Who last wrote `spec.unschedulable`, by the API's own record; None: it does not tell.

    A person who lifts our cordon and sets one anew leaves our marks; only this tells them apart.
    """
    for entry in _items(_object(node, "metadata"), "managedFields"):
        if "f:unschedulable" in _object(_object(entry, "fieldsV1"), "f:spec"):
            manager = entry.get("manager")
            return manager if isinstance(manager, str) else None
    return None


def is_ready(node: Json) -> bool:
    """Whether its kubelet says that it is."""
    return _ready(node).get("status") == "True"


def drain_taint(node: Json, reading: NodeReading) -> str | None:
    """The first taint by which another tool holds the node; None: there is none."""
    return next((key for state, key in _foreign(node, reading) if state == "drain"), None)


def deadline_of(node: Json) -> datetime | None:
    """When jobs have to be gone; None: no notice was given, or the annotation cannot be read."""
    return parse_time(_object(_object(node, "metadata"), "annotations").get(DEADLINE))


def version_of(node: Json) -> str:
    """The resource version."""
    return str(_object(node, "metadata").get("resourceVersion") or "")


def hold_patch(node: Json, *, reason: Reason, deadline: datetime | None) -> dict[str, Any]:
    """The merge patch that cordons a node and puts our marks on it.

    It holds the version it was made from, so that the API refuses it (409) once anything has
    changed; taints of others, which a list cannot be patched without, are therefore as they are.

    Args:
        node: The node as it is.
        reason: What to stamp.
        deadline: When jobs have to be gone; None: none is set.
    """
    taint = {"key": TAINT, "value": reason.decision_id, "effect": "NoSchedule"}
    marks = {
        REASON: str(reason),
        DEADLINE: None if deadline is None else time_text(deadline),
    }
    return {
        "metadata": {"resourceVersion": version_of(node), "annotations": marks},
        "spec": {"unschedulable": True, "taints": [*_others_taints(node), taint]},
    }


def release_patch(node: Json, *, uncordons: bool) -> dict[str, Any]:
    """The merge patch that takes our marks off, and the cordon where it is ours.

    Args:
        node: The node as it is.
        uncordons: Whether the cordon is lifted too.
    """
    spec: dict[str, Any] = {"taints": _others_taints(node) or None}
    if uncordons:
        spec["unschedulable"] = None  # as kubectl does: absent is schedulable
    marks = {REASON: None, DEADLINE: None}
    return {
        "metadata": {"resourceVersion": version_of(node), "annotations": marks},
        "spec": spec,
    }


def time_text(at: datetime) -> str:
    """A time as the API writes it.

    >>> time_text(datetime(2026, 1, 5, 10, 30, tzinfo=UTC))
    '2026-01-05T10:30:00Z'
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: object) -> datetime | None:
    """A time as the API writes it, to UTC; None: it is none, or has no zone.

    >>> parse_time("2026-01-05T11:30:00+01:00").isoformat(), parse_time("2026-01-05")
    ('2026-01-05T10:30:00+00:00', None)
    """
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
        return None if found is None or found.utcoffset() is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # year 1 in a zone ahead of UTC
        return None


_Finding = tuple[NodeState, str | None, str | None]


def _findings(node: Json, reading: NodeReading) -> Iterator[_Finding]:
    """What holds of the node: state, reason, actor."""
    ready = _ready(node)
    status = ready.get("status")
    if status == "True":
        yield "up", None, None
    elif status == "False":
        yield "down", f"NotReady: {_said(ready)}", None
    else:
        yield (
            "unknown",
            f"Ready is unknown: {_said(ready)}" if ready else "no Ready condition",
            None,
        )
    hold = hold_of(node)
    if is_unschedulable(node):
        actor = cordoned_by(node)
        why = f"cordoned by {actor or 'someone'}"
        if hold == "partial":
            why = f"{why}; marks of {MANAGER} on it were changed"
        yield "drain", why, actor
    if _object(node, "metadata").get("deletionTimestamp"):
        yield "drain", "the node is being deleted", None
    for state, key in _foreign(node, reading):
        yield state, f"taint {key}", None


def _foreign(node: Json, reading: NodeReading) -> Iterator[tuple[NodeState, str]]:
    """Taints of others that say something about service."""
    for taint in _taints(node):
        key, value = str(taint.get("key") or ""), str(taint.get("value") or "")
        is_blocking = taint.get("effect") in _BLOCKING
        if key == TAINT or _OF_CONDITIONS.fullmatch(key) or not is_blocking:
            continue
        if key in _DOWN_TAINTS:
            yield "down", key
        elif key in _UNKNOWN_TAINTS:
            yield "unknown", key
        elif matches(key, reading.drain_taints):
            yield "drain", key
        elif matches(key, reading.usual_taints):
            continue
        elif _TROUBLE.search(key) or _TROUBLE_VALUE.fullmatch(value):
            yield "drain", key


def _n_gpus(node: Json, reading: NodeReading) -> int | None:
    """GPUs that the kubelet offers; None: it does not say (no device plugin, or not yet)."""
    offered = _object(_object(node, "status"), "allocatable")
    counts = [whole(offered[name]) for name in reading.gpu_resources if name in offered]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def whole(found: object) -> int | None:
    """A count of a resource, which may be text; None: it is none."""
    text = str(found) if isinstance(found, int | str) and not isinstance(found, bool) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _ready(node: Json) -> Json:
    conditions = _items(_object(node, "status"), "conditions")
    return next((one for one in conditions if one.get("type") == "Ready"), {})


def _said(condition: Json) -> str:
    parts = [condition.get("reason"), condition.get("message")]
    words = ": ".join(part for part in parts if isinstance(part, str) and part)
    return " ".join(words.split())[:_WORDS] or "no reason given"


def _label(labels: Json, names: tuple[str, ...]) -> str | None:
    return next((str(labels[name]) for name in names if labels.get(name)), None)


def _taints(node: Json) -> Iterator[Json]:
    return _items(_object(node, "spec"), "taints")


def _others_taints(node: Json) -> list[Json]:
    return [taint for taint in _taints(node) if taint.get("key") != TAINT]


def _object(value: Json, key: str) -> Json:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _items(value: Json, key: str) -> Iterator[Json]:
    found = value.get(key)
    return (
        (one for one in found if isinstance(one, Mapping)) if isinstance(found, list) else iter(())
    )
