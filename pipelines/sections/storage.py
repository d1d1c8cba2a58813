"""The `storage` section: where tables, artifacts, the registry and Dagster's records are kept.

Reaching those places is in `pipelines.storage.object_store`, `models.registry.place` and
`pipelines.orchestration.dagster_home`; what stays on the machine is in docs/storage.md.
"""

import re
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from pipelines.sections.secret_source import SecretSource
from pipelines.sections.section import GivenPath, Section
from pipelines.sections.serving import PASSWORD

BucketUrl = Annotated[
    str, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*$")
]
"""`s3://bucket/prefix`; folder names without a dot in front, which means hidden."""


_SERVER: Final = ("http://", "https://")
_POSTGRES: Final = "postgresql+psycopg://"


class ObjectStoreSettings(Section):
    """How buckets are reached.

    Attributes:
        endpoint: Address of an S3-compatible server; None: Amazon's.
        region: Region of the buckets; servers of one's own take any.
        access_key: Where the access key is found; None, with `secret_key`: the chain of the AWS
            SDK (environment, shared files, role of the machine or pod).
        secret_key: Where its secret is found.
        ca_file: Certificates of the endpoint's authority; None: the system's.
        timeout_s: Seconds that one answer is waited for; connecting gets a quarter.
        attempts: How often one request is tried.
    """

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^\s/@]+$")
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,40}$")
    access_key: SecretSource | None = None
    secret_key: SecretSource | None = None
    ca_file: GivenPath | None = None
    timeout_s: float = Field(default=20.0, ge=1, le=300)
    attempts: int = Field(default=4, ge=1, le=10)

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, endpoint: str | None) -> str | None:
        if endpoint is not None:
            _ = urlsplit(endpoint).port  # which refuses what is none
        return endpoint

    @model_validator(mode="after")
    def _both_keys(self) -> Self:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("name access_key and secret_key, or neither")
        return self


class MlflowSettings(Section):
    """Where the model registry is.

    Attributes:
        url: `postgresql+psycopg://user@host/database`, or the `http://` or `https://` address of a
            tracking server; None: SQLite under `data_root`. No password is part of it.
        password: Where the database's password is found.
        token: Where the tracking server's bearer token is found.
        ca_file: Certificates of the tracking server's authority; None: the system's.
    """

    url: str | None = None
    password: SecretSource | None = None
    token: SecretSource | None = None
    ca_file: GivenPath | None = None

    @field_validator("url")
    @classmethod
    def _is_known(cls, url: str | None) -> str | None:
        if url is None:
            return None
        _check_address(url, key="storage.mlflow.password")
        if not url.startswith((*_SERVER, _POSTGRES)):
            raise ValueError(f"it must begin with {_POSTGRES}, http:// or https://")
        if url.startswith(_SERVER) and re.search(r"[@?\s]", url):
            raise ValueError("a server's address has no user or query: name a token instead")
        return url

    @model_validator(mode="after")
    def _secret_fits(self) -> Self:
        if self.password and not (self.url or "").startswith(_POSTGRES):
            raise ValueError("password is for a database: storage.mlflow.url names none")
        if (self.token or self.ca_file) and not self.is_server:
            raise ValueError("token and ca_file are for a server: storage.mlflow.url names none")
        return self

    @property
    def is_server(self) -> bool:
        """Whether a tracking server is named."""
        return self.url is not None and self.url.startswith(_SERVER)


class DagsterStorageSettings(Section):
    """Where Dagster keeps runs, events and schedules.

    Attributes:
        url: `postgresql://user@host:port/database`, without a password; None: SQLite under
            `data_root`.
        password: Where the password is found.
    """

    url: str | None = Field(default=None, pattern=r"^postgresql://[^\s/@]+@[^\s/@]*/[\w-]+(\?.*)?$")
    password: SecretSource | None = None

    @field_validator("url")
    @classmethod
    def _without_password(cls, url: str | None) -> str | None:
        if url is not None:
            _check_address(url, key="storage.dagster.password")
        return url


class StorageSettings(Section):
    """Where what is made is kept; by default all of it lies under `data_root`.

    Attributes:
        tables: Bucket and prefix of the Parquet tables; None: `data_root/tables`.
        artifacts: Bucket and prefix of the models' files; None: `data_root/mlflow/artifacts`.
        object_store: How buckets are reached.
        mlflow: The model registry.
        dagster: Dagster's own records.
    """

    tables: BucketUrl | None = None
    artifacts: BucketUrl | None = None
    object_store: ObjectStoreSettings = ObjectStoreSettings()
    mlflow: MlflowSettings = MlflowSettings()
    dagster: DagsterStorageSettings = DagsterStorageSettings()


def _check_address(url: str, *, key: str) -> None:
    if PASSWORD.search(url):
        raise ValueError(
            f"a password in it would be in the settings file: name where it is found, with {key}"
        )
    _ = urlsplit(url).port  # which refuses what is none
