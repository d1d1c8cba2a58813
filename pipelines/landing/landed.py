"""Landing: what sources gave, kept once by content, visible whole or not at all.

A reading (the content of a file, a window of a server) becomes part files and one transaction of
the journal; a crash leaves the old state, and what it left behind is removed. What the rows mean
is not known here, and how a source is read is in `pipelines.sources`.
"""

import fcntl
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from features.contracts import TableContract
from features.raw_tables import (
    RAW_COVERAGE,
    RAW_GPU_TELEMETRY,
    RAW_INVENTORY,
    RAW_JOB_LOG,
    RAW_JOB_OUTPUT,
    RAW_KERNEL_LOG,
    RAW_NODE_STATES,
    RAW_TRAINING_METRICS,
)
from features.tables import CORE_MAINTENANCE, CORE_TOPOLOGY
from pipelines.landing.floor import floors_of
from pipelines.landing.forgotten import forgotten_of
from pipelines.landing.journal import Landed, LandingJournal, Part, Reading
from pipelines.landing.schema import LandingError, landing_errors
from pipelines.sources.result import SourceResult
from pipelines.storage.store import Span
from pipelines.storage.table_files import write_table

LANDED_TABLES: Final[Mapping[str, TableContract]] = {
    table.asset_key: table
    for table in (
        RAW_GPU_TELEMETRY,
        RAW_KERNEL_LOG,
        RAW_JOB_LOG,
        RAW_NODE_STATES,
        RAW_INVENTORY,
        RAW_JOB_OUTPUT,
        RAW_TRAINING_METRICS,
        RAW_COVERAGE,
        CORE_TOPOLOGY,
        CORE_MAINTENANCE,
    )
}
"""Tables that grow; a site's own records of stays, places and plans are read whole each time."""

COUNTED_TABLES: Final = frozenset({RAW_KERNEL_LOG.asset_key})
"""Tables in which equal rows of one reading are so many events: a line written 40 times counts 40.

Two readings that overlap hold the same lines, so each row counts as often as in the reading that
has it most often. In the other tables an equal row is a repetition and counts once.
"""

PART_ROWS: Final = 400_000
"""Rows gathered before a part file is written: 30 to 100 MB of memory."""

_READING: Final = "_reading"
_KEYS: Final = {RAW_GPU_TELEMETRY.asset_key: ("ts", "gpu_uuid", "source")}
"""Columns that nearly name a row, for tables that are large."""
_READ_TRIES: Final = 3
_EVER: Final = Span(datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))


