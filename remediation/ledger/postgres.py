"""The ledger in PostgreSQL: one table, append-only by trigger, one writer at a time.

What an entry is, and the hash chain, are in `remediation.ledger.entries`; the same entries give the
same chain here as in SQLite, so that exports compare.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from features.errors import SettingsError
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

if TYPE_CHECKING:
    import psycopg

VERSION: Final = 1
_COLUMNS: Final = tuple(Entry.__dataclass_fields__)
_NAMES: Final = ", ".join(_COLUMNS)
_INSERT: Final = (
    f"INSERT INTO forewarn_ledger ({_NAMES}) "  # noqa: S608 - names are ours
    f"VALUES ({', '.join(f'%({name})s' for name in _COLUMNS)})"
)
_WRITER_LOCK: Final = 0x464F5245  # any number that is ours: "FORE"


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)


# COLLATE "C": text is compared by its bytes, so that the order of time texts is that of times.
_SCHEMA: Final = f"""
CREATE TABLE forewarn_ledger (
    seq BIGINT PRIMARY KEY CHECK (seq >= 1),
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ({_quoted(KINDS)})),
    recorded_at TEXT COLLATE "C" NOT NULL,
    actuator TEXT NOT NULL,
    actor TEXT NOT NULL,
    node TEXT,
    decision_id TEXT,
    refers_to TEXT REFERENCES forewarn_ledger (key),
    body_json TEXT NOT NULL CHECK (body_json::json IS NOT NULL),
    previous_hash TEXT NOT NULL UNIQUE,
    hash TEXT NOT NULL UNIQUE,
    CHECK ((refers_to IS NOT NULL) = (kind IN ({_quoted(tuple(NEEDS_REFERENCE))})))
);
CREATE UNIQUE INDEX forewarn_one_answer ON forewarn_ledger (kind, refers_to)
    WHERE refers_to IS NOT NULL;
CREATE INDEX forewarn_by_kind ON forewarn_ledger (kind, recorded_at);
CREATE FUNCTION forewarn_refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$;
CREATE TRIGGER no_change BEFORE UPDATE OR DELETE ON forewarn_ledger
    FOR EACH ROW EXECUTE FUNCTION forewarn_refuse();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON forewarn_ledger
    FOR EACH STATEMENT EXECUTE FUNCTION forewarn_refuse();
