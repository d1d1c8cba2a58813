"""Rules of slow counters: what held just before as_of, changes, rises; a slow oracle agrees."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import DataError
from features.history_counters import (
    CounterSpec,
    build_counters,
    counter_features,
    counter_names,
)
from features.registry import feature_names
from features.tables import CORE_COUNTERS

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = CounterSpec(names=("hours", "remaps"), clocks=("hours",), spans=(timedelta(30),))
SCHEMA = {**CORE_COUNTERS.schema, "hours": pl.Float64, "remaps": pl.Float64}


def at(days: float) -> datetime:
    return T0 + timedelta(days=days)


def counters(*rows: tuple[str, float, float | None, float | None]) -> pl.DataFrame:
    """Rows of (GPU, from, to, remaps); the clock reads 24 h per day since T0."""
    return pl.DataFrame(
        [(g, at(a), None if z is None else at(z), 24.0 * a, n) for g, a, z, n in rows],
        schema=SCHEMA,
        orient="row",
    )


def build(table: pl.DataFrame, *asked: tuple[str, float]) -> list[dict[str, float | None]]:
    grid = pl.DataFrame(
        [(gpu, at(day)) for gpu, day in asked],
        schema={"entity_id": pl.String, "as_of": pl.Datetime("us", "UTC")},
        orient="row",
    )
    return build_counters(grid, table, spec=SPEC).rows(named=True)


def test_what_held_just_before_as_of_counts_and_a_row_of_that_moment_does_not():
    table = counters(("a", 0, 10, 1), ("a", 10, None, 5))
    assert [row["remaps_level"] for row in build(table, ("a", 10), ("a", 10.5))] == [1, 5]


def test_what_held_until_before_as_of_is_no_longer_known():
    table = counters(("a", 0, 10, 1))
    assert [row["remaps_level"] for row in build(table, ("a", 10), ("a", 11))] == [1, None]


def test_a_change_is_unknown_where_the_counter_was_not_known_then():
    table = counters(("a", 0, 40, 1), ("a", 40, None, 4))
    changes = [row["remaps_change_30d"] for row in build(table, ("a", 45), ("a", 20))]
    assert changes == [3, None]


def test_a_clock_goes_on_between_rows():
    table = counters(("a", 0, 10, 1), ("a", 10, None, 5))
    assert [row["hours_hours"] for row in build(table, ("a", 5), ("a", 12))] == [120, 288]


def test_a_rise_after_an_unknown_value_is_from_the_last_known_one():
    table = counters(("a", 0, 1, 1), ("a", 1, 2, None), ("a", 2, 3, 1), ("a", 3, None, 2))
    rises = [row["remaps_days_since_rise"] for row in build(table, ("a", 3), ("a", 5))]
    assert rises == [None, 2]
    assert [row["counters_ever_risen"] for row in build(table, ("a", 3), ("a", 5))] == [0, 1]


def test_of_an_unknown_gpu_nothing_is_known():
    row = build(counters(("a", 0, None, 1)), ("b", 5))[0]
    assert row["remaps_level"] is None
    assert row["days_in_force"] is None


VALUES = st.none() | st.integers(0, 3)
LIVES = st.lists(st.tuples(st.integers(1, 9), VALUES), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(LIVES, st.integers(1, 50))
def test_fast_features_equal_those_of_a_plain_loop(life, now):
    rows, day = [], 0
    for length, value in life:
        rows.append(("a", day, day + length, value))
        day += length
    row = build(counters(*rows), ("a", now))[0]

    def level(moment: float) -> float | None:
        held = [n for _, a, z, n in rows if a < moment <= z]
        return held[-1] if held else None

    assert row["remaps_level"] == level(now)
    now_then = (level(now), level(now - 30))
    wanted = None if None in now_then else now_then[0] - now_then[1]
    assert row["remaps_change_30d"] == wanted
    known, rises = None, []
    for _, a, _, n in rows:
        if n is not None and known is not None and n > known and a < now:
            rises.append(a)
        known = known if n is None else n
    is_watched = any(a < now <= z for _, a, z, _ in rows)
    wanted = now - rises[-1] if rises and is_watched else None
    assert row["remaps_days_since_rise"] == wanted


def test_columns_are_those_registered_in_order():
    grid = pl.DataFrame({"entity_id": ["a"], "as_of": [at(1)]})
    built = build_counters(grid, counters(("a", 0, None, 1)), spec=SPEC)
    assert built.columns == ["entity_id", "as_of", *feature_names(counter_features(SPEC))]
    assert counter_names(counters()) == ("hours", "remaps")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"clocks": ("hours",)}, "clock hours"), ({"spans": (timedelta(0),)}, "spans")],
)
def test_a_spec_that_asks_for_nothing_sensible_is_refused(wrong, said):
    with pytest.raises(DataError, match=said):
        CounterSpec(**wrong)
