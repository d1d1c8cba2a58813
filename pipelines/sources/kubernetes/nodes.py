"""Kubernetes nodes: their states over time, where they stand, and health facts of conditions.

GPUs of nodes are in `kubernetes.devices`; what one condition or taint means is in
`kubernetes.conditions`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from features.scheduler_states import NodeState
from pipelines.sources.kubernetes.conditions import Finding, cordon, readiness, trouble
from pipelines.sources.kubernetes.health import health_rows
from pipelines.sources.kubernetes.objects import (
    Json,
    cut,
    items,
    labels_of,
    mapping,
    moment,
    name_of,
)

LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    "region": ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    "zone": ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    "rack": ("topology.kubernetes.io/rack", "cloud.google.com/gce-topology-subblock"),
    "block": (
        "network.topology.nvidia.com/block",
        "cloud.google.com/gce-topology-block",
        "cloud.provider.com/topology-block",
    ),
    "spine": ("network.topology.nvidia.com/spine", "topology.k8s.aws/network-node-layer-2"),
    "switch": ("network.topology.nvidia.com/leaf", "topology.k8s.aws/network-node-layer-3"),
    "nvlink_domain": ("network.topology.nvidia.com/accelerator", "nvidia.com/gpu.clique"),
    "pool": (
        "karpenter.sh/nodepool",
        "eks.amazonaws.com/nodegroup",
        "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool",
        "node-pool",
    ),
}
"""Levels of places and the labels that name them; of several labels the first present counts."""

_WORSE: Final[Mapping[NodeState, int]] = {"up": 0, "unknown": 1, "drain": 2, "down": 3}
DOWN_AFTER: Final = timedelta(seconds=300)


@dataclass(frozen=True)
class NodeReading:
    """How nodes are read.

    Attributes:
        seen_at: When the objects were read from the API; None: each node's own last report counts.
        since: Health facts older than this were told before; None: all are given.
        down_after: How long a kubelet may be silent before its node is down.
        levels: Labels by level, `LEVELS` or a site's own.
    """

    seen_at: datetime | None = None
    since: datetime | None = None
    down_after: timedelta = DOWN_AFTER
    levels: Mapping[str, Sequence[str]] = field(default_factory=lambda: LEVELS)


def node_state_rows(node: Json, reading: NodeReading) -> list[dict[str, Any]]:
    """The states of a node, as far as its object tells.

    One row per moment at which something that holds now began, with the worst of what held from
    then on, and one for the moment at which the object was read. The latter ends what an earlier
    reading told: lifting a cordon leaves no time behind. A drain without a time is known only
    from the reading on.

    Args:
        node: A Node as the API gives it.
        reading: How it is read.

    Returns:
        Rows of raw/node_states without source and ingested_at, in order of time.

    Raises:
        RefusedError: The node has no name.
    """
    name = name_of(node)
    seen_at = reading.seen_at or last_report(node)
    service = [*readiness(node, seen_at=seen_at, down_after=reading.down_after), *cordon(node)]
    found = [*service, *trouble(node)]
    # Before the first that is known of its service, trouble alone does not say whether it served.
    first = min((finding.since for finding in service if finding.since), default=None)
    known = sorted({f.since for f in found if f.since and first and f.since >= first})
    times: list[datetime | None] = list(known)
    if seen_at is not None:
        times += [max([seen_at, *known])]
    rows: list[dict[str, Any]] = []
    for time in times or [None]:
        row = _row(name, time, _holding(found, time, is_last=time is times[-1] if times else True))
        if rows and rows[-1]["valid_from"] == time:
            rows.pop()
        rows.append(row)
    return rows


def topology_rows(node: Json, reading: NodeReading) -> Iterator[dict[str, Any]]:
    """Where a node stands, as its labels tell.

    Args:
        node: A Node as the API gives it.
        reading: Names the labels of each level.

    Yields:
        Rows of core/topology; valid without limits, for labels carry no time.

    Raises:
        RefusedError: The node has no name.
    """
    name, labels = name_of(node), labels_of(node)
    for level, keys in reading.levels.items():
        place = next((labels[key] for key in keys if labels.get(key)), None)
        if place is not None:
            yield {"node": name, "level": level, "place": place}


def condition_events(node: Json, reading: NodeReading) -> Iterator[dict[str, Any]]:
    """Hardware events that a node's conditions report (an Xid in a health agent's message).

    Args:
        node: A Node as the API gives it.
        reading: Says what was told before.

    Yields:
        Rows of raw/kernel_log without source and ingested_at.

    Raises:
        RefusedError: The node has no name.
    """
    name = name_of(node)
    for finding in trouble(node):
        if finding.since is None or (reading.since and finding.since < reading.since):
            continue
        yield from health_rows(finding.reason or "", node=name, ts=finding.since)


def last_report(node: Json) -> datetime | None:
    """The latest moment that a node's conditions speak of; None: they have no times.

    Args:
        node: A Node as the API gives it.
    """
    times = (
        moment(condition, key)
        for condition in items(mapping(node, "status"), "conditions")
        for key in ("lastHeartbeatTime", "lastTransitionTime")
    )
    return max((time for time in times if time is not None), default=None)


def _holding(found: Sequence[Finding], time: datetime | None, *, is_last: bool) -> list[Finding]:
    """What held at a moment; what has no time holds only at the last one."""
    return [
        finding
        for finding in found
        if (is_last if finding.since is None or time is None else finding.since <= time)
    ]


def _row(name: str, time: datetime | None, holding: Sequence[Finding]) -> dict[str, Any]:
    state = max((finding.state for finding in holding), key=_WORSE.__getitem__, default="unknown")
    told = sorted(
        (finding for finding in holding if finding.reason is not None),
        key=lambda finding: -_WORSE[finding.state],
    )
    if any(finding.state == "down" for finding in told):
        told = [finding for finding in told if finding.state != "unknown"]
    reasons = list(dict.fromkeys(finding.reason for finding in told if finding.reason))
    return {
        "node": name,
        "state": state,
        "reason": cut("; ".join(reasons)) if reasons else None,
        "actor": next((finding.actor for finding in told if finding.actor), None),
        "valid_from": time,
        "valid_to": None,
    }
