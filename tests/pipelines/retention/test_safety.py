"""Rules by which retention never removes what is not over: wrong clocks, late loads, odd rows."""

import hashlib
import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from features.contracts import TableContract
from features.errors import DataError
from features.raw_tables import RAW_COVERAGE, RAW_JOB_OUTPUT, RAW_KERNEL_LOG, RAW_NODE_STATES
from features.tables import CORE_HEALTH_EVENTS, GPU_SCORES
from pipelines.landing.floor import floors_of
from pipelines.landing.ingest import landing_of
from pipelines.landing.journal import Reading
from pipelines.landing.landed import reading_id
from pipelines.retention import compaction, compaction_landing
from pipelines.retention.areas import areas_of
from pipelines.retention.chores import Change, Chore, planned, retain
from pipelines.retention.compaction import DayPlan
from pipelines.retention.landing import LandingArea
from pipelines.retention.records import LeftoversArea
from pipelines.retention.tables import TablesArea
from pipelines.settings import Settings
from pipelines.sources.result import SourceResult
from pipelines.storage.day_files import is_day_file
from pipelines.storage.store import Span, TableStore
from tests.pipelines.retention.retention_world import (
    DAY,
    HOUR,
    NOW,
    T0,
    CountingArea,
    build,
    days_landed,
    frame,
    land,
    settings_of,
)

SAID = {"source": "x", "ingested_at": T0}


@pytest.fixture
def site(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


def land_rows(
    site: Settings, table: str, contract: TableContract, *rows: dict[str, Any], at: datetime
) -> None:
    named = Reading(reading_id(how="", what=f"{table} {at}"), input="in", source="x", origin="o")
    chunk = SourceResult({table: frame(contract, *rows)})
    with landing_of(site).writer() as writer:
        writer.add(named, [chunk], landed_at=at)


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        )
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("wrong_by", [8 * DAY, 365 * DAY])
def test_a_clock_that_is_ahead_of_all_that_came_removes_nothing(
    site: Settings, wrong_by: timedelta
) -> None:
    for day in (0, 30, 39):
        land(site, day)
        build(site, day)
    before = tree(site.landing_root)
    for act in (planned, retain):
        with pytest.raises(DataError, match="newest record is of 2026-02-13"):
            act(site, areas_of(site, now=NOW + wrong_by), now=NOW + wrong_by)
    assert tree(site.landing_root) == before
    assert not floors_of(site.landing_root)
    assert not retain(site, [LandingArea(site, NOW)], now=NOW).problems  # the clock is right again
    assert days_landed(site) == [30, 39]


def test_a_line_of_a_node_whose_clock_is_wrong_does_not_vouch_for_ours(site: Settings) -> None:
    land(site, 39)
    land(site, 4000)
    counting = CountingArea()
    assert not retain(site, [counting], now=NOW).problems
    with pytest.raises(DataError, match="newest record is of 2026-02-13"):
        retain(site, [counting], now=NOW + 365 * DAY)


def test_a_record_that_ended_asks_no_clock(site: Settings) -> None:
    land(site, 0)
    ended = settings_of(site.inputs.parent, end=T0 + 2 * DAY)
    assert not retain(ended, [CountingArea()], now=T0 + 3000 * DAY).problems


