"""Retention of what has landed: rows that are over, small parts, old entries of the journal.

Rows as received go only once the core hours made of them are stored. A reading whose rows are gone
stays known while its input could still give it, so that nothing is read twice. How parts are
merged is in `pipelines.retention.compaction_landing`.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

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
from features.tables import CORE_HEALTH_EVENTS
from pipelines.landing.floor import raise_floor
from pipelines.landing.ingest import landing_of
from pipelines.landing.ingest_run import OWN_RECORDS
from pipelines.landing.rows import ROW_AGE
from pipelines.landing.schema import landing_errors, open_journal
from pipelines.retention.chores import Change, Chore
from pipelines.retention.compaction_landing import LandedPart, LandingCompactor
from pipelines.settings import Settings
from pipelines.sources.site.input_base import PullInput
from pipelines.sources.site.listing import load_inputs
from pipelines.storage.day_files import hours_in
from pipelines.storage.store import TableStore

_HOUR: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT: Final[Mapping[str, str]] = {
    RAW_GPU_TELEMETRY.asset_key: "landing_days",
    RAW_KERNEL_LOG.asset_key: "landing_days",
    RAW_COVERAGE.asset_key: "landing_days",
    RAW_JOB_LOG.asset_key: "history_days",
    RAW_JOB_OUTPUT.asset_key: "history_days",
    RAW_NODE_STATES.asset_key: "history_days",
    RAW_INVENTORY.asset_key: "history_days",
    RAW_TRAINING_METRICS.asset_key: "metrics_days",
}
_WAIT: Final = 3
"""Rows of hours that were never built go all the same so many times `landing_days` after they came.
"""
_MOST_DAYS: Final = 3
"""Of parts over a longer time, such as a history that was loaded, the rows are looked at."""
_BY_HOUR: Final = (RAW_GPU_TELEMETRY.asset_key, RAW_KERNEL_LOG.asset_key)


@dataclass(frozen=True)
class LandingArea:
    """What has landed.

    Attributes:
        settings: The installation.
        now: The present.
        name: What the area is called.
    """

    settings: Settings
    now: datetime
    name: str = "landing"
    _kept: list[LandingCompactor] = field(default_factory=list)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """As the landing's one writer; files of replaced parts go at the end.

        Raises:
            DataError: Another process is ingesting.
        """
        if not self._journal_file.exists():
            yield
            return
        with landing_of(self.settings).writer():
            try:
                yield
            finally:
                self._compactor.remove_unneeded()

    def chores(self) -> list[Chore]:
        """What is over, then what is to be merged, then the journal."""
        if not self._journal_file.exists():
            return []
        found = [chore for table in _KEPT for chore in self._over(table)]
        found += [chore for table in ROW_AGE for chore in self._folded(table)]
        return [*found, *self._journal_chores()]

    @property
    def _root(self) -> Path:
        return self.settings.landing_root

    @property
    def _journal_file(self) -> Path:
        return self._root / "journal.sqlite"

    @property
    def _compactor(self) -> LandingCompactor:
        if not self._kept:
            inputs = load_inputs(self.settings.inputs).spec.inputs
            own = any(one.kind == OWN_RECORDS for one in inputs)
            compactor = LandingCompactor(
                self._root,
                until=self._end,
                keeps_sights=own,
                states_days=self.settings.retention.history_days,
            )
            self._kept.append(compactor)
        return self._kept[0]

    @property
    def _end(self) -> datetime:
        return self.settings.data_end(self.now).astimezone(UTC)

    def _cut(self, days: int) -> datetime:
        return self._end.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)

    def _days(self, table: str) -> int:
        return int(getattr(self.settings.retention, _KEPT[table]))

    def _over(self, table: str) -> Iterator[Chore]:
        cut = self._cut(self._days(table))
        over = self._compactor.over(table, cut)
        if table in _BY_HOUR and over:
            over = self._built(table, over)
        if over:
            change = Change(
                table=table,
                what=f"removes what is before {cut:%Y-%m-%d}",
                n_files=len(over),
                n_bytes=sum(part.size for part in over),
            )
            yield Chore(change, partial(self._drop, table, over, cut=cut))

    def _drop(self, table: str, parts: Sequence[LandedPart], *, cut: datetime) -> None:
        raise_floor(self._root, table, cut)
        self._compactor.drop([part.path for part in parts])

    def _built(self, table: str, over: Sequence[LandedPart]) -> list[LandedPart]:
        """The parts of whose hours the core table has all, and those that waited long enough."""
        store = TableStore(self.settings.store_root)
        if table == RAW_GPU_TELEMETRY.asset_key:
            built = set(store.telemetry.hours())
        else:
            files = store.files(CORE_HEALTH_EVENTS)
            built = {hour for path in files for hour in hours_in(path.name)}
        too_old = self._cut(_WAIT * self._days(table))
        return [
            part
            for part in over
            if self._is_built(part, built) or self._has_waited(part, since=too_old)
        ]

    def _has_waited(self, part: LandedPart, *, since: datetime) -> bool:
        """Whether its rows are old and came long ago: what a site loads late is young to us."""
        landed_at = self._compactor.landed_at(part.path)
        return part.is_over(since) and (landed_at is None or landed_at < since)

    def _is_built(self, part: LandedPart, built: set[datetime]) -> bool:
        """Whether the core table has every hour that rows of a part are of."""
        if part.first is None or part.last is None:
            return True
        at = part.first.replace(minute=0, second=0, microsecond=0)
        hours = range((part.last - at) // _HOUR + 1) if part.days <= _MOST_DAYS else range(0)
        if hours and all(at + number * _HOUR in built for number in hours):
            return True
        return self._compactor.hours_of(part.path) <= built

    def _folded(self, table: str) -> Iterator[Chore]:
        over = self._compactor.over(table, self._cut(self._days(table))) if table in _KEPT else []
        groups = [
            [part for part in group if part not in over]
            for group in self._compactor.foldable(table)
        ]
        parts = [part for group in groups for part in group]
        if parts:
            change = Change(
                table=table,
                what="merges small parts, without rows that were superseded",
                n_files=len(parts),
                n_bytes=sum(part.size for part in parts),
            )
            yield Chore(change, partial(self._fold, table, [group for group in groups if group]))

    def _fold(self, table: str, groups: Sequence[Sequence[LandedPart]]) -> None:
        for group in groups:
            self._compactor.fold(table, group)

    def _journal_chores(self) -> Iterator[Chore]:
        """Entries of the journal that nobody asks for any more."""
        kept, epoch_us = self.settings.retention, timedelta(microseconds=1)
        refused_before = self.now - timedelta(days=kept.quarantine_days)
        yield from self._rows_chore(
            "refused records",
            f"removes those read before {refused_before:%Y-%m-%d}",
            "refusals",
            "reading_id IN (SELECT reading_id FROM readings WHERE landed_at < ?)",
            [(refused_before.isoformat(),)],
        )
        yield from self._rows_chore(
            "inputs that failed",
            f"removes what was not tried since {refused_before:%Y-%m-%d}",
            "failures",
            "failed_at < ?",
            [(refused_before.isoformat(),)],
        )
        cuts = [(table, (self._cut(self._days(table)) - _EPOCH) // epoch_us) for table in _KEPT]
        for entries in ("reading_hours", "changed_hours"):
            what = "removes those of hours that are over"
            yield from self._rows_chore(
                f"journal {entries}", what, entries, "table_key = ? AND hour_us < ?", cuts
            )
        if forgotten := self._forgettable():
            yield from self._rows_chore(
                "readings",
                "forgets those that no input can give again",
                "readings",
                "reading_id = ?",
                [(reading_id,) for reading_id in forgotten],
            )
        yield from self._gone_files()

    def _forgettable(self) -> list[str]:
        """Readings without rows whose file is gone, or whose time no server is asked about."""
        pulls = [
            one.keep_days
            for one in load_inputs(self.settings.inputs).spec.inputs
            if isinstance(one, PullInput)
        ]
        landed_before = self.now - timedelta(days=self.settings.retention.landing_days)
        asked_since = self.now - timedelta(days=max(pulls, default=0) + 1)
        with self._journal() as sql:
            rows = sql.execute(
                "SELECT reading_id, origin, window_end FROM readings WHERE landed_at < ? "
                "AND reading_id NOT IN (SELECT reading_id FROM part_readings) AND generation NOT "
                "IN (SELECT MAX(generation) FROM readings GROUP BY input)",
                (landed_before.isoformat(),),
            ).fetchall()
        edge = (asked_since - _EPOCH) // timedelta(microseconds=1)
        return [
            reading_id
            for reading_id, origin, window_end in rows
            if (not Path(origin).exists() if window_end is None else window_end < edge)
        ]

    def _gone_files(self) -> Iterator[Chore]:
        """What the file system said of files that are not there any more."""
        with self._journal() as sql:
            known = sql.execute("SELECT input, origin FROM files").fetchall()
        gone = [(name, origin) for name, origin in known if not Path(origin).exists()]
        if gone:
            yield from self._rows_chore(
                "known files",
                "forgets those that are gone",
                "files",
                "input = ? AND origin = ?",
                gone,
            )

    def _rows_chore(
        self, table: str, what: str, entries: str, where: str, values: Sequence[tuple[Any, ...]]
    ) -> Iterator[Chore]:
        """A chore that removes rows of a table of the journal, where there are any."""
        with self._journal() as sql:
            query = f"SELECT COUNT(*) FROM {entries} WHERE {where}"  # noqa: S608 - our own words
            n_rows = sum(sql.execute(query, each).fetchone()[0] for each in values)
        if n_rows:
            change = Change(table=table, what=what, n_rows=n_rows)
            yield Chore(change, partial(self._delete, entries, where, values))

    def _delete(self, entries: str, where: str, values: Sequence[tuple[Any, ...]]) -> None:
        with self._journal() as sql:
            sql.execute("BEGIN IMMEDIATE")
            sql.executemany(f"DELETE FROM {entries} WHERE {where}", values)  # noqa: S608 - our own words
            sql.execute("COMMIT")

    @contextmanager
    def _journal(self) -> Iterator[sqlite3.Connection]:
        with landing_errors(self._journal_file), closing(open_journal(self._journal_file)) as sql:
            yield sql
