"""What monitoring sees of a node; nodes can be observed in any order, by any number of workers.

File formats are in `simulation.writers`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulation.fleet.events import NodeEvents, tell_node
from simulation.fleet.generate import Fleet
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt, attempts_by_node
from simulation.fleet.telemetry import NodeTelemetry, sample_node


@dataclass(frozen=True)
class NodeObservation:
    """One node as monitoring saw it."""

    truth: NodeTruth
    events: NodeEvents
    telemetry: NodeTelemetry


def observe_node(
    regime: Regime, truth: NodeTruth, attempts: Sequence[Attempt], *, seed: int
) -> NodeObservation:
    """Observes one node over the whole record.

    Args:
        regime: The fleet's parameters.
        truth: The node's truth.
        attempts: Runs of jobs on it.
        seed: The fleet's seed.

    Returns:
        Its log and telemetry; they depend on the arguments alone.
    """
    events = tell_node(regime, truth, attempts, seed=seed)
    telemetry = sample_node(regime, truth, attempts, events, seed=seed)
    return NodeObservation(truth, events, telemetry)


def observe_fleet(fleet: Fleet) -> Iterator[NodeObservation]:
    """Observes the nodes one after another; only one is in memory."""
    by_node = attempts_by_node(fleet.attempts, len(fleet.nodes))
    for truth, attempts in zip(fleet.nodes, by_node, strict=True):
        yield observe_node(fleet.regime, truth, attempts, seed=fleet.seed)
