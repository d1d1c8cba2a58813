"""The same bits whatever the cuts: of samples, of time, of GPUs, of buckets, of threads."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.engine import batch
from features.engine.batch import Moments
from features.engine.plan import Wanted, plan_engine
from features.engine.rows import NO_GPU, tick_rows, window_rows
from features.engine.samples import SHARD_SIZE
from features.errors import DataError
from tests.features.engine.oracle import Record, Sample
from tests.features.engine.test_batch import (
    COLUMNS,
    COUNTERS,
    DERIVED,
    N_BUCKETS,
    START,
    WANTED,
    computed,
    records,
)
from tests.features.engine.test_ring import MemoryStore

MIN = timedelta(minutes=1)
HOURLY = [one for one in WANTED if one.window % (30 * MIN) == timedelta(0)]


def plan(minutes, wanted=HOURLY):
    return plan_engine(wanted, bucket=minutes * MIN, derived=DERIVED, counters=COUNTERS)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    samples=records(),
    piece_rows=st.integers(1, 30),
    chunk=st.integers(1, 40_000),
    minutes=st.sampled_from([5, 15, 30]),
    count=st.integers(1, 31),
)
def test_a_result_depends_on_nothing_but_its_samples(samples, piece_rows, chunk, minutes, count):
    once = computed(Record(samples, 2, COLUMNS), Moments(START // 2 + 4, 1, count), plan(30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "_BUDGET_BYTES", chunk)
        patch.setattr(batch, "_BLOCK_BYTES", chunk)
        patch.setattr(batch, "BLOCK", 1)
        cut = Record(samples, 2, COLUMNS, piece_rows=piece_rows)
        steps = 30 // minutes
        moments = Moments((START // 2 + 4) * steps, steps, count)
        again = computed(cut, moments, plan(minutes))
    for (gpu, at), values in once.items():
        assert again[gpu, at * steps].tobytes() == values.tobytes()


@pytest.mark.parametrize("count", range(4, 10))
def test_a_last_chunk_may_be_a_single_moment(monkeypatch, count):
    record, moments = Record(random_samples(200, [0, 1]), 2, COLUMNS), Moments(START + 9, 1, count)
    once = computed(record, moments, plan(15))
    monkeypatch.setattr(batch, "_BUDGET_BYTES", 1)  # chunks of a quarter of the longest window
    again = computed(record, moments, plan(15))
    assert all(again[key].tobytes() == values.tobytes() for key, values in once.items())


def random_samples(n, gpus):
    rng = np.random.default_rng(7)
    times = START * 900_000 + rng.integers(0, N_BUCKETS * 900_000, n)
    samples = {
        (int(rng.choice(gpus)), int(ts)): {name: int(rng.integers(0, 900)) for name in COLUMNS}
        for ts in times
    }
    return [Sample(gpu, ts, values) for (gpu, ts), values in samples.items()]


def test_shards_threads_and_ticks_give_the_same_rows():
    gpus = [0, 3, SHARD_SIZE - 1, SHARD_SIZE, 2 * SHARD_SIZE + 1]
    record = Record(random_samples(400, gpus), 2 * SHARD_SIZE + 2, COLUMNS)
    small = [one for one in HOURLY if one.column in ("power_w", COUNTERS[0], "")]
    codes = np.array([gpus[4], NO_GPU, *gpus, gpus[3]])
    moments = np.full(codes.size, START + 50)
    alone = window_rows(record, plan(15, small), codes, moments)
    assert not np.isnan(alone[0, [0, 2, 6]]).any()
    assert np.isnan(alone[0, 1])
    together = window_rows(record, plan(15, small), codes, moments, threads=3)
    ticked = tick_rows(record, MemoryStore(), plan(15, small), codes, moment=START + 50)
    assert together.tobytes() == alone.tobytes() == ticked.tobytes()


def test_rows_of_any_order_and_spacing_get_their_own_results():
    record = Record(random_samples(200, [0, 1, 2]), 3, COLUMNS)
    rng = np.random.default_rng(3)
    codes, moments = rng.integers(0, 3, 40), START + rng.integers(0, 12, 40) * 5
    found = window_rows(record, plan(15), codes, moments)
    for row, (code, at) in enumerate(zip(codes, moments, strict=True)):
        one = window_rows(record, plan(15), np.array([code]), np.array([at]))
        assert one[:, 0].tobytes() == found[:, row].tobytes()


def test_what_has_no_samples_is_unknown_and_counted_zero():
    found = window_rows(Record([], 0, COLUMNS), plan(15), np.array([NO_GPU]), np.array([START]))
    names = [one.kind for one in HOURLY]
    counts = [i for i, kind in enumerate(names) if kind == "count"]
    assert (found[counts] == 1.0).all()  # the offset of no samples
    assert np.isnan(np.delete(found, counts, axis=0)).all()


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (Wanted(name="x", column="power_w", window=10 * MIN), "whole number of buckets"),
        (Wanted(name="x", column="pcie_tx_bytes_s", window=15 * MIN), "resolution"),
        (Wanted(name="x", column="clock_event_reasons", window=15 * MIN), "within 4000000 steps"),
        (Wanted(name="x", column="energy_j", window=15 * MIN), "Ask for its increase"),
    ],
)
def test_what_cannot_be_exact_is_refused(one, words):
    with pytest.raises(DataError, match=words):
        plan_engine([one], bucket=15 * MIN)


@pytest.mark.parametrize("sample", [Sample(5, START * 900_000, {}), Sample(0, 0, {})])
def test_a_source_that_gives_what_was_not_asked_for_is_refused(sample):
    class Wrong(Record):
        def pieces(self, shard, **asked):
            yield self._piece([sample], COLUMNS)

    with pytest.raises(DataError, match="does not keep to its protocol"):
        window_rows(Wrong([], 2, COLUMNS), plan(15), np.array([1]), np.array([START]))


@pytest.mark.parametrize("kind", ["gauge", "increase", "count", "age"])
def test_a_result_that_is_wanted_twice_is_refused(kind):
    column = {"gauge": "power_w", "increase": "energy_j"}.get(kind, "")
    twice = [Wanted(name=n, column=column, kind=kind, window=15 * MIN, scale=s) for n, s in
             (("x", 1.0), ("y", 2.0))]  # fmt: skip
    with pytest.raises(DataError, match="wanted once, got another for x"):
        plan_engine(twice, bucket=15 * MIN)


def test_moments_a_year_apart_read_and_keep_nothing_in_between(monkeypatch):
    asked, sizes = [], []

    class Watched(Record):
        def pieces(self, shard, *, start_ms, end_ms, **options):
            asked.append(end_ms - start_ms)
            return super().pieces(shard, start_ms=start_ms, end_ms=end_ms, **options)

    class Sized(batch.Buckets):
        def __init__(self, *args, n_buckets, **options):
            sizes.append(n_buckets)
            super().__init__(*args, n_buckets=n_buckets, **options)

    monkeypatch.setattr(batch, "Buckets", Sized)
    year = 365 * 96
    early = random_samples(60, [0, 1])
    late = [Sample(s.gpu, s.ts_ms + year * 900_000, s.values) for s in early]
    record = Watched([*early, *late], 2, COLUMNS)
    moments = np.array([START + 50, START + 57 + year, START + 50 + year, START + 50])
    found = window_rows(record, plan(15), np.array([0, 1, 1, 1]), moments)
    assert sum(asked) <= 3 * plan(15).reach * 900_000
    assert max(sizes) <= 2 * plan(15).reach
    for row, (code, at) in enumerate(zip([0, 1, 1, 1], moments, strict=True)):
        one = window_rows(record, plan(15), np.array([code]), np.array([at]))
        assert one[:, 0].tobytes() == found[:, row].tobytes()
