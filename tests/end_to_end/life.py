"""One installation that lives: a clock, Dagster as its daemon would drive it, the hook, a listener.

What happens to it is told in `test_thirty_days`; what must always hold is in `life_rules`.
"""

import itertools
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
import sqlalchemy as sa
import yaml
from dagster._core.storage.event_log.sqlite import consolidated_sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from dagster._utils.schedules import schedule_execution_time_iterator

from pipelines.definitions import build_definitions
from pipelines.defs.resources import Installation
from pipelines.flow.remediate import stored_cluster
from pipelines.settings import Settings, load_settings
from remediation.cluster.state import ClusterReader
from remediation.hook_settings import load_hook_settings
from remediation.program.loop import Ending, run_loop
from remediation.program.round import Round, opened, run_round
from tests.end_to_end.life_fleet import T0, DropFolder

PARTS: Final = (
    "records", "hourly", "daily", "training", "drop_folder", "champion_moved", "operations_alerts",
)  # fmt: skip
"""Schedules and sensors, in the order in which a day that nothing disturbs calls for them."""
SCHEDULES: Final = ("records", "daily", "training")
RUN_KEY: Final = "dagster/run_key"
MOST_RUNS: Final = 60
"""Runs of hours after which a look has run wild."""
_DAGSTER: Final = """telemetry: {{enabled: false}}
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
event_log_storage:
  module: dagster._core.storage.event_log
  class: ConsolidatedSqliteEventLogStorage
  config: {{base_dir: {home}}}
"""
"""Events in one file: a file for each run, made anew, was a third of all work."""
_MISSED: Final = 5
"""Ticks of a schedule that Dagster makes up for by itself."""


