"""The dry-run actuator: reads the real cluster, changes nothing, and says what it would run.

Nothing here can reach a scheduler.
"""

from remediation.actuators.protocol import Order, Outcome
from remediation.actuators.slurm_commands import hold_commands, interrupt_commands, undrain_commands
from remediation.cluster.state import ClusterReader, NodeView


class DryRunActuator:
    """Records instead of acting.

    Args:
        cluster: Where nodes are re-read.
    """

    name = "dry_run"
    is_dry_run = True

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster

    def state(self, node: str) -> NodeView | None:
        """As in `Actuator`."""
        return self._cluster.read().by_name.get(node)

    def cordon(self, order: Order) -> Outcome:
        """As in `Actuator`; nothing is done."""
        return Outcome(status="would_do", commands=hold_commands(order))

    def drain(self, order: Order) -> Outcome:
        """As in `Actuator`; nothing is done."""
        return Outcome(status="would_do", commands=hold_commands(order))

    def end_notice(self, order: Order) -> Outcome:
        """As in `Actuator`; nothing is done."""
        return Outcome(status="would_do", commands=interrupt_commands(order.jobs, interruptible=()))

    def undrain(self, order: Order) -> Outcome:
        """As in `Actuator`; nothing is done."""
        return Outcome(status="would_do", commands=undrain_commands(order))
