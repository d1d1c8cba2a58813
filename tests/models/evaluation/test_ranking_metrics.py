"""Ranking metrics against scikit-learn, their peer, under any row weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from models.evaluation.ranking_metrics import (
    auc,
    average_precision,
    precision_at_top,
    rank_rows,
    recall_at_top,
)


@st.composite
def weighted_rows(draw):
    """Scores with ties, both classes, and integer weights that leave both classes some."""
    size = draw(st.integers(4, 40))
    score = draw(st.lists(st.integers(0, 8), min_size=size, max_size=size))
    label = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    weight = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    label[:2], weight[:2] = [0, 1], [1, 1]
    return (
        np.asarray(score, dtype=np.float64),
        np.asarray(label, dtype=np.int8),
        np.asarray(weight, dtype=np.float64),
    )


def top_10pct(ranked, weights):
    return precision_at_top(ranked, weights, share=0.1)


def recall_10pct(ranked, weights):
    return recall_at_top(ranked, weights, share=0.1)


@given(weighted_rows())
def test_auc_is_scikit_learns(rows) -> None:
    score, label, weight = rows
    found = auc(rank_rows(score, label), weight[None, :])
    assert found[0] == pytest.approx(roc_auc_score(label, score, sample_weight=weight))


@given(weighted_rows())
def test_average_precision_is_scikit_learns(rows) -> None:
    score, label, weight = rows
    found = average_precision(rank_rows(score, label), weight[None, :])
    assert found[0] == pytest.approx(average_precision_score(label, score, sample_weight=weight))


@given(weighted_rows(), st.floats(0.05, 1.0))
def test_a_weight_is_as_many_equal_rows(rows, share) -> None:
    score, label, weight = rows
    times = weight.astype(int)
    repeated = rank_rows(np.repeat(score, times), np.repeat(label, times))
    ones = np.ones((1, times.sum()))
    ranked = rank_rows(score, label)
    for metric in (precision_at_top, recall_at_top):
        found = metric(ranked, weight[None, :], share=share)
        assert found[0] == pytest.approx(metric(repeated, ones, share=share)[0])


@given(weighted_rows(), st.integers(1, 40))
def test_precision_at_the_top_is_the_mean_over_orders_of_ties(rows, k) -> None:
    score, label, _ = rows
    k = min(k, score.size)
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(400):
        order = np.lexsort((rng.random(score.size), -score))
        hits.append(label[order[:k]].mean())
    found = precision_at_top(
        rank_rows(score, label), np.ones((1, score.size)), share=k / score.size
    )
    assert found[0] == pytest.approx(np.mean(hits), abs=0.12)


@given(weighted_rows(), st.integers(1, 6), st.integers(0, 9))
def test_rows_of_a_group_share_its_weight(rows, n_groups, seed) -> None:
    score, label, _ = rows
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, score.size)
    group[0] = n_groups - 1
    weights = rng.integers(0, 3, (5, n_groups)).astype(np.float64)
    grouped, alone = rank_rows(score, label, group=group), rank_rows(score, label)
    for metric in (auc, average_precision, top_10pct, recall_10pct):
        expected = metric(alone, weights[:, group])
        assert metric(grouped, weights) == pytest.approx(expected, nan_ok=True)


def test_negatives_between_positives_are_counted_together() -> None:
    score = np.asarray([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
    ranked = rank_rows(score, np.asarray([0, 0, 1, 0, 0, 0], dtype=np.int8))
    assert ranked.rows.sum(axis=1).tolist() == [2, 1, 3]
    assert ranked.positives.sum(axis=1).tolist() == [0, 1, 0]


def test_many_weightings_at_once_are_each_alone() -> None:
    rng = np.random.default_rng(2)
    ranked = rank_rows(rng.normal(size=50), rng.integers(0, 2, 50).astype(np.int8))
    weights = rng.integers(0, 3, (6, 50)).astype(np.float64)
    for metric in (auc, average_precision):
        alone = [metric(ranked, weights[i : i + 1])[0] for i in range(6)]
        assert metric(ranked, weights) == pytest.approx(alone)


def test_one_class_alone_has_no_auc() -> None:
    ranked = rank_rows(np.asarray([0.1, 0.2]), np.asarray([0, 0], dtype=np.int8))
    assert np.isnan(auc(ranked, np.ones((1, 2)))[0])
    assert np.isnan(average_precision(ranked, np.ones((1, 2)))[0])
