"""A cluster as its scheduler sees it: free places, the queue, and what runs where, all indexed.

When jobs come and nodes fail is in `simulation.fleet.schedule`.

A place is a slot or, on nodes with partitioned GPUs, an instance of one. A pass over the queue
looks at one job per size: once a size does not fit, it fits no later job of the pass either.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulation.fleet.jobs import Job
from simulation.fleet.regime import Regime

PATIENCE_S: Final = 2 * 3600
"""A job of whole nodes that waited this long stops other such jobs from overtaking it."""

Places = tuple[tuple[int, tuple[int, ...]], ...]
"""Node index -> its places, for each node of a run."""


@dataclass(frozen=True, slots=True)
class Run:
    """A job that runs. Times are seconds since the fleet's start."""

    job: Job
    start_s: int
    places: Places


class Rooms:
    """Free places of nodes of one kind: whole GPUs, or instances."""

    def __init__(self, is_here: np.ndarray, *, per_node: int) -> None:
        self.per_node = per_node
        self._all = tuple(range(per_node))
        self._free = [self._all if here else () for here in is_here]
        self._blocks = np.zeros(is_here.size, dtype=int)
        self._open = np.where(is_here, per_node, 0).astype(np.int16)

    def find(self, count: int) -> Places | None:
        """Best fit for a part of a node; the closest stretch of free nodes for whole ones.

        Nodes of a rack have successive numbers, and so have the racks of a row.
        """
        if count < self.per_node:
            rest = np.where(self._open >= count, self._open, self.per_node + 1)
            node = int(rest.argmin())
            return ((node, self._free[node][:count]),) if self._open[node] >= count else None
        n_nodes = -(-count // self.per_node)
        whole = np.flatnonzero(self._open == self.per_node)
        if whole.size < n_nodes:
            return None
        first = int((whole[n_nodes - 1 :] - whole[: whole.size - n_nodes + 1]).argmin())
        return tuple((node, self._all) for node in whole[first : first + n_nodes].tolist())

    def take(self, places: Places) -> None:
        """Occupies places."""
        for node, taken in places:
            left = tuple(place for place in self._free[node] if place not in taken)
            self._set(node, left if len(taken) < self.per_node else ())

    def give_back(self, places: Places) -> None:
        """Frees places."""
        for node, freed in places:
            whole = len(freed) == self.per_node
            self._set(node, self._all if whole else tuple(sorted((*self._free[node], *freed))))

    def block(self, node: int, step: int) -> None:
        """Takes a node out of service for new jobs (1), or one reason for that away (-1)."""
        self._blocks[node] += step
        self._set(node, self._free[node])

    def _set(self, node: int, free: tuple[int, ...]) -> None:
        self._free[node] = free
        self._open[node] = 0 if self._blocks[node] else len(free)


class Queue:
    """Waiting jobs, in order of submission within each size."""

    def __init__(self) -> None:
        self._by_size: dict[tuple[bool, int], deque[tuple[int, Job]]] = defaultdict(deque)
        self._seen = 0
        self.waiting = 0

    def add(self, job: Job) -> None:
        """Puts a job at the end."""
        self._by_size[job.is_instance, job.n_gpus].append((self._seen, job))
        self._seen += 1
        self.waiting += 1

    def heads(self) -> list[tuple[int, tuple[bool, int]]]:
        """The first job of each size, as a heap of (order, size)."""
        heads = [(line[0][0], size) for size, line in self._by_size.items() if line]
        heapq.heapify(heads)
        return heads

    def first(self, size: tuple[bool, int]) -> Job:
        """The first job of a size."""
        return self._by_size[size][0][1]

    def take(self, size: tuple[bool, int]) -> int | None:
        """Removes the first job of a size; gives the order of the next one."""
        line = self._by_size[size]
        line.popleft()
        self.waiting -= 1
        return line[0][0] if line else None

    def __iter__(self) -> Iterator[Job]:
        return (job for line in self._by_size.values() for _, job in line)


class Cluster:
    """The state of a cluster between events."""

    def __init__(self, regime: Regime, is_mig: np.ndarray) -> None:
        mig = regime.hardware.mig
        self.instances = mig.instances if mig else 1
        self._per_node = regime.gpus_per_node
        self._rooms = {
            False: Rooms(~is_mig, per_node=self._per_node),
            True: Rooms(is_mig, per_node=self._per_node * self.instances),
        }
        self._is_mig = is_mig.tolist()
        self._on_node: list[set[int]] = [set() for _ in self._is_mig]
        self._started = 0
        self.queue = Queue()
        self.running: dict[int, Run] = {}

    def block(self, node: int, step: int) -> None:
        """Takes a node out of service for new jobs (1), or one reason for that away (-1)."""
        self._rooms[self._is_mig[node]].block(node, step)

    def start_waiting(self, now: int) -> Iterator[tuple[int, Run]]:
        """Starts what fits, in order of submission.

        Once a job of whole nodes has waited for long, no other such job passes it; parts of nodes
        are filled all the same.

        Args:
            now: Second of the fleet.

        Yields:
            Number of each run, and the run.
        """
        heads = self.queue.heads() if self.queue.waiting else []
        has_patient = False
        while heads:
            _, size = heapq.heappop(heads)
            job = self.queue.first(size)
            is_big = job.n_gpus >= self._per_node
            if is_big and has_patient:
                continue
            places = self._rooms[job.is_instance].find(job.n_gpus)
            if places is not None:
                after = self.queue.take(size)
                if after is not None:
                    heapq.heappush(heads, (after, size))
                yield self._start(job, now, places)
            elif is_big and now - job.submit_s > PATIENCE_S:
                has_patient = True

    def _start(self, job: Job, now: int, places: Places) -> tuple[int, Run]:
        self._rooms[job.is_instance].take(places)
        number, run = self._started, Run(job, now, places)
        self._started += 1
        self.running[number] = run
        for node, _ in places:
            self._on_node[node].add(number)
        return number, run

    def stop(self, number: int) -> Run:
        """Ends a run and frees its places."""
        run = self.running.pop(number)
        self._rooms[run.job.is_instance].give_back(run.places)
        for node, _ in run.places:
            self._on_node[node].discard(number)
        return run

    def runs_on(self, node: int, slot: int | None) -> list[int]:
        """Numbers of the runs on a node, or on one of its GPUs; the earliest first."""
        per_slot = self.instances if self._is_mig[node] else 1

        def uses(run: Run) -> bool:
            places = next(places for place, places in run.places if place == node)
            return any(place // per_slot == slot for place in places)

        numbers = sorted(self._on_node[node])
        return [n for n in numbers if slot is None or uses(self.running[n])]
