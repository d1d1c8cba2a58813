"""Ticks against the batch: the same bits, whatever the ticks, crashes and late samples."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.engine.batch import Moments
from features.engine.ring import BucketStore, tick_shard
from tests.features.engine.oracle import Record
from tests.features.engine.test_batch import COLUMNS, N_BUCKETS, PLAN, START, computed, records


class CrashError(Exception):
    pass


class MemoryStore(BucketStore):
    """Arrays in memory that survive a crash, written or not; fails at a chosen commit."""

    def __init__(self, crash_at=()):
        self.heads, self.arrays = {}, {}
        self.n_commits, self.crash_at = 0, set(crash_at)

    def head(self, shard):
        return self.heads.get(shard)

    def array(self, shard, name, shape, dtype):
        found = self.arrays.get((shard, name))
        if found is None or found.shape != shape:
            found = self.arrays[shard, name] = np.zeros(shape, dtype)
        return found

    def commit(self, shard, head):
        self.n_commits += 1
        if self.n_commits in self.crash_at:
            raise CrashError
        self.heads[shard] = dict(head)

    def discard(self, shard):
        self.heads.pop(shard, None)
        self.arrays = {key: a for key, a in self.arrays.items() if key[0] != shard}


def ticked(record, store, moment, **options):
    for _ in range(30):
        try:
            return tick_shard(record, store, PLAN, shard=0, moment=moment, **options).values.T
        except CrashError:
            continue
    raise AssertionError("it crashes for ever")


def batch(record, moment):
    found = computed(record, Moments(moment, 1, 1))
    return np.stack([found[gpu, moment] for gpu in range(record.n_gpus)])


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    samples=records(),
    moments=st.lists(st.integers(5, N_BUCKETS + 130), min_size=1, max_size=6),
    crashes=st.sets(st.integers(1, 12)),
)
def test_ticks_give_the_bits_of_the_batch(samples, moments, crashes):
    record, store = Record(samples, 2, COLUMNS), MemoryStore(crashes)
    for moment in moments:  # back and forth, with gaps
        assert (
            ticked(record, store, START + moment).tobytes()
            == batch(record, START + moment).tobytes()
        )


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    samples=records(), late=records(), moments=st.lists(st.integers(10, 60), min_size=2, max_size=5)
)
def test_late_samples_are_made_good(samples, late, moments):
    store, known = MemoryStore(), list(samples)
    for moment, more in zip(sorted(moments), [[], late[:9], late[9:20], [], []], strict=False):
        taken = {(s.gpu, s.ts_ms) for s in known}
        new = [s for s in more if (s.gpu, s.ts_ms) not in taken]
        known += new
        stale = min((s.ts_ms // 900_000 for s in new), default=None)
        record = Record(known, 2, COLUMNS)
        values = ticked(record, store, START + moment, stale_from=stale)
        assert values.tobytes() == batch(record, START + moment).tobytes()


def test_a_tick_reads_the_new_buckets_alone():
    asked = []

    class Watched(Record):
        def pieces(self, shard, *, start_ms, end_ms, **options):
            asked.append((start_ms // 900_000, end_ms // 900_000))
            return super().pieces(shard, start_ms=start_ms, end_ms=end_ms, **options)

    record, store = Watched([], 2, COLUMNS), MemoryStore()
    ticked(record, store, START)
    asked.clear()
    ticked(record, store, START + 1)
    ticked(record, store, START + 4)
    assert asked == [(START, START + 1), (START + 1, START + 4)]
