"""Rules of retention: what is needed stays, what is over goes, a plan changes nothing."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from features.errors import DataError, SettingsError
from features.monitoring_tables import LIVE_QUALITY, QUARANTINE
from features.raw_tables import RAW_JOB_LOG, RAW_KERNEL_LOG
from features.tables import CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS, GPU_MATRIX, LABELS
from pipelines.landing.floor import floors_of, raise_floor
from pipelines.landing.ingest import landing_of
from pipelines.landing.journal import Reading
from pipelines.landing.landed import reading_id
from pipelines.landing.rebuild_guard import check_can_be_built
from pipelines.landing.staleness import find_stale
from pipelines.retention.areas import areas_of
from pipelines.retention.chores import Chore, byte_words, in_words, planned, retain
from pipelines.retention.guard import needs, problems
from pipelines.retention.landing import LandingArea
from pipelines.retention.records import LeftoversArea, ScoreDatabaseArea
from pipelines.retention.tables import TablesArea
from pipelines.sections.retention import RetentionSettings
from pipelines.serving.place import score_engine
from pipelines.serving.score_database import write_alerts
from pipelines.serving.score_schema import ALERTS, reading
from pipelines.settings import Settings
from pipelines.sources.result import SourceResult
from pipelines.storage.file_lock import held
from pipelines.storage.store import Span, TableStore
from pipelines.storage.telemetry.layout import locked
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


@pytest.fixture
def site(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


def test_the_defaults_keep_what_a_site_needs(site: Settings) -> None:
    assert not list(problems(site, now=NOW))
    rolling = site.model_copy(
        update={
            "split": settings_of(
                site.inputs.parent, split={"valid_days": 30, "test_days": 30}
            ).split
        }
    )
    assert not list(problems(rolling, now=T0 + 3000 * DAY))


@pytest.mark.parametrize(
    ("key", "days"),
    [
        ("landing_days", 8),
        ("telemetry_days", 3),
        ("history_days", 579),
        ("scores_days", 63),
        ("outcomes_days", 17),
        ("dagster_days", 15),
    ],
)
def test_a_number_by_which_something_needed_would_go_is_refused(
    site: Settings, key: str, days: int
) -> None:
    short = site.model_copy(update={"retention": RetentionSettings(**{key: days})})
    with pytest.raises(SettingsError, match=rf"{key} is {days}, but .*at least \d+ are needed"):
        retain(short, [], now=NOW)
    least = next(needed for name, needed, _ in needs(short, now=NOW) if name == key)
    enough = site.model_copy(update={"retention": RetentionSettings(**{key: least})})
    assert not list(problems(enough, now=NOW))


def test_a_fixed_split_of_long_ago_is_not_worn_away(site: Settings) -> None:
    split = {"train_until": T0 + 100 * DAY, "valid_until": T0 + 150 * DAY}
    fixed = settings_of(site.inputs.parent, split=split)
    assert not list(problems(fixed, now=T0 + 300 * DAY))
    with pytest.raises(SettingsError, match="split names fixed times"):
        planned(fixed, [], now=T0 + 500 * DAY)


def test_a_record_that_ended_does_not_grow_old(site: Settings) -> None:
    ended = settings_of(site.inputs.parent, end=T0 + 2 * DAY)
    build(ended, 0)
    assert not TablesArea(ended, T0 + 3000 * DAY).chores()[1:]  # but to compact


def test_rows_as_received_go_when_they_are_over_and_built(site: Settings) -> None:
    for day in (0, 5, 9, 30, 39):
        land(site, day)
    build(site, 0)
    build(site, 9)
    retain(site, [LandingArea(site, NOW)], now=NOW)
    assert days_landed(site) == [5, 30, 39]  # day 5 was never built, day 30 is young
    assert landing_of(site).read(RAW_JOB_LOG).height == 5


def test_hours_between_that_no_row_is_of_need_not_be_built(site: Settings) -> None:
    row = {"kind": "xid", "line": "x", "source": "x", "ingested_at": T0}
    rows = frame(RAW_KERNEL_LOG, row | {"ts": T0}, row | {"ts": T0 + 5 * HOUR})
    named = Reading(reading_id(how="", what="both"), input="in", source="x", origin="o")
    with landing_of(site).writer() as writer:
        writer.add(named, [SourceResult({"raw/kernel_log": rows})], landed_at=T0)
    store = TableStore(site.store_root)
    for hour in (0, 5):
        span = Span(T0 + hour * HOUR, T0 + (hour + 1) * HOUR)
        store.write(CORE_HEALTH_EVENTS, CORE_HEALTH_EVENTS.empty(), span=span)
    land(site, 39)
    retain(site, [LandingArea(site, NOW)], now=NOW)
    assert days_landed(site) == [39]


def test_hours_that_are_never_built_wait_for_so_long_and_no_longer(site: Settings) -> None:
    last = 3 * site.retention.landing_days + 1
    land(site, 0)
    land(site, last)
    late = T0 + (last + 1) * DAY
    retain(site, [LandingArea(site, late)], now=late)
    assert days_landed(site) == [last]


def test_a_plan_names_what_would_go(site: Settings) -> None:
    land(site, 0)
    land(site, 39)
    build(site, 0)
    words = in_words(planned(site, areas_of(site, now=NOW), now=NOW), is_plan=True)
    assert "raw/kernel_log: removes what is before 2026-01-15 (1 file" in words
    assert "would be touched" in words


def test_a_window_that_is_over_is_not_asked_for_again_while_it_could_be(site: Settings) -> None:
    land(site, 0)
    land(site, 39)
    build(site, 0)
    journal = landing_of(site).journal
    retain(site, [LandingArea(site, NOW)], now=NOW)
    assert len(journal.windows_of("in")) == 2  # its job is kept, and so is the reading
    assert journal.reads()["n_read"].sum() == 0


def test_a_reading_without_rows_is_forgotten_once_no_input_can_give_it(site: Settings) -> None:
    there = site.inputs.parent / "n1.log"
    there.write_text("x")
    land(site, 0, window=False, origin=str(there))
    land(site, 1, window=False, origin="/gone/n1.log")
    land(site, 899)
    build(site, 0)
    build(site, 1)
    late = T0 + 900 * DAY  # jobs are over, too
    for _ in range(3):  # jobs are sorted by month, go, and then nothing is left of the reading
        retain(site, [LandingArea(site, late)], now=late)
    origins = landing_of(site).journal.reads()["origin"].to_list()
    assert origins == [
        str(there),
        "server",
    ]  # the file would be read again, the newest names the end


def test_late_rows_of_hours_whose_rows_are_gone_empty_no_core_hour(site: Settings) -> None:
    land(site, 0)
    land(site, 39)
    build(site, 0)
    retain(site, [LandingArea(site, NOW)], now=NOW)
    land(site, 0, origin="late")
    store, landing = TableStore(site.store_root), landing_of(site)
    assert not [one for one in find_stale(landing, store) if one.table == "core/health_events"]
    span = Span(T0, T0 + DAY)
    with pytest.raises(DataError, match="24 hours from 2026-01-05 00:00 on are stored"):
        check_can_be_built(landing, store, CORE_HEALTH_EVENTS, raw=RAW_KERNEL_LOG, span=span)
    never_built = Span(T0 + DAY, T0 + 2 * DAY)
    check_can_be_built(landing, store, CORE_HEALTH_EVENTS, raw=RAW_KERNEL_LOG, span=never_built)


def test_a_floor_only_rises_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    raise_floor(tmp_path, "raw/kernel_log", T0 + DAY)
    raise_floor(tmp_path, "raw/kernel_log", T0)
    assert floors_of(tmp_path) == {"raw/kernel_log": T0 + DAY}
    (tmp_path / "whole_since.json").write_text("[")
    with pytest.raises(DataError, match=r"whole_since\.json cannot be read"):
        floors_of(tmp_path)


def test_tables_lose_whole_days_and_are_compacted(site: Settings) -> None:
    store = TableStore(site.store_root)
    kept = site.retention
    late = T0 + (kept.history_days + 2) * DAY
    build(site, 0)
    build(site, 3)
    store.write(LABELS, LABELS.empty(), span=Span(T0, T0 + 2 * DAY))
    sample = {"gpu_uuid": "g", "ts": T0, "node": "n"}
    store.write(CORE_GPU_TELEMETRY, frame(CORE_GPU_TELEMETRY, sample), span=Span(T0, T0 + 2 * DAY))
    assert not retain(site, [TablesArea(site, late, grace_s=-1)], now=late).problems
    assert min(store.generations(CORE_HEALTH_EVENTS)) == T0 + 3 * DAY
    assert not store.has(LABELS)
    assert not list((site.data_root / "tables" / "core" / "gpu_telemetry").glob("date=*"))
    retain(site, [TablesArea(site, late, grace_s=-1)], now=late)
    assert len(store.files(CORE_HEALTH_EVENTS)) == 1
    assert not TablesArea(site, late, grace_s=-1).chores()


def test_refusals_of_old_hours_and_old_weeks_go(site: Settings) -> None:
    store = TableStore(site.store_root)
    row = {"table": "t", "source": "s", "origin": "o", "rule": "r", "count": 1, "example": "e"}
    for name in (
        "build-x-20260105T00-20260105T01",
        "build-x-20260801T00-20260801T01",
        "raw_static",
    ):
        store.keep_part(QUARANTINE, name, frame(QUARANTINE, row))
    weeks = [
        {"week": T0 + 7 * week * DAY, "horizon_h": 24, "model_version": "m"}
        | dict.fromkeys(
            ("n_alerts", "n_hits", "n_false_alarms", "n_censored", "n_misses", "n_rows"), 0
        )
        for week in (0, 100)
    ]
    store.write(LIVE_QUALITY, frame(LIVE_QUALITY, *weeks))
    late = T0 + 850 * DAY
    retain(site, [TablesArea(site, late)], now=late)
    assert store.gather_parts(QUARANTINE).height == 1
    assert store.read(LIVE_QUALITY)["week"].to_list() == [T0 + 700 * DAY]


def test_alerts_in_the_score_database_go(site: Settings) -> None:
    site.data_root.mkdir()
    engine = score_engine(site)
    alert = {"node": "n", "horizon_h": 24, "score": 0.5, "threshold": 0.4, "fault_type": None}
    rows = [alert | {"as_of": at, "ends_at": at + DAY, "model_version": "m"} for at in (T0, NOW)]
    write_alerts(engine, pl.DataFrame(rows, schema_overrides={"fault_type": pl.String}))
    late = T0 + 801 * DAY
    done = retain(site, [ScoreDatabaseArea(site, late)], now=late)
    assert [change.n_rows for change in done.changes["score database"]] == [1]
    with reading(engine) as connection:
        assert connection is not None
        assert len(connection.execute(ALERTS.select()).fetchall()) == 1


def test_young_parts_of_the_spool_stay(site: Settings) -> None:
    folder = site.data_root / "spool" / "features" / "gpu_matrix" / "part"
    folder.mkdir(parents=True)
    (folder / "young.parquet").write_bytes(b"x")
    assert not LeftoversArea(site).chores()


def test_what_a_run_at_work_rests_on_stays_however_old_it_is(site: Settings) -> None:
    table = site.spool_dir / GPU_MATRIX.asset_key
    for path in (table / "tables-0" / "jobs.parquet", site.slurm_jobs_dir / "run" / "key.pem"):
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (0, 0))
    with locked(table):
        assert not LeftoversArea(site).chores()
    assert [chore.change.n_files for chore in LeftoversArea(site).chores()] == [2]


def test_output_of_slurm_jobs_goes_when_it_is_old(site: Settings) -> None:
    folder = site.slurm_jobs_dir / "run"
    folder.mkdir(parents=True)
    for name in ("old.err", "young.err"):
        (folder / name).touch()
    os.utime(folder / "old.err", (0, 0))
    for chore in LeftoversArea(site).chores():
        chore.make()
    assert [path.name for path in folder.iterdir()] == ["young.err"]


@dataclass
class BrokenArea:
    """An area whose store cannot be reached."""

    name: str = "broken"

    def chores(self) -> list[Chore]:
        raise DataError("not there")

    def at_work(self) -> AbstractContextManager[object]:
        return nullcontext()


def test_an_area_that_fails_holds_up_no_other(site: Settings) -> None:
    counting = CountingArea()
    done = retain(site, [BrokenArea(), counting], now=NOW)
    assert counting.made == 1
    assert done.problems == {"broken": "not there"}
    assert "broken was left: not there" in in_words(done, is_plan=False)


def test_two_at_once_are_one_and_ingest_is_not_disturbed(site: Settings) -> None:
    counting = CountingArea()
    with held(site.data_root / ".retention.lock"):
        assert retain(site, [counting], now=NOW).problems
    assert counting.made == 0
    land(site, 39)
    with landing_of(site).writer():
        done = retain(site, [LandingArea(site, NOW), counting], now=NOW)
    assert "another process is ingesting" in done.problems["landing"]
    assert counting.made == 1


@pytest.mark.parametrize(("size", "words"), [(999, "999 bytes"), (2_500_000_000, "2.5 GB")])
def test_sizes_are_told_in_words(size: int, words: str) -> None:
    assert byte_words(size) == words
