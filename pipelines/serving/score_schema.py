"""The tables of the score database and how it is reached: SQLite by default, or PostgreSQL.

What is written is decided in `score_database`, what is read in `score_reader`. Times are
microseconds since 1970 UTC: both databases compare them alike and neither knows of zones.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from features.errors import ForewarnError, SettingsError

VERSION: Final = 1
WRITES: Final = "forewarn_writes"
"""Execution option of a transaction that writes."""
_WRITER_LOCK: Final = 0x53434F52  # any number that is ours: "SCOR"
_PATIENCE_S: Final = 30
_POSTGRES_WAITS: Final = {
    "connect_timeout": 10,
    # A server that vanished without a word would be waited for for hours, and with it the next
    # tick. Seconds, but the last: milliseconds.
    "keepalives_idle": 10,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": _PATIENCE_S * 1000,
}

METADATA: Final = sa.MetaData()
UNKNOWN_RANK: Final = sa.literal_column("-1.0", sa.Double)
"""Where an unknown score stands in a ranking: below every known one."""


class ScoreDatabaseError(ForewarnError):
    """The score database cannot be reached or used."""


def _entity_columns() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("entity_id", sa.Text, primary_key=True),
        sa.Column("horizon_h", sa.Integer, primary_key=True),
    )


def _score_columns() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("node", sa.Text),
        sa.Column("score", sa.Double),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("status_reason", sa.Text),
        sa.Column("fault_type", sa.Text),
        sa.Column("fault_probability", sa.Double),
        sa.Column("model_version", sa.Text, nullable=False),
    )


def _latest(name: str) -> sa.Table:
    """Rows of the newest tick; its time is in `ticks`."""
    table = sa.Table(
        name,
        METADATA,
        *_entity_columns(),
        *_score_columns(),
        sa.Column("fault_probabilities", sa.Text),
        sa.Column("reasons", sa.Text, nullable=False),
        sa.Column("missing_share", sa.Double, nullable=False),
    )
    rank = sa.func.coalesce(table.c.score, UNKNOWN_RANK)
    sa.Index(f"{name}_by_rank", table.c.horizon_h, rank.desc(), table.c.entity_id)
    sa.Index(f"{name}_by_node", table.c.node)
    return table


def _history(name: str) -> sa.Table:
    """Rows that differ from the tick before; `score_history` says which."""
    return sa.Table(
        name,
        METADATA,
        *_entity_columns(),
        sa.Column("as_of", sa.BigInteger, primary_key=True, index=True),
        *_score_columns(),
        sqlite_with_rowid=False,
    )


SCHEMA_VERSION: Final = sa.Table(
    "schema_version", METADATA, sa.Column("version", sa.Integer, primary_key=True)
)

TICKS: Final = sa.Table(
    "ticks",
    METADATA,
    sa.Column("as_of", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("published_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("coverage", sa.Double, nullable=False),
    sa.Column("model_versions", sa.Text, nullable=False),
    sa.Column("trained_on", sa.Text, nullable=False),
    sa.Column("policies", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("n_node_rows", sa.BigInteger, nullable=False),
    sa.Column("n_gpu_rows", sa.BigInteger, nullable=False),
    sa.Column("n_gpu_rows_kept", sa.BigInteger, nullable=False),
)

NODE_LATEST: Final = _latest("node_scores_latest")
GPU_LATEST: Final = _latest("gpu_scores_latest")
NODE_HISTORY: Final = _history("node_scores_history")
GPU_HISTORY: Final = _history("gpu_scores_history")

ALERTS: Final = sa.Table(
    "alerts",
    METADATA,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("horizon_h", sa.Integer, primary_key=True),
    sa.Column("as_of", sa.BigInteger, primary_key=True, index=True),
    sa.Column("ends_at", sa.BigInteger, nullable=False),
    sa.Column("score", sa.Double, nullable=False),
    sa.Column("threshold", sa.Double, nullable=False),
    sa.Column("fault_type", sa.Text),
    sa.Column("model_version", sa.Text, nullable=False),
)

OUTCOMES: Final = sa.Table(
    "outcomes",
    METADATA,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("as_of", sa.BigInteger, primary_key=True, index=True),
    sa.Column("horizon_h", sa.Integer, primary_key=True),
    sa.Column("model_version", sa.Text, primary_key=True),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("score", sa.Double),
    sa.Column("lead_h", sa.Double),
    sa.Column("incident_id", sa.Text),
    sa.Column("fault_type", sa.Text),
    sa.Column("censored_by", sa.Text),
)

LIVE_QUALITY: Final = sa.Table(
    "live_quality",
    METADATA,
    sa.Column("week", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("horizon_h", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("model_version", sa.Text, primary_key=True),
    *(
        sa.Column(name, sa.BigInteger, nullable=False)
        for name in ("n_alerts", "n_hits", "n_false_alarms", "n_censored", "n_misses", "n_rows")
    ),
    *(
        sa.Column(name, sa.Double)
        for name in (
            "precision",
            "recall",
            "mean_score",
            "observed_rate",
            "brier",
            "median_lead_h",
        )
    ),
)

MIGRATIONS: Final[dict[int, Callable[[sa.Connection], None]]] = {}
"""By the version that is left: the statements that lead to the next one."""


def open_engine(url: str | URL, *, password: str | None = None) -> sa.Engine:
    """An engine for a score database; nothing is connected yet.

    Args:
        url: SQLAlchemy URL of SQLite or PostgreSQL.
        password: For PostgreSQL, kept out of the URL so that it is never in a settings file.

    Raises:
        SettingsError: The URL cannot be used.
    """
    try:
        made = make_url(url)
    except ArgumentError:
        # Not chained: the words quote the text, and with it a password.
        raise SettingsError("score_database: the URL cannot be read") from None
    if made.get_backend_name() not in ("sqlite", "postgresql"):
        raise SettingsError(
            f"score_database: expected sqlite or postgresql, got {made.get_backend_name()}"
        )
    is_sqlite = made.get_backend_name() == "sqlite"
    if made.drivername == "postgresql":
        made = made.set(drivername="postgresql+psycopg")
    if password is not None:
        made = made.set(password=password)
    if {"password", "sslpassword", "passfile"} & set(made.query):
        raise SettingsError(
            "score_database: a password in the URL would be shown in messages: name where it is "
            "found, with score_database.password"
        )
    waits = {"timeout": _PATIENCE_S} if is_sqlite else _POSTGRES_WAITS
    try:
        engine = sa.create_engine(made, pool_pre_ping=not is_sqlite, connect_args=waits)
    except (NoSuchModuleError, ImportError) as error:
        raise SettingsError(
            f"score_database: {error}; PostgreSQL needs forewarn[postgres]"
        ) from error
    if is_sqlite:
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    # All statements of a transaction see one moment, as in SQLite.
    return engine.execution_options(isolation_level="REPEATABLE READ")


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection | None]:
    """A transaction that sees one moment; None where no score was ever written.

    Raises:
        ScoreDatabaseError: The database cannot be reached, or is of another version.
    """
    if _is_absent(engine):
        yield None
        return
    with _explained(engine), engine.connect() as connection, connection.begin():
        found = version_of(connection)
        if found is not None and found != VERSION:
            raise ScoreDatabaseError(_other_version(engine, found))
        yield None if found is None else connection


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """The one transaction that writes; others wait, then see all of it or nothing.

    Raises:
        ScoreDatabaseError: As in `reading`.
    """
    with _explained(engine), engine.connect() as connection:
        writer = connection.execution_options(**{WRITES: True})
        if engine.dialect.name != "sqlite":
            # The lock's own statement must not be what fixes the moment that is seen.
            writer = writer.execution_options(isolation_level="READ COMMITTED")
        with writer.begin():
            if engine.dialect.name != "sqlite":
                # First: another writer that hangs must not be waited for for ever.
                writer.execute(sa.text(f"SET LOCAL lock_timeout = '{_PATIENCE_S}s'"))
                writer.execute(sa.text("SET LOCAL statement_timeout = '120s'"))
                writer.execute(sa.select(sa.func.pg_advisory_xact_lock(_WRITER_LOCK)))
            _prepare(writer, engine)
            yield writer


def version_of(connection: sa.Connection) -> int | None:
    """The version of the schema; None: there are no tables."""
    if not sa.inspect(connection).has_table(SCHEMA_VERSION.name):
        return None
    query = sa.select(sa.func.max(SCHEMA_VERSION.c.version))
    return int(connection.execute(query).scalar_one())


def name_of(engine: sa.Engine) -> str:
    """The database in words, without its secrets."""
    return engine.url.render_as_string(hide_password=True)


def _prepare(connection: sa.Connection, engine: sa.Engine) -> None:
    """Makes the tables, or brings older ones forward, within the writer's transaction."""
    found = version_of(connection)
    if found is None:
        METADATA.create_all(connection)
        connection.execute(sa.insert(SCHEMA_VERSION).values(version=VERSION))
        return
    if found > VERSION:
        raise ScoreDatabaseError(_other_version(engine, found))
    for version in range(found, VERSION):
        MIGRATIONS[version](connection)
        connection.execute(sa.update(SCHEMA_VERSION).values(version=version + 1))


def _other_version(engine: sa.Engine, found: int) -> str:
    step = "the next tick brings it forward" if found < VERSION else "use the release that wrote it"
    return f"score database {name_of(engine)}: schema {found}, this program has {VERSION}; {step}"


def _is_absent(engine: sa.Engine) -> bool:
    """Whether a SQLite file is still to be made: a reader must not make it."""
    file = engine.url.database
    return engine.dialect.name == "sqlite" and bool(file) and not Path(str(file)).exists()


@contextmanager
def _explained(engine: sa.Engine) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or error).strip().splitlines()[0][:200]
        is_broken = any(words in said for words in ("not a database", "malformed"))
        step = (
            "Move the file away: it is made again from the published files."
            if is_broken
            else "Published files are not touched by this; the next tick writes what is missing."
        )
        raise ScoreDatabaseError(f"score database {name_of(engine)}: {said}. {step}") from error


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where we say
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        # This statement alone does not wait: of several that make the file, one gets through.
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
    # A crash of the machine may take the last ticks; the published folder has them.
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin_sqlite(connection: sa.Connection) -> None:
    is_writer = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")
