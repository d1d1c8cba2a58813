"""What users ask of a fleet and when: sizes, durations and ends of jobs, as arrays.

The jobs themselves, with names and loads, are in `simulation.fleet.jobs`.

A fleet is as busy at its first second as on any later day. Submissions are drawn from the longest
duration before it on, and of those before it the jobs that have not ended are kept: which are
mostly long ones, somewhere on their way. Nothing is placed before that, so it takes no time.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final, Literal

import numpy as np

from simulation.fleet.regime import Regime
from simulation.fleet.regime_workload import Weights, Workload

EndState = Literal["COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED"]

SHORTEST_S: Final = 30
EARLY_END: Final = (0.5, 1.5)
"""Beta law of how far a job comes that ends badly: most of these ends come early; mean 1/4."""
CUT_STATES: Final = ("FAILED", "OUT_OF_MEMORY", "CANCELLED")
"""Ends that cut a job short; one that runs into its limit (TIMEOUT) ran as long as it may."""
OTHER_ENDS: Final[dict[EndState, float]] = {
    "FAILED": 0.4,
    "OUT_OF_MEMORY": 0.15,
    "TIMEOUT": 0.2,
    "CANCELLED": 0.25,
}
"""End states of jobs that end badly without an Xid, with their shares."""
ENDS: Final[tuple[EndState, ...]] = ("COMPLETED", *OTHER_ENDS)
FORGOTTEN_AFTER: Final = 3
"""Times the longest duration, after which how a fleet began does not show any more."""
Mix = tuple[np.ndarray, np.ndarray]
"""Sizes with their weights."""
_BLOCK: Final = 1024


class Stream(IntEnum):
    """Kinds of demand."""

    BATCH = 0
    SERVICE = 1
    INSTANCE = 2


@dataclass(frozen=True)
class Demand:
    """Jobs asked for; arrays of one element per job.

    Attributes:
        submit_s: When, seconds since the fleet's start; of those that run at the start, before it.
        n_gpus: GPUs in all; 1 for a GPU instance.
        duration_s: How long it runs if nothing breaks.
        end: Index into `ENDS` of how it then ends.
        is_crash: Whether it dies by an Xid of its own.
        stream: `Stream`.
    """

    submit_s: np.ndarray
    n_gpus: np.ndarray
    duration_s: np.ndarray
    end: np.ndarray
    is_crash: np.ndarray
    stream: np.ndarray

    def taken(self, rows: np.ndarray) -> "Demand":
        """The jobs of a mask or an order."""
        return Demand(*(getattr(self, part.name)[rows] for part in fields(self)))


def draw_demand(regime: Regime, rng: np.random.Generator) -> Demand:
    """Draws what is asked of a fleet from its start to its end, stationary from the first second.

    Jobs of several nodes come as earlier ones of their kind leave room: their users share a
    quota, and a fleet of few big jobs would else swing between empty and overfull. All others
    come at random.

    Args:
        regime: The fleet's parameters.
        rng: Stream to draw from.

    Returns:
        Jobs that run at the start or are submitted later, by time of submission.
    """
    work = regime.workload
    plain_gpus, instances = _capacity(regime)
    batch_gpus = work.gpu_hours_share * plain_gpus * (1 - work.service_share)
    sizes, weights = _sizes(work.size_weights, most=max(plain_gpus // 2, 1))
    is_big = sizes > regime.gpus_per_node
    work_s = weights * sizes * _mean_s(work, sizes)
    big_gpus = batch_gpus * float(work_s[is_big].sum() / work_s.sum())
    per_s = batch_gpus * float(weights[~is_big].sum() / work_s.sum())
    parts = [
        _random_batch(regime, rng, (sizes[~is_big], weights[~is_big]), per_s=per_s),
        _services(regime, rng, gpus=work.gpu_hours_share * plain_gpus * work.service_share),
        _instances(regime, rng, places=work.gpu_hours_share * instances),
    ]
    if is_big.any() and big_gpus > 0:
        parts.append(_in_turn(regime, rng, (sizes[is_big], weights[is_big]), gpus=big_gpus))
    joined = _joined(parts)
    return joined.taken(np.argsort(joined.submit_s, kind="stable"))


def _joined(parts: Sequence[Demand]) -> Demand:
    names = [part.name for part in fields(Demand)]
    return Demand(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def gpu_time_shares(regime: Regime) -> Mapping[int, float]:
    """The share of the GPU time of batch jobs that each size asks for.

    Args:
        regime: The fleet's parameters.

    Returns:
        GPUs of a job -> share; the shares add up to 1.
    """
    plain_gpus, _ = _capacity(regime)
    sizes, weights = _sizes(regime.workload.size_weights, most=max(plain_gpus // 2, 1))
    work_s = weights * sizes * _mean_s(regime.workload, sizes)
    return dict(zip(sizes.tolist(), (work_s / work_s.sum()).tolist(), strict=True))


def mig_nodes(regime: Regime) -> int:
    """How many of the fleet's nodes have partitioned GPUs."""
    mig = regime.hardware.mig
    return round(mig.node_share * regime.nodes) if mig else 0


