"""Retention of Dagster's records of our runs and assets: runs, events, checks and logs.

Those of other teams who use the same Dagster stay. Dagster removes ticks of schedules and sensors
by itself, and nothing else. What is kept of our own data is in `pipelines.retention.chores`.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import dagster as dg
import sqlalchemy as sa
from dagster._core.storage.compute_log_manager import ComputeLogManager
from dagster._core.storage.dagster_run import FINISHED_STATUSES

# Rows that Dagster offers no way to remove: events without a run (`forewarn score` reports its
# ticks so), check results, evaluations. The names hold for the release that is pinned.
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.schedules.schema import AssetDaemonAssetEvaluationsTable

from features.errors import DataError, SourceError
from features.tables import TABLE_BY_KEY
from pipelines.defs.dagster_instance import cause_of, instance_errors, opened
from pipelines.defs.hourly import OUR_RUN, asset_keys
from pipelines.orchestration.dagster_home import dagster_environment
from pipelines.retention.chores import Change, Chore
from pipelines.settings import Settings

_AT_ONCE: Final = 200
OUR_ASSETS: Final = frozenset(
    asset_keys([*TABLE_BY_KEY, "models/candidate", "monitoring/housekeeping"])
)
"""Every asset of ours; the last two are no tables."""
_RUNLESS: Final = ""
"""Run id of events that were reported without a run."""


@dataclass(frozen=True)
class DagsterArea:
    """The records of one Dagster instance.

    Attributes:
        instance: The instance.
        before: What is older goes.
        name: What the area is called.
    """

    instance: dg.DagsterInstance
    before: datetime
    name: str = "dagster"

    def at_work(self) -> AbstractContextManager[object]:
        """Nothing: Dagster's own transactions keep its readers right."""
        return nullcontext()

    def chores(self) -> list[Chore]:
        """Our finished runs with their events and logs, then rows of our assets without a run.

        Raises:
            DataError: Dagster's database cannot be reached.
        """
        with _told():
            return self._found()

    def _found(self) -> list[Chore]:
        run_ids = list(self._old_runs())
        found = []
        if run_ids:
            what = f"removes those created before {self.before:%Y-%m-%d}, with events and logs"
            change = Change(table="runs", what=what, n_rows=len(run_ids))
            found.append(Chore(change, partial(self._delete_runs, run_ids)))
        for connect, column, more in self._rows():
            n_rows = self._count(connect, column, more)
            if n_rows:
                what = f"removes what is before {self.before:%Y-%m-%d}"
                change = Change(table=column.table.name, what=what, n_rows=n_rows)
                found.append(Chore(change, partial(self._delete, connect, column, more)))
        return found

    def _old_runs(self) -> Iterator[str]:
        wanted = dg.RunsFilter(
            statuses=FINISHED_STATUSES, created_before=self.before.astimezone(UTC)
        )
        cursor = None
        while page := self.instance.get_runs(wanted, cursor=cursor, limit=_AT_ONCE):
            yield from (run.run_id for run in page if is_ours(run))
            cursor = page[-1].run_id

    def _delete_runs(self, run_ids: Sequence[str]) -> None:
        logs = self.instance.compute_log_manager
        for run_id in run_ids:
            with _told():
                self.instance.delete_run(run_id)
            _delete_shard(self.instance, run_id)
            _delete_logs(logs, run_id)

    def _rows(self) -> list[tuple[Any, sa.Column[Any], sa.ColumnElement[bool]]]:
        """How a store is reached, the column that tells a row's time, and which rows are meant."""
        events: Any = self.instance.event_log_storage
        schedules: Any = self.instance.schedule_storage
        ours = [key.to_string() for key in OUR_ASSETS]
        runless = (SqlEventLogStorageTable.c.run_id == _RUNLESS) & (
            SqlEventLogStorageTable.c.asset_key.in_(ours)
        )
        found: list[tuple[Any, sa.Column[Any], sa.ColumnElement[bool]]] = [
            (events.index_connection, SqlEventLogStorageTable.c.timestamp, runless),
            *(
                (connect, column, column.table.c.asset_key.in_(ours))
                for connect, column in (
                    (events.index_connection, AssetEventTagsTable.c.event_timestamp),
                    (events.index_connection, AssetCheckExecutionsTable.c.create_timestamp),
                    (schedules.connect, AssetDaemonAssetEvaluationsTable.c.create_timestamp),
                )
            ),
        ]
        if hasattr(events, "path_for_shard"):  # SQLite keeps a copy of them in a file of their own
            shard = partial(events.run_connection, _RUNLESS)
            found.insert(0, (shard, SqlEventLogStorageTable.c.timestamp, runless))
        return found

    def _count(self, connect: Any, column: sa.Column[Any], more: Any) -> int:
        query = (
            sa.select(sa.func.count()).select_from(column.table).where(self._is_old(column), more)
        )
        with connect() as connection:
            return int(connection.execute(query).scalar_one())

    def _delete(self, connect: Any, column: sa.Column[Any], more: Any) -> None:
        with _told(), connect() as connection:
            connection.execute(sa.delete(column.table).where(self._is_old(column), more))

    def _is_old(self, column: sa.Column[Any]) -> sa.ColumnElement[bool]:
        # Dagster's times are UTC without a zone.
        return column < self.before.astimezone(UTC).replace(tzinfo=None)


