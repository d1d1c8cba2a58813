"""Flexible workers: how many each elastic job should have, and on which servers they go.

The choice of the numbers is in `simulation.scheduling.knapsack`.
"""

from collections.abc import Callable, Sequence

import numpy as np

from simulation.scheduling.jobs import Progress
from simulation.scheduling.knapsack import extra_workers
from simulation.scheduling.servers import Servers


def target_workers(running: Sequence[Progress], *, room: int) -> list[int]:
    """Flexible workers that each running elastic job should have.

    Args:
        running: The jobs, settled.
        room: Training GPUs' worth of room, as if there were no flexible workers.

    Returns:
        A number for each job.
    """
    columns = np.array(
        [(one.job.min_workers, one.job.max_extra, one.job.worker_gpus) for one in running],
        dtype=np.int64,
    ).reshape(-1, 3)
    found = extra_workers(
        work=np.array([one.remaining_s * one.job.min_workers for one in running]),
        min_workers=columns[:, 0],
        max_extra=columns[:, 1],
        worker_gpus=columns[:, 2],
        capacity=room,
    )
    return [int(count) for count in found]


def place_workers(
    servers: Servers,
    growing: Sequence[tuple[Progress, int]],
    *,
    pool: int,
    add: Callable[[Progress, int, int], None],
) -> list[tuple[Progress, int]]:
    """Places flexible workers by best fit decreasing, away from base workers where it can.

    Args:
        servers: The servers.
        growing: Jobs with the workers each should get.
        pool: Where they go.
        add: Puts workers of a job on a server.

    Returns:
        Jobs with the workers that found no room.
    """
    # By whether base workers are there, then by free GPUs: the fullest that holds a worker first.
    groups: list[list[list[int]]] = [[[] for _ in range(servers.shape.gpus + 1)] for _ in range(2)]
    for server in servers.members(pool):
        groups[1 if servers.base[server] else 0][servers.free_gpus(server)].append(server)
    left = []
    for one, wanted in sorted(growing, key=lambda pair: -pair[0].job.worker_gpus):
        each = one.job.worker_gpus * servers.factor(pool)
        missing = wanted
        for group in groups:
            missing = _fill(group, one, missing, each=each, add=add)
        if missing:
            left.append((one, missing))
    return left


def _fill(
    group: list[list[int]],
    one: Progress,
    wanted: int,
    *,
    each: int,
    add: Callable[[Progress, int, int], None],
) -> int:
    for free in range(each, len(group)):
        while wanted and group[free]:
            server = group[free].pop()
            count = min(wanted, free // each)
            add(one, server, count)
            group[free - count * each].append(server)
            wanted -= count
    return wanted
