"""Rules of the housekeeping asset, and of retention of Dagster's own records."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from features.errors import DataError
from features.tables import CORE_HEALTH_EVENTS
from pipelines.defs.dagster_history import DagsterArea, dagster_areas, is_ours
from pipelines.defs.hourly import OUR_RUN
from pipelines.defs.housekeeping import housekeeping_assets
from pipelines.defs.resources import Installation
from pipelines.defs.table_look import look_of
from pipelines.retention.areas import areas_of
from pipelines.retention.chores import retain
from pipelines.settings import load_settings
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
NOW = T0 + timedelta(days=10)
SITE = """\
site: lab
inputs: inputs.yaml
data_root: data
start: 2026-01-05T00:00:00Z
horizons_h: [24]
"""
INPUTS = """\
site: lab
time_zone: UTC
inputs:
  - {kind: kernel_log, path: 'logs/*.log', may_be_absent: true}
"""


@dg.op
def nothing() -> None:
    """Does nothing."""


@dg.job
def idle() -> None:
    """A run to be recorded."""
    nothing()


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    (tmp_path / "inputs.yaml").write_text(INPUTS)
    path = tmp_path / "forewarn.yaml"
    path.write_text(SITE)
    return path


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(home)) as made:
        yield made


def recorded(instance: dg.DagsterInstance) -> tuple[str, str]:
    """A run that ended and one at work, each with an event, and an event without a run."""
    of = dg.DagsterRunStatus
    ended = instance.create_run_for_job(idle, status=of.SUCCESS, tags=OUR_RUN)
    at_work = instance.create_run_for_job(idle, status=of.STARTED, tags=OUR_RUN)
    for run in (ended, at_work):
        instance.report_engine_event("said", run, job_name=run.job_name, run_id=run.run_id)
    key = ["scores", "gpu_scores"]
    instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="p"))
    return ended.run_id, at_work.run_id


def shards(instance: dg.DagsterInstance) -> set[str]:
    return {
        path.stem for path in (Path(instance.root_directory) / "history" / "runs").glob("*-*.db")
    }


def test_old_runs_go_with_all_that_is_of_them_and_those_at_work_stay(
    instance: dg.DagsterInstance,
) -> None:
    ended, at_work = recorded(instance)
    logs = Path(instance.root_directory) / "storage" / ended / "compute_logs"
    logs.mkdir(parents=True)
    (logs / "x.out").write_text("said")
    later = datetime.now(UTC) + timedelta(hours=1)
    assert not DagsterArea(instance, later - timedelta(days=1)).chores()
    area = DagsterArea(instance, later)
    for chore in area.chores():
        chore.make()
    assert instance.get_run_ids() == [at_work]
    assert shards(instance) == {at_work}
    assert not logs.parent.exists()
    assert not instance.fetch_materializations(
        dg.AssetKey(["scores", "gpu_scores"]), limit=1
    ).records
    assert not area.chores()


def test_what_other_teams_keep_in_the_same_dagster_stays(instance: dg.DagsterInstance) -> None:
    theirs, mixed, ours = ["team", "table"], [["team", "table"], ["core", "jobs"]], ["core", "jobs"]
    check = dg.AssetCheckKey(dg.AssetKey(ours), "keys")

    def run(*selection: list[str]) -> str:
        keys = frozenset(map(dg.AssetKey, selection)) or None
        of = dg.DagsterRunStatus.SUCCESS
        return instance.add_run(dg.DagsterRun("a", status=of, asset_selection=keys)).run_id

    assert is_ours(dg.DagsterRun("a", asset_check_selection=frozenset({check})))
    kept = {run(), run(theirs), run(*mixed)}
    by_hand = {run(ours)}
    for key in (theirs, ours):
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="p"))
    assert set(instance.get_run_ids()) == kept | by_hand
    for chore in DagsterArea(instance, datetime.now(UTC) + timedelta(hours=1)).chores():
        chore.make()
    assert set(instance.get_run_ids()) == kept
    assert instance.fetch_materializations(dg.AssetKey(theirs), limit=1).records
    assert not instance.fetch_materializations(dg.AssetKey(ours), limit=1).records


def test_a_database_of_dagster_that_cannot_be_used_is_one_clear_error(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(instance)
    area = DagsterArea(instance, datetime.now(UTC) + timedelta(hours=1))
    found = area.chores()

    def broken(*_: object, **__: object) -> None:
        raise sa.exc.OperationalError("DELETE", {}, Exception("database is locked"))

    monkeypatch.setattr(instance, "delete_run", broken)
    monkeypatch.setattr(instance, "get_runs", broken)
    for act in (area.chores, found[0].make):
        with pytest.raises(DataError, match="database is locked"):
            act()


def test_an_installation_without_dagster_has_no_such_records(
    site_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with dagster_areas(load_settings(site_file), now=NOW) as areas:
        assert areas == []


def test_a_dagster_that_cannot_be_opened_keeps_no_other_area_from_its_retention(
    site_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_home: str) -> None:
        raise dg.DagsterError("too many retries for DB connection")

    settings = load_settings(site_file)
    home = settings.data_root / "dagster"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    day = Span(T0, T0 + timedelta(days=1))
    TableStore(settings.store_root).write(CORE_HEALTH_EVENTS, CORE_HEALTH_EVENTS.empty(), span=day)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(dg.DagsterInstance, "from_config", fails)
    with dagster_areas(settings, now=NOW) as history:
        done = retain(settings, [*history, *areas_of(settings, now=NOW)], now=NOW)
    assert [*done.problems] == ["dagster"]
    assert "too many retries" in done.problems["dagster"]
    assert any(done.changes.values())


def test_the_asset_compacts_and_says_how_much_there_is(
    site_file: Path, instance: dg.DagsterInstance
) -> None:
    settings = load_settings(site_file)
    store = TableStore(settings.store_root)
    day = Span(T0, T0 + timedelta(days=1))
    store.write(CORE_HEALTH_EVENTS, CORE_HEALTH_EVENTS.empty(), span=day)
    installation = Installation(settings_file=str(site_file), frozen_now=NOW.isoformat())
    result = dg.materialize(
        housekeeping_assets(look_of(settings)),
        instance=instance,
        resources={"installation": installation},
    )
    (made,) = result.asset_materializations_for_node("monitoring__housekeeping")
    said = {name: value.value for name, value in made.metadata.items()}
    assert said["changes"] == 1
    assert said["areas left"] == 0
    assert said["files"] > 24  # hours' own files go at the next call
    assert "tables/core" in said["by family"]
    assert len(store.files(CORE_HEALTH_EVENTS)) == 1
