"""The loops that reduce samples to buckets: sums, extremes and last values as exact integers.

What the arrays are is in `features.engine.buckets`; windows are made in `window_kernels`.

Samples come sorted by (GPU, time). A run is the samples of one GPU in one bucket. Results are
added to what the buckets hold, so that a run may come in parts, earlier ones first.
"""

from typing import Any, Final

import numpy as np

from features.compiled import exact_float_jit, jit

Array = Any  # numpy arrays; numba infers their types
Int = Any  # of Python or NumPy

NULL: Final = np.int32(-(2**31))
"""Stands for "unknown" among 32-bit values."""
NO_VALUE: Final = np.int64(-(2**63))
"""Stands for "unknown" among 64-bit values."""
HIGHEST: Final = np.int32(2**31 - 1)
_AT_ONCE: Final = 512  # 512 * plan.LARGEST**2 < 2**53


@jit
def find_runs(
    gpu: Array, ts_ms: Array, first_gpu: Int, start_ms: Int, bucket_ms: Int,
    x: Array, run_gpu: Array, run_bucket: Array, run_start: Array,
) -> Int:  # fmt: skip
    """Cuts samples into runs.

    Args:
        gpu: GPU codes, shape (n,).
        ts_ms: Times, shape (n,).
        first_gpu: Code of the GPU in the first row of the buckets.
        start_ms: Where bucket 0 starts.
        bucket_ms: Length of a bucket.
        x: Out: whole seconds since the bucket's start, shape (n,).
        run_gpu: Out: row of each run, shape (n + 1,).
        run_bucket: Out: bucket of each run.
        run_start: Out: first sample of each run, and n after the last.

    Returns:
        How many runs there are.
    """
    n_runs = 0
    at, end_ms = np.int64(-1), np.int64(0)
    base_ms = np.int64(0)
    for i in range(gpu.size):
        row = np.int64(gpu[i]) - first_gpu
        moment = ts_ms[i]
        if row != at or moment >= end_ms:
            bucket = (moment - start_ms) // bucket_ms
            base_ms = start_ms + bucket * bucket_ms
            at, end_ms = row, base_ms + bucket_ms
            run_gpu[n_runs] = row
            run_bucket[n_runs] = bucket
            run_start[n_runs] = i
            n_runs += 1
        x[i] = (moment - base_ms) // 1000
    run_start[n_runs] = gpu.size
    return n_runs


@jit
def add_times(
    ts_ms: Array, x: Array, run_gpu: Array, run_bucket: Array, run_start: Array, n_runs: Int,
    run_t: Array, run_tt: Array, n: Array, t: Array, tt: Array, last_ms: Array,
) -> None:  # fmt: skip
    """Adds counts and times of samples to the buckets, shape (GPUs, buckets) each.

    Those of each run are left in `run_t` and `run_tt`, shape (runs,).
    """
    for run in range(n_runs):
        start, end = run_start[run], run_start[run + 1]
        total, squares = np.int64(0), np.int64(0)
        for seconds in x[start:end]:
            total += np.int64(seconds)
            squares += np.int64(seconds) * np.int64(seconds)
        g, b = run_gpu[run], run_bucket[run]
        run_t[run], run_tt[run] = total, squares
        n[g, b] += end - start
        t[g, b] += total
        tt[g, b] += squares
        last_ms[g, b] = ts_ms[end - 1]


@exact_float_jit
def add_gauge(
    v: Array, x: Array, run_gpu: Array, run_bucket: Array, run_start: Array, n_runs: Int,
    n_null: Array, s: Array, ss: Array, tv: Array, low: Array, high: Array, last: Array,
) -> None:  # fmt: skip
    """Adds a gauge to its buckets; runs with unknown values are left to `add_gappy_runs`.

    Args:
        v: Values, int32, at most `plan.LARGEST` in size, `NULL` where unknown, shape (n,).
        x: Seconds since the bucket's start.
        run_gpu: As from `find_runs`, like the next three.
        run_bucket: Bucket of each run.
        run_start: First sample of each run.
        n_runs: How many runs.
        n_null: Unknown values in each run (`count_null`), shape (runs,); empty: none in any.
        s: Sum of values, shape (GPUs, buckets), like the next five.
        ss: Sum of squares.
        tv: Sum of seconds times value.
        low: Lowest value.
        high: Highest value.
        last: Last value.
    """
    for run in range(n_runs):
        g, b = run_gpu[run], run_bucket[run]
        first, end = run_start[run], run_start[run + 1]
        if n_null.size and n_null[run] > 0:
            continue
        for start in range(first, end, _AT_ONCE):
            vs, xs = v[start : min(start + _AT_ONCE, end)], x[start : min(start + _AT_ONCE, end)]
            total, squares, products = 0.0, 0.0, 0.0
            lowest = highest = np.float64(vs[0])
            for i in range(vs.size):
                value = np.float64(vs[i])
                total += value
                squares += value * value
                products += value * np.float64(xs[i])
                lowest = min(lowest, value)
                highest = max(highest, value)
            s[g, b] += np.int64(total)
            ss[g, b] += np.int64(squares)
            tv[g, b] += np.int64(products)
            low[g, b] = min(low[g, b], np.int32(lowest))
            high[g, b] = max(high[g, b], np.int32(highest))
        last[g, b] = v[end - 1]


