"""The engine's memory from tick to tick: a shard's running totals, one slot per bucket.

A tick reads the samples of the new buckets alone and gives the same bits as the batch. Slots are
written before the head that makes them count, so that a crash at any point loses nothing: what was
not committed is computed again from the samples. Where a slot lies is in
`features.engine.slots`; where the bytes are kept is the store's business.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from features.engine.bucket_kernels import NO_VALUE
from features.engine.buckets import Buckets
from features.engine.plan import EnginePlan
from features.engine.samples import SHARD_SIZE, SampleSource
from features.engine.slots import HeldTotals, Layout, SlotFile
from features.engine.tick_kernels import move_last, move_times, move_totals, tick, widen

Array = npt.NDArray[Any]

VERSION: Final = 2
"""Goes up when the meaning of a slot changes: older memories are then built anew."""
MARGIN: Final = 96
"""Buckets that can be taken back for samples that came late, without starting anew; and the most
that is written before it is committed."""
_LANES: Final = 64  # room for GPUs grows by this many


class BucketStore(Protocol):
    """Where a shard's bytes and its head are kept."""

    def head(self, shard: int) -> Mapping[str, Any] | None:
        """What was committed last; None: nothing."""
        ...

    def opened(self, shard: int, size: int) -> AbstractContextManager[SlotFile]:
        """A shard's bytes, all zero where they are new or were of another size."""
        ...

    def commit(self, shard: int, head: Mapping[str, Any]) -> None:
        """Makes the head count, in one step, with all that was written by now."""
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
    target = memory.target(moment, stale_from)
    out = np.empty((len(plan.names), memory.lanes), np.float32)
    with store.opened(memory.shard, memory.layout.size) as file:
        memory.open(file)
        memory.go_back(target)
        memory.expect(moment - 1)
        while memory.until < moment:
            memory.advance(min(memory.until + MARGIN, moment))
            memory.commit()
        memory.results(out)
    return TickResult(gpus.start, moment, out[:, : len(gpus)])


