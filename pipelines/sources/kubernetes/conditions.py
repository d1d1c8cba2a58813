"""What conditions and taints of a Kubernetes node say: out of service, in trouble, or nothing.

How they become intervals is in `kubernetes.nodes`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from features.scheduler_states import NodeState
from pipelines.sources.kubernetes.objects import (
    Json,
    annotations_of,
    cut,
    items,
    mapping,
    moment,
    text,
    written_by,
)

CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
OWN_REASON: Final = "forewarn/reason"
"""Annotation that says why a node was cordoned."""

_HEALTHY_WHEN_TRUE: Final = re.compile(
    r"(Ready|Healthy|OK|Online|Succeeded|Passed|(?<!Un)Available)$"
)
_NOT_OF_HEALTH: Final = frozenset({"NetworkUnavailable"})  # true while a cloud route is being made
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
# Those that only repeat a condition, with the state they stand for in the condition's place.
_OF_CONDITIONS: Final = frozenset(
    {
        CORDON_TAINT,
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
    }
)
_DOWN_TAINTS: Final = frozenset(
    {"node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"}
)
_UNKNOWN_TAINTS: Final = frozenset({"node.cloudprovider.kubernetes.io/uninitialized"})
# A taint that any agent sets because of trouble or planned work; `nvidia.com/gpu` and the like
# only keep other pods away.
_DRAIN_WORDS: Final = (
    r"unhealthy|not-?healthy|fail(?!ure-domain|over)|fault|error|xid|quarantin|maint|cordon|drain|"
    r"repair|remediat|broken|problem|degraded|disrupt|terminat|tobedeleted|out-of-service|reboot|"
    r"evict|shutdown|upgrad|decommission|unusable|bad-?(?:gpu|node)"
)
_DRAIN_KEY: Final = re.compile(_DRAIN_WORDS, re.IGNORECASE)
_DRAIN_VALUE: Final = re.compile(rf"(?:{_DRAIN_WORDS})[a-z]*", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One thing that a node object says about the node's service.

    Attributes:
        state: What it means for the node.
        since: Since when; None: not told.
        reason: In words; None: it needs none.
        actor: Who said so, where that is told.
    """

    state: NodeState
    since: datetime | None
    reason: str | None = None
    actor: str | None = None


def readiness(node: Json, *, seen_at: datetime | None, down_after: timedelta) -> Iterator[Finding]:
    """What the Ready condition says.

    `False` is down. `Unknown` means that the kubelet no longer reports: unknown at first, and
    down once that has lasted as long as pods stay bound to such a node (300 s by default,
    Kubernetes documentation, *Taint based evictions*). Both moments come from the transition
    time, so that each later look at the node tells the same.

    Args:
        node: The node.
        seen_at: When the object was read; None: not known.
        down_after: How long `Unknown` may last.
    """
    ready = next(
        (
            found
            for found in items(mapping(node, "status"), "conditions")
            if _type(found) == "Ready"
        ),
        None,
    )
    born = moment(mapping(node, "metadata"), "creationTimestamp")
    if ready is None:
        yield Finding("unknown", born, "no Ready condition")
        return
    since = _since(ready, born)
    status = text(ready, "status")
    if status == "True":
        yield Finding("up", since)
    elif status == "False":
        yield Finding("down", since, f"NotReady: {_words(ready)}")
    else:
        yield Finding("unknown", since, f"Ready is unknown: {_words(ready)}")
        if status == "Unknown" and since and seen_at and seen_at - since >= down_after:
            yield Finding("down", since + down_after, f"NotReady: no report: {_words(ready)}")


def trouble(node: Json) -> Iterator[Finding]:
    """Conditions beside Ready that report trouble: pressure, and what health agents add.

    They say nothing about service by themselves (state `up`): agents that want the node out of
    service cordon or taint it. Types that end in Ready, Healthy or Available are trouble when
    false, all others when true.

    Args:
        node: The node.
    """
    born = moment(mapping(node, "metadata"), "creationTimestamp")
    for condition in items(mapping(node, "status"), "conditions"):
        kind = _type(condition)
        if kind is None or kind == "Ready" or kind in _NOT_OF_HEALTH:
            continue
        bad = "False" if _HEALTHY_WHEN_TRUE.search(kind) else "True"
        if text(condition, "status") != bad:
            continue
        # Keyed lists are owned by the key's JSON, with its fields in order of name.
        own = 'k:{"type":"' + kind + '"}'
        actor, _ = written_by(node, "f:status", "f:conditions", own)
        yield Finding("up", _since(condition, born), f"{kind}: {_words(condition)}", actor)


def cordon(node: Json) -> Iterator[Finding]:
    """Whether pods are kept away from the node: cordoned, or tainted because of trouble or work.

    Args:
        node: The node.
    """
    spec = mapping(node, "spec")
    taints = list(items(spec, "taints"))
    if spec.get("unschedulable") is True or any(text(t, "key") == CORDON_TAINT for t in taints):
        actor, written = written_by(node, "f:spec", "f:unschedulable")
        added = next(
            (moment(t, "timeAdded") for t in taints if text(t, "key") == CORDON_TAINT), None
        )
        why = annotations_of(node).get(OWN_REASON)
        said = "cordoned" if actor is None else f"cordoned by {actor}"
        yield Finding("drain", added or written, cut(f"{said}: {why}" if why else said), actor)
    for taint in taints:
        found = _taint(node, taint)
        if found is not None:
            yield found


def _taint(node: Json, taint: Json) -> Finding | None:
    key = text(taint, "key")
    if key is None or key in _OF_CONDITIONS or text(taint, "effect") not in _BLOCKING:
        return None
    value = text(taint, "value")
    state: NodeState = "drain"
    if key in _DOWN_TAINTS:
        state = "down"
    elif key in _UNKNOWN_TAINTS:
        state = "unknown"
    elif not (_DRAIN_KEY.search(key) or _DRAIN_VALUE.fullmatch(value or "")):
        return None
    named = f"taint {key}={value}" if value else f"taint {key}"
    actor, _ = written_by(node, "f:spec", "f:taints")
    return Finding(state, moment(taint, "timeAdded"), cut(named), actor)


def _since(condition: Json, born: datetime | None) -> datetime | None:
    """When a condition began, never before the node of this name and uid was made."""
    since = moment(condition, "lastTransitionTime")
    return max(since, born) if since and born else since or born


def _type(condition: Json) -> str | None:
    return text(condition, "type")


def _words(condition: Json) -> str:
    """Reason and message of a condition, as far as it has them."""
    parts = [text(condition, "reason"), text(condition, "message")]
    return cut(": ".join(part for part in parts if part) or "no reason given")
