"""Rules of scoring by column name."""

from dataclasses import replace

import lightgbm as lgb
import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from models.failure_model import (
    check_feature_order,
    contract_version,
    feature_values,
    finite_values,
)


def test_extra_and_reordered_columns_do_not_change_scores(model, rows) -> None:
    turned = rows.select(reversed(rows.columns)).with_columns(extra=pl.lit("text"))
    assert (model.scores(turned) == model.scores(rows)).all()


def test_a_missing_column_is_named(model, rows) -> None:
    with pytest.raises(DataError, match="1 of 3 features are missing: power_w_mean_24h"):
        model.scores(rows.drop("power_w_mean_24h"))


@pytest.mark.parametrize("kind", [pl.String, pl.Datetime("us")])
def test_a_column_that_is_no_number_never_reaches_lightgbm(model, rows, kind) -> None:
    wrong = rows.with_columns(power_w_mean_24h=pl.lit(None, dtype=kind))
    with pytest.raises(DataError, match="power_w_mean_24h"):
        model.scores(wrong)


def test_names_that_are_not_the_boosters_are_refused(model, rows) -> None:
    turned = replace(model, feature_names=tuple(reversed(model.feature_names)))
    with pytest.raises(DataError, match="at 0 it says"):
        turned.scores(rows)


def test_a_booster_with_more_columns_is_refused() -> None:
    data = lgb.Dataset(np.zeros((4, 2)), np.asarray([0, 1, 0, 1]), feature_name=["a", "b"])
    booster = lgb.train({"verbosity": -1, "num_threads": 1}, data, num_boost_round=1)
    with pytest.raises(DataError, match="1 feature names are not the booster's 2"):
        check_feature_order(booster, ["a"])


def test_null_becomes_nan_and_zero_stays_zero() -> None:
    frame = pl.DataFrame({"a": [None, 0.0], "b": [1, None], "c": [True, None]})
    values = feature_values(frame, ["b", "a", "c"])
    assert values.dtype == np.float32
    assert np.array_equal(values, [[1, np.nan, 1], [np.nan, 0, np.nan]], equal_nan=True)


@pytest.mark.parametrize("order", ["C", "F"])
def test_values_lie_column_after_column_and_are_not_the_frames_own(order) -> None:
    frame = pl.DataFrame(np.ones((5, 3), np.float32, order=order), schema=["a", "b", "c"])
    values = feature_values(frame, ["a", "b", "c"])
    assert values.flags.f_contiguous
    values[:] = 0
    assert frame["b"].to_list() == [1.0] * 5


def test_no_row_gives_no_score(model, rows) -> None:
    assert model.scores(rows.head(0)).shape == (0,)


def test_calibrating_keeps_the_ranking(model, rows) -> None:
    order = np.argsort(model.raw_scores(rows), kind="stable")
    assert (np.diff(model.scores(rows)[order]) >= 0).all()


def test_the_contract_version_tells_feature_lists_apart() -> None:
    assert contract_version(["a", "b"]) != contract_version(["b", "a"])
    assert contract_version(["a", "b"]) == contract_version(("a", "b"))


def test_infinite_values_are_very_large_where_values_are_computed_with() -> None:
    frame = pl.DataFrame({"a": [float("inf"), float("-inf"), None, 2.5]})
    found = finite_values(frame, ["a"])[:, 0]
    assert found[[0, 1, 3]].tolist() == pytest.approx([1e18, -1e18, 2.5])
    assert np.isnan(found[2])
    assert np.isfinite(found[:2] ** 2).all()
    assert frame["a"][0] == float("inf")  # the frame is as it was
