"""The loop that turns a GPU's buckets into statistics over many windows at once.

Its formulas are those of `features.engine.window_kernels`; buckets are filled by
`features.engine.bucket_kernels`.
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
    NEVER,
    SLOPE,
    STD,
    SUM,
    asks,
    count_terms,
    gauge_terms,
    known_terms,
    time_terms,
    value_terms,
)

Array = Any  # numpy arrays; numba infers their types
Int = Any  # of Python or NumPy


@vector_jit
def _between(totals: Array, first_end: Int, step: Int, length: Int, out: Array) -> None:
    """Totals of windows: what was reached at their end less what was at their start."""
    if step == 1:
        ends, starts = totals[first_end:], totals[first_end - length :]
        for r in range(out.size):
            out[r] = ends[r] - starts[r]
    else:
        for r in range(out.size):
            end = first_end + r * step
            out[r] = totals[end] - totals[end - length]


@vector_jit
def _run_up(values: Array, out: Array) -> None:
    """Running totals; out[j] is the sum before bucket j."""
    total = np.int64(0)
    out[0] = total
    for j in range(values.size):
        total += np.int64(values[j])
        out[j + 1] = total


@vector_jit
def _run_up_times(n: Array, t: Array, tt: Array, first_s: Int, bucket_s: Int, out: Array) -> None:
    """Running totals of count, seconds and squared seconds since 1970; out has shape (3, b + 1)."""
    count, seconds, squares = np.int64(0), np.int64(0), np.int64(0)
    out[0, 0], out[1, 0], out[2, 0] = count, seconds, squares
    for j in range(n.size):
        base, here = first_s + j * bucket_s, np.int64(n[j])
        count += here
        seconds += t[j] + base * here
        squares += tt[j] + 2 * base * t[j] + base * base * here
        out[0, j + 1], out[1, j + 1], out[2, j + 1] = count, seconds, squares


@vector_jit
def _run_up_products(s: Array, tv: Array, first_s: Int, bucket_s: Int, out: Array) -> None:
    total = np.int64(0)
    out[0] = total
    for j in range(s.size):
        total += tv[j] + (first_s + j * bucket_s) * s[j]
        out[j + 1] = total


@vector_jit
def _extend(both: Array, side: Int, shorter: Int, longer: Int, statistic: Int) -> Int:
    """Extremes over `longer` buckets from those over `shorter`; index j is the window's last.

    Args:
        both: Two rows, one holds the extremes, shape (2, b).
        side: Which.
        shorter: Over how many buckets.
        longer: Over how many they are wanted.
        statistic: `MIN` or `MAX`.

    Returns:
        The row that holds them now.
    """
    while shorter < longer:
        # Pieces may overlap: an extreme does not mind.
        by = min(shorter, longer - shorter)
        old, new = both[side], both[1 - side]
        ahead, behind, joined = old[by:], old[: old.size - by], new[by:]
        new[:by] = old[:by]
        if statistic == MIN:
            for j in range(joined.size):
                joined[j] = min(ahead[j], behind[j])
        else:
            for j in range(joined.size):
                joined[j] = max(ahead[j], behind[j])
        shorter += by
        side = 1 - side
    return side


@vector_jit
def _carry(last: Array, n: Array, value: Int, since: Int, first: Int, out: Array) -> None:
    """The last known value before each bucket and the bucket it is of; out has shape (2, b + 1)."""
    out[0, 0], out[1, 0] = value, since
    for j in range(n.size):
        if n[j] > 0:
            value, since = np.int64(last[j]), np.int64(first + j)
        out[0, j + 1], out[1, j + 1] = value, since


@vector_jit
def carry_over(
    last: Array, n: Array, own: Array, own_n: Array, first: Int, n_buckets: Int, carried: Array
) -> None:
    """Carries the last known value of the first buckets, and its bucket, to those after them.

    Args:
        last: Last values, shape (G, g, b).
        n: Samples, shape (g, b).
        own: Place of each gauge's own counts, -1: none, shape (G,).
        own_n: Known values, shape (o, g, b).
        first: Number of bucket 0.
        n_buckets: How many buckets go.
        carried: In and out: value and bucket, shape (2, G, g).
    """
    for i in range(own.size):
        known = n if own[i] < 0 else own_n[own[i]]
        for g in range(n.shape[0]):
            for b in range(n_buckets - 1, -1, -1):
                if known[g, b] > 0:
                    carried[0, i, g], carried[1, i, g] = last[i, g, b], first + b
                    break


@vector_jit
def combine(
    counts: Array, times: Array, last_ms: Array, sums: Array, low: Array, high: Array, last: Array,
    own: Array, own_n: Array, own_times: Array, increases: Array, n_increases: Array,
    carried: Array, windows: Array, gauge_rows: Array, counter_rows: Array, count_rows: Array,
    age_rows: Array, scale: Array, offset: Array, first_bucket: Int, bucket_s: Int,
    first_end: Int, step: Int, first_gpu: Int, out: Array,
) -> None:  # fmt: skip
    """Statistics over windows for some GPUs.

    Args:
        counts: Samples per bucket, int32, shape (g, b).
        times: Sums of seconds and of their squares, int64, shape (2, g, b).
        last_ms: Time of the last sample, shape (g, b).
        sums: Sums of values, squares and products with time, shape (3, G, g, b).
        low: Lowest values, int32, shape (G, g, b).
        high: Highest values.
        last: Last values.
        own: Place of each gauge's own counts, -1: none, shape (G,).
        own_n: Known values, shape (o, g, b).
        own_times: Sums of their seconds and squares, shape (2, o, g, b).
        increases: Increases of counters, shape (C, g, b).
        n_increases: How many are known.
        carried: Last value before bucket 0 and its bucket, int64, shape (2, G, g).
        windows: Lengths in buckets, ascending, shape (W,).
        gauge_rows: Rows of the results, shape (G, W, 8).
        counter_rows: Shape (C, W).
        count_rows: Shape (W,).
        age_rows: Shape (W,).
        scale: Factor of each row, shape (F,).
        offset: Added to each row.
        first_bucket: Number of bucket 0, counted from 1970.
        bucket_s: Length of a bucket in seconds.
        first_end: The bucket at whose start the first window ends.
        step: Buckets from one window's end to the next.
        first_gpu: The GPU the results start with.
        out: Results, float32, shape (GPUs, F, m).
    """
    n_gauges, n_windows, n_buckets = own.size, windows.size, counts.shape[1]
    m, first_s = out.shape[2], first_bucket * bucket_s
    totals = np.empty((3, n_buckets + 1), np.int64)
    shared_w = np.empty((n_windows, 3, m), np.int64)
    shared_f = np.empty((n_windows, 3, m), np.float64)
    shared_i = np.empty((n_windows, 2, m), np.int64)
    own_w, own_f, own_i = np.empty_like(shared_w), np.empty_like(shared_f), np.empty_like(shared_i)
    before = np.empty((2, n_buckets + 1), np.int64)
    d = np.empty((3, m), np.int64)
    lows, highs = np.empty((2, n_buckets), np.int32), np.empty((2, n_buckets), np.int32)
    ends = np.empty((3, m), np.int64)
    extremes = np.empty((2, m), np.int32)
    for at in range(out.shape[0]):
        g, rows_out = first_gpu + at, out[at]
        _run_up_times(counts[g], times[0, g], times[1, g], first_s, bucket_s, totals)
        for k in range(n_windows):
            _time_windows(
                totals, first_end, step, windows[k], shared_w[k], shared_f[k], shared_i[k]
            )
        _carry(last_ms[g], counts[g], 0, NEVER, first_bucket, before)
        for k in range(n_windows):
            if count_rows[k] >= 0 or age_rows[k] >= 0:
                for r in range(m):
                    end = first_end + r * step
                    ends[0, r] = (first_s + end * bucket_s) * 1000 - before[0, end]
                count_terms(
                    shared_w[k, 0], ends[0], count_rows[k], age_rows[k], scale, offset, rows_out
                )
        for i in range(n_gauges):
            w, f, j = shared_w, shared_f, shared_i
            known = counts[g]
            if own[i] >= 0:
                w, f, j = own_w, own_f, own_i
                known = own_n[own[i], g]
                _run_up_times(
                    known, own_times[0, own[i], g], own_times[1, own[i], g],
                    first_s, bucket_s, totals,
                )  # fmt: skip
                for k in range(n_windows):
                    _time_windows(totals, first_end, step, windows[k], w[k], f[k], j[k])
            if (
                asks(gauge_rows[i], MEAN)
                or asks(gauge_rows[i], STD)
                or asks(gauge_rows[i], SLOPE)
                or asks(gauge_rows[i], SUM)
            ):
                _run_up(sums[0, i, g], totals[0])
                _run_up(sums[1, i, g], totals[1])
                _run_up_products(sums[0, i, g], sums[2, i, g], first_s, bucket_s, totals[2])
                for k in range(n_windows):
                    for one in range(3):
                        _between(totals[one], first_end, step, windows[k], d[one])
                    gauge_terms(
                        d[0], d[1], d[2], w[k, 0], f[k, 0], f[k, 1], j[k, 0], j[k, 1], f[k, 2],
                        gauge_rows[i, k], scale, offset, rows_out,
                    )  # fmt: skip
            has_extremes = asks(gauge_rows[i], MIN) or asks(gauge_rows[i], MAX)
            if (
                not has_extremes
                and not asks(gauge_rows[i], LAST)
                and not asks(gauge_rows[i], DELTA)
            ):
                continue
            _carry(last[i, g], known, carried[0, i, g], carried[1, i, g], first_bucket, before)
            length, at_low, at_high = np.int64(1), np.int64(0), np.int64(0)
            if has_extremes:
                lows[0, :], highs[0, :] = low[i, g], high[i, g]
            for k in range(n_windows):
                longer = windows[k]
                if has_extremes:
                    at_low = _extend(lows, at_low, length, longer, MIN)
                    at_high = _extend(highs, at_high, length, longer, MAX)
                    length = longer
                limit = first_bucket + first_end - 2 * longer
                if step == 1:
                    start, stop = first_end, first_end + m
                    value_terms(
                        lows[at_low, start - 1 : stop - 1], highs[at_high, start - 1 : stop - 1],
                        before[0, start:stop], before[0, start - longer : stop - longer],
                        before[1, start - longer : stop - longer], limit, 1, w[k, 0],
                        gauge_rows[i, k], scale, offset, rows_out,
                    )  # fmt: skip
                    continue
                for r in range(m):
                    end = first_end + r * step
                    extremes[0, r], extremes[1, r] = lows[at_low, end - 1], highs[at_high, end - 1]
                    ends[0, r] = before[0, end]
                    ends[1, r] = before[0, end - longer]
                    ends[2, r] = before[1, end - longer]
                value_terms(
                    extremes[0], extremes[1], ends[0], ends[1], ends[2], limit, step, w[k, 0],
                    gauge_rows[i, k], scale, offset, rows_out,
                )  # fmt: skip
        for c in range(counter_rows.shape[0]):
            _run_up(increases[c, g], totals[0])
            _run_up(n_increases[c, g], totals[1])
            for k in range(n_windows):
                if counter_rows[c, k] >= 0:
                    _between(totals[0], first_end, step, windows[k], d[0])
                    _between(totals[1], first_end, step, windows[k], d[1])
                    known_terms(d[0], d[1], counter_rows[c, k], scale, offset, rows_out)


@vector_jit
def _time_windows(
    totals: Array, first_end: Int, step: Int, length: Int, w: Array, f: Array, j: Array
) -> None:
    for one in range(3):
        _between(totals[one], first_end, step, length, w[one])
    time_terms(w[0], w[1], w[2], f[0], f[1], j[0], j[1], f[2])
