"""Opens Dagster's instance of a home folder, and makes its databases before others need them.

What `dagster.yaml` says is in `pipelines.orchestration.dagster_home`.

Dagster makes its databases when an instance is first opened, and two processes that do so at the
same time leave a SQLite file with two revisions, which no process can open again. So ours take
turns, and Dagster's own processes are started once the databases are there.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import dagster as dg
from sqlalchemy.exc import SQLAlchemyError
from yaml import YAMLError

from features.errors import SourceError
from pipelines.orchestration.dagster_home import dagster_environment, dagster_yaml
from pipelines.settings import Settings
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.file_lock import in_turn

WRITTEN_BY_US: Final = "# Written by Forewarn as its settings say; what is changed here is lost.\n"
_LOCK: Final = ".opening.lock"
_MOST_SAID: Final = 200


@contextmanager
def opened(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a home folder, opened while no other process of ours opens it.

    Args:
        home: Dagster's home folder, with its `dagster.yaml`.

    Raises:
        SourceError: Its settings cannot be read, or a database cannot be opened.
    """
    try:
        with in_turn(home / _LOCK):
            instance = dg.DagsterInstance.from_config(str(home))
    except instance_errors() as error:
        raise SourceError(
            f"Dagster's instance in {home} cannot be opened: {cause_of(error)}. See its "
            "dagster.yaml, and that the database it names (storage.dagster) answers."
        ) from error
    with instance:
        yield instance


def prepare_home(settings: Settings, home: Path) -> bool:
    """Writes `dagster.yaml` and makes the databases: run before Dagster's own processes start.

    Args:
        settings: The installation.
        home: Dagster's home folder; made where absent.

    Returns:
        Whether the file is ours. One that another wrote, as where teams share a Dagster, is kept.

    Raises:
        SettingsError: The database's password cannot be read.
        SourceError: A database cannot be made or opened.
    """
    home.mkdir(parents=True, exist_ok=True)
    path = home / "dagster.yaml"
    is_ours = not path.exists() or path.read_bytes().startswith(WRITTEN_BY_US.encode())
    if is_ours:
        replace_file(path, (WRITTEN_BY_US + dagster_yaml(settings)).encode())
    os.environ.update(dagster_environment(settings))  # the file names the password's variable
    with opened(home):
        return is_ours


def home_of_environment() -> Path:
    """The folder that `DAGSTER_HOME` names.

    Raises:
        SourceError: It names none that is there.
    """
    home = Path(os.environ.get("DAGSTER_HOME", ""))
    if not home.is_absolute() or not home.is_dir():
        raise SourceError(f"DAGSTER_HOME must name a folder that is there, got {str(home)!r}")
    return home


def instance_errors() -> tuple[type[Exception], ...]:
    """What is raised where an instance cannot be read, its database not answering among it."""
    known: tuple[type[Exception], ...] = (dg.DagsterError, SQLAlchemyError, YAMLError)
    try:
        from dagster_postgres.utils import DagsterPostgresException
    except ImportError:
        return known
    return (*known, DagsterPostgresException)


def cause_of(error: BaseException) -> str:
    """The first line of what lies at the bottom: Dagster itself says "too many retries".

    Args:
        error: One of `instance_errors`.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_MOST_SAID].rstrip(".")
