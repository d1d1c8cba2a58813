"""Retention of the Parquet tables: old hours and days go, hours of days that are over become days.

Telemetry compacts its days itself. What has landed is in `pipelines.retention.landing`, how days
are merged in `pipelines.retention.compaction`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from features.contracts import TableContract
from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY, QUARANTINE, READS
from features.tables import (
    CORE_COVERAGE,
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    GPU_MATRIX,
    GPU_SCORES,
    LABELS,
    NODE_SCORES,
)
from pipelines.retention.chores import Change, Chore
from pipelines.retention.compaction import (
    GRACE_S,
    DayPlan,
    compact_days,
    disposable,
    plan_days,
    remove_files,
)
from pipelines.settings import Settings
from pipelines.storage.day_files import ENDING, hours_in
from pipelines.storage.object_paths import Place, files_between
from pipelines.storage.store import TableStore
from pipelines.storage.telemetry.layout import day_folder, locked, stored_days

_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_SPAN_IN_NAME: Final = re.compile(r"-\d{8}T\d\d-(\d{8}T\d\d)\.parquet$")
_KEPT: Final = (
    (CORE_HEALTH_EVENTS, "history_days"),
    (GPU_MATRIX, "matrix_days"),
    (GPU_SCORES, "scores_days"),
    (NODE_SCORES, "scores_days"),
    (CORE_COVERAGE, "history_days"),
    (LABELS, "matrix_days"),
    (LIVE_OUTCOMES, "outcomes_days"),
)


@dataclass(frozen=True)
class TablesArea:
    """The tables of an installation.

    Attributes:
        settings: The installation.
        now: The present.
        grace_s: Age of a day's file at which the files of its hours go.
        name: What the area is called.
    """

    settings: Settings
    now: datetime
    grace_s: float = GRACE_S
    name: str = "tables"

    def at_work(self) -> AbstractContextManager[object]:
        """Nothing: each table's folder is locked while its files change."""
        return nullcontext()

    def chores(self) -> list[Chore]:
        """What is over, then leftovers of earlier compactions, then days to compact."""
        found = [*self._telemetry(), *self._quality(), *self._old_parts()]
        for contract, days in self._tables():
            found += self._over(contract, days)
        for contract, days in self._tables():
            if contract.partition == "hour":
                found += self._leftovers(contract)
                found += self._days(contract, since=self._cut(days))
        return found

    @property
    def _store(self) -> TableStore:
        return TableStore(self.settings.store_root)

    @property
    def _end(self) -> datetime:
        return self.settings.data_end(self.now).astimezone(UTC)

    def _tables(self) -> Iterator[tuple[TableContract, int]]:
        kept = self.settings.retention
        return ((contract, getattr(kept, key)) for contract, key in _KEPT)

    def _cut(self, days: int) -> datetime:
        """Midnight before which everything is over."""
        return self._end.replace(hour=0, minute=0, second=0, microsecond=0) - days * _DAY

    def _over(self, contract: TableContract, days: int) -> Iterator[Chore]:
        """All finished files of a table, leftovers included, whose time is over."""
        cut, folder = self._cut(days), self._store.folder(contract)
        paths = files_between(folder, ENDING, first="0", last=f"{cut:%Y-%m-%d}~")
        over = [path for path in paths if _ends(contract, path.name) <= cut]
        yield from _removal(
            contract.asset_key, over, cut=cut, make=lambda: remove_files(folder, over)
        )

    def _telemetry(self) -> Iterator[Chore]:
        telemetry = self._store.telemetry
        cut = self._cut(self.settings.retention.telemetry_days)
        # Days without a sample are days, too.
        if any(day < cut.date() for day in stored_days(telemetry.folder)):
            files = telemetry.files(end=cut)
            change = Change(
                table=CORE_GPU_TELEMETRY.asset_key,
                what=f"removes what is before {cut:%Y-%m-%d}",
                n_files=len(files),
                n_bytes=_size(files),
            )
            yield Chore(change, lambda: self._remove_telemetry(cut.date()))

    def _remove_telemetry(self, before: date) -> None:
        """Removes whole days: first what says that they are there, then their files."""
        folder = self._store.telemetry.folder
        for day in stored_days(folder):
            if day >= before:
                continue
            place = day_folder(folder, day)
            with locked(folder):
                (place / "manifest.json").unlink(missing_ok=True)
                for path in place.glob("shard=*/[!.]*.parquet"):
                    path.unlink(missing_ok=True)
                if isinstance(place, Path):
                    for empty in (*place.glob("shard=*"), place):
                        with suppress(OSError):  # a writer is at work in it
                            empty.rmdir()

    def _quality(self) -> Iterator[Chore]:
        cut = self._cut(self.settings.retention.outcomes_days)
        every = self._store.read(LIVE_QUALITY) if self._store.has(LIVE_QUALITY) else None
        n_old = 0 if every is None else every.filter(pl.col("week") < cut).height
        if every is not None and n_old:
            kept = every.filter(pl.col("week") >= cut)
            what = f"removes weeks before {cut:%Y-%m-%d}"
            change = Change(table=LIVE_QUALITY.asset_key, what=what, n_rows=n_old)
            yield Chore(change, lambda: self._store.write(LIVE_QUALITY, kept))

    def _old_parts(self) -> Iterator[Chore]:
        """Refusals and accounts of runs over hours that are long over."""
        cut = self._cut(self.settings.retention.quarantine_days)
        for contract in (QUARANTINE, READS):
            folder = self._store.parts_folder(contract)
            old = [
                path
                for path in files_between(folder, ENDING)
                if (span := _SPAN_IN_NAME.search(path.name)) and _time(span.group(1)) <= cut
            ]
            key = contract.asset_key
            yield from _removal(key, old, cut=cut, make=partial(remove_files, folder, old))

    def _leftovers(self, contract: TableContract) -> Iterator[Chore]:
        folder = self._store.folder(contract)
        if paths := disposable(folder, grace_s=self.grace_s):
            change = Change(
                table=contract.asset_key,
                what="removes hours that lie in a day's file by now",
                n_files=len(paths),
                n_bytes=_size(paths),
            )
            yield Chore(change, lambda: remove_files(folder, paths))

    def _days(self, contract: TableContract, *, since: datetime) -> Iterator[Chore]:
        kept, is_matrix = self.settings.retention, contract.asset_key == GPU_MATRIX.asset_key
        plans = plan_days(
            self._store,
            contract,
            since=since,
            until=self._end,
            thin_before=self._cut(kept.matrix_full_days) if is_matrix else None,
            every_h=kept.matrix_every_h if is_matrix else 1,
        )
        for thin_to in sorted({plan.thin_to for plan in plans}):
            alike = [plan for plan in plans if plan.thin_to == thin_to]
            sizes = {plan.day: _size(plan.files) for plan in alike}  # others may remove some later
            merge = partial(self._merge, contract, alike, sizes)
            yield Chore(_merging(contract, alike, sizes), merge)

    def _merge(
        self, contract: TableContract, alike: Sequence[DayPlan], sizes: Mapping[datetime, int]
    ) -> Change:
        """Makes days one file each, as far as nobody writes them; what was done in truth."""
        done = compact_days(self._store, contract, alike)
        return _merging(contract, done, sizes, n_waiting=len(alike) - len(done))


