"""The Parquet store: one folder per table, one immutable file per partition, replaced atomically.

No Dagster and no knowledge of what a table means; contracts come from `features.tables`. Hours
that were compacted lie in one file per day (`pipelines.storage.day_files`). GPU telemetry, by far
the largest, has a layout of its own in `pipelines.storage.telemetry.store`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from features.contracts import REJECT_SCHEMA, Enforced, TableContract
from features.errors import DataError, StructureError
from features.monitoring_tables import QUARANTINE
from features.tables import CORE_GPU_TELEMETRY
from pipelines.storage.day_content import day_generations, read_day, write_day
from pipelines.storage.day_files import day_file_of, hours_in, is_day_file, valid_names
from pipelines.storage.file_metadata import metadata_of
from pipelines.storage.object_paths import LAST_NAME, Place, at_once, files_between, read_all
from pipelines.storage.table_files import GENERATION, read_file, read_files, write_table
from pipelines.storage.telemetry.layout import locked
from pipelines.storage.telemetry.store import TelemetryStore

_HOUR: Final = timedelta(hours=1)
_STEP: Final = {"hour": _HOUR, "day": timedelta(days=1)}
_NAME: Final = {"hour": "%Y-%m-%dT%H.parquet", "day": "%Y-%m-%d.parquet"}
_WHOLE: Final = "all.parquet"
_OURS: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d|-[0-9a-f]{6})?\.parquet|all\.parquet")
"""Names of a table's files; a copy that somebody put beside one would double its rows."""
_DAY: Final = len("2026-01-05")
_READ_TRIES: Final = 3
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Span:
    """A half-open stretch of time, UTC.

    Attributes:
        start: First moment, inclusive.
        end: Last moment, exclusive.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        """Refuses naive times and empty spans."""
        if self.start.utcoffset() is None or self.end.utcoffset() is None:
            raise DataError(f"span {self.start}..{self.end} has no time zone; pass UTC times")
        if self.start >= self.end:
            raise DataError(
                f"span {self.start}..{self.end} is empty; its end must be after its start"
            )

    def steps(self, step: timedelta) -> Iterator["Span"]:
        """Cuts the span into consecutive parts of length `step`."""
        at = self.start
        while at < self.end:
            yield Span(at, at + step)
            at += step


@dataclass(frozen=True)
class Written:
    """What a write did.

    Attributes:
        rows: Rows stored.
        rejected: Rows refused by the contract.
        files: Files written.
    """

    rows: int
    rejected: int
    files: int


class TableStore:
    """Tables under one root folder, each enforced by its contract when written.

    Args:
        root: Folder of the store, on this machine or in a bucket; made on the first write.
    """

    def __init__(self, root: Place) -> None:
        self.root = root

    @property
    def telemetry(self) -> TelemetryStore:
        """Where core/gpu_telemetry is kept, in a layout of its own."""
        return TelemetryStore(self.folder(CORE_GPU_TELEMETRY))

    def folder(self, contract: TableContract) -> Place:
        """Where a table's files lie."""
        return self.root / contract.asset_key

    def write(
        self,
        contract: TableContract,
        frame: pl.DataFrame,
        *,
        span: Span | None = None,
        generation: int | None = None,
    ) -> Written:
        """Holds a frame against its contract and replaces the partitions of `span` with it.

        Args:
            contract: The table.
            frame: Its rows; rows that break a rule go to the quarantine table.
            span: Whole partitions to replace, also those that get no row. Required for a
                partitioned table; an unpartitioned one is replaced whole.
            generation: Number of the latest reading that the rows rest on, kept in the files.

        Returns:
            Counts of what was stored and refused.

        Raises:
            StructureError: Columns or types differ from the contract; nothing is written.
            DataError: The span is missing, not whole partitions, or does not cover a row.
        """
        enforced = contract.enforce(frame)
        if contract.partition != "none":
            enforced = _without_unknown_time(contract, enforced)
            span = _whole_partitions(contract, enforced.frame, span)
        n_files = self._write_files(contract, enforced.frame, span=span, generation=generation)
        name = contract.asset_key.replace("/", "-")
        when = f"-{span.start:%Y%m%dT%H}-{span.end:%Y%m%dT%H}" if span else ""
        rejects = enforced.rejects.with_columns(
            table=pl.lit(contract.asset_key), source=pl.lit("contract"), origin=pl.lit(name + when)
        )
        self.keep_part(QUARANTINE, f"contract-{name}{when}", rejects)
        return Written(enforced.frame.height, int(enforced.rejects["count"].sum()), n_files)

    def _write_files(
        self,
        contract: TableContract,
        frame: pl.DataFrame,
        *,
        span: Span | None,
        generation: int | None,
    ) -> int:
        if span and _is_telemetry(contract):
            start, end = span.start, span.end
            return self.telemetry.write(frame, start=start, end=end, generation=generation or 0)
        folder = self.folder(contract)
        if span is None or contract.partition != "hour":
            parts = _cut(contract, frame, span) if span else [(_WHOLE, frame)]
            _write_parts(folder, parts, generation=generation)
            return len(parts)
        return self._write_hours(contract, _cut(contract, frame, span), generation=generation)

    def _write_hours(
        self,
        contract: TableContract,
        parts: list[tuple[str, pl.DataFrame]],
        *,
        generation: int | None,
    ) -> int:
        """Replaces hours, those that lie in a day file within it."""
        folder, in_days = self.folder(contract), dict[str, dict[datetime, pl.DataFrame]]()
        with locked(folder):  # no hour is compacted while it is replaced
            names = [path.name for path in _files_of_days(folder, parts[0][0], parts[-1][0])]
            alone = []
            for name, part in parts:
                (hour,) = hours_in(name)
                if day := day_file_of(hour, names):
                    in_days.setdefault(day, {})[hour] = part
                else:
                    alone.append((name, part))
            _write_parts(folder, alone, generation=generation)
            for day, rows in in_days.items():
                before = read_day(folder / day, contract)
                write_day(folder / day, before.with_hours(rows, generation or 0))
        return len(parts)

    def keep_part(self, contract: TableContract, name: str, frame: pl.DataFrame) -> None:
        """Stores one writer's share of a monitoring table; writing it again replaces it.

        Args:
            contract: `monitoring/quarantine` or `monitoring/reads`.
            name: The writer, and what it wrote about.
            frame: Its rows; none removes an earlier share.
        """
        path = self.parts_folder(contract) / f"{name}.parquet"
        if frame.is_empty():
            path.unlink(missing_ok=True)
        else:
            write_table(path, contract.conform(frame))

    def gather_parts(self, contract: TableContract) -> pl.DataFrame:
        """Every writer's share of a monitoring table, in the order of the writers' names."""
        folder = self.parts_folder(contract)
        files = [one for one in files_between(folder, ".parquet") if not one.name.startswith(".")]
        return pl.concat([contract.empty(), *at_once(read_file, files, where=folder)])

    def parts_folder(self, contract: TableContract) -> Place:
        """Where the shares of a monitoring table lie."""
        return self.root / f"{contract.asset_key}-parts"

    def read(self, contract: TableContract, *, span: Span | None = None) -> pl.DataFrame:
        """The table's rows, sorted by its key.

        Args:
            contract: The table.
            span: Only rows whose time lies in it; None reads everything.

        Raises:
            DataError: No file of the table lies in the span.
        """
        if _is_telemetry(contract):
            if not self._is_covered(contract, span):
                raise self._nothing(contract, span)
            start, end = (span.start, span.end) if span else (None, None)
            return self.telemetry.read(start=start, end=end)
        for tries_left in reversed(range(_READ_TRIES)):
            files = self.files(contract, span=span)
            if not files:
                raise self._nothing(contract, span)
            try:
                frame = read_files(files)
                break
            except FileNotFoundError:
                # Compacted or removed since it was listed.
                if not tries_left:
                    raise
        if span and contract.time_column:
            frame = frame.filter(_is_within(contract, span))
        frame = contract.conform(frame)
        return frame.sort(contract.key) if contract.key else frame

    def _nothing(self, contract: TableContract, span: Span | None) -> DataError:
        where = f" between {span.start} and {span.end}" if span else ""
        return DataError(
            f"table {contract.asset_key}: nothing is stored{where} under {self.root}. "
            f"Materialise {contract.asset_key} for that time first."
        )

    def has(self, contract: TableContract) -> bool:
        """Whether any partition of the table is stored, be it without rows."""
        return self._is_covered(contract, None)

    def _is_covered(self, contract: TableContract, span: Span | None) -> bool:
        if not _is_telemetry(contract):
            return bool(self.files(contract, span=span))
        if span is None:
            return self.telemetry.covered_until() is not None
        return bool(self.telemetry.hours(start=span.start, end=span.end))

    def covered_until(self, contract: TableContract) -> datetime | None:
        """End of the last stored partition of a partitioned table; None: nothing is stored."""
        if _is_telemetry(contract):
            return self.telemetry.covered_until()
        files = self.files(contract)
        if not files or contract.partition == "none":
            return None
        if contract.partition == "hour":
            return hours_in(files[-1].name)[-1] + _HOUR
        start = datetime.fromisoformat(files[-1].stem)
        return start.replace(tzinfo=UTC) + _STEP[contract.partition]

    def generations(self, contract: TableContract) -> dict[datetime, int]:
        """Start of each stored partition to the generation its rows rest on; 0: unknown.

        An unpartitioned table has one entry, at the earliest moment there is.
        """
        if _is_telemetry(contract):
            return self.telemetry.hours()
        found: dict[datetime, int] = {}
        files = self.files(contract)
        for path, said in zip(files, metadata_of(files, folder=self.folder(contract)), strict=True):
            if is_day_file(path.name):
                found |= day_generations(said)
                continue
            known = said.get(GENERATION, "0")
            whole = path.name == _WHOLE
            start = _EARLIEST if whole else datetime.fromisoformat(path.stem).replace(tzinfo=UTC)
            found[start] = int(known)
        return found

    def files(self, contract: TableContract, *, span: Span | None = None) -> list[Place]:
        """The table's finished files in time order; unfinished ones are never seen."""
        if _is_telemetry(contract):
            start, end = (span.start, span.end) if span else (None, None)
            return self.telemetry.files(start=start, end=end)
        folder = self.folder(contract)
        if span is None or contract.partition == "none":
            found = files_between(folder, ".parquet")
        else:
            last = span.end - timedelta(microseconds=1)
            found = _files_of_days(folder, f"{span.start:%Y-%m-%d}", f"{last:%Y-%m-%d}")
        found = [path for path in found if _OURS.fullmatch(path.name)]
        if contract.partition != "hour":
            return found
        start, end = (_floor(span.start, _HOUR), span.end) if span else (None, None)
        paths = {path.name: path for path in found}
        return [paths[name] for name in valid_names(paths, start=start, end=end)]


