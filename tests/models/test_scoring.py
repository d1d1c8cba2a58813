"""Rules of the score tables: contracts, unknown inputs, priors, nodes."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from features.tables import GPU_SCORES, NODE_SCORES
from models.prior import fit_prior
from models.scoring import ScoreLimits, ServedModel, score_gpus, score_nodes
from models.training.boosters import train

NAMES = ("power_w_mean_24h", "gpu_temp_c_max_24h", "own_incident_count_180d")


@pytest.fixture(scope="module")
def matrix(rows) -> pl.DataFrame:
    """One moment: forty GPUs of ten nodes."""
    at = rows["as_of"].min()
    return rows.filter(pl.col("as_of") == at).select("entity_id", "as_of", "node", *NAMES)


@pytest.fixture(scope="module")
def served(bundle) -> ServedModel:
    return ServedModel(version="gpu-failure-6h/1", model=bundle)


@pytest.fixture(scope="module")
def prior(rows, model) -> ServedModel:
    fitted = fit_prior(rows, n_incidents=3, tick=timedelta(hours=1), task=model.task)
    return ServedModel(version="prior", model=fitted)


def without_telemetry(matrix: pl.DataFrame, gpus: list[str]) -> pl.DataFrame:
    return matrix.with_columns(
        pl.when(pl.col("entity_id").is_in(gpus)).then(None).otherwise(pl.col(name)).alias(name)
        for name in NAMES[:2]
    )


def test_scores_hold_their_contracts(matrix, served, prior) -> None:
    models = [served, prior]
    gpu_scores = score_gpus(matrix, models)
    node_scores = score_nodes(gpu_scores, models)
    for contract, scores in ((GPU_SCORES, gpu_scores), (NODE_SCORES, node_scores)):
        enforced = contract.enforce(scores)
        assert enforced.rejects.is_empty(), enforced.rejects
    assert gpu_scores.height == 2 * matrix.height
    assert node_scores.height == 2 * matrix["node"].n_unique()


def test_a_score_is_the_models_own(matrix, served, model) -> None:
    scores = score_gpus(matrix, [served])
    assert scores["score"].to_list() == model.scores(matrix).tolist()
    assert scores["status"].unique().to_list() == ["ok"]
    assert scores["model_version"].unique().to_list() == ["gpu-failure-6h/1"]


def test_a_score_depends_on_no_other_row_of_the_batch(matrix, served) -> None:
    whole = score_gpus(matrix, [served])
    rack = matrix.filter(pl.col("node") == matrix["node"][0]).reverse()
    alone = score_gpus(rack, [served])
    scores = dict(whole.select("entity_id", "score").iter_rows())
    assert alone.height == 4
    assert all(scores[gpu] == score for gpu, score in alone.select("entity_id", "score").rows())


def test_models_with_other_features_each_read_their_own(matrix, rows, served, bundle) -> None:
    turned = train(rows, feature_names=NAMES[::-1], task=bundle.model.task, spec=bundle.model.spec)
    features = bundle.features[::-1]  # its fault types keep the other order
    other = ServedModel(version="o", model=replace(bundle, model=turned, features=features))
    scores = score_gpus(matrix, [served, other, served])
    first, second, third = (scores.slice(i * matrix.height, matrix.height) for i in range(3))
    assert second["score"].to_list() == turned.scores(matrix).tolist()
    assert first.equals(score_gpus(matrix, [served]))
    assert third.equals(first)
    kinds = ("fault_type", "fault_probability")
    assert second.select(kinds).equals(first.select(kinds))


def test_features_that_are_built_no_more_are_named_with_what_to_do(matrix, served) -> None:
    with pytest.raises(DataError, match="1 of 3 features are missing: power_w.*or train again"):
        score_gpus(matrix.drop(NAMES[0]), [served])


def test_a_gpu_without_telemetry_has_no_score_and_says_why(matrix, served) -> None:
    scores = score_gpus(without_telemetry(matrix, ["gpu-00"]), [served])
    row = scores.row(0, named=True)
    assert (row["score"], row["status"], row["fault_type"], row["reasons"]) == (
        None,
        "unknown",
        None,
        [],
    )
    assert row["status_reason"] == "100 % of the telemetry features are missing"
    assert row["missing_share"] == 1.0
    assert scores["score"].null_count() == 1


def test_a_null_in_the_history_is_no_missing_input(matrix, served) -> None:
    blank = matrix.with_columns(pl.lit(None, dtype=pl.Float32).alias(NAMES[2]))
    assert score_gpus(blank, [served])["missing_share"].to_list() == [0.0] * matrix.height


def test_a_feature_never_seen_in_training_is_not_missed(matrix, bundle) -> None:
    median = {name: value for name, value in bundle.usual.median.items() if name != NAMES[0]}
    served = ServedModel(
        version="v", model=replace(bundle, usual=replace(bundle.usual, median=median))
    )
    blank = matrix.with_columns(pl.lit(None, dtype=pl.Float32).alias(NAMES[0]))
    assert score_gpus(blank, [served])["missing_share"].to_list() == [0.0] * matrix.height


@pytest.mark.parametrize(
    ("age_h", "reason"),
    [
        (0.4, None),
        (0.5, None),
        (1.5, "newest sample is 90 min old"),
        (None, "no telemetry sample was seen"),
    ],
)
def test_an_old_sample_gives_no_score(matrix, served, age_h, reason) -> None:
    limits = ScoreLimits(sample_age="age", max_sample_age=timedelta(minutes=30))
    aged = matrix.with_columns(age=pl.lit(age_h, dtype=pl.Float32))
    scores = score_gpus(aged, [served], limits=limits)
    assert scores["status_reason"].unique().to_list() == [reason]
    assert scores["status"].unique().to_list() == ["unknown" if reason else "ok"]
    assert scores["score"].null_count() == (matrix.height if reason else 0)


def test_a_sample_age_that_is_not_in_the_matrix_is_an_error(matrix, served) -> None:
    with pytest.raises(DataError, match="'age'"):
        score_gpus(matrix, [served], limits=ScoreLimits(sample_age="age"))


def test_only_the_highest_scores_are_explained(matrix, served) -> None:
    scores = score_gpus(matrix, [served], limits=ScoreLimits(n_explained=4))
    explained = scores.filter(pl.col("reasons").list.len() > 0)
    assert 1 <= explained.height <= 4
    assert explained["score"].min() >= scores["score"].top_k(4).min()


def test_only_the_newest_moment_is_explained(rows, served) -> None:
    first = rows["as_of"].min()
    two = rows.filter(pl.col("as_of") <= first + timedelta(hours=1))
    scores = score_gpus(two.select("entity_id", "as_of", "node", *NAMES), [served])
    explained = scores.filter(pl.col("reasons").list.len() > 0)
    assert explained["as_of"].unique().to_list() == [first + timedelta(hours=1)]


def test_a_prior_is_labelled_so_and_ranks_by_history(matrix, prior) -> None:
    scores = score_gpus(matrix, [prior])
    assert scores["status"].unique().to_list() == ["prior"]
    assert "published rate" in scores["status_reason"][0]
    failed = matrix[NAMES[2]] > 0
    assert scores.filter(failed)["score"].min() > scores.filter(~failed)["score"].max()
    nodes = score_nodes(scores, [prior])
    assert nodes["status"].unique().to_list() == ["prior"]
    assert "published rate" in nodes["status_reason"][0]


def test_a_node_score_is_the_combination_of_its_gpus(matrix, served) -> None:
    gpu_scores = score_gpus(matrix, [served])
    nodes = score_nodes(gpu_scores, [served])
    for node, score in nodes.select("entity_id", "score").iter_rows():
        of_node = gpu_scores.filter(pl.col("node") == node)["score"].to_numpy()
        assert score == pytest.approx(1 - (1 - 0.001) * np.prod(1 - of_node))


def test_a_node_takes_fault_type_and_reasons_from_its_highest_gpu(matrix, served) -> None:
    gpu_scores = score_gpus(matrix, [served])
    for row in score_nodes(gpu_scores, [served]).iter_rows(named=True):
        of_node = gpu_scores.filter(pl.col("node") == row["node"])
        leading = of_node.sort("score", descending=True).row(0, named=True)
        assert row["fault_type"] == leading["fault_type"]
        assert row["reasons"] == [f"leading GPU: {leading['entity_id']}", *leading["reasons"]]


def test_a_node_with_too_many_unknown_gpus_is_unknown(matrix, served) -> None:
    gpu_scores = score_gpus(without_telemetry(matrix, ["gpu-00", "gpu-01", "gpu-02"]), [served])
    nodes = score_nodes(gpu_scores, [served]).filter(pl.col("node") == "node-0")
    row = nodes.row(0, named=True)
    assert (row["score"], row["status"], row["reasons"]) == (None, "unknown", [])
    assert row["status_reason"].startswith("3 of 4 GPUs unknown: 100 %")


def test_a_node_with_few_unknown_gpus_is_scored_and_says_so(matrix, served) -> None:
    gpu_scores = score_gpus(without_telemetry(matrix, ["gpu-01"]), [served])
    nodes = score_nodes(gpu_scores, [served]).filter(pl.col("node") == "node-0")
    row = nodes.row(0, named=True)
    assert row["status"] == "ok"
    assert row["status_reason"] is None
    assert row["reasons"][-1].startswith("1 of 4 GPUs not scored: 100 %")
    assert row["reasons"][0] != "leading GPU: gpu-01"


def test_a_gpu_in_no_node_is_scored_but_makes_no_node(matrix, served) -> None:
    homeless = matrix.with_columns(node=pl.lit(None, dtype=pl.String))
    scores = score_gpus(homeless, [served])
    assert scores["score"].null_count() == 0
    assert score_nodes(scores, [served]).is_empty()


def test_a_bundle_without_node_part_cannot_score_nodes(matrix, bundle) -> None:
    served = ServedModel(version="v", model=replace(bundle, nodes=None))
    with pytest.raises(DataError, match="no combination for nodes"):
        score_nodes(score_gpus(matrix, [served]), [served])


def test_no_rows_give_empty_tables(matrix, served) -> None:
    gpu_scores = score_gpus(matrix.head(0), [served])
    assert GPU_SCORES.conform(gpu_scores).is_empty()
    assert NODE_SCORES.conform(score_nodes(gpu_scores, [served])).is_empty()
    assert GPU_SCORES.conform(score_gpus(matrix, [])).is_empty()
