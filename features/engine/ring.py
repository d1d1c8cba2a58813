"""The engine's memory from tick to tick: a shard's running totals, one slot per bucket.

A tick reads the samples of the new buckets alone and gives the same bits as the batch. Slots are
written before the head that makes them count, so that a crash at any point loses nothing: what was
not committed is computed again from the samples. Where the arrays lie is the store's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from features.engine.bucket_kernels import HIGHEST, NO_VALUE, NULL
from features.engine.buckets import Buckets
from features.engine.plan import EnginePlan
from features.engine.samples import SHARD_SIZE, SampleSource
from features.engine.tick_kernels import (
    extend_extremes,
    move_last,
    move_times,
    move_totals,
    tick,
)

Array = npt.NDArray[Any]

VERSION: Final = 1
"""Goes up when the meaning of a slot changes: older memories are then built anew."""
MARGIN: Final = 96
"""Buckets that can be taken back for samples that came late, without starting anew; and the most
that is written before it is committed."""
_LANES: Final = 64  # room for GPUs grows by this many


class BucketStore(Protocol):
    """Where a shard's arrays and its head are kept."""

    def head(self, shard: int) -> Mapping[str, Any] | None:
        """What was committed last; None: nothing."""
        ...

    def array(self, shard: int, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        """An array that changes in place; zeros where it is new or was of another shape."""
        ...

    def commit(self, shard: int, head: Mapping[str, Any]) -> None:
        """Makes the head count, in one step, with all that the arrays hold by now."""
        ...

    def discard(self, shard: int) -> None:
        """Forgets everything of a shard."""
        ...


@dataclass(frozen=True)
class TickResult:
    """Results of a shard's GPUs at one moment.

    Attributes:
        first_gpu: Code of the first GPU.
        bucket: The moment, in buckets since 1970.
        values: Results, float32, NaN where unknown, shape (F, GPUs).
    """

    first_gpu: int
    bucket: int
    values: npt.NDArray[np.float32]


def fingerprint(plan: EnginePlan) -> str:
    """Changes with anything that a slot's meaning depends on."""
    parts = [VERSION, MARGIN, plan.bucket_ms, plan.windows.tolist(), plan.gauges, plan.derived]
    return sha256(repr([*parts, plan.counters, plan.reach]).encode()).hexdigest()[:16]


def tick_shard(
    source: SampleSource,
    store: BucketStore,
    plan: EnginePlan,
    *,
    gpus: range,
    moment: int,
    stale_from: int | None = None,
) -> TickResult:
    """Results of a shard at a moment, from what is remembered and the samples since.

    Args:
        source: The samples.
        store: The memory; built anew from the samples where it is missing, of another plan, too
            old or too new.
        plan: What is computed.
        gpus: Codes of the shard's GPUs (`features.engine.batch.shards_of`).
        moment: When windows end, in buckets since 1970.
        stale_from: The earliest bucket whose samples have changed since the last tick; None: no
            sample came late.
    """
    memory = _Memory(source, store, plan, gpus=gpus)
    memory.go_to(moment, stale_from)
    while memory.until < moment:
        memory.advance(min(memory.until + MARGIN, moment))
        memory.commit()
    out = np.empty((len(plan.names), memory.lanes), np.float32)
    memory.results(out)
    return TickResult(gpus.start, moment, out[:, : len(gpus)])


class _Memory:
    """One shard's arrays, and which buckets they hold.

    Attributes:
        since: The first bucket that samples were read of.
        until: The bucket after the last one that is held.
        top: The furthest that `until` ever was: older slots may be overwritten.
        own: The number of each gauge that has unknown values, else -1, shape (G,).
        turn: Which of the two memories of counters is that of `until`.
        lanes: GPUs there is room for.
    """

    def __init__(
        self, source: SampleSource, store: BucketStore, plan: EnginePlan, *, gpus: range
    ) -> None:
        self.source, self.store, self.plan = source, store, plan
        self.first_gpu, self.shard = gpus.start, gpus.start // SHARD_SIZE
        self.lanes = -(-max(len(gpus), 1) // _LANES) * _LANES
        head = store.head(self.shard) or {}
        if (head.get("plan"), head.get("lanes")) != (fingerprint(plan), self.lanes):
            head = {"since": 0, "until": 0, "top": 0, "own": [-1] * len(plan.gauges), "turn": 0}
        self.since, self.until, self.turn = head["since"], head["until"], head["turn"]
        self.top = head["top"]
        self.own = np.array(head["own"], np.int64)

    def go_to(self, moment: int, stale_from: int | None) -> None:
        """Takes back what is stale or too new; starts anew where too little is remembered."""
        target = min(self.until, moment, moment if stale_from is None else stale_from)
        is_old = moment - target > self.plan.reach or self.top - target > MARGIN
        is_short = self.since > min(moment - self.plan.reach, target)
        if is_old or is_short:
            self.store.discard(self.shard)
            self.since = self.until = self.top = moment - self.plan.reach
            self.own[:] = -1
            self._open()
            self.extremes[:, 0], self.extremes[:, 1] = HIGHEST, NULL
            self.before[self.turn, 0] = NO_VALUE
            return
        self._open()
        if target < self.until:
            self.until = target
            # What counters remember is known at the head alone: read again how it came about.
            again = self._read(target - self.plan.memory, target, before=None)
            self.turn = 1 - self.turn
            self.before[self.turn] = again.before
            self.commit()

    def advance(self, end: int) -> None:
        """Moves on to a bucket by the samples before it, at most `MARGIN` buckets at once."""
        new = self._read(self.until, end, before=self.before[self.turn].copy())
        for number in np.flatnonzero((new.own >= 0) & (self.own < 0)):
            # Until now every sample had a value.
            self.own_times[number] = self.times
            self.own[number] = number
        for at in range(end - self.until):
            self._move(new, at, self.until + at)
        self.turn = 1 - self.turn
        self.before[self.turn] = new.before
        self.until, self.top = end, max(self.top, end)

    def results(self, out: npt.NDArray[np.float32]) -> None:
        """Fills the results of the windows that end with the head, shape (F, lanes)."""
        plan = self.plan
        tick(
            self.times, self.sums, self.own, self.own_times, self.last, self.last_bucket,
            self.last_ms, self.extremes, self.firsts, self.lengths, self.increases,
            plan.windows, plan.gauge_rows, plan.counter_rows, plan.count_rows, plan.age_rows,
            plan.scale, plan.offset, self.until - 1, plan.bucket_ms, out,
        )  # fmt: skip

    def commit(self) -> None:
        """Makes what was written so far count."""
        head = {"plan": fingerprint(self.plan), "lanes": self.lanes, "own": self.own.tolist()}
        self.store.commit(
            self.shard,
            {**head, "since": self.since, "until": self.until, "top": self.top, "turn": self.turn},
        )

    def _read(self, start: int, end: int, *, before: Array | None) -> Buckets:
        length = self.plan.bucket_ms
        buckets = Buckets(
            self.plan, first_gpu=self.first_gpu, n_gpus=self.lanes, n_buckets=end - start
        )
        if before is not None:
            buckets.before = before
        pieces = self.source.pieces(
            self.shard,
            start_ms=start * length,
            end_ms=end * length,
            columns=self.plan.columns,
            # A GPU that is written for the first time meanwhile has no lane yet.
            gpus=range(self.first_gpu, self.first_gpu + self.lanes),
        )
        for piece in pieces:
            buckets.add(piece, start_ms=start * length)
        return buckets

    def _move(self, new: Buckets, at: int, bucket: int) -> None:
        """Writes the slot of one bucket."""
        now, then = bucket % len(self.times), (bucket - 1) % len(self.times)
        base_s = bucket * self.plan.bucket_ms // 1000
        n, times = new.n[:, at].copy(), new.times[:, :, at].copy()
        move_totals(
            n, times, new.sums[..., at].copy(), base_s,
            self.times[now], self.times[then], self.sums[now], self.sums[then],
        )  # fmt: skip
        for number, place in enumerate(new.own):
            known, of_known = n, times
            if place >= 0:
                known, of_known = new.own_n[place, :, at].copy(), new.own_times[:, place, :, at]
            if self.own[number] >= 0:
                own = self.own_times[number]
                move_times(known, of_known.copy(), base_s, own[now], own[then])
            move_last(
                known, new.last[number, :, at].copy(), bucket,
                self.last[now, number], self.last[then, number],
                self.last_bucket[now, number], self.last_bucket[then, number],
            )  # fmt: skip
        self.last_ms[now] = np.where(n > 0, new.last_ms[:, at], self.last_ms[then])
        first = self.extremes[bucket % self.lengths[0]]
        first[0], first[1] = new.low[..., at], new.high[..., at]
        extend_extremes(self.extremes, self.firsts, self.lengths, self.plan.windows, bucket)
        self.increases[now, 0] = self.increases[then, 0] + new.increase[..., at]
        self.increases[now, 1] = self.increases[then, 1] + new.n_increases[..., at]

    def _open(self) -> None:
        gauges, counters, lanes = len(self.plan.gauges), len(self.plan.counters), self.lanes
        # What is not committed must not reach what may be taken back to: twice the margin.
        slots = self.plan.history + 1 + 2 * MARGIN
        self.lengths = np.array([*self.plan.windows, 1], np.int64) + 1 + 2 * MARGIN
        self.firsts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)
        self.times = self._array("times", (slots, 3, lanes), "int64")
        self.sums = self._array("sums", (slots, 3, gauges, lanes), "int64")
        self.own_times = self._array("own_times", (gauges, slots, 3, lanes), "int64")
        self.last = self._array("last", (slots, gauges, lanes), "int32")
        self.last_bucket = self._array("last_bucket", (slots, gauges, lanes), "int32")
        self.last_ms = self._array("last_ms", (slots, lanes), "int64")
        size = int(self.lengths.sum())
        self.extremes = self._array("extremes", (size, 2, gauges, lanes), "int32")
        self.increases = self._array("increases", (slots, 2, counters, lanes), "int64")
        self.before = self._array("before", (2, 2, counters, lanes), "int64")

    def _array(self, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        return self.store.array(self.shard, name, shape, dtype)
