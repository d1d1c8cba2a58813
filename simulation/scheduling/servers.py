"""Servers and the GPUs taken on them: best fit for base workers, flexible ones apart.

Who runs and when is in `simulation.scheduling.engine`.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Final

TRAINING: Final = 0
LENT: Final = 1
AWAY: Final = 2
"""An inference server that is not lent."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The two clusters; by default those of Lyra's evaluation.

    Attributes:
        training: Training servers, numbered from 0.
        inference: Inference servers, numbered after them.
        gpus: GPUs of a server.
        lent_per_gpu: Inference GPUs that do the work of one training GPU.
    """

    training: int = 443
    inference: int = 520
    gpus: int = 8
    lent_per_gpu: int = 3

    @property
    def training_gpus(self) -> int:
        """GPUs of the training cluster."""
        return self.training * self.gpus


class Servers:
    """The servers that jobs may use, by what base workers leave free.

    Base workers count flexible ones as absent: those give way. Best fit on what base workers leave
    free keeps base workers together, and servers that are idle or have flexible workers only are
    taken last, idle ones first.

    Attributes:
        base: GPUs taken by base workers, by job, of each server.
        flexible: GPUs taken by flexible workers, by job, of each server.
        pool: TRAINING, LENT or AWAY, of each server.
        base_gpus: GPUs taken by base workers, of each server.
        flexible_gpus: GPUs taken by flexible workers, of each server.
        used: GPUs taken in each pool.
    """

    def __init__(self, shape: Shape) -> None:
        n = shape.training + shape.inference
        self.shape = shape
        self.base: list[dict[int, int]] = [{} for _ in range(n)]
        self.flexible: list[dict[int, int]] = [{} for _ in range(n)]
        self.base_gpus = [0] * n
        self.flexible_gpus = [0] * n
        self.used = [0, 0, 0]
        self.pool = [TRAINING] * shape.training + [AWAY] * shape.inference
        # Ordered sets: servers by GPUs free for base workers; flexible-only ones in the last.
        self._by_free: list[list[dict[int, None]]] = [
            [{} for _ in range(shape.gpus + 2)] for _ in range(3)
        ]
        for server in range(n):
            self._by_free[self.pool[server]][shape.gpus][server] = None

    def factor(self, pool: int) -> int:
        """GPUs that do there the work of one training GPU."""
        return 1 if pool == TRAINING else self.shape.lent_per_gpu

    def free_gpus(self, server: int) -> int:
        """GPUs that nobody uses."""
        return self.shape.gpus - self.base_gpus[server] - self.flexible_gpus[server]

    def members(self, pool: int) -> list[int]:
        """The servers of a pool, by number."""
        return sorted(server for group in self._by_free[pool] for server in group)

    def count(self, pool: int) -> int:
        """How many servers a pool has."""
        return sum(len(group) for group in self._by_free[pool])

    def idle(self, pool: int, most: int) -> list[int]:
        """Some servers of a pool on which nothing runs."""
        return list(islice(self._by_free[pool][self.shape.gpus], most))

    def worker_room(self) -> int:
        """Training GPUs' worth of room for flexible workers, once all of them are gone."""
        gpus = self.shape.gpus
        return sum(
            len(group) * (min(free, gpus) // self.factor(pool))
            for pool in (TRAINING, LENT)
            for free, group in enumerate(self._by_free[pool])
        )

    def largest_base(self, pool: int) -> int:
        """Training GPUs of the largest job whose base workers find room; every smaller one does."""
        gpus = self.shape.gpus
        groups = self._by_free[pool]
        part = next((free for free in range(gpus - 1, 0, -1) if groups[free]), 0)
        empty = len(groups[gpus]) + len(groups[gpus + 1])
        return (empty * gpus + part) // self.factor(pool)

    def find_base(self, n_gpus: int, pool: int) -> dict[int, int] | None:
        """Servers for base workers: whole ones, and the fullest that holds the rest.

        Args:
            n_gpus: Training GPUs wanted.
            pool: TRAINING or LENT.

        Returns:
            GPUs to take on each server; None: there is no room.
        """
        gpus = self.shape.gpus
        groups = self._by_free[pool]
        whole, rest = divmod(n_gpus * self.factor(pool), gpus)
        found: dict[int, int] = {}
        if rest:
            fullest = next((group for group in groups[rest:gpus] if group), None)
            if fullest is not None:
                found[next(reversed(fullest))] = rest
        wanted = whole + (1 if rest and not found else 0)
        if wanted > len(groups[gpus]) + len(groups[gpus + 1]):
            return None
        taken = list(islice(groups[gpus], wanted))
        taken += list(islice(groups[gpus + 1], wanted - len(taken)))
        for number, server in enumerate(taken):
            found[server] = gpus if number < whole else rest
        return found

    def move(self, server: int, pool: int) -> None:
        """Lends a server, or takes a lent one back; nothing may run on it."""
        del self._by_free[self.pool[server]][self.shape.gpus][server]
        self.pool[server] = pool
        self._by_free[pool][self.shape.gpus][server] = None

    def add_base(self, server: int, job: int, gpus: int) -> None:
        """Takes GPUs for base workers."""
        group = self._group(server)
        self.base[server][job] = gpus
        self.base_gpus[server] += gpus
        self.used[self.pool[server]] += gpus
        self._regroup(server, group)

    def remove_base(self, server: int, job: int) -> None:
        """Frees the GPUs of a job's base workers."""
        group = self._group(server)
        gpus = self.base[server].pop(job)
        self.base_gpus[server] -= gpus
        self.used[self.pool[server]] -= gpus
        self._regroup(server, group)

    def add_flexible(self, server: int, job: int, gpus: int) -> None:
        """Takes GPUs for flexible workers (fewer than none: frees them)."""
        group = self._group(server)
        held = self.flexible[server].get(job, 0) + gpus
        self.flexible_gpus[server] += gpus
        self.used[self.pool[server]] += gpus
        if held:
            self.flexible[server][job] = held
        else:
            del self.flexible[server][job]
        self._regroup(server, group)

    def _group(self, server: int) -> int:
        free = self.shape.gpus - self.base_gpus[server]
        return free + 1 if free == self.shape.gpus and self.flexible_gpus[server] else free

    def _regroup(self, server: int, before: int) -> None:
        after = self._group(server)
        if after != before:
            groups = self._by_free[self.pool[server]]
            del groups[before][server]
            groups[after][server] = None
