"""Which versions of our own stores lie on disk, and what this release does with each of them.

Older stores are brought forward by those who open them; here they are only looked at. How to go
forward and back is in docs/upgrade.md.
"""

import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import polars as pl
import sqlalchemy as sa
from polars.exceptions import PolarsError

from features.contracts import TableContract
from features.errors import ForewarnError
from features.tables import CORE_GPU_TELEMETRY, TABLES
from pipelines.flow.publish import LATEST, SCHEMA_VERSION
from pipelines.landing.schema import VERSION as LANDING_VERSION
from pipelines.serving import score_schema
from pipelines.serving.place import score_engine
from pipelines.settings import Settings
from pipelines.storage.object_paths import Place
from pipelines.storage.store import TableStore
from remediation.hook_settings import HookSettings
from remediation.lease.sqlite import VERSION as LEASE_VERSION
from remediation.ledger.sqlite import MIGRATIONS as LEDGER_MIGRATIONS
from remediation.ledger.sqlite import VERSION as LEDGER_VERSION

Standing = Literal["absent", "same", "older", "newer", "unreadable"]

_FORWARD: Final = "it is brought forward when it is next opened"
_BACK: Final = "this release refuses it and changes nothing"
_CLOSED: Final = "run it as the account that it belongs to, and see what holds it"
_JOURNAL: Final = "journal.sqlite"


@dataclass(frozen=True)
class StoredVersion:
    """One store beside what this release expects.

    Attributes:
        what: The store.
        place: Where it is.
        state: How it stands to this release.
        found: Its version, or what else tells; empty: there is none.
        expected: The version of this release.
        then: What this release does with it; empty where it just uses it.
    """

    what: str
    place: str
    state: Standing
    found: str = ""
    expected: str = ""
    then: str = ""

    def words(self) -> str:
        """It in one line."""
        if self.state == "absent":
            return f"{self.what} {self.place}: not there yet"
        if self.state == "same":
            return f"{self.what} {self.place}: {self.found}"
        return f"{self.what} {self.place}: {self.found}, expected {self.expected}; {self.then}"


def stored_versions(
    settings: Settings, hook: HookSettings | None = None
) -> tuple[StoredVersion, ...]:
    """Looks at every store of an installation; nothing is changed or made.

    Args:
        settings: The installation.
        hook: The hook, whose ledger and lease are looked at too.
    """
    ledgers = {settings.ledger_path}
    if hook is not None and hook.ledger.postgres_variable is None:
        ledgers.add(hook.ledger_file)
    found = [
        _score_database(settings),
        _sqlite("landing journal", settings.landing_root / _JOURNAL, LANDING_VERSION, ()),
        *(
            _sqlite("ledger", path, LEDGER_VERSION, tuple(LEDGER_MIGRATIONS))
            for path in sorted(ledgers)
        ),
        _published(settings.scores_dir / LATEST),
        *_tables(TableStore(settings.store_root)),
        *_hourly_telemetry(TableStore(settings.store_root)),
    ]
    if hook is not None and hook.ledger.postgres_variable is None:
        found.append(_sqlite("lease", hook.state / "lease.sqlite", LEASE_VERSION, (0,)))
    return tuple(found)


def _numbered(what: str, place: str, found: int, expected: int, can_go: bool) -> StoredVersion:  # noqa: FBT001
    if found == expected:
        return StoredVersion(what, place, "same", f"version {found}", str(expected))
    state: Standing = "older" if found < expected else "newer"
    then = _FORWARD if can_go else _BACK
    return StoredVersion(what, place, state, f"version {found}", str(expected), then)


