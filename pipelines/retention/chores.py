"""Retention: what is over is removed, many small files become few; area by area, failures apart.

How long things are kept is in `pipelines.sections.retention`; whether those numbers can be right in
`pipelines.retention.guard`; what an area knows of its own data in `landing`, `records` and
`tables`. The hook's ledger is no area: it is never touched.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from features.errors import ForewarnError
from pipelines.retention.guard import check_clock, check_retention
from pipelines.settings import Settings
from pipelines.storage.file_lock import held

_LOCK: Final = ".retention.lock"
_FAILURES: Final = (ForewarnError, OSError)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that retention does, or would do.

    Attributes:
        table: Table, or what takes its place.
        what: What is done to which of its parts, in words.
        n_files: Files that go; 0 where rows of a database go.
        n_bytes: Their size; of what is merged, before it is.
        n_rows: Rows of a database that go.
    """

    table: str
    what: str
    n_files: int = 0
    n_bytes: int = 0
    n_rows: int = 0


@dataclass(frozen=True)
class Chore:
    """A change, and how it is made; what a kill leaves undone is a chore of the next call.

    Attributes:
        change: What is to be done.
        make: Does it; returns a change where it may come out as another.
    """

    change: Change
    make: Callable[[], object]


class Area(Protocol):
    """Data of one kind of store."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def chores(self) -> list[Chore]:
        """What is to be done now, in order; to ask changes nothing."""
        ...

    def at_work(self) -> AbstractContextManager[object]:
        """Held while chores are found and done, so that no writer comes between."""
        ...


@dataclass(frozen=True, kw_only=True)
class Done:
    """What became of the areas.

    Attributes:
        changes: By area.
        problems: Why an area could not be done, or not wholly.
    """

    changes: Mapping[str, Sequence[Change]]
    problems: Mapping[str, str]


def planned(settings: Settings, areas: Sequence[Area], *, now: datetime) -> Done:
    """What `retain` would do now; raises as it does."""
    _check(settings, now=now)
    return _through(areas, _planned)


def retain(settings: Settings, areas: Sequence[Area], *, now: datetime) -> Done:
    """Removes what is over and compacts what is left.

    Args:
        settings: The installation.
        areas: What is looked at.
        now: The present.

    Returns:
        What was done; an area or a chore that fails holds up no other.

    Raises:
        SettingsError: The numbers would remove what is still needed; nothing was removed.
        DataError: The clock cannot be right; nothing was removed.
    """
    _check(settings, now=now)
    with held(settings.data_root / _LOCK) as is_held:
        if not is_held:
            return Done(changes={}, problems={"retention": "another process is at it"})
        return _through(areas, _made)


def _check(settings: Settings, *, now: datetime) -> None:
    check_retention(settings, now=now)
    check_clock(settings, now=now)


def _through(areas: Sequence[Area], work: Callable[[Area], Iterator[Change | Exception]]) -> Done:
    changes: dict[str, list[Change]] = {}
    problems: dict[str, list[str]] = {}
    for area in areas:
        done = changes.setdefault(area.name, [])
        try:
            for one in work(area):
                if isinstance(one, Change):
                    done.append(one)
                else:
                    problems.setdefault(area.name, []).append(str(one))
        except _FAILURES as error:
            problems.setdefault(area.name, []).append(str(error))
    return Done(changes=changes, problems={name: "; ".join(why) for name, why in problems.items()})


def _planned(area: Area) -> Iterator[Change]:
    return (chore.change for chore in area.chores())


def _made(area: Area) -> Iterator[Change | Exception]:
    with area.at_work():
        for chore in area.chores():
            try:
                made = chore.make()
            except _FAILURES as error:
                yield error
            else:
                yield made if isinstance(made, Change) else chore.change


def sizes(root: Path) -> dict[str, tuple[int, int]]:
    """Files and bytes of each folder of an installation, and of its own files.

    Args:
        root: `data_root`. Of what lies elsewhere nothing is known.
    """
    found: dict[str, tuple[int, int]] = {}
    for folder, _, names in os.walk(root):
        inside = Path(folder).relative_to(root).parts
        family = "/".join(inside[:2]) if inside[:1] == ("tables",) else (inside or ("files",))[0]
        n_files, n_bytes = found.get(family, (0, 0))
        for name in names:
            try:
                n_bytes += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - of many files
            except FileNotFoundError:
                continue
            n_files += 1
        found[family] = n_files, n_bytes
    return dict(sorted(found.items()))


def in_words(done: Done, *, is_plan: bool) -> str:
    """Retention as people read it.

    Args:
        done: What was done, or would be.
        is_plan: Whether nothing was done yet.
    """
    lines = []
    for area, changes in done.changes.items():
        if changes:
            lines.append(f"{area}:")
        lines += [f"  {one.table}: {one.what}{_amount(one)}" for one in changes]
    every = [one for changes in done.changes.values() for one in changes]
    if every:
        n_bytes = sum(one.n_bytes for one in every)
        said = "would be touched" if is_plan else "done"
        plural = "s" if len(every) > 1 else ""
        lines.append(f"{len(every)} change{plural}, {byte_words(n_bytes)}: {said}.")
    elif not done.problems:
        lines.append("Nothing is over, and nothing is to be compacted.")
    lines += [f"{area} was left: {why}" for area, why in done.problems.items()]
    return "\n".join(lines)


def byte_words(n_bytes: int) -> str:
    """A size in words.

    >>> byte_words(0), byte_words(1_234_567)
    ('0 bytes', '1.2 MB')
    """
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} bytes"


def _amount(one: Change) -> str:
    said = []
    if one.n_files:
        said.append(
            f"{one.n_files} file{'s' if one.n_files > 1 else ''}, {byte_words(one.n_bytes)}"
        )
    if one.n_rows:
        said.append(f"{one.n_rows} row{'s' if one.n_rows > 1 else ''}")
    return f" ({'; '.join(said)})" if said else ""
