"""Compaction of what has landed: many small parts become one per day or month of a table.

A reader sees the same rows before and after: the journal moves from old parts to new ones in one
transaction, and a reader that had listed the old ones looks again. A kill leaves part files that
the journal does not know; the next writer removes them. All of this is done as the landing's
writer, so nothing lands meanwhile. How rows grow old is in `pipelines.landing.rows`, how long they
are kept in `pipelines.retention.chores`.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
from polars.exceptions import PolarsError

from features.raw_tables import RAW_COVERAGE, RAW_INVENTORY
from pipelines.landing.landed import LANDED_TABLES, PART_ROWS
from pipelines.landing.rows import (
    OPEN,
    ROW_AGE,
    RowAge,
    bucket_end,
    bucket_of,
    once,
    still_open,
    without_repeated_sights,
)
from pipelines.landing.schema import LandingError, landing_errors, open_journal
from pipelines.storage.table_files import write_table

_READING: Final = "_reading"
_SETTLED: Final = timedelta(days=2)
"""Younger parts wait: windows that are asked for again still replace them."""
_SUPERSEDED_FOR: Final = timedelta(days=8)
"""Answers of servers are superseded for a week at most (`late_hours`)."""
_LARGE: Final[Mapping[str, int]] = {
    "day": PART_ROWS // 2,
    "month": 4_000_000,
    "whole": 4_000_000,
}
"""Rows from which on a part is left alone: merging samples and lines saves nothing; what servers
repeat shrinks when it lies together, as far as it fits into memory."""
_BATCH_ROWS: Final = 1_000_000
_MOST_DAYS: Final = 3
_LAST_LOOK: Final = (timedelta(days=9), timedelta(days=12))
"""Ages of a month at which it is folded once more: by now all of its answers are settled."""
_REPEATS: Final = frozenset(
    key for key, age in ROW_AGE.items() if age.unit != "day" or key == RAW_COVERAGE.asset_key
)
"""Tables of which answers of servers repeat what earlier ones said."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LandedPart:
    """A part file as the journal knows it.

    Attributes:
        path: File, relative to the folder of the parts.
        first: Earliest time of its rows; None: unknown.
        last: Latest time of its rows; None: unknown.
        has_dead_rows: Whether rows in it are superseded.
        size: Bytes; 0: the file is gone.
    """

    path: str
    first: datetime | None
    last: datetime | None
    has_dead_rows: bool
    size: int

    @property
    def days(self) -> int:
        """Days between its first and last row; 0: unknown or one day."""
        return 0 if self.first is None or self.last is None else (self.last - self.first).days

    def is_over(self, cut: datetime) -> bool:
        """Whether its rows were over before a moment, by its name or its times."""
        bucket = bucket_of(self.path)
        if bucket is not None:
            end = bucket_end(bucket)
            return end is not None and end <= cut
        return self.last is not None and self.last < cut


@dataclass(frozen=True)
class Folded:
    """What compaction did to a table.

    Attributes:
        parts_before: Parts that were replaced.
        parts_after: Parts that replaced them.
        rows_dropped: Rows that were superseded, or said nothing new.
    """

    parts_before: int = 0
    parts_after: int = 0
    rows_dropped: int = 0

    def __add__(self, other: "Folded") -> "Folded":
        return Folded(
            self.parts_before + other.parts_before,
            self.parts_after + other.parts_after,
            self.rows_dropped + other.rows_dropped,
        )