def _merging(
    contract: TableContract,
    plans: Sequence[DayPlan],
    sizes: Mapping[datetime, int],
    *,
    n_waiting: int = 0,
) -> Change:
    """What making one file a day of some days is.

    Args:
        contract: The table.
        plans: Days that are done, or are to be.
        sizes: Bytes by day, as planned.
        n_waiting: Days that are being written, and are left for the next call.
    """
    said = []
    if plans:
        thin = f", keeping one hour in {plans[0].thin_to}" if plans[0].thin_to > 1 else ""
        days = f"{plans[0].day:%Y-%m-%d} to {plans[-1].day:%Y-%m-%d}"
        said.append(f"makes one file a day of {_days_in_words(len(plans))}{thin}, {days}")
    if n_waiting:
        said.append(f"leaves {_days_in_words(n_waiting)} being written for the next call")
    return Change(
        table=contract.asset_key,
        what="; ".join(said),
        n_files=sum(len(plan.files) for plan in plans),
        n_bytes=sum(sizes[plan.day] for plan in plans),
    )


def _days_in_words(n_days: int) -> str:
    return "1 day" if n_days == 1 else f"{n_days} days"


def _removal(
    table: str, paths: Sequence[Place], *, cut: datetime, make: Callable[[], object]
) -> Iterator[Chore]:
    if paths:
        what = f"removes what is before {cut:%Y-%m-%d}"
        change = Change(table=table, what=what, n_files=len(paths), n_bytes=_size(paths))
        yield Chore(change, make)


def _ends(contract: TableContract, name: str) -> datetime:
    """When the last partition of a file ends."""
    if contract.partition == "hour":
        return hours_in(name)[-1] + _HOUR
    return datetime.fromisoformat(name[:10]).replace(tzinfo=UTC) + _DAY


def _time(word: str) -> datetime:
    return datetime.strptime(word, "%Y%m%dT%H").replace(tzinfo=UTC)


def _size(paths: Sequence[Place]) -> int:
    return sum(path.stat().st_size for path in paths)
