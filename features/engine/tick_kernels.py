"""The loop that moves a shard's running totals on by one bucket and gives the windows that end.

Its formulas are those of `features.engine.window_kernels`, here over the GPUs of one bucket; what
the arrays are and where they are kept is in `features.engine.ring`.
"""

from typing import Any

import numpy as np

from features.compiled import vector_jit
from features.engine.window_kernels import (
    DELTA,
    LAST,
    MAX,
    MEAN,
    MIN,
    SLOPE,
    STD,
    SUM,
    count_terms,
    gauge_terms,
    known_terms,
    time_terms,
    value_terms,
)

Array = Any  # numpy arrays; numba infers their types
Int = Any  # of Python or NumPy


@vector_jit
def move_totals(
    new_n: Array, new_times: Array, new_sums: Array, base_s: Int,
    times_now: Array, times_then: Array, sums_now: Array, sums_then: Array,
) -> None:  # fmt: skip
    """Adds a bucket to running totals.

    Args:
        new_n: Samples of the bucket, shape (g,).
        new_times: Sums of seconds since the bucket's start and of squares, shape (2, g).
        new_sums: Sums of values, squares and products with time, shape (3, G, g).
        base_s: The bucket's start in seconds since 1970.
        times_now: Out: count, seconds and squared seconds since 1970, shape (3, g).
        times_then: The same before the bucket.
        sums_now: Out: values, squares and products, shape (3, G, g).
        sums_then: The same before the bucket.
    """
    move_times(new_n, new_times, base_s, times_now, times_then)
    for i in range(new_sums.shape[1]):
        for g in range(new_n.size):
            sums_now[0, i, g] = sums_then[0, i, g] + new_sums[0, i, g]
            sums_now[1, i, g] = sums_then[1, i, g] + new_sums[1, i, g]
            product = new_sums[2, i, g] + base_s * new_sums[0, i, g]
            sums_now[2, i, g] = sums_then[2, i, g] + product


@vector_jit
def move_times(new_n: Array, new_times: Array, base_s: Int, now: Array, then: Array) -> None:
    """Adds a bucket to running counts and times; see `move_totals`."""
    for g in range(new_n.size):
        n, t = np.int64(new_n[g]), new_times[0, g]
        now[0, g] = then[0, g] + n
        now[1, g] = then[1, g] + t + base_s * n
        now[2, g] = then[2, g] + new_times[1, g] + 2 * base_s * t + base_s * base_s * n


@vector_jit
def move_last(
    new_n: Array, new_last: Array, bucket: Int,
    last_now: Array, last_then: Array, of_now: Array, of_then: Array,
) -> None:  # fmt: skip
    """Carries the last known value on, and the bucket it is of; shape (g,) each."""
    for g in range(new_n.size):
        is_new = new_n[g] > 0
        last_now[g] = new_last[g] if is_new else last_then[g]
        of_now[g] = bucket if is_new else of_then[g]


@vector_jit
def widen(extremes: Array, others: Array) -> None:
    """Takes in other lowest and highest values.

    Args:
        extremes: Lowest and highest values, shape (2, G, g).
        others: Some more of them, shape (n, 2, G, g).
    """
    for i in range(extremes.shape[1]):
        low, high = extremes[0, i], extremes[1, i]
        for one in range(others.shape[0]):
            other_low, other_high = others[one, 0, i], others[one, 1, i]
            for g in range(low.size):
                low[g] = min(low[g], other_low[g])
                high[g] = max(high[g], other_high[g])


