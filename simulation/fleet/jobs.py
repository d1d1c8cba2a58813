"""The jobs users ask for: sizes, durations, how they load GPUs, how they would end.

Where and when they run is in `simulation.fleet.schedule`.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulation.fleet.regime import Regime
from simulation.fleet.regime_workload import Workload
from simulation.fleet.seeds import Layer, random_stream

WARM_UP_S = 86400
"""Jobs are submitted from this long before the fleet's start, so that it starts loaded."""

EndState = Literal["COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED"]


@dataclass(frozen=True)
class Load:
    """How a job uses its GPUs.

    Attributes:
        kind: Training runs flat with checkpoint dips, inference follows the day, debug idles.
        util_pct: GPU utilisation when it works.
        power_share: Of the range from idle to maximum power, at that utilisation.
        tensor_ratio: Tensor pipe activity.
        memory_mib: Frame buffer in use.
        ramp_min: Minutes until it reaches its load.
    """

    kind: Literal["training", "inference", "debug"]
    util_pct: float
    power_share: float
    tensor_ratio: float
    memory_mib: int
    ramp_min: float


@dataclass(frozen=True)
class Job:
    """One job as its user meant it. Times are seconds since the fleet's start.

    Attributes:
        job_id: Number in the accounting.
        name: Name.
        user: User.
        submit_s: When it was submitted.
        n_gpus: GPUs in all; from a node's worth on, whole nodes.
        duration_s: How long it runs if nothing breaks.
        end_state: How it then ends.
        is_crash: Whether it dies by an Xid of its own.
        is_crash_on_all: Whether all its GPUs of a node report that.
        load: How it uses its GPUs.
    """

    job_id: int
    name: str
    user: str
    submit_s: int
    n_gpus: int
    duration_s: int
    end_state: EndState
    is_crash: bool
    is_crash_on_all: bool
    load: Load


def draw_jobs(regime: Regime, *, seed: int) -> tuple[Job, ...]:
    """Draws jobs until they ask for the regime's share of the fleet's GPU hours.

    Args:
        regime: The fleet's parameters.
        seed: The fleet's seed.

    Returns:
        Jobs by time of submission; ids rise with it.
    """
    rng = random_stream(seed, Layer.JOBS)
    work = regime.workload
    fleet_gpus = regime.nodes * regime.gpus_per_node
    span_s = regime.days * 86400 + WARM_UP_S
    wanted = work.gpu_hours_share * fleet_gpus * span_s
    sizes = np.array([size for size in work.size_weights if size <= fleet_gpus // 2 or size == 1])
    weights = np.array([work.size_weights[int(size)] for size in sizes], dtype=float)
    asked: list[tuple[int, int]] = []
    total = 0.0
    while total < wanted:
        size = int(rng.choice(sizes, p=weights / weights.sum()))
        asked.append((size, _draw_duration_s(work, rng, size=size)))
        total += size * asked[-1][1]
    submits = np.sort(_submit_times(rng, count=len(asked), span_s=span_s))
    return tuple(
        _draw_job(regime, rng, job_id=41_000 + i, submit_s=int(at), size=size, duration_s=duration)
        for i, (at, (size, duration)) in enumerate(zip(submits, asked, strict=True))
    )


def _draw_duration_s(work: Workload, rng: np.random.Generator, *, size: int) -> int:
    median_s = work.median_h * 3600 * size**work.size_exponent
    return int(np.clip(rng.lognormal(np.log(median_s), work.sigma), 60, work.cap_h * 3600))


def _submit_times(rng: np.random.Generator, *, count: int, span_s: float) -> np.ndarray:
    """Seconds since the start; three times as many by day as by night."""
    times = np.empty(0)
    while times.size < count:
        draw = rng.uniform(-WARM_UP_S, span_s - WARM_UP_S, size=count)
        by_day = 0.5 - 0.25 * (1 + np.cos(2 * np.pi * (draw / 86400 - 14 / 24)))
        times = np.concatenate([times, draw[rng.random(count) > by_day]])
    return times[:count]


def _draw_job(
    regime: Regime,
    rng: np.random.Generator,
    *,
    job_id: int,
    submit_s: int,
    size: int,
    duration_s: int,
) -> Job:
    work = regime.workload
    fate = rng.random()
    is_crash = bool(fate < work.crash_share)
    end_state: EndState = "FAILED" if is_crash else "COMPLETED"
    if not is_crash and fate < work.crash_share + work.fail_share:
        others: tuple[EndState, ...] = ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED")
        end_state = others[int(rng.choice(4, p=[0.4, 0.15, 0.2, 0.25]))]
    if end_state not in ("COMPLETED", "TIMEOUT"):
        duration_s = max(30, int(duration_s * rng.beta(0.5, 1.5)))  # most bad ends come early
    load = _draw_load(regime, rng, size=size)
    return Job(
        job_id=job_id,
        name=f"{load.kind[:5]}-{('base', 'sft', 'eval', 'abl')[int(rng.integers(4))]}-{size}g",
        user=f"u{int(work.users * rng.beta(0.7, 2)):03d}",
        submit_s=submit_s,
        n_gpus=size,
        duration_s=duration_s,
        end_state=end_state,
        is_crash=is_crash,
        is_crash_on_all=bool(rng.random() < work.crash_all_share),
        load=load,
    )


def _draw_load(regime: Regime, rng: np.random.Generator, *, size: int) -> Load:
    memory = regime.hardware.frame_buffer_mib
    kind = rng.random()
    if size >= regime.gpus_per_node or kind < 0.5:
        return Load(
            kind="training",
            util_pct=float(rng.uniform(90, 100)),
            power_share=float(rng.uniform(0.65, 0.98)),
            tensor_ratio=float(rng.uniform(0.25, 0.6)),
            memory_mib=int(memory * rng.uniform(0.6, 0.97)),
            ramp_min=float(rng.uniform(5, 30)),
        )
    is_inference = kind < 0.75
    return Load(
        kind="inference" if is_inference else "debug",
        util_pct=float(rng.uniform(42, 95) if is_inference else rng.uniform(0, 40)),
        power_share=float(rng.uniform(0.35, 0.8)),
        tensor_ratio=float(rng.uniform(0.05, 0.3)),
        memory_mib=int(memory * rng.uniform(0.2, 0.9)),
        ramp_min=float(rng.uniform(1, 5)),
    )
