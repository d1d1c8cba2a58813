"""Buckets: what is kept of the samples of a shard in each stretch of time, as exact integers.

The loops are in `features.engine.bucket_kernels`; nothing is computed over windows here.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from features.engine import bucket_kernels as kernels
from features.engine.bucket_kernels import HIGHEST, NO_VALUE, NULL
from features.engine.plan import MEMORY, RESETS, EnginePlan
from features.engine.samples import Piece
from features.errors import DataError

Ints = npt.NDArray[Any]
Runs = tuple[Ints, Ints, Ints, int]
"""Row, bucket and first sample of each run, and how many there are."""

_MEMORY_MS: Final = MEMORY.total_seconds() * 1000


class Buckets:
    """The buckets of a stretch of time, and what counters remember. g GPUs, b buckets.

    Attributes:
        n: Samples, int32, shape (g, b).
        times: Sums of whole seconds since the bucket's start and of their squares, int64,
            shape (2, g, b).
        last_ms: Time of the last sample, int64; meaningless without samples.
        sums: Sums of values, of their squares and of seconds times value, int64,
            shape (3, G, g, b).
        low: Lowest value, int32, shape (G, g, b).
        high: Highest value.
        last: Last value.
        own: Place in `own_n` of each gauge that has unknown values, else -1, shape (G,).
        own_n: Known values of such gauges, int32, shape (G, g, b).
        own_times: As `times`, of known values, shape (2, G, g, b).
        increase: Sum of increases, int64, shape (C, g, b).
        n_increases: How many are known, int32.
        before: Last known value of each counter and its time, int64, shape (2, C, g).
    """

    def __init__(self, plan: EnginePlan, *, first_gpu: int, n_gpus: int, n_buckets: int) -> None:
        """Empty buckets.

        Args:
            plan: What is computed.
            first_gpu: Code of the first GPU.
            n_gpus: How many there are.
            n_buckets: How many buckets.
        """
        self.plan, self.first_gpu = plan, first_gpu
        shape = (n_gpus, n_buckets)
        gauges, counters = (len(plan.gauges), *shape), (len(plan.counters), *shape)
        self.n = np.zeros(shape, np.int32)
        self.times = np.zeros((2, *shape), np.int64)
        self.last_ms = np.zeros(shape, np.int64)
        self.sums = np.zeros((3, *gauges), np.int64)
        self.low = np.full(gauges, HIGHEST, np.int32)
        self.high = np.full(gauges, NULL, np.int32)
        self.last = np.zeros(gauges, np.int32)
        self.own = np.full(len(plan.gauges), -1, np.int64)
        # Zeros that nothing touches take no memory; arrays that grow would for a while take twice.
        self.own_n = np.zeros(gauges, np.int32)
        self.own_times = np.zeros((2, *gauges), np.int64)
        self.increase = np.zeros(counters, np.int64)
        self.n_increases = np.zeros(counters, np.int32)
        self.before = np.zeros((2, *counters[:2]), np.int64)
        self.before[0] = NO_VALUE
        self._derived = {one.name: one for one in plan.derived}
        self._x = np.zeros(0, np.int32)
        self._of_runs = np.zeros((3, 0), np.int64)
        self._run_times = (np.zeros(0, np.int64), np.zeros(0, np.int64))

    def forget(self, keep: int) -> None:
        """Moves the last buckets to the front and empties the rest; counters keep their memory.

        Args:
            keep: How many buckets are kept.
        """
        for values, empty in self._all():
            for one in values.reshape(-1, *values.shape[-2:]):
                if keep:
                    one[:, :keep] = one[:, one.shape[1] - keep :].copy()
                one[:, keep:] = empty

    def add(self, piece: Piece, *, start_ms: int) -> None:
        """Adds samples.

        Args:
            piece: Samples of this shard's GPUs, later than those added before.
            start_ms: Where bucket 0 starts, milliseconds since 1970, UTC.

        Raises:
            DataError: A sample is of another GPU or time than was asked for.
        """
        if not piece.gpu.size:
            return
        gauges = [self._values(piece, name) for name in self.plan.gauges]
        for number, (_, has_null) in enumerate(gauges):
            if has_null and self.own[number] < 0:
                self._give_own(number)
        x, runs = self._runs(piece, start_ms)
        self._check(runs)
        kernels.add_times(
            piece.ts_ms, x, *runs, *self._run_times, self.n, self.times[0], self.times[1],
            self.last_ms,
        )  # fmt: skip
        fell = self._add_counters(piece, runs)
        for number, (values, has_null) in enumerate(gauges):
            column = fell if self.plan.gauges[number] == RESETS else values
            if column is not None:
                self._add_gauge(number, column, x, runs, has_null=has_null)

    def _runs(self, piece: Piece, start_ms: int) -> tuple[Ints, Runs]:
        size = piece.gpu.size
        if self._x.size < size:
            # Fresh memory costs as much as the loops: it is used again.
            self._x = np.empty(size, np.int32)
            self._of_runs = np.empty((3, size + 1), np.int64)
            self._run_times = (np.empty(size, np.int64), np.empty(size, np.int64))
        n_runs = kernels.find_runs(
            piece.gpu, piece.ts_ms, self.first_gpu, start_ms, self.plan.bucket_ms,
            self._x, *self._of_runs,
        )  # fmt: skip
        run_gpu, run_bucket, run_start = self._of_runs
        return self._x, (run_gpu, run_bucket, run_start, n_runs)

    def _check(self, runs: Runs) -> None:
        """Refuses samples that have no place: the loops would write beside the arrays."""
        n_runs = runs[3]
        for what, places, size in zip(("GPU", "bucket"), runs[:2], self.n.shape, strict=True):
            lowest, highest = int(places[:n_runs].min()), int(places[:n_runs].max())
            if lowest < 0 or highest >= size:
                raise DataError(
                    f"engine: samples must be of {what} 0 to {size - 1} of those asked for, got "
                    f"{lowest} to {highest}. The source of the samples does not keep to its "
                    f"protocol (features.engine.samples)."
                )

    def _values(self, piece: Piece, name: str) -> tuple[Ints | None, bool]:
        """A gauge's values and whether any is unknown; none for resets, which come later."""
        if name == RESETS:
            return None, False
        if name in self._derived:
            one = self._derived[name]
            return _gauge(piece, one.metric, bits=one.bits)
        return _gauge(piece, name)

    def _add_counters(self, piece: Piece, runs: Runs) -> Ints:
        fell = np.zeros(piece.gpu.size, np.int32)
        for number, name in enumerate(self.plan.counters):
            values = _counter(piece, name)
            if values is not None:
                kernels.add_counter(
                    values, piece.ts_ms, *runs, int(_MEMORY_MS),
                    self.increase[number], self.n_increases[number],
                    self.before[0, number], self.before[1, number], fell,
                )  # fmt: skip
        return fell

    def _add_gauge(self, number: int, values: Ints, x: Ints, runs: Runs, *, has_null: bool) -> None:
        s, ss, tv = self.sums[:, number]
        low, high, last = self.low[number], self.high[number], self.last[number]
        n_null = np.empty(runs[3] if has_null else 0, np.int64)
        if has_null:
            kernels.count_null(values, runs[2], runs[3], n_null)
            kernels.add_gappy_runs(values, x, *runs, n_null, s, ss, tv, low, high, last)
        kernels.add_gauge(values, x, *runs, n_null, s, ss, tv, low, high, last)
        own = self.own[number]
        if own >= 0:
            of_run, times = self._run_times, self.own_times[:, own]
            kernels.add_known_times(
                values, x, *runs, n_null, *of_run, self.own_n[own], times[0], times[1]
            )

    def _give_own(self, number: int) -> None:
        """Counts of its own for a gauge with unknown values; until now it had every sample."""
        self.own[number] = number
        self.own_n[number] = self.n
        self.own_times[:, number] = self.times

    def _all(self) -> Iterator[tuple[Ints, int]]:
        empty_at_zero = (
            self.n, self.times, self.last_ms, self.sums, self.last, self.increase,
            self.n_increases,
        )  # fmt: skip
        yield from ((values, 0) for values in empty_at_zero)
        for number in np.flatnonzero(self.own >= 0):
            yield self.own_n[number], 0
            yield self.own_times[:, number], 0
        yield self.low, int(HIGHEST)
        yield self.high, int(NULL)


def _gauge(piece: Piece, name: str, *, bits: int = 0) -> tuple[Ints | None, bool]:
    """A column as int32, and whether any value is unknown; None: the piece has no such column."""
    values = piece.values.get(name)
    if values is None:
        return None, True
    null = piece.nulls.get(name)
    narrow = ((values & bits) != 0).astype(np.int32) if bits else values.astype(np.int32)
    if null is None:
        return narrow, False
    narrow[values == null] = NULL
    return narrow, True


def _counter(piece: Piece, name: str) -> Ints | None:
    values = piece.values.get(name)
    if values is None:
        return None
    null = piece.nulls.get(name)
    wide = values.astype(np.int64, copy=null is not None)
    if null is not None:
        wide[wide == null] = NO_VALUE
    # The pieces' own arrays cannot be written to, and numba tells the two kinds apart.
    wide.flags.writeable = False
    return wide
