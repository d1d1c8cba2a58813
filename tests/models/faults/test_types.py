"""Rules of forecasting the fault type."""

import json
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from models.faults.types import (
    FaultTypeModel,
    evaluate_fault_types,
    last_event_type,
    train_fault_types,
)
from models.specs import TrainSpec

SPEC = TrainSpec(rounds=30, min_data_in_leaf=5)
NAMES = ("power_w_mean_24h", "gpu_temp_c_max_24h")


@pytest.fixture(scope="module")
def kinds(rows) -> FaultTypeModel:
    return train_fault_types(rows, feature_names=NAMES, spec=SPEC)


def positives(fault_types: list[str | None], rows_each: int = 2) -> pl.DataFrame:
    """One incident per fault type, `rows_each` rows before each; power tells the types apart."""
    codes = {name: i for i, name in enumerate(sorted({f for f in fault_types if f}))}
    listed = [
        (f"gpu-{i}", hour, 1, f"inc-{i}", fault, 100.0 * codes.get(fault or "", 0), 0.0)
        for i, fault in enumerate(fault_types)
        for hour in range(rows_each)
    ]
    schema = {
        "entity_id": pl.String,
        "as_of": pl.Int64,
        "label": pl.Int8,
        "incident_id": pl.String,
        "fault_type": pl.String,
        NAMES[0]: pl.Float32,
        NAMES[1]: pl.Float32,
    }
    return pl.DataFrame(listed, schema=schema, orient="row").with_columns(
        pl.col("as_of") * timedelta(hours=1)
    )


def test_shares_sum_to_one(kinds, rows) -> None:
    shares = kinds.probabilities(rows.head(50))
    assert shares.shape == (50, len(kinds.classes))
    assert shares.sum(axis=1) == pytest.approx(np.ones(50))


def test_types_told_apart_by_a_feature_are_forecast(kinds, rows) -> None:
    found = evaluate_fault_types(kinds, rows)
    assert found.n_incidents == rows["incident_id"].n_unique() - 1  # one is null
    assert found.top1 > found.prior_top1 + 0.2
    assert found.top2 == 1.0


def test_a_class_counts_incidents_not_rows() -> None:
    common = positives(["thermal"] * 3, rows_each=1)
    rare = positives(["pcie"], rows_each=9).with_columns(incident_id=pl.lit("inc-9"))
    found = train_fault_types(pl.concat([common, rare]), feature_names=NAMES, spec=SPEC)
    assert found.classes == ("thermal", "pcie")
    assert found.prior == pytest.approx((4 / 6, 2 / 6))  # (3 + 1) and (1 + 1) of 4 + 2
    assert found.n_incidents == 4


def test_few_incidents_of_a_class_leave_it_to_the_prior() -> None:
    rows = positives(["thermal"] * 10 + ["pcie"] * 9)
    found = train_fault_types(rows, feature_names=NAMES, spec=SPEC)
    assert (found.booster, found.learned) == (None, ())
    assert found.forecast(rows)[0] == ["thermal"] * rows.height


def test_a_class_the_booster_does_not_know_keeps_its_prior() -> None:
    rows = positives(["thermal"] * 12 + ["off_bus"] * 12 + ["pcie"])
    found = train_fault_types(rows, feature_names=NAMES, spec=SPEC)
    assert set(found.learned) == {"thermal", "off_bus"}
    rare = found.classes.index("pcie")
    assert found.probabilities(rows)[:, rare] == pytest.approx(found.prior[rare])


def test_the_order_of_rows_changes_nothing(kinds, rows) -> None:
    turned = rows.sample(fraction=1.0, shuffle=True, seed=1)
    again = train_fault_types(turned, feature_names=NAMES, spec=SPEC)
    assert (again.probabilities(rows) == kinds.probabilities(rows)).all()


def test_each_incident_counts_once_in_the_metrics() -> None:
    model = FaultTypeModel(
        classes=("thermal", "pcie", "off_bus"),
        prior=(0.5, 0.3, 0.2),
        learned=(),
        feature_names=NAMES,
        booster=None,
        n_incidents=10,
    )
    often = positives(["thermal"], rows_each=8)
    once = positives(["off_bus", "pcie", "gsp"], rows_each=1).with_columns(
        incident_id="x" + pl.col("incident_id"),
        hours_since_hbm_event=pl.lit(None, pl.Float32),
        hours_since_nvlink_event=pl.lit(5.0, pl.Float32),
        hours_since_off_bus_event=pl.lit(2.0, pl.Float32),
    )
    rows = pl.concat([often, once], how="diagonal")
    found = evaluate_fault_types(model, rows)
    assert (found.n_incidents, found.top1, found.top2) == (4, 0.25, 0.5)
    assert (found.prior_top1, found.prior_top2) == (0.25, 0.5)
    # Where there was no event the most frequent class stands: thermal is right, off_bus is right.
    assert found.last_xid_top1 == 0.5


def test_without_event_features_there_is_no_last_event(kinds, rows) -> None:
    assert last_event_type(rows) is None
    assert evaluate_fault_types(kinds, rows).last_xid_top1 is None


def test_without_an_incident_there_is_nothing_to_learn_or_judge(kinds, rows) -> None:
    healthy = rows.filter(pl.col("label") == 0)
    with pytest.raises(DataError, match="none of"):
        train_fault_types(healthy, feature_names=NAMES, spec=SPEC)
    assert evaluate_fault_types(kinds, healthy).top1 is None


def test_stored_and_read_it_forecasts_the_same(kinds, rows) -> None:
    text = kinds.booster.model_to_string()
    again = FaultTypeModel.from_dict(json.loads(json.dumps(kinds.to_dict())), text)
    assert (again.probabilities(rows) == kinds.probabilities(rows)).all()
    names = json.loads(json.dumps(evaluate_fault_types(again, rows).to_dict()))
    assert names["n_incidents"] > 0


def test_no_row_gives_no_share(kinds, rows) -> None:
    assert kinds.probabilities(rows.clear()).shape == (0, len(kinds.classes))
    assert kinds.forecast(rows.clear())[0] == []
