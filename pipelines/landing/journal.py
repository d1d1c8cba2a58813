"""The journal of what has landed: readings, their part files, refusals and changed hours (SQLite).

It knows no Parquet and no source; `pipelines.landing.landed` writes the parts and calls it.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl

from features.monitoring_tables import QUARANTINE, READS
from pipelines.landing.schema import landing_errors, open_journal
from pipelines.storage.store import Span

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNUSED: Final = "path NOT IN (SELECT path FROM part_readings)"
_DROP_UNUSED: Final = f"DELETE FROM parts WHERE {_UNUSED}"  # noqa: S608 - no outside text
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Reading:
    """One piece of input: the content of a file, or a window of time of a server.

    Attributes:
        reading_id: Names the content and the way it is read; the same id is never read twice.
        input: Which input of the site's list it belongs to.
        source: Kind of source.
        origin: File or address.
        content: SHA-256 of the file's bytes; None for a server.
        size: Bytes of the file.
        stat: What the file system says of the file, to know it again without reading it.
        window: Time asked for; None for a file.
        supersedes: Readings whose rows this one holds too; they are dropped when it lands.
    """

    reading_id: str
    input: str
    source: str
    origin: str
    content: str | None = None
    size: int | None = None
    stat: str | None = None
    window: Span | None = None
    supersedes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """One Parquet file of rows of one table.

    Attributes:
        path: File, relative to the folder of the parts.
        table: Asset key.
        first: Earliest time of its rows; None: the table has no time, or no row has one.
        last: Latest time of its rows.
        readings: Ids of the readings that its rows come from.
    """

    path: str
    table: str
    first: datetime | None
    last: datetime | None
    readings: tuple[str, ...]


@dataclass(frozen=True)
class Landed:
    """A reading that is ready to be committed.

    Attributes:
        reading: The reading.
        landed_at: When it was read.
        counts: Records read, parsed, skipped and quarantined.
        refusals: Rows of `monitoring/quarantine`.
        hours: Digest of the rows of each table and hour.
    """

    reading: Reading
    landed_at: datetime
    counts: tuple[int, int, int, int]
    refusals: Sequence[Mapping[str, Any]]
    hours: Mapping[tuple[str, datetime], str]


class LandingJournal:
    """The journal of one landing.

    Args:
        path: SQLite file; made on the first use, with its folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def commit(self, landed: Sequence[Landed], parts: Sequence[Part]) -> list[str]:
        """Makes readings and their parts visible, all at once.

        Args:
            landed: Readings, in order.
            parts: Part files, already on the disk.

        Returns:
            Paths of part files that no reading needs any more.
        """
        with self._transaction() as sql:
            for item in landed:
                self._enter(sql, item)
            for part in parts:
                sql.execute(
                    "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, 0)",
                    (part.path, part.table, _micros(part.first), _micros(part.last)),
                )
                pairs = [(part.path, reading_id) for reading_id in part.readings]
                sql.executemany("INSERT INTO part_readings VALUES (?, ?)", pairs)
            unused = sql.execute(f"SELECT path FROM parts WHERE {_UNUSED}").fetchall()  # noqa: S608
            sql.execute(_DROP_UNUSED)
        return [path for (path,) in unused]

    def has(self, reading_id: str) -> bool:
        """Whether a reading has landed."""
        return bool(self._rows("SELECT 1 FROM readings WHERE reading_id = ?", reading_id))

    def readings_of(
        self, input_name: str, origin: str, *, source: str, listed: Collection[str]
    ) -> list[tuple[str, str, int]]:
        """Readings of one file: id, SHA-256 of the content and size, the longest first.

        Args:
            input_name: The input.
            origin: The file.
            source: Kind of the input.
            listed: Inputs that there are now. What one of this kind read of the file that is no
                longer listed counts as this one's: it was given another name.
        """
        rows = self._rows(
            "SELECT reading_id, content, size, input FROM readings "
            "WHERE origin = ? AND source = ? AND content IS NOT NULL ORDER BY size DESC",
            origin,
            source,
        )
        return [tuple(row) for *row, name in rows if name == input_name or name not in listed]

    def origins_of(self, input_name: str, content: str) -> list[tuple[str, str]]:
        """Readings of an input that have this content: id and origin."""
        return self._rows(
            "SELECT reading_id, origin FROM readings WHERE input = ? AND content = ?",
            input_name,
            content,
        )

    def windows_of(self, input_name: str) -> list[tuple[str, Span]]:
        """Windows of time of a server that have landed: id and window, in order of time."""
        rows = self._rows(
            "SELECT reading_id, window_start, window_end FROM readings "
            "WHERE input = ? AND window_start IS NOT NULL ORDER BY window_start, window_end",
            input_name,
        )
        return [(name, Span(_time(start), _time(end))) for name, start, end in rows]

    def parts(self, table: str, span: Span | None = None) -> list[tuple[str, tuple[str, ...]]]:
        """Part files that may hold rows of a table in a span.

        Returns:
            Path and, where some of the file's rows are no longer valid, the readings that are.
        """
        query = "SELECT path, has_dead_rows FROM parts WHERE table_key = ?"
        values: list[Any] = [table]
        if span:
            query += " AND (first_us IS NULL OR (first_us < ? AND last_us >= ?))"
            values += [_micros(span.end), _micros(span.start)]
        found = self._rows(query + " ORDER BY path", *values)
        return [(path, self._live_readings(path) if dead else ()) for path, dead in found]

    def newest(self, tables: Sequence[str], *, until: datetime) -> datetime | None:
        """Latest first or last time of a part, as far as not later than a moment; None: none is.

        Args:
            tables: Asset keys.
            until: The moment.
        """
        found = self._rows(
            "SELECT MAX(CASE WHEN last_us <= ? THEN last_us ELSE first_us END) FROM parts "  # noqa: S608 - only marks
            f"WHERE first_us <= ? AND table_key IN ({', '.join('?' * len(tables))})",
            _micros(until),
            _micros(until),
            *tables,
        )
        return _time(found[0][0]) if found and found[0][0] is not None else None

    def part_paths(self) -> set[str]:
        """Every part file that belongs to a reading."""
        return {path for (path,) in self._rows("SELECT path FROM parts")}

    def forget_parts(self, paths: Collection[str]) -> None:
        """Forgets the readings of part files that are lost, so that they are read again.

        Every file is hashed anew then: a copy of what was lost may be all that is left of it.
        """
        if not paths:
            return
        with self._transaction() as sql:
            for path in sorted(paths):
                sql.execute(
                    "UPDATE parts SET has_dead_rows = 1 WHERE path IN (SELECT a.path FROM "
                    "part_readings a JOIN part_readings b USING (reading_id) WHERE b.path = ?)",
                    (path,),
                )
                sql.execute(
                    "DELETE FROM readings WHERE reading_id IN "
                    "(SELECT reading_id FROM part_readings WHERE path = ?)",
                    (path,),
                )
            sql.execute(_DROP_UNUSED)
            sql.execute("DELETE FROM files")

    def reads(self) -> pl.DataFrame:
        """`monitoring/reads` of everything that has landed."""
        return self._frame(
            "SELECT source, origin, SUM(n_read) AS n_read, SUM(n_parsed) AS n_parsed, "
            "SUM(n_skipped) AS n_skipped, SUM(n_quarantined) AS n_quarantined "
            "FROM readings GROUP BY source, origin ORDER BY source, origin",
            READS.schema,
        )

    def refusals(self) -> pl.DataFrame:
        """`monitoring/quarantine` of everything that has landed, and inputs that failed whole."""
        return self._frame(
            'SELECT table_key AS "table", source, origin, rule, SUM(count) AS count, '
            "MIN(example) AS example FROM refusals GROUP BY table_key, source, origin, rule "
            "UNION ALL SELECT '(unread)', source, origin, 'input could not be read', 1, "
            "error FROM failures ORDER BY 2, 3, 1, 4",
            QUARANTINE.schema,
        )

    def changed_hours(self, table: str) -> dict[datetime, int]:
        """Hour to the generation of the reading that last changed what the table holds of it."""
        rows = self._rows(
            "SELECT hour_us, generation FROM changed_hours WHERE table_key = ? ORDER BY hour_us",
            table,
        )
        return {_time(hour): generation for hour, generation in rows}

    def generation(self) -> int:
        """Number of the latest reading; 0: nothing has landed."""
        found = self._rows("SELECT MAX(generation) FROM readings")
        return int(found[0][0] or 0) if found else 0

    def note_failure(
        self, *, input_name: str, source: str, origin: str, at: datetime, error: str
    ) -> None:
        """Keeps that an input could not be read, until it can."""
        with self._transaction() as sql:
            sql.execute(
                "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)",
                (input_name, origin, source, at.isoformat(), error),
            )

    def forget_failures(self, input_name: str, *, but: Collection[str]) -> None:
        """Forgets that files of an input could not be read, but for some origins."""
        noted = self._rows("SELECT origin FROM failures WHERE input = ?", input_name)
        over = [(input_name, origin) for (origin,) in noted if origin not in but]
        if over:
            with self._transaction() as sql:
                sql.executemany("DELETE FROM failures WHERE input = ? AND origin = ?", over)

    def note_stat(self, input_name: str, origin: str, stat: str) -> None:
        """Keeps what the file system says of a file whose content has landed."""
        with self._transaction() as sql:
            sql.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (input_name, origin, stat))

    def stat_of(self, input_name: str, origin: str) -> str | None:
        """What the file system said of a file when its content landed."""
        found = self._rows(
            "SELECT stat FROM files WHERE input = ? AND origin = ?", input_name, origin
        )
        return str(found[0][0]) if found else None

    def _enter(self, sql: sqlite3.Connection, item: Landed) -> None:
        reading, window = item.reading, item.reading.window
        before = self._drop_superseded(sql, reading.supersedes)
        cursor = sql.execute(
            "INSERT INTO readings (reading_id, input, source, origin, landed_at, content, size, "
            "window_start, window_end, n_read, n_parsed, n_skipped, n_quarantined) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                reading.reading_id,
                reading.input,
                reading.source,
                reading.origin,
                item.landed_at.isoformat(),
                reading.content,
                reading.size,
                _micros(window.start) if window else None,
                _micros(window.end) if window else None,
                *item.counts,
            ),
        )
        hours = {(table, _micros(hour)): digest for (table, hour), digest in item.hours.items()}
        sql.executemany(
            "INSERT INTO reading_hours VALUES (?, ?, ?, ?)",
            [(reading.reading_id, *key, digest) for key, digest in hours.items()],
        )
        changed = [key for key in hours.keys() | before.keys() if hours.get(key) != before.get(key)]
        sql.executemany(
            "INSERT OR REPLACE INTO changed_hours VALUES (?, ?, ?)",
            [(*key, cursor.lastrowid) for key in sorted(changed)],
        )
        names = ("table", "source", "origin", "rule", "count", "example")
        sql.executemany(
            "INSERT INTO refusals VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(reading.reading_id, *(row[name] for name in names)) for row in item.refusals],
        )
        place = (reading.input, reading.origin)
        if reading.stat:
            sql.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (*place, reading.stat))
        sql.execute("DELETE FROM failures WHERE input = ? AND origin = ?", place)

    def _drop_superseded(
        self, sql: sqlite3.Connection, reading_ids: Sequence[str]
    ) -> dict[tuple[str, int | None], str]:
        """Takes readings out; returns the digests of their hours, to see what really changed."""
        before: dict[tuple[str, int | None], str] = {}
        for reading_id in reading_ids:
            rows = sql.execute(
                "SELECT table_key, hour_us, digest FROM reading_hours WHERE reading_id = ?",
                (reading_id,),
            )
            before |= {(table, hour): digest for table, hour, digest in rows}
            sql.execute(
                "UPDATE parts SET has_dead_rows = 1 WHERE path IN "
                "(SELECT path FROM part_readings WHERE reading_id = ?)",
                (reading_id,),
            )
            sql.execute("DELETE FROM readings WHERE reading_id = ?", (reading_id,))
        return before

    def _live_readings(self, path: str) -> tuple[str, ...]:
        rows = self._rows("SELECT reading_id FROM part_readings WHERE path = ? ORDER BY 1", path)
        return tuple(reading_id for (reading_id,) in rows)

    def _frame(self, query: str, schema: pl.Schema) -> pl.DataFrame:
        return pl.DataFrame(self._rows(query), schema=schema, orient="row")

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with landing_errors(self._path):
            if not self._path.exists():
                return []
            with closing(open_journal(self._path)) as sql:
                return sql.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with landing_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(open_journal(self._path)) as sql:
                # Closing takes back what was not committed, also where the disk is full.
                sql.execute("BEGIN IMMEDIATE")
                yield sql
                sql.execute("COMMIT")


def _micros(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // _MICROSECOND


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
