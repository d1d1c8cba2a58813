"""Rules of the slow metrics: what they count, and that nothing damaged takes the rest with it."""

import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from prometheus_client.metrics_core import Metric

from features.monitoring_tables import DRIFT, LIVE_OUTCOMES, LIVE_QUALITY
from pipelines.serving.place import score_engine
from pipelines.serving.score_database import write_outcomes
from pipelines.serving.site_metrics import KEPT_S, SiteMetrics
from pipelines.storage.in_time import InTime
from tests.pipelines.memory_bucket import MemoryBucket
from tests.pipelines.serving.serving_world import HOUR, T0, World

WEEK = timedelta(weeks=1)
Values = dict[tuple[str, ...], float]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def values(families: list[Metric]) -> Values:
    return {
        (one.name, *one.labels.values()): one.value for family in families for one in family.samples
    }


def metrics(world: World) -> SiteMetrics:
    return SiteMetrics(world.settings, now=lambda: world.now)


def found(world: World) -> Values:
    return values(list(metrics(world).collect()))


def quality(weeks_ago: int, **changes: object) -> pl.DataFrame:
    counts = {name: 0 for name in LIVE_QUALITY.schema.names() if name.startswith("n_")}
    row = dict.fromkeys(LIVE_QUALITY.schema) | counts
    row |= {"week": T0 - weeks_ago * WEEK, "horizon_h": 24, "model_version": "m/1", **changes}
    return pl.DataFrame([row], schema=LIVE_QUALITY.schema)


def keep(world: World, rows: pl.DataFrame) -> None:
    write_outcomes(score_engine(world.settings), LIVE_OUTCOMES.empty(), rows)


def test_a_new_site_has_room_and_a_database_that_is_only_empty(world: World) -> None:
    world.settings.data_root.mkdir(exist_ok=True)
    told = found(world)
    assert told[("forewarn_score_database_readable",)] == 1
    assert 0 < told[("forewarn_disk_free_bytes",)] <= told[("forewarn_disk_size_bytes",)]
    assert not any("live" in key[0] or "drift" in key[0] for key in told)


def test_alerts_of_seven_days_stand_beside_their_budget(world: World) -> None:
    world.tick(0, hot=["GPU-5"])
    world.now += HOUR
    told = found(world)
    assert told[("forewarn_alerts_raised_7d", "24h")] == 1
    # 4 nodes, 10 alerts per 1,000 node-days
    assert told[("forewarn_alerts_budgeted_7d",)] == pytest.approx(4 * 10 / 1000 * 7)
    world.now += timedelta(days=8)
    assert found(world)[("forewarn_alerts_raised_7d", "24h")] == 0


def test_outcomes_of_four_weeks_are_added_up(world: World) -> None:
    weeks = [quality(ago, n_hits=1, n_false_alarms=ago, n_misses=2) for ago in (1, 2, 3, 4, 5)]
    world.tick(0)
    keep(world, pl.concat(weeks))
    told = found(world)
    assert told[("forewarn_live_outcomes_4w", "24h", "hits")] == 4
    assert told[("forewarn_live_outcomes_4w", "24h", "false_alarms")] == 1 + 2 + 3 + 4
    assert told[("forewarn_live_outcomes_4w", "24h", "misses")] == 8
    assert told[("forewarn_live_week_timestamp_seconds",)] == (T0 - WEEK).timestamp()


def test_a_damaged_database_is_said_and_the_rest_goes_on(world: World) -> None:
    world.settings.data_root.mkdir(exist_ok=True)
    (world.settings.data_root / "scores.db").write_bytes(b"no database" * 100)
    told = found(world)
    assert told[("forewarn_score_database_readable",)] == 0
    assert ("forewarn_disk_free_bytes",) in told


def drift(version: str, weeks_ago: int, *, is_alarm: bool, name: str = "power_w") -> pl.DataFrame:
    row = dict.fromkeys(DRIFT.schema) | {
        "model_version": version, "horizon_h": 24, "week": T0 - weeks_ago * WEEK,
        "kind": "feature", "name": name, "group": "power", "is_alarm": is_alarm, "n_rows": 8,
        "sentence": "it moved",
    }  # fmt: skip
    return pl.DataFrame([row], schema=DRIFT.schema)


def test_drift_is_that_of_each_models_newest_week(world: World) -> None:
    rows = [
        drift("m/1", 2, is_alarm=True),
        drift("m/1", 1, is_alarm=False),
        drift("m/2", 1, is_alarm=True),
        drift("m/2", 1, is_alarm=True, name="gpu_temp_c"),
    ]
    world.store.write(DRIFT, pl.concat(rows))
    told = found(world)
    assert told[("forewarn_drift_alarms", "m/1", "feature")] == 0
    assert told[("forewarn_drift_alarms", "m/2", "feature")] == 2
    assert told[("forewarn_drift_week_timestamp_seconds",)] == (T0 - WEEK).timestamp()


def test_a_damaged_table_takes_nothing_with_it(world: World) -> None:
    world.store.write(DRIFT, drift("m/1", 1, is_alarm=True))
    for path in world.settings.store_root.rglob("*.parquet"):
        if "drift" in str(path):
            path.write_bytes(b"no table")
    assert found(world)[("forewarn_score_database_readable",)] == 1


def test_the_database_is_asked_once_a_minute_and_the_disk_each_time(world: World) -> None:
    world.tick(0)
    clock = [0.0]
    kept = SiteMetrics(world.settings, now=lambda: world.now, clock=lambda: clock[0])
    assert values(list(kept.collect()))[("forewarn_score_database_readable",)] == 1
    database = world.settings.data_root / "scores.db"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.write_bytes(b"no database" * 100)
    assert values(list(kept.collect()))[("forewarn_score_database_readable",)] == 1
    clock[0] = KEPT_S
    told = values(list(kept.collect()))
    assert told[("forewarn_score_database_readable",)] == 0
    assert ("forewarn_disk_free_bytes",) in told


def test_drift_that_comes_late_is_told_at_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, opened = MemoryBucket(world.settings.data_root).path("tables"), threading.Event()
    world.store.write(DRIFT, drift("m/1", 1, is_alarm=True))
    reads = InTime(root, wait_s=0.2)
    told = SiteMetrics(world.settings, now=lambda: world.now, reads=reads, clock=lambda: 0.0)
    rows = told._drift_rows

    def hangs() -> pl.DataFrame:
        assert opened.wait(30)
        return rows()

    monkeypatch.setattr(told, "_drift_rows", hangs)
    alarms = ("forewarn_drift_alarms", "m/1", "feature")
    assert alarms not in values(list(told.collect()))
    opened.set()
    monkeypatch.setattr("pipelines.storage.in_time._SHORT_S", 20.0)
    monkeypatch.setattr(reads, "_wait_s", 20.0)
    assert values(list(told.collect()))[alarms] == 1
