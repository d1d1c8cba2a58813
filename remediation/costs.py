"""Expected cost in GPU-hours of each action on a node, from its score and the jobs on it.

Which action is chosen, and whether it may be taken, is decided elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from remediation.cluster import JobView, NodeView
from remediation.preemption import server_preemption_cost
from remediation.site import Costs

DEFAULT_NODE_GPUS: Final = 8
"""GPUs of a node whose inventory is unknown: the size of the common HGX board."""


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """What each course of action is expected to cost.

    Attributes:
        waiting: GPU-hours of doing nothing.
        acting: GPU-hours by action that touches the node.
        preemption: Lyra's server preemption cost, in jobs.
        job_gpus: GPUs of all jobs on the node, wherever they run.
        free_gpus: GPUs of the node that no job uses.
        assumed: What was unknown, with the value taken for it, in words.
    """

    waiting: float
    acting: Mapping[str, float]
    preemption: float
    job_gpus: float
    free_gpus: float
    assumed: tuple[str, ...]


def weigh(
    node: NodeView, jobs: Sequence[JobView], *, score: float, horizon_h: int, costs: Costs
) -> Weighing:
    """Weighs every action on a node against waiting.

    A failure hits the whole of every job on the node: each loses the work since its last
    checkpoint, hangs until noticed, and restarts, on all its GPUs. Its onset is taken as uniform
    over the horizon, so a job that leaves after t hours bears t / H of the risk. Free GPUs are
    taken to be filled with new one-node jobs unless the node is cordoned. What a drain interrupts
    counts in full and not by Lyra's 1 / servers, for one drained node interrupts the whole job;
    Lyra's cost ranks nodes whose benefit is equal.

    Args:
        node: The node.
        jobs: Running jobs that use it.
        score: Calibrated probability of a failure within the horizon.
        horizon_h: The horizon.
        costs: The site's costs.

    Returns:
        GPU-hours, each including the repair with the probability of the failure.
    """
    load = _load(node, jobs, costs)
    hours = float(horizon_h)
    restart = costs.restart_minutes / 60
    notice = costs.notice_minutes / 60
    overhead = costs.detection_minutes / 60 + restart
    at_risk = sum(n * (late + overhead) for n, _, late in load.jobs)
    new_at_risk = load.free * (costs.lost_work_minutes / 60 + overhead)
    repair = score * load.size * costs.planned_repair_hours
    out = load.size * costs.drain_hours + repair
    interrupted = restart * load.job_gpus
    # Whatever waits for jobs leaves them the risk until they end.
    until_empty = score * at_risk * min(1.0, load.leaves_after / hours)
    idle_after = load.busy * max(0.0, hours - load.leaves_after)
    return Weighing(
        waiting=score * (at_risk + new_at_risk + load.size * costs.repair_hours),
        acting={
            # A cordon lasts as long as the score does; a drained node is checked and returns.
            "cordon": until_empty + load.free * hours + idle_after + repair,
            "drain_after_jobs": until_empty + load.free * min(load.leaves_after, hours) + out,
            "checkpoint_then_drain": score * at_risk * min(1.0, notice / hours)
            + interrupted
            + load.free * notice
            + out,
            "drain_now": interrupted + sum(n * age for n, age, _ in load.jobs) + out,
        },
        preemption=server_preemption_cost(jobs),
        job_gpus=load.job_gpus,
        free_gpus=load.free,
        assumed=load.assumed,
    )


@dataclass(frozen=True, kw_only=True)
class _Load:
    """What is on a node: GPUs, and per job its GPUs and hours lost now and at a later failure."""

    size: int
    busy: float
    jobs: tuple[tuple[float, float, float], ...]
    leaves_after: float
    assumed: tuple[str, ...]

    @property
    def free(self) -> float:
        return self.size - self.busy

    @property
    def job_gpus(self) -> float:
        return sum(n for n, _, _ in self.jobs)


def _load(node: NodeView, jobs: Sequence[JobView], costs: Costs) -> _Load:
    assumed: list[str] = []
    size = node.n_gpus
    if size is None:
        size = DEFAULT_NODE_GPUS
        assumed.append(f"{size} GPUs on the node")
    busy = 0.0
    losses = []
    usual = costs.lost_work_minutes / 60
    for job in jobs:
        n_gpus = _job_gpus(job, size, assumed)
        age = _age(job, usual, assumed)
        busy += n_gpus / len(set(job.nodes))
        # At a later failure the checkpoint is about as old as ever; older only if the job seems
        # to write them rarely.
        losses.append((n_gpus, age, max(age, usual)))
    leaves_after = _remaining(jobs, costs.remaining_hours, assumed)
    return _Load(
        size=size,
        busy=min(float(size), busy),
        jobs=tuple(losses),
        leaves_after=leaves_after,
        assumed=tuple(dict.fromkeys(assumed)),
    )


def _job_gpus(job: JobView, node_gpus: int, assumed: list[str]) -> float:
    if job.n_gpus is not None:
        return float(job.n_gpus)
    assumed.append("whole nodes for jobs of unknown size")
    return float(len(set(job.nodes)) * node_gpus)


def _age(job: JobView, default: float, assumed: list[str]) -> float:
    if job.checkpoint_age_h is not None:
        return job.checkpoint_age_h
    assumed.append(f"checkpoint {60 * default:.0f} min old")
    return default


def _remaining(jobs: Sequence[JobView], default: float, assumed: list[str]) -> float:
    """Hours until the last job has left; 0 where there is none."""
    if any(job.remaining_h is None for job in jobs):
        assumed.append(f"{default:g} h until its jobs end")
    return max((default if job.remaining_h is None else job.remaining_h for job in jobs), default=0)