def test_a_history_that_is_loaded_stays_until_it_is_built(site: Settings) -> None:
    line = {"kind": "xid", "line": "x"} | SAID
    lines = [line | {"ts": T0 + day * DAY} for day in (-400, 0, 1)]
    now = T0 + 500 * DAY
    land_rows(site, "raw/kernel_log", RAW_KERNEL_LOG, *lines, at=now)
    land_rows(site, "raw/kernel_log", RAW_KERNEL_LOG, line | {"ts": now}, at=now + HOUR)
    retain(site, [LandingArea(site, now)], now=now)
    assert days_landed(site) == [-400, 0, 1, 500]
    late = now + (3 * site.retention.landing_days + 1) * DAY
    land_rows(site, "raw/kernel_log", RAW_KERNEL_LOG, line | {"ts": late}, at=late)
    retain(site, [LandingArea(site, late)], now=late)
    assert days_landed(site) == [(late - T0) // DAY]


def test_a_stretch_that_began_long_ago_and_goes_on_is_not_over(site: Settings) -> None:
    stretch = {"entity_kind": "node", "entity_id": "n", "origin": "o"} | SAID
    rows = [stretch | {"start": T0, "end": NOW - HOUR}]
    land_rows(site, "raw/coverage", RAW_COVERAGE, *rows, at=NOW)
    for _ in range(2):
        retain(site, [LandingArea(site, NOW)], now=NOW)
    assert landing_of(site).read(RAW_COVERAGE)["end"].to_list() == [NOW - HOUR]


def test_a_row_without_time_grows_old_from_when_it_came(site: Settings) -> None:
    output = {"fault_class": "oom", "cause": "hang", "rule": "r", "priority": 1, "position": 0}
    output |= {"is_collateral": False, "count": 1, "line": "x", "job_id": "1", "source": "x"}
    now = T0 + 900 * DAY
    rows = [output | {"ts": T0, "ingested_at": now}, output | {"ingested_at": now}]
    land_rows(site, "raw/job_output", RAW_JOB_OUTPUT, *rows, at=now)
    for _ in range(3):
        retain(site, [LandingArea(site, now)], now=now)
    assert landing_of(site).read(RAW_JOB_OUTPUT)["ts"].to_list() == [None]


def test_the_hours_of_a_day_go_before_the_day_that_hides_them(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TableStore(site.store_root)
    build(site, 0)
    plans = compaction.plan_days(store, CORE_HEALTH_EVENTS, since=T0, until=NOW)
    compaction.compact_days(store, CORE_HEALTH_EVENTS, plans)
    gone: list[str] = []
    monkeypatch.setattr(Path, "unlink", lambda path, **_: gone.append(path.name))
    late = T0 + 900 * DAY
    retain(site, [TablesArea(site, late)], now=late)
    assert len(gone) == 25
    assert is_day_file(gone[-1])


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        ({0}, "makes one file a day of 1 day, {1} to {1}; leaves 1 day being written"),
        ({0, 1}, "leaves 2 days being written for the next call"),
        (set(), "makes one file a day of 2 days, {0} to {1}"),
    ],
)
def test_a_day_that_waits_for_its_writer_is_not_said_to_be_done(
    site: Settings, monkeypatch: pytest.MonkeyPatch, waiting: set[int], words: str
) -> None:
    build(site, 0)
    build(site, 1)
    area, real = TablesArea(site, T0 + 9 * DAY), compaction.compact_day

    def compact_day(store: TableStore, contract: TableContract, plan: DayPlan) -> bool:
        return (plan.day - T0).days not in waiting and real(store, contract, plan)

    monkeypatch.setattr(compaction, "compact_day", compact_day)
    done = retain(site, [area], now=T0 + 9 * DAY)
    said = [one for one in done.changes[area.name] if one.table == CORE_HEALTH_EVENTS.asset_key]
    (change,) = [one for one in said if "being written" in one.what or "one file" in one.what]
    days = [f"{T0 + day * DAY:%Y-%m-%d}" for day in range(2)]
    assert change.what.startswith(words.format(*days))
    assert change.n_files == 24 * (2 - len(waiting))


def test_a_file_that_another_process_removes_holds_up_its_own_day_only(site: Settings) -> None:
    build(site, 0)
    build(site, 1)
    area = TablesArea(site, T0 + 9 * DAY)
    chores = [one for one in area.chores() if one.change.table == CORE_HEALTH_EVENTS.asset_key]
    (chore,) = [one for one in chores if "one file" in one.change.what]
    store = TableStore(site.store_root)
    store.files(CORE_HEALTH_EVENTS)[0].unlink()
    made = chore.make()
    assert isinstance(made, Change)
    assert "1 day, " in made.what
    assert "leaves 1 day being written" in made.what
    assert is_day_file(store.files(CORE_HEALTH_EVENTS)[-1].name)


