"""Rules of saying why a score is high."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from features.registry import Feature
from models.reasons import (
    UsualValues,
    contributions,
    describe_value,
    explain,
    top_of_families,
    unusual_values,
    usual_values,
)


@pytest.fixture(scope="module")
def hot(rows) -> pl.DataFrame:
    return rows.filter(pl.col("gpu_temp_c_max_24h") > 70).head(5)


def test_contributions_and_base_value_sum_to_the_raw_score(model, rows) -> None:
    few = rows.head(40)
    rest = model.raw_scores(few) - contributions(few, model).sum(axis=1)
    assert rest == pytest.approx(np.full(40, rest[0]))


def test_the_feature_that_raised_the_score_is_named_with_value_and_unit(model, hot, bundle) -> None:
    usual = UsualValues(
        {"gpu_temp_c_max_24h": 55.0}, {"gpu_temp_c_max_24h": 60.0}, {"gpu_temp_c_max_24h": 65.0}
    )
    only = Feature("gpu_temp_c_max_24h", "telemetry_gauge", "degC", timedelta(1), "Hottest", (), "")
    families = [
        f if f.name != only.name else Feature(f.name, "peer", f.unit, f.window, f.meaning, (), "")
        for f in bundle.features
    ]
    first = explain(hot, model, features=families, usual=usual, n_reasons=3)[0]
    said = next(words for words in first if words.startswith("against its peers"))
    value = hot["gpu_temp_c_max_24h"][0]
    assert f"Hottest over 24 h: {value:.1f} degC, above usual (median 60 degC)" in said


def test_a_family_is_named_once_and_reasons_are_no_more_than_asked(model, hot, bundle) -> None:
    for n_reasons in (1, 3):
        for words in explain(hot, model, features=bundle.features, n_reasons=n_reasons):
            families = [sentence.split(" (")[0] for sentence in words]
            assert len(families) == len(set(families)) <= n_reasons
            assert "telemetry" in families


def test_what_lowered_the_score_is_no_reason(model, rows, bundle) -> None:
    pushes = contributions(rows, model)
    cool = rows.filter(pl.Series((pushes <= 0).all(axis=1))).head(3)
    assert cool.height
    assert explain(cool, model, features=bundle.features) == [[]] * cool.height


def test_reasons_of_a_row_do_not_depend_on_the_rows_beside_it(model, hot, bundle) -> None:
    together = explain(hot, model, features=bundle.features, usual=bundle.usual)
    alone = [
        explain(hot[i : i + 1], model, features=bundle.features, usual=bundle.usual)[0]
        for i in range(hot.height)
    ]
    assert together == alone


def test_an_unknown_value_is_said_to_be_unknown(model, hot, bundle) -> None:
    unknown = hot.with_columns(own_incident_count_180d=pl.lit(None, dtype=pl.Float32))
    said = [s for words in explain(unknown, model, features=bundle.features) for s in words]
    history = [sentence for sentence in said if sentence.startswith("earlier incidents")]
    assert all(sentence.endswith("not known") for sentence in history)


def test_usual_values_are_of_rows_without_an_incident() -> None:
    rows = pl.DataFrame(
        {"label": [0, 0, 0, 1, None], "x": [1.0, 2.0, 3.0, 99.0, 99.0], "none": [None] * 5},
        schema={"label": pl.Int8, "x": pl.Float32, "none": pl.Float32},
    )
    found = usual_values(rows, ("x", "none"))
    assert (found.median, found.high) == ({"x": 2.0}, {"x": 3.0})


def test_a_feature_that_is_not_registered_is_refused(model, hot, bundle) -> None:
    with pytest.raises(DataError, match="1 features of the model are not registered: power"):
        explain(hot, model, features=bundle.features[1:])


def test_no_row_has_no_reasons(model, rows, bundle) -> None:
    assert explain(rows.clear(), model, features=bundle.features) == []


def test_a_window_that_the_meaning_names_is_named_once(model, rows, bundle) -> None:
    said = tuple(replace(f, meaning=f"{f.meaning} in the last 24h") for f in bundle.features)
    reasons = explain(rows.sort("gpu_temp_c_max_24h").tail(1), model, features=said)[0]
    assert "Hottest in the last 24 h: " in reasons[0]


@pytest.mark.parametrize(("push", "named"), [(0.6, "unusual"), (0.4, "usual")])
def test_an_unusual_value_goes_before_a_usual_one_that_raised_the_score_little_more(
    push, named
) -> None:
    tops = top_of_families(
        np.array([[1.0, push]]), ["event", "event"], is_unusual=np.array([[False, True]])
    )
    assert tops == [[({"usual": 0, "unusual": 1}[named], pytest.approx(1.0))]]


def slow_top_of_families(push, families, is_unusual) -> list[tuple[int, float]]:
    """The oracle: one row and one feature at a time."""
    raised: dict[str, list[int]] = {}
    for i in np.flatnonzero(push > 0).tolist():
        raised.setdefault(families[i], []).append(i)
    total = sum(float(push[i]) for members in raised.values() for i in members)
    tops = []
    for members in raised.values():
        strongest = max(members, key=lambda i: push[i])
        telling = [i for i in members if is_unusual[i] and push[i] >= 0.5 * push[strongest]]
        named = max(telling, key=lambda i: push[i]) if telling else strongest
        tops.append((named, sum(float(push[i]) for i in members) / total))
    return sorted(tops, key=lambda top: -top[1])


def slow_is_unusual(name, value, usual) -> bool:
    if value is None or usual is None or name not in usual.median:
        return False
    return not usual.low[name] <= value <= usual.high[name]


@given(st.data(), st.integers(1, 5), st.integers(1, 8))
def test_reasons_of_many_rows_are_those_of_the_slow_way_row_by_row(data, n_rows, width) -> None:
    def table(values) -> np.ndarray:
        row = st.lists(values, min_size=width, max_size=width)
        return np.array(data.draw(st.lists(row, min_size=n_rows, max_size=n_rows)))

    # Eighths: sums are exact in any order, and ties abound.
    pushes, is_unusual = table(st.integers(-8, 8)) / 8, table(st.booleans())
    families = data.draw(st.lists(st.sampled_from("abc"), min_size=width, max_size=width))
    slow = [
        slow_top_of_families(*row)
        for row in zip(pushes, [families] * n_rows, is_unusual, strict=True)
    ]
    assert top_of_families(pushes, families, is_unusual=is_unusual) == slow


@given(st.lists(st.tuples(*[st.sampled_from([None, 0.0, 1.0, 2.0, float("nan")])] * 2), min_size=1))
def test_what_is_unusual_is_told_as_one_value_at_a_time(rows) -> None:
    usual = UsualValues({"x": 1.0}, {"x": 1.0}, {"x": 1.5})
    matrix = pl.DataFrame(rows, {"x": pl.Float32, "other": pl.Float32}, orient="row")
    for given_usual in (usual, None):
        found = unusual_values(matrix, ("x", "other"), given_usual)
        slow = [
            [slow_is_unusual(n, v, given_usual) for n, v in zip(("x", "other"), row, strict=True)]
            for row in rows
        ]
        assert found.tolist() == slow


@given(st.floats(-1e9, 1e9), st.sampled_from(["1", "degC", "h", "us", "1/GPU-year"]))
def test_a_value_in_words_is_the_value_to_a_tenth(value, unit) -> None:
    shown, *rest = describe_value(value, unit).split(" ", 1)
    if unit in {"h", "us"}:
        seconds = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}[rest[0]]
        value, shown = value * {"h": 3600, "us": 1e-6}[unit] / seconds, float(shown)
    assert float(shown) == pytest.approx(value, rel=0.06, abs=1e-300)


def test_usual_values_can_be_stored_whatever_a_sensor_said(rows) -> None:
    name = "gpu_temp_c_max_24h"
    broken = rows.with_columns(pl.lit(float("inf")).cast(pl.Float32).alias(name))
    usual = usual_values(broken, [name])
    assert all(np.isfinite(share[name]) for share in (usual.low, usual.median, usual.high))
