"""Failure rates over time: the fault table, the drift of a new driver, and the heat of the air.

What is drawn from them is in `simulation.fleet.incidents`; who is frailer, in `.hardware`.
"""

from typing import Final

import numpy as np

from simulation.fleet.climate import inlet_temperature
from simulation.fleet.hardware import Node
from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import HOURS_PER_YEAR

HOUR_S: Final = 3600


class Hazards:
    """Rates of a fleet's fault classes over time, by class in the regime's order.

    A class's rate on a unit is its rate in the fault table times the unit's factors, the new
    driver's factor once it runs there, and 2 to the power of (inlet - mean inlet) / doubling.
    Air is taken at the middle of each hour: within one it moves by a degree or so.

    Args:
        regime: The fleet's parameters.
        seed: The fleet's seed; it decides the air.
    """

    def __init__(self, regime: Regime, *, seed: int) -> None:
        self.regime = regime
        faults = regime.faults
        self.per_s = np.array([fault.per_gpu_year for fault in faults]) / (HOURS_PER_YEAR * HOUR_S)
        self.is_gpu = np.array([fault.entity_kind == "gpu" for fault in faults])
        self.driver_factor = np.array([fault.new_driver_factor for fault in faults])
        # Doublings per degC; zero where air does not matter.
        self.per_c = np.array([1 / f.heat_doubling_c if f.heat_doubling_c else 0 for f in faults])
        self.is_even = not self.per_c.any()
        if self.is_even:
            return
        hours = np.arange(int(np.ceil(regime.days * 24)))
        inlet = inlet_temperature(regime, (hours + 0.5) * HOUR_S, seed=seed)
        above_c = inlet - regime.climate.inlet_c
        self._heat = np.exp2(self.per_c[:, None] * above_c[None, :])
        self._edges = np.append(hours, hours.size) * float(HOUR_S)
        before = np.zeros((len(faults), 1))
        self._sums = np.hstack([before, np.cumsum(self._heat * HOUR_S, axis=1)])
        self.peak = self._heat.max(axis=1)
        """Largest factor of the air by class; exists only where air matters."""

    def unit_rates(self, node: Node, gpu_factors: np.ndarray) -> np.ndarray:
        """Rates per second at the fleet's mean air, before the driver's and the node's factor.

        Args:
            node: The node; its place has air of its own.
            gpu_factors: Hazard factor of the GPU in each slot.

        Returns:
            Rates of (classes, slots). A node's own faults do not depend on its GPUs: each slot
            carries an equal part of their rate.
        """
        by_unit = np.where(self.is_gpu[:, None], gpu_factors[None, :], 1.0)
        rates = self.per_s[:, None] * by_unit
        if self.is_even:
            return rates
        return np.asarray(rates * np.exp2(self.per_c * node.inlet_offset_c)[:, None])

    def heat(self, at_s: np.ndarray | float) -> np.ndarray:
        """Factor of the fleet's mean air.

        Args:
            at_s: Seconds since the fleet's start, one or many.

        Returns:
            Factors of (classes,) or (classes, times).
        """
        times = np.asarray(at_s)
        if self.is_even:
            return np.ones((self.per_s.size, *times.shape))
        hours = np.clip((times // HOUR_S).astype(int), 0, self._heat.shape[1] - 1)
        return np.asarray(self._heat[:, hours])

    def heat_seconds(self, from_s: float, to_s: float) -> np.ndarray:
        """The exact integral of `heat` over a stretch, by class."""
        if self.is_even:
            return np.full(self.per_s.size, to_s - from_s)
        ends = [np.interp([from_s, to_s], self._edges, row) for row in self._sums]
        return np.array([high - low for low, high in ends])
