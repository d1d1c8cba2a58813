"""Rules of drift: what is an alarm, what is not, and what it is called."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.contracts import UTC_TIME
from features.errors import DataError
from features.registry import Feature
from models.drift.inputs import (
    LARGE_PSI,
    WEEK,
    DriftReference,
    FeatureBins,
    find_drift,
    fit_reference,
    one_row_per_entity,
    sample_moments,
    stability_index,
    week_start,
    weekly_rows,
)
from models.drift.words import describe_feature_drift, group_of

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
TEMPERATURE = Feature(
    "gpu_temp_c_mean_24h",
    "telemetry_gauge",
    "degC",
    timedelta(hours=24),
    "GPU core temperature: mean over 24h",
    ("gpu_telemetry.gpu_temp_c",),
    "",
)
NAMES = (TEMPERATURE.name, "xid_count", "clock_mhz")


def fleet(week: int, *, n: int = 300, seed: int = 0, heat: float = 0.0) -> pl.DataFrame:
    """A week of GPUs, each hot or cool by itself, at the moments that drift looks at."""
    moments = sample_moments(MONDAY + week * WEEK)
    own = np.random.default_rng(7).normal(size=n)
    rng = np.random.default_rng(1000 * seed + week)
    size = n * len(moments)
    return pl.DataFrame(
        {
            "entity_id": np.repeat([f"gpu-{i}" for i in range(n)], len(moments)),
            "as_of": pl.Series(moments * n, dtype=UTC_TIME),
            NAMES[0]: 62 + heat + 4 * np.repeat(own, len(moments)) + rng.normal(size=size),
            "xid_count": rng.poisson(0.1, size).astype(float),
            "clock_mhz": np.full(size, 1980.0),
        }
    )


@pytest.fixture(scope="module")
def reference() -> DriftReference:
    return fit_reference(pl.concat([fleet(week) for week in range(4)]), NAMES)


def drifted(rows: pl.DataFrame, reference: DriftReference, week: int = 5):
    found = find_drift(one_row_per_entity(rows, start=MONDAY + week * WEEK), reference)
    return {one.name: one for one in found if one.is_alarm}


def test_a_week_like_training_is_no_alarm(reference) -> None:
    assert all(not drifted(fleet(5, seed=seed), reference) for seed in range(20))


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        (pl.col(NAMES[0]) * 1.8 + 32, NAMES[0], "what degrees Celsius are in Fahrenheit"),
        (pl.col("clock_mhz") * 1000, "clock_mhz", "a factor of 1,000, as if its unit had changed"),
        (pl.lit(None, pl.Float64).alias(NAMES[0]), NAMES[0], "unknown for 100% of GPUs last week"),
        (
            pl.col(NAMES[0]) + 9,
            NAMES[0],
            "last week is 70.6 degC, 61.6 degC in training (usually 56.4 to",
        ),  # a hot summer
        (pl.col("xid_count") + 2, "xid_count", "in training"),  # a driver that logs more
        ((pl.col(NAMES[0]) - 62) * 6 + 62, NAMES[0], "80 % of GPUs lie between"),  # same median
    ],
)
def test_a_shift_is_an_alarm_that_names_feature_and_cause(reference, change, name, words) -> None:
    found = drifted(fleet(5).with_columns(change), reference)
    assert set(found) == {name}
    feature = TEMPERATURE if name == NAMES[0] else Feature(name, "event", "1", None, name, (), "")
    assert words in describe_feature_drift(found[name], feature)


def test_weeks_that_differed_in_training_raise_the_limit() -> None:
    restless = fit_reference(
        pl.concat([fleet(week, heat=heat) for week, heat in enumerate((-4, 4, -3, 5))]), NAMES
    )
    calm = fit_reference(pl.concat([fleet(week) for week in range(4)]), NAMES)
    shifted = fleet(5, heat=5.0)
    assert NAMES[0] in drifted(shifted, calm)
    assert NAMES[0] not in drifted(shifted, restless)


def test_few_gpus_say_nothing(reference) -> None:
    assert drifted(fleet(5, n=29, heat=50), reference) == {}
    assert drifted(fleet(5, n=80, heat=50), reference)


def test_each_entity_counts_once_a_week_and_always_the_same_way() -> None:
    rows = fleet(5, n=50)
    once = one_row_per_entity(rows, start=MONDAY + 5 * WEEK)
    assert once["entity_id"].n_unique() == once.height == 50
    assert once["as_of"].n_unique() == 7
    shuffled = rows.sample(fraction=1.0, shuffle=True, seed=1)
    assert one_row_per_entity(shuffled, start=MONDAY + 5 * WEEK).equals(once)


def test_a_week_with_half_of_its_days_missing_is_no_week_of_training() -> None:
    rows = pl.concat([fleet(0), fleet(1).filter(pl.col("as_of") < MONDAY + WEEK + 2 * WEEK / 7)])
    assert len(weekly_rows(rows)) == 1


def test_scores_have_bins_of_their_own(reference) -> None:
    scored = fleet(4).with_columns(score=pl.Series(np.random.default_rng(3).random(2100)))
    both = fit_reference(pl.concat([fleet(week) for week in range(4)]), NAMES, scored=scored)
    week = one_row_per_entity(fleet(5), start=MONDAY + 5 * WEEK)
    told = find_drift(week, both, scores=np.full(week.height, 0.99))
    assert [one.name for one in told if one.is_alarm] == ["score"]
    assert "Median of the score last week is 0.99" in describe_feature_drift(told[0], None)
    assert (group_of(None), group_of(TEMPERATURE)) == ("score", "gpu_telemetry.gpu_temp_c")


@pytest.mark.parametrize("level", [0.7, 0.1, 0.05])
def test_scores_that_share_a_level_are_where_they_were_in_training(level) -> None:
    # Calibration gives many rows one score; as float32, 0.7 is less than 0.7.
    scored = fleet(4).with_columns(score=pl.Series(np.resize([level, 0.01], 2100)))
    both = fit_reference(pl.concat([fleet(week) for week in range(4)]), NAMES, scored=scored)
    week = one_row_per_entity(fleet(5), start=MONDAY + 5 * WEEK)
    told = find_drift(week, both, scores=np.resize([level, 0.01], week.height))
    assert next(one.psi for one in told if one.name == "score") < 0.01


def test_infinite_values_are_very_large_ones_and_can_be_stored() -> None:
    rows = fleet(0).with_columns(xid_count=pl.lit(float("inf")), clock_mhz=pl.lit(float("-inf")))
    found = fit_reference(rows, NAMES)
    json.dumps(found.to_dict(), allow_nan=False)
    week = one_row_per_entity(rows, start=MONDAY)
    assert not [one.name for one in find_drift(week, found) if one.is_alarm]


def test_a_reference_read_back_is_the_same(reference) -> None:
    text = json.dumps(reference.to_dict(), allow_nan=False)
    assert DriftReference.from_dict(json.loads(text)) == reference


def test_no_training_row_is_an_error() -> None:
    with pytest.raises(DataError, match="no training rows"):
        fit_reference(fleet(0).clear(), NAMES)


@given(
    st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6, width=32)), min_size=1, max_size=30),
    st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6, width=32)), min_size=1, max_size=30),
)
def test_the_index_is_zero_for_equal_shares_and_never_negative(training, week) -> None:
    values = np.array(training, dtype=float)
    counts = [(values <= 0).sum(), ((values > 0) & (values <= 1)).sum(), (values > 1).sum()]
    shares = np.array([*counts, np.isnan(values).sum()]) / values.size
    bins = FeatureBins((0.0, 1.0), tuple(shares.tolist()), None, None, None)
    assert stability_index(bins, values) == pytest.approx(0.0, abs=1e-9)
    assert stability_index(bins, np.array(week, dtype=float)) >= 0.0


@given(st.timedeltas(timedelta(days=-9999), timedelta(days=9999)))
def test_a_moment_lies_in_the_week_that_starts_before_it(since) -> None:
    at = MONDAY + since
    start = week_start(at)
    assert start.weekday() == 0
    assert start < at <= start + WEEK


def test_the_least_index_that_matters_is_a_large_one(reference) -> None:
    week = one_row_per_entity(fleet(5), start=MONDAY + 5 * WEEK)
    assert min(one.limit for one in find_drift(week, reference)) >= LARGE_PSI
