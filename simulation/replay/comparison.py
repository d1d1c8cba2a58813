"""Strategies side by side on one record: what each lost, saved and interrupted, and when it pays.

Words and plots are in `pipelines.studies.replay.words` and `pipelines.studies.replay.plots`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.evaluation.row_metrics import Estimate
from remediation.site import Site
from simulation.replay.books import JOB_KINDS
from simulation.replay.engine import Run, replay
from simulation.replay.history import FloatArray, History
from simulation.replay.holds import VERDICTS, Finding
from simulation.replay.intervals import sum_of_blocks
from simulation.replay.oracle import oracle
from simulation.replay.signals import (
    Signals,
    always,
    history_rank,
    model,
    never,
    static_rules,
)

STRATEGIES: Final = ("never", "always", "static rules", "history rank", "model", "oracle")
LEAST_USEFUL: Final = 5
"""Useful drains below which a mean over them is taken from the oracle instead."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one strategy came to.

    Attributes:
        name: The strategy.
        lost: GPU-hours lost in all.
        by_kind: The same by kind.
        saved: GPU-hours less than never lost, with the interval over node-weeks.
        avoided: GPU-hours that failures cost less than with never.
        spent: GPU-hours that its drains cost.
        unused: Of the idle GPU-hours of its drains, those that jobs used in the record.
        drains: Holds by verdict.
        actions: Holds by action.
        n_failure_interruptions: Attempts that failures ended.
        n_drain_interruptions: Attempts that drains moved.
        ettr: Productive share of the jobs' time, on all their GPUs; None: no job ran.
    """

    name: str
    lost: float
    by_kind: Mapping[str, float]
    saved: Estimate
    avoided: float
    spent: float
    unused: float
    drains: Mapping[str, int]
    actions: Mapping[str, int]
    n_failure_interruptions: int
    n_drain_interruptions: int
    ettr: float | None

    @property
    def n_drains(self) -> int:
        """Holds of any verdict."""
        return sum(self.drains.values())

    @property
    def precision(self) -> float | None:
        """Useful among the judged; None: none is judged."""
        judged = self.n_drains - self.drains["open"]
        return self.drains["useful"] / judged if judged else None

    @property
    def lost_by_jobs(self) -> float:
        """GPU-hours that jobs lost."""
        return sum(self.by_kind[kind] for kind in JOB_KINDS)


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """From when on acting pays.

    Attributes:
        failure_factor: How many times dearer failures would have to be for the same drains to pay;
            None: they avoided nothing, so none would do.
        precision: Share of useful drains from which on they pay; None: no useful drain is known.
        is_of_oracle: Whether what a useful drain avoids is the oracle's mean, for want of own ones.
    """

    failure_factor: float | None
    precision: float | None
    is_of_oracle: bool


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All strategies on one record, under one finding of checks.

    Attributes:
        figures: By strategy, in the order of `STRATEGIES`.
        runs: By strategy.
        finding: What the check of a drained node finds.
    """

    figures: Mapping[str, Figures]
    runs: Mapping[str, Run]
    finding: Finding


def signals_for(name: str, history: History, site: Site, *, finding: Finding) -> Signals:
    """The signals of one strategy."""
    if name == "never":
        return never()
    if name == "always":
        return always(history)
    if name == "static rules":
        return static_rules(history)
    if name == "history rank":
        return history_rank(history, site)
    return model(history, site) if name == "model" else oracle(history, site, finding=finding)


def compare(
    history: History,
    site: Site,
    *,
    strategies: Sequence[str] = STRATEGIES,
    finding: Finding = "check",
) -> Comparison:
    """Replays each strategy under the same guards.

    Args:
        history: The record.
        site: The hook's site settings.
        strategies: Which; never is always among them.
        finding: What the check of a drained node finds.
    """
    names = ("never", *(name for name in strategies if name != "never"))
    runs = {
        name: replay(
            history, site, signals_for(name, history, site, finding=finding), finding=finding
        )
        for name in names
    }
    run_gpu_hours = history.run_gpu_hours
    nothing = runs["never"].books.by_block(history)
    figures = {
        name: figures_of(
            run, history, never=runs["never"], blocks_never=nothing, run_gpu_hours=run_gpu_hours
        )
        for name, run in runs.items()
    }
    return Comparison(figures=figures, runs=runs, finding=finding)


def figures_of(
    run: Run, history: History, *, never: Run, blocks_never: FloatArray, run_gpu_hours: float
) -> Figures:
    """The figures of one run against never draining."""
    by_kind, without = run.books.by_kind(), never.books.by_kind()
    failures = ("rework", "hung", "restart", "repair")
    drains = Counter(dict.fromkeys(VERDICTS, 0))
    drains.update(one.verdict for one in run.holds)
    wall = run_gpu_hours + by_kind["restart"] + by_kind["interruption"]
    productive = run_gpu_hours - by_kind["rework"] - by_kind["hung"]
    return Figures(
        name=run.name,
        lost=sum(by_kind.values()),
        by_kind=by_kind,
        saved=sum_of_blocks(blocks_never - run.books.by_block(history)),
        avoided=sum(without[kind] - by_kind[kind] for kind in failures),
        spent=by_kind["idle"] + by_kind["interruption"],
        unused=sum(one.unused for one in run.holds),
        drains=dict(drains),
        actions=dict(Counter(one.action for one in run.holds)),
        n_failure_interruptions=run.n_failure_interruptions,
        n_drain_interruptions=run.n_drain_interruptions,
        ettr=productive / wall if wall else None,
    )


def break_even(figures: Figures, oracle_figures: Figures | None) -> BreakEven:
    """From when on the drains of a strategy pay, all else being as it was.

    Args:
        figures: The strategy.
        oracle_figures: The oracle on the same record; None: it was not run.
    """
    judged = figures.n_drains - figures.drains["open"]
    of_useful = figures if figures.drains["useful"] >= LEAST_USEFUL else oracle_figures
    precision = None
    if of_useful is not None and judged and of_useful.drains["useful"] and of_useful.avoided > 0:
        worth = of_useful.avoided / of_useful.drains["useful"]
        precision = (figures.spent / figures.n_drains) / worth
    return BreakEven(
        failure_factor=figures.spent / figures.avoided if figures.avoided > 0 else None,
        precision=precision,
        is_of_oracle=of_useful is not figures,
    )
