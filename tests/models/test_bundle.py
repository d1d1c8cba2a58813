"""Rules of a model version as texts."""

import json
from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from features.errors import DataError
from models.bundle import ModelBundle, bundle_from_documents
from models.policies.warnings import WarningPolicy

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def whole(bundle) -> ModelBundle:
    policy = WarningPolicy(threshold=0.25, n=2, k=3, tick=HOUR, cooldown=6 * HOUR)
    return replace(bundle, policies={"gpu": policy})


def test_a_bundle_read_back_scores_the_same_to_the_last_bit(whole, rows) -> None:
    again = bundle_from_documents(whole.to_documents())
    assert (again.model.scores(rows) == whole.model.scores(rows)).all()
    forecast = whole.fault_types.probabilities(rows)
    assert (again.fault_types.probabilities(rows) == forecast).all()


def test_a_bundle_read_back_is_the_same_bundle(whole) -> None:
    again = bundle_from_documents(whole.to_documents())
    assert again.to_documents() == whole.to_documents()
    assert again.fingerprint == whole.fingerprint
    assert replace(again.model, boosters=()) == replace(whole.model, boosters=())
    assert (again.features, again.usual, again.nodes) == (whole.features, whole.usual, whole.nodes)
    assert (again.policies, again.card) == (whole.policies, whole.card)


def test_optional_parts_stay_away(bundle) -> None:
    bare = replace(bundle, fault_types=None, nodes=None)
    again = bundle_from_documents(bare.to_documents())
    assert (again.fault_types, again.nodes) == (None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"card": {"purpose": "other"}},
        {"nodes": None},
        {"fault_types": None},
        {"policies": {}},
    ],
)
def test_any_change_changes_the_fingerprint(whole, change) -> None:
    assert replace(whole, **change).fingerprint != whole.fingerprint


def test_the_name_tells_entity_kind_and_horizon(bundle) -> None:
    assert bundle.name == "gpu-failure-6h"


def test_the_signature_is_what_the_registry_says_of_each_feature(bundle) -> None:
    assert list(bundle.input_columns) == [feature.name for feature in bundle.features]
    assert set(bundle.input_columns.values()) == {pl.Float32()}


def test_features_that_are_not_the_models_are_refused(bundle) -> None:
    with pytest.raises(DataError, match="in order"):
        replace(bundle, features=tuple(reversed(bundle.features)))


@pytest.mark.parametrize("name", ["model.json", "calibration.json", "booster_1.txt"])
def test_a_missing_document_is_named(whole, name) -> None:
    documents = whole.to_documents()
    del documents[name]
    with pytest.raises(DataError, match=name):
        bundle_from_documents(documents)


def test_an_unknown_schema_is_refused(whole) -> None:
    documents = whole.to_documents()
    facts = json.loads(documents["model.json"])
    documents["model.json"] = json.dumps({**facts, "schema": 99})
    with pytest.raises(DataError, match="schema 99"):
        bundle_from_documents(documents)


def test_boosters_of_other_columns_are_refused(whole) -> None:
    documents = whole.to_documents()
    features = json.loads(documents["features.json"])
    documents["features.json"] = json.dumps(features[::-1])
    with pytest.raises(DataError, match="do not belong together"):
        bundle_from_documents(documents)