class Clock:
    """The present, which goes on at the machine's pace between two moments that are set."""

    def __init__(self, at: datetime) -> None:
        self._real, self._sleep = time.time, time.sleep
        self.set(at)

    def set(self, at: datetime) -> None:
        self.now = at
        self._ahead = at.timestamp() - self._real()

    def seconds(self) -> float:
        return self._real() + self._ahead

    def sleep(self, seconds: float) -> None:
        """Waits, at no cost: a retry in ten seconds is made at once, ten seconds later."""
        self._ahead += seconds
        self._sleep(min(seconds, 0.001))

    @contextmanager
    def rules(self) -> Iterator[None]:
        """Has Dagster, MLflow and whoever asks for seconds take it for the present."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", self.seconds)
            patch.setattr(time, "sleep", self.sleep)
            patch.setattr("dagster._time._mockable_get_current_timestamp", self.seconds)
            patch.setattr(
                "dagster._time._mockable_get_current_datetime",
                lambda: datetime.fromtimestamp(self.seconds(), tz=UTC),
            )
            yield


@contextmanager
def kept_connections() -> Iterator[None]:
    """Has Dagster keep its connections to a SQLite file: one for each event is half of all work."""
    kept: dict[str, sa.Engine] = {}

    def once(url: str, **more: Any) -> sa.Engine:
        if url not in kept:
            kept[url] = sa.create_engine(url, **more | {"poolclass": sa.QueuePool})
        return kept[url]

    with pytest.MonkeyPatch.context() as patch:
        for module in (consolidated_sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
            patch.setattr(module, "create_engine", once)
        yield
    for engine in kept.values():
        engine.dispose()


@dataclass(frozen=True)
class Ran:
    """A run that was asked for."""

    at: datetime
    by: str
    key: str
    job: str
    tags: Mapping[str, str]
    is_fine: bool


@dataclass
class Life:
    """The installation.

    Attributes:
        root: Its folder.
        drop: What comes to it.
        instance: Dagster's records.
        clock: The present.
        told: What Alertmanager was sent, and when.
        runs: Runs that were asked for, in order.
        repeated: Requests that Dagster drops, as their key has run.
        rounds: Rounds of the hook.
        excused: Hours that cannot be made at the moment.
        unpublished: Hours that were never published though they were the newest, and why.
        said: What each sensor said last.
        watch: Is asked after each look whether all that must hold does.
    """

    root: Path
    drop: DropFolder
    instance: dg.DagsterInstance
    clock: Clock
    told: list[tuple[datetime, list[dict[str, Any]]]] = field(default_factory=list)
    runs: list[Ran] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    excused: set[datetime] = field(default_factory=set)
    unpublished: dict[datetime, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    watch: Callable[["Life"], None] = lambda life: None
    _cursors: dict[str, str | None] = field(default_factory=dict)
    _looked: datetime = T0
    _published: bytes = b""

    def __post_init__(self) -> None:
        self.write_settings()
        self._definitions = build_definitions(self.file, now=T0)
        self._repository = self._definitions.get_repository_def()

    @property
    def file(self) -> Path:
        return self.root / "forewarn.yaml"

    @property
    def settings(self) -> Settings:
        return load_settings(self.file)

    @property
    def now(self) -> datetime:
        return self.clock.now

    def write_settings(self) -> None:
        values = {
            "site": "life",
            "inputs": "drop/inputs.yaml",
            "data_root": "data",
            "start": T0.isoformat(),
            "horizons_h": [24],
            "split": {"valid_days": 2, "test_days": 2},
            "trained_on": "synthetic",
            "alert_budget_per_1000_node_days": 150.0,
            "switch_level": "leaf_switch",
            "node_states_hold_only_trouble": True,
            "schedule": {"training_weekday": "sunday", "look_back_days": 14},
            "serving": {"alertmanager": {"url": "http://127.0.0.1:9"}},
        }
        self.file.write_text(yaml.safe_dump(values))
        hook = {
            "state": "hook",
            "scores": {"folder": "data/scores"},
            "cluster": {"kind": "core_tables", "installation": "forewarn.yaml"},
            "ledger": {"sqlite": "data/ledger.sqlite"},
            "site": {
                "levels": [{"level": "notify_then_drain"}],
                "caps": {"held_percent": 20.0, "partition_percent": 40.0, "actions_per_hour": 2},
                "burst": {"fleet_percent": 80.0, "component_nodes": 6},
            },
        }
        (self.root / "hook.yaml").write_text(yaml.safe_dump(hook))

    def go_to(self, at: datetime, **delivery: Any) -> None:
        """Lets time pass: what happened until then is delivered, and Dagster and hook see to it."""
        self.clock.set(at)
        self.drop.deliver(at, **delivery)
        self.look()

    def look(self) -> None:
        """What Dagster's daemon does now, until nothing is left to do; the hook after each tick."""
        for name in PARTS:
            if name in SCHEDULES:
                self._schedule(name)
                continue
            for _ in range(MOST_RUNS):
                if not self._sensor(name):
                    break
            else:
                raise AssertionError(f"{self.now}: sensor {name} asks for runs without end")
        self._looked = self.now
        self.watch(self)

    def hear(self, _: str, payload: list[dict[str, Any]], **__: Any) -> None:
        """Is Alertmanager."""
        self.told.append((self.now, payload))

    def open_alerts(self) -> dict[str, str]:
        """Alerts that Alertmanager takes to be open now: their words by name and what about."""
        found: dict[str, str] = {}
        for _, payload in self.told:
            for alert in payload:
                labels = alert["labels"]
                about = ("check", "job", "hours", "node", "condition")
                name = ":".join([labels["alertname"], *(labels[k] for k in about if k in labels)])
                found.pop(name, None)
                if datetime.fromisoformat(alert["endsAt"]) > self.now:
                    found[name] = alert["annotations"].get("summary", "")
        return found

    def days_of_alerts(self) -> dict[str, set[int]]:
        """Days on which each alert was told of as open, by its name."""
        found: dict[str, set[int]] = {}
        for at, payload in self.told:
            for alert in payload:
                if datetime.fromisoformat(alert["endsAt"]) > at:
                    found.setdefault(alert["labels"]["alertname"], set()).add(at.day)
        return found

    def job(self, name: str, **more: Any) -> dg.ExecuteInProcessResult:
        """Runs a job, as Dagster would in a process of its own."""
        mine = {"config": {"settings_file": str(self.file), "frozen_now": self.now.isoformat()}}
        config = {
            "resources": {"installation": mine},
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        }
        return self._definitions.resolve_job_def(name).execute_in_process(
            run_config=config, instance=self.instance, raise_on_error=False, **more
        )

    def _schedule(self, name: str) -> None:
        schedule = self._repository.get_schedule_def(name)
        for at in _ticks(schedule, self._looked, self.now)[-_MISSED:]:
            with dg.build_schedule_context(
                instance=self.instance,
                scheduled_execution_time=at,
                resources={"installation": self._installation()},
                repository_def=self._repository,
            ) as context:
                tick = schedule.evaluate_tick(context)
            for request in tick.run_requests or ():
                self._run(request, by=name, job=schedule.job_name)

    def _sensor(self, name: str) -> bool:
        """Evaluates a sensor; whether a run came of it."""
        sensor = self._repository.get_sensor_def(name)
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self._cursors.get(name),
            resources={"installation": self._installation()},
            repository_def=self._repository,
            sensor_name=name,
        ) as context:
            tick = sensor.evaluate_tick(context)
        self._cursors[name] = tick.cursor
        self.said[name] = tick.skip_message or ""
        for event in tick.asset_events:
            self.instance.report_runless_asset_event(event)
        requests = tick.run_requests or ()
        ran = [
            self._run(one, by=name, job=one.job_name or str(sensor.job_name)) for one in requests
        ]
        return any(ran)

    def _run(self, request: dg.RunRequest, *, by: str, job: str) -> bool:
        key = f"{by}:{request.run_key}"
        if any(one.key == key for one in self.runs):
            self.repeated.append(key)
            return False
        tags = {k: v for k, v in request.tags.items() if k != "dagster/partition"}
        result = self.job(
            job,
            tags={**tags, RUN_KEY: key},
            partition_key=request.partition_key,
            asset_selection=request.asset_selection,
        )
        self.runs.append(Ran(self.now, by, key, job, tags, result.success))
        self._hook_if_published()
        return True

    def _installation(self) -> Installation:
        return Installation(settings_file=str(self.file), frozen_now=self.now.isoformat())

    def _hook_if_published(self) -> None:
        path = self.settings.scores_dir / "LATEST.json"
        content = path.read_bytes() if path.exists() else b""
        if content != self._published:
            self._published = content
            self.hook()

    def hook(self) -> Round:
        """One turn of the hook's loop."""
        settings, ending, made = load_hook_settings(self.root / "hook.yaml"), Ending(), []

        def make_round() -> Round:
            ending("one turn")
            with opened(settings, core_tables=self._cluster) as parts:
                made.append(run_round(replace(parts, clock=lambda: self.now)))
            return made[0]

        lines: list[str] = []
        run_loop(
            make_round, state=settings.state, ending=ending, interval_s=60, longest_pause_s=60,
            say=lines.append, clock=lambda: self.now,
        )  # fmt: skip
        assert made, lines
        self.rounds += made
        return made[0]

    def _cluster(self, _: Path) -> ClusterReader:
        return stored_cluster(self.settings, now=self.now)


@contextmanager
def new_life(root: Path, record: Path, *, begins: datetime = T0) -> Iterator[Life]:
    """An installation before its first day.

    Args:
        root: Its folder.
        record: The site's files of the whole month.
        begins: The present.
    """
    home = root / "dagster"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text(_DAGSTER.format(home=home))
    clock, log = Clock(begins), logging.getLogger("dagster")
    with (
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as patch,
        clock.rules(),
        kept_connections(),
        dg.DagsterInstance.from_config(str(home)) as instance,
    ):
        warnings.simplefilter("ignore")  # Dagster's own deprecations, not ours to fix
        patch.setattr(log, "disabled", True)
        yield Life(root, DropFolder(record, root / "drop"), instance, clock)


def _ticks(schedule: dg.ScheduleDefinition, since: datetime, until: datetime) -> list[datetime]:
    """When a schedule was due after a moment, up to another."""
    every = schedule_execution_time_iterator(
        since.timestamp() + 1, schedule.cron_schedule, schedule.execution_timezone, ascending=True
    )
    return list(itertools.takewhile(lambda at: at <= until, every))
