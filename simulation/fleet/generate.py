"""Simulates a fleet's truth: every node's life, and the jobs that ran on it.

What monitoring sees is made node by node in `simulation.fleet.observe`; files are written by
`simulation.writers`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from simulation.fleet.hardware import Node, build_node
from simulation.fleet.hazards import Hazards
from simulation.fleet.incidents import Incident, NodeTruth, simulate_node
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt, schedule_jobs

GENERATOR_VERSION: Final = 2
"""Raised whenever the same regime and seed would give another fleet or other files."""


@dataclass(frozen=True)
class Fleet:
    """A simulated fleet: what really happened, without what monitoring saw of it.

    Attributes:
        regime: Its parameters, with the size it was simulated at.
        seed: Its seed.
        nodes: Every node's truth, by index.
        attempts: Runs of jobs, by submission; empty where only failures were asked for.
    """

    regime: Regime
    seed: int
    nodes: tuple[NodeTruth, ...]
    attempts: tuple[Attempt, ...]

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """All incidents, by onset."""
        found = [incident for truth in self.nodes for incident in truth.incidents]
        return tuple(sorted(found, key=lambda incident: (incident.onset_s, incident.node)))

    @property
    def end_s(self) -> int:
        """The fleet's last second since its start, exclusive."""
        return int(self.regime.days * 86400)

    def moment(self, seconds: float) -> datetime:
        """The UTC time of a second since the start."""
        return self.regime.start + timedelta(microseconds=round(seconds * 1e6))


def build_nodes(regime: Regime, *, seed: int) -> tuple[Node, ...]:
    """All nodes of a fleet as they stand at its start."""
    return tuple(build_node(regime, seed=seed, index=i) for i in range(regime.nodes))


def fleet_frailty(regime: Regime, nodes: tuple[Node, ...]) -> float:
    """What the frailties of nodes are divided by, so that the fleet has the stated rate."""
    if not regime.frailty.is_fleet_mean_one:
        return 1.0
    return float(np.mean([node.frailty for node in nodes]))


def simulate_failures(regime: Regime, *, seed: int) -> Fleet:
    """Simulates failures only, without jobs: quick for fleets of any size.

    Args:
        regime: The fleet's parameters.
        seed: Seed.

    Returns:
        The fleet, with no attempts.
    """
    nodes = build_nodes(regime, seed=seed)
    mean = fleet_frailty(regime, nodes)
    hazards = Hazards(regime, seed=seed)
    truths = tuple(simulate_node(hazards, node, seed=seed, fleet_frailty=mean) for node in nodes)
    return Fleet(regime, seed, truths, ())


def simulate_fleet(
    regime: Regime, *, seed: int, nodes: int | None = None, days: float | None = None
) -> Fleet:
    """Simulates a fleet's failures and jobs.

    Args:
        regime: The fleet's parameters.
        seed: Seed; the same seed and regime give the same fleet.
        nodes: Number of nodes; null: the regime's.
        days: Length in days; null: the regime's.

    Returns:
        The fleet's truth.
    """
    sized = regime.with_size(nodes=nodes, days=days)
    fleet = simulate_failures(sized, seed=seed)
    attempts = schedule_jobs(sized, fleet.nodes, seed=seed)
    return Fleet(sized, seed, fleet.nodes, attempts)
