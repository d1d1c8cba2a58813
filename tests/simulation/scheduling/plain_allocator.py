"""The allocator said plainly: all servers looked at, all jobs tried, all choices weighed.

Slow; the fast ones are held against it. No test lives here.
"""

from itertools import product

import numpy as np


def saving(work, base, extra):
    return work / base - work / (base + extra)


def best_saving_by_brute_force(jobs, capacity):
    """Jobs are (work, base workers, most extra workers, GPUs of a worker)."""
    choices = product(*(range(job[2] + 1) for job in jobs))
    fitting = (
        picked
        for picked in choices
        if sum(extra * job[3] for extra, job in zip(picked, jobs, strict=True)) <= capacity
    )
    return max(
        sum(saving(job[0], job[1], extra) for extra, job in zip(picked, jobs, strict=True))
        for picked in fitting
    )


def best_saving_by_table(jobs, capacity):
    """The textbook's multiple-choice knapsack: job by job, GPU by GPU, choice by choice."""
    best = [0.0] * (capacity + 1)
    for work, base, most, gpus in jobs:
        best = [
            max(
                best[room - extra * gpus] + saving(work, base, extra)
                for extra in range(most + 1)
                if extra * gpus <= room
            )
            for room in range(capacity + 1)
        ]
    return best[capacity]


def find_base(servers, n_gpus, pool):
    """Best fit among all servers of a pool: what is free on each chosen one, by kind.

    Returns (GPUs free for base workers, whether only flexible workers are there, GPUs taken) of
    each server, sorted; None: no room.
    """
    gpus = servers.shape.gpus
    whole, rest = divmod(n_gpus * servers.factor(pool), gpus)
    free = sorted(
        (gpus - servers.base_gpus[server], bool(servers.flexible[server]), server)
        for server in range(len(servers.pool))
        if servers.pool[server] == pool
    )
    found = []
    if rest:
        fitting = [one for one in free if rest <= one[0] < gpus]
        if fitting:
            found.append((fitting[0][0], False, rest))
    empty = [one for one in free if one[0] == gpus]
    wanted = [gpus] * whole + [rest] * (1 if rest and not found else 0)
    if len(empty) < len(wanted):
        return None
    taken = zip(empty, wanted, strict=False)
    return sorted([*found, *((one[0], one[1], count) for one, count in taken)])


def kinds(servers, chosen):
    """A fast answer in the words of `find_base`."""
    if chosen is None:
        return None
    gpus = servers.shape.gpus
    return sorted(
        (
            gpus - servers.base_gpus[server],
            # Beside base workers flexible ones make no difference.
            bool(servers.flexible[server]) and not servers.base[server],
            count,
        )
        for server, count in chosen.items()
    )


class PlainQueue:
    """Every waiting job is tried in order, again and again, until none of them starts."""

    def __init__(self, policy):
        self.policy = policy
        self.waiting = []

    def push(self, one):
        self.waiting.append(one)

    def _key(self, one):
        is_fifo = self.policy.order == "fifo"
        return (one.job.submit_s if is_fifo else one.remaining_s, one.job.number)

    def start(self, place, **_):
        for one in sorted(self.waiting, key=self._key):
            if place(one):
                self.waiting.remove(one)
            elif self.policy.is_strict:
                return


def as_columns(jobs):
    columns = np.array(jobs, dtype=float).reshape(-1, 4).T
    names = ("work", "min_workers", "max_extra", "worker_gpus")
    kinds_of = (float, np.int64, np.int64, np.int64)
    return {
        name: column.astype(kind)
        for name, column, kind in zip(names, columns, kinds_of, strict=True)
    }
