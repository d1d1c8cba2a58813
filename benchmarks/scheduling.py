"""The scheduling simulation against real time, and its growth with the number of jobs.

963 servers, 15 days, every policy's costliest: Lyra with lending, scaling and its own reclaim, and
FIFO beside it. Without a file of jobs the trace is made here, with the spread of real ones.

Run as `python -m benchmarks.scheduling [jobs.csv]`.
"""

import math
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from simulation.scheduling.comparison import Setting, build_case
from simulation.scheduling.policies import FIFO, LYRA
from simulation.scheduling.workload import Mix

SIZES: Final = (12_500, 25_000, 50_000, 100_000)
LOAD: Final = 0.9
GOAL: Final = 5_000
_DAYS: Final = 15


def made_up_trace(rows: int = 50_000) -> pl.DataFrame:
    """Jobs whose sizes and durations are spread as Philly's: most small and short, few neither."""
    rng = np.random.default_rng(1)
    sizes, shares = (1, 2, 4, 8, 16, 32), (0.932, 0.022, 0.022, 0.020, 0.003, 0.001)
    start = datetime(2026, 1, 1)  # noqa: DTZ001 - a trace has no zone
    at_s = np.sort(rng.uniform(0, 90 * 86_400.0, rows))
    return pl.DataFrame(
        {
            "timestamp": [start + timedelta(seconds=float(second)) for second in at_s],
            "duration": np.minimum(rng.lognormal(7.0, 2.2, rows), 30 * 86_400.0),
            "num_gpus": rng.choice(sizes, rows, p=shares),
        }
    )


def rows(trace: pl.DataFrame | None = None) -> Iterator[str]:
    """The lines of the table.

    Args:
        trace: Real jobs; None: made up.
    """
    real = made_up_trace() if trace is None else trace
    for policy in (FIFO, LYRA):
        taken = []
        for n_jobs in SIZES:
            case = build_case(real, Setting(mix=Mix(load=LOAD, n_jobs=n_jobs)), seed=0)
            began = time.process_time()
            case.run(policy)
            taken.append(time.process_time() - began)
            yield (
                f"{policy.name}, {n_jobs:,} jobs: {taken[-1]:.1f} s CPU, "
                f"{_DAYS * 86_400 / taken[-1]:,.0f} times faster than real time "
                f"(at least {GOAL:,} asked at 50,000)"
            )
        slope = math.log(taken[-1] / taken[0]) / math.log(SIZES[-1] / SIZES[0])
        yield f"{policy.name}: time grows as jobs to the power {slope:.2f} (1 is linear)"


if __name__ == "__main__":
    given = pl.read_csv(Path(sys.argv[1]), try_parse_dates=True) if len(sys.argv) > 1 else None
    for line in rows(given):
        print(line, flush=True)