COMMENT ON TABLE forewarn_ledger IS 'forewarn ledger version {VERSION}';
"""

# An entry must be on disk before anything is done, and a server that does not answer must not
# hold the hook for ever. Set here and not by options, which poolers refuse.
_SESSION: Final = """
SET synchronous_commit = on;
SET lock_timeout = '30s';
SET statement_timeout = '120s';
SET idle_in_transaction_session_timeout = '60s'
"""


class PostgresLedger:
    """A ledger in a PostgreSQL database; also a context manager that closes it.

    The table is made where absent; after that its user needs SELECT and INSERT on it alone.

    Args:
        conninfo: Connection string of libpq. Passwords are better left to a password file.

    Raises:
        SettingsError: psycopg is not installed, or the string cannot be read.
        LedgerError: The server cannot be reached, or the table is of another version.
    """

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._name = name_of(conninfo)
        self._errors: tuple[type[Exception], ...] = (driver().Error, OSError, UnicodeError)
        self._connection: psycopg.Connection[Any] | None = None
        try:
            with self._explained(), self._transaction() as connection:
                self._prepare(connection)
        except LedgerError:
            self.close()
            raise

    def _prepare(self, connection: "psycopg.Connection[Any]") -> None:
        # Locked before the first look: two hooks may start at once, and a server remembers within
        # a transaction that there was no table.
        _lock(connection)
        found = _version(connection)
        if found is None:
            connection.execute(_SCHEMA)
        elif found != f"forewarn ledger version {VERSION}":
            raise LedgerError(
                f"ledger {self._name}: table forewarn_ledger is {found or 'of unknown version'}, "
                f"expected version {VERSION}. Name another database or schema."
            )

    def __enter__(self) -> Self:
        """The ledger itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the connection."""
        self.close()

    def close(self) -> None:
        """Closes the connection; the next use would open another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def append(self, new: NewEntry) -> bool:
        """As in `Ledger`; whether an entry was written when the connection broke is unknown."""
        return self.append_all((new,))[0]

    def append_all(self, new: Sequence[NewEntry]) -> tuple[bool, ...]:
        """As in `Ledger`; few questions in all, for each waits for the network."""
        for one in new:
            check_entry(one)
        with self._explained(), self._transaction() as connection:
            # The last hash is read and the next written under one lock.
            _lock(connection)
            known = _kinds_of(connection, new)
            seq, previous = connection.execute(
                "SELECT seq, hash FROM forewarn_ledger ORDER BY seq DESC LIMIT 1"
            ).fetchone() or (0, FIRST_HASH)
            rows, is_written = [], []
            for one in new:
                is_written.append(one.key not in known)
                if is_written[-1]:
                    if one.refers_to is not None:
                        check_answer(one, known.get(one.refers_to), of=f"ledger {self._name}")
                    sealed = seal(one, seq=seq + 1, previous_hash=previous)
                    seq, previous = sealed.seq, sealed.hash
                    known[one.key] = one.kind
                    rows.append(to_values(sealed))
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT, rows)
        return tuple(is_written)

    def entries(
        self, *, kinds: tuple[str, ...] = KINDS, since: datetime | None = None
    ) -> tuple[Entry, ...]:
        """As in `Ledger`."""
        with self._explained(), self._transaction() as connection:
            rows = connection.execute(
                f"SELECT {_NAMES} FROM forewarn_ledger "  # noqa: S608 - names are ours
                f"WHERE kind = ANY(%s) AND recorded_at >= %s ORDER BY seq",
                (list(kinds), "" if since is None else time_text(since)),
            ).fetchall()
        return from_rows(rows, of=f"ledger {self._name}")

    def verify(self, *, expected_head: str | None = None) -> Verification:
        """As in `Ledger`."""
        return verify_chain(self.entries(), expected_head=expected_head)

    @contextmanager
    def _transaction(self) -> Iterator["psycopg.Connection[Any]"]:
        """One transaction; a connection that broke earlier is replaced, none is used again."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._conninfo)
        with self._connection.transaction():
            yield self._connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise LedgerError(
                f"ledger {self._name}: {str(error).strip()}. Without its ledger the hook does "
                f"nothing; look at the server, and run it again."
            ) from error


def driver() -> Any:
    """The module psycopg.

    Raises:
        SettingsError: It is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise SettingsError(
            f"PostgreSQL: psycopg cannot be loaded ({error}); install forewarn[postgres]"
        ) from error
    return psycopg


def name_of(conninfo: str) -> str:
    """Host and database of a connection string, without its secrets.

    Raises:
        SettingsError: It cannot be read.
    """
    loaded = driver()
    try:
        parts = loaded.conninfo.conninfo_to_dict(conninfo)
    except loaded.Error:
        # Not chained: libpq's own words quote the string, and with it the password.
        raise SettingsError("PostgreSQL: the connection string cannot be read") from None
    host = str(parts.get("host", "local"))
    if "@" in host[1:]:  # the rest of a password, which everything that names the host would show
        raise SettingsError(
            "PostgreSQL: the connection string cannot be read: write an @ in a password as %40"
        )
    return f"{host}/{parts.get('dbname', 'default database')}"


def connect(conninfo: str) -> Any:
    """A connection whose commits are on disk, and whose waits end."""
    connection = driver().connect(conninfo, autocommit=True, connect_timeout=10)
    connection.execute(_SESSION)
    return connection


def _lock(connection: "psycopg.Connection[Any]") -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_WRITER_LOCK,))


def _version(connection: "psycopg.Connection[Any]") -> str | None:
    """What the table says of itself; None: there is no table."""
    row = connection.execute(
        "SELECT coalesce(obj_description(found, 'pg_class'), '') "
        "FROM to_regclass('forewarn_ledger') AS found WHERE found IS NOT NULL"
    ).fetchone()
    return None if row is None else str(row[0])


def _kinds_of(connection: "psycopg.Connection[Any]", new: Sequence[NewEntry]) -> dict[str, str]:
    """The kinds of the entries that are there, of those that are new or referred to."""
    keys = {one.key for one in new} | {one.refers_to for one in new if one.refers_to is not None}
    rows = connection.execute(
        "SELECT key, kind FROM forewarn_ledger WHERE key = ANY(%s)", (list(keys),)
    )
    return dict(rows.fetchall())
