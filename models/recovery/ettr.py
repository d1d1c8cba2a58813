"""ETTR, the share of wall time in which training moved forward: measured, sliding, and expected.

How the time of real jobs is told apart is in `.job_time`, checkpoint intervals in `.checkpoint`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from features.errors import DataError

Floats = npt.NDArray[np.float64]

WINDOW_S: Final = 3600.0
"""Width of the sliding window, as ByteRobust (SOSP'25) reports it."""

_DAY_MIN: Final = 1440.0


@dataclass(frozen=True)
class Stretch:
    """A stretch of a job's wall time.

    Attributes:
        start_s: Start, in seconds from any origin.
        end_s: End, exclusive.
        is_productive: Whether training moved forward in it for good. Steps that were computed
            again after a restart are not.
    """

    start_s: float
    end_s: float
    is_productive: bool


def cumulative_ettr(stretches: Sequence[Stretch]) -> float | None:
    """Productive time by wall time, from the first start to the last end.

    Args:
        stretches: Stretches in order, without gaps or overlaps.

    Returns:
        The ratio; None where no time has passed.

    Raises:
        DataError: A stretch does not begin where the one before ends.

    >>> cumulative_ettr([Stretch(0, 90, True), Stretch(90, 100, False)])
    0.9
    """
    _check(stretches)
    wall = stretches[-1].end_s - stretches[0].start_s if stretches else 0.0
    if wall <= 0:
        return None
    return sum(s.end_s - s.start_s for s in stretches if s.is_productive) / wall


def sliding_ettr(
    stretches: Sequence[Stretch], *, window_s: float = WINDOW_S
) -> tuple[Floats, Floats]:
    """ETTR of the window that ends at each moment at which its course bends.

    Between two of these moments it is a straight line, so the least value is among them.

    Args:
        stretches: Stretches in order, without gaps or overlaps.
        window_s: Width of the window.

    Returns:
        Ends of the window in seconds, shape (n,), and the ratio there, shape (n,). Empty where
        less than one window has passed.

    Raises:
        DataError: A stretch does not begin where the one before ends, or there is no width.
    """
    _check(stretches)
    if window_s <= 0:
        raise DataError(f"sliding ETTR: expected a window above 0 s, got {window_s}")
    if not stretches:
        return np.empty(0), np.empty(0)
    edges = np.array([stretches[0].start_s, *(s.end_s for s in stretches)])
    lengths = np.array([s.end_s - s.start_s if s.is_productive else 0.0 for s in stretches])
    productive = np.concatenate([[0.0], np.cumsum(lengths)])
    ends = np.unique(np.concatenate([edges, edges + window_s]))
    ends = ends[(ends >= edges[0] + window_s) & (ends <= edges[-1])]
    gained = np.interp(ends, edges, productive) - np.interp(ends - window_s, edges, productive)
    return ends, gained / window_s


def expected_ettr(
    *,
    n_nodes: float,
    failures_per_node_day: float,
    restart_min: float,
    interval_min: float,
    wait_min: float = 0.0,
) -> float:
    """Meta's closed form, for a job much longer than its failures are apart.

    E[ETTR] = (1 - N r (u0 + dt / 2)) / (1 + N r q), after Kokolis et al., "Revisiting
    Reliability in Large-Scale Machine Learning Research Clusters" (2025). It takes checkpoints
    as free, and half an interval as lost at each failure.

    Args:
        n_nodes: Nodes of the job, N.
        failures_per_node_day: Failures per node and day, r.
        restart_min: Time to start again, u0, in minutes.
        interval_min: Time between two checkpoints, dt, in minutes.
        wait_min: Wait in the queue before each restart, q, in minutes.

    Returns:
        A ratio; 0 where failures come faster than the job recovers.

    Raises:
        DataError: A number is negative or not finite.

    >>> round(expected_ettr(n_nodes=2000, failures_per_node_day=0.0065, restart_min=5,
    ...                     interval_min=60), 3)
    0.684
    """
    given = (n_nodes, failures_per_node_day, restart_min, interval_min, wait_min)
    if not all(np.isfinite(value) and value >= 0 for value in given):
        raise DataError(f"expected ETTR: numbers must be finite and not negative, got {given}")
    per_minute = n_nodes * failures_per_node_day / _DAY_MIN
    kept = 1 - per_minute * (restart_min + interval_min / 2)
    return max(0.0, kept) / (1 + per_minute * wait_min)


def _check(stretches: Sequence[Stretch]) -> None:
    for one in stretches:
        if not one.start_s <= one.end_s:
            raise DataError(f"ETTR: a stretch ends before it begins ({one})")
    for before, after in pairwise(stretches):
        if before.end_s != after.start_s:
            raise DataError(
                f"ETTR: stretches must follow each other without gap or overlap, got {before} "
                f"and then {after}"
            )