def _capacity(regime: Regime) -> tuple[int, int]:
    """Whole GPUs that jobs can have, and GPU instances."""
    n_mig = mig_nodes(regime)
    per_gpu = regime.hardware.mig.instances if regime.hardware.mig else 0
    per_node = regime.gpus_per_node
    return (regime.nodes - n_mig) * per_node, n_mig * per_node * per_gpu


def _sizes(given: Weights, *, most: int) -> Mix:
    """Sizes up to a limit, rising, with weights that add up to 1."""
    sizes = np.array(sorted(size for size in given if size <= most))
    weights = np.array([given[size] for size in sizes.tolist()], dtype=float)
    return sizes, weights / weights.sum()


def _cut_share(work: Workload) -> float:
    cut_others = sum(OTHER_ENDS[state] for state in CUT_STATES)
    return work.crash_share + min(work.fail_share, 1 - work.crash_share) * cut_others


def _medians_s(work: Workload, sizes: np.ndarray) -> np.ndarray:
    return np.asarray(work.median_h * 3600 * sizes.astype(float) ** work.size_exponent)


def _mean_s(work: Workload, sizes: np.ndarray) -> np.ndarray:
    """Mean duration of batch jobs of some sizes, with the cap and early ends."""
    early = EARLY_END[0] / sum(EARLY_END)
    kept = 1 - _cut_share(work) * (1 - early)
    medians = _medians_s(work, sizes)
    return np.array([_capped_mean_s(work, float(median)) * kept for median in medians])


def _capped_mean_s(work: Workload, median_s: float) -> float:
    """Mean of a log-normal duration that is cut at the cap."""
    cap_s, spread = work.cap_h * 3600, work.sigma
    z = math.log(cap_s / median_s) / spread
    below = median_s * math.exp(spread**2 / 2) * _normal_cdf(z - spread)
    return below + cap_s * (1 - _normal_cdf(z))


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _random_batch(regime: Regime, rng: np.random.Generator, mix: Mix, *, per_s: float) -> Demand:
    """Batch jobs that come at random, three times as many by day as by night."""
    work, (sizes, weights) = regime.workload, mix
    submit_s = _moments(regime, rng, per_s=per_s)
    n_gpus = rng.choice(sizes, p=weights / weights.sum(), size=submit_s.size)
    end, is_crash = _ends(work, rng, size=submit_s.size)
    duration_s = _durations(work, rng, n_gpus, end=end)
    return _alive(submit_s, n_gpus, duration_s, end, is_crash, stream=Stream.BATCH)


def _services(regime: Regime, rng: np.random.Generator, *, gpus: float) -> Demand:
    """Inference services: they live for days, and whoever runs them ends them."""
    work = regime.workload
    sizes, weights = _sizes(work.service_size_weights, most=regime.gpus_per_node)
    mean_s = _capped_mean_s(work, work.service_median_h * 3600)
    per_s = gpus / (float(weights @ sizes) * mean_s)
    submit_s = _moments(regime, rng, per_s=per_s)
    n_gpus = rng.choice(sizes, p=weights, size=submit_s.size)
    return _long_lived(work, rng, submit_s, n_gpus, stream=Stream.SERVICE)


def _instances(regime: Regime, rng: np.random.Generator, *, places: float) -> Demand:
    """Jobs of one GPU instance: small models served, notebooks."""
    work = regime.workload
    mean_s = _capped_mean_s(work, work.service_median_h * 3600)
    submit_s = _moments(regime, rng, per_s=places / mean_s)
    one = np.ones(submit_s.size, dtype=int)
    return _long_lived(work, rng, submit_s, one, stream=Stream.INSTANCE)


