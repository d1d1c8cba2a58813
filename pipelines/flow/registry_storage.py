"""Where an installation's model registry is, as its settings say.

What is in it is known to `models.registry.model_registry`; secrets are read here, and kept in no
file.
"""

from typing import Final

from sqlalchemy.engine import make_url

from models.registry.place import RegistryPlace
from pipelines.sections.secret_source import read_secret
from pipelines.sections.storage import ObjectStoreSettings
from pipelines.settings import Settings
from pipelines.storage.object_store import client_secrets

_WAITS: Final = {"connect_timeout": "10", "tcp_user_timeout": "30000"}
"""Seconds and milliseconds: a database that vanished without a word is not waited for for hours."""
_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 20


def registry_place(settings: Settings) -> RegistryPlace:
    """Where the model registry is.

    Raises:
        SettingsError: A secret cannot be read.
    """
    storage, folder = settings.storage, settings.registry_dir.absolute()
    embedded = RegistryPlace.embedded(database=folder / "mlflow.db", artifacts=folder / "artifacts")
    artifacts = storage.artifacts or embedded.artifacts
    environment = _bucket_environment(storage.object_store) if storage.artifacts else {}
    if storage.mlflow.url is None:
        return RegistryPlace(
            name=embedded.name,
            uri=embedded.uri,
            folder=folder,
            artifacts=artifacts,
            advice=embedded.advice,
            database=embedded.database,
            environment=environment,
        )
    uri = storage.mlflow.url
    if storage.mlflow.is_server:
        # Without a place of our own the server keeps the files and hands them out.
        artifacts = storage.artifacts
        environment |= _server_environment(settings)
    else:
        uri = _with_password(settings)
        # MLflow puts them there itself for processes to come, and would leave the password in.
        environment |= {"MLFLOW_TRACKING_URI": uri, "MLFLOW_REGISTRY_URI": uri}
    return RegistryPlace(
        name=storage.mlflow.url,
        uri=uri,
        folder=folder,
        artifacts=artifacts,
        advice="Check that it runs and that storage.mlflow is right.",
        environment=environment,
    )


def _with_password(settings: Settings) -> str:
    chosen = settings.storage.mlflow
    url = make_url(str(chosen.url)).update_query_dict(_WAITS)
    if password := read_secret(chosen.password, what="storage.mlflow.password"):
        url = url.set(password=password)
    return url.render_as_string(hide_password=False)


def _server_environment(settings: Settings) -> dict[str, str]:
    chosen = settings.storage.mlflow
    return {
        "MLFLOW_TRACKING_TOKEN": read_secret(chosen.token, what="storage.mlflow.token") or "",
        "MLFLOW_TRACKING_SERVER_CERT_PATH": str(chosen.ca_file or ""),
        # MLflow's own patience is half an hour.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": str(_ATTEMPTS),
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_TIMEOUT_S),
    }


def _bucket_environment(how: ObjectStoreSettings) -> dict[str, str]:
    access_key, secret_key = client_secrets(how)
    values = {
        "AWS_DEFAULT_REGION": how.region,
        "AWS_MAX_ATTEMPTS": str(how.attempts),
        "AWS_RETRY_MODE": "standard",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
    }
    if how.endpoint:
        values |= {
            "MLFLOW_S3_ENDPOINT_URL": how.endpoint,
            "MLFLOW_BOTO_CLIENT_ADDRESSING_STYLE": "path",
        }
    if how.ca_file:
        values["AWS_CA_BUNDLE"] = str(how.ca_file)
    if access_key and secret_key:
        values |= {
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "AWS_SESSION_TOKEN": "",  # one of other keys would not fit
        }
    return values
