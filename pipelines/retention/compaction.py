"""Compaction of hourly tables: the hours of a day that is over become one file.

A reader sees the same rows before, while and after. The day file is put in place in one step and
counts from then on (`pipelines.storage.day_files`); the hours' own files, which nobody lists any
more, go at a later call, when no reader can be about to open them. A kill at any moment leaves
files that the next call removes. Telemetry compacts its days itself, what has landed is compacted
in `pipelines.retention.compaction_landing`; how long rows are kept is decided in
`pipelines.retention.chores`.
"""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
from polars.exceptions import PolarsError

from features.contracts import TableContract
from features.errors import DataError
from pipelines.storage.day_content import (
    DayContent,
    filed_hour,
    kept_every_h,
    read_day,
    write_day,
)
from pipelines.storage.day_files import (
    ENDING,
    day_name,
    hour_name,
    hours_in,
    is_day_file,
    leftovers,
    n_hidden_by,
    valid_names,
)
from pipelines.storage.object_paths import Place, files_between, version_word
from pipelines.storage.store import TableStore
from pipelines.storage.table_files import GENERATION, read_files
from pipelines.storage.telemetry.layout import locked

GRACE_S: Final = 600.0
"""Age at which no reader is about to open what it listed before a day was compacted."""

_SETTLED: Final = timedelta(hours=30)
"""Before the newest hour: late data and catch-up still replace younger hours one by one."""


@dataclass(frozen=True)
class DayPlan:
    """A day of a table whose files are to become one.

    Attributes:
        day: The day's first hour that is stored.
        files: The valid files.
        thin_to: One hour in so many is to keep its rows; 1: every one.
    """

    day: datetime
    files: tuple[Place, ...]
    thin_to: int = 1


def plan_days(
    store: TableStore,
    contract: TableContract,
    *,
    since: datetime,
    until: datetime,
    thin_before: datetime | None = None,
    every_h: int = 1,
) -> list[DayPlan]:
    """The days of an hourly table that are to be made one file, or thinner.

    Args:
        store: The store.
        contract: A table by hour, not telemetry.
        since: Earlier days are left: they are about to be removed.
        until: Where the record ends.
        thin_before: Days that end before it keep one hour in `every_h`.
        every_h: As said.
    """
    by_day: dict[str, list[Place]] = {}
    for path in store.files(contract):
        by_day.setdefault(path.name[:10], []).append(path)
    plans = []
    for files in by_day.values():
        first = hours_in(files[0].name)[0]
        over = first.replace(hour=0) + timedelta(days=1)
        if over <= since:
            continue
        is_old = thin_before is not None and over <= thin_before
        thin_to = every_h if is_old else 1
        is_thin = thin_to == 1 or all(_every_h(path) >= thin_to for path in files)
        is_whole = len(files) == 1 and is_day_file(files[0].name)
        if not is_thin or (over <= until - _SETTLED and not is_whole):
            plans.append(DayPlan(first, tuple(files), thin_to))
    return plans


def compact_days(
    store: TableStore, contract: TableContract, plans: Sequence[DayPlan]
) -> list[DayPlan]:
    """Makes days one file each; returns those it made: a day that somebody writes waits.

    Raises:
        DataError: A file of a day is damaged; the other days were done.
    """
    done, damaged = list[DayPlan](), list[DataError]()
    for plan in plans:
        try:
            if compact_day(store, contract, plan):
                done.append(plan)
        except DataError as error:
            damaged.append(error)
    if damaged:
        raise DataError("; ".join(map(str, damaged))) from damaged[0]
    return done


def compact_day(store: TableStore, contract: TableContract, plan: DayPlan) -> bool:
    """Makes one file of a day's files.

    Returns:
        Whether it was done; False: somebody wrote the day meanwhile.

    Raises:
        DataError: A file is damaged.
    """
    try:
        before = [version_word(path) for path in plan.files]
        content = _merged(contract, plan)
    except FileNotFoundError:
        return False
    folder = store.folder(contract)
    with locked(folder):
        names = [path.name for path in plan.files]
        now = {path.name: path for path in _day_paths(folder, plan.day)}
        if valid_names(now) != names or [version_word(now[name]) for name in names] != before:
            return False
        # On the disk before the files that it stands for go.
        write_day(folder / day_name(content.generations), content, sync=True)
    return True


def disposable(folder: Place, *, grace_s: float = GRACE_S) -> list[Place]:
    """Hours' own files, and older day files, whose rows a day file has held for a while.

    Args:
        folder: Folder of a table by hour, not telemetry.
        grace_s: How long the day file must have been there.
    """
    paths = {path.name: path for path in files_between(folder, ENDING, first="0", last=":")}
    over = leftovers(list(paths))
    valid = {name[:10]: name for name in valid_names(paths) if is_day_file(name)}
    return [paths[name] for name in over if _age(paths[valid[name[:10]]]) >= grace_s]


def remove_files(folder: Place, paths: Sequence[Place]) -> None:
    """Removes files of a table, while nobody writes it; last what hides others."""
    if paths:
        with locked(folder):
            for path in sorted(paths, key=lambda path: n_hidden_by(path.name)):
                path.unlink(missing_ok=True)


def _merged(contract: TableContract, plan: DayPlan) -> DayContent:
    """What the day file is to hold: the rows as they are read today, hour by hour."""
    generations: dict[datetime, int] = {}
    every_h = 1
    for path in plan.files:
        if is_day_file(path.name):
            day = read_day(path, contract)
            generations |= day.generations
            every_h = max(every_h, day.every_h)
        else:
            (hour,) = hours_in(path.name)
            generations[hour] = int(_metadata(path).get(GENERATION, "0"))
    frame = read_files(plan.files).sort(filed_hour(contract), maintain_order=True)
    merged = DayContent(contract, frame, generations, every_h)
    return merged.thinned(plan.thin_to) if plan.thin_to > every_h else merged


def _day_paths(folder: Place, day: datetime) -> Sequence[Place]:
    first, last = f"{day:%Y-%m-%d}-", hour_name(day.replace(hour=23))
    return files_between(folder, ENDING, first=first, last=last)


def _every_h(path: Place) -> int:
    return kept_every_h(_metadata(path)) if is_day_file(path.name) else 1


def _metadata(path: Place) -> dict[str, str]:
    # Of a file on this machine the footer is enough.
    source = path if isinstance(path, Path) else io.BytesIO(path.read_bytes())
    try:
        return pl.read_parquet_metadata(source)
    except PolarsError as error:
        raise DataError(
            f"{path} cannot be read: {str(error).splitlines()[0]}. Materialise its hours again."
        ) from error


def _age(path: Place) -> float:
    return time.time() - path.stat().st_mtime
