"""Rules of turning raw log-odds into probabilities."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

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


@pytest.mark.parametrize("method", ["isotonic", "beta"])
@settings(max_examples=15)
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


def test_few_positives_are_calibrated_by_beta_and_many_by_isotonic() -> None:
    raw = np.linspace(-3, 3, 1000)
    few = (np.arange(1000) % 20 == 0).astype(np.int8)
    many = (np.arange(1000) % 2 == 0).astype(np.int8)
    assert fit_calibration(raw, few).method == "beta"
    assert fit_calibration(raw, many).method == "isotonic"
    # Many rows before few incidents are no more than these.
    assert fit_calibration(raw, many, n_incidents=6).method == "beta"


def test_incidents_are_counted_once_whatever_their_rows() -> None:
    rows = pl.DataFrame({"label": [1, 1, 1, 0, None], "incident_id": ["a", "a", "b", "c", "d"]})
    assert incidents_behind(rows) == 2
    assert incidents_behind(rows.drop("incident_id")) is None


@pytest.mark.parametrize("method", ["isotonic", "beta"])
def test_calibration_recovers_a_known_shift(method) -> None:
    rng = np.random.default_rng(1)
    raw = rng.normal(0, 2, 40_000)
    label = (rng.random(raw.size) < sigmoid(0.5 * raw - 2.0)).astype(np.int8)
    fitted = fit_calibration(raw, label, method=method)
    asked = np.asarray([-2.0, 0.0, 2.0])
    assert fitted.apply(asked) == pytest.approx(sigmoid(0.5 * asked - 2.0), abs=0.03)


def bent(n: int, *, slope: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores that are right where failures are rare and have another slope where chances are even.

    `slope` is that of the true log-odds on the raw ones where these are large.
    """
    rng = np.random.default_rng(seed)
    raw = rng.normal(-2.0, 2.5, n)
    true = raw + (slope - 1.0) * np.logaddexp(0.0, raw)
    return raw, (rng.random(n) < sigmoid(true)).astype(np.int8)


@pytest.mark.parametrize("slope", [0.3, 1.0, 1.5])
def test_beta_finds_how_far_the_surest_scores_hold(slope: float) -> None:
    raw, label = bent(60_000, slope=slope, seed=2)
    asked = np.asarray([-4.0, -1.0, 0.0, 2.0, 3.0])
    true = asked + (slope - 1.0) * np.logaddexp(0.0, asked)
    found = fit_calibration(raw, label, method="beta").apply(asked)
    assert log_odds_of(found) == pytest.approx(true, abs=0.2)


def test_beta_of_many_incidents_is_a_logistic_regression_on_both_logarithms() -> None:
    raw, label = bent(5000, slope=0.6, seed=3)
    terms = np.column_stack(
        [log_odds_of(sigmoid(raw)) - np.logaddexp(0, raw), np.logaddexp(0, raw)]
    )
    fitted = LogisticRegression(C=1e9, tol=1e-9, max_iter=1000).fit(terms, label)
    found = fit_calibration(raw, label, method="beta").apply(raw)
    assert found == pytest.approx(fitted.predict_proba(terms)[:, 1], abs=0.005)


def test_few_incidents_bend_the_surest_scores_less_than_many() -> None:
    raw, label = bent(3000, slope=0.3, seed=4)

    def step(n_incidents: int) -> float:
        fitted = fit_calibration(raw, label, method="beta", n_incidents=n_incidents)
        return float(np.diff(log_odds_of(fitted.apply(np.asarray([3.0, 5.0]))))[0])

    assert step(500) < step(3) < step(1)


def test_no_failure_likely_enough_to_tell_leaves_the_line_straight() -> None:
    rng = np.random.default_rng(5)
    raw = rng.normal(-7.0, 0.7, 50_000)
    label = (rng.random(raw.size) < sigmoid(1.5 * raw + 5.0)).astype(np.int8)
    found = log_odds_of(fit_calibration(raw, label, method="beta").apply(np.array([-8.0, -7.0])))
    assert found == pytest.approx([-7.0, -5.5], abs=0.25)


def test_a_score_worse_than_chance_becomes_the_base_rate() -> None:
    raw = np.linspace(-3, 3, 200)
    label = (raw < -2.5).astype(np.int8)
    found = fit_calibration(raw, label, method="beta").apply(raw)
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


def test_a_calibration_of_an_earlier_release_scores_as_it_did() -> None:
    told = {"method": "platt", "knots": [-4.0], "log_odds": [-6.0], "tail_slope": 0.9}
    old = Calibration.from_dict(told | {"n_rows": 900, "n_positive": 7})
    raw = np.asarray([-9.0, -4.0, 3.0])
    assert old.apply(raw) == pytest.approx(1 / (1 + np.exp(6.0 - 0.9 * (raw + 4.0))))


@pytest.mark.parametrize("method", ["isotonic", "beta"])
@settings(max_examples=10)
@given(data=st.data())
def test_a_calibration_survives_json_to_the_last_bit(method, data) -> None:
    raw, label = data.draw(validation(n_positive=6))
    fitted = fit_calibration(raw, label, method=method)
    assert Calibration.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


@given(st.floats(1e-9, 1 - 1e-9))
def test_log_odds_and_sigmoid_undo_each_other(probability) -> None:
    assert sigmoid(log_odds_of(np.asarray([probability])))[0] == pytest.approx(probability)
