"""Random streams: one per layer and node, so that no result depends on order or on workers.

Nothing is drawn here.
"""

from enum import IntEnum

import numpy as np


class Layer(IntEnum):
    """What a stream is for. A number once used keeps its meaning: it decides every draw."""

    HARDWARE = 0
    INCIDENTS = 1
    DECOYS = 2
    JOBS = 3
    EVENTS = 4
    TELEMETRY = 5
    CLIMATE = 6
    CHATTER = 7
    REASONS = 8
    PLANNED = 9
    SAMPLED_JOBS = 10
    TICKETS = 11
    MONITORING = 20
    RACK_MONITORING = 21
    SIGNS = 22
    SILENCE = 23
    PAST = 24


def random_stream(
    seed: int, layer: Layer, index: int = 0, part: int | None = None
) -> np.random.Generator:
    """The stream of one layer and one node (or of the fleet, index 0), or of a part of a node.

    Args:
        seed: The fleet's seed.
        layer: What the stream is for.
        index: Index of the node.
        part: Number of the part; null: the node as a whole.

    Returns:
        A generator that depends on nothing but the arguments.
    """
    key = (int(layer), index) if part is None else (int(layer), index, part)
    sequence = np.random.SeedSequence(seed, spawn_key=key)
    return np.random.Generator(np.random.PCG64(sequence))


def log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    """One draw whose logarithm is uniform between the bounds."""
    low, high = np.log(bounds[0]), np.log(bounds[1])
    return float(np.exp(rng.uniform(low, high)))
