"""GPU-hours that would-be actions would have saved or wasted, from the jobs that really ran.

Which actions those are is in `remediation.shadow`; costs come from the site file.

A failure costs each job that it ended, on all its GPUs: the work since the last checkpoint (the
site's usual loss, at most the job's age), the time it hung (what the record shows, at most the
site's time to notice), and the restart. A job counts as ended by it if it ran on the node at the
onset and ended badly, of nothing that its own code or the storage explains, before the repair. An
action saves it only if the job would not have been there: it began during the would-be hold, or
the action would have moved it in time. Each attempt of a job is saved once, however many actions
claim it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from remediation.policy.costs import DEFAULT_NODE_GPUS
from remediation.shadow import WouldBe
from remediation.shadow_outcomes import Outcome
from remediation.site import Costs
from simulation.replay.tables import HARDWARE_CAUSES, UNKNOWN_REPAIR

INTERRUPTING: Final = ("checkpoint_then_drain", "drain_now")
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One attempt of a job.

    Attributes:
        key: Job and attempt.
        n_nodes: Nodes it ran on.
        n_gpus: GPUs in all; None: unknown.
        start: Start.
        end: End; None: still running when the record ends.
        cause: Why it ended badly; None: it did not.
    """

    key: tuple[str, int]
    n_nodes: int
    n_gpus: int | None
    start: datetime
    end: datetime | None
    cause: str | None

    def runs_at(self, at: datetime) -> bool:
        """Whether it had begun before `at` and had not ended before it."""
        return self.start < at and (self.end is None or self.end >= at)


