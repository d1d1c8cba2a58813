"""Policies side by side on the same jobs, over loads and seeds, with intervals.

Nothing is printed or drawn here.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import t as student

from simulation.scheduling.engine import Engine, Timing
from simulation.scheduling.inference import DAY_S, Traffic, needed_servers
from simulation.scheduling.jobs import Job
from simulation.scheduling.outcome import Outcome, outcome_of
from simulation.scheduling.policies import Policy
from simulation.scheduling.servers import Shape
from simulation.scheduling.workload import Mix, draw_jobs

MEASURES: Final = ("queuing_s", "completion_s")
"""What ratios are made of; fewer seconds are better."""

_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything a run is made of but the policy and the seed.

    Attributes:
        mix: How jobs are made.
        shape: The clusters.
        timing: When things happen; the horizon is the mix's.
        traffic: The swing of the inference cluster.
    """

    mix: Mix = field(default_factory=Mix)
    shape: Shape = field(default_factory=Shape)
    timing: Timing = field(default_factory=Timing)
    traffic: Traffic = field(default_factory=Traffic)


@dataclass(frozen=True)
class Case:
    """The jobs and the traffic of one seed, the same for every policy."""

    setting: Setting
    seed: int
    jobs: Sequence[Job]
    needed: npt.NDArray[np.int64]

    def run(self, policy: Policy) -> Outcome:
        """Runs a policy to the end of the last job."""
        setting = self.setting
        timing = replace(setting.timing, horizon_s=setting.mix.days * DAY_S)
        engine = Engine(
            self.jobs,
            policy=policy,
            needed=self.needed,
            rng=_stream(self.seed, 2),
            shape=setting.shape,
            timing=timing,
        )
        engine.run()
        used = self.needed - setting.traffic.headroom_servers(setting.shape)
        return outcome_of(
            engine,
            load=setting.mix.load,
            seed=self.seed,
            inference_use=float(used.mean()) / max(1, setting.shape.inference),
        )


def build_case(trace: pl.DataFrame, setting: Setting, *, seed: int) -> Case:
    """Draws the jobs and the traffic of a seed.

    Args:
        trace: Real jobs, see `simulation.job_trace`.
        setting: The setting.
        seed: The seed.
    """
    return Case(
        setting=setting,
        seed=seed,
        jobs=draw_jobs(trace, setting.mix, rng=_stream(seed, 0), shape=setting.shape),
        needed=needed_servers(
            setting.traffic,
            setting.shape,
            actions=round(setting.mix.days * DAY_S / setting.timing.action_s),
            action_s=setting.timing.action_s,
            rng=_stream(seed, 1),
        ),
    )


def compare(
    trace: pl.DataFrame,
    setting: Setting,
    *,
    policies: Iterable[Policy],
    loads: Iterable[float],
    seeds: Iterable[int],
    say: Callable[[str], None] = lambda _: None,
) -> pl.DataFrame:
    """Runs every policy at every load with every seed.

    Args:
        trace: Real jobs.
        setting: The setting; its load is replaced.
        policies: What is compared.
        loads: Offered loads.
        seeds: Seeds.
        say: Told what was run.

    Returns:
        One row per run, the fields of `Outcome`.
    """
    chosen, tried = tuple(policies), tuple(seeds)
    rows = []
    for load in loads:
        at_load = replace(setting, mix=replace(setting.mix, load=load))
        for seed in tried:
            case = build_case(trace, at_load, seed=seed)
            rows += [asdict(case.run(policy)) for policy in chosen]
            say(f"load {load:g}, seed {seed}: {len(case.jobs):,} jobs, {len(chosen)} policies")
    return pl.DataFrame(rows)


@dataclass(frozen=True)
class Ratio:
    """How many times shorter something is than under the baseline.

    Attributes:
        value: Geometric mean over the seeds; None: the baseline, or the policy, has none of it.
        low: Lower end of the 95 % interval (Student's t on the logarithms); None: one seed.
        high: Upper end.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


def ratio_to(runs: pl.DataFrame, *, policy: str, baseline: str, load: float, measure: str) -> Ratio:
    """The baseline's seconds over the policy's, seed by seed.

    Args:
        runs: Rows of `compare`.
        policy: Name of the policy.
        baseline: Name of the baseline.
        load: The load.
        measure: One of `MEASURES`.
    """
    at_load = runs.filter(pl.col("load") == load).sort("seed")
    ours, theirs = (
        at_load.filter(pl.col("policy") == name)[measure].to_numpy() for name in (policy, baseline)
    )
    if len(ours) == 0 or len(ours) != len(theirs) or (ours <= 0.0).any() or (theirs <= 0.0).any():
        return Ratio(None)
    logs = np.log(theirs / ours)
    middle = float(logs.mean())
    if len(logs) < 2:
        return Ratio(math.exp(middle))
    half = float(student.ppf(0.5 + _CONFIDENCE / 2.0, len(logs) - 1) * logs.std(ddof=1))
    half /= math.sqrt(len(logs))
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def _stream(seed: int, use: int) -> np.random.Generator:
    """The random stream of one use: 0 jobs, 1 traffic, 2 reclaim."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(use,))))
