"""A packed forest gives the raw scores of LightGBM, to the last bit, or is not packed.

LightGBM is the oracle throughout; the loops know nothing of it.
"""

import subprocess
import sys
from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import DataError
from models.faults.types import train_fault_types
from models.forest import scorer as forest
from models.forest.scorer import Forest, RawScorer
from models.specs import TrainSpec

N_FEATURES = 6
EDGES = np.array(
    [
        *(np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3.4028235e38, -3.4028235e38),
        *(1e-45, -1e-45, 1e-38, 9.999999e-36, 1e-35, -1e-35, 1.0000001e-35, -1.0000001e-35),
    ],
    dtype=np.float32,
)
"""Where decisions change their kind: missing, infinite, zero to LightGBM, the smallest numbers."""
QUIET = {"verbosity": -1, "num_threads": 1, "min_data_in_bin": 1, "feature_pre_filter": False}


def made_up(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Features of every kind: smooth, tied, constant, sparse, with gaps and infinities."""
    values = rng.normal(size=(rows, N_FEATURES)).astype(np.float32)
    values[:, 1] = rng.integers(0, 4, rows)
    values[:, 2] = 0.5
    values[rng.random(rows) < 0.7, 3] = 0.0
    values[rng.random(rows) < 0.2, 4] = np.nan
    values[rng.random(rows) < 0.3, 5] = rng.choice(EDGES)
    return values


def trained(rng, *, rows=300, rounds=8, categories="auto", **parameters) -> lgb.Booster:
    """A booster on features that matter, and on noise."""
    values = made_up(rng, rows)
    gaps = np.isnan(values[:, 4])
    label = np.nan_to_num(values[:, [0, 1, 3]]).sum(axis=1) + gaps + rng.normal(size=rows) > 1
    chosen = {"objective": "binary", "min_data_in_leaf": 1}
    classes = parameters.get("num_class")
    target = rng.integers(0, classes, rows) if classes else label
    data = lgb.Dataset(values, target, categorical_feature=categories)
    return lgb.train(chosen | QUIET | parameters, data, num_boost_round=rounds)


def thresholds_of(booster: lgb.Booster) -> np.ndarray:
    """All thresholds of a booster, as written."""
    lines = [x for x in booster.model_to_string().splitlines() if x.startswith("threshold=")]
    return np.array([t for x in lines for t in x.split("=")[1].split()], dtype=np.float64)


def probes(rng: np.random.Generator, booster: lgb.Booster, rows: int) -> np.ndarray:
    """Rows of ordinary values, of edges, and of thresholds with their neighbours."""
    with np.errstate(over="ignore"):
        at = thresholds_of(booster).astype(np.float32)
        near = [at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf))]
    pool = np.concatenate([*near, EDGES])
    values = made_up(rng, rows)
    swapped = rng.random(values.shape) < 0.5
    values[swapped] = rng.choice(pool, int(swapped.sum()))
    return values


def reworked(rng: np.random.Generator, booster: lgb.Booster) -> lgb.Booster:
    """The same trees with thresholds and decisions that training would hardly give."""
    odd = [np.inf, -np.inf, 1e300, -1e300, 1e-46, -1e-46, 1e-40, 3e-36, -3e-36, 1e-35, 0.0, -0.0]
    lines = []
    for line in booster.model_to_string().splitlines():
        key, _, old = line.partition("=")
        count = len(old.split())
        if key == "tree_sizes":  # the texts are no longer so long; LightGBM can do without
            continue
        new = old
        if key == "threshold":
            at = np.where(rng.random(count) < 0.4, rng.choice(odd, count), rng.normal(size=count))
            new = " ".join(map(repr, at.tolist()))
        if key == "decision_type":
            new = " ".join(map(str, rng.choice([0, 2, 4, 6, 8, 10], count)))
        lines.append(f"{key}={new}" if old else line)
    return lgb.Booster(model_str="\n".join(lines) + "\n")


def lightgbm_scores(booster: lgb.Booster, values: np.ndarray) -> np.ndarray:
    return booster.predict(values, raw_score=True, num_threads=1)


def agree(booster: lgb.Booster, values: np.ndarray) -> bool:
    packed = Forest.of(booster)
    assert packed is not None
    ours, theirs = packed.raw_scores(values), lightgbm_scores(booster, values)
    assert ours.flags.c_contiguous == theirs.flags.c_contiguous
    return ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()


SHAPES = st.fixed_dictionaries(
    {
        "num_leaves": st.sampled_from([2, 3, 7, 8, 31, 32, 33, 63, 64]),
        "max_depth": st.sampled_from([-1, 2, 5]),
        "min_data_in_leaf": st.sampled_from([1, 5, 40]),
        "use_missing": st.booleans(),
        "zero_as_missing": st.booleans(),
        "boosting": st.sampled_from(["gbdt", "dart"]),
        "extra_trees": st.booleans(),
    }
)
SEEDS = st.integers(0, 2**32 - 1)
ROWS = st.sampled_from([1, 127, 128, 129, 300])


@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, seed=SEEDS, rows=ROWS)
def test_trained_boosters_score_as_in_lightgbm_to_the_last_bit(shape, seed, rows) -> None:
    rng = np.random.default_rng(seed)
    booster = trained(rng, **shape, seed=seed % 1000)
    assert agree(booster, probes(rng, booster, rows))


@settings(max_examples=60, deadline=None)
@given(leaves=st.sampled_from([2, 7, 32, 64]), seed=SEEDS)
def test_any_threshold_and_any_way_with_missing_values_score_as_in_lightgbm(leaves, seed) -> None:
    rng = np.random.default_rng(seed)
    booster = reworked(rng, trained(rng, num_leaves=leaves))
    assert agree(booster, probes(rng, booster, 300))


@settings(max_examples=15, deadline=None)
@given(classes=st.integers(2, 5), seed=SEEDS)
def test_several_outputs_take_turns_as_in_lightgbm(classes, seed) -> None:
    rng = np.random.default_rng(seed)
    booster = trained(rng, objective="multiclass", num_class=classes, num_leaves=7)
    assert agree(booster, probes(rng, booster, 200))


@pytest.mark.parametrize("leaves", [32, 64])
def test_the_fullest_trees_use_every_bit(leaves) -> None:
    rng = np.random.default_rng(leaves)
    booster = trained(rng, rows=3000, num_leaves=leaves)
    assert f"num_leaves={leaves}\n" in booster.model_to_string()
    assert Forest.of(booster).packed.masks.dtype == f"int{leaves}"
    assert agree(booster, probes(rng, booster, 3000))


def test_values_that_are_no_number_alone_go_right_of_an_infinite_threshold() -> None:
    rng = np.random.default_rng(1)
    values = rng.choice(EDGES[:6], (400, 1))
    data = lgb.Dataset(values, np.isnan(values[:, 0]))
    booster = lgb.train({"objective": "binary", "min_data_in_leaf": 1} | QUIET, data, 3)
    assert np.isinf(thresholds_of(booster)).any()
    assert agree(booster, EDGES[:, None])


def test_a_tree_of_a_single_leaf_is_a_constant() -> None:
    booster = trained(np.random.default_rng(2), min_data_in_leaf=300)
    assert "num_leaves=1\n" in booster.model_to_string()
    assert agree(booster, made_up(np.random.default_rng(3), 5))


def test_a_booster_without_trees_scores_zero() -> None:
    values = made_up(np.random.default_rng(4), 50)
    data = lgb.Dataset(values, np.arange(50) % 2, params=QUIET)
    assert agree(lgb.Booster(dict(QUIET), data), values)


def test_no_row_gives_no_score() -> None:
    packed = Forest.of(trained(np.random.default_rng(5)))
    assert packed.raw_scores(np.empty((0, N_FEATURES), np.float32)).shape == (0,)


def test_trees_beyond_the_best_iteration_are_left_out() -> None:
    booster = trained(np.random.default_rng(6), rounds=20)
    booster.best_iteration = 3
    assert Forest.of(booster).packed.leaves.shape[0] == 3
    assert agree(booster, made_up(np.random.default_rng(7), 50))


def test_the_layout_in_memory_does_not_matter() -> None:
    packed = Forest.of(trained(np.random.default_rng(8)))
    values = made_up(np.random.default_rng(9), 300)
    by_column = packed.raw_scores(np.asfortranarray(values))
    assert (packed.raw_scores(values) == by_column).all()
    assert (packed.raw_scores(np.repeat(values, 2, axis=0)[::2]) == by_column).all()


@pytest.mark.parametrize(
    "values", [np.zeros((3, N_FEATURES)), np.zeros((3, N_FEATURES - 1), np.float32)]
)
def test_values_of_another_type_or_number_are_refused(values) -> None:
    with pytest.raises(DataError, match=r"float32 of shape \(rows, 6\), got"):
        Forest.of(trained(np.random.default_rng(10))).raw_scores(values)


@pytest.mark.parametrize(
    "parameters",
    [
        {"num_leaves": 65, "rows": 3000},
        {"linear_tree": True},
        {"categories": [1], "min_data_per_group": 1, "cat_smooth": 0},
        {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
    ],
    ids=["more than 64 leaves", "linear trees", "categories", "random forest"],
)
def test_what_the_loops_do_not_cover_is_left_to_lightgbm(parameters, monkeypatch) -> None:
    monkeypatch.setattr(forest, "FEW_ROWS", 0)
    booster = trained(np.random.default_rng(11), **parameters)
    values = made_up(np.random.default_rng(12), 40)
    assert Forest.of(booster) is None
    scorer = RawScorer(booster=booster, num_threads=1)
    assert (scorer.raw_scores(values) == lightgbm_scores(booster, values)).all()


def test_a_model_text_of_another_version_is_left_to_lightgbm(monkeypatch) -> None:
    monkeypatch.setattr(forest, "VERSIONS", ("v9",))
    assert Forest.of(trained(np.random.default_rng(13))) is None


def test_few_rows_go_to_lightgbm_and_many_to_the_loops(monkeypatch) -> None:
    monkeypatch.setattr(forest, "FEW_ROWS", 20)
    scorer = RawScorer(booster=trained(np.random.default_rng(14)), num_threads=1)
    values = made_up(np.random.default_rng(15), 20)
    expected = lightgbm_scores(scorer.booster, values)
    monkeypatch.setattr(Forest, "raw_scores", lambda self, values: "by the loops")
    assert (scorer.raw_scores(values[:19]) == expected[:19]).all()
    assert scorer.raw_scores(values) == "by the loops"
    assert scorer.forest is scorer.forest


def test_models_score_the_same_both_ways(model, rows, monkeypatch) -> None:
    kinds = train_fault_types(
        rows, feature_names=model.feature_names, spec=TrainSpec(rounds=30, min_data_in_leaf=5)
    )
    by_lightgbm = model.raw_scores(rows), kinds.probabilities(rows)
    monkeypatch.setattr(forest, "FEW_ROWS", 0)
    monkeypatch.setattr(lgb.Booster, "predict", None)
    assert len(kinds.learned) > 1
    assert (replace(model).raw_scores(rows) == by_lightgbm[0]).all()
    assert (kinds.probabilities(rows) == by_lightgbm[1]).all()


def test_importing_the_models_loads_no_compiler() -> None:
    code = "import sys, models.failure_model; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
