"""The simulation: jobs arrive, start, scale, lose lent servers and end.

Jobs start as soon as there is room; lending, reclaim and scaling happen at every action. How jobs
are drawn is in `simulation.scheduling.workload`, what a run shows in `.outcome`.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from features.errors import DataError
from remediation.cluster.state import JobView
from simulation.scheduling.jobs import Job, Progress
from simulation.scheduling.loaning import servers_to_give_back
from simulation.scheduling.policies import Policy
from simulation.scheduling.scaling import place_workers, target_workers
from simulation.scheduling.servers import AWAY, LENT, TRAINING, Servers, Shape
from simulation.scheduling.waiting import Queue

_END: Final = 0
_ARRIVAL: Final = 1
_ACTION: Final = 2


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When things happen.

    Attributes:
        action_s: Seconds between two actions: lending, reclaim, scaling.
        preemption_s: Seconds of work, at base speed, that a preemption costs a job: it saves its
            state, waits, starts elsewhere and loads it.
        horizon_s: Seconds over which jobs arrive and usage is measured.
    """

    action_s: float = 300.0
    preemption_s: float = 63.0
    horizon_s: float = 15 * 86_400.0


class Engine:
    """One run of one policy.

    Args:
        jobs: The jobs, each with its index as its number.
        policy: The policy.
        needed: Servers that inference needs after each action; it repeats itself.
        rng: For the random reclaim.
        shape: The clusters; by default Lyra's.
        timing: When things happen.

    Raises:
        DataError: A job can never start.

    Attributes:
        now_s: Seconds since the start.
        servers: The servers.
        progress: Every job, by number.
        gpu_s: GPU-seconds used in each pool within the horizon.
        reclaimed: Lent servers that were given back.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        policy: Policy,
        needed: npt.NDArray[np.int64],
        rng: np.random.Generator,
        shape: Shape | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.policy = policy
        self.timing = timing or Timing()
        self.servers = Servers(shape or Shape())
        _refuse_giants(jobs, self.servers.shape)
        self.progress = [Progress(job, remaining_s=job.duration_s) for job in jobs]
        self.now_s = 0.0
        self.gpu_s = [0.0, 0.0, 0.0]
        self.reclaimed = 0
        self._needed = [int(count) for count in needed]
        self._rng = rng
        self._queue = Queue(policy)
        self._elastic: dict[int, Progress] = {}
        self._unfinished = len(jobs)
        self._events = [(job.submit_s, _ARRIVAL, job.number, 0) for job in jobs]
        if policy.has_loaning or policy.has_scaling:
            self._events.append((0.0, _ACTION, 0, 0))
        heapq.heapify(self._events)
        self._names = [f"{server:05d}" for server in range(len(self.servers.pool))]

    def run(self, watch: Callable[["Engine"], None] = lambda _: None) -> None:
        """Runs until every job has ended.

        Args:
            watch: Called after every action.
        """
        while self._unfinished:
            now_s, kind, number, turn = heapq.heappop(self._events)
            one = self.progress[number] if kind != _ACTION else None
            if kind == _END and one is not None and one.turn != turn:
                continue
            self._move_clock(now_s)
            if one is None:
                self._act()
                heapq.heappush(self._events, (now_s + self.timing.action_s, _ACTION, 0, 0))
                watch(self)
            elif kind == _ARRIVAL:
                self._wait(one)
                self._start_waiting()
            else:
                self._end(one)
                self._start_waiting()

    def needed_servers(self, index: int) -> int:
        """Servers that inference needs after action `index`; the traffic repeats itself."""
        return self._needed[index % len(self._needed)]

    def _move_clock(self, now_s: float) -> None:
        counted_s = min(now_s, self.timing.horizon_s) - min(self.now_s, self.timing.horizon_s)
        if counted_s > 0.0:
            for pool in (TRAINING, LENT):
                self.gpu_s[pool] += counted_s * self.servers.used[pool]
        self.now_s = now_s

    def _act(self) -> None:
        if self.policy.has_loaning:
            self._loan()
        self._start_waiting()
        if self.policy.has_scaling:
            self._scale()

    # Starting and ending.

    def _wait(self, one: Progress) -> None:
        one.waiting_s = self.now_s
        one.settled_s = self.now_s
        self._queue.push(one)

    def _start_waiting(self) -> None:
        largest, lent = (self.servers.largest_base(pool) for pool in (TRAINING, LENT))
        self._queue.start(self._place, largest=largest, largest_fungible=max(largest, lent))

    def _place(self, one: Progress) -> bool:
        """Starts a job on the training cluster, else, if it may, on lent servers."""
        for pool in (TRAINING, LENT) if one.job.is_fungible else (TRAINING,):
            found = self.servers.find_base(one.job.n_gpus, pool)
            if found is not None:
                self._start(one, found, pool)
                return True
        return False

    def _start(self, one: Progress, base: dict[int, int], pool: int) -> None:
        number = one.job.number
        for server, gpus in base.items():
            self._make_room(server, gpus)
            self.servers.add_base(server, number, gpus)
        one.base = base
        one.queued_s += self.now_s - one.waiting_s
        one.settled_s = self.now_s
        if pool == LENT:
            names = tuple(self._names[server] for server in base)
            one.view = JobView(job_id=str(number), nodes=names)
        if one.job.max_extra:
            self._elastic[number] = one
        self._reschedule(one)

    def _make_room(self, server: int, gpus: int) -> None:
        """Lets flexible workers go until so many GPUs are free."""
        for number in list(self.servers.flexible[server]):
            short = gpus - self.servers.free_gpus(server)
            if short <= 0:
                return
            owner = self.progress[number]
            each = self._worker_gpus(owner, server)
            count = min(owner.flexible[server], -(-short // each))
            self._add_workers(owner, server, -count)
            self._reschedule(owner)

    def _leave(self, one: Progress) -> None:
        """Takes a job off all its servers."""
        number = one.job.number
        one.settle(self.now_s)
        for server in list(one.flexible):
            self._add_workers(one, server, -one.flexible[server])
        for server in one.base:
            self.servers.remove_base(server, number)
        one.base = {}
        one.view = None
        one.turn += 1
        self._elastic.pop(number, None)

    def _end(self, one: Progress) -> None:
        self._leave(one)
        one.remaining_s = 0.0
        one.end_s = self.now_s
        self._unfinished -= 1

    def _reschedule(self, one: Progress) -> None:
        one.turn += 1
        end_s = self.now_s + one.remaining_s / one.rate
        heapq.heappush(self._events, (end_s, _END, one.job.number, one.turn))

    # Lending and giving back.

    def _loan(self) -> None:
        index = round(self.now_s / self.timing.action_s)
        # What is needed at the next action must be empty by then.
        needed = max(self.needed_servers(index), self.needed_servers(index + 1))
        change = self.servers.shape.inference - needed - self.servers.count(LENT)
        if change > 0:
            for server in self.servers.idle(AWAY, change):
                self.servers.move(server, LENT)
        elif change < 0:
            self._give_back(-change)

    def _give_back(self, count: int) -> None:
        if self.policy.reclaim == "lyra":
            idle = self.servers.idle(LENT, count)
            for server in idle:
                self.servers.move(server, AWAY)
            self.reclaimed += len(idle)
            count -= len(idle)
        if not count:
            return
        lent = self.servers.members(LENT)
        views = {self._names[server]: self._views(server) for server in lent}
        chosen = servers_to_give_back(
            self.policy.reclaim, list(views), views, count=count, rng=self._rng
        )
        for name in chosen:
            self._empty(int(name))
            self.servers.move(int(name), AWAY)
        self.reclaimed += len(chosen)

    def _views(self, server: int) -> list[JobView]:
        """Jobs whose base is there; flexible workers cost nothing, so they are not named."""
        views = (self.progress[number].view for number in self.servers.base[server])
        return [view for view in views if view is not None]

    def _empty(self, server: int) -> None:
        for number in list(self.servers.flexible[server]):
            owner = self.progress[number]
            self._add_workers(owner, server, -owner.flexible[server])
            self._reschedule(owner)
        for number in list(self.servers.base[server]):
            one = self.progress[number]
            self._leave(one)
            one.preemptions += 1
            one.remaining_s += self.timing.preemption_s
            self._wait(one)

    # Scaling.

    def _worker_gpus(self, one: Progress, server: int) -> int:
        return one.job.worker_gpus * self.servers.factor(self.servers.pool[server])

    def _add_workers(self, one: Progress, server: int, count: int) -> None:
        """Adds flexible workers, or takes some away; the caller reschedules the job."""
        one.settle(self.now_s)
        held = one.flexible.get(server, 0) + count
        if held:
            one.flexible[server] = held
        else:
            del one.flexible[server]
        one.extra += count
        self.servers.add_flexible(server, one.job.number, count * self._worker_gpus(one, server))

    def _scale(self) -> None:
        """Gives each elastic job the workers that the knapsack allots it, as far as they fit."""
        running = list(self._elastic.values())
        if all(one.extra == one.job.max_extra for one in running):
            return
        for one in running:
            one.settle(self.now_s)
        targets = target_workers(running, room=self.servers.worker_room())
        growing = []
        for one, target in zip(running, targets, strict=True):
            if one.extra > target:
                self._shrink(one, one.extra - target)
            elif one.extra < target:
                growing.append((one, target - one.extra))
        if growing:
            self._grow(growing)

    def _shrink(self, one: Progress, count: int) -> None:
        """Takes workers off training servers first: those on lent ones keep base workers away."""
        for server in sorted(one.flexible):
            taken = min(count, one.flexible[server])
            self._add_workers(one, server, -taken)
            count -= taken
            if not count:
                break
        self._reschedule(one)

    def _grow(self, growing: list[tuple[Progress, int]]) -> None:
        left = growing
        for pool in (LENT, TRAINING):
            left = place_workers(self.servers, left, pool=pool, add=self._add_workers)
        for one, _ in growing:
            self._reschedule(one)


def _refuse_giants(jobs: Sequence[Job], shape: Shape) -> None:
    giants = [job for job in jobs if -(-job.n_gpus // shape.gpus) > shape.training]
    if giants:
        raise DataError(
            f"scheduling: {len(giants)} jobs are larger than the training cluster of "
            f"{shape.training} servers of {shape.gpus} GPUs and would never start, the first with "
            f"{giants[0].n_gpus} GPUs; take them out of the trace"
        )