def _sqlite(what: str, path: Path, expected: int, migrates: tuple[int, ...]) -> StoredVersion:
    """The `user_version` of a SQLite file, which is opened for reading only."""
    if not path.exists():
        return StoredVersion(what, str(path), "absent", expected=str(expected))
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            found = int(file.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        # Only the last is a damaged file; the first may be another account's, or in use.
        is_closed = isinstance(error, sqlite3.OperationalError)
        then = _CLOSED if is_closed else "put it back from a backup"
        return StoredVersion(what, str(path), "unreadable", str(error), str(expected), then)
    return _numbered(what, str(path), found, expected, found in migrates)


def _score_database(settings: Settings) -> StoredVersion:
    what, expected = "score database", score_schema.VERSION
    place = settings.score_database.url or str(settings.data_root / "scores.db")
    try:
        engine = score_engine(settings)
        place = score_schema.name_of(engine)
        file = engine.url.database
        if engine.dialect.name == "sqlite" and not Path(str(file)).exists():
            return StoredVersion(what, place, "absent", expected=str(expected))
        try:
            with engine.connect() as connection:
                found = score_schema.version_of(connection)
        finally:
            engine.dispose()
    except (ForewarnError, sa.exc.SQLAlchemyError) as error:
        said = str(getattr(error, "orig", None) or error).strip().split("\n", 1)[0][:200]
        then = "see that it can be reached"
        return StoredVersion(what, place, "unreadable", said, f"version {expected}", then)
    if found is None:
        return StoredVersion(what, place, "absent", expected=str(expected))
    return _numbered(what, place, found, expected, found in score_schema.MIGRATIONS)


def _published(path: Path) -> StoredVersion:
    what = "published scores"
    try:
        found = int(json.loads(path.read_bytes())["schema"])
    except FileNotFoundError:
        return StoredVersion(what, str(path), "absent", expected=str(SCHEMA_VERSION))
    except (OSError, ValueError, KeyError, TypeError) as error:
        then = "the next tick writes it anew"
        return StoredVersion(what, str(path), "unreadable", str(error), str(SCHEMA_VERSION), then)
    return _numbered(what, str(path), found, SCHEMA_VERSION, can_go=False)


def _tables(store: TableStore) -> Iterator[StoredVersion]:
    """Tables whose newest file has other columns than their contract; one line if all have."""
    n_seen, others = 0, []
    for table in TABLES:
        files = [] if table is CORE_GPU_TELEMETRY else store.files(table)
        if not files:
            continue
        n_seen += 1
        if (other := _other_columns(table, files[-1])) is not None:
            others.append(other)
    yield from others
    if n_seen > len(others):
        words = f"{n_seen - len(others)} as their contracts say"
        yield StoredVersion("tables", str(store.root), "same", words)


def _hourly_telemetry(store: TableStore) -> Iterator[StoredVersion]:
    """Telemetry in files of an hour each, as it was before it was packed; nobody reads those."""
    folder = store.folder(CORE_GPU_TELEMETRY)
    n_files = sum(1 for _ in folder.glob("*T*.parquet"))
    if n_files:
        yield StoredVersion(
            CORE_GPU_TELEMETRY.asset_key,
            str(folder),
            "older",
            f"{n_files} files of an hour each",
            "folders by day",
            f"materialise {CORE_GPU_TELEMETRY.asset_key} again, then remove these files",
        )


def _other_columns(table: TableContract, file: Place) -> StoredVersion | None:
    try:
        found = set(pl.read_parquet_schema(io.BytesIO(file.read_bytes())))
    except (OSError, PolarsError) as error:
        said = str(error).split("\n", 1)[0][:200]
        then = "materialise its partition again"
        return StoredVersion(table.asset_key, str(file), "unreadable", said, "Parquet", then)
    known = set(table.schema)
    needed = {column.name for column in table.columns if not column.is_optional}
    if more := sorted(found - known if table.extra_dtype is None else ()):
        return _of_columns(table, file, "newer", more, _BACK)
    if missing := sorted(needed - found):
        then = f"materialise {table.asset_key} again"
        return _of_columns(table, file, "older", [f"no {name}" for name in missing], then)
    return None


def _of_columns(
    table: TableContract, file: Place, state: Standing, columns: list[str], then: str
) -> StoredVersion:
    words = f"columns {', '.join(columns)}"
    return StoredVersion(table.asset_key, str(file), state, words, "those of its contract", then)
