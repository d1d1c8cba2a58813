"""How hard each GPU of a node works over time, given the jobs placed on it.

Power and heat that follow from it are in `simulation.fleet.telemetry`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulation.fleet.jobs import Load
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt


@dataclass(frozen=True)
class GpuLoad:
    """Load of a node's GPUs, arrays of (slots, samples).

    Attributes:
        util_pct: Utilisation.
        power_share: Share of the range from idle to maximum power.
        tensor_ratio: Tensor pipe activity.
        memory_mib: Frame buffer in use.
    """

    util_pct: np.ndarray
    power_share: np.ndarray
    tensor_ratio: np.ndarray
    memory_mib: np.ndarray


def node_load(
    regime: Regime,
    attempts: Sequence[Attempt],
    at_s: np.ndarray,
    *,
    node: int,
    rng: np.random.Generator,
) -> GpuLoad:
    """Load of a node's GPUs at each sample.

    Args:
        regime: The fleet's parameters.
        attempts: Runs of jobs on the node.
        at_s: Sample times, seconds since the fleet's start.
        node: Index of the node.
        rng: Stream to draw from.

    Returns:
        The load; a GPU without a job has none.
    """
    shape = (regime.gpus_per_node, at_s.size)
    util, power, tensor = (np.zeros(shape) for _ in range(3))
    memory = np.full(shape, 4.0)  # what the driver itself takes
    for attempt in attempts:
        start_s = np.inf if attempt.start_s is None else attempt.start_s
        end_s = np.inf if attempt.end_s is None else attempt.end_s
        first, last = np.searchsorted(at_s, [start_s, end_s])
        if first == last:
            continue
        load = attempt.job.load
        slots = [slot for place, slots in attempt.placement if place == node for slot in slots]
        shared = _profile(load, at_s[first:last], start_s=start_s, rng=rng)
        noise = 1 - rng.exponential(0.015, size=(len(slots), last - first))
        level = np.clip(shared * noise, 0, 1)
        where = np.ix_(slots, range(first, last))
        util[where] = np.round(load.util_pct * level)
        power[where] = load.power_share * level
        tensor[where] = np.round(load.tensor_ratio * level, 2)
        memory[where] = load.memory_mib
    return GpuLoad(util, power, tensor, memory)


def _profile(
    load: Load, at_s: np.ndarray, *, start_s: float, rng: np.random.Generator
) -> np.ndarray:
    """A job's level over time, 0 to 1, common to its GPUs on a node."""
    ramp = np.clip((at_s - start_s) / (load.ramp_min * 60), 0.05, 1)
    if load.kind == "training":
        is_checkpoint = rng.random(at_s.size) < 0.04
        return np.asarray(ramp * np.where(is_checkpoint, rng.uniform(0.05, 0.5), 1.0))
    if load.kind == "inference":
        by_day = 0.7 + 0.3 * np.cos(2 * np.pi * (at_s / 86400 - 15 / 24))
        return np.asarray(ramp * by_day)
    return np.asarray(ramp * (rng.random(at_s.size) < 0.35))
