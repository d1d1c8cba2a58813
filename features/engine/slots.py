"""Where each slot of a shard's memory lies, and buffers that slots are read into.

What slots mean and when they are written is in `features.engine.ring`.

All that a tick reads of one bucket lies next to each other, and is read by one call: a page fault
of a mapped file costs more than all that is computed of the page.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_NONE: Final = -1


class SlotFile(Protocol):
    """The bytes of a shard's memory, zeros where nothing was written yet."""

    def read(self, at: int, out: Array) -> None:
        """Fills a contiguous array with the bytes from `at` on."""
        ...

    def expect(self, at: int, size: int) -> None:
        """Says that bytes will be read soon."""
        ...

    def write(self, at: int, values: Array) -> None:
        """Puts a contiguous array at `at`."""
        ...


class Totals:
    """Running totals at the end of one bucket, as views of a record. g GPUs.

    Attributes:
        record: All of them, int64, shape (rows, g).
        times: Count, seconds and squared seconds since 1970, shape (3, g).
        sums: Sums of values, squares and products with time, shape (3, G, g).
        last: Last known value, int32, shape (G, g).
        last_bucket: The bucket it is of, int32.
        last_ms: Time of the last sample, int64, shape (g,).
        increases: Sum of increases and how many are known, shape (2, C, g).
        own_times: As `times`, of the known values of each gauge, shape (G, 3, g).
    """

    def __init__(self, record: Array, *, gauges: int, counters: int) -> None:
        self.record, lanes = record, record.shape[-1]
        sizes = [3, 3 * gauges, gauges, 1, 2 * counters, 3 * gauges]
        times, sums, last, ms, increases, own = np.split(record, np.cumsum(sizes)[:-1])
        self.times, self.last_ms = times, ms[0]
        self.sums = sums.reshape(3, gauges, lanes)
        self.last, self.last_bucket = last.view(np.int32).reshape(2, gauges, lanes)
        self.increases = increases.reshape(2, counters, lanes)
        self.own_times = own.reshape(gauges, 3, lanes)


class Layout:
    """Places of slots in a shard's bytes: totals, then extremes, then what counters remember.

    Attributes:
        slots: Slots of totals.
        extremes_bytes: Bytes of a slot of extremes.
        size: Bytes of all.
    """

    def __init__(
        self,
        *,
        gauges: int,
        counters: int,
        lanes: int,
        slots: int,
        rings: Sequence[tuple[int, int]],
    ) -> None:
        """Lays out slots.

        Args:
            gauges: How many there are.
            counters: How many there are.
            lanes: How many GPUs there is room for.
            slots: Slots of totals.
            rings: The step at which each ring of extremes is read, and the fewest slots it needs.
        """
        self.gauges, self.counters, self.lanes, self.slots = gauges, counters, lanes, slots
        self._steps = [step for step, _ in rings]
        self._turns = [-(-length // step) for step, length in rings]
        self.shared_rows = 4 + 4 * gauges + 2 * counters
        self.rows = self.shared_rows + 3 * gauges
        self.extremes_bytes = gauges * lanes * 8
        self._extremes_at = slots * self.rows * lanes * 8
        sizes = [step * turns for step, turns in zip(self._steps, self._turns, strict=True)]
        self._firsts = [0, *accumulate(sizes)]
        self._before_at = self._extremes_at + self._firsts[-1] * self.extremes_bytes
        self.size = self._before_at + 2 * 2 * counters * lanes * 8

    def totals_at(self, bucket: int) -> int:
        """Where the totals at the end of a bucket lie; those of known values come last."""
        return bucket % self.slots * self.rows * self.lanes * 8

    def totals_bytes(self, *, has_own: bool) -> int:
        """Bytes of a bucket's totals, with the times of known values or without."""
        return (self.rows if has_own else self.shared_rows) * self.lanes * 8

    def own_at(self, bucket: int, gauge: int) -> int:
        """Where the times of a gauge's known values lie."""
        return self.totals_at(bucket) + (self.shared_rows + 3 * gauge) * self.lanes * 8

    def extremes_at(self, ring: int, bucket: int) -> int:
        """Where the lowest and highest values of one slot lie, int32, shape (2, G, lanes)."""
        step, turns = self._steps[ring], self._turns[ring]
        slot = self._firsts[ring] + bucket % step * turns + bucket // step % turns
        return self._extremes_at + slot * self.extremes_bytes

    def extremes_spans(self, ring: int, last: int, count: int) -> list[tuple[int, int]]:
        """Where extremes of several buckets lie that end with `last`, one step after another.

        Returns:
            Place of the first and how many lie there in a row: one such stretch, or two.
        """
        step, turns = self._steps[ring], self._turns[ring]
        first = last - (count - 1) * step
        before_wrap = min(count, turns - first // step % turns)
        spans = [
            (self.extremes_at(ring, first), before_wrap),
            (self.extremes_at(ring, first + before_wrap * step), count - before_wrap),
        ]
        return [(at, length) for at, length in spans if length > 0]

    def before_at(self, turn: int) -> int:
        """Where what counters remember lies, int64, shape (2, C, lanes)."""
        return self._before_at + turn * 2 * self.counters * self.lanes * 8


class HeldTotals:
    """Some buckets' totals in one buffer: of the two newest, and of where each window starts.

    Attributes:
        layout: Where they lie.
        records: The buffer, shape (2 + W, rows, lanes).
    """

    def __init__(self, layout: Layout, file: SlotFile, *, windows: int) -> None:
        self.layout, self._file = layout, file
        self.records = np.empty((2 + windows, layout.rows, layout.lanes), np.int64)
        # Of what is written only the times of gauges without unknown values may be left out.
        self.records[:2, layout.shared_rows :] = 0
        self._newest = [_NONE, _NONE]

    def forget(self) -> None:
        """What is held is not what the file holds any more."""
        self._newest = [_NONE, _NONE]

    def newest(self, bucket: int, *, has_own: bool) -> int:
        """The place of a bucket's totals among the two newest; read where they are not held."""
        place = bucket % 2
        if self._newest[place] != bucket:
            self._file.read(self.layout.totals_at(bucket), self._part(place, has_own=has_own))
            self._newest[place] = bucket
        return place

    def start(self, window: int, bucket: int, *, has_own: bool) -> int:
        """The place of the totals that a window starts with, by the window's number."""
        if self._newest[bucket % 2] == bucket:
            return bucket % 2
        place = 2 + window
        self._file.read(self.layout.totals_at(bucket), self._part(place, has_own=has_own))
        return place

    def at(self, place: int) -> Totals:
        """The totals at a place."""
        layout = self.layout
        return Totals(self.records[place], gauges=layout.gauges, counters=layout.counters)

    def put(self, bucket: int, *, has_own: bool) -> None:
        """Writes the totals that were made at a bucket's place among the newest."""
        place = bucket % 2
        self._newest[place] = bucket
        self._file.write(self.layout.totals_at(bucket), self._part(place, has_own=has_own))

    def _part(self, place: int, *, has_own: bool) -> Array:
        return self.records[place, : None if has_own else self.layout.shared_rows]
