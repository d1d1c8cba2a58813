"""Which lent servers go back to inference: the hook's own reclaim, or the baselines.

How many go back is decided in `simulation.scheduling.engine`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from remediation.cluster.state import JobView
from remediation.policy.reclaim import reclaim
from simulation.scheduling.policies import ReclaimRule


def servers_to_give_back(
    rule: ReclaimRule,
    lent: Sequence[str],
    jobs_by_server: Mapping[str, Sequence[JobView]],
    *,
    count: int,
    rng: np.random.Generator,
) -> tuple[str, ...]:
    """The lent servers that are given back.

    Args:
        rule: lyra: least preemption cost, weighed anew after each; fewest_jobs: fewest jobs with
            base workers there; random.
        lent: All lent servers.
        jobs_by_server: Jobs with base workers on each.
        count: Servers wanted.
        rng: For the random rule.

    Returns:
        At most `count` servers.
    """
    if rule == "random":
        return tuple(str(name) for name in rng.permutation(np.array(lent))[:count])
    if rule == "fewest_jobs":
        by_jobs = sorted(lent, key=lambda name: (len(jobs_by_server.get(name, ())), name))
        return tuple(by_jobs[:count])
    return reclaim(lent, jobs_by_server, count=count)
