"""Windows over any stretch of a shard's record, chunk by chunk in bounded memory.

What is kept from tick to tick for the newest moment is in `features.engine.ring`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from features.engine.batch_kernels import carry_over, combine
from features.engine.buckets import Buckets
from features.engine.plan import EnginePlan
from features.engine.samples import SHARD_SIZE, SampleSource
from features.engine.window_kernels import NEVER

BLOCK: Final = 32
"""GPUs per block of results: its memory is used again, which costs less than fresh memory."""
_BUDGET_BYTES: Final = 300_000_000
"""Most that buckets may take at once: so many GPUs are computed together."""
_BLOCK_BYTES: Final = 64_000_000
"""Most that a block of results may take."""


@dataclass(frozen=True)
class Moments:
    """Evenly spaced moments, counted in buckets since 1970.

    Attributes:
        first: The first.
        step: From one to the next.
        count: How many.
    """

    first: int
    step: int
    count: int


@dataclass(frozen=True)
class Block:
    """Results of some GPUs at some moments; good until the next block is asked for.

    Attributes:
        first_gpu: Code of the first GPU.
        moments: The moments.
        values: Results, float32, NaN where unknown, shape (GPUs, F, moments).
    """

    first_gpu: int
    moments: Moments
    values: npt.NDArray[np.float32]


def shards_of(n_gpus: int) -> list[range]:
    """Codes of each shard's GPUs, of as many GPUs as there are."""
    starts = range(0, n_gpus, SHARD_SIZE)
    return [range(first, min(first + SHARD_SIZE, n_gpus)) for first in starts]


def window_blocks(
    source: SampleSource, plan: EnginePlan, moments: Moments, *, gpus: range
) -> Iterator[Block]:
    """Statistics over the windows that end at each moment, for GPUs of a shard.

    Args:
        source: The samples.
        plan: What is computed.
        moments: When windows end.
        gpus: Codes of consecutive GPUs of one shard (`shards_of`).

    Yields:
        Blocks that together hold every GPU and moment once.
    """
    if not gpus or moments.count <= 0:
        return
    ahead = max(moments.step, min(plan.history, moments.count * moments.step))
    n_buckets = plan.history + ahead
    group = _BUDGET_BYTES // (n_buckets * _bytes_per_bucket(plan)) // BLOCK * BLOCK
    group = max(BLOCK, group)
    per_chunk = _moments_per_chunk(plan, moments, n_gpus=min(group, len(gpus)))
    out = np.empty((min(BLOCK, len(gpus)), len(plan.names), per_chunk), np.float32)
    for start in range(gpus.start, gpus.stop, group):
        some = range(start, min(start + group, gpus.stop))
        yield from _blocks_of(source, plan, moments, gpus=some, out=out)


def _blocks_of(
    source: SampleSource,
    plan: EnginePlan,
    moments: Moments,
    *,
    gpus: range,
    out: npt.NDArray[np.float32],
) -> Iterator[Block]:
    """Blocks of as many GPUs as memory allows, chunk after chunk of the record, each in `out`."""
    per_chunk = out.shape[2]
    stretch = _Stretch(source, plan, gpus=gpus, length=per_chunk * moments.step)
    stretch.warm_up(moments.first - moments.step)
    for done in range(0, moments.count, per_chunk):
        count = min(per_chunk, moments.count - done)
        now = Moments(moments.first + done * moments.step, moments.step, count)
        stretch.read(count * moments.step)
        for start in range(0, len(gpus), BLOCK):
            values = out[: len(gpus) - start, :, :count]
            stretch.combine(start, moments.step, values)
            yield Block(gpus[start], now, values)
        if done + per_chunk < moments.count:
            stretch.move_on()


def _bytes_per_bucket(plan: EnginePlan) -> int:
    return 28 + 36 * len(plan.gauges) + 12 * len(plan.counters)


def _moments_per_chunk(plan: EnginePlan, moments: Moments, *, n_gpus: int) -> int:
    """How many moments are computed at once; a chunk is a whole number of steps."""
    by_buckets = _BUDGET_BYTES // (n_gpus * _bytes_per_bucket(plan)) - plan.history
    # Each chunk looks at all that is kept: very short ones would do little else.
    by_buckets = max(by_buckets, plan.history // 4)
    by_block = _BLOCK_BYTES // (4 * min(BLOCK, n_gpus) * len(plan.names))
    return max(1, min(moments.count, by_buckets // moments.step, by_block))


class _Stretch:
    """The buckets of a shard that windows are made of, as they move along the record."""

    def __init__(self, source: SampleSource, plan: EnginePlan, *, gpus: range, length: int) -> None:
        self.source, self.plan, self.gpus = source, plan, gpus
        self.kept, self.length = plan.history, length
        self.buckets = Buckets(
            plan, first_gpu=gpus[0], n_gpus=len(gpus), n_buckets=self.kept + length
        )
        self.carried = np.zeros((2, len(plan.gauges), len(gpus)), np.int64)
        self.carried[1] = NEVER
        self.origin = 0  # number of the first bucket in the buffer

    def warm_up(self, until: int) -> None:
        """Fills the kept buckets, which end before `until`, and what is carried to them."""
        kept_from = until - self.kept
        self.origin = until - self.plan.reach
        while self.origin < kept_from:
            end = min(self.origin + self.kept + self.length, kept_from)
            self._add(self.origin, end)
            self._carry(end - self.origin)
            self.buckets.forget(0)
            self.origin = end
        self._add(kept_from, until)

    def read(self, n_buckets: int) -> None:
        """Adds the samples of the next buckets."""
        start = self.origin + self.kept
        self._add(start, start + n_buckets)

    def move_on(self) -> None:
        """Lets the oldest buckets go."""
        self._carry(self.length)
        self.buckets.forget(self.kept)
        self.origin += self.length

    def combine(self, first_gpu: int, step: int, out: npt.NDArray[np.float32]) -> None:
        """Fills a block of results from the GPU at `first_gpu` of the shard on."""
        plan, b = self.plan, self.buckets
        combine(
            b.n, b.times, b.last_ms, b.sums, b.low, b.high, b.last, b.own, b.own_n, b.own_times,
            b.increase, b.n_increases, self.carried, plan.windows, plan.gauge_rows,
            plan.counter_rows, plan.count_rows, plan.age_rows, plan.scale, plan.offset,
            self.origin, plan.bucket_ms // 1000, self.kept + step, step, first_gpu, out,
        )  # fmt: skip

    def _add(self, start: int, end: int) -> None:
        length = self.plan.bucket_ms
        pieces = self.source.pieces(
            self.gpus.start // SHARD_SIZE,
            start_ms=start * length,
            end_ms=end * length,
            columns=self.plan.columns,
            gpus=self.gpus,
        )
        for piece in pieces:
            self.buckets.add(piece, start_ms=self.origin * length)

    def _carry(self, n_buckets: int) -> None:
        b = self.buckets
        carry_over(b.last, b.n, b.own, b.own_n, self.origin, n_buckets, self.carried)
