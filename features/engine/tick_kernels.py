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
def extend_extremes(
    extremes: Array, firsts: Array, lengths: Array, windows: Array, bucket: Int
) -> None:
    """Extremes over each window that ends with a bucket, from those over the window before.

    Args:
        extremes: Rings of lowest and highest values, one after the other: first of the bucket
            itself, then of each window; shape (slots, 2, G, g).
        firsts: First slot of each ring, shape (W + 1,).
        lengths: Slots of each ring.
        windows: Window lengths in buckets, ascending, shape (W,).
        bucket: Number of the bucket.
    """
    shorter = np.int64(1)
    for k in range(windows.size):
        longer = windows[k]
        new = extremes[firsts[k + 1] + bucket % lengths[k + 1]]
        new[:] = extremes[firsts[k] + bucket % lengths[k]]
        shift = shorter
        while shift < longer:
            by = min(shift, longer - shorter)
            old = extremes[firsts[k] + (bucket - by) % lengths[k]]
            for i in range(new.shape[1]):
                low, high = new[0, i], new[1, i]
                old_low, old_high = old[0, i], old[1, i]
                for g in range(low.size):
                    low[g] = min(low[g], old_low[g])
                    high[g] = max(high[g], old_high[g])
            shift += shorter
        shorter = longer


@vector_jit
def tick(
    times: Array, sums: Array, own: Array, own_times: Array, last: Array, last_bucket: Array,
    last_ms: Array, extremes: Array, firsts: Array, lengths: Array, increases: Array,
    windows: Array, gauge_rows: Array, counter_rows: Array, count_rows: Array, age_rows: Array,
    scale: Array, offset: Array, bucket: Int, bucket_ms: Int, out: Array,
) -> None:  # fmt: skip
    """Statistics over the windows that end with a bucket. L slots, a bucket's is bucket % L.

    Args:
        times: Running count, seconds and squared seconds, int64, shape (L, 3, g).
        sums: Running sums of values, squares and products with time, shape (L, 3, G, g).
        own: Place of each gauge's own counts, -1: none, shape (G,).
        own_times: As `times`, of known values, shape (o, L, 3, g).
        last: Last known value, int32, shape (L, G, g).
        last_bucket: Its bucket, int32.
        last_ms: Time of the last sample, int64, shape (L, g).
        extremes: As in `extend_extremes`, which comes first.
        firsts: First slot of each ring of extremes.
        lengths: Slots of each ring of extremes.
        increases: Running sum of increases and how many are known, shape (L, 2, C, g).
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
    slots, n_gpus = times.shape[0], times.shape[2]
    now = bucket % slots
    w, f = np.empty((3, n_gpus), np.int64), np.empty((3, n_gpus), np.float64)
    j = np.empty((2, n_gpus), np.int64)
    own_w, own_f, own_j = np.empty_like(w), np.empty_like(f), np.empty_like(j)
    d = np.empty((3, n_gpus), np.int64)
    age = np.empty(n_gpus, np.int64)
    values = np.empty((3, n_gpus), np.int64)
    for k in range(windows.size):
        then = (bucket - windows[k]) % slots
        _times_between(times[now], times[then], w, f, j)
        if count_rows[k] >= 0 or age_rows[k] >= 0:
            for g in range(n_gpus):
                age[g] = (bucket + 1) * bucket_ms - last_ms[now, g]
            count_terms(w[0], age, count_rows[k], age_rows[k], scale, offset, out)
        for i in range(own.size):
            rows = gauge_rows[i, k]
            a, b, c = w, f, j
            if own[i] >= 0:
                a, b, c = own_w, own_f, own_j
                _times_between(own_times[own[i], now], own_times[own[i], then], a, b, c)
            if rows[MEAN] >= 0 or rows[STD] >= 0 or rows[SLOPE] >= 0 or rows[SUM] >= 0:
                for one in range(3):
                    for g in range(n_gpus):
                        d[one, g] = sums[now, one, i, g] - sums[then, one, i, g]
                gauge_terms(
                    d[0], d[1], d[2], a[0], b[0], b[1], c[0], c[1], b[2], rows, scale, offset, out
                )
            if rows[MIN] >= 0 or rows[MAX] >= 0 or rows[LAST] >= 0 or rows[DELTA] >= 0:
                for g in range(n_gpus):
                    values[0, g], values[1, g] = last[now, i, g], last[then, i, g]
                    values[2, g] = last_bucket[then, i, g]
                most = extremes[firsts[k + 1] + bucket % lengths[k + 1]]
                value_terms(
                    most[0, i], most[1, i], values[0], values[1], values[2],
                    bucket + 1 - 2 * windows[k], 0, a[0], rows, scale, offset, out,
                )  # fmt: skip
        for number in range(counter_rows.shape[0]):
            if counter_rows[number, k] >= 0:
                for one in range(2):
                    of_now, of_then = increases[now, one, number], increases[then, one, number]
                    for g in range(n_gpus):
                        d[one, g] = of_now[g] - of_then[g]
                known_terms(d[0], d[1], counter_rows[number, k], scale, offset, out)


@vector_jit
def _times_between(now: Array, then: Array, w: Array, f: Array, j: Array) -> None:
    for one in range(3):
        for g in range(w.shape[1]):
            w[one, g] = now[one, g] - then[one, g]
    time_terms(w[0], w[1], w[2], f[0], f[1], j[0], j[1], f[2])
