"""How episodes of trouble change what is sampled: errors, replays, heat, power, lost samples.

Which episodes there are is in `simulation.fleet.incidents`; log lines are in `.events`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulation.fleet.incidents import Episode, NodeTruth
from simulation.fleet.regime import Regime


@dataclass(frozen=True)
class Signs:
    """Changes to a node's samples, arrays of (slots, samples).

    Attributes:
        sbe: New single-bit errors since the sample before.
        pcie: New PCIe replays.
        crc: New NVLink CRC errors.
        heat_c: Extra temperature.
        power_sigma_w: Extra spread of power.
        is_lost: Samples that never arrived.
    """

    sbe: np.ndarray
    pcie: np.ndarray
    crc: np.ndarray
    heat_c: np.ndarray
    power_sigma_w: np.ndarray
    is_lost: np.ndarray


def draw_signs(
    regime: Regime, truth: NodeTruth, at_s: np.ndarray, *, rng: np.random.Generator
) -> Signs:
    """Signs of a node: the background every GPU has, and its episodes.

    Args:
        regime: The fleet's parameters.
        truth: The node's truth.
        at_s: Sample times, seconds since the fleet's start.
        rng: Stream to draw from.

    Returns:
        The signs.
    """
    shape = (regime.gpus_per_node, at_s.size)
    per_sample = regime.scrape_s / 86400
    sbe = np.zeros(shape, dtype=np.int64)
    for stay in truth.stays:
        first, last = stay_range(at_s, stay.from_s, stay.to_s)
        rate = stay.gpu.sbe_per_day * per_sample
        sbe[stay.gpu.slot, first:last] = rng.poisson(rate, last - first)
    signs = Signs(
        sbe=sbe,
        pcie=rng.poisson(0.15 * per_sample, shape),
        crc=rng.poisson(0.3 * per_sample, shape),
        heat_c=np.zeros(shape),
        power_sigma_w=np.zeros(shape),
        is_lost=np.zeros(shape, dtype=bool),
    )
    found = [i.precursor for i in truth.incidents if i.precursor]
    for episode in [*found, *truth.decoys]:
        _add_episode(signs, episode, at_s, rng=rng)
    return signs


def stay_range(at_s: np.ndarray, from_s: int | None, to_s: int | None) -> tuple[int, int]:
    """Indices of the samples in `[from_s, to_s)`; null ends are open."""
    first = 0 if from_s is None else int(np.searchsorted(at_s, from_s))
    last = at_s.size if to_s is None else int(np.searchsorted(at_s, to_s))
    return first, last


def _course(episode: Episode, at_s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How strong the signs are over the episode: failures grow, decoys level off or fade."""
    done = (at_s - episode.start_s) / max(1, episode.end_s - episode.start_s)
    if not episode.is_decoy:
        return np.asarray(0.15 + 0.85 * done ** float(rng.uniform(0.5, 2.0)))
    shape = int(rng.integers(3))
    if shape == 0:
        return np.full(done.size, 0.5)
    if shape == 1:
        return np.asarray(1 - np.abs(2 * done - 1))
    return np.asarray(0.15 + 0.85 * done)  # grows like a true one, and then just stops


def _add_episode(
    signs: Signs, episode: Episode, at_s: np.ndarray, *, rng: np.random.Generator
) -> None:
    first, last = np.searchsorted(at_s, [episode.start_s, episode.end_s])
    if episode.slot is None or first == last:
        return
    level = episode.strength * _course(episode, at_s[first:last], rng)
    where = (episode.slot, slice(first, last))
    if episode.kind == "hbm_errors" and rng.random() < 0.85:
        signs.sbe[where] += rng.poisson(0.25 * level)
    elif episode.kind == "remap_growth":
        signs.sbe[where] += rng.poisson(0.05 * level)
    elif episode.kind == "pcie_replays":
        signs.pcie[where] += rng.poisson(6 * level)
        signs.is_lost[where] |= rng.random(last - first) < 0.4 * np.clip(level, 0, 1)
    elif episode.kind == "nvlink_errors":
        signs.crc[where] += rng.poisson(0.6 * level)
    elif episode.kind == "hot":
        signs.heat_c[where] += 6 * level
    elif episode.kind == "power_swings":
        signs.power_sigma_w[where] += 45 * level


def running_count(new: np.ndarray, resets: Sequence[int]) -> np.ndarray:
    """A counter from its steps, back to zero at each reset.

    Args:
        new: Steps, (samples,).
        resets: Indices of the first samples after a reset, ascending.

    Returns:
        The counter at each sample.

    >>> running_count(np.array([1, 2, 0, 1]), [2])
    array([1, 3, 0, 1])
    """
    total = np.cumsum(new)
    base = np.zeros_like(total)
    for index in resets:
        if 0 < index < total.size:
            base[index:] = total[index - 1]
    return np.asarray(total - base)
