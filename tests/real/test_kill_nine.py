"""Whatever is killed amid a run: it goes on by itself, no hour is lost and none is made twice.

The processes are real, and are started as their systemd units start them (`killed_site`).
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import dagster as dg
import polars as pl
import pytest
from dagster._core.storage.dagster_run import FINISHED_STATUSES

from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_JOBS,
    GPU_MATRIX,
    GPU_SCORES,
    NODE_SCORES,
)
from pipelines.end_to_end.backfill import run_backfill
from pipelines.orchestration.hour_state import has_records, hour_state
from pipelines.orchestration.run_marks import state_of
from pipelines.serving.place import score_engine
from pipelines.serving.published import latest_published
from pipelines.serving.score_reader import ticks
from pipelines.settings import ENVIRONMENT_VARIABLE, Settings
from pipelines.storage.store import TableStore
from remediation.ledger.sqlite import SqliteLedger
from tests.pipelines.serving.serving_world import T0
from tests.pipelines.serving.serving_world import World as ScoredWorld

sys.path.insert(0, str(Path(__file__).parent))

import postgres_server
from killed_site import (
    APPEND_FOR_EVER,
    HOUR,
    Site,
    Unit,
    damaged_databases,
    kill,
    leave_half_files,
    scorer_is_at,
    this_hour,
    until,
    write_fleet,
)
from postgres_server import PostgresServer

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Dagster warns of itself
]

SEED: Final = 9
BOUND_S: Final = 600
"""Far above what it takes on a quiet machine (`docs` has the figures): a busy one is no fault."""
BY_TIME: Final = {
    CORE_GPU_TELEMETRY: "ts",
    CORE_HEALTH_EVENTS: "ts",
    GPU_MATRIX: "as_of",
    GPU_SCORES: "as_of",
    NODE_SCORES: "as_of",
}
WHOLE: Final = (CORE_JOBS, CORE_INCIDENTS)


@dataclass
class World:
    """A site whose hours fall due one by one, on a storage of Dagster's, and what is killed."""

    site: Site
    daemon: Unit
    web: Unit
    postgres: PostgresServer | None
    wanted: list[Unit] = field(default_factory=list)
    ledger: subprocess.Popen[str] | None = None
    moments: random.Random = field(default_factory=lambda: random.Random(SEED))  # noqa: S311 - no secret

    @property
    def settings(self) -> Settings:
        return self.site.settings

    @property
    def end(self) -> datetime:
        assert self.settings.end is not None
        return self.settings.end

    def run_at_work(self, job: str, *, since: float) -> dg.DagsterRun:
        """A run of a job, once it is at the step that chance has chosen."""
        n_steps = self.moments.randint(1, 4)

        def found() -> dg.DagsterRun | None:
            with self.site.instance() as instance:
                for record in instance.get_run_records(dg.RunsFilter(job_name=job), limit=1):
                    run = record.dagster_run
                    if record.create_timestamp.timestamp() < since:
                        return None
                    begun = dg.DagsterEventType.STEP_START
                    if len(instance.all_logs(run.run_id, of_type=begun)) >= n_steps:
                        return run
            return None

        run: dg.DagsterRun = until(found, seconds=BOUND_S, what="a run at work", every=0.2)
        time.sleep(self.moments.uniform(0, 0.1))
        return run

    def status_of(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        with self.site.instance() as instance:
            found = instance.get_run_by_id(run.run_id)
        assert found is not None
        return found.status

    def start(self, *units: Unit) -> None:
        """Starts units for the first time, and what is down of the others, as systemd does."""
        self.wanted += [unit for unit in units if unit not in self.wanted]
        for unit in self.wanted:
            if not unit.is_up():
                unit.start()

    def write_ledger(self) -> None:
        """Has a process add to the hook's ledger until it is killed."""
        self.ledger = subprocess.Popen(
            [sys.executable, "-c", APPEND_FOR_EVER, str(self.settings.ledger_path)],
            stdout=subprocess.PIPE, text=True, cwd=Path.cwd(),
        )  # fmt: skip

    def is_whole(self) -> bool:
        """Whether every hour that is due is made, the newest is published, and all runs ended."""
        settings = self.settings
        if not has_records(settings):
            return False
        state = hour_state(settings, now=datetime.now(UTC))
        tick = latest_published(settings.scores_dir)
        if state.without_core or state.without_scores or tick is None:
            return False
        return tick.tick.as_of == self.end and not self.unfinished()

    def unfinished(self) -> list[str]:
        with self.site.instance() as instance:
            return [
                f"{run.job_name} {run.status.value} {run.tags}"
                for run in instance.get_runs()
                if run.status not in FINISHED_STATUSES
            ]

    def why_not(self) -> str:
        state = hour_state(self.settings, now=datetime.now(UTC))
        log = self.daemon.log.read_text(errors="replace")[-3000:]
        return (
            f"{sorted(state.without_core)} {sorted(state.without_scores)} {self.unfinished()} {log}"
        )


def kill_worker(world: World) -> None:
    for worker in world.daemon.run_workers():  # one, or none where it has just ended
        kill(worker.pid)


def kill_daemon_alone(world: World) -> None:
    world.daemon.kill_main()


def kill_daemon_unit(world: World) -> None:
    world.daemon.kill()


def kill_code_servers(world: World) -> None:
    for one in world.daemon.code_servers():
        kill(one.pid)


def kill_postgres(world: World) -> None:
    assert world.postgres is not None
    world.postgres.kill()
    time.sleep(3)  # as long as a restart of the server takes
    world.postgres.start()


def lose_power(world: World) -> None:
    assert world.ledger is not None
    world.ledger.kill()
    for unit in world.wanted:
        unit.kill()
    if world.postgres is not None:
        world.postgres.kill()
        world.postgres.start()
    leave_half_files(world.settings.data_root)


KILLS: Final[dict[str, Callable[[World], None]]] = {
    "the first run of a new site": kill_worker,
    "the run": kill_worker,
    "the daemon alone": kill_daemon_alone,
    "all of the daemon's unit": kill_daemon_unit,
    "the code servers": kill_code_servers,
    "PostgreSQL": kill_postgres,
    "everything at once": lose_power,
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, datetime]:
    """Raw files, and the hour in which they end: the present one, which has just begun."""
    last = this_hour()
    return write_fleet(tmp_path_factory.mktemp("fleet"), start=last - 24 * HOUR), last


@pytest.fixture(scope="module")
def expected(
    fleet: tuple[Path, datetime], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, pl.DataFrame]:
    """The tables of the whole record, made undisturbed."""
    inputs, last = fleet
    site = Site(tmp_path_factory.mktemp("expected"), inputs, last - 9 * HOUR, last, {})
    site.record_ends(last)
    with dg.DagsterInstance.ephemeral() as instance:
        run_backfill(site.settings_file, now=datetime.now(UTC), instance=instance, say=print)
    store = TableStore(site.settings.store_root)
    return {one.asset_key: store.read(one) for one in (*BY_TIME, *WHOLE)}


@pytest.fixture(scope="class")
def world(
    request: pytest.FixtureRequest,
    fleet: tuple[Path, datetime],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A new site, whose units are started by the first that is killed in it."""
    inputs, last = fleet
    server, more = None, {}
    if request.cls is TestOnPostgres:
        if postgres_server.PROGRAMS is None:
            pytest.skip(postgres_server.ABSENT)
        server = PostgresServer().start()
        server.database("dagster")
        url = f"postgresql://forewarn@/dagster?host={server.folder}"
        more = {"storage": {"dagster": {"url": url}}}
    site = Site(tmp_path_factory.mktemp("site"), inputs, last - 9 * HOUR, last, more)
    site.record_ends(last - 8 * HOUR)
    built = World(site, site.unit("forewarn-dagster"), site.unit("forewarn-dagster-web"), server)
    try:
        yield built
    finally:
        for unit in (built.daemon, built.web):
            unit.kill()
        if built.ledger is not None:
            built.ledger.kill()
        if server is not None:
            server.__exit__()
    assert built.daemon.processes() + built.web.processes() == []


class TestOnSqlite:
    @pytest.mark.parametrize("what", [what for what in KILLS if what != "PostgreSQL"])
    def test_what_is_killed_amid_a_run_goes_on_by_itself_and_every_hour_is_made_once(
        self,
        what: str,
        world: World,
        expected: dict[str, pl.DataFrame],
        record_property: Callable[[str, object], None],
    ) -> None:
        check_that_it_goes_on(world, what, expected, record_property)


class TestOnPostgres:
    # Who else is killed does not meet the server that keeps the records.
    @pytest.mark.parametrize("what", ["PostgreSQL", "everything at once"])
    def test_what_is_killed_amid_a_run_goes_on_by_itself_and_every_hour_is_made_once(
        self,
        what: str,
        world: World,
        expected: dict[str, pl.DataFrame],
        record_property: Callable[[str, object], None],
    ) -> None:
        check_that_it_goes_on(world, what, expected, record_property)


def check_that_it_goes_on(
    world: World,
    what: str,
    expected: dict[str, pl.DataFrame],
    record_property: Callable[[str, object], None],
) -> None:
    """Kills amid a run, starts what is down as systemd does, and waits until all is whole."""
    began, is_new = time.time(), what == next(iter(KILLS))
    if what == "everything at once":  # and hours fall due at once, as after time off
        world.site.record_ends(world.site.last)
        world.start(world.web)
        world.write_ledger()
    elif not is_new:
        world.site.record_ends(world.end + HOUR)
    world.start(world.daemon)
    run = world.run_at_work("records" if is_new else "hourly", since=began)
    killed = time.monotonic()
    KILLS[what](world)
    status = world.status_of(run)
    world.start()
    try:
        # A look costs as much as the work that is waited for, on the same processors.
        until(world.is_whole, seconds=BOUND_S, what="whole again", every=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}: {world.why_not()}") from error
    took = round(time.monotonic() - killed, 1)
    record_property("recovery_s", took)
    print(f"{what}: whole after {took} s; killed at {status.value}")  # noqa: T201
    check_tables(world, expected)
    check_dagster(world)
    check_files(world)
    if status is dg.DagsterRunStatus.SUCCESS:
        pytest.skip("the run had ended when it was to be killed amid it")


def check_tables(world: World, expected: dict[str, pl.DataFrame]) -> None:
    """The tables are those of an undisturbed run, and the newest tick is published whole."""
    store, settings = TableStore(world.settings.store_root), world.settings
    for table, time_column in BY_TIME.items():
        at = pl.col(time_column)
        is_due = at <= world.end if time_column == "as_of" else at < world.end
        made, wanted = store.read(table), expected[table.asset_key].filter(is_due)
        assert made.equals(wanted), table.asset_key
    if world.end == world.site.last:
        for table in WHOLE:
            assert store.read(table).equals(expected[table.asset_key]), table.asset_key
    published = latest_published(settings.scores_dir)
    assert published is not None
    assert published.gpu_scores()["as_of"].unique().to_list() == [world.end]


def check_dagster(world: World) -> None:
    """No run is left, none was started twice under one key, and no pool is taken."""
    with world.site.instance() as instance:
        runs = instance.get_runs()
        events = instance.event_log_storage
        taken = {
            key: info
            for key in events.get_concurrency_keys()
            if (info := events.get_concurrency_info(key)).active_slot_count
            or info.pending_step_count
        }
    assert taken == {}
    keys = [run.tags["dagster/run_key"] for run in runs if not run.parent_run_id]
    assert len(set(keys)) == len(keys)
    marks = world.settings.run_marks_dir
    until(
        lambda: "at_work" not in {state_of(marks, run.run_id) for run in runs},
        seconds=BOUND_S,
        what="all processes of runs at their end",
    )


def check_files(world: World) -> None:
    """No database is damaged, and the ledger holds all that it said it wrote."""
    assert damaged_databases(world.site.folder) == []
    if world.ledger is not None:
        n_told = len(world.ledger.communicate()[0].split())
        world.ledger = None
        with SqliteLedger(world.settings.ledger_path) as ledger:
            assert ledger.verify().is_whole
            assert len(ledger.entries()) in {n_told, n_told + 1}  # the last may not be told of


def test_a_scorer_killed_amid_its_tick_publishes_it_once_it_is_started_again(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    started = this_hour() - 30 * HOUR
    scored = ScoredWorld(tmp_path, {"start": started})
    newest = (this_hour() - T0) // HOUR - 1
    for hour in (newest, newest + 1):  # it may turn meanwhile
        scored.land(hour)
    plain = {
        "site": "lab", "inputs": "inputs.yaml", "data_root": "data", "horizons_h": [24],
        "start": started.isoformat(), "trained_on": "synthetic", "serving": {"every_s": 0.2},
    }  # fmt: skip
    file = tmp_path / "forewarn.yaml"
    file.write_text(json.dumps(plain))
    environment = {**os.environ, ENVIRONMENT_VARIABLE: str(file)}
    unit = Unit("forewarn-score", environment, tmp_path / "score.log")
    scores = scored.settings.scores_dir
    moments, n_amid = random.Random(SEED), 0  # noqa: S311 - no secret
    try:
        for phase in ("features", "scores", "publishing"):
            unit.start()
            until(
                lambda phase=phase: scorer_is_at(phase, scores, unit) or latest_published(scores),
                seconds=BOUND_S,
                what=phase,
                every=0.001,
            )
            time.sleep(moments.uniform(0, 0.003))
            unit.kill()
            if latest_published(scores) is not None:
                break
            n_amid += 1
        killed = time.monotonic()
        unit.start()
        until(lambda: scorer_is_at("idle", scores, unit), seconds=BOUND_S, what="a tick")
        record_property("recovery_s", round(time.monotonic() - killed, 1))
        print(f"the scorer: published after {time.monotonic() - killed:.1f} s")  # noqa: T201
    finally:
        unit.kill()
    published = latest_published(scores)
    assert published is not None
    as_of = published.tick.as_of
    assert as_of in {this_hour(), this_hour() - HOUR}
    assert published.gpu_scores()["as_of"].unique().to_list() == [as_of]
    told = [one.as_of for one in ticks(score_engine(scored.settings))]
    assert told.count(as_of) == 1
    assert len(set(told)) == len(told)
    assert unit.processes() == []
    if not n_amid:
        pytest.skip("the tick was over before it could be killed amid it")
