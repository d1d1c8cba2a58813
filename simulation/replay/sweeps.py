"""What-if sweeps over one record: drain costs, checkpoints, standby nodes, precision of scores.

Each point replays the real policy anew, so that what it would then decide is in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from models.evaluation.row_metrics import Estimate
from remediation.cluster.state import NodeView
from remediation.site import Costs, Site
from simulation.replay.comparison import figures_of
from simulation.replay.engine import replay
from simulation.replay.history import HOUR, Change, History, IntArray, NodeAttempts
from simulation.replay.holds import Finding
from simulation.replay.oracle import oracle
from simulation.replay.signals import Signals, model, never, signals_of

DRAIN_FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
CHECKPOINT_MINUTES: Final = (10.0, 30.0, 60.0, 120.0, 240.0, 480.0)
STANDBY_SIZES: Final = (0, 1, 2, 4, 8)
PRECISIONS: Final = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
RECALL: Final = 0.5
STANDBY: Final = "replay-standby-"
"""How the names of standby nodes begin that are put beside the record's."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a sweep.

    Attributes:
        value: The setting.
        saved: GPU-hours that the scores save against never draining under the same setting.
        oracle: What the oracle would save; None: it is not asked.
        lost: GPU-hours that never draining loses there.
        ratio: Mean cost of a drain over mean cost of a failure to jobs; None: there is none.
        n_drains: Holds of the scores.
        kept: GPU-hours of standby nodes kept ready, the same for every strategy.
    """

    value: float
    saved: Estimate
    oracle: float | None
    lost: float
    ratio: float | None
    n_drains: int
    kept: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One setting varied.

    Attributes:
        name: drain_hours, checkpoint_minutes, standby_nodes or precision.
        points: By value.
        base: The value as the policy file has it; None: it has none.
    """

    name: str
    points: tuple[Point, ...]
    base: float | None = None


def all_sweeps(history: History, site: Site, *, finding: Finding = "check") -> tuple[Sweep, ...]:
    """Every sweep, on the stored scores."""
    return (
        sweep_drain_hours(history, site, finding=finding),
        sweep_checkpoints(history, site, finding=finding),
        sweep_standby(history, site, finding=finding),
        sweep_precision(history, site, finding=finding),
    )


def sweep_drain_hours(history: History, site: Site, *, finding: Finding = "check") -> Sweep:
    """How long the check of a drained node takes: the drain's cost against the failure's."""
    base = site.costs.drain_hours or 0.5
    values = [factor * base for factor in DRAIN_FACTORS]
    return Sweep(
        name="drain_hours",
        base=site.costs.drain_hours,
        points=tuple(
            _point(history, _with_costs(site, drain_hours=value), value, finding=finding)
            for value in values
        ),
    )


def sweep_checkpoints(history: History, site: Site, *, finding: Finding = "check") -> Sweep:
    """How often jobs write checkpoints; a failure loses half of the interval."""
    return Sweep(
        name="checkpoint_minutes",
        base=2 * site.costs.lost_work_minutes,
        points=tuple(
            _point(history, _with_costs(site, lost_work_minutes=value / 2), value, finding=finding)
            for value in CHECKPOINT_MINUTES
        ),
    )


def sweep_standby(history: History, site: Site, *, finding: Finding = "check") -> Sweep:
    """How many warm standby nodes stand beside the record's own."""
    points = []
    for size in STANDBY_SIZES:
        more, settings = with_standby(history, site, size)
        kept = size * max(history.sizes) * history.span_h
        points.append(_point(more, settings, float(size), finding=finding, kept=kept))
    return Sweep(name="standby_nodes", points=tuple(points), base=None)


def sweep_precision(history: History, site: Site, *, finding: Finding = "check") -> Sweep:
    """Made-up scores that find half of the failures, at several shares of right alarms."""

    def scores_of(precision: float) -> Callable[[History, Site], Signals]:
        return lambda found, settings: noisy(
            found, settings, precision=precision, recall=RECALL, seed=1
        )

    return Sweep(
        name="precision",
        points=tuple(
            _point(history, site, value, finding=finding, scores=scores_of(value))
            for value in PRECISIONS
        ),
    )


def _with_costs(site: Site, **changes: float) -> Site:
    costs = Costs.model_validate({**site.costs.model_dump(), **changes})
    return site.model_copy(update={"costs": costs})


