"""What one run shows: waiting, completion, usage, preemptions.

Runs are compared in `simulation.scheduling.comparison`.
"""

from dataclasses import dataclass

import numpy as np

from simulation.scheduling.engine import Engine
from simulation.scheduling.servers import LENT, TRAINING


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run of one policy; jobs that were there at the start are not counted.

    Attributes:
        policy: Name of the policy.
        load: Offered load.
        seed: Seed of the run.
        n_jobs: Jobs counted.
        queuing_s: Mean seconds waited in all, after preemptions too.
        queuing_p95_s: 95th percentile.
        completion_s: Mean seconds from submit to end.
        completion_p95_s: 95th percentile.
        training_use: Share of the training cluster's GPU time in use.
        all_use: The same over both clusters, inference traffic included.
        preemptions: Times a job lost its base workers.
        reclaimed: Lent servers that were given back.
    """

    policy: str
    load: float
    seed: int
    n_jobs: int
    queuing_s: float
    queuing_p95_s: float
    completion_s: float
    completion_p95_s: float
    training_use: float
    all_use: float
    preemptions: int
    reclaimed: int


def outcome_of(engine: Engine, *, load: float, seed: int, inference_use: float) -> Outcome:
    """Sums up a run that has ended.

    Args:
        engine: The run.
        load: Offered load.
        seed: Seed.
        inference_use: Mean share of the inference cluster that its own traffic uses.
    """
    ended = [one for one in engine.progress if one.job.is_counted and one.end_s is not None]
    queuing = np.array([one.queued_s for one in ended])
    completion = np.array([(one.end_s or 0.0) - one.job.submit_s for one in ended])
    shape, horizon_s = engine.servers.shape, engine.timing.horizon_s
    inference_gpus = shape.inference * shape.gpus
    used = (engine.gpu_s[TRAINING] + engine.gpu_s[LENT]) / horizon_s
    return Outcome(
        policy=engine.policy.name,
        load=load,
        seed=seed,
        n_jobs=len(ended),
        queuing_s=float(queuing.mean()),
        queuing_p95_s=float(np.quantile(queuing, 0.95)),
        completion_s=float(completion.mean()),
        completion_p95_s=float(np.quantile(completion, 0.95)),
        training_use=engine.gpu_s[TRAINING] / horizon_s / shape.training_gpus,
        all_use=(used + inference_use * inference_gpus) / (shape.training_gpus + inference_gpus),
        preemptions=sum(one.preemptions for one in engine.progress),
        reclaimed=engine.reclaimed,
    )
