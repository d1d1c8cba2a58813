"""The lease in an SQLite file, for hooks that share one machine's disk.

What a lease is, and when it is over, is in `remediation.lease.leadership`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from remediation.lease.leadership import Change, Instant, Lease, LeaseError

VERSION: Final = 1
"""Files from before there was a stamp have 0 and the same table."""
_BUSY_SECONDS: Final = 10.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS lease (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    boot TEXT NOT NULL,
    ends REAL NOT NULL,
    seconds REAL NOT NULL
) STRICT
"""


class SqliteLease:
    """A lease in a file of its own, beside the ledger; opened anew for each step.

    SQLite's locks hold on local disks only. Hooks on several machines keep their lease in
    PostgreSQL.

    Args:
        path: The file; made, with its folder, where absent.

    Raises:
        LeaseError: The file cannot be opened, or a later release wrote it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as connection:
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found > VERSION:
                raise LeaseError(
                    f"lease {path}: version {found}, this program has {VERSION}. Use the release "
                    f"that wrote it, or remove the file while no hook runs."
                )
            if found < VERSION:
                connection.execute(_SCHEMA)
                connection.execute(f"PRAGMA user_version = {VERSION}")

    def read(self) -> Lease | None:
        """As in `LeaseStore`."""
        with self._opened() as connection:
            return _read(connection)

    def change(self, change: Change) -> Lease | None:
        """As in `LeaseStore`."""
        with self._opened() as connection:
            # IMMEDIATE: read and write under one lock; closing without COMMIT takes all back.
            connection.execute("BEGIN IMMEDIATE")
            new = change(_read(connection))
            if new is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?, ?, ?)",
                    (
                        new.holder,
                        new.token,
                        new.ends.boot,
                        new.ends.seconds,
                        new.seconds,
                    ),
                )
            connection.execute("COMMIT")
            return new

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connecting = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
            with closing(connecting) as connection:
                # A token must not go back after the power failed.
                connection.execute("PRAGMA synchronous = FULL")
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise LeaseError(
                f"lease {self._path}: {error}. Without its lease the hook does nothing; free disk "
                f"space, or repair permissions."
            ) from error


def _read(connection: sqlite3.Connection) -> Lease | None:
    row = connection.execute("SELECT holder, token, boot, ends, seconds FROM lease").fetchone()
    if row is None:
        return None
    holder, token, boot, ends, seconds = row
    return Lease(holder=holder, token=token, ends=Instant(boot, ends), seconds=seconds)
