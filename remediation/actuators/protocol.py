"""What an actuator is: orders, outcomes, the Protocol, and a fake that changes a fake cluster.

How a real scheduler is told is in one module per actuator.
"""

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from features.errors import SourceError
from remediation.cluster.reasons import Reason, is_ours
from remediation.cluster.state import FakeCluster, JobView, NodeView
from remediation.decision import touches_node

Status = Literal["done", "would_do", "not_done", "ambiguous"]

EFFECTIVE: Final = ("done", "would_do")
"""Outcomes after which a node counts as held."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to do to one node.

    Attributes:
        action: An action that touches the node.
        expected: The node as it was re-read just before; an actuator acts only if it is still so.
        reason: What to stamp on it.
        jobs: Jobs on it, for notices and requeues.
        notice_minutes: Time they get where the action gives notice.
        attempt: Which try it is, from 1; a later one is a new order to who remembers orders.
    """

    action: str
    expected: NodeView
    reason: Reason
    jobs: tuple[JobView, ...] = ()
    notice_minutes: float = 0.0
    attempt: int = 1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of an order.

    Attributes:
        status: done; would_do (recorded only); not_done (surely nothing changed); ambiguous
            (nobody knows).
        detail: In words.
        commands: Argument lists that were run, or would be; never shell text.
        left: What is still on the node and does not go by itself; a later run goes on.
    """

    status: Status
    detail: str = ""
    commands: tuple[tuple[str, ...], ...] = ()
    left: tuple[str, ...] = ()


class Actuator(Protocol):
    """Carries out actions on one cluster."""

    @property
    def name(self) -> str:
        """Its name in the ledger."""
        ...

    @property
    def is_dry_run(self) -> bool:
        """Whether it changes nothing."""
        ...

    def state(self, node: str) -> NodeView | None:
        """The node as it is now; None: it cannot be told."""
        ...

    def cordon(self, order: Order) -> Outcome:
        """No new jobs on the node; running jobs stay."""
        ...

    def drain(self, order: Order) -> Outcome:
        """Empties the node in the way of `order.action` and takes it out of service.

        Given again for a node that we hold, it goes on with what is left.
        """
        ...

    def end_notice(self, order: Order) -> Outcome:
        """Interrupts what is left on a node that we hold, as far as each job allows it.

        Safe to repeat: what has left or is leaving is not interrupted again.
        """
        ...

    def undrain(self, order: Order) -> Outcome:
        """Returns a node that we hold; another owner's is left alone."""
        ...


def carry_out(actuator: Actuator, order: Order) -> Outcome:
    """Gives an order to the method it is for.

    Raises:
        DataError: The order is refused; an actuator raises it only before it has begun.
    """
    if not touches_node(order.action):
        return Outcome(status="not_done", detail=f"{order.action} touches no node")
    return actuator.cordon(order) if order.action == "cordon" else actuator.drain(order)


def read_state(actuator: Actuator, node: str) -> NodeView | None:
    """The node as it is now; None also where the scheduler cannot be asked."""
    try:
        return actuator.state(node)
    except (SourceError, OSError):
        return None


class FakeActuator:
    """Changes a fake cluster at once, as a real actuator would, and keeps its orders.

    Args:
        cluster: The cluster.
    """

    name = "fake"
    is_dry_run = False

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.orders: list[Order] = []
        self.ended: list[Order] = []

    def state(self, node: str) -> NodeView | None:
        """As in `Actuator`."""
        return self._cluster.read().by_name.get(node)

    def cordon(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._hold(order)

    def drain(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._hold(order)

    def end_notice(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        self.ended.append(order)
        left = tuple(
            job
            for job in self._cluster.read().jobs
            if job not in order.jobs or job.is_requeue_allowed is not True
        )
        self._cluster.set_jobs(left)
        return Outcome(status="done")

    def undrain(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        node = self.state(order.expected.name)
        if node is None or node.state != "drain" or not is_ours(node.reason):
            return Outcome(status="not_done", detail="not ours")
        self.orders.append(order)
        self._cluster.set_node(node.name, state="up", reason=None, actor=None)
        return Outcome(status="done")

    def _hold(self, order: Order) -> Outcome:
        node = self.state(order.expected.name)
        if node != order.expected:
            return Outcome(status="not_done", detail="the node changed")
        self.orders.append(order)
        self._cluster.set_node(node.name, state="drain", reason=str(order.reason), actor="forewarn")
        return Outcome(status="done")
