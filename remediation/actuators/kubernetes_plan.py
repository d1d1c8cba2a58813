"""The changes by which an order would be carried out on Kubernetes, for a dry run to show.

Nothing is sent here. Which pods would be evicted is known only when it is done.
"""

from datetime import datetime, timedelta
from typing import Any

import orjson

from remediation.actuators.kubernetes_cluster import node_path
from remediation.actuators.kubernetes_nodes import hold_patch, release_patch
from remediation.actuators.kubernetes_writes import Command
from remediation.actuators.protocol import Order

_EVICTIONS = ("POST", "/api/v1/namespaces/*/pods/*/eviction")


def planned_hold(order: Order, *, now: datetime) -> tuple[Command, ...]:
    """The changes that would cordon or drain a node; taints of others are left out of the patch.

    Args:
        order: The order.
        now: The present; a deadline counts from it.

    Raises:
        DataError: No node has such a name.
    """
    deadline = None
    if order.action == "checkpoint_then_drain":
        deadline = now + timedelta(minutes=order.notice_minutes)
    patch = _patch(order, hold_patch({}, reason=order.reason, deadline=deadline))
    if order.action == "cordon":
        return (patch,)
    due = {
        "drain_now": "at once",
        "drain_after_jobs": "once no job runs on it",
        "checkpoint_then_drain": "after the deadline",
    }[order.action]
    return (patch, (*_EVICTIONS, f"of node {order.expected.name}, {due}"))


def planned_return(order: Order) -> tuple[Command, ...]:
    """The change that would return a node.

    Raises:
        DataError: No node has such a name.
    """
    return (_patch(order, release_patch({}, uncordons=True)),)


def _patch(order: Order, body: dict[str, Any]) -> Command:
    del body["metadata"]["resourceVersion"]  # that of the moment at which it is sent
    return ("PATCH", node_path(order.expected.name), orjson.dumps(body).decode())
