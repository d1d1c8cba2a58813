"""How many inference servers the inference traffic needs, action by action.

Which servers are lent and given back is in `simulation.scheduling.loaning`.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from simulation.scheduling.servers import Shape

DAY_S: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The daily swing of the inference cluster.

    Attributes:
        low: Least share of GPUs in use, at night.
        high: Greatest share, in the afternoon.
        peak_h: Hour of the day of the peak.
        noise: Standard deviation of the share around the daily wave.
        headroom: Share of the servers kept back beyond what is in use.
    """

    low: float = 0.42
    high: float = 0.95
    peak_h: float = 15.0
    noise: float = 0.02
    headroom: float = 0.02

    def headroom_servers(self, shape: Shape) -> int:
        """Servers kept back."""
        return math.ceil(self.headroom * shape.inference)


def needed_servers(
    traffic: Traffic, shape: Shape, *, actions: int, action_s: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Servers that inference needs in each interval between two actions.

    Args:
        traffic: The swing.
        shape: The clusters.
        actions: Intervals wanted.
        action_s: Seconds between two actions.
        rng: Random stream of the noise.

    Returns:
        Whole servers with the headroom, shape (actions,), at most all of them.
    """
    at_h = np.arange(actions) * action_s / 3600.0
    wave = 0.5 + 0.5 * np.cos((at_h - traffic.peak_h) * 2.0 * math.pi / 24.0)
    share = traffic.low + (traffic.high - traffic.low) * wave + _noise(traffic, actions, rng)
    used = np.ceil(np.clip(share, traffic.low, traffic.high) * shape.inference).astype(np.int64)
    needed: npt.NDArray[np.int64] = used + traffic.headroom_servers(shape)
    return np.minimum(needed, shape.inference)


def _noise(
    traffic: Traffic, actions: int, rng: np.random.Generator, memory: float = 0.9
) -> npt.NDArray[np.float64]:
    """Noise that keeps nine tenths of itself from one action to the next."""
    steps = rng.normal(0.0, traffic.noise * math.sqrt(1.0 - memory**2), size=actions)
    level, levels = 0.0, np.empty(actions)
    for index, step in enumerate(steps):
        level = memory * level + step
        levels[index] = level
    return levels
