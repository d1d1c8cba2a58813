"""Rules of turning raw log-odds into probabilities."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import DataError
from models.calibration import (
    UNCALIBRATED,
    Calibration,
    fit_calibration,
    incidents_behind,
    log_odds_of,
    sigmoid,
)

RAW = st.floats(-12, 12).map(lambda value: round(value, 3))


@st.composite
def validation(draw, n_positive: int):
    """Raw scores and labels with at least five of each class."""
    raw = draw(st.lists(RAW, min_size=n_positive + 5, max_size=n_positive + 60))
    rest = draw(st.lists(st.integers(0, 1), min_size=len(raw), max_size=len(raw)))
    label = [1] * n_positive + [0] * 5 + rest[n_positive + 5 :]
    order = draw(st.permutations(range(len(raw))))
    return np.asarray(raw), np.asarray(label, dtype=np.int8)[list(order)]


@pytest.mark.parametrize("method", ["isotonic", "platt"])
@settings(max_examples=30)
@given(data=st.data())
def test_calibration_keeps_the_order_of_scores(method, data) -> None:
    raw, label = data.draw(validation(n_positive=6))
    asked = np.unique(np.asarray(data.draw(st.lists(RAW, min_size=2, max_size=20))))
    fitted = fit_calibration(raw, label, method=method)
    assert (np.diff(fitted.apply(asked)) > 0).all()


@given(data=st.data())
def test_probabilities_lie_inside_zero_and_one(data) -> None:
    raw, label = data.draw(validation(n_positive=6))
    found = fit_calibration(raw, label, method="isotonic").apply(np.asarray([-40.0, 0.0, 40.0]))
    assert ((found > 0) & (found < 1)).all()


def test_few_positives_are_calibrated_by_platt_and_many_by_isotonic() -> None:
    raw = np.linspace(-3, 3, 1000)
    few = (np.arange(1000) % 20 == 0).astype(np.int8)
    many = (np.arange(1000) % 4 == 0).astype(np.int8)
    assert fit_calibration(raw, few).method == "platt"
    assert fit_calibration(raw, many).method == "isotonic"
    # Many rows before few incidents are no more than these.
    assert fit_calibration(raw, many, n_incidents=6).method == "platt"


def test_incidents_are_counted_once_whatever_their_rows() -> None:
    rows = pl.DataFrame({"label": [1, 1, 1, 0, None], "incident_id": ["a", "a", "b", "c", "d"]})
    assert incidents_behind(rows) == 2
    assert incidents_behind(rows.drop("incident_id")) is None


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_calibration_recovers_a_known_shift(method) -> None:
    rng = np.random.default_rng(1)
    raw = rng.normal(0, 2, 40_000)
    label = (rng.random(raw.size) < sigmoid(0.5 * raw - 2.0)).astype(np.int8)
    fitted = fit_calibration(raw, label, method=method)
    asked = np.asarray([-2.0, 0.0, 2.0])
    assert fitted.apply(asked) == pytest.approx(sigmoid(0.5 * asked - 2.0), abs=0.03)


def test_a_score_worse_than_chance_becomes_the_base_rate() -> None:
    raw = np.linspace(-3, 3, 200)
    label = (raw < -2.5).astype(np.int8)
    found = fit_calibration(raw, label, method="platt").apply(raw)
    assert found.min() < label.mean() < found.max()
    assert found.max() - found.min() < 0.05


def test_too_few_positives_are_refused_with_their_count() -> None:
    raw = np.zeros(10)
    label = np.asarray([1, 1] + [0] * 8, dtype=np.int8)
    with pytest.raises(DataError, match="got 2 and 8"):
        fit_calibration(raw, label)


def test_a_raw_score_that_is_not_finite_is_refused() -> None:
    label = np.asarray([1] * 5 + [0] * 5, dtype=np.int8)
    with pytest.raises(DataError, match="1 of 10"):
        fit_calibration(np.asarray([np.nan] + [0.0] * 9), label)


@given(raw=st.lists(RAW, min_size=1))
def test_without_calibration_a_score_is_the_models_own_probability(raw) -> None:
    values = np.asarray(raw)
    assert UNCALIBRATED.apply(values) == pytest.approx(1 / (1 + np.exp(-values)))


@given(data=st.data())
def test_a_calibration_survives_json_to_the_last_bit(data) -> None:
    raw, label = data.draw(validation(n_positive=6))
    fitted = fit_calibration(raw, label, method="isotonic")
    assert Calibration.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


@given(st.floats(1e-9, 1 - 1e-9))
def test_log_odds_and_sigmoid_undo_each_other(probability) -> None:
    assert sigmoid(log_odds_of(np.asarray([probability])))[0] == pytest.approx(probability)
