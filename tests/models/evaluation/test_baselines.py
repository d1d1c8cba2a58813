"""Rules of the baselines: what they look at, and what they say without it."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from features.registry import Feature
from models.evaluation.baselines import (
    all_baselines,
    history_count,
    history_rank,
    last_xid,
    logistic_regression,
    oracle,
    static_rules,
)

DAY = timedelta(days=1)


def feature(name: str, family: str, window: timedelta | None = DAY) -> Feature:
    return Feature(name, family, "1", window, name, (), "")


def frame(**columns) -> pl.DataFrame:
    size = len(next(iter(columns.values())))
    return pl.DataFrame({"entity_id": [f"gpu-{i}" for i in range(size)], **columns})


@pytest.mark.parametrize(
    ("name", "family", "values", "expected"),
    [
        ("hbm_event_count_24h", "event", [0, 1, None], [0, 1, 0]),
        ("precursor_event_count_1h", "event", [0, 2, None], [0, 1, 0]),
        ("row_remap_pending_last_24h", "telemetry_state", [0, 1, None], [0, 1, 0]),
        ("gpu_temp_c_max_24h", "telemetry_gauge", [89.9, 90, None], [0, 1, 0]),
        ("memory_temp_c_max_1h", "telemetry_gauge", [99, 101, None], [0, 1, 0]),
    ],
)
def test_a_static_rule_fires_at_its_limit_and_not_on_the_unknown(
    name, family, values, expected
) -> None:
    found = static_rules(frame(**{name: values}), features=[feature(name, family)])
    assert found.scores.to_list() == expected


@pytest.mark.parametrize(
    "other",
    [
        feature("hbm_event_count_7d", "event", 7 * DAY),  # too long ago
        feature("app_event_count_24h", "event"),  # applications' own Xids
        feature("gpu_temp_c_mean_24h", "telemetry_gauge"),
        feature("gpu_temp_c_max_24h", "peer"),
    ],
)
def test_a_static_rule_looks_at_nothing_else(other) -> None:
    found = static_rules(frame(**{other.name: [1000.0]}), features=[other])
    assert found.scores is None


def test_history_ranks_by_the_count_that_looks_back_furthest() -> None:
    names = ["own_incident_count_30d", "own_incident_count", "own_incident_count_in_stay"]
    rows = frame(**{names[0]: [5, 0], names[1]: [1, None], names[2]: [0, 9]})
    features = [feature(name, "history", None) for name in names]
    assert history_count(rows, features=features).scores.to_list() == [1, 0]


def test_history_rank_asks_the_gpu_first_then_its_node_then_the_time() -> None:
    columns = {
        "own_incident_count": [0.0, 0.0, 1.0, 1.0, None],
        "node_incident_count_7d": [0.0, 9.0, 0.0, 0.0, 0.0],
        "node_incident_count_180d": [3.0, 2.0, 1.0, 1.0, 1.0],
        "own_days_since_incident": [None, None, 5.0, 90.0, None],
    }
    windows = {"node_incident_count_7d": 7 * DAY, "node_incident_count_180d": 180 * DAY}
    features = [feature(name, "history", windows.get(name)) for name in columns]
    scores = history_rank(frame(**columns), features=features).scores
    assert scores.arg_sort(descending=True).to_list() == [2, 3, 0, 1, 4]


def test_the_last_xid_ranks_the_most_recent_first_and_none_last() -> None:
    names = ["hours_since_hbm_event", "hours_since_app_event"]
    rows = frame(**{names[0]: [5.0, None, None], names[1]: [9.0, 2.0, None]})
    scores = last_xid(rows, features=[feature(name, "event") for name in names]).scores
    assert scores.arg_sort(descending=True).to_list() == [1, 0, 2]
    assert scores.null_count() == 0


def test_what_lacks_its_columns_is_not_available() -> None:
    rows = frame(power_w=[1.0])
    features = [feature("power_w", "telemetry_gauge")]
    for baseline in (static_rules, history_count, history_rank, last_xid):
        found = baseline(rows, features=features)
        assert found.scores is None
        assert "no column" in found.note


def test_logistic_regression_takes_medians_and_scales_from_training_alone() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=400).astype(np.float32)
    train = frame(x=x, label=(x + rng.normal(size=400) > 1).astype(np.int8))
    features = [feature("x", "telemetry_gauge")]
    test = frame(x=[0.5, None, float(np.median(x))])
    together = logistic_regression(train, test, features=features).scores
    with_outlier = pl.concat([test, frame(x=[1e6])])
    again = logistic_regression(train, with_outlier, features=features).scores
    assert again[:3].to_list() == together.to_list()
    assert together[1] == pytest.approx(together[2])  # unknown is the training median


def test_logistic_regression_keeps_the_prevalence_when_it_samples_negatives() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=40_000).astype(np.float32)
    label = (rng.random(x.size) < 1 / (1 + np.exp(4 - x))).astype(np.int8)
    rows = frame(x=x, label=label)
    found = logistic_regression(rows, rows, features=[feature("x", "telemetry_gauge")])
    assert found.scores.mean() == pytest.approx(label.mean(), rel=0.1)


def test_logistic_regression_takes_an_infinite_value_for_a_very_large_one() -> None:
    train = frame(x=[0.0, 1.0, float("inf"), 2.0] * 10, label=[0, 0, 1, 0] * 10)
    found = logistic_regression(train, train, features=[feature("x", "telemetry_gauge")]).scores
    assert found.is_finite().all()
    assert found[2] > found[0]


def test_logistic_regression_needs_two_classes() -> None:
    train = frame(x=[0.0, 1.0], label=[0, 0])
    assert logistic_regression(train, train, features=[feature("x", "stay")]).scores is None


def test_the_oracle_is_the_label_and_unknown_where_it_is() -> None:
    assert oracle(frame(label=[1, None, 0])).scores.to_list() == [1.0, None, 0.0]
    assert oracle(frame(x=[1])).scores is None


def test_the_base_rate_is_that_of_training() -> None:
    train = frame(x=[0.0, 1.0, 2.0, 3.0, 4.0], label=[1, 0, 0, 0, None])
    test = frame(x=[0.0, 1.0], label=[1, 1])
    found = {b.name: b for b in all_baselines(train, test, features=[feature("x", "stay")])}
    assert found["base rate"].scores.to_list() == [0.25, 0.25]
    assert found["always"].scores.to_list() == [1.0, 1.0]
    assert found["never"].scores.to_list() == [0.0, 0.0]
    assert all(b.scores is None or len(b.scores) == 2 for b in found.values())


def test_training_rows_without_labels_are_refused() -> None:
    rows = frame(x=[0.0], label=pl.Series([None], dtype=pl.Int8))
    with pytest.raises(DataError, match="no training row has a label"):
        all_baselines(rows, rows, features=[])
