"""Many runs of the recovery simulation: intervals, sensitivity, what foresight adds, when it pays.

One run is in `.job`, parameters are in `.parameters`, words for people in
`pipelines.studies.recovery`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final

import numpy as np
from scipy.stats import t as student

from features.errors import SettingsError
from simulation.recovery.job import Run, run_job
from simulation.recovery.parameters import REGIMES, SOURCES, Foresight, Regime

FORESIGHTS: Final = (
    Foresight(recall=0.2, precision=0.9),
    Foresight(recall=0.5, precision=0.9),
    Foresight(recall=0.5, precision=0.5),
    Foresight(recall=0.5, precision=0.1),
    Foresight(recall=1.0, precision=1.0),
)
"""Modest, good, half wrong, mostly wrong, and all that is possible."""

_WHOLE: Final = ("over_evicted", "checkpoint_steps")
"""Parameters that are counts: at least 1."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval.

    Attributes:
        mean: The mean.
        half: Half the width of the interval of Student's t; NaN for one seed.
    """

    mean: float
    half: float


@dataclass(frozen=True)
class Sensitivity:
    """ETTR with one parameter changed.

    Attributes:
        name: The parameter.
        value: Its value.
        source: Where the value comes from.
        at_half: With half of it; None: it cannot be halved.
        at_twice: With twice as much.
    """

    name: str
    value: float
    source: str
    at_half: Estimate | None
    at_twice: Estimate


@dataclass(frozen=True)
class Gain:
    """What foresight adds to a regime.

    Attributes:
        foresight: The foresight.
        points: ETTR gained, in points of per cent, seed by seed.
    """

    foresight: Foresight
    points: Estimate


@dataclass(frozen=True)
class RegimeResult:
    """All about one regime.

    Attributes:
        name: Its name.
        ettr: ETTR.
        worst_hour: Least ETTR of any hour of any run.
        longest_stop_min: Longest unproductive stretch of any run, in minutes.
        machine_loss_s: Mean time an incident of a machine cost, in seconds.
        planned_s: Time a planned swap costs, in seconds.
        shares: How incidents ended.
        gains: What foresight adds.
    """

    name: str
    ettr: Estimate
    worst_hour: float
    longest_stop_min: float
    machine_loss_s: float
    planned_s: float
    shares: Mapping[str, float]
    gains: tuple[Gain, ...]

    @property
    def break_even_precision(self) -> float:
        """Share of alerts that must be right for drains to pay: swap / cost of an incident.

        Every alert costs a swap, a right one saves the incident: P U - S > 0.
        """
        return min(1.0, self.planned_s / self.machine_loss_s) if self.machine_loss_s else 1.0


def study_regimes(
    *, seeds: Sequence[int], days: float, regimes: Mapping[str, Regime] = REGIMES
) -> tuple[RegimeResult, ...]:
    """Runs every regime with and without foresight.

    Args:
        seeds: One run each; the same ones everywhere.
        days: Length of a run.
        regimes: Name -> regime.

    Raises:
        SettingsError: There are no seeds.
    """
    if not seeds:
        raise SettingsError("recovery study: at least one seed is needed")
    return tuple(_result(name, replace(r, days=days), seeds) for name, r in regimes.items())


def study_sensitivity(
    regime: Regime, *, seeds: Sequence[int], days: float
) -> tuple[Sensitivity, ...]:
    """ETTR with each parameter halved and doubled, the others as they are.

    Args:
        regime: The regime.
        seeds: One run each.
        days: Length of a run.
    """
    base = replace(regime, days=days)
    rows = []
    for name, source in SOURCES.items():
        value = getattr(base, name)
        halved = value / 2
        half = None if name in _WHOLE and halved < 1 else _ettr(_with(base, name, halved), seeds)
        twice = _ettr(_with(base, name, value * 2), seeds)
        rows.append(Sensitivity(name, float(value), source, half, twice))
    return tuple(rows)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % interval.

    Args:
        values: One per seed.
    """
    array = np.asarray(values)
    if array.size < 2:
        return Estimate(float(array.mean()), float("nan"))
    error = float(array.std(ddof=1)) / sqrt(array.size)
    return Estimate(float(array.mean()), float(student.ppf(0.975, array.size - 1)) * error)


def _with(regime: Regime, name: str, value: float) -> Regime:
    changes: dict[str, float] = {name: round(value) if name in _WHOLE else value}
    return replace(regime, **changes)  # type: ignore[arg-type]  # counts stay whole


def _ettr(regime: Regime, seeds: Sequence[int]) -> Estimate:
    return estimate([run_job(regime, seed=seed).ettr for seed in seeds])


def _result(name: str, regime: Regime, seeds: Sequence[int]) -> RegimeResult:
    runs = [run_job(regime, seed=seed) for seed in seeds]
    return RegimeResult(
        name=name,
        ettr=estimate([run.ettr for run in runs]),
        worst_hour=min(run.worst_hour for run in runs),
        longest_stop_min=max(run.longest_stop_min for run in runs),
        machine_loss_s=float(np.mean([run.machine_loss_s for run in runs])),
        planned_s=regime.in_place_s,
        shares=_shares(runs),
        gains=tuple(_gain(regime, foresight, runs, seeds) for foresight in FORESIGHTS),
    )


def _gain(regime: Regime, foresight: Foresight, runs: Sequence[Run], seeds: Sequence[int]) -> Gain:
    points = [
        100 * (run_job(regime, seed=seed, foresight=foresight).ettr - run.ettr)
        for seed, run in zip(seeds, runs, strict=True)
    ]
    return Gain(foresight, estimate(points))


def _shares(runs: Sequence[Run]) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(run.incidents)
    return {name: count / counts.total() for name, count in sorted(counts.items())}
