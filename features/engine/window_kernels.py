"""The formulas of statistics over windows, from sums over their buckets.

They are shared by the batch (`batch_kernels`: over the windows of one GPU) and by the tick
(`tick_kernels`: over the GPUs of one moment), so that both give the same bits.

Sums are differences of running totals in wrapping 64-bit integers. A total may overflow; what is
computed of it may not: squares are moved to near the mean before they become floats, and
sum (x - q)^2 = sum x^2 - q (S + r) with r = S - n q holds in wrapping integers for any integer q.
"""

from typing import Any, Final

import numpy as np

from features.compiled import vector_jit

Array = Any  # numpy arrays; numba infers their types
Int = Any  # of Python or NumPy

MEAN: Final = 0
STD: Final = 1
MIN: Final = 2
MAX: Final = 3
LAST: Final = 4
SLOPE: Final = 5
DELTA: Final = 6
SUM: Final = 7
_S_PER_HOUR: Final = 3600.0
_MS_PER_HOUR: Final = 3_600_000.0
NEVER: Final = np.int64(-(2**62))
"""The bucket of a last value that there is none of."""


@vector_jit
def time_terms(
    n: Array, t: Array, tt: Array,
    per_n: Array, per_n1: Array, middle: Array, rest: Array, per_spread: Array,
) -> None:  # fmt: skip
    """What the gauges of a window share.

    Args:
        n: Samples, int64, shape (m,), like all.
        t: Sum of their seconds.
        tt: Sum of squared seconds.
        per_n: Out: 1 / n, NaN without samples.
        per_n1: Out: 1 / (n - 1), NaN below two samples.
        middle: Out: an integer near the mean second.
        rest: Out: t - n * middle.
        per_spread: Out: 3600 / sum (t - mean)^2, NaN where the samples are of one second.
    """
    for r in range(n.size):
        count = np.float64(n[r])
        one = 1.0 / count if n[r] > 0 else np.nan
        per_n[r] = one
        per_n1[r] = 1.0 / (count - 1.0) if n[r] > 1 else np.nan
        near = np.int64(np.rint(np.float64(t[r]) * one)) if n[r] > 0 else np.int64(0)
        left = t[r] - n[r] * near
        middle[r] = near
        rest[r] = left
        off = np.float64(left)
        spread = np.float64(tt[r] - near * (t[r] + left)) - off * off * one
        per_spread[r] = _S_PER_HOUR / spread if spread > 0.0 else np.nan


@vector_jit
def gauge_terms(
    s: Array, ss: Array, tv: Array, n: Array,
    per_n: Array, per_n1: Array, middle: Array, rest: Array, per_spread: Array,
    rows: Array, scale: Array, offset: Array, out: Array,
) -> None:  # fmt: skip
    """Mean, spread, slope and sum of a gauge over windows.

    Args:
        s: Sum of values, int64, shape (m,), like all but the last four.
        ss: Sum of squares.
        tv: Sum of seconds times value.
        n: Known values.
        per_n: As from `time_terms`, like the next four.
        per_n1: 1 / (n - 1).
        middle: An integer near the mean second.
        rest: Sum of seconds - n * middle.
        per_spread: 3600 / spread of the seconds.
        rows: Row in `out` of each statistic, -1: none, shape (8,).
        scale: Factor of each row, shape (F,).
        offset: Added to each row.
        out: Results, float32, shape (F, m).
    """
    if rows[MEAN] >= 0:
        result, a, c = out[rows[MEAN]], scale[rows[MEAN]], offset[rows[MEAN]]
        for r in range(s.size):
            result[r] = np.float32(np.float64(s[r]) * per_n[r] * a + c)
    if rows[SUM] >= 0:
        result, a, c = out[rows[SUM]], scale[rows[SUM]], offset[rows[SUM]]
        for r in range(s.size):
            result[r] = np.float32(np.float64(s[r]) * a + c) if n[r] > 0 else np.float32(np.nan)
    if rows[STD] >= 0:
        result, a = out[rows[STD]], scale[rows[STD]]
        for r in range(s.size):
            near = np.int64(np.rint(np.float64(s[r]) * per_n[r])) if n[r] > 0 else np.int64(0)
            left = s[r] - n[r] * near
            off = np.float64(left)
            squares = np.float64(ss[r] - near * (s[r] + left)) - off * off * per_n[r]
            variance = max(squares, 0.0) * per_n1[r]
            result[r] = np.float32(np.sqrt(variance) * a)
    if rows[SLOPE] >= 0:
        result, a = out[rows[SLOPE]], scale[rows[SLOPE]]
        for r in range(s.size):
            near = np.int64(np.rint(np.float64(s[r]) * per_n[r])) if n[r] > 0 else np.int64(0)
            left = s[r] - n[r] * near
            both = np.float64(tv[r] - middle[r] * s[r] - near * rest[r])
            both -= np.float64(left) * np.float64(rest[r]) * per_n[r]
            result[r] = np.float32(both * per_spread[r] * a)


