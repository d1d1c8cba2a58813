"""The store of core/gpu_telemetry: packed, by date and shard; hours are replaced in one step.

How files are encoded is in `pipelines.storage.telemetry.parquet`, how they come and go in
`pipelines.storage.telemetry.parts`, which of them are valid in
`pipelines.storage.telemetry.layout`. Contracts are enforced by `pipelines.storage.store`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Final

import polars as pl

from features.engine.samples import SHARD_SIZE, Piece
from features.errors import DataError
from features.packing import (
    GPU,
    NODE,
    PACKED_SCHEMA,
    TS_MS,
    check_columns,
    order_of_appearance,
    pack,
    unpack,
)
from pipelines.storage.object_paths import Place, at_once, move_file
from pipelines.storage.telemetry.layout import (
    DAY_MS,
    HOUR_MS,
    Hour,
    Manifest,
    add_gpus,
    day_folder,
    locked,
    midnight_ms,
    part_path,
    read_gpus,
    read_manifest,
    stored_days,
    write_manifest,
)
from pipelines.storage.telemetry.parquet import TelemetryFile
from pipelines.storage.telemetry.parts import Staged, stage, sweep

_HOURS: Final = range(24)
_HOUR_LEVEL: Final = 3
_DAY_LEVEL: Final = 15


class TelemetryStore:
    """Stored telemetry; a `SampleSource` of the feature engine.

    A reader sees each hour as it was before or after a write, never between; `pieces` promises
    that for each shard by itself.

    Args:
        folder: The table's folder, on this machine or in a bucket; made on the first write.
    """

    def __init__(self, folder: Place) -> None:
        self.folder = folder

    def write(
        self, frame: pl.DataFrame, *, start: datetime, end: datetime, generation: int = 0
    ) -> int:
        """Replaces the hours of a span, also those that get no row; whole days in one file each.

        A day that becomes complete is compacted.

        Args:
            frame: core/gpu_telemetry, held against its contract, all within the span.
            start: First hour, UTC.
            end: End of the last hour, exclusive.
            generation: Number of the latest reading that the rows rest on.

        Returns:
            Number of files written.

        Raises:
            DataError: A row lies outside the span.
        """
        _check_span(frame, start, end)
        packed = pack(frame, add_gpus(self.folder, order_of_appearance(frame)))
        by_day = packed.with_columns(_day=pl.col(TS_MS) // DAY_MS).partition_by(
            "_day", as_dict=True, maintain_order=True, include_key=False
        )
        n_files = 0
        for day, hours in _days(start, end):
            rows = by_day.get((midnight_ms(day) // DAY_MS,), packed.clear())
            n_files += self._write_day(day, hours, rows, generation=generation)
        return n_files

    def compact(self, day: date) -> bool:
        """Merges the files of a day into one per shard.

        Returns:
            Whether it was done: there was more than one part, and nobody wrote meanwhile.
        """
        folder = day_folder(self.folder, day)
        before = read_manifest(folder)
        if len(before.shards) < 2:
            return False
        shards = sorted({shard for shards in before.shards.values() for shard in shards})
        bounds = {"first_ms": midnight_ms(day), "end_ms": midnight_ms(day) + DAY_MS}
        merged = (
            (shard, self._day_rows(day, before, **bounds, shard=shard).sort(GPU, TS_MS))
            for shard in shards
        )
        try:
            staged = stage(folder, "day", sorted(before.hours), merged, level=_DAY_LEVEL)
        except FileNotFoundError:
            return False
        hours = {hour: replace(was, part=staged.name) for hour, was in before.hours.items()}
        return self._commit(folder, [staged], hours, expected=before) is not None

    def read(self, *, start: datetime | None = None, end: datetime | None = None) -> pl.DataFrame:
        """The rows of a span; all rows without one.

        Returns:
            core/gpu_telemetry, sorted by (gpu_uuid, ts).
        """
        first_ms, end_ms = _bounds(start, end)
        frames = []
        for day in self._days_within(first_ms, end_ms):
            manifest = read_manifest(day_folder(self.folder, day))
            while True:
                try:
                    frames.append(self._day_rows(day, manifest, first_ms=first_ms, end_ms=end_ms))
                    break
                except FileNotFoundError as error:
                    manifest = self._newer_manifest(day, manifest, error)
        rows = pl.concat([_NO_ROWS, *frames], how="diagonal")
        return unpack(rows, read_gpus(self.folder))

    def hours(
        self, *, start: datetime | None = None, end: datetime | None = None
    ) -> dict[datetime, int]:
        """Start of each covered hour that lies in a span, at least in part, to its generation.

        Returns:
            In the order of time; generation 0 is unknown.
        """
        return {hour: entry.generation for hour, entry in self._entries(start, end)}

    def origins(self, *, start: datetime | None = None) -> dict[datetime, str]:
        """Start of each covered hour, in order, to a word that changes when its rows do.

        Args:
            start: Hours that end before it do not matter.
        """
        return {hour: entry.origin for hour, entry in self._entries(start)}

    def covered_until(self) -> datetime | None:
        """End of the last covered hour; None: there is none."""
        for day in reversed(stored_days(self.folder)):
            if hours := read_manifest(day_folder(self.folder, day)).hours:
                return _hour_of(day, max(hours)) + timedelta(hours=1)
        return None

    def files(self, *, start: datetime | None = None, end: datetime | None = None) -> list[Place]:
        """The valid files that hold hours of a span, in the order of time."""
        first_ms, end_ms = _bounds(start, end)
        found: dict[Place, None] = {}
        for day in self._days_within(first_ms, end_ms):
            folder = day_folder(self.folder, day)
            manifest = read_manifest(folder)
            for run in manifest.runs():
                if run.overlaps(day, first_ms, end_ms):
                    shards = manifest.shards[run.part]
                    found |= dict.fromkeys(part_path(folder, run.part, shard) for shard in shards)
        return list(found)

    def uuids(self) -> Sequence[str]:
        """UUID of each GPU, by its code."""
        return read_gpus(self.folder).to_list()

    def pieces(
        self,
        shard: int,
        *,
        start_ms: int,
        end_ms: int,
        columns: Sequence[str],
        gpus: range | None = None,
    ) -> Iterator[Piece]:
        """The samples of a shard with start_ms <= ts < end_ms, a piece per row group.

        A column is left out of a piece where the piece's file has no value of it.
        """
        check_columns(columns)
        for day in self._days_within(start_ms, end_ms):
            folder = day_folder(self.folder, day)
            manifest = read_manifest(folder)
            with ExitStack() as stack:
                while True:
                    try:
                        # All before the first is read: a later write cannot take them away.
                        opened = [
                            (run, stack.enter_context(_open(part_path(folder, run.part, shard))))
                            for run in manifest.runs()
                            if shard in manifest.shards[run.part]
                            and run.overlaps(day, start_ms, end_ms)
                        ]
                        break
                    except FileNotFoundError as error:
                        manifest = self._newer_manifest(day, manifest, error)
                for run, file in opened:
                    first_ms, last_ms = run.bounds(day)
                    yield from file.pieces(
                        start_ms=max(start_ms, first_ms),
                        end_ms=min(end_ms, last_ms),
                        columns=columns,
                        gpus=gpus,
                    )

    def _entries(
        self, start: datetime | None = None, end: datetime | None = None
    ) -> Iterator[tuple[datetime, Hour]]:
        first_ms, end_ms = _bounds(start, end)
        days = self._days_within(first_ms, end_ms)
        for day, manifest in zip(days, self._manifests(days), strict=True):
            for hour, entry in sorted(manifest.hours.items()):
                hour_ms = midnight_ms(day) + hour * HOUR_MS
                if hour_ms < end_ms and first_ms < hour_ms + HOUR_MS:
                    yield _hour_of(day, hour), entry

    def _manifests(self, days: Sequence[date]) -> list[Manifest]:
        folders = [day_folder(self.folder, day) for day in days]
        return at_once(read_manifest, folders, where=self.folder)

    def _days_within(self, first_ms: int, end_ms: int) -> list[date]:
        return [
            day
            for day in stored_days(self.folder)
            if midnight_ms(day) < end_ms and first_ms < midnight_ms(day) + DAY_MS
        ]

    def _newer_manifest(self, day: date, manifest: Manifest, error: FileNotFoundError) -> Manifest:
        """The manifest that superseded another while its files were read."""
        newer = read_manifest(day_folder(self.folder, day))
        if newer == manifest:
            raise DataError(
                f"{error.filename} is missing. Materialise {day} of core/gpu_telemetry again."
            ) from error
        return newer

    def _day_rows(
        self,
        day: date,
        manifest: Manifest,
        *,
        first_ms: int,
        end_ms: int,
        shard: int | None = None,
    ) -> pl.DataFrame:
        """Valid rows of a day within first_ms <= ts_ms < end_ms, of one shard or all."""
        folder = day_folder(self.folder, day)
        frames = []
        for run in manifest.runs():
            if not run.overlaps(day, first_ms, end_ms):
                continue
            run_first, run_end = run.bounds(day)
            for number in manifest.shards[run.part]:
                if shard in (None, number):
                    with _open(part_path(folder, run.part, number)) as file:
                        rows = file.rows()
                    first, end = max(first_ms, run_first), min(end_ms, run_end)
                    frames.append(rows.filter(pl.col(TS_MS).is_between(first, end, closed="left")))
        return pl.concat([_NO_ROWS, *frames], how="diagonal")

    def _write_day(
        self, day: date, hours: Sequence[int], rows: pl.DataFrame, *, generation: int
    ) -> int:
        folder = day_folder(self.folder, day)
        if len(hours) == len(_HOURS):
            parts = [stage(folder, "day", hours, _by_shard(rows), level=_DAY_LEVEL)]
        else:
            number = (pl.col(TS_MS) - midnight_ms(day)) // HOUR_MS
            parts = [
                stage(
                    folder,
                    f"{hour:02d}",
                    [hour],
                    _by_shard(rows.filter(number == hour)),
                    level=_HOUR_LEVEL,
                )
                for hour in hours
            ]
        entries = {
            hour: Hour(part.name, generation, origin=part.name)
            for part in parts
            for hour in part.hours
        }
        before = self._commit(folder, parts, entries)
        if before is not None and len(before.hours) < len(_HOURS) == len({*before.hours, *hours}):
            self.compact(day)
        return sum(len(part.files) for part in parts)

    def _commit(
        self,
        folder: Place,
        parts: Sequence[Staged],
        hours: Mapping[int, Hour],
        *,
        expected: Manifest | None = None,
    ) -> Manifest | None:
        """Makes parts valid in one step and removes what they supersede.

        Args:
            folder: The day's folder.
            parts: Staged files.
            hours: The hours to replace.
            expected: The manifest that must still be valid; None: any.

        Returns:
            The manifest before; None: it was not the expected one, and nothing has changed.
        """
        with locked(self.folder):
            before = read_manifest(folder)
            if expected is not None and before != expected:
                for part in parts:
                    for path in part.files.values():
                        path.unlink()
                return None
            moves = [
                (path, part_path(folder, part.name, shard))
                for part in parts
                for shard, path in part.files.items()
            ]
            at_once(move_file, moves, where=self.folder)
            shards = {part.name: tuple(sorted(part.files)) for part in parts}
            manifest = before.with_hours(hours, shards)
            folder.mkdir(exist_ok=True)
            write_manifest(folder, manifest)
            sweep(folder, manifest)
        return before


def _hour_of(day: date, hour: int) -> datetime:
    return datetime(day.year, day.month, day.day, hour, tzinfo=UTC)


_NO_ROWS: Final = pl.DataFrame(schema={name: PACKED_SCHEMA[name] for name in (GPU, TS_MS, NODE)})


def _open(path: Place) -> closing[TelemetryFile]:
    return closing(TelemetryFile(path))


def _by_shard(packed: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
    """Rows by shard, in order; shards without rows are left out."""
    parts = packed.with_columns(_shard=pl.col(GPU) // SHARD_SIZE).partition_by(
        "_shard", as_dict=True, maintain_order=True, include_key=False
    )
    return [(int(key[0]), part) for key, part in sorted(parts.items())]


def _check_span(frame: pl.DataFrame, start: datetime, end: datetime) -> None:
    """Refuses rows that belong to no hour of the span: they would be lost."""
    outside = frame.filter(~pl.col("ts").is_between(start, end, closed="left"))
    if not outside.is_empty():
        gpu, ts = outside.select("gpu_uuid", "ts").row(0)
        raise DataError(
            f"table core/gpu_telemetry: {outside.height} of {frame.height} rows lie outside "
            f"{start}..{end}, for example {gpu} at {ts}. Write them with the hours they are of."
        )


def _days(start: datetime, end: datetime) -> Iterator[tuple[date, list[int]]]:
    """The days of a span of whole hours, each with its hours in it."""
    at = start
    while at < end:
        midnight = at.replace(hour=0) + timedelta(days=1)
        until = min(end, midnight)
        yield at.date(), list(range(at.hour, at.hour + (until - at) // timedelta(hours=1)))
        at = until


def _bounds(start: datetime | None, end: datetime | None) -> tuple[int, int]:
    """A span in milliseconds since 1970, rows of ts >= start and ts < end; all time without one."""
    first_ms = -(2**62) if start is None else -((_EPOCH - start) // _MS)
    end_ms = 2**62 if end is None else -((_EPOCH - end) // _MS)
    return first_ms, end_ms


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
