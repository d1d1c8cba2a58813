"""The ledger in SQLite: one file, append-only by trigger, one writer at a time.

What an entry is, and the hash chain, are in `remediation.ledger.entries`.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from remediation.ledger.entries import (
    FIRST_HASH,
    KINDS,
    NEEDS_REFERENCE,
    Entry,
    LedgerError,
    NewEntry,
    Verification,
    check_answer,
    check_entry,
    from_rows,
    seal,
    time_text,
    to_values,
    verify_chain,
)

VERSION: Final = 2
_COLUMNS: Final = tuple(Entry.__dataclass_fields__)
_BUSY_SECONDS: Final = 30.0


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)


_SCHEMA: Final = f"""
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY CHECK (seq >= 1),
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ({_quoted(KINDS)})),
    recorded_at TEXT NOT NULL,
    actuator TEXT NOT NULL,
    actor TEXT NOT NULL,
    node TEXT,
    decision_id TEXT,
    refers_to TEXT REFERENCES entries (key),
    body_json TEXT NOT NULL CHECK (json_valid(body_json)),
    previous_hash TEXT NOT NULL UNIQUE,
    hash TEXT NOT NULL UNIQUE,
    CHECK ((refers_to IS NOT NULL) = (kind IN ({_quoted(tuple(NEEDS_REFERENCE))})))
) STRICT;
CREATE UNIQUE INDEX one_answer ON entries (kind, refers_to) WHERE refers_to IS NOT NULL;
CREATE INDEX by_kind ON entries (kind, recorded_at);
CREATE TRIGGER no_update BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
PRAGMA user_version = {VERSION};
"""

# SQLite changes a CHECK only by a new table. Entries go over as they are, hashes included: the
# chain, and a head noted elsewhere, still hold.
_RENAMED: Final = f"""
DROP TRIGGER no_update;
DROP TRIGGER no_delete;
DROP INDEX one_answer;
DROP INDEX by_kind;
ALTER TABLE entries RENAME TO entries_before;
{_SCHEMA}
INSERT INTO entries ({", ".join(_COLUMNS)})
    SELECT {", ".join(_COLUMNS)} FROM entries_before ORDER BY seq;
DROP TABLE entries_before;
"""  # noqa: S608 - names are ours

MIGRATIONS: Final = {1: _RENAMED}
"""By the version that is left: the statements that lead to this release's; 1 knew fewer kinds."""


def stored_version(path: Path) -> int | None:
    """The version of a ledger's file, which is only looked at; None: there is no file.

    Args:
        path: The file.

    Raises:
        LedgerError: It cannot be read.
    """
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            return int(opened.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise LedgerError(f"ledger {path}: {error}. See that this account may read it.") from error


class SqliteLedger:
    """A ledger in an SQLite file; also a context manager that closes it.

    A ledger of an older release is brought forward when it is opened, in one transaction.

    Args:
        path: The file; made, with its folder, where absent.

    Raises:
        LedgerError: The file cannot be opened, or is no ledger, or one of a later release.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                self._prepare()
            except (sqlite3.Error, LedgerError):
                self._connection.close()
                raise

    def _prepare(self) -> None:
        # FULL: an intent must be on disk before anything is done. Recursive triggers: without
        # them INSERT OR REPLACE would delete a row unseen by the trigger.
        self._use_wal()
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA recursive_triggers = ON")
        with self._transaction():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            script = _SCHEMA if version == 0 and tables == 0 else MIGRATIONS.get(version)
            if script is not None:
                for statement in _statements(script):
                    self._connection.execute(statement)
            elif version != VERSION:
                raise LedgerError(
                    f"ledger {self._path}: version {version} with {tables} objects, expected "
                    f"version {VERSION}. Name another file, or the Forewarn that wrote this one."
                )

    def _use_wal(self) -> None:
        """Has the file keep a log beside it; where another process is at the file, it does so."""
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # This statement alone does not wait: of several that make the file, one gets through.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise

    def __enter__(self) -> Self:
        """The ledger itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the file."""
        self.close()

    def close(self) -> None:
        """Closes the file; a closed ledger cannot be used again."""
        self._connection.close()

    def append(self, new: NewEntry) -> bool:
        """As in `Ledger`."""
        return self.append_all((new,))[0]

    def append_all(self, new: Sequence[NewEntry]) -> tuple[bool, ...]:
        """As in `Ledger`."""
        for one in new:
            check_entry(one)
        with self._explained(), self._transaction():
            return tuple([self._insert(one) for one in new])

    def _insert(self, new: NewEntry) -> bool:
        if self._kind_of(new.key) is not None:
            return False
        if new.refers_to is not None:
            check_answer(new, self._kind_of(new.refers_to), of=f"ledger {self._path}")
        seq, previous = self._connection.execute(
            "SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1"
        ).fetchone() or (0, FIRST_HASH)
        values = to_values(seal(new, seq=seq + 1, previous_hash=previous))
        self._connection.execute(
            f"INSERT INTO entries ({', '.join(_COLUMNS)}) "  # noqa: S608 - names are ours
            f"VALUES ({', '.join(f':{name}' for name in _COLUMNS)})",
            values,
        )
        return True

    def entries(
        self, *, kinds: tuple[str, ...] = KINDS, since: datetime | None = None
    ) -> tuple[Entry, ...]:
        """As in `Ledger`."""
        marks = ", ".join("?" for _ in kinds)
        with self._explained():
            rows = self._connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM entries "  # noqa: S608 - names are ours
                f"WHERE kind IN ({marks}) AND recorded_at >= ? ORDER BY seq",
                (*kinds, "" if since is None else time_text(since)),
            ).fetchall()
        return from_rows(rows, of=f"ledger {self._path}")

    def verify(self, *, expected_head: str | None = None) -> Verification:
        """As in `Ledger`."""
        return verify_chain(self.entries(), expected_head=expected_head)

    def _kind_of(self, key: str) -> str | None:
        row = self._connection.execute("SELECT kind FROM entries WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # IMMEDIATE: the last hash is read and the next written under one lock.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise LedgerError(
                f"ledger {self._path}: {error}. Without its ledger the hook does nothing; free "
                f"disk space, or repair permissions, and run it again."
            ) from error


def _statements(script: str) -> Iterator[str]:
    """The script's statements one by one, for `executescript` would commit the transaction."""
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