def scan_files(files: Sequence[Place]) -> pl.LazyFrame:
    """Files of a table, read as far as a query needs; objects of a bucket whole.

    Args:
        files: At least one.
    """
    paths = [file for file in files if isinstance(file, Path)]
    return pl.scan_parquet(paths if len(paths) == len(files) else read_all(files))


def _files_of_days(folder: Place, first: str, last: str) -> list[Place]:
    """Files of a table from one day to another, each given by what a file's name begins with."""
    return files_between(folder, ".parquet", first=first[:_DAY], last=last[:_DAY] + LAST_NAME)


def _write_parts(
    folder: Place, parts: Sequence[tuple[str, pl.DataFrame]], *, generation: int | None
) -> None:
    def write(part: tuple[str, pl.DataFrame]) -> None:
        write_table(folder / part[0], part[1], generation=generation)

    at_once(write, parts, where=folder)


def _without_unknown_time(contract: TableContract, enforced: Enforced) -> Enforced:
    """Moves rows whose time is unknown to the rejects: they belong to no partition."""
    column = contract.time_column or ""
    timeless = enforced.frame.filter(pl.col(column).is_null())
    if timeless.is_empty():
        return enforced
    reject = {
        "rule": f"{column} is null, so the row belongs to no {contract.partition}",
        "count": timeless.height,
        "example": str(timeless.row(0, named=True)),
    }
    rejects = pl.concat([enforced.rejects, pl.DataFrame([reject], schema=REJECT_SCHEMA)])
    return Enforced(enforced.frame.filter(pl.col(column).is_not_null()), rejects)


