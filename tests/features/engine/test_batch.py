"""The batch engine against the oracle, whatever the cuts of the samples."""

import math
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.engine.batch import Moments, window_blocks
from features.engine.plan import N_KNOWN, RESETS, STATISTICS, Derived, Wanted, plan_engine
from tests.features.engine.oracle import Record, Sample, expected

MIN = timedelta(minutes=1)
BUCKET = timedelta(minutes=15)
WINDOWS = (15 * MIN, 60 * MIN, 150 * MIN, 360 * MIN)
GAUGES = ("power_w", "fb_used_mib", "gpu_temp_c")
COUNTERS = ("pcie_replay_count", "ecc_sbe_volatile")
DERIVED = (Derived("hot", "clock_event_reasons", 0x60),)
START = 1_767_225_600_000 // 900_000  # a midnight, in buckets
N_BUCKETS = 60

WANTED = [
    *(
        Wanted(name=f"{g}:{s}:{w}", column=g, statistic=s, window=w)
        for g in (*GAUGES, "hot", N_KNOWN)
        for s in STATISTICS
        for w in WINDOWS
    ),
    *(
        Wanted(name=f"{c}:{w}", column=c, kind="increase", window=w)
        for c in COUNTERS
        for w in WINDOWS
    ),
    *(Wanted(name=f"resets:{w}", column=RESETS, statistic="sum", window=w) for w in WINDOWS),
    *(Wanted(name=f"count:{w}", kind="count", window=w, scale=0.5, offset=1.0) for w in WINDOWS),
    *(Wanted(name=f"age:{w}", kind="age", window=w) for w in WINDOWS),
]  # fmt: skip
PLAN = plan_engine(WANTED, bucket=BUCKET, derived=DERIVED, counters=COUNTERS)
COLUMNS = (*GAUGES, *COUNTERS, "clock_event_reasons", N_KNOWN)


@st.composite
def records(draw, n_gpus=2):
    """Samples with gaps, unknown values, resets, constant stretches and columns that vanish."""
    samples = []
    for gpu in range(n_gpus):
        times = draw(
            st.lists(
                st.integers(0, N_BUCKETS * 900_000 - 1), max_size=25, unique=True
            )
        )  # fmt: skip
        high = draw(st.sampled_from([1, 5, 3000, 4_000_000]))
        for ts in sorted(times):
            values = {}
            for name in COLUMNS:
                if draw(st.integers(0, 5)):
                    top = {"clock_event_reasons": 255, N_KNOWN: 72}.get(name, high)
                    values[name] = draw(st.integers(0, top))
            samples.append(Sample(gpu, START * 900_000 + ts, values))
    return samples


def computed(record, moments, plan=PLAN):
    """Results by (GPU, moment in buckets)."""
    found = {}
    for block in window_blocks(record, plan, moments, gpus=range(record.n_gpus)):
        for g in range(block.values.shape[0]):
            for r in range(block.moments.count):
                at = block.moments.first + r * block.moments.step
                found[block.first_gpu + g, at] = block.values[g, :, r].copy()
    return found


def close(value, right):
    if math.isnan(right):
        return math.isnan(value)
    return math.isclose(value, right, rel_tol=3e-7, abs_tol=1e-9)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(samples=records(), step=st.sampled_from([1, 3, 4]), piece_rows=st.integers(1, 40))
def test_every_statistic_is_that_of_the_samples_in_its_window(samples, step, piece_rows):
    record = Record(samples, 2, COLUMNS, piece_rows=piece_rows)
    moments = Moments(START + 20, step, 8)
    for (gpu, at), values in computed(record, moments).items():
        for one, value in zip(WANTED, values, strict=True):
            right = expected(
                samples, one, gpu=gpu, as_of_ms=at * 900_000, derived=DERIVED, counters=COUNTERS
            )
            assert close(value, right), (one.name, gpu, at, value, right)


@pytest.mark.parametrize("older_ms", [0, 1])
@pytest.mark.parametrize("before", [3, 8])
@pytest.mark.parametrize("has_later", [False, True])
def test_a_counter_remembers_a_value_for_a_day_and_no_longer(older_ms, before, has_later):
    first = (START - 24) * 900_000  # in the first bucket of the longest window
    day = 24 * 3_600_000
    values = {first - day - older_ms: before, first: 8}
    if has_later:  # not still from end to end
        values[(START - 2) * 900_000] = 9
    samples = [Sample(0, ts, dict.fromkeys(COLUMNS, value)) for ts, value in values.items()]
    record = Record(samples, 1, COLUMNS)
    for (_, at), found in computed(record, Moments(START - 23, 1, 24)).items():
        for one, value in zip(WANTED, found, strict=True):
            if one.kind == "increase":
                right = expected(samples, one, gpu=0, as_of_ms=at * 900_000)
                assert close(value, right), (one.name, at, value, right)


@pytest.mark.parametrize("buckets_ago", [48, 49])
def test_a_change_looks_back_over_two_windows_also_where_no_counter_does(buckets_ago):
    change = Wanted(name="x", column="power_w", statistic="delta", window=360 * MIN)
    times = [(START - buckets_ago) * 900_000, (START - 2) * 900_000]
    samples = [Sample(0, ts, {"power_w": n}) for n, ts in enumerate(times)]
    plan = plan_engine([change], bucket=BUCKET)
    (values,) = computed(Record(samples, 1, COLUMNS), Moments(START, 1, 1), plan).values()
    right = expected(samples, change, gpu=0, as_of_ms=START * 900_000)
    assert close(values[0], right)
    assert math.isnan(right) == (buckets_ago == 49)
