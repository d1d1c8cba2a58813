"""Rules of hazards: who is at risk when, what survival may do, and what a period rests on."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from models.hazard import (
    PERIOD,
    HazardModel,
    HazardSpec,
    PeriodHazard,
    person_periods,
    train_hazard,
)
from models.specs import Task, TrainSpec
from models.training.boosters import TooFewIncidentsError, train

T0 = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SPEC = HazardSpec(
    edges_d=(10, 20, 40),
    trained_on="synthetic",
    train=TrainSpec(rounds=20, min_data_in_leaf=20, min_incidents=10, lambda_l2=1.0),
)
NAMES = ("risk", "noise")


def labels_of(told: dict[int, list[int | None]]) -> pl.DataFrame:
    """Labels of one entity at T0: horizon in days to label of each of `entities`."""
    rows = [
        (f"e{i}", T0, 24 * days, label, f"inc-{i}" if label else None, "gsp" if label else None)
        for days, labels in told.items()
        for i, label in enumerate(labels)
    ]
    schema = {
        "entity_id": pl.String,
        "as_of": pl.Datetime("us", "UTC"),
        "horizon_h": pl.Int32,
        "label": pl.Int8,
        "incident_id": pl.String,
        "fault_type": pl.String,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def at_risk(told: dict[int, list[int | None]], until: datetime = T0 + 99 * DAY) -> list[tuple]:
    labels = labels_of(told)
    matrix = labels.select("entity_id", "as_of").unique().sort("entity_id")
    return person_periods(matrix, labels, spec=SPEC, until=until).select(
        "entity_id", PERIOD, "label"
    ).rows()  # fmt: skip


def test_an_entity_is_at_risk_until_it_fails_or_is_no_longer_watched() -> None:
    told = {10: [0, 1, 0, None], 20: [0, 1, None, None], 40: [1, 1, None, None]}
    assert at_risk(told) == [
        ("e0", 0, 0), ("e0", 1, 0), ("e0", 2, 1),  # fails in the third
        ("e1", 0, 1),  # fails in the first
        ("e2", 0, 0),  # censored in the second
    ]  # fmt: skip


def test_a_period_that_ends_after_what_is_known_is_left_out_whatever_happened_in_it() -> None:
    told = {10: [1], 20: [1], 40: [1]}
    assert at_risk(told, until=T0 + 9 * DAY) == []
    assert at_risk(told, until=T0 + 10 * DAY) == [("e0", 0, 1)]


def test_labels_without_a_horizon_are_refused() -> None:
    with pytest.raises(DataError, match=r"lack horizons \[960\]"):
        at_risk({10: [0], 20: [0]})


@pytest.mark.parametrize("edges", [(), (0, 7), (30, 7), (7, 7)])
def test_edges_must_rise_from_above_zero(edges) -> None:
    with pytest.raises(DataError, match="edges_d must be positive"):
        HazardSpec(edges_d=edges)


@pytest.fixture(scope="module")
def world() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Eight hundred entities whose daily hazard is 0.2 % or 2 %, told by the feature `risk`."""
    rng = np.random.default_rng(3)
    n = 800
    risk = rng.integers(0, 2, n)
    life = rng.exponential(1 / np.where(risk == 1, 0.02, 0.002))
    told = {d: [int(t < d) for t in life] for d in SPEC.edges_d}
    matrix = pl.DataFrame(
        {"entity_id": [f"e{i}" for i in range(n)], "as_of": [T0] * n, "risk": risk},
        schema_overrides={"as_of": pl.Datetime("us", "UTC"), "risk": pl.Float32},
    ).with_columns(noise=pl.Series(rng.normal(size=n), dtype=pl.Float32))
    return matrix, labels_of(told)


@pytest.fixture(scope="module")
def model(world) -> HazardModel:
    matrix, labels = world
    return train_hazard(
        matrix, labels, feature_names=NAMES, spec=SPEC, until=T0 + 40 * DAY
    ).calibrated_on(matrix, labels, until=T0 + 40 * DAY)


def test_probabilities_are_those_of_the_hazards_that_made_the_lives(model, world) -> None:
    matrix, _ = world
    found = model.probabilities(matrix, days=[10, 40])
    for risk, rate in ((0, 0.002), (1, 0.02)):
        mean = found[(matrix["risk"] == risk).to_numpy()].mean(axis=0)
        assert mean == pytest.approx(1 - np.exp(-rate * np.array([10, 40])), abs=0.05)


