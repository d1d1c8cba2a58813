"""What users ask of a fleet: the parameters of jobs.

How jobs are drawn and placed is in `.demand`, `.jobs` and `.schedule`.
"""

from pydantic import Field, field_validator

from simulation.fleet.regime_sections import HourRange, NotNegative, Section, Share

Weights = dict[int, float]


class Workload(Section):
    """Jobs. Sizes are GPUs in all; from a node's worth on, jobs take whole nodes.

    Attributes:
        gpu_hours_share: Offered load as a share of the fleet's GPU hours.
        size_weights: GPUs -> weight among batch jobs; sizes above half of the fleet are left out,
            and jobs of several nodes are submitted as earlier ones leave them room.
        median_h: Median duration of a one-GPU job; grows with size.
        sigma: Spread of the log-normal durations.
        cap_h: Longest duration.
        size_exponent: Duration grows with GPUs to this power.
        debug_share: Of batch jobs below a node's worth of GPUs, those that mostly idle.
        service_share: Of the offered GPU hours, those of inference services.
        service_size_weights: GPUs -> weight among services, up to a node's worth.
        service_median_h: Median life of a service, and of a job on a GPU instance.
        crash_share: Share of batch jobs that die by their own Xid 13, 31 or 43.
        fail_share: Share that ends FAILED, OUT_OF_MEMORY, TIMEOUT or CANCELLED without an Xid.
        crash_all_share: Of crashes, the share seen on all the job's GPUs of a node.
        checkpoint_min: Work lost at an interruption is at most this much.
        restart_min: Minutes until an interrupted job is submitted again.
        users: Number of users.
    """

    gpu_hours_share: Share
    size_weights: Weights = Field(min_length=1)
    median_h: float = Field(gt=0)
    sigma: float = Field(gt=0, le=5)
    cap_h: float = Field(gt=0, le=8784)
    size_exponent: float = Field(ge=-2, le=2)
    debug_share: Share = 0.3
    service_share: Share = 0.02
    service_size_weights: Weights = Field({1: 4, 2: 3, 4: 2, 8: 1}, min_length=1)
    service_median_h: float = Field(60.0, gt=0)
    crash_share: Share
    fail_share: Share
    crash_all_share: Share
    checkpoint_min: NotNegative
    restart_min: HourRange
    users: int = Field(ge=1)

    @field_validator("size_weights", "service_size_weights")
    @classmethod
    def _are_sizes(cls, weights: Weights) -> Weights:
        if min(weights) < 1 or min(weights.values()) < 0:
            raise ValueError("sizes must be at least 1 GPU, weights at least 0")
        if 1 not in weights or weights[1] == 0:
            raise ValueError("needs a weight for 1 GPU, which fits every fleet")
        return weights
