"""The lease in PostgreSQL, for hooks on several machines.

What a lease is, and when it is over, is in `remediation.lease.leadership`.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from remediation.lease.leadership import Change, Instant, Lease, LeaseError
from remediation.ledger.postgres import connect, driver, name_of

_LOCK: Final = 0x464F5246  # next to the ledger's own
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS forewarn_lease (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    holder TEXT NOT NULL,
    token BIGINT NOT NULL,
    boot TEXT NOT NULL,
    ends DOUBLE PRECISION NOT NULL,
    seconds DOUBLE PRECISION NOT NULL
)
"""
_WRITE: Final = """
INSERT INTO forewarn_lease VALUES (1, %s, %s, %s, %s, %s)
ON CONFLICT (only_one) DO UPDATE SET holder = excluded.holder, token = excluded.token,
    boot = excluded.boot, ends = excluded.ends, seconds = excluded.seconds
"""


class PostgresLease:
    """A lease in a table, beside the ledger; the server is connected to anew for each step.

    Args:
        conninfo: Connection string of libpq.

    Raises:
        SettingsError: psycopg is not installed, or the string cannot be read.
        LeaseError: The server cannot be reached.
    """

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._name = name_of(conninfo)
        self._errors: tuple[type[Exception], ...] = (driver().Error, OSError)
        with self._locked() as connection:
            connection.execute(_SCHEMA)

    def read(self) -> Lease | None:
        """As in `LeaseStore`."""
        with self._locked() as connection:
            return _read(connection)

    def change(self, change: Change) -> Lease | None:
        """As in `LeaseStore`."""
        with self._locked() as connection:
            new = change(_read(connection))
            if new is not None:
                end = new.ends
                values = (new.holder, new.token, end.boot, end.seconds, new.seconds)
                connection.execute(_WRITE, values)
        return new

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        """A transaction of its own that runs alone."""
        try:
            with closing(connect(self._conninfo)) as connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                yield connection
        except self._errors as error:
            raise LeaseError(
                f"lease {self._name}: {str(error).strip()}. Without its lease the hook does "
                f"nothing; look at the server."
            ) from error


def _read(connection: Any) -> Lease | None:
    row = connection.execute(
        "SELECT holder, token, boot, ends, seconds FROM forewarn_lease"
    ).fetchone()
    if row is None:
        return None
    holder, token, boot, ends, seconds = row
    return Lease(holder=holder, token=token, ends=Instant(boot, ends), seconds=seconds)