@dataclass(frozen=True, kw_only=True)
class Balance:
    """What one would-be action is worth, in GPU-hours.

    Attributes:
        saved: What the jobs lost that it would have spared.
        spent: What the action itself would have cost.
        spent_if_kept: The same, had the node been kept out for the whole hold.
    """

    saved: float
    spent: float
    spent_if_kept: float

    @property
    def net(self) -> float:
        """Saved less spent; negative: it would have cost more than it saved."""
        return self.saved - self.spent


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Jobs and sizes of the nodes.

    Attributes:
        runs: Attempts by node, in order of start.
        gpus: GPUs by node; a node that is not in it has `DEFAULT_NODE_GPUS`.
    """

    runs: Mapping[str, Sequence[Run]]
    gpus: Mapping[str, int]

    def size(self, node: str) -> int:
        """GPUs of a node."""
        return self.gpus.get(node, DEFAULT_NODE_GPUS)


def fleet_of(jobs: pl.DataFrame, inventory: pl.DataFrame, *, at: datetime) -> Fleet:
    """Reads the attempts and the nodes' sizes.

    Args:
        jobs: core/jobs.
        inventory: core/inventory.
        at: The moment at which GPUs are counted.
    """
    runs: dict[str, list[Run]] = {}
    started = jobs.filter(pl.col("start").is_not_null(), pl.col("nodes").list.len() > 0)
    for row in started.sort("start", "job_id", "attempt").iter_rows(named=True):
        run = Run(
            key=(row["job_id"], row["attempt"]),
            n_nodes=len(row["nodes"]),
            n_gpus=row["n_gpus"],
            start=row["start"],
            end=row["end"],
            cause=row["cause"],
        )
        for node in row["nodes"]:
            runs.setdefault(node, []).append(run)
    begun = (pl.col("valid_from") <= at).fill_null(value=True)
    open_yet = (pl.col("valid_to") > at).fill_null(value=True)
    there = inventory.filter(begun, open_yet).group_by("node").agg(pl.col("gpu_uuid").n_unique())
    return Fleet(runs=runs, gpus=dict(there.select("node", "gpu_uuid").iter_rows()))


def hurt_by(incident: Mapping[str, Any], fleet: Fleet) -> list[Run]:
    """The attempts that a failure ended."""
    onset = incident["start"]
    until = incident["end"] or onset + UNKNOWN_REPAIR
    return [
        run
        for run in fleet.runs.get(incident["node"], ())
        if run.runs_at(onset)
        and run.cause in HARDWARE_CAUSES
        and run.end is not None
        and run.end <= until
    ]


def loss(run: Run, onset: datetime, *, node_gpus: int, costs: Costs) -> float:
    """GPU-hours that a failure at `onset` cost an attempt which it ended."""
    age_h = (onset - run.start) / _HOUR
    hung_h = costs.detection_minutes / 60 if run.end is None else (run.end - onset) / _HOUR
    lost_h = min(costs.lost_work_minutes / 60, age_h)
    return _gpus(run, node_gpus) * (
        lost_h + min(costs.detection_minutes / 60, hung_h) + _restart_hours(costs)
    )


def spent_on(
    would_be: WouldBe, fleet: Fleet, *, costs: Costs, stop: datetime | None, is_kept: bool = False
) -> float:
    """GPU-hours that an action would have cost.

    GPUs idle from the action until the last job has left (a drain), the notice is over (a
    notified one), or the hold ends (a cordon, or a node that is kept); then the check of a drain.
    Jobs that are moved restart.

    Args:
        would_be: The action.
        fleet: Jobs and sizes.
        costs: The site's costs.
        stop: Onset of the failure, if one came: from then on the node was out anyway.
        is_kept: Whether the node is kept out for the whole hold, instead of until it is checked.
    """
    node, began = would_be.decision.node, would_be.decision.decided_at
    size, is_cordon = fleet.size(node), would_be.action == "cordon"
    limit = would_be.until if stop is None else min(stop, would_be.until)
    running = [run for run in fleet.runs.get(node, ()) if run.runs_at(began)]
    leaves = {run.key: min(run.end or limit, limit) for run in running}
    interruption = 0.0
    if would_be.action in INTERRUPTING:
        told = began + timedelta(minutes=costs.notice_minutes)
        moved = [run for run in running if run.end is None or run.end > told]
        interruption = sum(_gpus(run, size) for run in moved) * _restart_hours(costs)
        leaves = {key: min(at, told) for key, at in leaves.items()}
        empty = min(told, limit)
    else:
        empty = max(leaves.values(), default=began)
    until = limit if is_cordon or is_kept else empty
    busy = sum(
        _gpus(run, size) / run.n_nodes * ((leaves[run.key] - began) / _HOUR) for run in running
    )
    idle = max(0.0, size * ((until - began) / _HOUR) - busy)
    return idle + interruption + (0.0 if is_cordon else size * costs.drain_hours)


def spared(would_be: WouldBe, run: Run, onset: datetime, *, costs: Costs) -> bool:
    """Whether an attempt would not have been on the node at `onset`, had the action been taken."""
    began = would_be.decision.decided_at
    if run.start >= began:
        return run.start < would_be.until
    notice = timedelta(minutes=costs.notice_minutes)
    return would_be.action in INTERRUPTING and began + notice <= onset


def reckon(
    would_be: Sequence[WouldBe], outcomes: Sequence[Outcome], fleet: Fleet, *, costs: Costs
) -> tuple[Balance | None, ...]:
    """What each would-be action is worth; None: it was none. Unjudged ones save nothing.

    Args:
        would_be: Actions, in order of time.
        outcomes: What became of each.
        fleet: Jobs and sizes.
        costs: The site's costs.
    """
    taken: set[tuple[str, int]] = set()
    found: list[Balance | None] = []
    for one, outcome in zip(would_be, outcomes, strict=True):
        if not one.is_acting:
            found.append(None)
            continue
        incident = outcome.incident
        onset = incident["start"] if incident and outcome.kind in ("right", "early") else None
        size = fleet.size(one.decision.node)
        spent = spent_on(one, fleet, costs=costs, stop=onset)
        saved = 0.0
        if incident is not None and onset is not None and outcome.kind == "right":
            # The node is repaired in either case, as planned work or after a failure under load.
            saved = size * (costs.repair_hours - costs.planned_repair_hours)
            for run in hurt_by(incident, fleet):
                if run.key not in taken and spared(one, run, onset, costs=costs):
                    taken.add(run.key)
                    saved += loss(run, onset, node_gpus=size, costs=costs)
        kept = spent_on(one, fleet, costs=costs, stop=onset, is_kept=True)
        found.append(Balance(saved=saved, spent=spent, spent_if_kept=kept))
    return tuple(found)


def lost_in_all(incidents: Sequence[Mapping[str, Any]], fleet: Fleet, *, costs: Costs) -> float:
    """GPU-hours that jobs lost to all failures of a time: the cost of doing nothing.

    Args:
        incidents: From `remediation.shadow_outcomes.place_incidents`, in order of time.
        fleet: Jobs and sizes.
        costs: The site's costs.
    """
    taken: set[tuple[str, int]] = set()
    total = 0.0
    for incident in incidents:
        size = fleet.size(incident["node"])
        for run in hurt_by(incident, fleet):
            if run.key not in taken:
                taken.add(run.key)
                total += loss(run, incident["start"], node_gpus=size, costs=costs)
    return total


def _restart_hours(costs: Costs) -> float:
    """As `remediation.policy.costs` reckons where no replacement is known."""
    return (costs.wait_minutes + costs.restart_minutes) / 60


def _gpus(run: Run, node_gpus: int) -> int:
    return run.n_nodes * node_gpus if run.n_gpus is None else run.n_gpus