@jit
def add_gappy_runs(
    v: Array, x: Array, run_gpu: Array, run_bucket: Array, run_start: Array, n_runs: Int,
    n_null: Array, s: Array, ss: Array, tv: Array, low: Array, high: Array, last: Array,
) -> None:  # fmt: skip
    """Adds the runs of a gauge that have unknown values; see `add_gauge`."""
    for run in range(n_runs):
        start, end = run_start[run], run_start[run + 1]
        if n_null[run] == 0:
            continue
        g, b = run_gpu[run], run_bucket[run]
        for i in range(start, end):
            if v[i] == NULL:
                continue
            value, seconds = np.int64(v[i]), np.int64(x[i])
            s[g, b] += value
            ss[g, b] += value * value
            tv[g, b] += value * seconds
            low[g, b] = min(low[g, b], v[i])
            high[g, b] = max(high[g, b], v[i])
            last[g, b] = v[i]


@jit
def add_known_times(
    v: Array, x: Array, run_gpu: Array, run_bucket: Array, run_start: Array, n_runs: Int,
    n_null: Array, run_t: Array, run_tt: Array, n: Array, t: Array, tt: Array,
) -> None:  # fmt: skip
    """Adds counts and times of the known values of a gauge that has had unknown ones."""
    for run in range(n_runs):
        g, b = run_gpu[run], run_bucket[run]
        start, end = run_start[run], run_start[run + 1]
        n[g, b] += end - start
        t[g, b] += run_t[run]
        tt[g, b] += run_tt[run]
        if n_null.size == 0 or n_null[run] == 0:
            continue
        n[g, b] -= n_null[run]
        for i in range(start, end):
            if v[i] == NULL:
                seconds = np.int64(x[i])
                t[g, b] -= seconds
                tt[g, b] -= seconds * seconds


@jit
def count_null(v: Array, run_start: Array, n_runs: Int, n_null: Array) -> None:
    """Counts the unknown values of each run."""
    for run in range(n_runs):
        count = 0
        for value in v[run_start[run] : run_start[run + 1]]:
            count += value == NULL
        n_null[run] = count


@jit
def add_counter(
    v: Array, ts_ms: Array, run_gpu: Array, run_bucket: Array, run_start: Array, n_runs: Int,
    memory_ms: Int, increase: Array, n_known: Array, before: Array, before_ms: Array,
    fell: Array,
) -> bool:  # fmt: skip
    """Adds a counter's increases to its buckets.

    The increase at a sample is its value less the last known one, or the value itself where it
    has fallen: it was reset in between. Without a known value in the time `memory_ms` before it
    there is none.

    Args:
        v: Values, int64, `NO_VALUE` where unknown, shape (n,).
        ts_ms: Times, shape (n,).
        run_gpu: As from `find_runs`, like the next three.
        run_bucket: Bucket of each run.
        run_start: First sample of each run.
        n_runs: How many runs.
        memory_ms: How old the value before may be.
        increase: Sum of increases, shape (GPUs, buckets).
        n_known: How many increases are known, shape (GPUs, buckets).
        before: Last known value, kept from call to call, shape (GPUs,).
        before_ms: Its time, shape (GPUs,).
        fell: Set to 1 at samples where the counter has fallen, shape (n,).

    Returns:
        Whether it fell anywhere.
    """
    any_fell = False
    run = 0
    while run < n_runs:
        g = run_gpu[run]
        stop = run
        while stop < n_runs and run_gpu[stop] == g:
            stop += 1
        start, end = run_start[run], run_start[stop]
        previous, previous_ms = before[g], before_ms[g]
        differs = np.int64(0)
        part = v[start:end]
        for i in range(part.size):
            differs |= part[i] ^ previous
        is_still = differs == 0 and previous != NO_VALUE
        if is_still and ts_ms[end - 1] - previous_ms <= memory_ms:
            # Most counters stand still for days.
            for k in range(run, stop):
                n_known[g, run_bucket[k]] += run_start[k + 1] - run_start[k]
            before_ms[g] = ts_ms[end - 1]
            run = stop
            continue
        for k in range(run, stop):
            total, count = np.int64(0), np.int64(0)
            part = v[run_start[k] : run_start[k + 1]]
            differs = np.int64(0)
            for value in part:
                differs |= value ^ previous
            still_ms = ts_ms[run_start[k + 1] - 1]
            if differs == 0 and previous != NO_VALUE and still_ms - previous_ms <= memory_ms:
                n_known[g, run_bucket[k]] += part.size
                previous_ms = still_ms
                continue
            for i in range(run_start[k], run_start[k + 1]):
                value = v[i]
                if value == NO_VALUE:
                    continue
                if previous != NO_VALUE and ts_ms[i] - previous_ms <= memory_ms:
                    count += 1
                    if value >= previous:
                        total += value - previous
                    else:
                        total += value
                        fell[i] = 1
                        any_fell = True
                previous, previous_ms = value, ts_ms[i]
            increase[g, run_bucket[k]] += total
            n_known[g, run_bucket[k]] += count
        before[g], before_ms[g] = previous, previous_ms
        run = stop
    return any_fell