@given(st.lists(st.floats(0, 40), min_size=2, max_size=6))
def test_a_longer_horizon_never_has_a_smaller_probability(days) -> None:
    rng = np.random.default_rng(len(days))
    periods = tuple(_Fixed(rng.uniform(0, 1, 5)) for _ in SPEC.edges_d)
    fixed = HazardModel(periods=periods, spec=SPEC)  # type: ignore[arg-type]
    found = fixed.probabilities(pl.DataFrame({"x": range(5)}), days=sorted(days))
    assert (np.diff(found, axis=1) >= 0).all()
    assert ((found >= 0) & (found <= 1)).all()


class _Fixed:
    """A period whose hazard is given."""

    def __init__(self, hazard: np.ndarray) -> None:
        self.hazard = hazard

    def probability(self, _: pl.DataFrame) -> np.ndarray:
        return self.hazard


def test_at_an_edge_what_is_left_is_the_product_of_the_periods(model, world) -> None:
    matrix, _ = world
    left = np.prod([1 - p.probability(matrix) for p in model.periods], axis=0)
    assert 1 - model.probabilities(matrix, days=[40])[:, 0] == pytest.approx(left)
    assert model.probabilities(matrix, days=[0]).max() == 0.0


def test_curves_hold_the_survival_of_each_row_at_each_edge(model, world) -> None:
    matrix, _ = world
    curves = model.curves(matrix.head(2))
    assert curves["entity_id"].to_list() == ["e0"] * 3 + ["e1"] * 3
    assert curves["day"].to_list() == [10, 20, 40] * 2
    assert curves["survival"].to_list() == model.survival(matrix.head(2)).ravel().tolist()


def test_the_first_period_is_the_model_of_that_horizon(model, world) -> None:
    matrix, labels = world
    told = labels.filter(pl.col("horizon_h") == 240)
    rows = matrix.join(told, on=["entity_id", "as_of"], maintain_order="left")
    task = Task(horizon_h=240, lead=timedelta(0), trained_on="synthetic")
    alone = train(rows, feature_names=NAMES, task=task, spec=SPEC.train)
    found = model.periods[0].model.raw_scores(matrix)
    assert found.tolist() == alone.raw_scores(matrix).tolist()


def test_a_period_with_few_incidents_borrows_and_keeps_its_own_rate(world) -> None:
    matrix, labels = world
    few = labels.with_columns(
        pl.when((pl.col("horizon_h") > 240) & (pl.col("label") == 1))
        .then(pl.col("entity_id").is_in(["e1", "e2", "e3"]).cast(pl.Int8))
        .otherwise("label")
        .alias("label")
    )
    found = train_hazard(matrix, few, feature_names=NAMES, spec=SPEC, until=T0 + 40 * DAY)
    first, second = found.periods[:2]
    assert second.model is first.model
    assert second.shift < 0
    assert isinstance(second, PeriodHazard)
    assert second.n_failed <= 3


def test_a_horizon_beyond_the_last_edge_is_refused(model, world) -> None:
    with pytest.raises(DataError, match="days must lie in 0 to 40"):
        model.probabilities(world[0], days=[41])


def test_without_incidents_there_is_no_hazard(world) -> None:
    matrix, labels = world
    healthy = labels.with_columns(label=pl.lit(0, pl.Int8), incident_id=pl.lit(None, pl.String))
    with pytest.raises(TooFewIncidentsError):
        train_hazard(matrix, healthy, feature_names=NAMES, spec=SPEC, until=T0 + 40 * DAY)


def test_a_period_that_the_record_does_not_reach_goes_on_with_the_hazard_before_it(world) -> None:
    matrix, labels = world
    found = train_hazard(matrix, labels, feature_names=NAMES, spec=SPEC, until=T0 + 20 * DAY)
    second, third = found.periods[1:]
    assert (third.n_rows, third.n_failed) == (0, 0)
    of_day = [  # mean hazard of a day in the 10 days of the second period and the 20 of the third
        -np.log1p(-period.probability(matrix)).mean() / days
        for period, days in ((second, 10), (third, 20))
    ]
    assert of_day[1] == pytest.approx(of_day[0], rel=0.25)