def is_ours(run: dg.DagsterRun) -> bool:
    """Whether a run is of our jobs, or was started by hand for nothing but our assets."""
    if OUR_RUN.items() <= run.tags.items():
        return True
    keys = {*(run.asset_selection or ())}
    keys |= {check.asset_key for check in run.asset_check_selection or ()}
    return bool(keys) and keys <= OUR_ASSETS


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except instance_errors() as error:
        raise DataError(
            f"Dagster's database cannot be used: {cause_of(error)}. See that it runs "
            "and has space; what is over stays until the next call."
        ) from error


@dataclass(frozen=True)
class UnopenedArea:
    """The records of an instance that cannot be opened: a problem of this area, and of no other.

    Attributes:
        problem: Why it cannot be.
        name: As in `DagsterArea`.
    """

    problem: SourceError
    name: str = "dagster"

    def at_work(self) -> AbstractContextManager[object]:
        """Nothing is at work."""
        return nullcontext()

    def chores(self) -> list[Chore]:
        """None can be told.

        Raises:
            SourceError: Always.
        """
        raise self.problem


def dagster_area(instance: dg.DagsterInstance, *, now: datetime, days: int) -> DagsterArea:
    """The records of an instance.

    Args:
        instance: The instance.
        now: The present.
        days: How long they are kept.
    """
    return DagsterArea(instance, now - timedelta(days=days))


def _delete_shard(instance: dg.DagsterInstance, run_id: str) -> None:
    """SQLite keeps a file per run, which `delete_run` only empties."""
    events: Any = instance.event_log_storage
    if not hasattr(events, "path_for_shard"):
        return
    path = Path(events.path_for_shard(run_id))
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _delete_logs(logs: ComputeLogManager[Any], run_id: str) -> None:
    logs.delete_logs(prefix=[run_id, "compute_logs"])
    base = getattr(logs, "_base_dir", None)
    if base is not None:
        folder = Path(base) / run_id
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def dagster_areas(
    settings: Settings, *, now: datetime
) -> Iterator[Sequence[DagsterArea | UnopenedArea]]:
    """The records of the instance that `DAGSTER_HOME` names, or of `forewarn dev`'s; else nothing.

    Args:
        settings: The installation.
        now: The present.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or settings.data_root / "dagster")
    if not (home / "dagster.yaml").exists():
        yield []
        return
    os.environ.update(dagster_environment(settings))  # its file names the password's variable
    with ExitStack() as stack:
        try:
            instance = stack.enter_context(opened(home))
        except SourceError as error:
            found: DagsterArea | UnopenedArea = UnopenedArea(error)
        else:
            found = dagster_area(instance, now=now, days=settings.retention.dagster_days)
        yield [found]
