"""Rules of members: the same from the same, nothing learned outside of fit, stored without loss."""

import json

import numpy as np
import polars as pl
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from features.errors import DataError
from models.ensembles.networks import LogisticSpec
from models.ensembles.preparation import fit_preparation, training_sample
from models.ensembles.stored import CalibratedMember, member_from_dict
from models.training.boosters import TooFewIncidentsError
from tests.models.ensembles.made_up import BOOSTED, LOGISTIC, MLP, NAMES, TASK

SPECS = (BOOSTED, LOGISTIC, MLP)


def fit(spec, rows):
    return spec.fit(rows, feature_names=NAMES, task=TASK)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_member_ranks_and_order_of_rows_and_reading_back_change_no_bit(spec, early, late) -> None:
    member = fit(spec, early)
    raw = member.raw_scores(late)
    assert roc_auc_score(late["label"], raw) > 0.75
    again = member_from_dict(json.loads(json.dumps(member.to_dict(), allow_nan=False)))
    assert (again.raw_scores(late) == raw).all()
    shuffled = fit(spec, early.sample(fraction=1.0, shuffle=True, seed=2))
    assert (shuffled.raw_scores(late) == raw).all()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_rows_without_a_label_teach_nothing(spec, early, late) -> None:
    unknown = late.head(50).with_columns(label=pl.lit(None, pl.Int8), incident_id=None)
    with_unknown = fit(spec, pl.concat([early, unknown], how="vertical_relaxed"))
    assert (with_unknown.raw_scores(late) == fit(spec, early).raw_scores(late)).all()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_too_few_incidents_are_refused(spec, early) -> None:
    few = early.filter(pl.col("label") == 0)
    with pytest.raises(TooFewIncidentsError, match="0 incidents"):
        fit(spec, few)


def test_preparation_is_the_pipeline_it_was_learned_by(early, late) -> None:
    sample = training_sample(early, max_negatives=10_000, seed=1, min_incidents=1)
    ours = fit_preparation(sample, NAMES)
    peer = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True, add_indicator=True),
        StandardScaler(),
    ).fit(early.select(NAMES).to_numpy().astype(float))
    expected = np.clip(peer.transform(late.select(NAMES).to_numpy().astype(float)), -8, 8)
    np.testing.assert_allclose(ours.apply(late), expected, rtol=1e-5, atol=1e-6)
    assert ours.width == 5  # heat and silent have gaps


def test_logistic_scores_are_those_of_scikit_learn(early, late) -> None:
    member = fit(LOGISTIC, early)
    sample = training_sample(early, max_negatives=10_000, seed=1, min_incidents=1)
    peer = LogisticRegression(C=LOGISTIC.inverse_penalty, max_iter=200).fit(
        member.preparation.apply(sample.rows[sample.at]), sample.label
    )
    expected = peer.decision_function(member.preparation.apply(late))
    np.testing.assert_allclose(member.raw_scores(late), expected, rtol=1e-4, atol=1e-4)


def test_thinned_negatives_leave_probabilities_of_the_population(early) -> None:
    thinned = fit(LogisticSpec(min_incidents=5, max_negatives=200), early)
    rate = 1 / (1 + np.exp(-thinned.raw_scores(early)))
    assert rate.mean() == pytest.approx(early["label"].mean(), rel=0.3)


def test_a_calibrated_member_says_probabilities_and_reads_back(early, late) -> None:
    model = CalibratedMember(fit(LOGISTIC, early)).calibrated_on(late)
    assert model.scores(late).mean() == pytest.approx(late["label"].mean(), rel=0.1)
    again = CalibratedMember.from_dict(json.loads(json.dumps(model.to_dict())))
    assert (again.scores(late) == model.scores(late)).all()


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(DataError, match="'forest' is not known"):
        member_from_dict({"kind": "forest"})