def layout_of(plan: EnginePlan, *, n_gpus: int) -> Layout:
    """Where the slots of a shard of so many GPUs lie."""
    # What is not committed must not reach what may be taken back to: twice the margin.
    spare = 1 + 2 * MARGIN
    rings = [(step, longer + spare) for step, longer in pairwise([1, *plan.windows.tolist()])]
    return Layout(
        gauges=len(plan.gauges),
        counters=len(plan.counters),
        lanes=-(-max(n_gpus, 1) // _LANES) * _LANES,
        slots=plan.history + spare,
        rings=[*rings, (1, 1 + spare)],
    )


class _Memory:
    """One shard's slots, and which buckets they hold.

    Attributes:
        since: The first bucket that samples were read of.
        until: The bucket after the last one that is held.
        top: The furthest that `until` ever was: older slots may be overwritten.
        own: The number of each gauge that has unknown values, else -1, shape (G,).
        turn: Which of the two memories of counters is that of `until`.
        lanes: GPUs there is room for.
        layout: Where slots lie.
        is_new: Whether nothing was remembered that counts.
        file: The slots, once they are open.
        totals: Those of them that are held, once they are open.
        extremes: The extremes over each window that ends with `extremes_of`.
    """

    file: SlotFile
    totals: HeldTotals

    def __init__(
        self, source: SampleSource, store: BucketStore, plan: EnginePlan, *, gpus: range
    ) -> None:
        self.source, self.store, self.plan = source, store, plan
        self.first_gpu, self.shard = gpus.start, gpus.start // SHARD_SIZE
        self.layout = layout_of(plan, n_gpus=len(gpus))
        self.lanes = self.layout.lanes
        head = store.head(self.shard) or {}
        if (head.get("plan"), head.get("lanes")) != (fingerprint(plan), self.lanes):
            head = {"since": 0, "until": 0, "top": 0, "own": [-1] * len(plan.gauges), "turn": 0}
        self.since: int = head["since"]
        self.until: int = head["until"]
        self.top: int = head["top"]
        self.turn: int = head["turn"]
        self.own = np.array(head["own"], np.int64)
        gauges, counters = len(plan.gauges), len(plan.counters)
        self.before = np.zeros((2, counters, self.lanes), np.int64)
        self.extremes = np.empty((len(plan.windows), 2, gauges, self.lanes), np.int32)
        self.extremes_of = -1
        self.is_new = False

    def target(self, moment: int, stale_from: int | None) -> int:
        """How far what is remembered counts; forgets all of it where that is too little."""
        target: int = min(self.until, moment, moment if stale_from is None else stale_from)
        is_old = moment - target > self.plan.reach or self.top - target > MARGIN
        is_short = self.since > min(moment - self.plan.reach, target)
        if not (is_old or is_short):
            return target
        self.store.discard(self.shard)
        self.since = self.until = self.top = moment - self.plan.reach
        self.own[:] = -1
        self.is_new = True
        return self.since

    def open(self, file: SlotFile) -> None:
        """Begins to read and write slots."""
        self.file = file
        self.totals = HeldTotals(self.layout, file, windows=len(self.plan.windows))
        if self.is_new:
            self.before[0] = NO_VALUE
        else:
            file.read(self.layout.before_at(self.turn), self.before)

    def go_back(self, target: int) -> None:
        """Takes back what is stale or too new."""
        if target < self.until:
            self.until = target
            # What counters remember is known at the head alone: read again how it came about.
            self._turn(self._read(target - self.plan.memory, target, before=None))
            self.commit()

    def expect(self, bucket: int) -> None:
        """Has the disk begin with what results need, while samples are still read."""
        layout, has_own = self.layout, self._has_own()
        for window in self.plan.windows.tolist():
            size = layout.totals_bytes(has_own=has_own)
            self.file.expect(layout.totals_at(bucket - window), size)
        for ring in range(len(self.plan.windows)):
            for at, length in self._older_spans(ring, bucket):
                self.file.expect(at, length * layout.extremes_bytes)

    def advance(self, end: int) -> None:
        """Moves on to a bucket by the samples before it, at most `MARGIN` buckets at once."""
        new = self._read(self.until, end, before=self.before)
        for number in np.flatnonzero((new.own >= 0) & (self.own < 0)):
            self._give_own(int(number))
        for at in range(end - self.until):
            self._move(new, at, self.until + at)
        self._turn(new)
        self.until, self.top = end, max(self.top, end)

    def results(self, out: npt.NDArray[np.float32]) -> None:
        """Fills the results of the windows that end with the head, shape (F, lanes)."""
        plan, totals, bucket = self.plan, self.totals, self.until - 1
        has_own = self._has_own()
        now = totals.newest(bucket, has_own=has_own)
        starts = [
            totals.start(k, bucket - int(window), has_own=has_own)
            for k, window in enumerate(plan.windows)
        ]
        if self.extremes_of != bucket:
            for k, extremes in enumerate(self.extremes):
                self.file.read(self.layout.extremes_at(k + 1, bucket), extremes)
        records = totals.records
        tick(
            records, records.view(np.int32).reshape(len(records), -1, self.lanes), now,
            np.array(starts, np.int64), self.own, self.extremes, plan.windows, plan.gauge_rows,
            plan.counter_rows, plan.count_rows, plan.age_rows, plan.scale, plan.offset, bucket,
            plan.bucket_ms, out,
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
            buckets.before = before.copy()
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
        """Writes the slots of one bucket."""
        has_own = self._has_own()
        then = self.totals.at(self.totals.newest(bucket - 1, has_own=has_own))
        now = self.totals.at(bucket % 2)
        base_s = bucket * self.plan.bucket_ms // 1000
        n, times = new.n[:, at].copy(), new.times[:, :, at].copy()
        move_totals(
            n, times, new.sums[..., at].copy(), base_s, now.times, then.times, now.sums, then.sums
        )
        for number, place in enumerate(new.own):
            known, of_known = n, times
            if place >= 0:
                known = new.own_n[place, :, at].copy()
                of_known = new.own_times[:, place, :, at].copy()
            if self.own[number] >= 0:
                move_times(known, of_known, base_s, now.own_times[number], then.own_times[number])
            move_last(
                known, new.last[number, :, at].copy(), bucket, now.last[number], then.last[number],
                now.last_bucket[number], then.last_bucket[number],
            )  # fmt: skip
        now.last_ms[:] = np.where(n > 0, new.last_ms[:, at], then.last_ms)
        now.increases[0] = then.increases[0] + new.increase[..., at]
        now.increases[1] = then.increases[1] + new.n_increases[..., at]
        self.totals.put(bucket, has_own=has_own)
        self._extend(np.stack([new.low[..., at], new.high[..., at]]), bucket)

    def _extend(self, extremes: Array, bucket: int) -> None:
        """Writes the extremes over each window that ends with a bucket, by the window before.

        Args:
            extremes: Lowest and highest values in the bucket, int32, shape (2, G, lanes).
            bucket: Its number.
        """
        self.file.write(self.layout.extremes_at(0, bucket), extremes)
        for ring, new in enumerate(self.extremes):
            new[:] = extremes
            for at, length in self._older_spans(ring, bucket):
                older = np.empty((length, *new.shape), np.int32)
                self.file.read(at, older)
                widen(new, older)
            self.file.write(self.layout.extremes_at(ring + 1, bucket), new)
            extremes = new
        self.extremes_of = bucket

    def _older_spans(self, ring: int, bucket: int) -> list[tuple[int, int]]:
        """Where the extremes over shorter windows lie that a longer one is made of."""
        shorter, longer = (1, *self.plan.windows.tolist())[ring : ring + 2]
        spans = self.layout.extremes_spans(ring, bucket - shorter, longer // shorter - 1)
        if longer % shorter:  # one that overlaps the others
            spans += self.layout.extremes_spans(ring, bucket - longer + shorter, 1)
        return spans

    def _turn(self, new: Buckets) -> None:
        """Writes what counters remember, beside what the head still counts on."""
        self.turn = 1 - self.turn
        self.before = new.before
        self.file.write(self.layout.before_at(self.turn), self.before)

    def _give_own(self, number: int) -> None:
        """Known values of a gauge get times of their own: until now every sample had a value."""
        times = np.empty((3, self.lanes), np.int64)
        for bucket in range(max(self.since, self.until - self.layout.slots), self.until):
            self.file.read(self.layout.totals_at(bucket), times)
            self.file.write(self.layout.own_at(bucket, number), times)
        self.totals.forget()
        self.own[number] = number

    def _has_own(self) -> bool:
        return bool((self.own >= 0).any())
