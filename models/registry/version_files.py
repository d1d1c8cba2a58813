"""Writes a bundle as an MLflow version and reads its files back.

Aliases, and which version may be what, are in `models.registry.model_registry`; no other module
imports mlflow.
"""

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import polars as pl

from models.bundle import ModelBundle
from models.registry.place import InEnvironment, RegistryPlace
from models.registry.version_page import VersionPage

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOG: Final = logging.getLogger(__name__)
EXPERIMENT: Final = "forewarn"

_FIRST_BOOSTER: Final = "booster_0.txt"
_FLAVOUR_FILE: Final = "model.lgb"
_EXTRA_FOLDER: Final = "extra_files"
_DIGEST_SIGNS: Final = 36
_NOTE_TAG: Final = "mlflow.note.content"
_MOST_DESCRIPTION: Final = 5000
_MOST_NOTE: Final = 8000
"""Characters that the columns of MLflow's database have; SQLite does not mind, PostgreSQL refuses.
"""
_CUT: Final = (
    "\n\n*Cut here, as MLflow's database takes no more; card.json beside the model has all.*"
)


def store_version(
    client: "MlflowClient",
    bundle: ModelBundle,
    *,
    place: RegistryPlace,
    tags: Mapping[str, str],
    page: VersionPage,
) -> int:
    """Logs a run with the booster and its company, and makes a version of it.

    Args:
        client: The registry's client.
        bundle: The bundle.
        place: Where the registry is.
        tags: Tags of the version.
        page: What to show of it.

    Returns:
        The number of the version.
    """
    facts = _facts(bundle)
    with (
        quiet_mlflow() as mlflow,
        place.in_environment(),
        _artifact_errors(place),
        tempfile.TemporaryDirectory() as folder,
    ):
        mlflow.set_tracking_uri(place.uri)
        mlflow.set_registry_uri(place.uri)
        files = _write_documents(bundle, Path(folder))
        experiment = _experiment_id(client, place.artifacts)
        with mlflow.start_run(experiment_id=experiment, run_name=bundle.name):
            _log_page(mlflow, page, bundle)
            info = mlflow.lightgbm.log_model(
                bundle.model.boosters[0],
                name=bundle.name,
                signature=_signature(bundle.input_columns),
                # Explicit: inferring requirements would load the model in a new process.
                pip_requirements=[f"lightgbm=={installed_version('lightgbm')}"],
                extra_files=files,
                metadata=facts,
            )
        if not client.search_registered_models(filter_string=f"name = '{bundle.name}'"):
            client.create_registered_model(bundle.name)
        made = client.create_model_version(
            bundle.name,
            source=info.model_uri,
            run_id=info.run_id,
            model_id=info.model_id,
            tags={**tags, **facts},
            description=_fitted(page.description, _MOST_DESCRIPTION) or None,
        )
    return int(made.version)


def read_version(
    client: "MlflowClient", name: str, version: int, *, place: RegistryPlace
) -> dict[str, str]:
    """The documents of a version as they lie there.

    Args:
        client: The registry's client.
        name: Registered name.
        version: Its number.
        place: Where the registry is.

    Returns:
        File names with their text.
    """
    # Asked of our own client: a models:/name/version address would be looked up in whatever
    # registry the process has set.
    stored = client.get_model_version_download_uri(name, str(version))
    with quiet_mlflow() as mlflow, place.in_environment(), _artifact_errors(place):
        source = _where_now(stored, place)
        folder = Path(
            mlflow.artifacts.download_artifacts(artifact_uri=source, tracking_uri=place.uri)
        )
    documents = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((folder / _EXTRA_FOLDER).iterdir())
    }
    documents[_FIRST_BOOSTER] = (folder / _FLAVOUR_FILE).read_text(encoding="utf-8")
    return documents


