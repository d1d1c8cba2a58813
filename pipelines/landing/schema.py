"""The tables of the landing journal (SQLite), and how its file is opened.

What is written there is in `pipelines.landing.journal`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from features.errors import DataError

VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE readings (
    generation INTEGER PRIMARY KEY AUTOINCREMENT,
    reading_id TEXT NOT NULL UNIQUE,
    input TEXT NOT NULL,
    source TEXT NOT NULL,
    origin TEXT NOT NULL,
    landed_at TEXT NOT NULL,
    content TEXT,
    size INTEGER,
    window_start INTEGER,
    window_end INTEGER,
    n_read INTEGER NOT NULL,
    n_parsed INTEGER NOT NULL,
    n_skipped INTEGER NOT NULL,
    n_quarantined INTEGER NOT NULL
);
CREATE TABLE parts (
    path TEXT PRIMARY KEY,
    table_key TEXT NOT NULL,
    first_us INTEGER,
    last_us INTEGER,
    has_dead_rows INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX parts_by_time ON parts (table_key, first_us);
CREATE TABLE part_readings (
    path TEXT NOT NULL REFERENCES parts ON DELETE CASCADE,
    reading_id TEXT NOT NULL REFERENCES readings (reading_id) ON DELETE CASCADE,
    PRIMARY KEY (path, reading_id)
);
CREATE INDEX part_readings_by_reading ON part_readings (reading_id);
CREATE TABLE reading_hours (
    reading_id TEXT NOT NULL REFERENCES readings (reading_id) ON DELETE CASCADE,
    table_key TEXT NOT NULL,
    hour_us INTEGER NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (reading_id, table_key, hour_us)
);
CREATE TABLE refusals (
    reading_id TEXT NOT NULL REFERENCES readings (reading_id) ON DELETE CASCADE,
    table_key TEXT NOT NULL,
    source TEXT NOT NULL,
    origin TEXT NOT NULL,
    rule TEXT NOT NULL,
    count INTEGER NOT NULL,
    example TEXT NOT NULL
);
CREATE TABLE changed_hours (
    table_key TEXT NOT NULL,
    hour_us INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    PRIMARY KEY (table_key, hour_us)
);
CREATE TABLE failures (
    input TEXT NOT NULL,
    origin TEXT NOT NULL,
    source TEXT NOT NULL,
    failed_at TEXT NOT NULL,
    error TEXT NOT NULL,
    PRIMARY KEY (input, origin)
);
CREATE TABLE files (
    input TEXT NOT NULL,
    origin TEXT NOT NULL,
    stat TEXT NOT NULL,
    PRIMARY KEY (input, origin)
);
"""
_LATER_INDEXES: Final = (
    "CREATE INDEX IF NOT EXISTS readings_by_place ON readings (origin)",
    "CREATE INDEX IF NOT EXISTS readings_by_content ON readings (input, content)",
)
"""Made where they are missing; an index alone makes no new version, so that an older release goes
on reading the journal."""


class LandingError(DataError):
    """The landing itself cannot be read or written: no input is to blame, and none can land."""


@contextmanager
def landing_errors(place: Path) -> Iterator[None]:
    """Turns what disks and SQLite raise into an error that says what to do.

    Args:
        place: What is read or written, for the message.

    Raises:
        LandingError: The disk is full, may not be written, or what it holds is damaged.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        raise LandingError(_no_access(place, str(error))) from error
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:
            raise  # a constraint: our fault, not the disk's
        raise LandingError(
            f"{place} is damaged: {error}. Put it back from a backup, or move the folder "
            f"{place.parent} away and ingest again: all inputs are then read anew."
        ) from error
    except OSError as error:
        raise LandingError(_no_access(place, error.strerror or str(error))) from error


def _no_access(place: Path, why: str) -> str:
    return (
        f"{place} cannot be read or written: {why}. See that data_root has free space and that "
        f"this user may write it, then run again; what was committed stays."
    )


def open_journal(path: Path) -> sqlite3.Connection:
    """Opens a journal, and makes its tables where there are none.

    Args:
        path: The file; its folder exists.

    Returns:
        A connection without implicit transactions.

    Raises:
        DataError: A later release of Forewarn wrote it.
    """
    sql = sqlite3.connect(path, timeout=30, isolation_level=None)
    sql.execute("PRAGMA foreign_keys = ON")
    version = sql.execute("PRAGMA user_version").fetchone()[0] or _create(sql)
    if version != VERSION:
        sql.close()
        raise DataError(
            f"{path}: expected a landing journal of version {VERSION}, got {version}. "
            f"Use the release of Forewarn that wrote it, or a new data_root."
        )
    for index in _LATER_INDEXES:
        sql.execute(index)
    return sql


def _create(sql: sqlite3.Connection) -> int:
    """Makes the tables, unless another process was faster; returns the version that is there.

    A rollback journal, not WAL: it also works on the network file systems of clusters.
    """
    sql.execute("BEGIN IMMEDIATE")
    version = int(sql.execute("PRAGMA user_version").fetchone()[0])
    if version == 0:
        for statement in _SCHEMA.split(";"):
            sql.execute(statement)
        sql.execute(f"PRAGMA user_version = {VERSION}")
        version = VERSION
    sql.execute("COMMIT")
    return version
