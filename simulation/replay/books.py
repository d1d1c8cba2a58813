"""The books of a replay: GPU-hours by what they were lost to, by node and moment.

Which jobs a failure or a drain costs is in `simulation.replay.holds`; intervals are in
`simulation.replay.intervals`.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from remediation.site import Costs
from simulation.replay.history import HOUR, WEEK, Attempt, FloatArray, History

KINDS: Final = ("rework", "hung", "restart", "interruption", "idle", "repair")
"""`rework`, `hung`, `restart`: what a failure costs the jobs it ends. `interruption`: restarts of
jobs that a drain moved. `idle`: GPUs of held nodes that nobody could use. `repair`: nodes that are
out after a failure, or whose failure was found and is mended."""
JOB_KINDS: Final = ("rework", "hung", "restart", "interruption")
"""What jobs lose; the rest is lost by the cluster."""
UNUSED: Final = "idle"


@dataclass(frozen=True)
class Charge:
    """GPU-hours lost.

    Attributes:
        kind: One of `KINDS`.
        at: When.
        gpu_hours: How many; never negative.
    """

    kind: str
    at: int
    gpu_hours: float


@dataclass
class Books:
    """All charges of one run, by columns; written by the engine."""

    kinds: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    amounts: list[float] = field(default_factory=list)

    def add(self, node: int, charge: Charge) -> None:
        """Enters one charge."""
        if charge.gpu_hours:
            self.kinds.append(KINDS.index(charge.kind))
            self.nodes.append(node)
            self.times.append(charge.at)
            self.amounts.append(charge.gpu_hours)

    def by_kind(self) -> dict[str, float]:
        """GPU-hours of each kind."""
        sums = np.bincount(
            np.array(self.kinds, dtype=np.int64), weights=self.amounts, minlength=len(KINDS)
        )
        return {kind: float(one) for kind, one in zip(KINDS, sums, strict=True)}

    def by_block(self, history: History) -> FloatArray:
        """GPU-hours of each node-week, shape (nodes x weeks,); weeks count from the start."""
        n_weeks = weeks_of(history)
        week = (np.array(self.times, dtype=np.int64) - history.start) // WEEK
        # What is paid after the end, such as the repair of a late failure, is the last week's.
        place = np.array(self.nodes, dtype=np.int64) * n_weeks + np.clip(week, 0, n_weeks - 1)
        size = len(history.names) * n_weeks
        return np.bincount(place, weights=self.amounts, minlength=size).astype(np.float64)


def weeks_of(history: History) -> int:
    """Weeks of the replay, a part at the end included."""
    return max(1, -(-(history.end - history.start) // WEEK))


def failure_charges(
    attempt: Attempt, onset: int, *, costs: Costs, restart_h: float
) -> tuple[Charge, ...]:
    """What a failure costs an attempt that it ended, on all its GPUs.

    Args:
        attempt: The attempt, as it really ended.
        onset: When the failure began.
        costs: The site's costs.
        restart_h: From its end until the job computes again.

    Returns:
        Work since the last checkpoint (at most its age), the time it hung (at most the time it
        takes to notice), and the restart.
    """
    age_h = (onset - attempt.start) / HOUR
    hung_h = (attempt.end - onset) / HOUR
    gpus = attempt.gpus
    return (
        Charge("rework", onset, gpus * min(costs.lost_work_minutes / 60, age_h)),
        Charge("hung", onset, gpus * min(costs.detection_minutes / 60, hung_h)),
        Charge("restart", onset, gpus * restart_h),
    )


def restart_hours(costs: Costs, *, has_standby: bool) -> float:
    """From a job's end until it computes again, on a warm standby node or wherever there is one."""
    if has_standby:
        return costs.standby_restart_minutes / 60
    return (costs.wait_minutes + costs.restart_minutes) / 60
