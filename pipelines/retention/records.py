"""Retention of records outside of the tables: score database, model versions, leftover parts.

History and ticks in the score database go with every tick (`score_database.history_days`), and
published files with every delivery; here goes what these leave.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from features.tables import GPU_MATRIX, GPU_SCORES
from models.registry.version_removal import VersionRemover
from pipelines.flow.registry_storage import registry_place
from pipelines.retention.chores import Change, Chore
from pipelines.serving.place import open_scores
from pipelines.serving.score_database import to_us
from pipelines.serving.score_schema import ALERTS, LIVE_QUALITY, OUTCOMES, reading, writing
from pipelines.settings import Settings
from pipelines.storage.object_paths import Place
from pipelines.storage.telemetry.layout import is_locked

_DAY_S = 86_400.0
_UNFINISHED = ".unfinished-*"


@dataclass(frozen=True)
class ScoreDatabaseArea:
    """Alerts, outcomes and live quality in the score database.

    Attributes:
        settings: The installation.
        now: The present.
        name: What the area is called.
    """

    settings: Settings
    now: datetime
    name: str = "score database"

    def at_work(self) -> AbstractContextManager[object]:
        """Nothing: each removal is a transaction."""
        return nullcontext()

    def chores(self) -> list[Chore]:
        """Rows that are over."""
        days = self.settings.retention.outcomes_days
        cut = self.settings.data_end(self.now) - timedelta(days=days)
        found = []
        with open_scores(self.settings) as engine, reading(engine) as connection:
            if connection is None:
                return []
            for column in (ALERTS.c.as_of, OUTCOMES.c.as_of, LIVE_QUALITY.c.week):
                old = column < to_us(cut)
                n_rows = connection.execute(
                    sa.select(sa.func.count()).select_from(column.table).where(old)
                ).scalar_one()
                if n_rows:
                    what = f"removes what is before {cut:%Y-%m-%d}"
                    change = Change(table=column.table.name, what=what, n_rows=n_rows)
                    found.append(Chore(change, partial(_delete, self.settings, column.table, old)))
        return found


@dataclass(frozen=True)
class ModelsArea:
    """Versions in the model registry.

    Attributes:
        settings: The installation.
        now: The present.
        name: What the area is called.
    """

    settings: Settings
    now: datetime
    name: str = "models"

    def at_work(self) -> AbstractContextManager[object]:
        """Nothing: the registry is locked while a version goes."""
        return nullcontext()

    def chores(self) -> list[Chore]:
        """Versions that nothing needs; none are looked for where none can be there."""
        kept = self.settings.retention
        if not (
            self.settings.storage.mlflow.url or (self.settings.registry_dir / "mlflow.db").exists()
        ):
            return []
        registry = VersionRemover(registry_place(self.settings))
        before = self.now - timedelta(days=kept.models_days)
        what = f"removes it: neither named nor pinned, from before {before:%Y-%m-%d}"
        return [
            Chore(Change(table=version.label, what=what), partial(registry.forget, version))
            for name in registry.names()
            for version in registry.surplus(name, before=before, keep=kept.models_kept)
        ]


@dataclass(frozen=True)
class LeftoversArea:
    """What killed processes left behind: parts of scaled-out runs, files that were not finished.

    Attributes:
        settings: The installation.
        name: What the area is called.
    """

    settings: Settings
    name: str = "leftovers"

    def at_work(self) -> AbstractContextManager[object]:
        """Nothing: what is young may belong to a writer at work, and stays."""
        return nullcontext()

    def chores(self) -> list[Chore]:
        """Files that are over."""
        # With tables in a bucket the spool is there; what Slurm's jobs print never is.
        spools = {self.settings.spool_dir, self.settings.data_root / "spool"}
        # What a run reads to its end, its tables and certificates, is as old as the run.
        tables = [self.settings.spool_dir / one.asset_key for one in (GPU_MATRIX, GPU_SCORES)]
        if any(is_locked(table) for table in tables):
            spools.clear()
        parts = (path for spool in spools for path in spool.glob("*/*/*/*"))
        roots = {self.settings.data_root, self.settings.store_root}
        # A bucket has no unfinished files.
        unfinished = (
            path for root in roots if isinstance(root, Path) for path in root.rglob(_UNFINISHED)
        )
        return [*self._removal("spool", parts), *self._removal("unfinished files", unfinished)]

    def _removal(self, table: str, paths: Iterable[Place]) -> Iterator[Chore]:
        days = self.settings.retention.spool_days
        old = {path: size for path in paths if (size := _size_if_older(path, days)) is not None}
        if old:
            change = Change(
                table=table,
                what=f"removes what is older than {days} days",
                n_files=len(old),
                n_bytes=sum(old.values()),
            )
            yield Chore(change, lambda: [path.unlink(missing_ok=True) for path in old])


def _size_if_older(path: Place, days: int) -> int | None:
    try:
        found = path.stat()
    except FileNotFoundError:  # its writer has finished it
        return None
    return found.st_size if found.st_mtime < time.time() - days * _DAY_S else None


def _delete(settings: Settings, table: sa.Table, old: sa.ColumnElement[Any]) -> None:
    with open_scores(settings) as engine, writing(engine) as connection:
        connection.execute(sa.delete(table).where(old))