def _point(
    history: History,
    site: Site,
    value: float,
    *,
    finding: Finding,
    kept: float = 0.0,
    scores: Callable[[History, Site], Signals] = model,
) -> Point:
    nothing = replay(history, site, never(), finding=finding)
    blocks = nothing.books.by_block(history)
    run_gpu_hours = history.run_gpu_hours
    found, bound = (
        figures_of(
            replay(history, site, signals, finding=finding),
            history,
            never=nothing,
            blocks_never=blocks,
            run_gpu_hours=run_gpu_hours,
        )
        for signals in (scores(history, site), oracle(history, site, finding=finding))
    )
    by_kind = nothing.books.by_kind()
    to_jobs = sum(by_kind[kind] for kind in ("rework", "hung", "restart"))
    ratio = None
    if found.n_drains and nothing.n_failure_interruptions and to_jobs:
        per_failure = to_jobs / len(history.outages)
        ratio = (found.spent / found.n_drains) / per_failure
    return Point(
        value=value,
        saved=found.saved,
        oracle=bound.saved.value,
        lost=sum(by_kind.values()),
        ratio=ratio,
        n_drains=found.n_drains,
        kept=kept,
    )


def with_standby(history: History, site: Site, size: int) -> tuple[History, Site]:
    """The record with idle nodes beside it that are kept as warm standby.

    Args:
        history: The record.
        site: The site; the new nodes are added to its standby patterns.
        size: How many; they serve every partition, with as many GPUs as the largest node.
    """
    if not size:
        return history, site
    partitions = sorted({p for one in history.changes if one.view for p in one.view.partitions})
    names = tuple(f"{STANDBY}{number}" for number in range(size))
    largest = max(history.sizes)
    changes = tuple(
        Change(
            history.start,
            len(history.names) + number,
            NodeView(name=name, state="up", partitions=tuple(partitions), n_gpus=largest),
        )
        for number, name in enumerate(names)
    )
    more = replace(
        history,
        names=history.names + names,
        sizes=history.sizes + (largest,) * size,
        changes=tuple(sorted((*history.changes, *changes), key=lambda one: (one.at, one.node))),
        attempts=history.attempts + (NodeAttempts(),) * size,
        past=history.past + ((),) * size,
    )
    return more, site.model_copy(update={"standby": (*site.standby, f"{STANDBY}*")})


def noisy(history: History, site: Site, *, precision: float, recall: float, seed: int) -> Signals:
    """Made-up alarms of a stated quality, which the policy takes at their word.

    Each failure is announced with the chance `recall`, from a random moment within the horizon
    before it until it comes. For each that is, there are as many false alarms, of the same length
    on average, as the precision says: at random ticks, on nodes that do not fail within the next
    horizon. Their score is the precision.

    Args:
        history: The record.
        site: Horizon and warning policy.
        precision: Share of right alarms.
        recall: Share of failures announced.
        seed: Seed.
    """
    # Two streams, so that what is right does not change with how much is false.
    right, false = (
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(n,))) for n in (0, 1)
    )
    horizon = site.horizon_h * HOUR
    rows: set[tuple[int, int]] = set()
    lengths: list[int] = []
    for one in history.outages:
        begins = one.start - int(right.uniform(0, horizon))
        if right.random() < recall:
            first = int(np.searchsorted(history.ticks, begins))
            last = int(np.searchsorted(history.ticks, one.start, side="right"))
            rows.update((tick, one.node) for tick in range(first, last))
            lengths.append(last - first)
    n_false = round(len(lengths) * (1 - precision) / precision)
    tries = false.integers(0, (history.ticks.size, len(history.names)), (20 * n_false, 2))
    for tick, node in _quiet(tries, history, horizon)[:n_false]:
        length = lengths[int(false.integers(len(lengths)))]
        until = min(history.ticks.size, tick + length)
        rows.update((place, node) for place in range(tick, until))
    found = np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)
    return signals_of(
        "model",
        tick=found[:, 0],
        node=found[:, 1],
        score=np.full(found.shape[0], precision),
        is_weighed=True,
    )


def _quiet(tries: IntArray, history: History, horizon: int) -> Sequence[tuple[int, int]]:
    """Ticks and nodes after which no failure comes for two horizons."""
    return [
        (tick, node)
        for tick, node in tries.tolist()
        if not any(
            0 <= one.start - int(history.ticks[tick]) < 2 * horizon
            for one in history.outages_of.get(node, ())
        )
    ]
