"""What the engine computes: columns, windows and the row of each result.

Which statistics make features is decided in `features.telemetry_features`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from features.errors import DataError
from features.telemetry_metrics import METRIC_BY_COLUMN

Statistic = Literal["mean", "std", "min", "max", "last", "slope", "delta", "sum"]
Kind = Literal["gauge", "increase", "count", "age"]

STATISTICS: Final[tuple[Statistic, ...]] = get_args(Statistic)
N_KNOWN: Final = "n_known"
"""Column of the samples: how many metrics have a value."""
RESETS: Final = "resets"
"""Derived per sample: 1 where a counter has fallen."""
MEMORY: Final = timedelta(hours=24)
"""How old the last known value of a counter may be to count an increase from."""

LARGEST: Final = 4_000_000
"""Largest value of a gauge, in steps: sums of squares then stay exact in float64."""

_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Derived:
    """A column made of another: whether any of some bits is set.

    Attributes:
        name: Its name.
        metric: The column it is made of.
        bits: The bits.
    """

    name: str
    metric: str
    bits: int


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One result: a statistic of a column over the window [as_of - w, as_of).

    Attributes:
        name: Name of the result.
        window: Length w.
        kind: `gauge`: `statistic` of the column's known values; `increase`: of a counter, over
            resets; `count` of samples; `age`: hours from the last sample to as_of.
        column: A metric, `n_known`, `resets` or the name of a `Derived`; empty for samples.
        statistic: `mean`; `std` of the sample (null below two values); `min`; `max`; `last`;
            `slope` per hour by least squares over whole seconds; `delta`: last less the last of
            the window before; `sum`.
        scale: Factor from the column's unit to the result's.
        offset: Added after scaling.
    """

    name: str
    window: timedelta
    kind: Kind = "gauge"
    column: str = ""
    statistic: Statistic = "mean"
    scale: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True, eq=False)
