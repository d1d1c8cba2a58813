"""Checks the promises of precision and of budget on fresh fleets whose truth is known.

Fleets are drawn in `simulation.score_fleets`, policies tuned in `models.policies.tuning`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
from scipy.stats import binomtest

from models.evaluation.intervals import exact_share
from models.policies.rows import PolicyRows, policy_rows
from models.policies.thresholds import BUDGET_CONFIDENCE, chance_if_lower
from models.policies.tuning import (
    PolicyGrid,
    halves_by_node,
    tune_for_budget,
    tune_for_precision,
)
from models.policies.warnings import WarningPolicy
from simulation.score_fleets import TASK, TICK, ScoreFleet, ScoreProcess, draw_fleet

TRUTH_SEED = 1_000_000
"""The truth's seeds begin here; no fleet of a check has one of them."""

NEXT_SEED = 2_000_000
"""The seeds of fleets that a budget is kept on, or not, begin here."""

CONFIDENCE = 0.95
"""Of every promise of precision checked here."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is drawn.

    Attributes:
        n_fleets: Fleets that tune a policy.
        n_nodes: Nodes of each.
        days: Length of its record; the truth's is as long.
        truth_nodes: Nodes of the draw that the true precision is measured on.
        first_seed: Seed of the first fleet; the others follow.
    """

    n_fleets: int = 200
    n_nodes: int = 1000
    days: int = 60
    truth_nodes: int = 30_000
    first_seed: int = 0

    @property
    def seeds(self) -> range:
        """Seeds of the fleets."""
        return range(self.first_seed, self.first_seed + self.n_fleets)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """How often a promise of precision was kept.

    Attributes:
        precision: What was promised.
        n_fleets: Fleets tried.
        n_given: Fleets where a policy qualified.
        n_broken: Fleets where one did whose true precision is lower.
        mean_recall: True event recall of the policies that qualified; None without any.
    """

    precision: float
    n_fleets: int
    n_given: int
    n_broken: int
    mean_recall: float | None

    @property
    def broken_interval(self) -> tuple[float, float]:
        """Exact 95 % interval of the share of fleets with a broken promise."""
        return exact_share(self.n_broken, self.n_fleets)

    @property
    def broken_interval_of_given(self) -> tuple[float, float] | None:
        """The same of the fleets where a promise was given; None without any."""
        return exact_share(self.n_broken, self.n_given) if self.n_given else None

    @property
    def is_within_error(self) -> bool:
        """Whether a share of 5 % explains as many broken promises, at 5 % one-sided."""
        return (
            float(binomtest(self.n_broken, self.n_fleets, 0.05, alternative="greater").pvalue)
            > 0.05
        )


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What budget policies spend and catch on the fresh draw.

    Attributes:
        budget: Alerts per 1,000 nodes per day that were allowed.
        n_given: Fleets where a policy qualified.
        n_broken: Of these, where as many other nodes raise more in as long a time.
        mean_rate: Mean true rate of alerts.
        high_rate: Its 95 % point over fleets.
        mean_recall: Mean true event recall.
    """

    budget: float
    n_given: int
    n_broken: int
    mean_rate: float | None
    high_rate: float | None
    mean_recall: float | None

    @property
    def broken_interval(self) -> tuple[float, float]:
        """Exact 95 % interval of the share of fleets where more was spent."""
        return exact_share(self.n_broken, self.n_given)


def check_precision(
    process: ScoreProcess,
    *,
    grids: Mapping[str, PolicyGrid],
    precisions: Sequence[float],
    size: Size,
    served: ScoreProcess | None = None,
) -> dict[str, tuple[Kept, ...]]:
    """Tunes a policy on each fleet for each precision, and measures its true precision.

    Args:
        process: What fleets are drawn from.
        grids: Policies tried, by a name; all are tuned on the same fleets.
        precisions: Promises.
        size: How much is drawn.
        served: What the truth is drawn from: another process is drift.

    Returns:
        One count per grid and precision.
    """
    truth = _truth(served or process, size)
    found: dict[tuple[str, float], list[_Judged]] = {
        (name, precision): [] for name in grids for precision in precisions
    }
    for seed in size.seeds:
        fleet = draw_fleet(process, n_nodes=size.n_nodes, days=size.days, seed=seed)
        tune, test = (_prepared(fleet, part) for part in halves_by_node(fleet.rows))
        for (name, precision), judged in found.items():
            choice = tune_for_precision(
                tune, test, grids[name], precision=precision, confidence=CONFIDENCE
            )
            if choice.policy is not None:
                judged.append(_judge(truth, choice.policy))
    return {
        name: tuple(
            _kept(found[name, precision], precision=precision, size=size)
            for precision in precisions
        )
        for name in grids
    }


def check_hardest(
    process: ScoreProcess, *, policies: Sequence[WarningPolicy], size: Size
) -> tuple[Kept, ...]:
    """Tests policies against just the precision they have: the hardest promise to refuse.

    Args:
        process: What fleets are drawn from.
        policies: Whole policies, their threshold fixed without any fleet.
        size: How much is drawn.

    Returns:
        One count per policy; to pass the test at all is to break the promise.
    """
    truth = _truth(process, size)
    judged = [_judge(truth, policy) for policy in policies]
    passed: list[list[_Judged]] = [[] for _ in policies]
    for seed in size.seeds:
        fleet = draw_fleet(process, n_nodes=size.n_nodes, days=size.days, seed=seed)
        test = _prepared(fleet, halves_by_node(fleet.rows)[1])
        for policy, one, kept in zip(policies, judged, passed, strict=True):
            chance = chance_if_lower(test.outcome(policy), precision=one.precision)
            if chance <= 1.0 - CONFIDENCE:
                kept.append(one)
    return tuple(
        Kept(
            precision=one.precision,
            n_fleets=size.n_fleets,
            n_given=len(kept),
            n_broken=len(kept),
            mean_recall=_mean([each.recall for each in kept]),
        )
        for one, kept in zip(judged, passed, strict=True)
    )


def check_budget(
    process: ScoreProcess,
    *,
    grids: Mapping[str, PolicyGrid],
    budget: float,
    size: Size,
    served: ScoreProcess | None = None,
    confidence: float = BUDGET_CONFIDENCE,
) -> dict[str, Spent]:
    """Tunes a policy on each fleet by budget, and measures what it truly spends and catches.

    Whether the budget is kept is seen on another fleet of the same size.

    Args:
        process: What fleets are drawn from.
        grids: Policies tried, by a name; all are tuned on the same fleets.
        budget: Alerts per 1,000 nodes per day.
        size: How much is drawn.
        served: What truth and other fleets are drawn from: another process is drift.
        confidence: That the budget is kept.

    Returns:
        What each grid spends.
    """
    truth = _truth(served or process, size)
    found: dict[str, list[_Judged]] = {name: [] for name in grids}
    broken = dict.fromkeys(grids, 0)
    for seed in size.seeds:
        rows = _whole_fleet(process, size, seed=seed)
        other = _whole_fleet(served or process, size, seed=NEXT_SEED + seed)
        for name, grid in grids.items():
            choice = tune_for_budget(
                rows, grid, alerts_per_1000_nodes_per_day=budget, confidence=confidence
            )
            if choice.policy is not None:
                found[name].append(_judge(truth, choice.policy))
                broken[name] += _judge(other, choice.policy).rate > budget
    return {
        name: _spent(judged, n_broken=broken[name], budget=budget) for name, judged in found.items()
    }


@dataclass(frozen=True)
class _Judged:
    """A policy on the truth; its rate in alerts per 1,000 nodes per day."""

    precision: float
    recall: float
    rate: float


def _whole_fleet(process: ScoreProcess, size: Size, *, seed: int) -> PolicyRows:
    fleet = draw_fleet(process, n_nodes=size.n_nodes, days=size.days, seed=seed)
    return replace(_prepared(fleet, fleet.rows), node_days=float(size.n_nodes * size.days))


def _truth(process: ScoreProcess, size: Size) -> PolicyRows:
    # In parts of a fleet's size: what strikes several nodes is as rare per node as in a fleet.
    fleets = [
        draw_fleet(process, n_nodes=size.n_nodes, days=size.days, seed=TRUTH_SEED + part)
        for part in range(max(size.truth_nodes // size.n_nodes, 1))
    ]
    rows = pl.concat([_renamed(one.rows, part) for part, one in enumerate(fleets)])
    incidents = pl.concat([_renamed(one.incidents, part) for part, one in enumerate(fleets)])
    prepared = _prepared(ScoreFleet(rows, incidents), rows)
    return replace(prepared, node_days=float(len(fleets) * size.n_nodes * size.days))


def _renamed(frame: pl.DataFrame, part: int) -> pl.DataFrame:
    names = [name for name in ("entity_id", "node", "incident_id") if name in frame.columns]
    return frame.with_columns(pl.format("{}-{}", pl.lit(part), name).alias(name) for name in names)


def _prepared(fleet: ScoreFleet, rows: pl.DataFrame) -> PolicyRows:
    return policy_rows(rows, incidents=fleet.incidents, task=TASK, tick=TICK)


def _judge(truth: PolicyRows, policy: WarningPolicy) -> _Judged:
    alerts = truth.alerts(policy)
    found = truth.episodes(alerts)
    return _Judged(
        precision=found.precision,
        recall=found.n_true / max(truth.n_incidents, 1),
        rate=1000.0 * alerts.size / truth.node_days,
    )


def _kept(judged: Sequence[_Judged], *, precision: float, size: Size) -> Kept:
    return Kept(
        precision=precision,
        n_fleets=size.n_fleets,
        n_given=len(judged),
        n_broken=sum(one.precision < precision for one in judged),
        mean_recall=_mean([one.recall for one in judged]),
    )


def _spent(judged: Sequence[_Judged], *, n_broken: int, budget: float) -> Spent:
    rates = sorted(one.rate for one in judged)
    return Spent(
        budget=budget,
        n_given=len(judged),
        n_broken=n_broken,
        mean_rate=_mean(rates),
        high_rate=rates[int(0.95 * (len(rates) - 1))] if rates else None,
        mean_recall=_mean([one.recall for one in judged]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
