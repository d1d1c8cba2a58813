"""Rules of a registry out of reach: what cannot be looked up is not taken for lost or absent."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import requests
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST

from models.registry import model_registry as registry_module
from models.registry.model_registry import CHAMPION, PREVIOUS, ModelRegistry
from models.registry.registered import LostError, RegistryError
from models.registry.version_files import is_lost
from tests.models.registry.test_model_registry import ACCEPTED, WHO, place, variant

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # MLflow warns of itself


@pytest.fixture(scope="module")
def registry(tmp_path_factory) -> ModelRegistry:
    return ModelRegistry(place(tmp_path_factory.mktemp("registry") / "models.db"))


def fails_with(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def refused(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("refused", response=response)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (FileNotFoundError("gone"), True),
        (OSError("No such file or directory: 'x'"), True),  # MLflow's own, without a number
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "damaged"), True),
        (MlflowException("gone", RESOURCE_DOES_NOT_EXIST), True),
        (refused(404), True),
        (MlflowException("the server is down"), False),
        (refused(503), False),
        (requests.ConnectionError("no answer"), False),
        (ConnectionError("EndpointConnectionError"), False),
        (PermissionError("not ours"), False),
        (TimeoutError("no answer"), False),
    ],
)
def test_files_are_lost_where_that_is_known_and_not_where_nothing_answers(error, lost) -> None:
    assert is_lost(error) is lost


def test_a_bundle_whose_files_are_out_of_reach_is_not_stored_again(
    registry, bundle, monkeypatch
) -> None:
    ours = variant(bundle, horizon_h=151)
    first = registry.register(ours)
    with monkeypatch.context() as patch:
        patch.setattr(registry_module, "read_version", fails_with(ConnectionError("no answer")))
        with pytest.raises(RegistryError, match="no answer") as raised:
            registry.register(ours)
    assert not isinstance(raised.value, LostError)
    assert registry.register(ours) == first
    assert registry.versions(ours.name) == (first,)


def test_a_champion_that_cannot_be_asked_for_is_not_replaced_as_if_there_were_none(
    registry, bundle, monkeypatch
) -> None:
    first = registry.register(variant(bundle, horizon_h=152, card="first"))
    second = registry.register(variant(bundle, horizon_h=152, card="second"))
    registry.promote(first, decision=ACCEPTED)
    with monkeypatch.context() as patch:
        down = fails_with(MlflowException("the database is down"))
        patch.setattr(registry._client, "search_registered_models", down)
        with pytest.raises(RegistryError, match="cannot be read: the database is down"):
            registry.promote_by_hand(second, overrules_gate=True, **WHO)
    assert registry.version_of(first.name, CHAMPION) == first
    registry.promote_by_hand(second, overrules_gate=True, **WHO)
    assert registry.version_of(first.name, PREVIOUS) == first


def test_the_address_that_mlflow_leaves_to_later_processes_is_taken_away(
    registry, bundle, monkeypatch
) -> None:
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")  # a database's has its password in it
    for name in names:
        monkeypatch.delenv(name, raising=False)
    there = replace(registry.place, environment=dict.fromkeys(names, registry.place.uri))
    ours = variant(bundle, horizon_h=153)
    again = ModelRegistry(there)
    assert again.load(again.register(ours)).fingerprint == ours.fingerprint
    assert not any(name in os.environ for name in names)