def test_a_day_is_on_the_disk_before_its_hours_may_go(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(site, 0)
    synced: list[int] = []
    monkeypatch.setattr("pipelines.storage.atomic_files.os.fsync", synced.append)
    retain(site, [TablesArea(site, NOW)], now=NOW)
    assert len(synced) == 1


def test_a_damaged_day_and_a_damaged_part_hold_up_no_other(site: Settings) -> None:
    for day in (0, 1, 2):
        build(site, day)
        land(site, day)
        land(site, day, origin="again")
    store = TableStore(site.store_root)
    store.write(GPU_SCORES, GPU_SCORES.empty(), span=Span(T0, T0 + DAY))
    (store.folder(CORE_HEALTH_EVENTS) / "2026-01-06T05.parquet").write_bytes(b"not Parquet")
    part = next((site.landing_root / "parts" / "raw" / "kernel_log").iterdir())
    part.write_bytes(b"not Parquet")
    now = T0 + 6 * DAY
    done = retain(site, [LandingArea(site, now), TablesArea(site, NOW)], now=now)
    assert "2026-01-06T05.parquet" in done.problems["tables"]
    assert part.name in done.problems["landing"]
    folder = Path(str(store.folder(CORE_HEALTH_EVENTS)))
    assert len(list(folder.glob("2026-01-0[57]-*"))) == 2
    assert len(list(Path(str(store.folder(GPU_SCORES))).glob("*-ffffff.parquet"))) == 1


def test_a_chore_that_fails_is_told_and_the_next_is_done(site: Settings) -> None:
    def broken() -> None:
        raise OSError(28, "No space left on device")

    class Area(CountingArea):
        def chores(self) -> list[Chore]:
            return [Chore(Change(table="t", what="fails"), broken), *super().chores()]

    area = Area()
    done = retain(site, [area], now=NOW)
    assert area.made == 1
    assert [change.what for change in done.changes["counting"]] == ["removes one"]
    assert "No space left on device" in done.problems["counting"]


def test_what_killed_writers_left_goes_once_they_cannot_be_alive(site: Settings) -> None:
    folder = site.data_root / "tables" / "core" / "jobs"
    folder.mkdir(parents=True)
    for age_days, name in ((0, ".unfinished-1-a.parquet"), (4, ".unfinished-2-b.parquet")):
        (folder / name).write_bytes(b"x")
        at = time.time() - age_days * 86_400
        os.utime(folder / name, (at, at))
    done = retain(site, [LeftoversArea(site)], now=NOW)
    assert [change.n_files for change in done.changes["leftovers"]] == [1]
    assert [path.name for path in folder.iterdir()] == [".unfinished-1-a.parquet"]


def test_a_full_disk_while_days_and_parts_are_merged_loses_nothing(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in (0, 1):
        build(site, day)
        land(site, day)
        land(site, day, origin="again")
    store, now = TableStore(site.store_root), T0 + 6 * DAY

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "write_day", full)
        patch.setattr(compaction_landing, "write_table", full)
        done = retain(site, [LandingArea(site, now), TablesArea(site, now)], now=now)
    assert set(done.problems) == {"landing", "tables"}
    assert days_landed(site) == [0, 1]
    assert len(store.generations(CORE_HEALTH_EVENTS)) == 48
    assert not retain(site, [LandingArea(site, now), TablesArea(site, now)], now=now).problems
    assert days_landed(site) == [0, 1]


def test_a_plan_leaves_every_byte_and_the_work_does_what_it_said(site: Settings) -> None:
    for day in (0, 1, 30, 39):
        land(site, day)
        land(site, day, origin="again")
        build(site, day)
    TableStore(site.store_root).write(GPU_SCORES, GPU_SCORES.empty(), span=Span(T0, T0 + DAY))
    before = tree(site.data_root)
    said = planned(site, areas_of(site, now=NOW), now=NOW)
    assert tree(site.data_root) == before
    done = retain(site, areas_of(site, now=NOW), now=NOW)
    assert done.changes == said.changes
    assert any(said.changes.values())


def test_states_without_an_end_are_kept_for_as_long_as_history_is(site: Settings) -> None:
    said = {"node": "n", "state": "down"} | SAID
    days = (0, 100, 700, 899)
    rows = [said | {"valid_from": T0 + day * DAY} for day in days]
    now = T0 + 900 * DAY
    land_rows(site, "raw/node_states", RAW_NODE_STATES, *rows, at=now)
    retain(site, [LandingArea(site, now)], now=now)
    kept = landing_of(site).read(RAW_NODE_STATES).sort("valid_from")["valid_from"]
    assert [(at - T0) // DAY for at in kept] == [0, 100, 700, 899]
    later = now + 100 * DAY  # on day 200, where history begins, it is as it was said on day 100
    land_rows(site, "raw/node_states", RAW_NODE_STATES, rows[0] | {"node": "m"}, at=later)
    retain(site, [LandingArea(site, later)], now=later)
    kept = landing_of(site).read(RAW_NODE_STATES).filter(node="n").sort("valid_from")["valid_from"]
    assert [(at - T0) // DAY for at in kept] == [100, 700, 899]