class EnginePlan:
    """What is computed, as the loops need it. G gauges, C counters, W windows, F results.

    Attributes:
        names: Name of each result.
        bucket_ms: Length of a bucket in milliseconds.
        windows: Window lengths in buckets, ascending, shape (W,).
        gauges: Columns with moments.
        derived: Derived columns among them.
        counters: Columns with increases; all of them make `resets`.
        gauge_rows: Result of each gauge, window and statistic, -1: none, shape (G, W, 8).
        counter_rows: Result of each counter's increase, shape (C, W).
        count_rows: Result of each window's count of samples, shape (W,).
        age_rows: Result of each window's age, shape (W,).
        scale: Factor of each result, shape (F,).
        offset: Added to each result, shape (F,).
    """

    names: tuple[str, ...]
    bucket_ms: int
    windows: npt.NDArray[np.int64]
    gauges: tuple[str, ...]
    derived: tuple[Derived, ...]
    counters: tuple[str, ...]
    gauge_rows: npt.NDArray[np.int32]
    counter_rows: npt.NDArray[np.int32]
    count_rows: npt.NDArray[np.int32]
    age_rows: npt.NDArray[np.int32]
    scale: npt.NDArray[np.float64]
    offset: npt.NDArray[np.float64]

    @property
    def history(self) -> int:
        """Buckets of the longest window."""
        return int(self.windows[-1])

    @property
    def reach(self) -> int:
        """Buckets before an as_of that its results may rest on."""
        delta = STATISTICS.index("delta")
        has_delta = (self.gauge_rows[:, :, delta] >= 0).any(axis=0)
        longest_delta = int(self.windows[has_delta].max(initial=0))
        return max(self.history + self.memory, 2 * longest_delta)

    @property
    def memory(self) -> int:
        """Buckets before a sample in which the value before it may lie."""
        return math.ceil(MEMORY / _MS / self.bucket_ms) if self.counters else 0

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the samples that must be read."""
        made_of = {one.name: one.metric for one in self.derived} | {RESETS: ""}
        gauges = [made_of.get(name, name) for name in self.gauges]
        return tuple(dict.fromkeys([*filter(None, gauges), *self.counters]))


def plan_engine(
    wanted: Sequence[Wanted],
    *,
    bucket: timedelta,
    derived: Iterable[Derived] = (),
    counters: Sequence[str] = (),
) -> EnginePlan:
    """Lays out what is wanted.

    Args:
        wanted: The results, in order.
        bucket: Length of a bucket; every window and every as_of is a multiple of it.
        derived: Columns that are made of others.
        counters: Counters that `resets` looks at; those with an increase are added.

    Raises:
        DataError: A window is not a whole number of buckets, a gauge cannot be summed exactly, or
            a result is wanted twice.
    """
    for one in wanted:
        if one.window % bucket or one.window <= timedelta(0):
            raise DataError(
                f"engine: the window of {one.name} must be a whole number of buckets of {bucket}, "
                f"got {one.window}. Choose a shorter bucket or another window."
            )
    windows = sorted({one.window // bucket for one in wanted})
    place = {length: i for i, length in enumerate(windows)}
    gauges = tuple(dict.fromkeys(one.column for one in wanted if one.kind == "gauge"))
    increases = [one.column for one in wanted if one.kind == "increase"]
    of_counters = tuple(dict.fromkeys([*counters, *increases]))
    by_name = {one.name: one for one in derived}
    gauge_rows = np.full((len(gauges), len(windows), len(STATISTICS)), -1, np.int32)
    counter_rows = np.full((len(of_counters), len(windows)), -1, np.int32)
    count_rows, age_rows = np.full((2, len(windows)), -1, np.int32)
    scale, offset = np.ones(len(wanted)), np.zeros(len(wanted))
    for row, one in enumerate(wanted):
        at = place[one.window // bucket]
        scale[row], offset[row] = one.scale, one.offset
        if one.kind == "gauge":
            scale[row] *= _resolution(one.column, by_name)
            gauge_rows[gauges.index(one.column), at, STATISTICS.index(one.statistic)] = row
        elif one.kind == "increase":
            counter_rows[of_counters.index(one.column), at] = row
        elif one.kind == "count":
            count_rows[at] = row
        else:
            age_rows[at] = row
    _check_places(wanted, [gauge_rows, counter_rows, count_rows, age_rows])
    return EnginePlan(
        names=tuple(one.name for one in wanted),
        bucket_ms=bucket // _MS,
        windows=np.array(windows, np.int64),
        gauges=gauges,
        derived=tuple(by_name[name] for name in gauges if name in by_name),
        counters=of_counters,
        gauge_rows=gauge_rows,
        counter_rows=counter_rows,
        count_rows=count_rows,
        age_rows=age_rows,
        scale=scale,
        offset=offset,
    )


def _check_places(wanted: Sequence[Wanted], rows: Sequence[npt.NDArray[np.int32]]) -> None:
    """Refuses a result that has lost its place to a later one: it would never be filled."""
    placed = {int(row) for some in rows for row in some[some >= 0]}
    lost = [one.name for number, one in enumerate(wanted) if number not in placed]
    if lost:
        raise DataError(
            f"engine: each statistic of a column and window must be wanted once, got another for "
            f"{', '.join(lost)}. Leave one of them out."
        )


def _resolution(column: str, derived: dict[str, Any]) -> float:
    if column in derived or column in (N_KNOWN, RESETS):
        return 1.0
    metric = METRIC_BY_COLUMN[column]
    if metric.resolution is None:
        raise DataError(
            f"engine: {column} must have a resolution to be summed exactly, got none. Choose "
            f"another gauge: its range is too wide for exact sums of squares."
        )
    largest = max(abs(metric.minimum), abs(metric.maximum)) / metric.resolution
    if round(largest) > LARGEST:
        raise DataError(
            f"engine: {column} must be within {LARGEST} steps of {metric.resolution} "
            f"{metric.unit} to be a gauge, its contract allows {largest:.0f}. Ask for its increase "
            f"if it is a counter, or for some of its bits."
        )
    return metric.resolution
