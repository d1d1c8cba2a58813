"""A site with stored tables and a Dagster instance of its own; nothing is asserted here."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from features.contracts import TableContract
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
    GPU_MATRIX,
    GPU_SCORES,
)
from pipelines.definitions import build_definitions
from pipelines.settings import Settings, load_settings
from pipelines.storage.store import Span, TableStore

HOUR = timedelta(hours=1)
T0 = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class World:
    """A site.

    Attributes:
        file: Its settings file.
        instance: Its Dagster instance.
    """

    file: Path
    instance: dg.DagsterInstance

    @property
    def settings(self) -> Settings:
        return load_settings(self.file)

    @property
    def store(self) -> TableStore:
        return TableStore(self.settings.store_root)

    def served(self, now: datetime) -> dg.Definitions:
        return build_definitions(self.file, now=now)

    def records(self) -> None:
        for table in (CORE_INVENTORY, CORE_TOPOLOGY, CORE_JOBS, CORE_NODE_STATES):
            self.store.write(table, table.empty())

    def hours(self, tables: tuple[TableContract, ...], first: int, end: int) -> None:
        """Stores hours without rows."""
        span = Span(T0 + first * HOUR, T0 + end * HOUR)
        for table in tables:
            self.store.write(table, table.empty(), span=span)

    def core(self, first: int, end: int) -> None:
        self.hours((CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS), first, end)

    def scored(self, first: int, end: int) -> None:
        self.hours((GPU_MATRIX, GPU_SCORES), first, end)

    def sensor(self, name: str, *, now: datetime, cursor: str | None = None) -> Any:
        """One evaluation."""
        served = self.served(now)
        repository = served.get_repository_def()
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            repository_def=repository,
            resources=dict(served.resources or {}),
        ) as context:
            return repository.get_sensor_def(name).evaluate_tick(context)

    def schedule(self, name: str, *, at: datetime, now: datetime | None = None) -> Any:
        """One evaluation of the tick that was due `at`."""
        served = self.served(now or at)
        repository = served.get_repository_def()
        with dg.build_schedule_context(
            instance=self.instance,
            scheduled_execution_time=at,
            repository_def=repository,
            resources=dict(served.resources or {}),
        ) as context:
            return repository.get_schedule_def(name).evaluate_tick(context)

    def run(self, job: str, status: dg.DagsterRunStatus, tags: dict[str, str]) -> str:
        """Notes a run without running it."""
        served = self.served(T0).get_repository_def().get_job(job)
        run = self.instance.create_run_for_job(served, tags=tags, status=status)
        return run.run_id


@contextmanager
def world(folder: Path, *, on_disk: bool = False, **settings: Any) -> Iterator[World]:
    """A site in a folder, its inputs an empty list.

    Args:
        folder: Where to.
        on_disk: Whether its instance is, too: schedules that ask for runs open it by its place.
        settings: Further settings.
    """
    (folder / "inputs.yaml").write_text("site: lab\ntime_zone: UTC\ninputs:\n")
    with (folder / "inputs.yaml").open("a") as file:
        file.write('  - {kind: sacct, path: "drop/*.txt", may_be_absent: true}\n')
    values = {
        "site": "lab",
        "inputs": "inputs.yaml",
        "data_root": "data",
        "start": T0.isoformat(),
        "horizons_h": [24],
    }
    path = folder / "forewarn.yaml"
    path.write_text(yaml.safe_dump(values | settings))
    (folder / "drop").mkdir(exist_ok=True)
    (home := folder / "dagster").mkdir()
    made = dg.DagsterInstance.local_temp(str(home)) if on_disk else dg.DagsterInstance.ephemeral()
    with made as instance:
        yield World(path, instance)
