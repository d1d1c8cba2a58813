"""Jobs of a run drawn from a trace of real jobs, and what is assumed where the trace is silent.

Reading the trace's file is the caller's.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from simulation.job_trace import usable_jobs
from simulation.scheduling.inference import DAY_S
from simulation.scheduling.jobs import Job
from simulation.scheduling.servers import Shape

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Mapping = Literal["squeezed", "days"]

_EDGE: Final = 0.001
"""Share of the jobs cut off at either end of a trace, where it has single jobs in weeks."""


@dataclass(frozen=True, kw_only=True)
class Mix:
    """How jobs are made of a trace; what the trace does not say is assumed here.

    Attributes:
        load: GPU time of the jobs over that of the training cluster in the horizon.
        days: The horizon.
        mapping: How submit times become those of the horizon. squeezed: all multiplied by one
            number, so that busy and idle weeks of the trace become busy and idle days; days: each
            day is several days of the trace, drawn at random and laid over one another, so that
            the time of day stays but busy weeks are gone.
        n_jobs: Jobs; None: as many as bring the load with the trace's own durations.
        elastic_share: Share of the GPU time that is of elastic jobs.
        elastic_min_s: Elastic jobs run at least so long; by default the lower quartile of the 876
            jobs of Philly that were published with a deadline for elastic scheduling.
        scaling: Most workers of an elastic job over its base workers.
        fungible_share: Share of the other jobs that may run on inference GPUs.
    """

    load: float = 0.9
    days: int = 15
    mapping: Mapping = "squeezed"
    n_jobs: int | None = None
    elastic_share: float = 0.36
    elastic_min_s: float = 13_705.0
    scaling: int = 2
    fungible_share: float = 0.21


@dataclass(frozen=True)
class _Drawn:
    submit_s: FloatArray
    duration_s: FloatArray
    n_gpus: IntArray


def draw_jobs(
    trace: pl.DataFrame, mix: Mix, *, rng: np.random.Generator, shape: Shape | None = None
) -> list[Job]:
    """Jobs of one run.

    Jobs are drawn with replacement. Durations are then multiplied by one number, near 1 unless
    `n_jobs` is given, for the exact load. Jobs that would have been running at the start are there
    then, with what is left of them.

    Args:
        trace: Real jobs, see `simulation.job_trace`.
        mix: What is assumed.
        rng: Random stream of the run.
        shape: The clusters.

    Returns:
        Jobs by submit time, the first ones being those there at the start.

    Raises:
        DataError: The trace has no usable job, or values that cannot be.
    """
    shape = shape or Shape()
    real = _real(trace)
    horizon_s = mix.days * DAY_S
    capacity = shape.training_gpus * horizon_s
    mean_gpu_s = float((real.duration_s * real.n_gpus).mean())
    n_jobs = mix.n_jobs or max(1, round(mix.load * capacity / mean_gpu_s))
    draw = _draw_squeezed if mix.mapping == "squeezed" else _draw_days
    drawn = draw(real, n_jobs, mix.days, rng)
    gpu_s = float((drawn.duration_s * drawn.n_gpus).sum())
    drawn = _Drawn(drawn.submit_s, drawn.duration_s * (mix.load * capacity / gpu_s), drawn.n_gpus)
    is_elastic = _draw_elastic(drawn, mix, rng)
    is_fungible = is_elastic | (rng.random(n_jobs) < mix.fungible_share)
    # Little's law: so many run at any moment, each found in proportion to how long it runs, at a
    # moment spread evenly over its life. Above a load of 1 no more than fill the cluster.
    rate = n_jobs / horizon_s / max(1.0, mix.load)
    n_there = round(rate * float(drawn.duration_s.mean()))
    there = rng.choice(n_jobs, size=n_there, p=drawn.duration_s / drawn.duration_s.sum())
    left_s = drawn.duration_s[there] * rng.random(n_there)
    index = np.concatenate((there, np.argsort(drawn.submit_s, kind="stable")))
    duration_s = np.concatenate((left_s, drawn.duration_s[index[n_there:]]))
    submit_s = np.concatenate((np.zeros(n_there), drawn.submit_s[index[n_there:]]))
    return [
        _job(
            number,
            float(submit_s[number]),
            float(duration_s[number]),
            n_gpus=int(drawn.n_gpus[source]),
            scaling=mix.scaling if is_elastic[source] else 1,
            is_fungible=bool(is_fungible[source]),
            is_counted=number >= n_there,
        )
        for number, source in enumerate(index)
    ]


def _job(
    number: int,
    submit_s: float,
    duration_s: float,
    *,
    n_gpus: int,
    scaling: int,
    is_fungible: bool,
    is_counted: bool,
) -> Job:
    # Workers of two GPUs where a job fills servers, so that they fit on lent ones as well.
    worker_gpus = 2 if n_gpus >= 8 and n_gpus % 2 == 0 else 1
    workers = n_gpus // worker_gpus
    return Job(
        number=number,
        submit_s=submit_s,
        duration_s=duration_s,
        worker_gpus=worker_gpus,
        min_workers=workers,
        max_workers=workers * scaling,
        is_fungible=is_fungible,
        is_counted=is_counted,
    )


def _real(trace: pl.DataFrame) -> _Drawn:
    rows = usable_jobs(trace)
    start = pl.col("timestamp").min().dt.truncate("1d")
    return _Drawn(
        rows.select((pl.col("timestamp") - start).dt.total_seconds()).to_series().to_numpy() * 1.0,
        rows["duration"].to_numpy(),
        rows["num_gpus"].to_numpy(),
    )


def _draw_squeezed(real: _Drawn, n_jobs: int, days: int, rng: np.random.Generator) -> _Drawn:
    """Draws jobs at their place in the trace, squeezed into the run."""
    first, last = np.quantile(real.submit_s, [_EDGE, 1.0 - _EDGE])
    inner = np.flatnonzero((real.submit_s >= first) & (real.submit_s <= last))
    index = rng.choice(inner, size=n_jobs)
    place = (real.submit_s[index] - first) / max(last - first, 1.0)
    return _Drawn(place * days * DAY_S, real.duration_s[index], real.n_gpus[index])


def _draw_days(real: _Drawn, n_jobs: int, days: int, rng: np.random.Generator) -> _Drawn:
    """Lays drawn days of the trace over the days of the run, then thins to the jobs wanted."""
    day = (real.submit_s // DAY_S).astype(np.int64)
    by_day = [np.flatnonzero(day == number) for number in np.unique(day)]
    picked: list[IntArray] = []
    shifts: list[FloatArray] = []
    count = 0
    while count < n_jobs:
        for target in range(days):
            rows = by_day[int(rng.integers(len(by_day)))]
            picked.append(rows)
            shifts.append(np.full(len(rows), target * DAY_S))
            count += len(rows)
    kept = np.sort(rng.choice(count, size=n_jobs, replace=False))
    index = np.concatenate(picked)[kept]
    submit_s = real.submit_s[index] % DAY_S + np.concatenate(shifts)[kept]
    return _Drawn(submit_s, real.duration_s[index], real.n_gpus[index])


def _draw_elastic(drawn: _Drawn, mix: Mix, rng: np.random.Generator) -> BoolArray:
    gpu_s = drawn.duration_s * drawn.n_gpus
    is_long = drawn.duration_s >= mix.elastic_min_s
    long_s = float(gpu_s[is_long].sum())
    chance = min(1.0, mix.elastic_share * float(gpu_s.sum()) / long_s) if long_s else 0.0
    return is_long & (rng.random(len(gpu_s)) < chance)