@vector_jit
def tick(
    records: Array, narrow: Array, now: Int, starts: Array, own: Array, extremes: Array,
    windows: Array, gauge_rows: Array, counter_rows: Array, count_rows: Array, age_rows: Array,
    scale: Array, offset: Array, bucket: Int, bucket_ms: Int, out: Array,
) -> None:  # fmt: skip
    """Statistics over the windows that end with a bucket.

    Args:
        records: Running totals of some buckets, rows as in `features.engine.slots.Totals`, int64,
            shape (places, rows, g).
        narrow: The same bytes as int32, shape (places, 2 * rows, g).
        now: Place of the last bucket.
        starts: Place of the bucket before each window, shape (W,).
        own: At least 0 where a gauge has times of its known values, shape (G,).
        extremes: Lowest and highest values over each window, int32, shape (W, 2, G, g).
        windows: Lengths in buckets, ascending, shape (W,).
        gauge_rows: Rows of the results, shape (G, W, 8).
        counter_rows: Shape (C, W).
        count_rows: Shape (W,).
        age_rows: Shape (W,).
        scale: Factor of each row, shape (F,).
        offset: Added to each row.
        bucket: The last bucket of the windows, counted from 1970.
        bucket_ms: Length of a bucket.
        out: Results, float32, shape (F, g).
    """
    n_gpus, n_gauges, n_counters = records.shape[2], own.size, counter_rows.shape[0]
    sums_row, last_row = 3, 3 + 3 * n_gauges
    ms_row = last_row + n_gauges
    increases_row, own_row = ms_row + 1, ms_row + 1 + 2 * n_counters
    w, f = np.empty((3, n_gpus), np.int64), np.empty((3, n_gpus), np.float64)
    j = np.empty((2, n_gpus), np.int64)
    own_w, own_f, own_j = np.empty_like(w), np.empty_like(f), np.empty_like(j)
    d = np.empty((3, n_gpus), np.int64)
    age = np.empty(n_gpus, np.int64)
    values = np.empty((3, n_gpus), np.int64)
    for k in range(windows.size):
        then = starts[k]
        _times_between(records[now, :3], records[then, :3], w, f, j)
        if count_rows[k] >= 0 or age_rows[k] >= 0:
            for g in range(n_gpus):
                age[g] = (bucket + 1) * bucket_ms - records[now, ms_row, g]
            count_terms(w[0], age, count_rows[k], age_rows[k], scale, offset, out)
        for i in range(own.size):
            rows = gauge_rows[i, k]
            a, b, c = w, f, j
            if own[i] >= 0:
                a, b, c = own_w, own_f, own_j
                at = own_row + 3 * i
                _times_between(
                    records[now, at : at + 3], records[then, at : at + 3], own_w, own_f, own_j
                )
            if rows[MEAN] >= 0 or rows[STD] >= 0 or rows[SLOPE] >= 0 or rows[SUM] >= 0:
                for one in range(3):
                    row = sums_row + one * n_gauges + i
                    of_now, of_then = records[now, row], records[then, row]
                    for g in range(n_gpus):
                        d[one, g] = of_now[g] - of_then[g]
                gauge_terms(
                    d[0], d[1], d[2], a[0], b[0], b[1], c[0], c[1], b[2], rows, scale, offset, out
                )
            if rows[MIN] >= 0 or rows[MAX] >= 0 or rows[LAST] >= 0 or rows[DELTA] >= 0:
                row = 2 * last_row + i
                last_now, last_then = narrow[now, row], narrow[then, row]
                last_bucket = narrow[then, row + n_gauges]
                for g in range(n_gpus):
                    values[0, g], values[1, g] = last_now[g], last_then[g]
                    values[2, g] = last_bucket[g]
                most = extremes[k]
                value_terms(
                    most[0, i], most[1, i], values[0], values[1], values[2],
                    bucket + 1 - 2 * windows[k], 0, a[0], rows, scale, offset, out,
                )  # fmt: skip
        for number in range(n_counters):
            if counter_rows[number, k] >= 0:
                for one in range(2):
                    row = increases_row + one * n_counters + number
                    of_now, of_then = records[now, row], records[then, row]
                    for g in range(n_gpus):
                        d[one, g] = of_now[g] - of_then[g]
                known_terms(d[0], d[1], counter_rows[number, k], scale, offset, out)


@vector_jit
def _times_between(now: Array, then: Array, w: Array, f: Array, j: Array) -> None:
    for one in range(3):
        for g in range(w.shape[1]):
            w[one, g] = now[one, g] - then[one, g]
    time_terms(w[0], w[1], w[2], f[0], f[1], j[0], j[1], f[2])
