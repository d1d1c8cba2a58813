"""The store of core/gpu_telemetry: packed, by date and shard; hours are replaced in one step.

How files are encoded is in `pipelines.telemetry_parquet`, which of them are valid in
`pipelines.telemetry_layout`. Contracts are enforced by `pipelines.store`.
"""

import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
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
from pipelines.telemetry_layout import (
    Hour,
    Manifest,
    Run,
    add_gpus,
    day_folder,
    locked,
    part_path,
    read_gpus,
    read_manifest,
    stored_days,
    write_manifest,
)
from pipelines.telemetry_parquet import TelemetryFile, encode

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_HOURS: Final = range(24)
_HOUR_LEVEL: Final = 3
_DAY_LEVEL: Final = 15
_UNFINISHED: Final = ".unfinished-"
_ABANDONED_S: Final = 24 * 3600
"""Age at which an unfinished file belongs to no living writer."""


@dataclass(frozen=True)
class _Staged:
    """A part whose files are written but not yet seen.

    Attributes:
        name: Name of the part: what it holds and a hash of its content.
        hours: The hours it is for.
        files: Shard to its unfinished file.
    """

    name: str
    hours: Sequence[int]
    files: Mapping[int, Path]


class TelemetryStore:
    """Stored telemetry; a `SampleSource` of the feature engine.

    A reader sees each hour as it was before or after a write, never between; `pieces` promises
    that for each shard by itself.

    Args:
        folder: The table's folder; made on the first write.
    """

    def __init__(self, folder: Path) -> None:
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
        """
        packed = pack(frame, add_gpus(self.folder, order_of_appearance(frame)))
        by_day = packed.with_columns(_day=pl.col(TS_MS) // _DAY_MS).partition_by(
            "_day", as_dict=True, maintain_order=True, include_key=False
        )
        n_files = 0
        for day, hours in _days(start, end):
            rows = by_day.get((_start_ms(day) // _DAY_MS,), packed.clear())
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
        bounds = {"first_ms": _start_ms(day), "end_ms": _start_ms(day) + _DAY_MS}
        merged = (
            (shard, self._day_rows(day, before, **bounds, shard=shard).sort(GPU, TS_MS))
            for shard in shards
        )
        try:
            staged = _stage(folder, "day", sorted(before.hours), merged, level=_DAY_LEVEL)
        except FileNotFoundError:
            return False
        hours = {hour: Hour(staged.name, was.generation) for hour, was in before.hours.items()}
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

    def hours(self) -> dict[datetime, int]:
        """Start of each covered hour, in order, to the generation its rows rest on; 0: unknown."""
        return {
            datetime(day.year, day.month, day.day, hour, tzinfo=UTC): entry.generation
            for day in stored_days(self.folder)
            for hour, entry in sorted(read_manifest(day_folder(self.folder, day)).hours.items())
        }

    def files(self, *, start: datetime | None = None, end: datetime | None = None) -> list[Path]:
        """The valid files that hold hours of a span, in the order of time."""
        first_ms, end_ms = _bounds(start, end)
        found: dict[Path, None] = {}
        for day in self._days_within(first_ms, end_ms):
            folder = day_folder(self.folder, day)
            manifest = read_manifest(folder)
            for run in manifest.runs():
                if _overlaps(day, run, first_ms, end_ms):
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
                            and _overlaps(day, run, start_ms, end_ms)
                        ]
                        break
                    except FileNotFoundError as error:
                        manifest = self._newer_manifest(day, manifest, error)
                for run, file in opened:
                    first_ms, last_ms = _run_bounds(day, run)
                    yield from file.pieces(
                        start_ms=max(start_ms, first_ms),
                        end_ms=min(end_ms, last_ms),
                        columns=columns,
                        gpus=gpus,
                    )

    def _days_within(self, first_ms: int, end_ms: int) -> list[date]:
        return [
            day
            for day in stored_days(self.folder)
            if _start_ms(day) < end_ms and first_ms < _start_ms(day) + _DAY_MS
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
            if not _overlaps(day, run, first_ms, end_ms):
                continue
            run_first, run_end = _run_bounds(day, run)
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
            parts = [_stage(folder, "day", hours, _by_shard(rows), level=_DAY_LEVEL)]
        else:
            number = (pl.col(TS_MS) - _start_ms(day)) // _HOUR_MS
            parts = [
                _stage(
                    folder,
                    f"{hour:02d}",
                    [hour],
                    _by_shard(rows.filter(number == hour)),
                    level=_HOUR_LEVEL,
                )
                for hour in hours
            ]
        entries = {hour: Hour(part.name, generation) for part in parts for hour in part.hours}
        before = self._commit(folder, parts, entries)
        if before is not None and len(before.hours) < len(_HOURS) == len({*before.hours, *hours}):
            self.compact(day)
        return sum(len(part.files) for part in parts)

    def _commit(
        self,
        folder: Path,
        parts: Sequence[_Staged],
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
            for part in parts:
                for shard, path in part.files.items():
                    path.replace(part_path(folder, part.name, shard))
            shards = {part.name: tuple(sorted(part.files)) for part in parts}
            manifest = before.with_hours(hours, shards)
            folder.mkdir(exist_ok=True)
            write_manifest(folder, manifest)
            _sweep(folder, manifest)
        return before


_NO_ROWS: Final = pl.DataFrame(schema={name: PACKED_SCHEMA[name] for name in (GPU, TS_MS, NODE)})


def _open(path: Path) -> closing[TelemetryFile]:
    return closing(TelemetryFile(path))


def _by_shard(packed: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
    """Rows by shard, in order; shards without rows are left out."""
    parts = packed.with_columns(_shard=pl.col(GPU) // SHARD_SIZE).partition_by(
        "_shard", as_dict=True, maintain_order=True, include_key=False
    )
    return [(int(key[0]), part) for key, part in sorted(parts.items())]


def _stage(
    folder: Path,
    label: str,
    hours: Sequence[int],
    rows: Iterable[tuple[int, pl.DataFrame]],
    *,
    level: int,
) -> _Staged:
    """Writes a part's files under names that no reader sees."""
    digest = hashlib.sha256()
    files: dict[int, Path] = {}
    for shard, part in rows:
        if part.is_empty():
            continue
        content = encode(part, level=level)
        digest.update(f"{shard} {len(content)} ".encode() + content)
        name = f"{_UNFINISHED}{os.getpid()}-{threading.get_ident()}-{label}"
        files[shard] = part_path(folder, name, shard)
        files[shard].parent.mkdir(parents=True, exist_ok=True)
        files[shard].write_bytes(content)
    return _Staged(f"{label}-{digest.hexdigest()[:12]}", hours, files)


