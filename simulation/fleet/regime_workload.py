"""What users ask of a fleet: the parameters of jobs.

How jobs are drawn and placed is in `.jobs` and `.schedule`.
"""

from pydantic import Field

from simulation.fleet.regime_sections import HourRange, Section, Share


class Workload(Section):
    """Jobs.

    Attributes:
        gpu_hours_share: Offered load as a share of the fleet's GPU hours.
        size_weights: GPUs -> weight among jobs; sizes above the fleet are left out.
        median_h: Median duration of a one-GPU job; grows with size.
        sigma: Spread of the log-normal duration.
        cap_h: Longest duration.
        size_exponent: Duration grows with GPUs to this power.
        crash_share: Share of jobs that die by their own Xid 13, 31 or 43.
        fail_share: Share that ends FAILED, OUT_OF_MEMORY, TIMEOUT or CANCELLED without an Xid.
        crash_all_share: Of crashes, the share seen on all the job's GPUs of a node.
        checkpoint_min: Work lost at an interruption is at most this much.
        restart_min: Minutes until an interrupted job is submitted again.
        users: Number of users.
    """

    gpu_hours_share: Share
    size_weights: dict[int, float]
    median_h: float
    sigma: float
    cap_h: float
    size_exponent: float
    crash_share: Share
    fail_share: Share
    crash_all_share: Share
    checkpoint_min: float
    restart_min: HourRange
    users: int = Field(ge=1)
