"""The score database and secrets of an installation, as its settings say.

Settings are in `pipelines.settings`; no score is read or written here.
"""

import os

import sqlalchemy as sa

from features.errors import SettingsError
from pipelines.secret_source import SecretSource
from pipelines.serving.score_history import HistoryRule
from pipelines.serving.score_schema import open_engine
from pipelines.settings import Settings


def score_engine(settings: Settings) -> sa.Engine:
    """The engine of an installation's score database; nothing is connected or made yet.

    Raises:
        SettingsError: Its URL or password cannot be used.
    """
    chosen = settings.score_database
    url = chosen.url or f"sqlite:///{settings.data_root.absolute() / 'scores.db'}"
    password = read_secret(chosen.password, what="score_database.password")
    return open_engine(url, password=password)


def history_rule(settings: Settings) -> HistoryRule:
    """What of a tick the database keeps."""
    return HistoryRule(days=settings.score_database.history_days)


def read_secret(source: SecretSource | None, *, what: str) -> str | None:
    """A secret; a line break at its end is no part of it.

    Args:
        source: Where it is found; None: there is none.
        what: The setting, for the message.

    Raises:
        SettingsError: It is not there, empty, or more than a line of text.
    """
    if source is None:
        return None
    if source.file is None:
        found, where = os.environ.get(str(source.variable), ""), f"variable {source.variable}"
    else:
        where = f"file {source.file}"
        try:
            found = source.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{what}: {where} cannot be read: {error}") from error
    if not found.strip():
        raise SettingsError(f"{what}: {where} is empty")
    if not found.strip().isprintable():
        raise SettingsError(f"{what}: {where} holds more than one line, or a control character")
    return found.strip()
