"""Which servers to take first after Lyra (EuroSys'23): greedily, weighing anew after each.

A node predicted to fail is a server to reclaim. Costs are in `remediation.policy.costs`; nothing is
decided here about a node's action.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remediation.cluster.state import JobView
from remediation.policy.preemption import server_preemption_cost

Rank = Callable[[str, Sequence[JobView]], tuple[Any, ...]]
"""Gives the rank of a server with the jobs that are left on it; the smallest is taken first."""


def greedy_order(
    servers: Iterable[str],
    jobs_by_server: Mapping[str, Sequence[JobView]],
    *,
    rank: Rank,
    takes_jobs: Callable[[str], bool] = lambda _: True,
) -> tuple[str, ...]:
    """Orders servers by rank, ranking those anew whose jobs an earlier one took along.

    A job that loses a server is gone from all its others; an elastic one that has servers to spare
    runs on with one less.

    Args:
        servers: The candidates, each once.
        jobs_by_server: Running jobs of each server, each with all its nodes.
        rank: Ranks a server; called again whenever its jobs changed.
        takes_jobs: Whether taking a server interrupts its jobs.

    Returns:
        The servers in order.
    """
    left: dict[str, JobView | None] = {}
    there = {name: tuple(jobs_by_server.get(name, ())) for name in servers}
    turn = dict.fromkeys(there, 0)

    def present(name: str) -> tuple[JobView, ...]:
        found = (left.get(job.job_id, job) for job in there[name])
        return tuple(job for job in found if job is not None)

    heap = [(rank(name, present(name)), name, 0) for name in there]
    heapq.heapify(heap)
    order: list[str] = []
    while heap:
        _, name, at = heapq.heappop(heap)
        if at != turn[name]:
            continue
        order.append(name)
        turn[name] = -1
        if not takes_jobs(name):
            continue
        touched: set[str] = set()
        for job in present(name):
            left[job.job_id] = _without(job, name)
            touched.update(other for other in job.nodes if turn.get(other, -1) >= 0)
        for other in touched:
            turn[other] += 1
            heapq.heappush(heap, (rank(other, present(other)), other, turn[other]))
    return tuple(order)


def reclaim(
    servers: Iterable[str], jobs_by_server: Mapping[str, Sequence[JobView]], *, count: int
) -> tuple[str, ...]:
    """Lyra's reclaim: the cheapest servers by preemption cost, idle and flexible-only ones first.

    Of servers that cost the same, one goes first whose elastic jobs have more to give: the spare
    nodes of a job that has few are left to servers that could not be had without them.

    Args:
        servers: Servers that could be given back.
        jobs_by_server: Running jobs of each.
        count: Servers wanted.

    Returns:
        At most `count` servers, in the order in which they are taken.

    The second half of a job costs nothing once the first is taken:

    >>> pair = JobView(job_id="1", nodes=("b", "c"))
    >>> jobs = {"a": [JobView(job_id="2", nodes=("a",))], "b": [pair], "c": [pair]}
    >>> reclaim("abc", jobs, count=2)
    ('b', 'c')
    """

    def rank(name: str, jobs: Sequence[JobView]) -> tuple[float, float, str]:
        return server_preemption_cost(jobs), _tightness(jobs), name

    return greedy_order(servers, jobs_by_server, rank=rank)[:count]


def _tightness(jobs: Sequence[JobView]) -> float:
    """Nodes that must stay for each that can go, over the elastic jobs; 0: nothing must stay."""
    return sum((job.n_nodes - job.n_flexible) / job.n_flexible for job in jobs if job.n_flexible)


def _without(job: JobView, name: str) -> JobView | None:
    if not job.n_flexible:
        return None
    nodes = tuple(node for node in job.nodes if node != name)
    n_gpus = None if job.n_gpus is None else job.n_gpus * (job.n_nodes - 1) // job.n_nodes
    return replace(job, nodes=nodes, n_gpus=n_gpus)
