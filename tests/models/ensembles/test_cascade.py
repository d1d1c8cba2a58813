"""Rules of the cascade: what gets through, and that the second member learns from no memories."""

import json
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from models.ensembles.cascade import (
    Cascade,
    CascadeSpec,
    fit_cascade,
    out_of_fold_survivors,
    retaining_threshold,
)
from models.ensembles.stored import member_from_dict
from tests.models.ensembles.made_up import BOOSTED, LOGISTIC, NAMES, TASK


@dataclass(frozen=True)
class Memory:
    """Knows the positives it was shown, and nothing of other rows."""

    seen: frozenset

    def raw_scores(self, rows, *, earlier=None):
        keys = zip(rows["entity_id"], rows["as_of"], strict=True)
        return np.asarray([5.0 if key in self.seen else -5.0 for key in keys])


@dataclass(frozen=True)
class Remembering:
    """Fits `Memory` and writes down what it was shown."""

    shown: list = field(default_factory=list)
    name: str = "memory"

    def fit(self, rows, *, feature_names, task):
        self.shown.append(rows)
        hits = rows.filter(pl.col("label") == 1)
        return Memory(frozenset(zip(hits["entity_id"], hits["as_of"], strict=True)))


def test_the_second_member_learns_from_no_row_its_first_member_had_seen(early, late) -> None:
    first, second = Remembering(), Remembering()
    # Validation positives that the memory knows fix a share that lets just its memories through.
    valid = early.head(200)
    spec = CascadeSpec(first=first, second=second, n_folds=3)
    cascade = fit_cascade(early, valid, spec=spec, feature_names=NAMES, task=TASK)
    assert cascade.kept_share == pytest.approx(valid["label"].mean())
    whole, *folds = first.shown
    assert whole.height == early.height
    assert len(folds) == 3
    entities = [set(fold["entity_id"]) for fold in folds]
    # Each entity is left out of exactly one fold's training.
    assert all(sum(e not in seen for seen in entities) == 1 for e in set(early["entity_id"]))
    # In-fold, the memory would let through exactly its positives. Out of fold it knows none, so
    # all rows score alike, and negatives get through too.
    survivors = second.shown[0].filter(pl.col("label").is_not_null())
    assert (survivors["label"] == 0).any()


def test_survivors_are_those_of_a_member_fitted_on_the_other_entities(early) -> None:
    spec = CascadeSpec(first=LOGISTIC, second=LOGISTIC, n_folds=2)
    facts = {"feature_names": NAMES, "task": TASK}
    found = out_of_fold_survivors(early, spec=spec, kept_share=0.2, **facts)
    assert found.height == early.height
    kept = found.filter(pl.col("label").is_not_null())
    assert kept.height == pytest.approx(0.2 * early.height, rel=0.02)
    shown: list = []
    spy = replace(spec, first=Remembering(shown))
    out_of_fold_survivors(early, spec=spy, kept_share=0.2, **facts)
    for outside in shown:
        inside = early.join(outside.select("entity_id").unique(), on="entity_id", how="anti")
        raw = LOGISTIC.fit(outside, **facts).raw_scores(inside)
        expected = inside.filter(pl.Series(raw >= np.quantile(raw, 0.8)))
        of_these = kept.join(inside.select("entity_id").unique(), on="entity_id", how="semi")
        pairs = ["entity_id", "as_of"]
        assert of_these.sort(pairs)[pairs].equals(expected.sort(pairs)[pairs])


def test_the_second_member_learns_from_the_survivors_alone(early, late) -> None:
    second = Remembering()
    spec = CascadeSpec(first=LOGISTIC, second=second)
    facts = {"feature_names": NAMES, "task": TASK}
    cascade = fit_cascade(early, late, spec=spec, **facts)
    survivors = out_of_fold_survivors(early, spec=spec, kept_share=cascade.kept_share, **facts)
    assert second.shown[0].equals(survivors)
    assert survivors["label"].count() < early["label"].count()


def test_negatives_looked_at_are_bounded(early) -> None:
    spec = CascadeSpec(first=LOGISTIC, second=LOGISTIC, max_negatives=100)
    found = out_of_fold_survivors(early, spec=spec, kept_share=1.0, feature_names=NAMES, task=TASK)
    assert (found["label"] == 1).sum() == early["label"].sum()
    assert (found["label"] == 0).sum() == pytest.approx(100, abs=35)


def test_an_incident_of_two_gpus_is_in_one_fold_only(early) -> None:
    shared = early.with_columns(
        incident_id=pl.when(pl.col("label") == 1).then(pl.lit("rack")).otherwise(None)
    )
    first = Remembering()
    spec = CascadeSpec(first=first, second=LOGISTIC, n_folds=2)
    out_of_fold_survivors(shared, spec=spec, kept_share=0.5, feature_names=NAMES, task=TASK)
    assert all(fold.filter(pl.col("label") == 1).is_empty() for fold in first.shown)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(0.01, 1.0))
def test_the_threshold_retains_its_share_and_no_higher_score_does(positives, retain) -> None:
    scores = np.asarray(positives)
    threshold = retaining_threshold(scores, retain=retain)
    assert (scores >= threshold).mean() >= retain - 1e-6
    higher = scores[scores > threshold]
    if higher.size:
        assert (scores >= higher.min()).mean() < retain


scores = st.lists(st.floats(-8, 8), min_size=2, max_size=9)


@given(scores, st.floats(-3, 3), st.randoms(use_true_random=False))
def test_what_gets_through_ranks_above_what_does_not(first, threshold, random) -> None:
    one = np.asarray(first)
    two = np.asarray(random.choices(range(-8, 9), k=one.size), dtype=float)
    joined = Cascade(None, None, threshold, 0.5).join(one, two)
    through = one >= threshold
    if through.any() and not through.all():
        assert joined[through].min() > joined[~through].max()
    assert (
        np.argsort(joined[through], kind="stable") == np.argsort(two[through], kind="stable")
    ).all()
    assert (joined[~through] == one[~through]).all()


def test_a_cascade_reads_back_to_the_last_bit(early, late) -> None:
    spec = CascadeSpec(first=LOGISTIC, second=BOOSTED)
    cascade = fit_cascade(early, late, spec=spec, feature_names=NAMES, task=TASK)
    again = member_from_dict(json.loads(json.dumps(cascade.to_dict(), allow_nan=False)))
    assert (again.raw_scores(late) == cascade.raw_scores(late)).all()
    hits = late.filter(pl.col("label") == 1)
    assert (cascade.first.raw_scores(hits) >= cascade.threshold).mean() >= 0.95


@pytest.mark.parametrize("change", [{"retain": 0.0}, {"n_folds": 1}])
def test_a_cascade_that_cannot_be_fitted_is_refused(change) -> None:
    with pytest.raises(DataError, match="cascade"):
        CascadeSpec(first=LOGISTIC, second=BOOSTED, **change)


def test_validation_without_a_positive_is_refused(early, late) -> None:
    spec = CascadeSpec(first=LOGISTIC, second=BOOSTED)
    calm = late.filter(pl.col("label") == 0)
    with pytest.raises(DataError, match="no positive row"):
        fit_cascade(early, calm, spec=spec, feature_names=NAMES, task=TASK)
