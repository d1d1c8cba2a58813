"""Samples of many series in flat arrays, the form in which every protocol's answer ends.

How answers are decoded is in `prometheus.chunks`, `prometheus.frames` and
`prometheus.json_answers`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.sources.prometheus.series import Series

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

STALE_BITS: Final = 0x7FF0000000000002
"""The NaN with which Prometheus marks the end of a series: no sample, unlike any other NaN."""


class Window(NamedTuple):
    """A half-open stretch of time in milliseconds since 1970."""

    start: int
    end: int


class Refused(NamedTuple):
    """Samples that could not be read."""

    rule: str
    n: int
    example: str


@dataclass(frozen=True)
class Readings:
    """Samples of many series.

    Attributes:
        series: What each series is about.
        owners: i64[m]: which series each segment is of.
        segments: i64[m, 2]: start and end of each segment among the samples.
        ts: i64, milliseconds since 1970.
        values: f64.
        n_stale: Stale markers, which are no samples.
        refused: Samples that could not be read.
    """

    series: tuple[Series, ...]
    owners: I64
    segments: I64
    ts: I64
    values: F64
    n_stale: int = 0
    refused: tuple[Refused, ...] = ()

    @property
    def n_samples(self) -> int:
        """Samples within the segments."""
        return int((self.segments[:, 1] - self.segments[:, 0]).sum())


def empty_readings() -> Readings:
    """No samples of no series."""
    none = np.empty(0, np.int64)
    return Readings((), none, none.reshape(0, 2), none, np.empty(0))


def join(parts: Iterable[Readings]) -> Readings:
    """Readings of the same or other series, one after the other.

    Args:
        parts: The readings.
    """
    parts = [part for part in parts if part.series or part.refused or part.n_stale]
    if not parts:
        return empty_readings()
    if len(parts) == 1:
        return parts[0]
    series: list[Series] = []
    owners, segments, n = [], [], 0
    for part in parts:
        owners.append(part.owners + len(series))
        segments.append(part.segments + n)
        series.extend(part.series)
        n += len(part.ts)
    return Readings(
        tuple(series),
        np.concatenate(owners),
        np.concatenate(segments),
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.values for part in parts]),
        sum(part.n_stale for part in parts),
        tuple(refused for part in parts for refused in part.refused),
    )


def within(readings: Readings, window: Window) -> Readings:
    """Leaves samples of a window, without stale markers.

    Args:
        readings: Any readings; each segment sorted or not.
        window: Half-open.
    """
    is_in = (readings.ts >= window.start) & (readings.ts < window.end)
    is_stale = is_in & (readings.values.view(np.uint64) == np.uint64(STALE_BITS))
    keep: NDArray[Any] = is_in & ~is_stale
    if keep.all():
        return readings
    before = np.concatenate([[0], np.cumsum(keep)])
    return Readings(
        readings.series,
        readings.owners,
        before[readings.segments],
        readings.ts[keep],
        readings.values[keep],
        readings.n_stale + int(is_stale.sum()),
        readings.refused,
    )
