"""Results for chosen GPUs and moments, whatever their order, by the engine's batch.

How windows are computed is in `features.engine.batch`.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from features.compiled import jit
from features.engine.batch import Moments, shards_of, window_blocks
from features.engine.plan import EnginePlan
from features.engine.ring import BucketStore, tick_shard
from features.engine.samples import SHARD_SIZE, SampleSource

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

NO_GPU: Final = -1
"""Code of a GPU that the source does not know."""


def window_rows(
    source: SampleSource, plan: EnginePlan, codes: Ints, moments: Ints, *, threads: int = 1
) -> Floats:
    """Results of one GPU at one moment per row.

    Args:
        source: The samples.
        plan: What is computed.
        codes: Code of each row's GPU, `NO_GPU` for one without any sample, shape (n,).
        moments: Each row's moment in buckets since 1970, shape (n,).
        threads: Shards at once; the results are the same.

    Returns:
        Results, NaN where unknown, shape (F, n).
    """
    out = _unknown(plan, codes.size)
    order = np.lexsort((moments, codes))
    order = order[codes[order] != NO_GPU]
    shards = codes[order] // SHARD_SIZE
    parts = np.split(order, np.flatnonzero(np.diff(shards)) + 1) if order.size else []

    def fill(rows: Ints) -> None:
        _fill_shard(source, plan, codes, moments, rows=rows, out=out)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, parts))
    return out


def tick_rows(
    source: SampleSource,
    store: BucketStore,
    plan: EnginePlan,
    codes: Ints,
    *,
    moment: int,
    stale_from: int | None = None,
) -> Floats:
    """Results of GPUs at one moment, from what is remembered; the same bits as `window_rows`.

    Args:
        source: The samples.
        store: The memory.
        plan: What is computed.
        codes: Code of each row's GPU, `NO_GPU` for one without any sample, shape (n,).
        moment: The moment in buckets since 1970.
        stale_from: The earliest bucket whose samples have changed since the last tick.

    Returns:
        Results, NaN where unknown, shape (F, n).
    """
    out = _unknown(plan, codes.size)
    shards = codes // SHARD_SIZE
    # Every shard moves on, also one that no row is of: its memory would be too old next time.
    for shard, gpus in enumerate(shards_of(len(source.uuids()))):
        ticked = tick_shard(source, store, plan, gpus=gpus, moment=moment, stale_from=stale_from)
        rows = np.flatnonzero((shards == shard) & (codes != NO_GPU))
        out[:, rows] = ticked.values[:, codes[rows] - ticked.first_gpu]
    return out


def _unknown(plan: EnginePlan, n_rows: int) -> Floats:
    """Results without any sample: unknown, but for counts."""
    out = np.full((len(plan.names), n_rows), np.nan, np.float32)
    counts = plan.count_rows[plan.count_rows >= 0]
    out[counts] = plan.offset[counts, np.newaxis]
    return out


def _fill_shard(
    source: SampleSource,
    plan: EnginePlan,
    codes: Ints,
    moments: Ints,
    *,
    rows: Ints,
    out: Floats,
) -> None:
    """Fills the rows of one shard, which are sorted by (GPU, moment)."""
    distinct = np.unique(moments[rows])
    # Moments that share no sample are computed apart: nothing in between is read or kept.
    apart = np.flatnonzero(np.diff(distinct) > plan.reach) + 1
    for some in np.split(distinct, apart):
        is_one = (moments[rows] >= some[0]) & (moments[rows] <= some[-1])
        _fill_stretch(source, plan, codes, moments, rows=rows[is_one], grid=_grid(some), out=out)


def _fill_stretch(
    source: SampleSource,
    plan: EnginePlan,
    codes: Ints,
    moments: Ints,
    *,
    rows: Ints,
    grid: Moments,
    out: Floats,
) -> None:
    """Fills the rows of one shard whose moments lie on a grid; sorted by (GPU, moment)."""
    of_gpu, at = codes[rows], moments[rows]
    # A few GPUs of a shard, as neighbours often are, do not need the whole of it.
    gpus = range(int(of_gpu[0]), int(of_gpu[-1]) + 1)
    for block in window_blocks(source, plan, grid, gpus=gpus):
        size = block.values.shape[0]
        first, last = np.searchsorted(of_gpu, [block.first_gpu, block.first_gpu + size])
        mine = slice(first, last)
        _gather(
            block.values,
            of_gpu[mine] - block.first_gpu,
            (at[mine] - block.moments.first) // block.moments.step,
            rows[mine],
            out,
        )


def _grid(moments: Ints) -> Moments:
    """The evenly spaced moments that hold all of some."""
    first, last = int(moments[0]), int(moments[-1])
    step = math.gcd(*(np.diff(moments).tolist())) or 1
    return Moments(first, step, (last - first) // step + 1)


@jit
def _gather(values: Any, gpus: Any, places: Any, rows: Any, out: Any) -> None:
    """Copies results to their rows; moments outside the block are left alone."""
    count = values.shape[2]
    start = 0
    while start < gpus.size:
        stop = start
        while stop < gpus.size and gpus[stop] == gpus[start]:
            stop += 1
        of_gpu = values[gpus[start]]
        for f in range(of_gpu.shape[0]):
            row_out, row_in = out[f], of_gpu[f]
            for k in range(start, stop):
                if 0 <= places[k] < count:
                    row_out[rows[k]] = row_in[places[k]]
        start = stop


def codes_of(source: SampleSource, uuids: Sequence[str]) -> Ints:
    """The code of each GPU; `NO_GPU` where the source does not know it."""
    code = {uuid: number for number, uuid in enumerate(source.uuids())}
    return np.array([code.get(uuid, NO_GPU) for uuid in uuids], np.int64)