@dataclass
class _Open:
    """A reading under way: its account and the digest of its rows by table and hour."""

    reading: Reading
    landed_at: datetime
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    refusals: list[dict[str, Any]] = field(default_factory=list)
    hours: dict[tuple[str, datetime], tuple[int, int]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    n_rows: int = 0


class Landing:
    """The landed rows of one installation.

    Args:
        root: Folder of parts and journal; made on the first write.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.journal = LandingJournal(root / "journal.sqlite")

    @contextmanager
    def writer(self) -> Iterator["LandingWriter"]:
        """Opens the landing for writing; what was added is committed at the latest at the end.

        Raises:
            LandingError: Another process is writing; the disk is full, may not be written, or what
                it holds is damaged.
        """
        with landing_errors(self._root):
            self._root.mkdir(parents=True, exist_ok=True)
            lock = (self._root / "writer.lock").open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LandingError(
                    f"{self._root}: another process is ingesting. Let it end, or stop it; what it "
                    f"has committed stays."
                ) from error
            with landing_errors(self._root / "parts"):
                self._match_parts()
            writer = LandingWriter(self._root, self.journal)
            try:
                yield writer
            finally:
                writer.commit()

    def read(self, contract: TableContract, *, span: Span | None = None) -> pl.DataFrame:
        """The table's rows, in an order that depends on nothing but the rows.

        Args:
            contract: One of `LANDED_TABLES`.
            span: Only rows whose time lies in it; None: all, with those that have no time.

        Returns:
            Rows that hold the contract; the same however the input was cut, repeated, overlapped
            or delayed.

        Raises:
            LandingError: A part is lost or damaged.
        """
        return _joined(contract, self._asked(contract, span, lambda rows: rows))

    def count(self, contract: TableContract, *, span: Span | None = None) -> int:
        """How many rows the table has in a span, repetitions of overlapping readings included."""
        counts = self._asked(contract, span, lambda rows: rows.select(pl.len()))
        return sum(count.item() for count in counts)

    def outside(self, contract: TableContract, record: Span) -> list[tuple[int, str]]:
        """Number of landed rows before a record and after it, as in `count`, and one of each."""
        found = []  # of years before the record, which a site may land, no row more is read
        for edge in (Span(_EVER.start, record.start), Span(record.end, _EVER.end)):
            heads = self._asked(contract, edge, lambda rows: rows.head(1))
            first = next((head.drop(_READING).row(0) for head in heads if head.height), "")
            found.append((self.count(contract, span=edge), str(first)))
        return found

    def whole_since(self, contract: TableContract) -> datetime | None:
        """Since when nothing was removed of a table by its age; None: always."""
        return floors_of(self._root).get(contract.asset_key)

    def _asked(
        self,
        contract: TableContract,
        span: Span | None,
        what: Callable[[pl.LazyFrame], pl.LazyFrame],
    ) -> list[pl.DataFrame]:
        """What is asked of each part of a table."""
        tries_left = _READ_TRIES
        while parts := self.journal.parts(contract.asset_key, span):
            try:
                return [what(self._scan(contract, *part, span=span)).collect() for part in parts]
            except (PolarsError, OSError) as error:
                # A part was replaced between looking and reading; the journal knows the new one.
                tries_left -= 1
                if not tries_left:
                    raise LandingError(
                        f"{self._root / 'parts'}: a part is lost or damaged: "
                        f"{str(error).splitlines()[0]}. Remove it where it is still there, and "
                        f"run forewarn ingest: what it held is read again."
                    ) from error
        return []

    def _scan(
        self, contract: TableContract, path: str, live: tuple[str, ...], *, span: Span | None
    ) -> pl.LazyFrame:
        lazy = pl.scan_parquet(self._root / "parts" / path)
        if span and contract.time_column:
            time = pl.col(contract.time_column)
            lazy = lazy.filter((time >= span.start) & (time < span.end))
        if live:
            lazy = lazy.filter(pl.col(_READING).is_in(list(live)))
        return lazy

    def _match_parts(self) -> None:
        """Removes part files that a crash left without a reading, and readings without their part.

        What a part held that somebody removed by hand is read again, where it is still to be had.
        """
        folder = self._root / "parts"
        known, there = self.journal.part_paths(), set()
        for path in folder.glob("*/*/*"):
            there.add(name := str(path.relative_to(folder)))
            if name not in known:
                path.unlink()
        self.journal.forget_parts(known - there)


class LandingWriter:
    """Adds readings; made by `Landing.writer`.

    Args:
        root: Folder of the landing.
        journal: Its journal.
    """

    def __init__(self, root: Path, journal: LandingJournal) -> None:
        self._root = root
        self._journal = journal
        self._forgotten = forgotten_of(root)
        self._done: list[_Open] = []

    def has(self, reading_id: str) -> bool:
        """Whether a reading has landed or been added."""
        added = (item.reading.reading_id for item in self._done)
        return reading_id in added or self._journal.has(reading_id)

    def add(
        self, reading: Reading, chunks: Iterable[SourceResult], *, landed_at: datetime
    ) -> tuple[int, int, int, int]:
        """Lands one reading.

        Args:
            reading: Its name, and what it supersedes.
            chunks: What the source gives, in order; taken one at a time.
            landed_at: When it is read.

        Returns:
            Records read, parsed, skipped and quarantined.

        Raises:
            SourceError: The source cannot be read on; nothing of the reading is kept.
        """
        if sum(item.n_rows for item in self._done) >= PART_ROWS // 4:
            self.commit()
        under_way = _Open(reading, landed_at)
        try:
            for chunk in chunks:
                self._take(under_way, chunk)
                if under_way.n_rows >= PART_ROWS:
                    self._flush(under_way)
        except BaseException:
            for part in under_way.parts:
                (self._root / "parts" / part.path).unlink(missing_ok=True)
            raise
        self._done.append(under_way)
        read, parsed, skipped, quarantined = under_way.counts
        return read, parsed, skipped, quarantined

    def commit(self) -> None:
        """Makes everything added so far visible."""
        if not self._done:
            return
        parts = [part for item in self._done for part in item.parts]
        small = [item for item in self._done if item.frames]
        for table in sorted({table for item in small for table in item.frames}):
            frames = [frame for item in small for frame in item.frames.get(table, ())]
            readings = tuple(i.reading.reading_id for i in small if table in i.frames)
            parts.append(self._write(table, frames, readings=readings, name=f"{readings[0]}-rest"))
        landed = [
            Landed(item.reading, item.landed_at, _four(item.counts), item.refusals, _words(item))
            for item in self._done
        ]
        self._done = []
        for path in self._journal.commit(landed, parts):
            (self._root / "parts" / path).unlink(missing_ok=True)

    def _take(self, under_way: _Open, chunk: SourceResult) -> None:
        """Holds a chunk against the contracts and keeps its rows and its account."""
        for name, count in zip(
            ("n_read", "n_parsed", "n_skipped", "n_quarantined"), range(4), strict=True
        ):
            under_way.counts[count] += int(chunk.reads[name].sum())
        under_way.refusals += self._forgotten.without_examples(chunk.quarantine).to_dicts()
        for table, frame in chunk.tables.items():
            contract = LANDED_TABLES.get(table)
            if contract is None or frame.is_empty():
                continue
            enforced = contract.enforce(self._forgotten.without(table, frame))
            origin = {"table": table, "source": "contract", "origin": under_way.reading.origin}
            under_way.refusals += [origin | row for row in enforced.rejects.iter_rows(named=True)]
            _digest(under_way.hours, contract, enforced.frame)
            marked = enforced.frame.with_columns(
                pl.lit(under_way.reading.reading_id).alias(_READING)
            )
            under_way.frames.setdefault(table, []).append(marked)
            under_way.n_rows += marked.height

    def _flush(self, under_way: _Open) -> None:
        """Writes what a long reading has gathered; nobody sees it before the commit."""
        reading_id = under_way.reading.reading_id
        name = f"{reading_id}-{len(under_way.parts):05}"
        for table, frames in under_way.frames.items():
            under_way.parts.append(self._write(table, frames, readings=(reading_id,), name=name))
        under_way.frames, under_way.n_rows = {}, 0

    def _write(
        self, table: str, frames: list[pl.DataFrame], *, readings: tuple[str, ...], name: str
    ) -> Part:
        frame = pl.concat(frames)
        first = last = None
        if column := LANDED_TABLES[table].time_column:
            times = frame[column]
            first, last = times.min(), times.max()
            frame = frame.sort(column, maintain_order=True)
        path = f"{table}/{name}.parquet"
        with landing_errors(self._root / "parts"):
            write_table(self._root / "parts" / path, frame, sync=True)
        return Part(path, table, first, last, readings)  # type: ignore[arg-type]  # a time column


def reading_id(*, how: str, what: str) -> str:
    """Names a reading.

    Args:
        how: The way it is read: kind of input and its options.
        what: What is read: the hash of a file, or a window of time.
    """
    return hashlib.sha256(f"{how}\n{what}".encode()).hexdigest()[:32]


def _digest(
    hours: dict[tuple[str, datetime], tuple[int, int]], contract: TableContract, frame: pl.DataFrame
) -> None:
    """Adds rows to the digest of their hours: equal digests, equal rows, in any order.

    The hash is that of the installed polars; another release can only see changes where none
    are, which costs work, not truth.
    """
    if contract.time_column is None:
        return
    rows = frame.select(
        hour=pl.col(contract.time_column).dt.truncate("1h"),
        hash=frame.drop("ingested_at").hash_rows(seed=1),
    ).drop_nulls("hour")
    sums = rows.group_by("hour").agg(pl.len(), pl.col("hash").sum())
    for hour, count, total in sums.iter_rows():
        n, digest = hours.get((contract.asset_key, hour), (0, 0))
        hours[contract.asset_key, hour] = (n + count, (digest + total) % 2**64)


def _words(item: _Open) -> dict[tuple[str, datetime], str]:
    return {key: f"{count}-{digest:016x}" for key, (count, digest) in item.hours.items()}


def _four(counts: list[int]) -> tuple[int, int, int, int]:
    read, parsed, skipped, quarantined = counts
    return read, parsed, skipped, quarantined


def _joined(contract: TableContract, frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Rows of all parts without the repetitions of overlapping readings, in canonical order."""
    marked = contract.empty().with_columns(pl.lit(None, pl.String).alias(_READING))
    frame = pl.concat([marked, *frames])
    same = [name for name in contract.schema.names() if name != "ingested_at"]
    if contract.asset_key in COUNTED_TABLES:
        return contract.conform(_sorted(_counted(frame, same)))
    key = list(_KEYS.get(contract.asset_key, ()))
    if not key:
        return contract.conform(_sorted(_unique(frame, same)))
    # Comparing and sorting forty columns is slow: only rows that share their key need it.
    is_shared = frame.select(pl.struct(key).is_duplicated()).to_series()
    shared = _sorted(_unique(frame.filter(is_shared), same))
    alone = frame.filter(~is_shared).drop(_READING)
    return contract.conform(pl.concat([alone, shared]).sort(key, maintain_order=True))


def _counted(frame: pl.DataFrame, same: list[str]) -> pl.DataFrame:
    """Each row as often as in the reading that has it most often."""
    if frame[_READING].n_unique() <= 1:
        return frame.drop(_READING)
    in_reading = frame.group_by([*same, _READING]).agg(
        pl.len().alias("_n"), pl.col("ingested_at").min()
    )
    once = in_reading.group_by(same).agg(pl.col("_n").max(), pl.col("ingested_at").min())
    copies = once.select(pl.all().exclude("_n").repeat_by("_n"))
    return copies.explode(copies.columns).select([*same, "ingested_at"])


def _unique(frame: pl.DataFrame, same: list[str]) -> pl.DataFrame:
    """Each row once, with the time of its first reading."""
    rows = frame.drop(_READING)
    if "ingested_at" in rows.columns:
        rows = rows.sort("ingested_at", maintain_order=True)
    return rows.unique(same, keep="first", maintain_order=True)


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows by all that can be sorted by, and only last by when they were read: no order shows."""
    flat = [name for name, dtype in frame.schema.items() if not dtype.is_nested()]
    by = sorted(flat, key=lambda name: (name == "ingested_at", name))
    return frame.sort(by, nulls_last=True, maintain_order=True)