def remove_version(
    client: "MlflowClient", name: str, version: int, *, place: RegistryPlace
) -> None:
    """Removes a version, the run that made it and the files of both in the registry's own place.

    Args:
        client: The registry's client.
        name: Registered name.
        version: Its number.
        place: Where the registry is.
    """
    stored = client.get_model_version(name, str(version))
    run_id = str(stored.run_id)
    run = client.get_run(run_id)
    models = [one.model_id for one in (run.outputs.model_outputs if run.outputs else [])]
    folders = [client.get_logged_model(one).artifact_location for one in models]
    with quiet_mlflow(), place.in_environment(), _artifact_errors(place):
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        for folder in (*folders, run.info.artifact_uri):
            now = _where_now(folder, place)
            if not _is_own(now, place):
                # Gone already, or of a registry that this one was copied from.
                _LOG.warning(
                    "model %s version %s: files in %s, outside %s, stay. If no other registry "
                    "needs them, delete them.", name, version, now, place.artifacts,
                )  # fmt: skip
                continue
            files: Any = get_artifact_repository(now)
            files.delete_artifacts()
    client.delete_model_version(name, str(version))
    for one in models:
        client.delete_logged_model(one)
    client.delete_run(run_id)
    # Deleted rows stay in MLflow's tables, as in `mlflow gc`, of which these are the steps. A
    # tracking server does not offer them: there its own `mlflow gc` does the rest.
    inner: Any = getattr(client, "_called", client)  # of `InEnvironment`
    store = inner._tracking_client.store  # noqa: SLF001 - nothing public removes rows
    if hasattr(store, "_hard_delete_run"):
        for one in models:
            store._hard_delete_logged_model(one)  # noqa: SLF001 - as above
        store._hard_delete_run(run_id)  # noqa: SLF001 - as above


def _where_now(stored: str, place: RegistryPlace) -> str:
    """Where files lie: in the registry's own place, where they are there, or as was noted.

    MLflow notes whole addresses. In a registry that was moved, restored elsewhere or copied they
    lead nowhere, or into the one that it was copied from.
    """
    if _is_own(stored, place):
        return stored
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    of_model, of_run = 3, 2  # models/ID/artifacts, ID/artifacts
    parts = stored.rstrip("/").split("/")
    length = of_model if parts[-of_model:][0] == "models" else of_run
    moved = "/".join((_own(place), *parts[-length:]))
    files: Any = get_artifact_repository(moved)
    return moved if files.list_artifacts() else stored


def _is_own(address: str, place: RegistryPlace) -> bool:
    """Whether it lies in the registry's own place; all does where a server chooses that."""
    return not _own(place) or address.startswith(f"{_own(place)}/")


def _own(place: RegistryPlace) -> str:
    return (place.artifacts or "").rstrip("/")


def open_client(place: RegistryPlace) -> "MlflowClient":
    """A client of a registry, whose database is there and of this MLflow's schema.

    Args:
        place: Where the registry is.
    """
    with quiet_mlflow() as mlflow, place.in_environment():
        if place.uri.startswith("postgresql"):
            _connect_once(place.uri)
        client: MlflowClient = mlflow.MlflowClient(tracking_uri=place.uri, registry_uri=place.uri)
        client.search_registered_models(max_results=1)  # runs the migrations
    # Same methods: what MLflow takes from the environment is then there for each of them.
    return cast("MlflowClient", InEnvironment(client, place)) if place.environment else client


def _connect_once(uri: str) -> None:
    """Fails at once where MLflow would try for two minutes, and more where nothing answers."""
    from sqlalchemy import NullPool, create_engine

    with create_engine(uri, poolclass=NullPool).connect():
        pass


@contextmanager
def _artifact_errors(place: RegistryPlace) -> Iterator[None]:
    """Has what an object store raises be an OSError, as it is where files lie in a folder."""
    if not (place.artifacts or "").startswith("s3:"):
        yield
        return
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error


def is_lost(error: Exception) -> bool:
    """Whether files that could not be read are gone or damaged, and not merely out of reach.

    Args:
        error: What `read_version` raised.
    """
    from mlflow.exceptions import MlflowException
    from requests import RequestException

    if isinstance(error, MlflowException):
        return bool(error.error_code == "RESOURCE_DOES_NOT_EXIST")
    if isinstance(error, RequestException):
        return error.response is not None and error.response.status_code == HTTPStatus.NOT_FOUND
    return not isinstance(error, (ConnectionError, PermissionError, TimeoutError))