def _long_lived(
    work: Workload,
    rng: np.random.Generator,
    submit_s: np.ndarray,
    n_gpus: np.ndarray,
    *,
    stream: Stream,
) -> Demand:
    median_s = work.service_median_h * 3600
    drawn = rng.lognormal(np.log(median_s), work.sigma, size=submit_s.size)
    duration_s = np.clip(drawn, SHORTEST_S, work.cap_h * 3600).astype(int)
    end = np.full(submit_s.size, ENDS.index("CANCELLED"))
    is_crash = np.zeros(submit_s.size, dtype=bool)
    return _alive(submit_s, n_gpus, duration_s, end, is_crash, stream=stream)


def _moments(regime: Regime, rng: np.random.Generator, *, per_s: float) -> np.ndarray:
    """A Poisson process from the longest duration before the fleet's start to its end, seconds."""
    first, last = -regime.workload.cap_h * 3600, regime.days * 86400
    drawn = rng.uniform(first, last, size=rng.poisson(1.5 * per_s * (last - first)))
    day = (drawn + regime.start_of_day_s) / 86400
    by_day = 1 + 0.5 * np.cos(2 * np.pi * (day - 14 / 24))
    return np.asarray(drawn[1.5 * rng.random(drawn.size) < by_day].astype(int))


def _alive(
    submit_s: np.ndarray,
    n_gpus: np.ndarray,
    duration_s: np.ndarray,
    end: np.ndarray,
    is_crash: np.ndarray,
    *,
    stream: Stream,
) -> Demand:
    """Of all jobs, those that do not end before the fleet's start."""
    kinds = np.full(submit_s.size, int(stream))
    drawn = Demand(submit_s, n_gpus, duration_s, end, is_crash, kinds)
    return drawn.taken(submit_s + duration_s > 0)


def _ends(work: Workload, rng: np.random.Generator, *, size: int) -> tuple[np.ndarray, np.ndarray]:
    """How jobs end, as indexes into `ENDS`, and which of them crash by an Xid of their own."""
    fail_share = min(work.fail_share, 1 - work.crash_share)
    others = [share * fail_share for share in OTHER_ENDS.values()]
    shares = [work.crash_share, 1 - work.crash_share - fail_share, *others]
    drawn = rng.choice(len(shares), p=shares, size=size)
    is_crash = drawn == 0
    return np.where(is_crash, ENDS.index("FAILED"), drawn - 1), is_crash


def _durations(
    work: Workload, rng: np.random.Generator, n_gpus: np.ndarray, *, end: np.ndarray
) -> np.ndarray:
    """Durations of batch jobs, with the cap, and cut short where they end early; seconds."""
    drawn = np.exp(rng.normal(np.log(_medians_s(work, n_gpus)), work.sigma))
    capped = np.minimum(drawn, work.cap_h * 3600)
    is_cut = np.isin(end, [ENDS.index(state) for state in CUT_STATES])
    lasts = np.where(is_cut, capped * rng.beta(*EARLY_END, size=n_gpus.size), capped)
    return np.asarray(np.maximum(lasts, SHORTEST_S).astype(int))


def _in_turn(regime: Regime, rng: np.random.Generator, mix: Mix, *, gpus: float) -> Demand:
    """Jobs of several nodes, in a random order, each submitted once the others leave it room.

    A job is submitted when it takes the GPUs in demand no further above the quota than they are
    below it, so that the mean is the quota. They begin with none, so long before the fleet's
    start that nothing of that is left by then.
    """
    work, (sizes, weights) = regime.workload, mix
    leaving: list[tuple[int, int]] = []
    demand, now, end_s = 0, int(-FORGOTTEN_AFTER * work.cap_h * 3600), int(regime.days * 86400)
    parts = []
    while now < end_s:
        n_gpus = rng.choice(sizes, p=weights / weights.sum(), size=_BLOCK)
        end, is_crash = _ends(work, rng, size=_BLOCK)
        duration_s = _durations(work, rng, n_gpus, end=end)
        submit_s = np.empty(_BLOCK, dtype=int)
        for i, (size, lasts) in enumerate(zip(n_gpus.tolist(), duration_s.tolist(), strict=True)):
            while demand > max(0.0, gpus - size / 2):
                now, gone = heapq.heappop(leaving)
                demand -= gone
            heapq.heappush(leaving, (now + lasts, size))
            demand += size
            submit_s[i] = now
        block = _alive(submit_s, n_gpus, duration_s, end, is_crash, stream=Stream.BATCH)
        parts.append(block.taken(block.submit_s < end_s))
    return _joined(parts)
