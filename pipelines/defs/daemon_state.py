"""When Dagster's daemons were last alive, as its instance has it.

Nothing is defined or run here: `forewarn doctor` asks.
"""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
from dagster import DagsterInstance
from sqlalchemy.exc import SQLAlchemyError

from features.errors import SourceError


def last_heartbeats(home: Path) -> dict[str, datetime]:
    """The last sign of life of each daemon.

    Args:
        home: Dagster's home folder, with its `dagster.yaml`.

    Raises:
        SourceError: The instance cannot be read.
    """
    errors: tuple[type[Exception], ...] = (dg.DagsterError, SQLAlchemyError, *_of_postgres())
    try:
        with DagsterInstance.from_config(str(home)) as instance:
            return {
                kind: datetime.fromtimestamp(one.timestamp, UTC)
                for kind, one in instance.get_daemon_heartbeats().items()
            }
    except errors as error:
        said = str(error).strip().splitlines()[0][:200]
        raise SourceError(f"Dagster's instance in {home} cannot be read: {said}") from error


def _of_postgres() -> tuple[type[Exception], ...]:
    """What Dagster raises where its database does not answer, which is no error of its own kind."""
    try:
        from dagster_postgres.utils import DagsterPostgresException
    except ImportError:
        return ()
    return (DagsterPostgresException,)
