"""Writes a bundle as an MLflow version and reads its files back.

Aliases, and which version may be what, are in `models.registry`; no other module imports mlflow.
"""

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from models.bundle import ModelBundle
from models.version_page import VersionPage

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT: Final = "forewarn"

_FIRST_BOOSTER: Final = "booster_0.txt"
_FLAVOUR_FILE: Final = "model.lgb"
_EXTRA_FOLDER: Final = "extra_files"
_DIGEST_SIGNS: Final = 36
_NOTE_TAG: Final = "mlflow.note.content"


def store_version(
    client: "MlflowClient",
    bundle: ModelBundle,
    *,
    uri: str,
    artifacts: Path,
    tags: Mapping[str, str],
    page: VersionPage,
) -> int:
    """Logs a run with the booster and its company, and makes a version of it.

    Args:
        client: The registry's client.
        bundle: The bundle.
        uri: Address of the registry.
        artifacts: Folder for files.
        tags: Tags of the version.
        page: What to show of it.

    Returns:
        The number of the version.
    """
    facts = _facts(bundle)
    with quiet_mlflow() as mlflow, tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
        files = _write_documents(bundle, Path(folder))
        experiment = _experiment_id(client, artifacts)
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
            description=page.description or None,
        )
    return int(made.version)


def read_version(client: "MlflowClient", name: str, version: int, *, uri: str) -> dict[str, str]:
    """The documents of a version as they lie there.

    Args:
        client: The registry's client.
        name: Registered name.
        version: Its number.
        uri: Address of the registry.

    Returns:
        File names with their text.
    """
    # Asked of our own client: a models:/name/version address would be looked up in whatever
    # registry the process has set.
    source = client.get_model_version_download_uri(name, str(version))
    with quiet_mlflow() as mlflow:
        folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=source, tracking_uri=uri))
    documents = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((folder / _EXTRA_FOLDER).iterdir())
    }
    documents[_FIRST_BOOSTER] = (folder / _FLAVOUR_FILE).read_text(encoding="utf-8")
    return documents


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


def _log_page(mlflow: Any, page: VersionPage, bundle: ModelBundle) -> None:
    # mlflow has no usable types.
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset

    first, last = bundle.model.data_span
    mlflow.log_metrics(dict(page.metrics))
    mlflow.log_params(dict(page.params))
    mlflow.set_tags({**page.tags, _NOTE_TAG: page.description})
    dataset: Any = MetaDataset
    trained_on = dataset(
        CodeDatasetSource(tags={"table": "features/gpu_matrix"}),
        name=f"features/gpu_matrix {first:%Y-%m-%d} to {last:%Y-%m-%d}",
        digest=bundle.model.data_hash[:_DIGEST_SIGNS],
    )
    mlflow.log_input(trained_on, context="training")
    for path, text in page.artifacts.items():
        mlflow.log_text(text, path)


def _experiment_id(client: "MlflowClient", artifacts: Path) -> str:
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    return str(client.create_experiment(EXPERIMENT, artifact_location=artifacts.as_uri()))


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
