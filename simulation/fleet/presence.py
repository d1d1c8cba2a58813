"""Which scrapes of a node arrive: outages of monitoring, of a rack, of an exporter, and reboots.

Samples of single GPUs that are lost are in `.sampling`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from simulation.fleet.events import NodeEvents
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import DAYS_PER_YEAR, HourRange
from simulation.fleet.seeds import Layer, log_uniform, random_stream

CUT_OFF_SHARE: Final = 0.5
"""Of nodes whose network fails, the share that is scraped over that network."""


@dataclass(frozen=True)
class Presence:
    """When a node is not scraped; and a stream for single scrapes that are missed.

    Attributes:
        dark: Spans without any scrape, [from, to) in seconds, (n, 2).
        missed_share: Share of the other scrapes that are missed.
        rng: Goes on from stretch to stretch.
    """

    dark: np.ndarray
    missed_share: float
    rng: np.random.Generator

    def is_scraped(self, at_s: np.ndarray) -> np.ndarray:
        """Whether the node is scraped at each of the times, which must go on from the last."""
        there = self.rng.random(at_s.size) >= self.missed_share
        for from_s, to_s in self.dark:
            first, last = np.searchsorted(at_s, [from_s, to_s])
            there[first:last] = False
        return np.asarray(there)


def node_presence(regime: Regime, truth: NodeTruth, events: NodeEvents, *, seed: int) -> Presence:
    """When a node was scraped.

    Args:
        regime: The fleet's parameters.
        truth: The node's truth.
        events: What happened on it.
        seed: The fleet's seed.

    Returns:
        Its presence; the same for any other observation of the fleet.
    """
    plan, index = regime.disturbances, truth.node.index
    rng = random_stream(seed, Layer.MONITORING, index)
    rack = random_stream(seed, Layer.RACK_MONITORING, index // regime.hardware.nodes_per_rack)
    dark = [(o.day * 86400, o.day * 86400 + o.minutes * 60) for o in plan.outages]
    dark += _outages(regime, rack, per_year=plan.rack_outages_per_year, hours=plan.rack_outage_h)
    dark += _outages(
        regime, rng, per_year=plan.exporter_deaths_per_node_year, hours=plan.exporter_death_h
    )
    dark += [(boot.down_s, boot.up_s) for boot in events.boots]
    for incident in truth.incidents:
        if incident.slot is None and rng.random() < CUT_OFF_SHARE:
            dark.append((incident.onset_s, incident.end_s))
    spans = np.array(sorted(dark), dtype=np.float64).reshape(len(dark), 2)
    return Presence(spans, plan.missed_scrape_share, rng)


def _outages(
    regime: Regime, rng: np.random.Generator, *, per_year: float, hours: HourRange
) -> list[tuple[float, float]]:
    """Outages of one collector over the record, (from, to) in seconds."""
    count = int(rng.poisson(per_year * regime.days / DAYS_PER_YEAR))
    starts = rng.uniform(0, regime.days * 86400, count)
    return [(float(at), float(at + 3600 * log_uniform(rng, hours))) for at in starts]
