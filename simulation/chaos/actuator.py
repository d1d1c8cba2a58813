"""An actuator that changes a simulated cluster, tells of each effect, and fails in every known way.

What effects are allowed is judged by whoever watches; nothing is judged here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from remediation.actuators.protocol import Order, Outcome
from remediation.cluster.reasons import is_ours
from remediation.cluster.state import NodeView
from simulation.chaos.cluster import ChaosCluster

Kind = Literal["hold", "end_notice", "return"]
Fault = Literal[
    "not_done", "unclear_before", "unclear_after", "raises_before", "raises_after", "late"
]

FAULTS: Final[tuple[Fault, ...]] = (
    "not_done",
    "unclear_before",
    "unclear_after",
    "raises_before",
    "raises_after",
    "late",
)
"""Refused; no answer, or an exception, before or after the effect; an effect that comes later."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A change that an order is about to make, or an order that arrived.

    Attributes:
        kind: hold, end_notice or return.
        order: The order.
        before: The node right before it; None: there is none.
        jobs: Jobs that are interrupted.
    """

    kind: Kind
    order: Order
    before: NodeView | None
    jobs: tuple[str, ...] = ()


Watch = Callable[[Effect], None]
Faults = Callable[[Kind, str], Fault | None]


def _ignore(effect: Effect) -> None:
    del effect


def _no_fault(kind: Kind, node: str) -> Fault | None:
    del kind, node
    return None


class ChaosActuator:
    """An `Actuator` on a `ChaosCluster`; it compares before it changes, as the real ones do.

    Args:
        cluster: The cluster.
        faults: What goes wrong with an order on a node; None: nothing.
        on_order: Told of each order that arrives, before anything else.
        on_effect: Told of each change, right before it is made.
    """

    name = "chaos"
    is_dry_run = False

    def __init__(
        self,
        cluster: ChaosCluster,
        *,
        faults: Faults = _no_fault,
        on_order: Watch = _ignore,
        on_effect: Watch = _ignore,
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._on_order = on_order
        self._on_effect = on_effect
        self.under_way: list[tuple[Kind, Order]] = []

    def state(self, node: str) -> NodeView | None:
        """As in `Actuator`."""
        return self._cluster.nodes.get(node)

    def cordon(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._take("hold", order)

    def drain(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._take("hold", order)

    def end_notice(self, order: Order) -> Outcome:
        """As in `Actuator`: interrupts what is left, as far as each job allows it."""
        return self._take("end_notice", order)

    def undrain(self, order: Order) -> Outcome:
        """As in `Actuator`: what is ours at this moment."""
        return self._take("return", order)

    def land(self) -> None:
        """Lets the effects that are under way arrive; a node that has changed refuses them."""
        late, self.under_way = self.under_way, []
        for kind, order in late:
            self._apply(kind, order)

    def _take(self, kind: Kind, order: Order) -> Outcome:
        name = order.expected.name
        self._on_order(Effect(kind=kind, order=order, before=self._cluster.nodes.get(name)))
        fault = self._faults(kind, name)
        if fault == "not_done":
            return Outcome(status="not_done", detail="refused")
        if fault == "raises_before":
            raise ConnectionError("lost before anything was done")
        if fault == "unclear_before":
            return Outcome(status="ambiguous", detail="timed out")
        if fault == "late":
            self.under_way.append((kind, order))
            return Outcome(status="ambiguous", detail="timed out; still under way")
        if not self._apply(kind, order):
            return Outcome(status="not_done", detail="the node changed")
        if fault == "raises_after":
            raise ConnectionError("lost after it was done")
        if fault == "unclear_after":
            return Outcome(status="ambiguous", detail="timed out")
        return Outcome(status="done")

    def _apply(self, kind: Kind, order: Order) -> bool:
        name = order.expected.name
        node = self._cluster.nodes.get(name)
        if node is None or node != order.expected:
            return False
        if kind == "hold":
            if node.state != "up":
                return False
            self._on_effect(Effect(kind=kind, order=order, before=node))
            self._cluster.change(name, state="drain", reason=str(order.reason), actor="forewarn")
            return True
        if node.state != "drain" or not is_ours(node.reason):
            return False
        if kind == "return":
            self._on_effect(Effect(kind=kind, order=order, before=node))
            self._cluster.change(name, state="up", reason=None, actor=None)
            return True
        asked = {job.job_id for job in order.jobs}
        ended = tuple(
            job.job_id
            for job in self._cluster.jobs_on(name)
            if job.job_id in asked and job.is_requeue_allowed is True
        )
        self._on_effect(Effect(kind=kind, order=order, before=node, jobs=ended))
        self._cluster.end_jobs(ended)
        return True
