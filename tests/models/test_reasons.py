"""Rules of saying why a score is high."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from features.registry import Feature
from models.reasons import UsualValues, contributions, explain, usual_values


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
    assert f"Hottest over 24 h: {value:.4g} degC, above usual (median 60)" in said


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
    assert "Hottest in the last 24h: " in reasons[0]
