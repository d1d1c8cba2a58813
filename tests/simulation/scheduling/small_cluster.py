"""Small clusters with random jobs, for the scheduling tests; no test lives here."""

import numpy as np
from hypothesis import strategies as st

from simulation.scheduling.engine import Engine
from simulation.scheduling.jobs import Job
from simulation.scheduling.policies import POLICIES
from simulation.scheduling.servers import Shape

SHAPE = Shape(training=3, inference=4, gpus=8, lent_per_gpu=3)


def engine(jobs, policy, *, needed=(4,), shape=SHAPE, seed=0):
    return Engine(
        jobs,
        policy=policy,
        needed=np.array(needed),
        rng=np.random.default_rng(seed),
        shape=shape,
    )


@st.composite
def some_jobs(draw, most=12):
    found = []
    for number in range(draw(st.integers(1, most))):
        worker_gpus, workers = draw(
            st.sampled_from([(1, 1), (1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (2, 12)])
        )
        extra = draw(st.sampled_from([0, 0, 1, workers]))
        found.append(
            Job(
                number=number,
                submit_s=float(draw(st.integers(0, 4000))),
                duration_s=float(draw(st.integers(1, 6000))),
                worker_gpus=worker_gpus,
                min_workers=workers,
                max_workers=workers + extra,
                is_fungible=extra > 0 or draw(st.booleans()),
            )
        )
    return found


needs = st.lists(st.integers(0, 4), min_size=1, max_size=30)
policies = st.sampled_from(POLICIES)