@contextmanager
def database_errors(told_as: Callable[[str], Exception]) -> Iterator[None]:
    """Has errors of MLflow's database told in our own words.

    Args:
        told_as: From the first line of MLflow's own words to the error raised instead.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:  # of its first look at the tables, raw
        raise told_as(str(error).split("\n", 1)[0]) from error


@contextmanager
def quiet_mlflow() -> Iterator[Any]:
    """Imports mlflow without telemetry, progress bars, or a line per table it creates."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    with warnings.catch_warnings():
        # MLflow 3.17 maps one relation by a loader that SQLAlchemy 2.1 deprecates; it goes when
        # MLflow maps it otherwise.
        warnings.filterwarnings(
            "ignore", message="The ``noload`` loader strategy", category=DeprecationWarning
        )
        # Importing mlflow.pyfunc warns of a type hint of MLflow's own; it has none of ours.
        warnings.filterwarnings("ignore", message=".*Any type hint is inferred as AnyType")
        import mlflow
        import mlflow.lightgbm

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        yield mlflow


def _facts(bundle: ModelBundle) -> dict[str, str]:
    model = bundle.model
    first, last = model.data_span
    return {
        "contract_version": model.contract_version,
        "catalogue_version": model.task.catalogue_version,
        "trained_on": model.trained_on,
        "data_hash": model.data_hash,
        "data_first_as_of": first.isoformat(),
        "data_last_as_of": last.isoformat(),
    }


def _fitted(text: str, most: int) -> str:
    """A text that is cut after a line, and says so, where it is longer than a column.

    >>> _fitted("short", 5000)
    'short'
    """
    if len(text) <= most:
        return text
    return text[: most - len(_CUT)].rpartition("\n")[0] + _CUT


def _log_page(mlflow: Any, page: VersionPage, bundle: ModelBundle) -> None:
    # mlflow has no usable types.
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset

    first, last = bundle.model.data_span
    mlflow.log_metrics(dict(page.metrics))
    mlflow.log_params(dict(page.params))
    mlflow.set_tags({**page.tags, _NOTE_TAG: _fitted(page.description, _MOST_NOTE)})
    dataset: Any = MetaDataset
    trained_on = dataset(
        CodeDatasetSource(tags={"table": "features/gpu_matrix"}),
        name=f"features/gpu_matrix {first:%Y-%m-%d} to {last:%Y-%m-%d}",
        digest=bundle.model.data_hash[:_DIGEST_SIGNS],
    )
    mlflow.log_input(trained_on, context="training")
    for path, text in page.artifacts.items():
        mlflow.log_text(text, path)


def _experiment_id(client: "MlflowClient", artifacts: str | None) -> str:
    """The experiment whose files go to a place: MLflow fixes the place when it makes one."""
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        return str(client.create_experiment(EXPERIMENT, artifact_location=artifacts))
    if artifacts is None or found.artifact_location.rstrip("/") == artifacts:
        return str(found.experiment_id)
    name = f"{EXPERIMENT} in {artifacts}"
    moved = client.get_experiment_by_name(name)
    if moved is None:
        return str(client.create_experiment(name, artifact_location=artifacts))
    return str(moved.experiment_id)


def _signature(columns: Mapping[str, pl.DataType]) -> Any:  # mlflow has no usable types
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    types: dict[pl.DataType, Any] = {pl.Float32(): DataType.float}
    inputs = Schema([ColSpec(types[dtype], name) for name, dtype in columns.items()])
    return ModelSignature(inputs=inputs, outputs=Schema([ColSpec(DataType.double)]))


def _write_documents(bundle: ModelBundle, folder: Path) -> list[str]:
    """Writes all documents but the first booster, which MLflow writes itself."""
    files = []
    for name, text in bundle.to_documents().items():
        if name != _FIRST_BOOSTER:
            (folder / name).write_text(text, encoding="utf-8")
            files.append(str(folder / name))
    return files
