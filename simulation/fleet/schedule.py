"""Where and when jobs run: first come first served with backfill, around the nodes' failures.

What jobs ask for is in `simulation.fleet.jobs`; nothing here models a scheduler's policy finely.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

import numpy as np

from simulation.fleet.incidents import Incident, NodeTruth
from simulation.fleet.jobs import WARM_UP_S, Job, draw_jobs
from simulation.fleet.regime import Regime
from simulation.fleet.seeds import Layer, log_uniform, random_stream

PATIENCE_S: Final = 2 * 3600
"""A job of whole nodes that waited this long stops others from overtaking it."""

SURVIVED_FAULTS: Final = ("thermal", "sdc")
"""Faults that slow a job or spoil its results, but do not end it."""

CRASH_SHARE: Final = 0.6
"""Of jobs on a GPU that fails hard, the share that crashes; others hang until the node is down."""


@dataclass(frozen=True)
class Attempt:
    """One run of a job. Times are seconds since the fleet's start.

    Attributes:
        job: The job.
        submit_s: When this attempt was submitted.
        start_s: When it started; null: still waiting at the end.
        end_s: When it ended; null: still running at the end.
        state: End state as the accounting gives it, or RUNNING or PENDING.
        placement: Node index -> slots.
        is_own_crash: It died by an Xid of its own.
    """

    job: Job
    submit_s: int
    start_s: int | None
    end_s: int | None
    state: str
    placement: tuple[tuple[int, tuple[int, ...]], ...]
    is_own_crash: bool = False


class _Kind(IntEnum):
    """Kinds of events, in the order in which those of one second happen."""

    END = 0
    BLOCK = 1
    KILL = 2
    UNBLOCK = 3
    SUBMIT = 4


@dataclass(frozen=True, order=True)
class _Event:
    at_s: int
    kind: _Kind
    order: int
    node: int = field(default=-1, compare=False)
    slot: int | None = field(default=None, compare=False)
    state: str = field(default="", compare=False)
    job: Job | None = field(default=None, compare=False)
    run: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class _Run:
    job: Job
    start_s: int
    placement: tuple[tuple[int, tuple[int, ...]], ...]


class _Cluster:
    """The state of the scheduler between events."""

    def __init__(self, regime: Regime, rng: np.random.Generator) -> None:
        self.regime = regime
        self.rng = rng
        self.free = [list(range(regime.gpus_per_node)) for _ in range(regime.nodes)]
        self.blocked = [0] * regime.nodes
        self.queue: list[Job] = []
        self.running: dict[int, _Run] = {}
        self.attempts: list[Attempt] = []
        self.events: list[_Event] = []
        self.pushed = 0
        self.next_id = 0

    def push(self, at_s: int, kind: _Kind, **what: object) -> None:
        event = _Event(at_s, kind, self.pushed)
        heapq.heappush(self.events, replace(event, **what))  # type: ignore[arg-type]
        self.pushed += 1

    def place(self, job: Job) -> tuple[tuple[int, tuple[int, ...]], ...] | None:
        """Best fit for a part of a node, the lowest free nodes for whole ones."""
        per_node = self.regime.gpus_per_node
        usable = [i for i, free in enumerate(self.free) if free and not self.blocked[i]]
        if job.n_gpus < per_node:
            fits = [i for i in usable if len(self.free[i]) >= job.n_gpus]
            if not fits:
                return None
            best = min(fits, key=lambda i: (len(self.free[i]), i))
            return ((best, tuple(self.free[best][: job.n_gpus])),)
        whole = [i for i in usable if len(self.free[i]) == per_node]
        count = -(-job.n_gpus // per_node)
        if len(whole) < count:
            return None
        return tuple((i, tuple(self.free[i])) for i in whole[:count])

    def start_waiting(self, now: int) -> None:
        """Starts what fits, in order of submission, unless a patient big job comes first."""
        for job in list(self.queue):
            placement = self.place(job)
            if placement is not None:
                self.queue.remove(job)
                self.start(job, now, placement=placement)
            elif job.n_gpus >= self.regime.gpus_per_node and now - job.submit_s > PATIENCE_S:
                return

    def start(
        self, job: Job, now: int, *, placement: tuple[tuple[int, tuple[int, ...]], ...]
    ) -> None:
        for node, slots in placement:
            self.free[node] = [slot for slot in self.free[node] if slot not in slots]
        self.running[self.next_id] = _Run(job, now, placement)
        self.push(now + job.duration_s, _Kind.END, run=self.next_id)
        self.next_id += 1

    def stop(self, run_id: int, now: int, *, state: str, is_own: bool) -> None:
        run = self.running.pop(run_id)
        for node, slots in run.placement:
            self.free[node] = sorted([*self.free[node], *slots])
        is_crash = is_own and run.job.is_crash
        self.attempts.append(
            Attempt(run.job, run.job.submit_s, run.start_s, now, state, run.placement, is_crash)
        )
        if not is_own:
            self.resubmit(run, now, is_requeue=state == "NODE_FAIL")

    def resubmit(self, run: _Run, now: int, *, is_requeue: bool) -> None:
        """Slurm requeues what a node took down, under the same id; users resubmit crashes."""
        lost = self.rng.uniform(0, self.regime.workload.checkpoint_min * 60)
        done = max(0.0, now - run.start_s - lost)
        wait = int(log_uniform(self.rng, self.regime.workload.restart_min) * 60)
        again = replace(
            run.job,
            job_id=run.job.job_id if is_requeue else 90_000 + self.next_id,
            submit_s=now + wait,
            duration_s=max(60, int(run.job.duration_s - done)),
        )
        self.push(now + wait, _Kind.SUBMIT, job=again)

    def kill(self, event: _Event) -> None:
        """Ends the jobs on a slot, or all jobs of a node."""
        hit = [
            run_id
            for run_id, run in self.running.items()
            for node, slots in run.placement
            if node == event.node and (event.slot is None or event.slot in slots)
        ]
        for run_id in hit:
            self.stop(run_id, event.at_s, state=event.state, is_own=False)


def schedule_jobs(regime: Regime, truths: Sequence[NodeTruth], *, seed: int) -> tuple[Attempt, ...]:
    """Runs the regime's jobs on nodes that fail when the truth says so.

    Args:
        regime: The fleet's parameters.
        truths: Every node's truth, by index.
        seed: The fleet's seed.

    Returns:
        Attempts that ended, run or wait at the fleet's end, by time of submission.
    """
    cluster = _Cluster(regime, random_stream(seed, Layer.JOBS, 1))
    for job in draw_jobs(regime, seed=seed):
        cluster.push(job.submit_s, _Kind.SUBMIT, job=job)
    for truth in truths:
        for incident in truth.incidents:
            _push_incident(cluster, incident)
        for work in truth.planned:
            node = truth.node.index
            cluster.push(work.drain_s, _Kind.BLOCK, node=node)
            cluster.push(work.work_s, _Kind.KILL, node=node, state="CANCELLED")
            cluster.push(work.end_s, _Kind.UNBLOCK, node=node)
    end_s = int(regime.days * 86400)
    while cluster.events and cluster.events[0].at_s < end_s:
        event = heapq.heappop(cluster.events)
        _apply(cluster, event)
        is_last_of_second = not cluster.events or cluster.events[0].at_s > event.at_s
        if is_last_of_second:
            cluster.start_waiting(event.at_s)
    return _collect(cluster)


def _push_incident(cluster: _Cluster, incident: Incident) -> None:
    node = incident.node
    cluster.push(incident.onset_s, _Kind.BLOCK, node=node)
    is_hard = incident.slot is not None and incident.fault.fault_type not in SURVIVED_FAULTS
    if is_hard:
        is_crash = cluster.rng.random() < CRASH_SHARE or incident.fault.node_state == "DRAIN"
        at_s = incident.onset_s + int(cluster.rng.integers(1, 30)) if is_crash else None
        if at_s is not None and at_s < incident.detected_s:
            cluster.push(at_s, _Kind.KILL, node=node, slot=incident.slot, state="FAILED")
    cluster.push(incident.grace_s, _Kind.KILL, node=node, state="NODE_FAIL")
    cluster.push(incident.end_s, _Kind.UNBLOCK, node=node)


def _apply(cluster: _Cluster, event: _Event) -> None:
    if event.kind is _Kind.SUBMIT and event.job is not None:
        cluster.queue.append(event.job)
    elif event.kind is _Kind.END and event.run in cluster.running:
        state = cluster.running[event.run].job.end_state
        cluster.stop(event.run, event.at_s, state=state, is_own=True)
    elif event.kind is _Kind.BLOCK:
        cluster.blocked[event.node] += 1
    elif event.kind is _Kind.UNBLOCK:
        cluster.blocked[event.node] -= 1
    elif event.kind is _Kind.KILL:
        cluster.kill(event)


def _collect(cluster: _Cluster) -> tuple[Attempt, ...]:
    """Ended attempts within the record, and what runs or waits when it ends."""
    ended = [a for a in cluster.attempts if a.end_s is not None and a.end_s > -WARM_UP_S / 24]
    running = [
        Attempt(run.job, run.job.submit_s, run.start_s, None, "RUNNING", run.placement)
        for run in cluster.running.values()
    ]
    waiting = [Attempt(job, job.submit_s, None, None, "PENDING", ()) for job in cluster.queue]
    return tuple(sorted([*ended, *running, *waiting], key=lambda a: (a.submit_s, a.job.job_id)))