class LandingCompactor:
    """Folds parts of a landing; only while its writer's lock is held (`Landing.writer`).

    Args:
        root: Folder of the landing.
        until: Where the record ends.
        keeps_sights: Whether every sight of a device is kept: a site whose own records cut stays
            needs them.
        states_days: How long states without an end are kept that a later one ended.
    """

    def __init__(
        self, root: Path, *, until: datetime, keeps_sights: bool, states_days: int
    ) -> None:
        self._root = root
        self._until = until
        self._keeps_sights = keeps_sights
        self._states_since = until - timedelta(days=states_days)
        self._unneeded: list[str] = []

    def parts(self, table: str) -> list[LandedPart]:
        """The parts of a table; none where nothing has landed yet."""
        if not (self._root / "journal.sqlite").exists():
            return []
        with self._journal() as sql:
            rows = sql.execute(
                "SELECT path, first_us, last_us, has_dead_rows FROM parts "
                "WHERE table_key = ? ORDER BY path",
                (table,),
            ).fetchall()
        return [_part(self._root, *row) for row in rows]

    def over(self, table: str, cut: datetime) -> list[LandedPart]:
        """The parts of a table of which every row was over before a moment."""
        return [
            part
            for part in self.parts(table)
            if part.is_over(cut) and (bucket_of(part.path) or self._rows_are_over(table, part, cut))
        ]

    def foldable(self, table: str) -> list[list[LandedPart]]:
        """Groups of parts that are to become fewer."""
        age, found = ROW_AGE[table], self.parts(table)
        loose = [part for part in found if self._is_loose(part, age)]
        if age.unit == "day":
            return self._by_day(loose, found)
        return [loose] if loose else []

    def fold(self, table: str, parts: Sequence[LandedPart]) -> Folded:
        """Replaces parts, and those of the same buckets, by one each."""
        done = Folded()
        for batch in self._batches(parts):
            done += self._fold(table, batch)
        return done

    def drop(self, paths: Sequence[str]) -> None:
        """Takes parts out of the journal; the readings that they came from stay known."""
        with self._journal() as sql:
            sql.execute("BEGIN IMMEDIATE")
            sql.executemany("DELETE FROM parts WHERE path = ?", [(path,) for path in paths])
            sql.execute("COMMIT")
        self._unneeded += paths

    def remove_unneeded(self) -> None:
        """Removes the files of parts that were replaced or dropped.

        Once, at the end: a reader that has listed parts finds at most once that one is gone.
        """
        for path in self._unneeded:
            (self._root / "parts" / path).unlink(missing_ok=True)
        self._unneeded = []

    def rewrite(self, table: str, path: str, rows: pl.DataFrame) -> None:
        """Puts a part with other rows in the place of one."""
        name = bucket_of(path) or f"{Path(path).stem.partition('_')[0]}-kept"
        self._replace(table, [path], {name: rows})

    def live_rows(self, path: str) -> pl.DataFrame:
        """The rows of a part that no reading has superseded, each with its reading."""
        return self.live(path, self.rows(path))

    def rows(self, path: str) -> pl.DataFrame:
        """All rows of a part, each with its reading."""
        file = self._root / "parts" / path
        with _part_errors(file):
            return pl.read_parquet(file.read_bytes())

    def live(self, path: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of a part without those that a reading has superseded."""
        with self._journal() as sql:
            live = sql.execute("SELECT reading_id FROM part_readings WHERE path = ?", (path,))
            return rows.filter(pl.col(_READING).is_in([name for (name,) in live]))

    def landed_at(self, path: str) -> datetime | None:
        """When the latest reading of a part landed."""
        with self._journal() as sql:
            found = sql.execute(
                "SELECT MAX(landed_at) FROM readings JOIN part_readings USING (reading_id) "
                "WHERE path = ?",
                (path,),
            ).fetchone()
        return datetime.fromisoformat(found[0]) if found[0] else None

    def hours_of(self, path: str) -> set[datetime]:
        """The hours that rows of a part are of, by the column `ts`; rows without it are of none."""
        hours = self._asked(path, pl.col("ts").dt.truncate("1h"))
        return set(hours["ts"].drop_nulls().unique())

    def _rows_are_over(self, table: str, part: LandedPart, cut: datetime) -> bool:
        """By the rows: what a table is filed by is not always what says that a row was over."""
        age = ROW_AGE[table]
        if age.over == (LANDED_TABLES[table].time_column,):
            return True
        is_young = age.when().is_null() | (age.when() >= cut)
        is_open = pl.lit(value=False) if age.is_open is None else age.is_open
        return not self._asked(part.path, (is_young | is_open).any().alias("is_young")).item()

    def _asked(self, path: str, what: pl.Expr) -> pl.DataFrame:
        file = self._root / "parts" / path
        with _part_errors(file):
            return pl.scan_parquet(file).select(what).collect()

    def _is_loose(self, part: LandedPart, age: RowAge) -> bool:
        if part.has_dead_rows:
            return True
        bucket = bucket_of(part.path)
        if bucket is not None:
            end = bucket_end(bucket) if age.unit == "month" else None
            return end is not None and _LAST_LOOK[0] <= self._until - end < _LAST_LOOK[1]
        if self._n_rows(part.path) >= _LARGE[age.unit]:
            return False
        is_settled = part.last is None or part.last < self._until - _SETTLED
        return age.unit != "day" or (is_settled and part.days <= _MOST_DAYS)

    def _by_day(
        self, loose: Sequence[LandedPart], found: Sequence[LandedPart]
    ) -> list[list[LandedPart]]:
        """Loose parts by their last day, where that makes fewer of them."""
        days: dict[str, list[LandedPart]] = {}
        for part in loose:
            days.setdefault(_day(part), []).append(part)
        made = {bucket_of(part.path) for part in found}
        return [
            group
            for day, group in sorted(days.items())
            if len(group) > 1 or day in made or group[0].has_dead_rows
        ]

    def _batches(self, parts: Sequence[LandedPart]) -> Iterator[list[LandedPart]]:
        batch, n_rows = list[LandedPart](), 0
        for part in parts:
            batch.append(part)
            n_rows += self._n_rows(part.path)
            if n_rows >= _BATCH_ROWS:
                yield batch
                batch, n_rows = [], 0
        if batch:
            yield batch

    def _fold(self, table: str, parts: Sequence[LandedPart]) -> Folded:
        age = ROW_AGE[table]
        frames = [self.live_rows(part.path) for part in parts]
        n_before = sum(self._n_rows(part.path) for part in parts)
        rows = pl.concat(frames, how="diagonal").with_columns(age.bucket().alias("_bucket"))
        old = {part.path for part in parts}
        buckets = {
            str(key[0]): frame
            for key, frame in rows.partition_by("_bucket", as_dict=True, include_key=False).items()
        }
        for part in self.parts(table):
            bucket = bucket_of(part.path)
            is_large = self._n_rows(part.path) >= _LARGE[age.unit]
            if part.path in old or bucket not in buckets or is_large:
                continue
            there = self.live_rows(part.path)
            n_before += self._n_rows(part.path)
            buckets[bucket] = pl.concat([there, buckets[bucket]], how="diagonal")
            old.add(part.path)
        made = {name: self._reduced(table, name, frame) for name, frame in buckets.items()}
        self._replace(table, sorted(old), made)
        n_after = sum(frame.height for frame in made.values())
        return Folded(len(old), len(made), n_before - n_after)

    def _reduced(self, table: str, bucket: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of a bucket without those that say nothing that another does not."""
        if table in _REPEATS:
            rows = once(rows, settled=self._settled_readings())
        if table == RAW_INVENTORY.asset_key and not self._keeps_sights:
            is_old = pl.col("ts") < self._until - _SETTLED
            rows = pl.concat([without_repeated_sights(rows.filter(is_old)), rows.filter(~is_old)])
        if bucket == OPEN:
            rows = still_open(rows, before=self._states_since)
        return rows

    def _settled_readings(self) -> pl.Series:
        """Answers of servers that no later one supersedes any more."""
        before = (self._until - _SUPERSEDED_FOR - _EPOCH) // timedelta(microseconds=1)
        with self._journal() as sql:
            found = sql.execute(
                "SELECT reading_id FROM readings WHERE window_end IS NOT NULL AND window_end < ?",
                (before,),
            )
            return pl.Series([name for (name,) in found], dtype=pl.String)

    def _replace(self, table: str, old: Sequence[str], made: dict[str, pl.DataFrame]) -> None:
        """Writes the new parts, then moves the journal over to them."""
        time_column = LANDED_TABLES[table].time_column
        entries, pairs = [], []
        for bucket, frame in made.items():
            if frame.is_empty():
                continue
            readings = sorted(frame[_READING].unique())
            content = f"{sorted(old)} {frame.height} {readings}"
            digest = hashlib.sha256(content.encode()).hexdigest()[:12]
            path = f"{table}/{bucket}_{digest}.parquet"
            ordered = frame.sort(time_column, maintain_order=True) if time_column else frame
            with landing_errors(self._root / "parts"):
                write_table(self._root / "parts" / path, ordered, sync=True)
            times = frame[time_column] if time_column else pl.Series([None])
            entries.append((path, table, _micros(times.min()), _micros(times.max())))
            pairs += [(path, name) for name in readings]
        with self._journal() as sql:
            sql.execute("BEGIN IMMEDIATE")
            sql.executemany("DELETE FROM parts WHERE path = ?", [(path,) for path in old])
            sql.executemany("INSERT INTO parts VALUES (?, ?, ?, ?, 0)", entries)
            sql.executemany("INSERT INTO part_readings VALUES (?, ?)", pairs)
            sql.execute("COMMIT")
        kept = {path for path, *_ in entries}
        self._unneeded += [path for path in old if path not in kept]

    def _n_rows(self, path: str) -> int:
        return int(self._asked(path, pl.len()).item())

    @contextmanager
    def _journal(self) -> Iterator[sqlite3.Connection]:
        path = self._root / "journal.sqlite"
        with landing_errors(path), closing(open_journal(path)) as sql:
            yield sql


@contextmanager
def _part_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (PolarsError, OSError) as error:
        raise LandingError(
            f"{file} is lost or damaged: {str(error).splitlines()[0]}. Remove it where it is still "
            f"there, and run forewarn ingest: what it held is read again."
        ) from error


def _part(
    root: Path, path: str, first_us: int | None, last_us: int | None, has_dead_rows: int
) -> LandedPart:
    file = root / "parts" / path
    first, last = (
        None if us is None else _EPOCH + timedelta(microseconds=us) for us in (first_us, last_us)
    )
    size = file.stat().st_size if file.exists() else 0
    return LandedPart(path, first, last, bool(has_dead_rows), size)


def _day(part: LandedPart) -> str:
    return bucket_of(part.path) or ("undated" if part.last is None else f"{part.last:%Y-%m-%d}")


def _micros(at: object) -> int | None:
    return (at - _EPOCH) // timedelta(microseconds=1) if isinstance(at, datetime) else None
