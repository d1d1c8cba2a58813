"""Ticks against the batch: the same bits, whatever the ticks, crashes and late samples."""

from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.engine.batch import Moments
from features.engine.plan import Wanted, plan_engine
from features.engine.ring import MARGIN, BucketStore, tick_shard
from tests.features.engine.oracle import Record, Sample
from tests.features.engine.test_batch import (
    BUCKET,
    COLUMNS,
    N_BUCKETS,
    PLAN,
    START,
    computed,
    records,
)


class CrashError(Exception):
    pass


@dataclass
class MemoryFile:
    content: np.ndarray

    def read(self, at, out):
        out[...] = self.content[at : at + out.nbytes].view(out.dtype).reshape(out.shape)

    def expect(self, at, size):
        assert 0 <= at < at + size <= self.content.size

    def write(self, at, values):
        self.content[at : at + values.nbytes] = values.reshape(-1).view(np.uint8)


class MemoryStore(BucketStore):
    """Bytes in memory that survive a crash, committed or not; fails at a chosen commit."""

    def __init__(self, crash_at=()):
        self.heads, self.files = {}, {}
        self.n_commits, self.crash_at = 0, set(crash_at)

    def head(self, shard):
        return self.heads.get(shard)

    @contextmanager
    def opened(self, shard, size):
        found = self.files.get(shard)
        if found is None or found.content.size != size:
            found = self.files[shard] = MemoryFile(np.zeros(size, np.uint8))
        yield found

    def commit(self, shard, head):
        self.n_commits += 1
        if self.n_commits in self.crash_at:
            raise CrashError
        self.heads[shard] = dict(head)

    def discard(self, shard):
        self.heads.pop(shard, None)
        self.files.pop(shard, None)


def ticked(record, store, moment, *, plan=PLAN, **options):
    for _ in range(30):
        try:
            return tick_shard(
                record, store, plan, gpus=range(record.n_gpus), moment=moment, **options
            ).values.T
        except CrashError:
            continue
    raise AssertionError("it crashes for ever")


def batch(record, moment, *, plan=PLAN):
    found = computed(record, Moments(moment, 1, 1), plan)
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


@pytest.mark.parametrize("lengths", [(1, 2, 3), (2, 3, 7), (3, 4, 30, 31), (5,)])
def test_windows_need_not_be_multiples_of_each_other(lengths):
    rng = np.random.default_rng(1)
    samples = [
        Sample(gpu, (START + b) * 900_000 + 7, {"power_w": int(rng.integers(100))})
        for gpu in (0, 1)
        for b in range(300)
    ]
    plan = plan_engine(
        [
            Wanted(name=f"{s}:{n}", column="power_w", statistic=s, window=n * BUCKET)
            for n in lengths
            for s in ("min", "max", "mean", "delta")
        ],
        bucket=BUCKET,
    )
    record, store = Record(samples, 2, COLUMNS), MemoryStore()
    for moment in [*range(40), *range(60, 300, 7)]:
        assert (
            ticked(record, store, START + moment, plan=plan).tobytes()
            == batch(record, START + moment, plan=plan).tobytes()
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


def one_every_bucket(n_buckets, **values):
    known = dict.fromkeys(COLUMNS, 1) | values
    return [
        Sample(gpu, (START + b) * 900_000 + 7, {name: v + b % 7 for name, v in known.items()})
        for gpu in (0, 1)
        for b in range(n_buckets)
    ]


def test_slots_that_were_overwritten_are_not_read_however_often_it_goes_back():
    record, store = Record(one_every_bucket(500), 2, COLUMNS), MemoryStore()
    forth, back = range(0, 500, 100), range(400 - MARGIN, 0, -MARGIN)
    for moment in [*forth, *back]:
        assert (
            ticked(record, store, START + moment).tobytes()
            == batch(record, START + moment).tobytes()
        )


@pytest.mark.parametrize("moments", [(40, 44, 50, 52, 55, 60), (60,)], ids=["ticks", "at once"])
@pytest.mark.parametrize("name", ["power_w", "clock_event_reasons"])
def test_a_gauge_may_get_its_first_unknown_value_at_any_tick(name, moments):
    samples, store = one_every_bucket(60), MemoryStore()
    late = [replace(s, values={**s.values, name: None}) if i % 60 > 50 else s
            for i, s in enumerate(samples)]  # fmt: skip
    record = Record(late, 2, COLUMNS)
    for moment in moments:
        assert (
            ticked(record, store, START + moment).tobytes()
            == batch(record, START + moment).tobytes()
        )


def test_a_gpu_that_is_written_for_the_first_time_while_a_tick_reads_is_left_out():
    class Grows(Record):
        def pieces(self, shard, **asked):
            self.n_gpus = 100  # more than there is room for
            return super().pieces(shard, **asked)

    newcomer = Sample(99, START * 900_000 - 5, {})
    record = Grows([*one_every_bucket(1), newcomer], 2, COLUMNS)
    assert ticked(record, MemoryStore(), START + 1).shape[0] == 2


def test_what_a_crash_left_spoils_no_slot_that_may_be_taken_back_to():
    record, store = Record(one_every_bucket(500), 2, COLUMNS), MemoryStore()
    for moment in (0, 100, 200, 300):
        ticked(record, store, START + moment)
    store.crash_at = {store.n_commits + 1}
    with pytest.raises(CrashError):
        tick_shard(record, store, PLAN, gpus=range(record.n_gpus), moment=START + 300 + MARGIN)
    moment = START + 300 - MARGIN
    assert ticked(record, store, moment).tobytes() == batch(record, moment).tobytes()


def test_a_first_tick_reads_as_far_back_as_a_counter_remembers():
    first = (START - 24) * 900_000  # the longest window starts here
    known = dict.fromkeys(COLUMNS, 8)
    day = 24 * 3_600_000
    record = Record([Sample(0, first - day, known), Sample(0, first, known)], 1, COLUMNS)
    assert ticked(record, MemoryStore(), START).tobytes() == batch(record, START).tobytes()


def test_taking_back_remembers_counters_a_day_old_and_survives_a_crash():
    sparse = [s for s in one_every_bucket(500) if (s.ts_ms // 900_000 - START) % 10 == 0]
    record, store = Record(sparse, 2, COLUMNS), MemoryStore()
    for moment in (50, 108):
        ticked(record, store, START + moment)
    store.crash_at = {store.n_commits + 1}
    with pytest.raises(CrashError):
        tick_shard(
            record,
            store,
            PLAN,
            gpus=range(record.n_gpus),
            moment=START + 109,
            stale_from=START + 96,
        )
    for moment, stale_from in ((111, None), (112, START + 105)):
        found = ticked(record, store, START + moment, stale_from=stale_from)
        assert found.tobytes() == batch(record, START + moment).tobytes()


def test_after_a_long_silence_no_more_is_read_than_results_rest_on():
    asked = []

    class Watched(Record):
        def pieces(self, shard, *, start_ms, **options):
            asked.append(start_ms // 900_000)
            return super().pieces(shard, start_ms=start_ms, **options)

    record, store = Watched([], 2, COLUMNS), MemoryStore()
    ticked(record, store, START)
    asked.clear()
    ticked(record, store, START + 1000)
    assert min(asked) == START + 1000 - PLAN.reach
