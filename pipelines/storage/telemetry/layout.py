"""Layout of stored telemetry: folders by date and shard, what is valid in them, the GPUs' codes.

    gpus.parquet                          UUID of each GPU, by its code
    date=2026-01-05/manifest.json         which part each hour is read from
    date=2026-01-05/shard=0000/05-<hash>.parquet, day-<hash>.parquet

Rows are not known here; see `pipelines.storage.telemetry.store`.
"""

import fcntl
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from typing import Final

import polars as pl
from polars.exceptions import PolarsError

from features.errors import DataError
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.file_lock import held
from pipelines.storage.object_paths import Place, lock_path

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

_DAYS: Final = "date=[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
_GPUS: Final = "gpus.parquet"
_MANIFEST: Final = "manifest.json"
_LOCK: Final = ".lock"


@dataclass(frozen=True)
class Hour:
    """Where an hour's rows are.

    Attributes:
        part: Name of the part.
        generation: Number of the latest reading that the rows rest on; 0: unknown.
        origin: Name of the part in which the rows were written first. Other rows have another
            one, and it stays when the day is compacted.
    """

    part: str
    generation: int
    origin: str


@dataclass(frozen=True)
class Run:
    """Consecutive hours of a day that are read from one part.

    Attributes:
        part: Name of the part.
        first: First hour.
        last: Last hour.
    """

    part: str
    first: int
    last: int

    def bounds(self, day: date) -> tuple[int, int]:
        """Start and end of the run on a day, milliseconds since 1970, UTC."""
        start = midnight_ms(day)
        return start + self.first * HOUR_MS, start + (self.last + 1) * HOUR_MS

    def overlaps(self, day: date, first_ms: int, end_ms: int) -> bool:
        """Whether any of it lies in a span."""
        first, end = self.bounds(day)
        return first < end_ms and first_ms < end


@dataclass(frozen=True)
class Manifest:
    """What is valid of a day. A part is one immutable file per shard that has rows in it.

    Attributes:
        hours: The hours that are covered, with or without rows.
        shards: Part to the shards that have a file of it.
    """

    hours: Mapping[int, Hour]
    shards: Mapping[str, tuple[int, ...]]

    def runs(self) -> list[Run]:
        """The hours by part, in the order of time."""
        runs: list[Run] = []
        for hour in sorted(self.hours):
            part = self.hours[hour].part
            if runs and (runs[-1].part, runs[-1].last) == (part, hour - 1):
                runs[-1] = Run(part, runs[-1].first, hour)
            else:
                runs.append(Run(part, hour, hour))
        return runs

    def with_hours(
        self, hours: Mapping[int, Hour], shards: Mapping[str, tuple[int, ...]]
    ) -> "Manifest":
        """The manifest with some hours replaced, without the parts that then serve no hour."""
        merged = {**self.hours, **hours}
        used = {hour.part for hour in merged.values()}
        parts = {**self.shards, **shards}
        return Manifest(merged, {part: parts[part] for part in sorted(used)})


EMPTY: Final = Manifest({}, {})


def midnight_ms(day: date) -> int:
    """Midnight in milliseconds since 1970, UTC."""
    return (day - date(1970, 1, 1)).days * DAY_MS


def day_folder(folder: Place, day: date) -> Place:
    """Where a day's files lie."""
    return folder / f"date={day.isoformat()}"


def stored_days(folder: Place) -> list[date]:
    """The days that have a folder, in order; others, as a copy put beside one, are not looked at.

    Raises:
        DataError: A folder is named as a day that there is not.
    """
    names = [path.name for path in folder.glob(_DAYS)]
    try:
        return sorted(date.fromisoformat(name.removeprefix("date=")) for name in names)
    except ValueError as error:
        raise DataError(f"{folder}: {error} among its folders date=...; remove it.") from error


def part_path(day: Place, part: str, shard: int) -> Place:
    """The file of a part."""
    return day / f"shard={shard:04d}" / f"{part}.parquet"


def read_manifest(day: Place) -> Manifest:
    """What is valid in a day's folder.

    Raises:
        DataError: The manifest is damaged.
    """
    path = day / _MANIFEST
    try:
        read = json.loads(path.read_bytes())
        return Manifest(
            {int(hour): Hour(**entry) for hour, entry in read["hours"].items()},
            {part: tuple(shards) for part, shards in read["shards"].items()},
        )
    except FileNotFoundError:
        return EMPTY
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read: {error!r}. Delete it and materialise the day again."
        ) from error


def write_manifest(day: Place, manifest: Manifest) -> None:
    """Makes a manifest the valid one, in one step."""
    content = {
        "hours": {f"{hour:02d}": asdict(entry) for hour, entry in sorted(manifest.hours.items())},
        "shards": manifest.shards,
    }
    replace_file(day / _MANIFEST, json.dumps(content, indent=1).encode())


@contextmanager
def locked(folder: Place) -> Iterator[None]:
    """Keeps other writers of the table out, in this process and others; ends with the process.

    Writers of a bucket are those of one machine: they write what the landing holds, which is there.
    """
    path = lock_path(folder, _LOCK)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_locked(folder: Place) -> bool:
    """Whether somebody is within `locked` at the moment."""
    path = lock_path(folder, _LOCK)
    if not path.exists():
        return False
    with held(path) as is_mine:
        return not is_mine


def read_gpus(folder: Place) -> pl.Series:
    """UUID of each GPU, by its code.

    Raises:
        DataError: The list is damaged, or absent though telemetry is stored.
    """
    path = folder / _GPUS
    try:
        # In one go: Polars opens a path more than once, and it may be replaced in between.
        return pl.read_parquet(io.BytesIO(path.read_bytes()))["gpu_uuid"]
    except FileNotFoundError as error:
        if not any(folder.glob("date=*/shard=*")):
            return pl.Series("gpu_uuid", [], pl.String)
        reason: Exception = error
    except (PolarsError, OSError) as error:
        reason = error
    raise DataError(
        f"{path} cannot be read: {str(reason).splitlines()[0]}. It says which GPU a code means: "
        f"restore it, or delete {folder} and materialise the table again."
    ) from reason


def add_gpus(folder: Place, appeared: pl.Series) -> pl.Series:
    """Gives codes to GPUs that have none, in the order given; codes are kept for ever.

    Args:
        folder: The table's folder.
        appeared: UUIDs, each once.

    Returns:
        UUID of each GPU, by its code.
    """
    known = read_gpus(folder)
    if appeared.is_in(known.implode()).all():
        return known
    with locked(folder):
        known = read_gpus(folder)
        new = appeared.filter(~appeared.is_in(known.implode()))
        gpus = pl.concat([known, new.alias("gpu_uuid")])
        buffer = io.BytesIO()
        gpus.to_frame().with_row_index("gpu").write_parquet(buffer, compression="zstd")
        # Unlike rows, codes cannot be made anew: files already written depend on them.
        replace_file(folder / _GPUS, buffer.getvalue(), sync=True)
    return gpus
