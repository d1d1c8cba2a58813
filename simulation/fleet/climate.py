"""The air a fleet breathes: daily swing, a warm spell, and slow wander common to all nodes.

A node's own offset is part of its hardware.
"""

import numpy as np

from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import DAYS_PER_YEAR
from simulation.fleet.seeds import Layer, random_stream

_KNOT_S = 6 * 3600
_GRID_S = 600


class Air:
    """A fleet's inlet air, computed once for all nodes on a grid of ten minutes.

    Args:
        regime: The fleet's parameters.
        seed: The fleet's seed.
    """

    def __init__(self, regime: Regime, *, seed: int) -> None:
        self._at_s = np.arange(0, regime.days * 86400 + 2 * _GRID_S, _GRID_S)
        self._inlet_c = inlet_temperature(regime, self._at_s, seed=seed)

    def at(self, at_s: np.ndarray) -> np.ndarray:
        """Inlet air of the mean node in degC at each of the times, in seconds."""
        return np.asarray(np.interp(at_s, self._at_s, self._inlet_c))


def inlet_temperature(regime: Regime, at_s: np.ndarray, *, seed: int) -> np.ndarray:
    """Inlet air of the mean node.

    Args:
        regime: The fleet's parameters.
        at_s: Seconds since the fleet's start.
        seed: The fleet's seed.

    Returns:
        degC, one per time; the same for every node.
    """
    climate = regime.climate
    rng = random_stream(seed, Layer.CLIMATE)
    knots = np.arange(0, regime.days * 86400 + 2 * _KNOT_S, _KNOT_S)
    wander = np.interp(at_s, knots, rng.normal(0, climate.wander_c, knots.size))
    day = at_s / 86400
    of_day = day + regime.start_of_day_s / 86400
    swing = climate.daily_swing_c * np.cos(2 * np.pi * (of_day - 15 / 24))
    since_peak = day + regime.start.timetuple().tm_yday - climate.season_peak_day
    season = climate.season_swing_c * np.cos(2 * np.pi * since_peak / DAYS_PER_YEAR)
    inlet = climate.inlet_c + swing + season + wander
    for spell in climate.spells:
        inlet = inlet + spell.extra_c * np.sin(
            np.pi * np.clip((day - spell.day) / spell.days, 0, 1)
        )
    return np.asarray(inlet)
