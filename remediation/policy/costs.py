"""Expected cost in GPU-hours of each action on a node, from its score and the jobs on it.

Which action is chosen, and whether it may be taken, is decided elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from remediation.cluster.state import JobView, NodeView
from remediation.policy.capacity import Spare
from remediation.policy.preemption import server_preemption_cost
from remediation.site import Costs

DEFAULT_NODE_GPUS: Final = 8
"""GPUs of a node whose inventory is unknown: the size of the common HGX board."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is known of a node besides its score and its jobs.

    Attributes:
        replacement: What would take its place; None: nothing that is known.
        maintenance: Name of the planned work that comes within the horizon; None: none.
        maintenance_in_h: Hours until it starts.
    """

    replacement: Spare | None = None
    maintenance: str | None = None
    maintenance_in_h: float | None = None


NOTHING_KNOWN: Final = Outlook()


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """What each course of action is expected to cost.

    Attributes:
        waiting: GPU-hours of doing nothing.
        acting: GPU-hours by action that touches the node.
        preemption: Lyra's server preemption cost, in jobs.
        job_gpus: GPUs of all jobs on the node, wherever they run.
        leaves_in_h: Hours until the last job has left; 0 without jobs.
        assumed: What was unknown, with the value taken for it, in words.
    """

    waiting: float
    acting: Mapping[str, float]
    preemption: float
    job_gpus: float
    leaves_in_h: float
    assumed: tuple[str, ...]


def weigh(
    node: NodeView,
    jobs: Sequence[JobView],
    *,
    score: float,
    horizon_h: int,
    costs: Costs,
    outlook: Outlook = NOTHING_KNOWN,
) -> Weighing:
    """Weighs every action on a node against waiting.

    A failure hits the whole of every job on the node: each loses the work since its last
    checkpoint, hangs until noticed, and restarts, on all its GPUs. Its onset is taken as uniform
    over the horizon, so a job that leaves after t hours bears t / H of the risk; after it, and on
    free GPUs, new one-node jobs are taken to run unless the node is cordoned. Maintenance within
    the horizon ends the risk, for there the node is looked at anyway. A replacement shortens every
    restart. An elastic job with nodes to spare gives one up instead of stopping. What a drain
    interrupts counts in full and not by Lyra's 1 / servers, for one drained node interrupts the
    whole job; Lyra's cost ranks nodes whose benefit is equal.

    Args:
        node: The node.
        jobs: Running jobs that use it.
        score: Calibrated probability of a failure within the horizon.
        horizon_h: The horizon.
        costs: The site's costs.
        outlook: Replacement and maintenance.

    Returns:
        GPU-hours, each including the repair with the probability of the failure.
    """
    load = _load(node, jobs, costs, outlook)
    planned = outlook.maintenance_in_h
    until = float(horizon_h) if planned is None else min(float(horizon_h), planned)
    per_hour = score / horizon_h
    notice = costs.notice_minutes / 60
    sums = _sums(load, until=until, notice=notice)

    failing = score * load.size
    in_place = failing * until / horizon_h
    # A drained node that was failing is out until it is repaired, or maintenance does it anyway.
    repair_h = costs.planned_repair_hours
    out = load.size * costs.drain_hours + failing * (
        repair_h if planned is None else min(repair_h, until)
    )
    new_jobs = load.new_loss * (load.free * until + sums.idle_after)
    until_ended = per_hour * sums.at_risk
    return Weighing(
        waiting=until_ended + per_hour * new_jobs + in_place * costs.repair_hours,
        acting={
            # A cordon lasts as long as the score does; a drained node is checked and returns.
            "cordon": until_ended + load.free * until + sums.idle_after + in_place * repair_h,
            "drain_after_jobs": until_ended + sums.idle_until_empty + out,
            "checkpoint_then_drain": per_hour * sums.told_at_risk
            + sums.interrupted_after_notice
            + load.free * notice
            + out,
            "drain_now": sums.interrupted + sums.lost + out,
        },
        preemption=server_preemption_cost(jobs),
        job_gpus=load.job_gpus,
        leaves_in_h=load.leaves_in_h,
        assumed=load.assumed,
    )


class _OneJob(NamedTuple):
    """A job as the costs see it, in GPUs, hours and GPU-hours.

    `gpus` counts all of them, `share` those on this node. `loss` is what a later failure of the
    node costs it, `interruption` what taking the node does, `since_checkpoint` the work that is
    lost without notice.
    """

    gpus: float
    share: float
    remaining: float
    loss: float
    interruption: float
    since_checkpoint: float


@dataclass(frozen=True, kw_only=True)
class _Load:
    """What is on a node; `new_loss` is what a failure costs a new job per GPU.

    `scale` shrinks the jobs' shares to the node, where more GPUs are said to be used than there
    are.
    """

    size: float
    free: float
    scale: float
    jobs: tuple[_OneJob, ...]
    job_gpus: float
    leaves_in_h: float
    new_loss: float
    assumed: tuple[str, ...]


class _Sums(NamedTuple):
    """Sums over the jobs of a node.

    `at_risk` and `told_at_risk` are GPU-hours that a failure costs, times the hours in which it
    may: until maintenance, and until the notice is over. `idle_after` are GPU-hours after the jobs,
    `idle_until_empty` those until the last one has left, free GPUs included. The rest is what
    taking the node costs, at once or after the notice, and the work lost without one.
    """

    at_risk: float
    told_at_risk: float
    idle_after: float
    idle_until_empty: float
    interrupted: float
    interrupted_after_notice: float
    lost: float


def _sums(load: _Load, *, until: float, notice: float) -> _Sums:
    told = min(notice, until)
    last = min(load.leaves_in_h, until)
    at_risk = told_at_risk = idle_after = interrupted = after_notice = lost = 0.0
    idle_until_empty = load.free * last
    for job in load.jobs:
        stays = min(job.remaining, until)
        share = job.share * load.scale
        at_risk += job.loss * stays
        told_at_risk += job.loss * min(stays, told)
        idle_after += share * (until - stays)
        idle_until_empty += share * max(0.0, last - stays)
        interrupted += job.interruption
        after_notice += job.interruption if job.remaining > notice else 0.0
        lost += job.since_checkpoint
    return _Sums(
        at_risk, told_at_risk, idle_after, idle_until_empty, interrupted, after_notice, lost
    )


def _load(node: NodeView, jobs: Sequence[JobView], costs: Costs, outlook: Outlook) -> _Load:
    # A dict keeps what was assumed in order and once.
    assumed: dict[str, None] = {}
    size = node.n_gpus
    if size is None:
        size = DEFAULT_NODE_GPUS
        assumed[f"{size} GPUs on the node"] = None
    restart = _restart_hours(costs, outlook.replacement)
    loads = tuple([_one_job(job, size, costs, restart, assumed) for job in jobs])
    busy = sum([one.share for one in loads])
    if outlook.replacement is None and any(not job.n_flexible for job in jobs):
        assumed[f"{costs.wait_minutes:g} min to find another node"] = None
    return _Load(
        size=float(size),
        free=max(0.0, size - busy),
        scale=min(1.0, size / busy) if busy else 1.0,
        jobs=loads,
        job_gpus=sum([one.gpus for one in loads]),
        leaves_in_h=max([one.remaining for one in loads], default=0.0),
        new_loss=(costs.lost_work_minutes + costs.detection_minutes) / 60 + restart,
        assumed=tuple(assumed),
    )


def _one_job(
    job: JobView, node_gpus: int, costs: Costs, restart: float, assumed: dict[str, None]
) -> _OneJob:
    usual = costs.lost_work_minutes / 60
    gpus, age, remaining = _known(job, node_gpus, usual, costs.remaining_hours, assumed)
    # At a later failure the checkpoint is about as old as ever; older only if the job seems to
    # write them rarely. A failure stops an elastic job too, but it waits for no node.
    is_flexible = job.n_flexible > 0
    again = costs.restart_minutes / 60 if is_flexible else restart
    return _OneJob(
        gpus=gpus,
        share=gpus / job.n_nodes,
        remaining=remaining,
        loss=gpus * (max(age, usual) + costs.detection_minutes / 60 + again),
        interruption=gpus * (costs.recall_minutes / 60 if is_flexible else restart),
        since_checkpoint=gpus * age,
    )


def _restart_hours(costs: Costs, replacement: Spare | None) -> float:
    """From a job's interruption until it computes again."""
    if replacement is None:
        return (costs.wait_minutes + costs.restart_minutes) / 60
    if replacement.kind == "standby":
        return costs.standby_restart_minutes / 60
    return (costs.recall_minutes + costs.restart_minutes) / 60


def _known(
    job: JobView, node_gpus: int, usual: float, remaining_hours: float, assumed: dict[str, None]
) -> tuple[float, float, float]:
    """GPUs, checkpoint age and remaining hours of a job, defaults taken and named where unknown."""
    gpus, age, remaining = job.n_gpus, job.checkpoint_age_h, job.remaining_h
    if gpus is None:
        gpus = job.n_nodes * node_gpus
        assumed["whole nodes for jobs of unknown size"] = None
    if age is None:
        age = usual
        assumed[f"checkpoint {60 * usual:.0f} min old"] = None
    if remaining is None:
        remaining = remaining_hours
        assumed[f"{remaining_hours:g} h until its jobs end"] = None
    return float(gpus), age, remaining
