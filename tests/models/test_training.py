"""Rules of training the failure score."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from features.tables import LABELS
from models.failure_model import FailureModel
from models.specs import Task, TrainSpec
from models.training import TooFewIncidentsError, count_incidents, train, training_rows

NAMES = ("power_w_mean_24h", "gpu_temp_c_max_24h", "own_incident_count_180d")
TASK = Task(horizon_h=6, lead=timedelta(minutes=30), trained_on="synthetic")
SPEC = TrainSpec(rounds=10, min_data_in_leaf=20, min_incidents=10)


def fit(rows: pl.DataFrame, spec: TrainSpec = SPEC, **more) -> FailureModel:
    return train(rows, feature_names=NAMES, task=TASK, spec=spec, **more)


def test_training_twice_gives_the_same_boosters(rows) -> None:
    first, second = fit(rows), fit(rows)
    assert first.boosters[0].model_to_string() == second.boosters[0].model_to_string()
    assert first.data_hash == second.data_hash


def test_the_order_of_rows_does_not_matter(rows) -> None:
    shuffled = rows.sample(fraction=1.0, shuffle=True, seed=3)
    first, second = fit(rows), fit(shuffled)
    assert first.data_hash == second.data_hash
    assert (first.raw_scores(rows) == second.raw_scores(rows)).all()


def test_rows_with_unknown_label_are_not_trained_on(rows) -> None:
    censored = rows.head(500).with_columns(
        label=pl.lit(None, dtype=pl.Int8), as_of=pl.col("as_of") + timedelta(days=90)
    )
    with_censored = fit(pl.concat([rows, censored]))
    assert with_censored.n_rows == rows.height
    assert with_censored.data_hash == fit(rows).data_hash


def test_a_changed_label_changes_the_data_hash(rows) -> None:
    changed = rows.with_columns(
        label=pl.when(pl.int_range(pl.len()) == 17).then(1 - pl.col("label")).otherwise("label")
    )
    assert fit(changed).data_hash != fit(rows).data_hash


def test_too_few_incidents_are_a_cold_start(rows) -> None:
    spec = TrainSpec(rounds=10, min_incidents=100)
    with pytest.raises(TooFewIncidentsError, match="60 incidents.*needed 100.*prior"):
        fit(rows, spec)


def test_no_positive_row_is_a_cold_start_even_when_none_is_asked_for(rows) -> None:
    negative = rows.filter(pl.col("label") == 0)
    with pytest.raises(TooFewIncidentsError):
        fit(negative, TrainSpec(min_incidents=0))


def test_positives_alone_are_refused(rows) -> None:
    with pytest.raises(DataError, match="did not fail"):
        fit(rows.filter(pl.col("label") == 1))


def test_many_rows_of_one_incident_count_once(rows) -> None:
    positive = rows.filter(pl.col("label") == 1)
    assert count_incidents(rows) == positive["incident_id"].n_unique()
    assert count_incidents(rows.drop("incident_id")) == positive["entity_id"].n_unique()


def test_each_seed_gives_a_booster_and_scores_are_their_mean(rows) -> None:
    both = fit(rows, TrainSpec(rounds=10, min_data_in_leaf=20, min_incidents=10, seeds=(1, 2)))
    alone = [
        fit(rows, TrainSpec(rounds=10, min_data_in_leaf=20, min_incidents=10, seeds=(s,)))
        for s in (1, 2)
    ]
    mean = (alone[0].raw_scores(rows) + alone[1].raw_scores(rows)) / 2
    assert both.raw_scores(rows) == pytest.approx(mean)
    assert (alone[0].raw_scores(rows) != alone[1].raw_scores(rows)).any()


def test_sampled_negatives_leave_the_mean_score_at_the_prevalence(rows) -> None:
    sampled = fit(
        rows, TrainSpec(rounds=60, min_data_in_leaf=20, min_incidents=10, negative_share=0.2)
    )
    assert sampled.scores(rows).mean() == pytest.approx(rows["label"].mean(), rel=0.15)


def test_a_booster_is_the_same_whatever_other_seeds_sample(rows) -> None:
    spec = replace(SPEC, negative_share=0.2)
    both = fit(rows, replace(spec, seeds=(1, 2)))
    alone = [fit(rows, replace(spec, seeds=(seed,))) for seed in (1, 2)]
    texts = [model.boosters[0].model_to_string() for model in alone]
    assert [booster.model_to_string() for booster in both.boosters] == texts
    assert both.n_rows == alone[0].n_rows == rows.height


def test_the_fewest_rows_of_a_leaf_are_those_of_the_population(rows) -> None:
    spec = replace(SPEC, min_data_in_leaf=100)
    sampled = fit(rows, replace(spec, negative_share=0.2)).boosters[0]
    assert "[min_data_in_leaf: 20]" in sampled.model_to_string()
    assert "[min_data_in_leaf: 100]" in fit(rows, spec).boosters[0].model_to_string()


def test_early_stopping_keeps_the_best_round(rows) -> None:
    spec = TrainSpec(
        rounds=400, learning_rate=0.3, min_data_in_leaf=5, min_incidents=10, early_stopping=5
    )
    is_train = pl.col("entity_id") < "gpu-20"
    model = fit(rows.filter(is_train), spec, valid=rows.filter(~is_train))
    assert 0 < model.boosters[0].num_trees() < 100


def test_a_monotone_feature_never_lowers_the_score(rows) -> None:
    spec = TrainSpec(
        rounds=30, min_data_in_leaf=5, min_incidents=10, monotone=(("own_incident_count_180d", 1),)
    )
    model = fit(rows, spec)
    one = rows.head(200)
    scores = [
        model.raw_scores(
            one.with_columns(own_incident_count_180d=pl.lit(float(n), dtype=pl.Float32))
        )
        for n in range(5)
    ]
    assert (np.diff(np.stack(scores), axis=0) >= 0).all()


def test_a_monotone_feature_that_is_not_there_is_refused(rows) -> None:
    spec = TrainSpec(rounds=5, min_incidents=10, monotone=(("absent", 1),))
    with pytest.raises(DataError, match="absent"):
        fit(rows, spec)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"num_leaves": 65}, "num_leaves"),
        ({"negative_share": 0.0}, "negative_share"),
        ({"seeds": ()}, "seeds"),
    ],
)
def test_a_spec_out_of_range_is_refused(spec, word) -> None:
    with pytest.raises(DataError, match=word):
        TrainSpec(**spec)


def test_training_rows_keep_one_horizon_and_the_censored_rows(rows) -> None:
    matrix = rows.head(3).select("entity_id", "as_of", "node", *NAMES)
    labels = pl.DataFrame(
        {
            "entity_kind": "gpu",
            "entity_id": matrix["entity_id"],
            "as_of": matrix["as_of"],
            "horizon_h": [6, 6, 24],
            "label": [1, None, 0],
            "fault_type": ["thermal", None, None],
            "incident_id": ["i", None, None],
            "censored_by": [None, "data_end", None],
        },
        schema_overrides=dict(LABELS.schema),
    )
    joined = training_rows(matrix, labels, horizon_h=6)
    assert joined["label"].to_list() == [1, None]
    assert joined["censored_by"].to_list() == [None, "data_end"]
