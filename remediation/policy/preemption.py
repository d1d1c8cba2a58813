"""Server preemption cost after Lyra (EuroSys'23): which servers are cheap to take.

Costs in GPU-hours are in `remediation.policy.costs`, the order in which nodes are taken in
`remediation.policy.reclaim`.
"""

from collections.abc import Iterable

from remediation.cluster.state import JobView


def server_preemption_cost(jobs: Iterable[JobView]) -> float:
    """Sum over the jobs on a server of 1 / servers the job spans.

    A job of k servers is preempted once, whichever of them is taken, so each bears 1/k of it. An
    elastic job that has more servers than it needs gives one up and goes on: it costs nothing.

    Args:
        jobs: Jobs running on the server, each with all its nodes.

    Returns:
        The cost, in preempted jobs; 0 for an idle server.

    >>> server_preemption_cost([JobView(job_id="1", nodes=("a",)),
    ...                         JobView(job_id="2", nodes=("a", "b", "c", "d")),
    ...                         JobView(job_id="3", nodes=("a", "b"), min_nodes=1)])
    1.25
    """
    return sum(1.0 / job.n_nodes for job in jobs if not job.n_flexible)
