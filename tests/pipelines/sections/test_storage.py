"""Rules of where things are kept: what settings may say, and that no secret leaves its place."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

from features.errors import SettingsError
from pipelines import dev_servers
from pipelines.flow.registry_storage import registry_place
from pipelines.orchestration.dagster_home import (
    PASSWORD_VARIABLE,
    dagster_environment,
    dagster_yaml,
)
from pipelines.settings import Settings, settings_from
from pipelines.storage.object_paths import ObjectPath

MLFLOW = "postgresql+psycopg://fleet@db/models"
KEY, HIDDEN, OTHERS = "the-key", "the-secret", "of-somebody-else"
DAGSTER = "postgresql://fleet@db:6000/dagster?sslmode=require"


def site(tmp_path: Path, **storage: Any) -> Settings:
    content = {
        "site": "lab",
        "inputs": "inputs.yaml",
        "data_root": "data",
        "start": "2026-01-01T00:00:00Z",
        "storage": storage,
    }
    return settings_from(content, origin=tmp_path / "forewarn.yaml")


@pytest.fixture
def secrets(monkeypatch, tmp_path) -> dict[str, Any]:
    monkeypatch.setenv("A_KEY", KEY)
    monkeypatch.setenv("A_SECRET", HIDDEN)
    return {"access_key": {"variable": "A_KEY"}, "secret_key": {"variable": "A_SECRET"}}


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ({"tables": "s3://fleet//x"}, "tables"),
        ({"tables": "s3://Fleet"}, "tables"),
        ({"tables": "s3://fleet/.hidden"}, "tables"),
        ({"tables": "/data"}, "tables"),
        ({"object_store": {"access_key": {"variable": "A"}}}, "or neither"),
        ({"object_store": {"endpoint": "http://user:word@host"}}, "endpoint"),
        ({"mlflow": {"url": "postgresql+psycopg://a:word@db/x"}}, "storage.mlflow.password"),
        ({"mlflow": {"url": "postgresql://a@db/x"}}, "must begin with"),
        ({"mlflow": {"password": {"variable": "A"}}}, "is for a database"),
        ({"mlflow": {"url": MLFLOW, "token": {"variable": "A"}}}, "are for a server"),
        ({"dagster": {"url": "postgresql://a:word@db/x"}}, "dagster.url"),
        ({"dagster": {"url": "sqlite:///x"}}, "dagster.url"),
        ({"dagster": {"url": "postgresql://a@db:port/x"}}, "dagster.url"),
        ({"mlflow": {"url": "postgresql+psycopg://a@db:99999/x"}}, "mlflow.url"),
        ({"mlflow": {"url": "https://word@models.example"}}, "name a token"),
        ({"object_store": {"endpoint": "http://store:99999"}}, "endpoint"),
        ({"object_store": {"endpoint": "http://[::1"}}, "endpoint"),
        ({"object_store": {"ca_file": " "}}, "a path cannot be empty"),
        ({"object_store": {"access_key": {"file": "key"}}}, "whole path"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_repeating_a_password(
    tmp_path, storage, words
) -> None:
    with pytest.raises(SettingsError) as raised:
        site(tmp_path, **storage)
    assert words in str(raised.value)
    assert "word@" not in str(raised.value)


def test_without_settings_all_lies_under_the_data_root(tmp_path) -> None:
    settings = site(tmp_path)
    assert settings.store_root == tmp_path / "data" / "tables"
    assert settings.spool_dir == tmp_path / "data" / "spool"
    place = registry_place(settings)
    assert place.uri == f"sqlite:///{tmp_path}/data/mlflow/mlflow.db"
    assert place.artifacts == f"file://{tmp_path}/data/mlflow/artifacts"
    assert not place.environment
    assert not place.is_there
    assert "storage" not in yaml.safe_load(dagster_yaml(settings))
    assert PASSWORD_VARIABLE not in dagster_environment(settings)


def test_tables_in_a_bucket_and_their_spool_lie_in_it_and_locks_do_not(tmp_path) -> None:
    settings = site(tmp_path, tables="s3://fleet/lab")
    root = settings.store_root
    assert isinstance(root, ObjectPath)
    assert (str(root), str(settings.spool_dir)) == ("s3://fleet/lab", "s3://fleet/lab/.spool")
    assert root.bucket.local == tmp_path / "data" / "buckets"


def test_a_path_sent_to_another_process_takes_no_secret_along(tmp_path, secrets) -> None:
    root = site(tmp_path, tables="s3://fleet/lab", object_store=secrets).store_root
    sent = pickle.dumps(root)
    assert HIDDEN.encode() not in sent
    assert pickle.loads(sent) == root  # noqa: S301 - our own


def test_mlflow_is_given_its_secrets_while_it_is_called_and_no_longer(
    tmp_path, secrets, monkeypatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", OTHERS)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    store = {**secrets, "endpoint": "http://127.0.0.1:1"}
    place = registry_place(site(tmp_path, artifacts="s3://fleet/models", object_store=store))
    assert place.artifacts == "s3://fleet/models"
    with place.in_environment():
        assert os.environ["AWS_SECRET_ACCESS_KEY"] == HIDDEN
        assert os.environ["MLFLOW_S3_ENDPOINT_URL"] == "http://127.0.0.1:1"
        assert "AWS_SESSION_TOKEN" not in os.environ
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ
    assert os.environ["AWS_SESSION_TOKEN"] == OTHERS
    assert HIDDEN not in repr(place)


def test_mlflows_pages_and_no_other_server_are_given_the_keys_of_the_bucket(
    tmp_path, secrets
) -> None:
    store = {**secrets, "endpoint": "http://127.0.0.1:1"}
    settings = site(tmp_path, artifacts="s3://fleet/models", object_store=store)
    started = {command[2]: (command, own) for command, own in dev_servers._commands(settings)}
    assert started["mlflow"][1]["AWS_SECRET_ACCESS_KEY"] == HIDDEN
    assert started["mlflow"][1]["MLFLOW_S3_ENDPOINT_URL"] == "http://127.0.0.1:1"
    assert not any(HIDDEN in word for command, _ in started.values() for word in command)
    assert not any(own for name, (_, own) in started.items() if name != "mlflow")


def test_a_database_of_models_gets_its_password_from_where_it_is_found(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("A_PASSWORD", "p@ss/word")
    mlflow = {"url": MLFLOW, "password": {"variable": "A_PASSWORD"}}
    place = registry_place(site(tmp_path, mlflow=mlflow))
    assert place.uri == (
        "postgresql+psycopg://fleet:p%40ss%2Fword@db/models"
        "?connect_timeout=10&tcp_user_timeout=30000"
    )
    assert place.name == MLFLOW
    assert "p%40ss" not in repr(place)
    assert place.is_there
    assert place.artifacts == f"file://{tmp_path}/data/mlflow/artifacts"


def test_a_password_that_mlflow_puts_in_the_environment_does_not_stay_there(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("A_PASSWORD", HIDDEN)
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    mlflow = {"url": MLFLOW, "password": {"variable": "A_PASSWORD"}}
    place = registry_place(site(tmp_path, mlflow=mlflow))
    with place.in_environment():
        for name in names:
            os.environ[name] = place.uri  # as its set_tracking_uri does
    assert not any(HIDDEN in os.environ.get(name, "") for name in names)


def test_a_tracking_server_keeps_the_files_unless_a_bucket_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("A_TOKEN", HIDDEN)
    mlflow = {"url": "https://models.example", "token": {"variable": "A_TOKEN"}}
    place = registry_place(site(tmp_path, mlflow=mlflow))
    assert place.artifacts is None
    assert place.environment["MLFLOW_TRACKING_TOKEN"] == HIDDEN
    both = registry_place(site(tmp_path, mlflow=mlflow, artifacts="s3://fleet/models"))
    assert both.artifacts == "s3://fleet/models"


def test_a_secret_that_is_not_there_is_named_by_its_setting(tmp_path) -> None:
    keys = {"access_key": {"variable": "NO_SUCH"}, "secret_key": {"variable": "NO_SUCH"}}
    root = site(tmp_path, tables="s3://fleet/lab", object_store=keys).store_root
    with pytest.raises(SettingsError, match=r"storage\.object_store\.access_key"):
        root.read_bytes()


def test_dagsters_file_holds_with_dagster_and_names_the_password_only(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("A_PASSWORD", "hidden")
    settings = site(tmp_path, dagster={"url": DAGSTER, "password": {"variable": "A_PASSWORD"}})
    text = dagster_yaml(settings)
    assert "hidden" not in text
    (tmp_path / "dagster.yaml").write_text(text)
    dagster_instance_config(str(tmp_path))  # refuses what Dagster does not know
    said = yaml.safe_load(text)
    assert said["storage"]["postgres"]["postgres_db"] == {
        "scheme": "postgresql+psycopg2",
        "hostname": "db",
        "port": 6000,
        "username": "fleet",
        "db_name": "dagster",
        "params": {"sslmode": "require"},
        "password": {"env": PASSWORD_VARIABLE},
    }
    assert dagster_environment(settings)[PASSWORD_VARIABLE] == "hidden"
    assert said["telemetry"] == {"enabled": False}


@pytest.mark.filterwarnings("ignore")  # Dagster warns of itself
def test_assets_are_stored_where_the_settings_say(tmp_path) -> None:
    from pipelines.definitions import build_definitions

    content = {
        "site": "lab",
        "inputs": "inputs.yaml",
        "data_root": "data",
        "start": "2026-01-01T00:00:00Z",
        "storage": {"tables": "s3://fleet/lab"},
    }
    (tmp_path / "forewarn.yaml").write_text(yaml.safe_dump(content))
    served = build_definitions(tmp_path / "forewarn.yaml")
    assert str(served.resources["io_manager"].store.root) == "s3://fleet/lab"
