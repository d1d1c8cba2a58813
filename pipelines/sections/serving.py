"""The `serving` and `score_database` sections: how scores are made, kept and told.

Making and telling them is in `pipelines.serving`.
"""

import re
from typing import Final

from pydantic import Field, field_validator

from pipelines.sections.secret_source import SecretSource
from pipelines.sections.section import GivenPath, Section

PASSWORD: Final = re.compile(r"(//[^/@:]*):.*@|([?&]password=)[^&\s]*", re.IGNORECASE)
"""A password within a URL, which may hold an @ itself, and what stands before it."""
_LONE_USER: Final = re.compile(r"(https?://)[^/@:]*@")
_IN_QUERY: Final = re.compile(
    r"([?&][^=&\s]*(?:token|secret|key|auth)[^=&\s]*=)[^&\s]*", re.IGNORECASE
)


def without_password(text: str) -> str:
    """A text without the passwords and tokens of the addresses in it.

    >>> without_password("postgresql://me:p@ss@db/x"), without_password("http://token@host")
    ('postgresql://me:***@db/x', 'http://***@host')
    >>> without_password("postgresql://me@db/x?password=secret")
    'postgresql://me@db/x?password=***'
    >>> without_password("http://prometheus/?limit=3&access_token=secret")
    'http://prometheus/?limit=3&access_token=***'
    """
    masked = PASSWORD.sub(lambda seen: f"{seen[1]}:***@" if seen[1] else f"{seen[2]}***", text)
    return _IN_QUERY.sub(r"\1***", _LONE_USER.sub(r"\1***@", masked))


class ScoreDatabaseSettings(Section):
    """Where latest scores and their history are kept beside the files.

    Attributes:
        url: SQLAlchemy URL of SQLite or PostgreSQL, without a password; None: `scores.db` under
            `data_root`.
        password: Where the password is found.
        history_days: How long history is kept.
    """

    url: str | None = None
    password: SecretSource | None = None
    history_days: int = Field(default=90, ge=1, le=3660)

    @field_validator("url")
    @classmethod
    def _without_password(cls, url: str | None) -> str | None:
        if url is not None and PASSWORD.search(url):
            raise ValueError(
                "a password in it would be in the settings file: name where it is found, with "
                "score_database.password"
            )
        return url


class AlertmanagerSettings(Section):
    """Where alerts are sent.

    Attributes:
        url: Base address, such as `http://alertmanager:9093`.
        token: Where a bearer token is found, if one is needed.
        ca_file: Certificates of its authority; None: the system's.
        resend_minutes: How often open alerts are sent again.
    """

    url: str = Field(pattern=r"^https?://[^\s@]+$")
    token: SecretSource | None = None
    ca_file: GivenPath | None = None
    resend_minutes: float = Field(default=5.0, gt=0, le=1440)


class EventWebhookSettings(Section):
    """Where alerts are told as signed requests.

    Attributes:
        url: The address; https, or http to this machine.
        key: Where the signing key is found.
        ca_file: Certificates of its authority; None: the system's.
    """

    url: str
    key: SecretSource
    ca_file: GivenPath | None = None


class ServingSettings(Section):
    """How scores are made and told; docs/scores.md says what each is for.

    Attributes:
        settle_minutes: How long data of an hour is waited for.
        every_s: How often `forewarn score --loop` looks whether a tick is due.
        min_coverage: Below this share of scored GPUs an alert is sent.
        top_nodes: Nodes that the metrics name, by falling score.
        published_days: How long published node scores are kept.
        published_gpu_days: How long published GPU scores are kept.
        alertmanager: Where alerts are sent.
        webhook: Where alerts are told as signed requests.
        report_to_dagster: Whether `forewarn score` tells Dagster's instance what it stored.
    """

    settle_minutes: float = Field(default=10.0, ge=0, le=55)
    every_s: float = Field(default=20.0, gt=0, le=600)
    min_coverage: float = Field(default=0.9, ge=0, le=1)
    top_nodes: int = Field(default=100, ge=0, le=10_000)
    published_days: int = Field(default=35, ge=1, le=3660)
    published_gpu_days: int = Field(default=3, ge=1, le=3660)
    alertmanager: AlertmanagerSettings | None = None
    webhook: EventWebhookSettings | None = None
    report_to_dagster: bool = False
