"""Rules of training the failure score."""

from dataclasses import replace
from datetime import timedelta

import lightgbm as lgb
import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from features.tables import LABELS
from models.failure_model import FailureModel, feature_values
from models.specs import Task, TrainSpec
from models.training import binning
from models.training.boosters import (
    TooFewIncidentsError,
    bin_rows,
    booster_parameters,
    count_incidents,
    train,
    train_binned,
    training_rows,
)

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


def plain_text(rows: pl.DataFrame, spec: TrainSpec, seed: int) -> str:
    """The slow way: all features as one array, binned by LightGBM for this seed alone."""
    known = rows.filter(pl.col("label").is_not_null()).sort("as_of", "entity_id")
    label = known["label"].to_numpy()
    chance = np.random.default_rng(seed).random(known.height)
    known = known.filter(pl.Series((label == 1) | (chance < spec.negative_share)))
    label = known["label"].to_numpy().astype(np.float32)
    values, edges = feature_values(known, NAMES), None
    if known.height > binning.EDGE_ROWS:
        sample = values[binning.edge_sample(known.height)]
        edges = lgb.Dataset(sample, params=dict(binning.BIN_PARAMETERS))
    data = lgb.Dataset(
        values,
        label,
        weight=np.where(label == 1, 1, 1 / spec.negative_share),
        reference=edges,
        feature_name=list(NAMES),
        params=dict(binning.BIN_PARAMETERS),
    ).construct()
    parameters = booster_parameters(spec, names=NAMES, seed=seed)
    return lgb.train(parameters, data, num_boost_round=spec.rounds).model_to_string()


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize(("batch", "edge_rows"), [(257, 500), (257, 100_000), (100_000, 500)])
def test_batches_give_the_booster_of_the_whole_array(
    rows, monkeypatch, share, batch, edge_rows
) -> None:
    monkeypatch.setattr(binning, "BATCH_ROWS", batch)
    monkeypatch.setattr(binning, "EDGE_ROWS", edge_rows)
    spec = replace(SPEC, negative_share=share, seeds=(1, 2))
    holes = rows.with_columns(
        label=pl.when(pl.int_range(pl.len()) % 7 > 0).then("label"),
        power_w_mean_24h=pl.when(pl.int_range(pl.len()) % 5 > 0).then("power_w_mean_24h"),
    )
    model = fit(holes, spec)
    texts = [booster.model_to_string() for booster in model.boosters]
    assert texts == [plain_text(holes, spec, seed) for seed in (1, 2)]


def test_edges_of_bins_come_from_a_sample_where_there_are_many_rows(rows, monkeypatch) -> None:
    every = fit(rows).boosters[0].model_to_string()
    monkeypatch.setattr(binning, "EDGE_ROWS", 500)
    sample = binning.edge_sample(rows.height)
    assert np.unique(sample).size == 500
    assert (sample[0] >= 0) & (np.diff(sample) > 0).all() & (sample[-1] < rows.height)
    assert fit(rows).boosters[0].model_to_string() != every


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_a_scan_of_files_gives_the_model_of_the_frame(rows, tmp_path, monkeypatch, share) -> None:
    monkeypatch.setattr(binning, "BATCH_ROWS", 257)
    monkeypatch.setattr(binning, "EDGE_ROWS", 500)
    spec = replace(SPEC, negative_share=share, seeds=(1, 2))
    holes = rows.with_columns(label=pl.when(pl.int_range(pl.len()) % 7 > 0).then("label"))
    stored = holes.sort("as_of", "entity_id")
    for number in range(3):
        stored.slice(2_000 * number, 2_000).write_parquet(
            tmp_path / f"{number}.parquet", row_group_size=300
        )
    scanned, framed = fit(pl.scan_parquet(tmp_path / "*.parquet"), spec), fit(holes, spec)
    assert [b.model_to_string() for b in scanned.boosters] == [
        b.model_to_string() for b in framed.boosters
    ]
    assert scanned.data_hash == framed.data_hash
    assert (scanned.n_rows, scanned.n_incidents) == (framed.n_rows, framed.n_incidents)


def test_a_scan_out_of_order_is_refused(rows) -> None:
    with pytest.raises(DataError, match="must be sorted by as_of and entity_id"):
        fit(rows.sort("entity_id", "as_of").lazy())


def test_no_more_than_a_batch_of_features_is_read_at_once(rows, monkeypatch) -> None:
    monkeypatch.setattr(binning, "BATCH_ROWS", 500)
    monkeypatch.setattr(binning, "EDGE_ROWS", 700)
    heights = []

    def counted(frame: pl.DataFrame, names: tuple[str, ...]) -> np.ndarray:
        heights.append(frame.height)
        return feature_values(frame, names)

    monkeypatch.setattr(binning, "feature_values", counted)
    fit(rows)
    assert max(heights) == 500
    assert sum(heights) == 2 * rows.height  # once for the edges of bins, once for the bins


def test_bins_are_shared_by_specs_and_change_no_booster(rows) -> None:
    shared = bin_rows(rows, feature_names=NAMES, task=TASK, spec=SPEC)
    for spec in (SPEC, replace(SPEC, num_leaves=15, min_data_in_leaf=300, lambda_l2=0.0), SPEC):
        ours = train_binned(shared, task=TASK, spec=spec)
        assert ours.boosters[0].model_to_string() == fit(rows, spec).boosters[0].model_to_string()


def test_all_negatives_are_binned_once_for_all_seeds(rows) -> None:
    binned = bin_rows(rows, feature_names=NAMES, task=TASK, spec=replace(SPEC, seeds=(1, 2, 3)))
    assert len({id(data) for data in binned.data}) == 1


@pytest.mark.parametrize("other", [{"seeds": (2,)}, {"negative_share": 0.5}])
def test_bins_of_another_sample_are_refused(rows, other) -> None:
    binned = bin_rows(rows, feature_names=NAMES, task=TASK, spec=SPEC)
    with pytest.raises(DataError, match="Bin the rows anew"):
        train_binned(binned, task=TASK, spec=replace(SPEC, **other))


def test_the_edges_of_bins_come_from_training_rows_alone(rows) -> None:
    later = rows.with_columns(
        pl.col("as_of") + timedelta(days=90), label=None, power_w_mean_24h=pl.lit(1e6)
    ).cast(rows.schema)
    alone, beside = fit(rows), fit(pl.concat([rows, later]))
    assert beside.boosters[0].model_to_string() == alone.boosters[0].model_to_string()


@pytest.mark.parametrize("value", [{"extra_trees": True}, {"path_smooth": 50.0}])
def test_more_ways_to_hold_trees_back_reach_lightgbm(rows, value) -> None:
    changed, plain = fit(rows, replace(SPEC, **value)), fit(rows)
    assert (changed.raw_scores(rows) != plain.raw_scores(rows)).any()


@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_feature_that_is_not_there_is_named(rows, is_lazy) -> None:
    stored = rows.sort("as_of", "entity_id").drop("power_w_mean_24h")
    with pytest.raises(DataError, match="1 of 3 features are missing: power_w_mean_24h"):
        fit(stored.lazy() if is_lazy else stored)
