"""Window statistics and counters against plain Python on the raw samples."""

import statistics
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.tables import CORE_GPU_TELEMETRY
from features.telemetry_features import TelemetrySpec, build_telemetry
from features.telemetry_windows import Statistic, WindowStatistic, window_statistics

T0 = datetime(2026, 1, 10, tzinfo=UTC)
UTC_US = pl.Datetime("us", "UTC")
WINDOWS = (1, 2, 6)
STATISTICS: tuple[Statistic, ...] = (
    "mean", "std", "min", "max", "last", "slope", "delta", "sum", "count", "age",
)  # fmt: skip

Samples = list[tuple[float, float | None]]

minutes = st.sampled_from(
    [-721, -720, -361, -360, -121, -120, -61, -60, -59, -30, -5, -1, 0, 1, 60]
)
samples = st.lists(
    st.tuples(minutes.map(float), st.none() | st.integers(-5, 50).map(float)),
    max_size=12,
    unique_by=lambda pair: pair[0],
).map(sorted)


def within(given_samples: Samples, start: float, end: float) -> Samples:
    """Known values with start <= t < end, in hours from T0."""
    return [(m / 60, x) for m, x in given_samples if x is not None and start <= m / 60 < end]


def expected(  # noqa: PLR0911 - a table of cases
    given_samples: Samples, window: int, statistic: str
) -> float | None:
    known = within(given_samples, -window, 0)
    values = [x for _, x in known if x is not None]
    if statistic == "count":
        return float(len(values))
    if statistic == "delta":
        before = within(given_samples, -2 * window, -window)
        return values[-1] - (before[-1][1] or 0.0) if values and before else None
    if not values:
        return None
    if statistic == "std":
        return statistics.stdev(values) if len(values) > 1 else None
    if statistic == "slope":
        times = [t for t, _ in known]
        if len(values) < 2:
            return None
        mean_t, mean_x = statistics.fmean(times), statistics.fmean(values)
        over = sum((t - mean_t) * (x - mean_x) for t, x in zip(times, values, strict=True))
        return over / sum((t - mean_t) ** 2 for t in times)
    return {
        "mean": statistics.fmean(values),
        "min": min(values),
        "max": max(values),
        "last": values[-1],
        "sum": sum(values),
        "age": -known[-1][0],
    }[statistic]


@settings(max_examples=80, deadline=None)
@given(samples)
def test_every_statistic_is_that_of_the_raw_samples(given_samples: Samples) -> None:
    frame = pl.DataFrame(
        {
            "entity_id": ["g"] * len(given_samples),
            "ts": [T0 + timedelta(minutes=m) for m, _ in given_samples],
            "x": [x for _, x in given_samples],
        },
        schema={"entity_id": pl.String, "ts": UTC_US, "x": pl.Float64},
    )
    rows = pl.DataFrame({"entity_id": ["g"], "as_of": [T0]}, schema_overrides={"as_of": UTC_US})
    wanted = [
        WindowStatistic(f"{s}_{w}", "x", timedelta(hours=w), s) for w in WINDOWS for s in STATISTICS
    ]
    got = window_statistics(frame, rows, wanted).row(0, named=True)
    for window in WINDOWS:
        for statistic in STATISTICS:
            want = expected(given_samples, window, statistic)
            value = got[f"{statistic}_{window}"]
            where = (window, statistic, given_samples)
            assert (value is None) == (want is None), where
            assert want is None or value == pytest.approx(want, rel=1e-6, abs=1e-9), where


counts = st.lists(
    st.tuples(
        st.sampled_from([-3000.0, -1560.0, -1500.0, -1440.0, -700.0, -90.0, -60.0, -30.0, -1.0]),
        st.none() | st.integers(0, 9),
    ),
    max_size=8,
    unique_by=lambda pair: pair[0],
).map(sorted)


@settings(max_examples=60, deadline=None)
@given(counts)
def test_a_counter_that_falls_was_reset_and_an_unknown_value_is_skipped(
    given_counts: list[tuple[float, int | None]],
) -> None:
    names = CORE_GPU_TELEMETRY.schema.names()
    frame = pl.DataFrame(
        [
            {
                **dict.fromkeys(names),
                "gpu_uuid": "g",
                "ts": T0 + timedelta(minutes=m),
                "pcie_replay_count": x,
            }
            for m, x in given_counts
        ],
        schema=CORE_GPU_TELEMETRY.schema,
    )
    rows = pl.DataFrame(
        {"entity_id": ["g"], "node": ["n"], "as_of": [T0]}, schema_overrides={"as_of": UTC_US}
    )
    spec = TelemetrySpec(gauges=(), counters=("pcie_replay_count",), peer_gauges=())
    got = build_telemetry(rows, frame, spec=spec).row(0, named=True)
    known = [(m, x) for m, x in given_counts if x is not None]
    for name, reach in (("1h", 60), ("24h", 1440)):
        steps = []
        for (m0, x0), (m1, x1) in pairwise(known):
            if m1 >= -reach and m1 - m0 <= 1440:
                steps.append(x1 - x0 if x1 >= x0 else x1)
        assert got[f"pcie_replay_count_increase_{name}"] == (sum(steps) if steps else None)
