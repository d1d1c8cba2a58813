"""The model registry: versions and aliases in MLflow on SQLite, without a server.

The only module that imports mlflow. What a version holds is in `models.bundle`, whether it may
become champion is decided in `models.gate`.
"""

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from features.errors import ForewarnError
from models.bundle import ModelBundle, bundle_from_documents
from models.gate import GateDecision

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "forewarn"
CANDIDATE, CHAMPION, PREVIOUS = "candidate", "champion", "previous"
FINGERPRINT_TAG = "fingerprint"
GATE_TAG = "gate"

_FIRST_BOOSTER = "booster_0.txt"
_FLAVOUR_FILE = "model.lgb"
_EXTRA_FOLDER = "extra_files"


class RegistryError(ForewarnError):
    """The registry does not hold what was asked for, or may not do what was asked."""


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of a registered model.

    Attributes:
        name: Registered name, such as `gpu-failure-24h`.
        version: Version number.
        is_new: Whether this call made it; False when an equal one was there.
    """

    name: str
    version: int
    is_new: bool = False

    @property
    def label(self) -> str:
        """What scores carry as their model version.

        >>> RegisteredVersion("gpu-failure-24h", 3).label
        'gpu-failure-24h/3'
        """
        return f"{self.name}/{self.version}"


class ModelRegistry:
    """Versions of models with the aliases candidate, champion and previous."""

    def __init__(self, *, database: Path, artifacts: Path) -> None:
        """Opens the registry; a new database takes MLflow some seconds of migrations.

        Args:
            database: SQLite file.
            artifacts: Folder for the files of versions.
        """
        self._database = database.absolute()
        self._artifacts = artifacts.absolute()
        self._uri = f"sqlite:///{self._database}"
        self._opened: MlflowClient | None = None

    def register(
        self, bundle: ModelBundle, *, metrics: Mapping[str, float] | None = None
    ) -> RegisteredVersion:
        """Stores a bundle as a version and points `candidate` at it.

        A bundle equal to a stored one (same data, training, calibration and card) is not stored
        again.

        Args:
            bundle: The bundle. Its first booster is the MLflow model, the other documents lie
                beside it in the same folder.
            metrics: Numbers to show in the MLflow UI.

        Returns:
            The version, new or found.
        """
        name, fingerprint = bundle.name, bundle.fingerprint
        found = self._find(name, fingerprint)
        if found is None:
            found = self._store(bundle, fingerprint=fingerprint, metrics=metrics or {})
        self._client.set_registered_model_alias(name, CANDIDATE, str(found.version))
        return found

    def promote(self, version: RegisteredVersion, *, decision: GateDecision) -> None:
        """Makes a version champion, and the champion so far `previous`.

        Args:
            version: The version.
            decision: The gate's word on it, kept with the version.

        Raises:
            RegistryError: The gate did not accept it, or there is no such version.
        """
        self._check_exists(version)
        self._client.set_model_version_tag(
            version.name, str(version.version), GATE_TAG, decision.reason
        )
        if not decision.is_accepted:
            raise RegistryError(
                f"model {version.label} was not promoted: {decision.reason} The champion stays."
            )
        try:
            champion = self.version_of(version.name, CHAMPION)
        except RegistryError:
            # The champion was deleted: promoting another is the way out, with none to return to.
            champion = None
        if champion is not None and champion.version == version.version:
            return
        # Previous first: a crash between the two moves leaves a champion and a way back.
        if champion is not None:
            self._client.set_registered_model_alias(version.name, PREVIOUS, str(champion.version))
        self._client.set_registered_model_alias(version.name, CHAMPION, str(version.version))

    def rollback(self, name: str) -> RegisteredVersion:
        """Makes `previous` champion again; the alias `previous` is then free.

        Args:
            name: Registered name.

        Returns:
            The champion.

        Raises:
            RegistryError: There is no previous version.
        """
        previous = self.version_of(name, PREVIOUS)
        if previous is None:
            raise RegistryError(
                f"model {name}: there is no alias {PREVIOUS!r} to roll back to. Promote a "
                f"version; those registered: {self._versions_in_words(name)}."
            )
        self._client.set_registered_model_alias(name, CHAMPION, str(previous.version))
        self._client.delete_registered_model_alias(name, PREVIOUS)
        return previous

    def version_of(self, name: str, alias: str) -> RegisteredVersion | None:
        """The version an alias points at; None when the model or the alias is not there.

        Args:
            name: Registered name.
            alias: candidate, champion or previous.

        Raises:
            RegistryError: The alias points at a version that was deleted.
        """
        from mlflow.exceptions import MlflowException

        found = self._client.search_registered_models(filter_string=f"name = '{name}'")
        if not found:
            return None
        # Listed aliases outlive a deleted version; asking for the version tells.
        aliases = self._client.get_registered_model(name).aliases
        if alias not in aliases:
            return None
        number = aliases[alias]
        try:
            self._client.get_model_version(name, str(number))
        except MlflowException as error:
            raise RegistryError(
                f"model {name}: alias {alias!r} points at version {number}, which was deleted. "
                f"Promote or roll back to one of: {self._versions_in_words(name)}."
            ) from error
        return RegisteredVersion(name, int(number))

    def load_champion(self, name: str) -> tuple[RegisteredVersion, ModelBundle]:
        """The champion.

        Args:
            name: Registered name.

        Returns:
            Its version and bundle.

        Raises:
            RegistryError: No champion, or its files are not there.
        """
        champion = self.version_of(name, CHAMPION)
        if champion is None:
            raise RegistryError(
                f"model {name}: no version has the alias {CHAMPION!r}. Train and promote one; "
                f"those registered: {self._versions_in_words(name)}."
            )
        return champion, self.load(champion)

    def load(self, version: RegisteredVersion) -> ModelBundle:
        """A version's bundle, which scores as it did when it was registered.

        Args:
            version: The version.

        Returns:
            The bundle.

        Raises:
            RegistryError: There is no such version, or its files are not there or not the ones
                that were registered.
        """
        from mlflow.exceptions import MlflowException

        self._check_exists(version)
        stored = self._client.get_model_version(version.name, str(version.version))
        try:
            # Asked of our own client: a models:/name/version address would be looked up in
            # whatever registry the process has set.
            uri = self._client.get_model_version_download_uri(version.name, str(version.version))
            with _quiet_mlflow() as mlflow:
                folder = Path(
                    mlflow.artifacts.download_artifacts(artifact_uri=uri, tracking_uri=self._uri)
                )
            documents = _read_documents(folder)
        except (MlflowException, OSError) as error:
            raise RegistryError(
                f"model {version.label}: its files cannot be read from {self._artifacts}: "
                f"{error}. Restore the folder, or roll back to another version."
            ) from error
        bundle = bundle_from_documents(documents)
        if bundle.fingerprint != stored.tags.get(FINGERPRINT_TAG):
            raise RegistryError(
                f"model {version.label}: its files are not the ones that were registered "
                f"(fingerprint {bundle.fingerprint[:12]}, registered "
                f"{stored.tags.get(FINGERPRINT_TAG, 'none')[:12]}). Roll back to another version."
            )
        return bundle

    @property
    def _client(self) -> "MlflowClient":
        """The client; opened at first use, for importing mlflow takes two seconds."""
        if self._opened is None:
            self._database.parent.mkdir(parents=True, exist_ok=True)
            with _quiet_mlflow() as mlflow:
                self._opened = mlflow.MlflowClient(tracking_uri=self._uri, registry_uri=self._uri)
                self._opened.search_registered_models(max_results=1)  # runs the migrations
        return self._opened

    def _store(
        self, bundle: ModelBundle, *, fingerprint: str, metrics: Mapping[str, float]
    ) -> RegisteredVersion:
        client = self._client
        with _quiet_mlflow() as mlflow, tempfile.TemporaryDirectory() as folder:
            mlflow.set_tracking_uri(self._uri)
            mlflow.set_registry_uri(self._uri)
            files = _write_documents(bundle, Path(folder))
            with mlflow.start_run(experiment_id=self._experiment_id(), run_name=bundle.name):
                mlflow.log_metrics(dict(metrics))
                info = mlflow.lightgbm.log_model(
                    bundle.model.boosters[0],
                    name=bundle.name,
                    signature=_signature(bundle.input_columns),
                    # Explicit: inferring requirements would load the model in a new process.
                    pip_requirements=[f"lightgbm=={installed_version('lightgbm')}"],
                    extra_files=files,
                    metadata={
                        "contract_version": bundle.model.contract_version,
                        "catalogue_version": bundle.model.task.catalogue_version,
                        "trained_on": bundle.model.trained_on,
                    },
                )
            if not client.search_registered_models(filter_string=f"name = '{bundle.name}'"):
                client.create_registered_model(bundle.name)
            made = client.create_model_version(
                bundle.name,
                source=info.model_uri,
                run_id=info.run_id,
                model_id=info.model_id,
                tags={
                    FINGERPRINT_TAG: fingerprint,
                    "data_hash": bundle.model.data_hash,
                    "contract_version": bundle.model.contract_version,
                    "catalogue_version": bundle.model.task.catalogue_version,
                    "trained_on": bundle.model.trained_on,
                },
            )
        return RegisteredVersion(bundle.name, int(made.version), is_new=True)

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            return str(found.experiment_id)
        location = self._artifacts.as_uri()
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=location))

    def _find(self, name: str, fingerprint: str) -> RegisteredVersion | None:
        for stored in self._client.search_model_versions(f"name = '{name}'"):
            if stored.tags.get(FINGERPRINT_TAG) == fingerprint:
                return RegisteredVersion(name, int(stored.version))
        return None

    def _check_exists(self, version: RegisteredVersion) -> None:
        stored = self._client.search_model_versions(f"name = '{version.name}'")
        if version.version not in {int(one.version) for one in stored}:
            raise RegistryError(
                f"model {version.name} has no version {version.version}; registered: "
                f"{self._versions_in_words(version.name)}."
            )

    def _versions_in_words(self, name: str) -> str:
        stored = self._client.search_model_versions(f"name = '{name}'")
        return ", ".join(sorted((str(one.version) for one in stored), key=int)) or "none"


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


def _read_documents(folder: Path) -> dict[str, str]:
    documents = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((folder / _EXTRA_FOLDER).iterdir())
    }
    documents[_FIRST_BOOSTER] = (folder / _FLAVOUR_FILE).read_text(encoding="utf-8")
    return documents


@contextmanager
def _quiet_mlflow() -> Iterator[Any]:
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
