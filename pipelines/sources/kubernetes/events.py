"""Kubernetes events that say something about the health of a node; the others are passed over.

Events live for an hour by default: they fill in what happened between two readings of the nodes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.sources.kubernetes.health import health_rows
from pipelines.sources.kubernetes.objects import (
    Json,
    RefusedError,
    cut,
    mapping,
    moment,
    text,
)

_READY: Final[Mapping[str, bool]] = {"NodeReady": True, "NodeNotReady": False}
_CORDON: Final[Mapping[str, bool]] = {"NodeSchedulable": False, "NodeNotSchedulable": True}
_KINDS: Final[Sequence[tuple[re.Pattern[str], str]]] = (
    (re.compile(r"Rebooted"), "reboot"),
    (re.compile(r"SystemOOM|OOMKilling"), "oom"),
    (re.compile(r"NodeHas(?:DiskPressure|InsufficientMemory|InsufficientPID)"), "pressure"),
    (re.compile(r"EvictionThresholdMet"), "pressure"),
    (re.compile(r"KernelOops|KernelPanic|SoftLockup|HardLockup|RCUStall"), "oops"),
    (re.compile(r"TaskHung|KernelDeadlock|DeadlockDetected"), "hung_task"),
    (
        re.compile(r"Ext4(?:Error|Warning)|Xfs\w+|IOError|\w*ReadOnly\w*|Nvme\w+", re.I),
        "filesystem",
    ),
    (re.compile(r"MemoryReadError|EDAC\w*|MCE\w*|HardwareError"), "edac"),
    (re.compile(r".*(?:Gpu|GPU|Xid|XID|Nvlink|NVLink|NVSwitch|Nvidia|NVIDIA).*"), "unknown"),
)

# What agents say when trouble is over: NoKernelDeadlock, FilesystemIsNotReadOnly, GpuHealthy.
_RECOVERED: Final = re.compile(r"No[A-Z]\w*|\w*(?:IsNot|HasNo|HasSufficient|Healthy|Recovered)\w*")


@dataclass(frozen=True)
class NodeTurn:
    """A moment at which a node became ready or not, or was cordoned or released.

    Attributes:
        node: The node.
        ts: When.
        is_ready: The new readiness; None: the turn is about the cordon.
        is_cordoned: The new cordon; None: the turn is about readiness.
        reason: Reason and message.
        actor: Component that said so.
    """

    node: str
    ts: datetime
    is_ready: bool | None
    is_cordoned: bool | None
    reason: str
    actor: str | None


@dataclass(frozen=True)
class EventFacts:
    """What one event says of a node; both empty: nothing.

    Attributes:
        turns: Changes of its state.
        health: Rows of raw/kernel_log without source and ingested_at.
    """

    turns: tuple[NodeTurn, ...] = ()
    health: tuple[Mapping[str, Any], ...] = ()


def event_facts(event: Json, *, since: datetime | None = None) -> EventFacts:
    """Reads one event, of core/v1 or of events.k8s.io/v1.

    One that stands for several gives its first and its last moment: the API keeps no others.

    Args:
        event: An Event as the API gives it.
        since: Moments before this were told before; None: all are given.

    Raises:
        RefusedError: It is about no object, or is about a node and has no time.
    """
    about = mapping(event, "involvedObject") or mapping(event, "regarding")
    if not about:
        raise RefusedError("event is about no object")
    is_of_node = text(about, "kind") == "Node"
    node = text(about, "name") if is_of_node else _host(event)
    reason = text(event, "reason") or ""
    message = text(event, "message") or text(event, "note") or ""
    words = cut(f"{reason}: {message}" if message else reason)
    times = _times(event)
    kept = [time for time in times if since is None or time >= since]
    is_turn = is_of_node and (reason in _READY or reason in _CORDON)
    if is_turn and node is None:
        raise RefusedError("event is about a node without a name")
    if is_turn and not times:
        raise RefusedError("event has no time")
    if times and not kept:
        return EventFacts()
    if is_turn and node is not None:
        ready, cordoned, actor = _READY.get(reason), _CORDON.get(reason), _component(event)
        return EventFacts(
            turns=tuple(NodeTurn(node, t, ready, cordoned, words, actor) for t in kept)
        )
    moments: Sequence[datetime | None] = kept or [None]
    return EventFacts(
        health=tuple(
            row for ts in moments for row in _health(reason, words, node, ts, is_of_node=is_of_node)
        )
    )


def turn_rows(
    turns: Sequence[NodeTurn],
    *,
    cordoned_since: Mapping[str, datetime | None],
    seen_at: datetime | None,
    down_after: timedelta,
) -> list[dict[str, Any]]:
    """Node states between two readings of the nodes, as events tell them.

    A node that is not ready is unknown at first and down once that has lasted `down_after`, as
    in `kubernetes.conditions`. One that becomes ready again while it is cordoned is drained.

    Args:
        turns: Changes of all nodes.
        cordoned_since: Nodes that are cordoned at the reading, and since when.
        seen_at: When the events were read; None: not known.
        down_after: How long a node may be not ready.

    Returns:
        Rows of raw/node_states without source and ingested_at, by node and time.
    """
    rows: list[dict[str, Any]] = []
    by_node: dict[str, list[NodeTurn]] = {}
    for turn in sorted(set(turns), key=lambda t: (t.node, t.ts, t.reason, t.actor or "")):
        by_node.setdefault(turn.node, []).append(turn)
    for node, own in by_node.items():
        absent: NodeTurn | None = None
        for turn in own:
            if turn.is_ready is False:
                if absent is None:
                    rows.append(_state_row(turn, "unknown", turn.ts))
                absent = absent or turn
            elif turn.is_ready:
                rows += _downs(absent, until=turn.ts, down_after=down_after)
                absent, since = None, cordoned_since.get(node)
                is_held = since is not None and since <= turn.ts
                rows.append(_state_row(turn, "drain" if is_held else "up", turn.ts))
            elif turn.is_cordoned or absent is None:
                rows.append(_state_row(turn, "drain" if turn.is_cordoned else "up", turn.ts))
        rows += _downs(absent, until=seen_at, down_after=down_after)
    return rows


def _downs(
    absent: NodeTurn | None, *, until: datetime | None, down_after: timedelta
) -> list[dict[str, Any]]:
    """The row of a node that was not ready for too long."""
    if absent is None or until is None or until - absent.ts < down_after:
        return []
    return [_state_row(absent, "down", absent.ts + down_after)]


def _state_row(turn: NodeTurn, state: str, since: datetime) -> dict[str, Any]:
    return {
        "node": turn.node,
        "state": state,
        "reason": turn.reason or None,
        "actor": turn.actor,
        "valid_from": since,
        "valid_to": None,
    }


def _health(
    reason: str, words: str, node: str | None, ts: datetime | None, *, is_of_node: bool
) -> list[dict[str, Any]]:
    found = health_rows(words, node=node, ts=ts)
    if found or not is_of_node:
        return [row for row in found if is_of_node or row["kind"] in ("xid", "sxid", "off_bus")]
    if _RECOVERED.fullmatch(reason.replace("NotHealthy", "Failed").replace("Unhealthy", "Failed")):
        return []
    kind = next((kind for pattern, kind in _KINDS if pattern.fullmatch(reason)), None)
    return [] if kind is None else [{"node": node, "ts": ts, "kind": kind, "line": words}]


def _times(event: Json) -> list[datetime]:
    """First and last moment of an event; one where they are the same, none where it has none."""
    first = (
        moment(event, "firstTimestamp")
        or moment(event, "deprecatedFirstTimestamp")
        or moment(event, "eventTime")
    )
    last = (
        moment(mapping(event, "series"), "lastObservedTime")
        or moment(event, "lastTimestamp")
        or moment(event, "deprecatedLastTimestamp")
    )
    made = moment(mapping(event, "metadata"), "creationTimestamp")
    times = {time for time in (first, last) if time is not None}
    return sorted(times or ({made} if made is not None else set()))


def _component(event: Json) -> str | None:
    return (
        text(mapping(event, "source"), "component")
        or text(event, "reportingComponent")
        or text(event, "reportingController")
        or text(mapping(event, "deprecatedSource"), "component")
    )


def _host(event: Json) -> str | None:
    """The node whose agent reported an event about something else."""
    return text(mapping(event, "source"), "host") or text(
        mapping(event, "deprecatedSource"), "host"
    )
