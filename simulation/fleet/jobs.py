"""The jobs users ask for: who, sizes, durations, how they load GPUs, how they would end.

How many of which size and when is in `simulation.fleet.demand`; where and when they run is in
`simulation.fleet.schedule`.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from simulation.fleet.demand import ENDS, Demand, EndState, Stream, draw_demand
from simulation.fleet.regime import Regime
from simulation.fleet.seeds import Layer, random_stream

FIRST_JOB_ID: Final = 41_000
_PURPOSES: Final = ("base", "sft", "eval", "abl")

Kind = Literal["training", "inference", "debug"]


@dataclass(frozen=True, slots=True)
class Load:
    """How a job uses its GPUs.

    Attributes:
        kind: Training runs flat with checkpoint dips, inference follows the day, debug idles.
        util_pct: GPU utilisation when it works; of inference, at the day's peak.
        power_share: Of the range from idle to maximum power, at that utilisation.
        tensor_ratio: Tensor pipe activity.
        memory_mib: Frame buffer in use; on an instance, what it would be on a whole GPU.
        ramp_min: Minutes until it reaches its load.
    """

    kind: Kind
    util_pct: float
    power_share: float
    tensor_ratio: float
    memory_mib: int
    ramp_min: float


@dataclass(frozen=True, slots=True)
class Job:
    """One job as its user meant it. Times are seconds since the fleet's start.

    Attributes:
        job_id: Number in the accounting.
        name: Name.
        user: User.
        submit_s: When it was submitted.
        n_gpus: GPUs in all; from a node's worth on, whole nodes.
        duration_s: How long it runs if nothing breaks.
        end_state: How it then ends.
        is_crash: Whether it dies by an Xid of its own.
        is_crash_on_all: Whether all its GPUs of a node report that.
        load: How it uses its GPUs.
        is_instance: Whether it wants one instance of a partitioned GPU, not a whole GPU.
    """

    job_id: int
    name: str
    user: str
    submit_s: int
    n_gpus: int
    duration_s: int
    end_state: EndState
    is_crash: bool
    is_crash_on_all: bool
    load: Load
    is_instance: bool = False


def draw_jobs(regime: Regime, *, seed: int) -> tuple[Job, ...]:
    """Draws the jobs that run at the fleet's start or are submitted later.

    Args:
        regime: The fleet's parameters.
        seed: The fleet's seed.

    Returns:
        Jobs by time of submission; ids rise with it.
    """
    rng = random_stream(seed, Layer.JOBS)
    demand = draw_demand(regime, rng)
    count = demand.submit_s.size
    loads = _draw_loads(regime, demand, rng)
    users = (regime.workload.users * rng.beta(0.7, 2, size=count)).astype(int).tolist()
    purposes = rng.integers(len(_PURPOSES), size=count).tolist()
    on_all = (rng.random(count) < regime.workload.crash_all_share).tolist()
    columns = zip(*(part.tolist() for part in vars(demand).values()), strict=True)
    return tuple(
        Job(
            job_id=FIRST_JOB_ID + i,
            name=f"{loads[i].kind[:5]}-{_PURPOSES[purposes[i]]}-{size}g",
            user=f"u{users[i]:03d}",
            submit_s=submit_s,
            n_gpus=size,
            duration_s=duration_s,
            end_state=ENDS[end],
            is_crash=is_crash,
            is_crash_on_all=on_all[i],
            load=loads[i],
            is_instance=stream == Stream.INSTANCE,
        )
        for i, (submit_s, size, duration_s, end, is_crash, stream) in enumerate(columns)
    )


def _draw_loads(regime: Regime, demand: Demand, rng: np.random.Generator) -> list[Load]:
    """Big jobs train; of small ones some only try things out; services serve."""
    count = demand.submit_s.size
    is_service = demand.stream == Stream.SERVICE
    is_part = demand.n_gpus < regime.gpus_per_node
    is_idle = is_part & (rng.random(count) < regime.workload.debug_share)
    # On an instance people try things out or serve small models: nobody trains there.
    is_serving = is_service | ((demand.stream == Stream.INSTANCE) & ~is_idle)
    kinds = np.where(is_serving, 1, np.where(is_idle, 2, 0))

    def spread(*bounds: tuple[float, float]) -> np.ndarray:
        """Uniform draws, between bounds of training, inference and debugging."""
        low, high = np.array(bounds).T
        return np.asarray(rng.uniform(low[kinds], high[kinds]))

    util = spread((90, 100), (93, 97), (0, 40))
    power = spread((0.65, 0.98), (0.35, 0.8), (0.2, 0.5))
    tensor = spread((0.25, 0.6), (0.05, 0.3), (0.0, 0.2))
    share = spread((0.6, 0.97), (0.2, 0.9), (0.05, 0.5))
    memory = (regime.hardware.frame_buffer_mib * share).astype(int)
    ramp = spread((5, 30), (1, 5), (1, 5))
    names: tuple[Kind, ...] = ("training", "inference", "debug")
    columns = (kinds, util, power, tensor, memory, ramp)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Load(names[kind], *rest) for kind, *rest in rows]
