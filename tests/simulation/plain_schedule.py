"""A scheduler that scans everything at every event: the slow oracle of the indexed one.

Only small fleets: it is quadratic in nodes and jobs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from simulation.fleet.cluster import PATIENCE_S
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.jobs import FIRST_JOB_ID, Job, draw_jobs
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import CRASH_SHARE, SURVIVED_FAULTS, Attempt
from simulation.fleet.seeds import Layer, log_uniform, random_stream

Place = tuple[int, int, int]
"""Node, slot, instance (0 on whole GPUs)."""


@dataclass
class _Event:
    at_s: int
    rank: int  # END, BLOCK, KILL, UNBLOCK, SUBMIT
    order: int
    what: object


@dataclass
class _Run:
    number: int
    job: Job
    start_s: int
    places: list[Place]


@dataclass
class _Plain:
    regime: Regime
    truths: Sequence[NodeTruth]
    rng: np.random.Generator
    next_id: int
    used: set[Place] = field(default_factory=set)
    blocked: list[int] = field(default_factory=list)
    queue: list[Job] = field(default_factory=list)
    running: list[_Run] = field(default_factory=list)
    events: list[_Event] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    n_events: int = 0
    n_runs: int = 0

    def note(self, at_s: int, rank: int, what: object) -> None:
        self.events.append(_Event(at_s, rank, self.n_events, what))
        self.n_events += 1

    def places(self, node: int) -> list[Place]:
        mig = self.regime.hardware.mig
        instances = mig.instances if mig and self.truths[node].node.is_mig else 1
        slots = range(self.regime.gpus_per_node)
        return [(node, slot, i) for slot in slots for i in range(instances)]

    def free(self, job: Job) -> dict[int, list[Place]]:
        """Free places of every node that could take a part of the job."""
        found = {}
        for truth in self.truths:
            node = truth.node.index
            if truth.node.is_mig == job.is_instance and self.blocked.count(node) == 0:
                found[node] = [place for place in self.places(node) if place not in self.used]
        return found

    def place(self, job: Job) -> list[Place] | None:
        free, per_node = self.free(job), self.regime.gpus_per_node
        if job.is_instance or job.n_gpus < per_node:
            fits = [(len(places), node) for node, places in free.items()]
            fits = [fit for fit in fits if fit[0] >= job.n_gpus]
            return free[min(fits)[1]][: job.n_gpus] if fits else None
        whole = [node for node, places in free.items() if len(places) == per_node]
        count = -(-job.n_gpus // per_node)
        stretches = [whole[i : i + count] for i in range(len(whole) - count + 1)]
        if not stretches:
            return None
        closest = min(stretches, key=lambda nodes: (nodes[-1] - nodes[0], nodes[0]))
        return [place for node in closest for place in free[node]]

    def start_waiting(self, now: int) -> None:
        has_patient = False
        for job in list(self.queue):
            is_big = job.n_gpus >= self.regime.gpus_per_node
            if is_big and has_patient:
                continue
            places = self.place(job)
            if places is not None:
                self.queue.remove(job)
                self.used.update(places)
                self.running.append(_Run(self.n_runs, job, now, places))
                self.note(now + job.duration_s, 0, self.n_runs)
                self.n_runs += 1
            elif is_big and now - job.submit_s > PATIENCE_S:
                has_patient = True

    def stop(self, run: _Run, now: int, state: str, *, is_crash: bool = False) -> None:
        self.running.remove(run)
        self.used.difference_update(run.places)
        self.attempts.append(_attempt(run, now, state, is_crash=is_crash))

    def kill(self, node: int, slot: int | None, state: str, now: int) -> None:
        for run in list(self.running):
            if any(n == node and slot in (None, s) for n, s, _ in run.places):
                self.stop(run, now, state)
                lost = self.rng.uniform(0, self.regime.workload.checkpoint_min * 60)
                done = max(0.0, now - run.start_s - lost)
                wait = int(log_uniform(self.rng, self.regime.workload.restart_min) * 60)
                again = replace(
                    run.job, submit_s=now + wait, duration_s=max(60, int(run.job.duration_s - done))
                )
                if state != "NODE_FAIL":
                    again = replace(again, job_id=self.next_id)
                    self.next_id += 1
                self.note(now + wait, 4, again)

    def happen(self, event: _Event) -> None:
        what = event.what
        if event.rank == 0:
            for run in [run for run in self.running if run.number == what]:
                self.stop(run, event.at_s, run.job.end_state, is_crash=run.job.is_crash)
        elif isinstance(what, tuple):
            self.kill(*what, event.at_s)
        elif isinstance(what, Job):
            self.queue.append(what)
        elif isinstance(what, int):
            (self.blocked.append if event.rank == 1 else self.blocked.remove)(what)

    def next_event(self, end_s: int) -> _Event | None:
        ahead = [event for event in self.events if event.at_s < end_s]
        return min(ahead, key=attrgetter("at_s", "rank", "order"), default=None)


def _attempt(run: _Run, end_s: int | None, state: str, *, is_crash: bool = False) -> Attempt:
    job, by_node = run.job, dict[int, list[int]]()
    for node, slot, _ in run.places:
        by_node.setdefault(node, []).append(slot)
    placement = tuple((node, tuple(slots)) for node, slots in by_node.items())
    instance = run.places[0][2] if job.is_instance else None
    return Attempt(job, job.submit_s, run.start_s, end_s, state, placement, is_crash, instance)


def _note_truth(plain: _Plain, truth: NodeTruth) -> None:
    node = truth.node.index
    for incident in truth.incidents:
        if incident.is_noticed:
            plain.note(incident.detected_s, 1, node)
        is_survived = incident.is_silent or incident.fault.fault_type in SURVIVED_FAULTS
        if incident.slot is not None and not is_survived:
            is_crash = plain.rng.random() < CRASH_SHARE or incident.fault.node_state == "DRAIN"
            at_s = incident.onset_s + int(plain.rng.integers(1, 30))
            if is_crash and (at_s < incident.detected_s or not incident.is_noticed):
                plain.note(at_s, 2, (node, incident.slot, "FAILED"))
        if incident.is_noticed:
            plain.note(incident.grace_s, 2, (node, None, "NODE_FAIL"))
            plain.note(incident.end_s, 3, node)
    for work in truth.planned:
        plain.note(work.drain_s, 1, node)
        if work.what != "hold":
            plain.note(work.work_s, 2, (node, None, "CANCELLED"))
        plain.note(work.end_s, 3, node)


def _all(plain: _Plain) -> Iterator[Attempt]:
    yield from plain.attempts
    for run in plain.running:
        yield _attempt(run, None, "RUNNING")
    for job in plain.queue:
        yield Attempt(job, job.submit_s, None, None, "PENDING", ())


def _numbered(attempts: list[Attempt]) -> Iterator[Attempt]:
    """Jobs numbered as they were submitted first."""
    for attempt in attempts:
        earlier = {a.job.job_id for a in attempts[: attempts.index(_first(attempt, attempts))]}
        yield replace(attempt, job=replace(attempt.job, job_id=FIRST_JOB_ID + len(earlier)))


def _first(attempt: Attempt, attempts: list[Attempt]) -> Attempt:
    return next(a for a in attempts if a.job.job_id == attempt.job.job_id)


def schedule_plainly(
    regime: Regime, truths: Sequence[NodeTruth], *, seed: int
) -> tuple[Attempt, ...]:
    """What `simulation.fleet.schedule.schedule_jobs` gives, found without any index."""
    jobs = draw_jobs(regime, seed=seed)
    rng = random_stream(seed, Layer.JOBS, 1)
    plain = _Plain(regime, truths, rng, next_id=FIRST_JOB_ID + len(jobs))
    for job in jobs:
        plain.note(job.submit_s, 4, job)
    for truth in truths:
        _note_truth(plain, truth)
    end_s = int(regime.days * 86400)
    event = plain.next_event(end_s)
    while event is not None:
        plain.events.remove(event)
        plain.happen(event)
        after = plain.next_event(end_s)
        if after is None or after.at_s > event.at_s:
            plain.start_waiting(event.at_s)
            after = plain.next_event(end_s)
        event = after
    return tuple(_numbered(sorted(_all(plain), key=lambda a: (a.submit_s, a.job.job_id))))
