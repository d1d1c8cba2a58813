"""Reads the hook's ledger in pages, and how things stand by it; it is never written here.

What entries mean is in `remediation.ledger.view`. The file is opened read-only: not even an empty
ledger is made.
"""

import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from features.errors import ForewarnError
from pipelines.settings import Settings
from remediation.ledger.entries import KINDS, Entry, LedgerError, from_values
from remediation.ledger.view import STATE_KINDS, LedgerView, view_of

_COLUMNS: Final = tuple(Entry.__dataclass_fields__)
_PATIENCE_S: Final = 5
_TRIES: Final = 5
_SQLITE, _POSTGRES = "entries", "forewarn_ledger"
UNREADABLE: Final = "the hook's ledger cannot be read"


@dataclass(frozen=True)
class Standing:
    """How things stand for one actuator.

    Attributes:
        actuator: Which; that of the newest entry unless asked for.
        last_seq: The newest entry that was looked at.
        view: What the entries mean.
        waiting: The escalations that nobody has acknowledged.
    """

    actuator: str
    last_seq: int
    view: LedgerView
    waiting: tuple[Entry, ...]


class LedgerReader:
    """The ledger of an installation.

    Args:
        settings: The installation.
    """

    def __init__(self, settings: Settings) -> None:
        chosen = settings.api.ledger
        self._path = chosen.sqlite or settings.ledger_path.absolute()
        self._variable = chosen.postgres_variable
        self._would_hold = timedelta(hours=settings.horizons_h[0])
        name = _SQLITE if self._variable is None else _POSTGRES
        self._table = sa.table(name, *(sa.column(one) for one in _COLUMNS))
        # A file is opened for each reading: a connection that is kept would go on reading the old
        # one after a backup was put in its place.
        dialect = "sqlite://"
        pool: dict[str, Any] = {"poolclass": sa.pool.NullPool}
        if self._variable is not None:
            dialect = "postgresql+psycopg://"
            pool = {"pool_size": 2, "max_overflow": 2, "pool_timeout": 10, "pool_pre_ping": True}
        self._engine = sa.create_engine(dialect, creator=self._connect, **pool)
        self._lock = threading.Lock()
        self._state: list[Entry] = []

    def _connect(self) -> Any:
        if self._variable is not None:
            from remediation.ledger.postgres import connect

            return connect(os.environ.get(self._variable, ""))
        # Between two rounds the hook keeps the file closed, and there is no log of writes. SQLite
        # would make one, which an account that may only read cannot: it reads the file as it is.
        mode = "mode=ro" if self._has_log() else "mode=ro&immutable=1"
        address = f"file:{quote(str(self._path))}?{mode}"
        return sqlite3.connect(address, uri=True, timeout=_PATIENCE_S, check_same_thread=False)

    def _has_log(self) -> bool:
        file = self._path.resolve()  # SQLite keeps its log beside the file that a link names
        return file.with_name(f"{file.name}-wal").exists()

    def _stamp(self) -> tuple[int, ...] | None:
        """Changes when a file that has no log of writes was written; None: no need to look."""
        if self._variable is not None or self._has_log():
            return None
        found = self._path.stat()
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    @property
    def is_there(self) -> bool:
        """Whether there is a ledger to read; on a server it is not looked for."""
        return self._variable is not None or self._path.exists()

    def entries(
        self,
        *,
        kinds: Sequence[str] = KINDS,
        node: str | None = None,
        decision_id: str | None = None,
        actuator: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> tuple[Entry, ...]:
        """Entries, newest first.

        Args:
            kinds: Only these kinds.
            node: Only about this node.
            decision_id: Only about this decision.
            actuator: Only of this actuator.
            before: Only those before this place.
            limit: How many at most.

        Raises:
            LedgerError: It cannot be read.
        """
        columns = self._table.c
        query = sa.select(self._table).order_by(columns.seq.desc()).limit(limit)
        query = query.where(columns.kind.in_(kinds))
        given = {"node": node, "decision_id": decision_id, "actuator": actuator}
        for name, value in given.items():
            query = query if value is None else query.where(columns[name] == value)
        query = query if before is None else query.where(columns.seq < before)
        return self._read(query)

    def standing(self, now: datetime, *, actuator: str | None = None) -> Standing | None:
        """How things stand; None: there is no entry yet.

        Args:
            now: The present.
            actuator: Only its entries count; None: that of the newest entry.

        Raises:
            LedgerError: It cannot be read.
        """
        newest = self.entries(limit=1)
        if not newest:
            return None
        name = actuator or newest[0].actuator
        state = self._state_now()
        view = view_of(state, actuator=name, now=now, would_hold=self._would_hold)
        waiting = tuple(
            one
            for one in state
            if one.kind == "escalation"
            and one.actuator == name
            and one.key not in view.acknowledged
        )
        return Standing(name, newest[0].seq, view, waiting)

    def _state_now(self) -> list[Entry]:
        """Entries that say how things stand; only those since the last time are read."""
        columns = self._table.c
        query = sa.select(self._table).order_by(columns.seq).where(columns.kind.in_(STATE_KINDS))
        with self._lock:
            last = self._state[-1:]
            found = self._read(query.where(columns.seq >= last[0].seq) if last else query)
            if list(found[:1]) == last:
                self._state += found[len(last) :]
            else:  # another ledger in its place
                self._state = list(self._read(query))
            return list(self._state)

    def _read(self, query: sa.Select[Any]) -> tuple[Entry, ...]:
        if not self.is_there:
            return ()
        try:
            return tuple(from_values(dict(row)) for row in self._settled(query))
        except (SQLAlchemyError, ForewarnError, ValueError, OSError) as error:
            raise LedgerError(UNREADABLE) from error

    def _settled(self, query: sa.Select[Any]) -> Sequence[Any]:
        """Rows of one moment: a file that was written meanwhile is read again."""
        for is_last in (*(False,) * _TRIES, True):
            before = self._stamp()
            try:
                with self._engine.connect() as connection:
                    rows = connection.execute(query).mappings().all()
            except SQLAlchemyError:
                if is_last or self._stamp() == before:
                    raise
            else:
                if self._stamp() == before:
                    return rows
        raise LedgerError("it is written all the time")