def _filed_time(contract: TableContract) -> pl.Expr:
    """The time whose hour or day is the row's partition."""
    time = pl.col(contract.time_column or "")
    return time - timedelta(microseconds=1) if contract.is_end_stamped else time


def _is_within(contract: TableContract, span: Span) -> pl.Expr:
    time = _filed_time(contract)
    return (time >= span.start) & (time < span.end)


def _floor(at: datetime, step: timedelta) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=at.tzinfo)
    return at - (at - epoch) % step


def _is_telemetry(contract: TableContract) -> bool:
    return contract.asset_key == CORE_GPU_TELEMETRY.asset_key


def _whole_partitions(contract: TableContract, frame: pl.DataFrame, span: Span | None) -> Span:
    """The span, if it is made of whole partitions that every row lies in."""
    if contract.partition == "none" or contract.time_column is None:
        raise StructureError(f"table {contract.asset_key} has no time column to be cut by")
    step = _STEP[contract.partition]
    if span is None or span.start != _floor(span.start, step) or span.end != _floor(span.end, step):
        raise DataError(
            f"table {contract.asset_key} is stored by {contract.partition}; "
            f"pass a span of whole {contract.partition}s, got {span}"
        )
    outside = frame.filter(~_is_within(contract, span))
    if not outside.is_empty():
        raise DataError(
            f"table {contract.asset_key}: {outside.height} rows lie outside {span.start}.."
            f"{span.end}, for example {outside.row(0, named=True)}. Select the span before writing."
        )
    return span


def _cut(
    contract: TableContract, frame: pl.DataFrame, span: Span
) -> list[tuple[str, pl.DataFrame]]:
    """Cuts a frame into the partitions of a span, empty ones included."""
    step = _STEP[contract.partition]
    every = "1h" if contract.partition == "hour" else "1d"
    keyed = frame.with_columns(_partition=_filed_time(contract).dt.truncate(every))
    parts = {
        str(key[0]): part
        for key, part in keyed.partition_by(
            "_partition", as_dict=True, maintain_order=True, include_key=False
        ).items()
    }
    empty = frame.clear()
    return [
        (part.start.strftime(_NAME[contract.partition]), parts.get(str(part.start), empty))
        for part in span.steps(step)
    ]
