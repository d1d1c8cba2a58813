"""The score database of an installation, as its settings say.

Settings are in `pipelines.settings`; no score is read or written here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from pipelines.sections.secret_source import read_secret
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


@contextmanager
def open_scores(settings: Settings) -> Iterator[sa.Engine]:
    """The same for one piece of work; its connections are closed afterwards.

    Raises:
        SettingsError: As in `score_engine`.
    """
    engine = score_engine(settings)
    try:
        yield engine
    finally:
        engine.dispose()


def history_rule(settings: Settings) -> HistoryRule:
    """What of a tick the database keeps."""
    return HistoryRule(days=settings.score_database.history_days)
