"""Where and when jobs run: first come first served with backfill, around the nodes' failures.

What jobs ask for is in `simulation.fleet.jobs`, free places and the queue are in
`simulation.fleet.cluster`; nothing here models a scheduler's policy finely.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np

from simulation.fleet.cluster import Cluster, Places, Run
from simulation.fleet.incidents import Incident, NodeTruth
from simulation.fleet.jobs import FIRST_JOB_ID, Job, draw_jobs
from simulation.fleet.regime import Regime
from simulation.fleet.seeds import Layer, log_uniform, random_stream

SURVIVED_FAULTS: Final = ("thermal",)
"""Faults that slow a job but do not end it."""

CRASH_SHARE: Final = 0.6
"""Of jobs on a GPU that fails hard, the share that crashes; others hang until the node is down."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job. Times are seconds since the fleet's start.

    Attributes:
        job: The job, with the number that the accounting gives it.
        submit_s: When this attempt was submitted.
        start_s: When it started; null: still waiting at the end.
        end_s: When it ended; null: still running at the end.
        state: End state as the accounting gives it, or RUNNING or PENDING.
        placement: Node index -> slots.
        is_own_crash: It died by an Xid of its own.
        instance: Number of its instance of a partitioned GPU; null: it has whole GPUs.
    """

    job: Job
    submit_s: int
    start_s: int | None
    end_s: int | None
    state: str
    placement: Places
    is_own_crash: bool = False
    instance: int | None = None


class _Kind(IntEnum):
    """Kinds of events, in the order in which those of one second happen."""

    END = 0
    BLOCK = 1
    KILL = 2
    UNBLOCK = 3
    SUBMIT = 4


class _Timeline:
    """What happens to a cluster, by time; what happens in one second, by kind and as noted."""

    def __init__(self, cluster: Cluster, regime: Regime, rng: np.random.Generator) -> None:
        self.cluster = cluster
        self.workload = regime.workload
        self.rng = rng
        self.attempts: list[Attempt] = []
        self.next_id = FIRST_JOB_ID
        self._events: list[tuple[int, _Kind, int, Any]] = []
        self._noted = 0

    def note(self, at_s: int, kind: _Kind, what: Any) -> None:
        """Notes an event to come."""
        heapq.heappush(self._events, (at_s, kind, self._noted, what))
        self._noted += 1

    def note_incident(self, incident: Incident) -> None:
        """A failed GPU may end its job at once; the node gives up the others later.

        Jobs may start on it until somebody knows: they hang with the others.
        """
        node = incident.node
        if incident.is_noticed:
            self.note(incident.detected_s, _Kind.BLOCK, node)
        is_survived = incident.is_silent or incident.fault.fault_type in SURVIVED_FAULTS
        if incident.slot is not None and not is_survived:
            is_crash = self.rng.random() < CRASH_SHARE or incident.fault.node_state == "DRAIN"
            at_s = incident.onset_s + int(self.rng.integers(1, 30))
            if is_crash and (at_s < incident.detected_s or not incident.is_noticed):
                self.note(at_s, _Kind.KILL, (node, incident.slot, "FAILED"))
        if incident.is_noticed:
            self.note(incident.grace_s, _Kind.KILL, (node, None, "NODE_FAIL"))
            self.note(incident.end_s, _Kind.UNBLOCK, node)

    def run_until(self, end_s: int) -> None:
        """Lets everything before a second happen."""
        while self._events and self._events[0][0] < end_s:
            at_s, kind, _, what = heapq.heappop(self._events)
            self._happen(at_s, kind, what)
            is_last_of_second = not self._events or self._events[0][0] > at_s
            if is_last_of_second:
                for number, run in self.cluster.start_waiting(at_s):
                    self.note(at_s + run.job.duration_s, _Kind.END, number)

    def _happen(self, at_s: int, kind: _Kind, what: Any) -> None:
        if kind is _Kind.SUBMIT:
            self.cluster.queue.add(what)
        elif kind is _Kind.END and what in self.cluster.running:
            run = self.cluster.stop(what)
            state = run.job.end_state
            self._keep(run, end_s=at_s, state=state, is_own_crash=run.job.is_crash)
        elif kind is _Kind.KILL:
            node, slot, state = what
            for number in self.cluster.runs_on(node, slot):
                run = self.cluster.stop(number)
                self._keep(run, end_s=at_s, state=state)
                self._resubmit(run, at_s, is_requeue=state == "NODE_FAIL")
        elif kind in (_Kind.BLOCK, _Kind.UNBLOCK):
            self.cluster.block(what, 1 if kind is _Kind.BLOCK else -1)

    def _resubmit(self, run: Run, now: int, *, is_requeue: bool) -> None:
        """Slurm requeues what a node took down, under the same id; users resubmit crashes."""
        lost = self.rng.uniform(0, self.workload.checkpoint_min * 60)
        done = max(0.0, now - run.start_s - lost)
        submit_s = now + int(log_uniform(self.rng, self.workload.restart_min) * 60)
        again = replace(
            run.job,
            job_id=run.job.job_id if is_requeue else self.next_id,
            submit_s=submit_s,
            duration_s=max(60, int(run.job.duration_s - done)),
        )
        self.next_id += not is_requeue
        self.note(submit_s, _Kind.SUBMIT, again)

    def _keep(self, run: Run, *, end_s: int | None, state: str, is_own_crash: bool = False) -> None:
        placement, instance = run.places, None
        if run.job.is_instance:
            ((node, (place,)),) = run.places
            slot, instance = divmod(place, self.cluster.instances)
            placement = ((node, (slot,)),)
        times = (run.job.submit_s, run.start_s, end_s)
        self.attempts.append(Attempt(run.job, *times, state, placement, is_own_crash, instance))

    def collect(self) -> tuple[Attempt, ...]:
        """All attempts, with those that run or wait now."""
        for run in self.cluster.running.values():
            self._keep(run, end_s=None, state="RUNNING")
        for job in self.cluster.queue:
            self.attempts.append(Attempt(job, job.submit_s, None, None, "PENDING", ()))
        return _numbered(self.attempts)


def _numbered(attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """Attempts by submission, jobs numbered in that order; one requeued keeps its number."""
    ordered = sorted(attempts, key=lambda attempt: (attempt.submit_s, attempt.job.job_id))
    first = dict.fromkeys(attempt.job.job_id for attempt in ordered)
    number = {old: FIRST_JOB_ID + i for i, old in enumerate(first)}
    return tuple(
        replace(attempt, job=replace(attempt.job, job_id=number[attempt.job.job_id]))
        for attempt in ordered
    )


def schedule_jobs(regime: Regime, truths: Sequence[NodeTruth], *, seed: int) -> tuple[Attempt, ...]:
    """Runs the regime's jobs on nodes that fail when the truth says so.

    Jobs that run at the fleet's start are placed in the order in which they came. A drained node
    takes no new jobs. What still runs on it when its work begins is ended, unless it is only held
    back: then it may finish.

    Args:
        regime: The fleet's parameters.
        truths: Every node's truth, by index.
        seed: The fleet's seed.

    Returns:
        Attempts that ended, run or wait at the fleet's end, by time of submission.
    """
    cluster = Cluster(regime, np.array([truth.node.is_mig for truth in truths], dtype=bool))
    timeline = _Timeline(cluster, regime, random_stream(seed, Layer.JOBS, 1))
    jobs = draw_jobs(regime, seed=seed)
    for job in jobs:
        timeline.note(job.submit_s, _Kind.SUBMIT, job)
    timeline.next_id += len(jobs)
    for truth in truths:
        for incident in truth.incidents:
            timeline.note_incident(incident)
        for work in truth.planned:
            node = truth.node.index
            timeline.note(work.drain_s, _Kind.BLOCK, node)
            if work.what != "hold":
                timeline.note(work.work_s, _Kind.KILL, (node, None, "CANCELLED"))
            timeline.note(work.end_s, _Kind.UNBLOCK, node)
    timeline.run_until(int(regime.days * 86400))
    return timeline.collect()


def attempts_by_node(attempts: Iterable[Attempt], nodes: int) -> tuple[tuple[Attempt, ...], ...]:
    """Which runs of jobs used which node, found in one pass.

    Args:
        attempts: Runs of jobs.
        nodes: Number of nodes.

    Returns:
        For each node, by index, its runs by start.
    """
    found: list[list[tuple[int, int, Attempt]]] = [[] for _ in range(nodes)]
    for attempt in attempts:
        if attempt.start_s is not None:
            for node, _ in attempt.placement:
                found[node].append((attempt.start_s, len(found[node]), attempt))
    return tuple(tuple(attempt for *_, attempt in sorted(runs)) for runs in found)
