"""What monitoring sees of one node; nodes can be observed in any order, by any number of workers.

File formats are in `simulation.writers`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from simulation.fleet.events import NodeEvents, tell_node
from simulation.fleet.generate import Fleet
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.schedule import Attempt
from simulation.fleet.telemetry import NodeTelemetry, sample_node


@dataclass(frozen=True)
class NodeObservation:
    """One node as monitoring saw it."""

    truth: NodeTruth
    events: NodeEvents
    telemetry: NodeTelemetry


def attempts_on_node(fleet: Fleet, index: int) -> tuple[Attempt, ...]:
    """Runs of jobs that used a node, by submission."""
    return tuple(
        attempt for attempt in fleet.attempts if any(node == index for node, _ in attempt.placement)
    )


def observe_node(fleet: Fleet, index: int) -> NodeObservation:
    """Observes one node.

    Args:
        fleet: The fleet's truth.
        index: Index of the node.

    Returns:
        Its log and telemetry; they depend on the fleet and the index alone.
    """
    truth = fleet.nodes[index]
    attempts = attempts_on_node(fleet, index)
    events = tell_node(fleet.regime, truth, attempts, seed=fleet.seed)
    telemetry = sample_node(fleet.regime, truth, attempts, events, seed=fleet.seed)
    return NodeObservation(truth, events, telemetry)


def observe_fleet(fleet: Fleet) -> Iterator[NodeObservation]:
    """Observes the nodes one after another; only one is in memory."""
    for index in range(len(fleet.nodes)):
        yield observe_node(fleet, index)