def _sweep(folder: Path, manifest: Manifest) -> None:
    """Removes files that no hour is read from; under the lock, so no writer is about to use them.

    Writers of other hours may be at work on unfinished files: only old ones are removed.
    """
    valid = {
        part_path(folder, part, shard)
        for part, shards in manifest.shards.items()
        for shard in shards
    }
    for path in folder.glob("shard=*/*.parquet"):
        is_unfinished = path.name.startswith(_UNFINISHED)
        if path not in valid and not (
            is_unfinished and time.time() - path.stat().st_mtime < _ABANDONED_S
        ):
            path.unlink(missing_ok=True)


def _days(start: datetime, end: datetime) -> Iterator[tuple[date, list[int]]]:
    """The days of a span of whole hours, each with its hours in it."""
    at = start
    while at < end:
        midnight = at.replace(hour=0) + timedelta(days=1)
        until = min(end, midnight)
        yield at.date(), list(range(at.hour, at.hour + (until - at) // timedelta(hours=1)))
        at = until


def _start_ms(day: date) -> int:
    return (day - date(1970, 1, 1)).days * _DAY_MS


def _run_bounds(day: date, run: Run) -> tuple[int, int]:
    start = _start_ms(day)
    return start + run.first * _HOUR_MS, start + (run.last + 1) * _HOUR_MS


def _overlaps(day: date, run: Run, first_ms: int, end_ms: int) -> bool:
    run_first, run_end = _run_bounds(day, run)
    return run_first < end_ms and first_ms < run_end


def _bounds(start: datetime | None, end: datetime | None) -> tuple[int, int]:
    """A span in milliseconds since 1970, rows of ts >= start and ts < end; all time without one."""
    first_ms = -(2**62) if start is None else -((_EPOCH - start) // _MS)
    end_ms = 2**62 if end is None else -((_EPOCH - end) // _MS)
    return first_ms, end_ms


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