@vector_jit
def value_terms(
    low: Array, high: Array, last: Array, before: Array, of_before: Array, first_limit: Int,
    step: Int, n: Array, rows: Array, scale: Array, offset: Array, out: Array,
) -> None:  # fmt: skip
    """Extremes, last value and change of a gauge over windows.

    Args:
        low: Lowest value, int32, shape (m,), like the next four.
        high: Highest value.
        last: Last known value, int64.
        before: Last known value at the window's start, int64.
        of_before: The bucket of that, int64.
        first_limit: The first bucket of the window before the first window.
        step: Buckets from one window to the next.
        n: Known values in the window.
        rows: Row in `out` of each statistic, -1: none, shape (8,).
        scale: Factor of each row, shape (F,).
        offset: Added to each row.
        out: Results, float32, shape (F, m).
    """
    nothing = np.float32(np.nan)
    if rows[MIN] >= 0:
        result, a, c = out[rows[MIN]], scale[rows[MIN]], offset[rows[MIN]]
        for r in range(n.size):
            result[r] = np.float32(np.float64(low[r]) * a + c) if n[r] > 0 else nothing
    if rows[MAX] >= 0:
        result, a, c = out[rows[MAX]], scale[rows[MAX]], offset[rows[MAX]]
        for r in range(n.size):
            result[r] = np.float32(np.float64(high[r]) * a + c) if n[r] > 0 else nothing
    if rows[LAST] >= 0:
        result, a, c = out[rows[LAST]], scale[rows[LAST]], offset[rows[LAST]]
        for r in range(n.size):
            result[r] = np.float32(np.float64(last[r]) * a + c) if n[r] > 0 else nothing
    if rows[DELTA] >= 0:
        result, a = out[rows[DELTA]], scale[rows[DELTA]]
        for r in range(n.size):
            change = np.float64(last[r]) - np.float64(before[r])
            is_known = (n[r] > 0) & (of_before[r] >= first_limit + r * step)
            result[r] = np.float32(change * a) if is_known else nothing


@vector_jit
def known_terms(total: Array, n: Array, row: Int, scale: Array, offset: Array, out: Array) -> None:
    """A total that is unknown where nothing was counted."""
    result, a, c = out[row], scale[row], offset[row]
    for r in range(total.size):
        result[r] = np.float32(np.float64(total[r]) * a + c) if n[r] > 0 else np.float32(np.nan)


@vector_jit
def count_terms(
    n: Array, age_ms: Array, count_row: Int, age_row: Int,
    scale: Array, offset: Array, out: Array,
) -> None:  # fmt: skip
    """Counts of samples, and the age of the last one.

    Args:
        n: Samples in the window, int64, shape (m,).
        age_ms: From the last sample to the window's end, int64.
        count_row: Row of the count, -1: none.
        age_row: Row of the age in hours, -1: none.
        scale: Factor of each row, shape (F,).
        offset: Added to each row.
        out: Results, float32, shape (F, m).
    """
    if count_row >= 0:
        result, a, c = out[count_row], scale[count_row], offset[count_row]
        for r in range(n.size):
            result[r] = np.float32(np.float64(n[r]) * a + c)
    if age_row >= 0:
        result, a, c = out[age_row], scale[age_row], offset[age_row]
        for r in range(n.size):
            age = np.float64(age_ms[r]) / _MS_PER_HOUR
            result[r] = np.float32(age * a + c) if n[r] > 0 else np.float32(np.nan)


@vector_jit
def asks(rows: Array, statistic: Int) -> bool:
    """Whether any window of a gauge wants a statistic."""
    for k in range(rows.shape[0]):
        if rows[k, statistic] >= 0:
            return True
    return False
