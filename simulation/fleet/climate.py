"""The air a fleet breathes: daily swing, a warm spell, and slow wander common to all nodes.

A node's own offset is part of its hardware.
"""

import numpy as np

from simulation.fleet.regime import Regime
from simulation.fleet.seeds import Layer, random_stream

_KNOT_S = 6 * 3600


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
    swing = climate.daily_swing_c * np.cos(2 * np.pi * (day - 15 / 24))
    into_spell = (day - climate.warm_spell_day) / climate.warm_spell_days
    spell = climate.warm_spell_c * np.sin(np.pi * np.clip(into_spell, 0, 1))
    return np.asarray(climate.inlet_c + swing + spell + wander)
