"""The Kubernetes actuator: cordons, drains and returns nodes by the API, touching only own marks.

Emptying a node is in `kubernetes_drain`, whose marks are whose in `kubernetes_nodes`, and how it is
known whether a change arrived in `kubernetes_writes`.
"""

from datetime import timedelta
from typing import Any, Final

from features.errors import SourceError
from remediation.actuators.kubernetes_api import Json, KubernetesApi
from remediation.actuators.kubernetes_cluster import KubernetesCluster, is_node_name
from remediation.actuators.kubernetes_drain import Drain, DrainProgress, DrainRules, progress_of
from remediation.actuators.kubernetes_nodes import (
    deadline_of,
    drain_taint,
    hold_of,
    hold_patch,
    is_ready,
    own_reason,
    own_taint,
    release_patch,
)
from remediation.actuators.kubernetes_writes import Writes
from remediation.actuators.protocol import Order, Outcome
from remediation.cluster.state import NodeView

_BY_DEADLINE: Final = "checkpoint_then_drain"


class KubernetesActuator:
    """Acts on the nodes of one Kubernetes cluster.

    An order may be given again at any time: what is done already is not done again, and a drain
    goes on where it was. The deadline of a drain by deadline stands on the node, so that it
    outlives the run that set it; pods are evicted by the first call after it.

    Args:
        api: The server.
        cluster: Reads it; also says where nodes say what.
        rules: How far one drain call goes.
    """

    name = "kubernetes"
    is_dry_run = False

    def __init__(
        self, api: KubernetesApi, cluster: KubernetesCluster, rules: DrainRules | None = None
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._rules = rules or DrainRules()

    def state(self, node: str) -> NodeView | None:
        """As in `Actuator`.

        Raises:
            SourceError: It cannot be read.
        """
        return self._cluster.view(self._cluster.node(node)) if is_node_name(node) else None

    def progress(self, node: str) -> DrainProgress:
        """How far a node is emptied: drained means that jobs have ended and pods are gone.

        Raises:
            DataError: No node has such a name.
            SourceError: It cannot be read.
        """
        deadline = deadline_of(self._cluster.node(node))
        return progress_of(self._cluster.pods_on(node), deadline=deadline)

    def cordon(self, order: Order) -> Outcome:
        """As in `Actuator`: our cordon, reason and taint in one patch.

        Raises:
            DataError: No node has such a name.
        """
        return self._hold(order, self._writes())

    def drain(self, order: Order) -> Outcome:
        """As in `Actuator`: holds the node, then empties it as far as the action and time allow.

        Raises:
            DataError: No node has such a name.
        """
        writes = self._writes()
        held = self._hold(order, writes)
        if held.status != "done":
            return held
        deadline = None
        if order.action == _BY_DEADLINE:
            try:
                deadline = deadline_of(self._cluster.node(order.expected.name))
            except SourceError as error:
                words = f"held; nothing was evicted: the node cannot be read: {error}"
                return Outcome(status="done", detail=words, commands=tuple(writes.sent))
        return Drain(writes, order, deadline, self._rules).run()

    def end_notice(self, order: Order) -> Outcome:
        """As in `Actuator`: goes on with the drain, whose deadline stands on the node.

        Raises:
            DataError: No node has such a name.
        """
        return self.drain(order)

    def undrain(self, order: Order) -> Outcome:
        """As in `Actuator`; where a person has lifted our cordon already, only takes our marks off.

        Raises:
            DataError: No node has such a name.
        """
        writes = self._writes()

        def look(node: Json, *, is_sent: bool) -> Outcome | None:
            return self._may_release(node, order, is_sent=is_sent)

        def change(node: Json) -> dict[str, Any]:
            return release_patch(node, uncordons=hold_of(node) == "ours")

        outcome = writes.node(order.expected.name, look=look, change=change)
        if outcome.status != "done":
            return outcome
        said = Drain(writes, order, None, self._rules).withdraw()
        return Outcome(status="done", detail=f"{outcome.detail}{said}", commands=tuple(writes.sent))

    def _writes(self) -> Writes:
        return Writes(self._api, self._cluster)

    def _hold(self, order: Order, writes: Writes) -> Outcome:
        deadline = None
        if order.action == _BY_DEADLINE:
            deadline = self._cluster.reads.waits.now() + timedelta(minutes=order.notice_minutes)

        def look(node: Json, *, is_sent: bool) -> Outcome | None:
            return self._may_hold(node, order, is_sent=is_sent)

        def change(node: Json) -> dict[str, Any]:
            return hold_patch(node, reason=order.reason, deadline=deadline)

        return writes.node(order.expected.name, look=look, change=change)

    def _may_hold(self, node: Json, order: Order, *, is_sent: bool) -> Outcome | None:
        """What is to be said of a node that is to be held; None: the marks are to be set."""
        view = self._cluster.view(node)
        is_marked = own_taint(node) == order.reason.decision_id
        is_held = is_marked and hold_of(node) == "ours" and own_reason(node) == str(order.reason)
        is_complete = order.action != _BY_DEADLINE or deadline_of(node) is not None
        why_not = None
        if view.boot_id != order.expected.boot_id:
            why_not = f"boot {view.boot_id} instead of {order.expected.boot_id}"
        elif is_held and is_complete:
            return Outcome(status="done", detail="held" if is_sent else "held already")
        elif not is_held and view != order.expected:
            why_not = f"the node changed: {_said(order.expected)} before, {_said(view)} now"
        elif view.state != "up" and view.owner != "forewarn":
            why_not = f"not ours to take: {_said(view)}"
        if why_not is None:
            return None
        if is_sent and is_marked:
            words = f"our marks are on the node, but {why_not}"
            return Outcome(status="ambiguous", detail=words)
        return Outcome(status="not_done", detail=why_not)

    def _may_release(self, node: Json, order: Order, *, is_sent: bool) -> Outcome | None:
        """What is to be said of a node that is to be returned; None: it may be."""
        view, hold = self._cluster.view(node), hold_of(node)
        if is_sent and hold in ("none", "other"):
            left = f"; {_said(view)}" if hold == "other" else ""
            return Outcome(status="done", detail=f"our marks are off{left}")
        held_also = drain_taint(node, self._cluster.reading)
        why_not = None
        if hold in ("none", "other"):
            why_not = f"not ours: {_said(view)}"
        elif view.boot_id != order.expected.boot_id:
            why_not = f"boot {view.boot_id} instead of {order.expected.boot_id}"
        elif hold == "partial":
            why_not = "a person has changed our marks on it; look at the node"
        elif hold == "ours" and held_also is not None:
            why_not = f"another tool holds it too: taint {held_also}"
        elif hold == "ours" and (view.state != "drain" or not is_ready(node)):
            why_not = f"only a node that is ready is returned: {_said(view)}"
        return None if why_not is None else Outcome(status="not_done", detail=why_not)


def _said(node: NodeView) -> str:
    return f"{node.state} ({node.reason})" if node.reason else node.state
