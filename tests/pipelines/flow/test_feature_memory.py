"""What is remembered on disk: safe against crashes, damage and late data; hours as a week later."""

import os
import shutil
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.core_tables import CoreTables
from features.engine import ring
from features.tables import CORE_GPU_TELEMETRY, CORE_INVENTORY
from pipelines.flow import feature_memory
from pipelines.flow import steps as flow
from pipelines.flow.feature_memory import FeatureMemory
from pipelines.settings import Settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
GPUS = ("a", "b", "c", "d")
CATALOGUE = load_catalogue()
INVENTORY = pl.DataFrame(
    [{"gpu_uuid": g, "node": "n1", "slot": g} for g in GPUS], schema=CORE_INVENTORY.schema
)
TABLES = CoreTables(inventory=INVENTORY)


def telemetry(hour, *, seed=0):
    """Samples of one hour: some GPUs missing, some values unknown, counters that fall."""
    rng = np.random.default_rng([seed, hour])
    rows = []
    for gpu in GPUS:
        for minute in sorted(rng.choice(60, int(rng.integers(0, 13)), replace=False)):
            known = {
                "gpu_temp_c": 40.0 + int(rng.integers(0, 300)) / 10,
                "power_w": float(rng.integers(60, 700)) if rng.random() < 0.8 else None,
                "ecc_sbe_volatile": int(rng.integers(0, 40)),
                "clock_event_reasons": int(rng.integers(0, 255)),
            }
            ts = T0 + hour * HOUR + int(minute) * timedelta(minutes=1)
            rows.append({"gpu_uuid": gpu, "node": "n1", "ts": ts, **known})
    return pl.DataFrame(rows, schema=CORE_GPU_TELEMETRY.schema)


@pytest.fixture
def site(tmp_path):
    return Settings.model_validate(
        {
            "site": "lab",
            "inputs": tmp_path / "inputs.yaml",
            "data_root": tmp_path / "data",
            "start": T0,
        }
    )


def land(site, hour, *, seed=0, generation=1):
    span = Span(T0 + hour * HOUR, T0 + (hour + 1) * HOUR)
    store = TableStore(site.store_root)
    store.write(CORE_GPU_TELEMETRY, telemetry(hour, seed=seed), span=span, generation=generation)


def hourly(site, hour):
    span = Span(T0 + hour * HOUR, T0 + (hour + 1) * HOUR)
    return flow.gpu_matrix_of(TABLES, site, catalogue=CATALOGUE, span=span)


def whole(site, hours):
    span = Span(T0, T0 + hours * HOUR)
    return flow.gpu_matrix_of(TABLES, site, catalogue=CATALOGUE, span=span)


def same(found, right):
    assert found.equals(right.filter(pl.col("as_of") == found["as_of"][0]))


def test_an_hour_scored_as_it_came_is_the_training_row_of_a_week_later(site):
    online = []
    for hour in range(16):
        land(site, hour)
        online.append(hourly(site, hour))
    week = pl.concat([telemetry(hour) for hour in range(16, 24 * 8)])
    span = Span(T0 + 16 * HOUR, T0 + 24 * 8 * HOUR)
    TableStore(site.store_root).write(CORE_GPU_TELEMETRY, week, span=span, generation=1)
    later = whole(site, 24 * 8)
    for found in online:
        same(found, later)
    assert later["power_w_mean_24h"].null_count() < later.height


def test_late_samples_change_the_next_hour(site):
    for hour in range(4):
        land(site, hour)
        hourly(site, hour)
    before = hourly(site, 3)
    land(site, 2, seed=9, generation=2)
    again = hourly(site, 3)
    assert not again.equals(before)
    same(again, whole(site, 4))


def test_an_older_hour_made_anew_leaves_the_memory_alone(site):
    for hour in range(4):
        land(site, hour)
        hourly(site, hour)
    seen = FeatureMemory(site.memory_dir).seen()
    same(hourly(site, 1), whole(site, 4))
    assert FeatureMemory(site.memory_dir).seen() == seen


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), cut_short], ids=["gone", "short"])
def test_a_damaged_memory_is_built_anew(site, damage):
    for hour in range(3):
        land(site, hour)
        hourly(site, hour)
    damage(site.memory_dir / "shard=0000" / "slots.bin")
    land(site, 3)
    same(hourly(site, 3), whole(site, 4))


def test_a_crash_at_any_step_of_an_hour_loses_nothing(site, monkeypatch):
    for hour in range(3):
        land(site, hour)
        hourly(site, hour)
    land(site, 3)
    right = whole(site, 4)
    steps = ["_move", "results", "commit", "advance"]
    for step in steps:
        original = getattr(ring._Memory, step)

        def crash(self, *args, original=original, step=step):
            if step != "commit":
                original(self, *args)  # written, but not committed
            raise RuntimeError("crash")

        monkeypatch.setattr(ring._Memory, step, crash)
        with pytest.raises(RuntimeError, match="crash"):
            hourly(site, 3)
        monkeypatch.setattr(ring._Memory, step, original)
    same(hourly(site, 3), right)


def test_after_a_start_of_the_machine_the_memory_is_built_anew(site, monkeypatch):
    for hour in range(3):
        land(site, hour)
        hourly(site, hour)
    monkeypatch.setattr(feature_memory, "_boot_id", lambda: "another start")
    assert FeatureMemory(site.memory_dir).head(0) is None
    land(site, 3)
    same(hourly(site, 3), whole(site, 4))


def test_rows_that_changed_under_an_equal_generation_are_seen(site):
    for hour in range(4):
        land(site, hour, generation=0)
        hourly(site, hour)
    land(site, 2, seed=9, generation=0)
    land(site, 4, generation=0)
    same(hourly(site, 4), whole(site, 5))


def test_a_table_made_anew_with_other_codes_is_seen(site):
    for hour in range(4):
        land(site, hour)
        hourly(site, hour)
    uuids = TableStore(site.store_root).telemetry.uuids()
    shutil.rmtree(TableStore(site.store_root).telemetry.folder)
    store, span = TableStore(site.store_root), Span(T0 - HOUR, T0)
    newcomer = telemetry(0).head(1).with_columns(gpu_uuid=pl.lit("0"), ts=pl.lit(span.start))
    store.write(CORE_GPU_TELEMETRY, newcomer, span=span, generation=1)
    for hour in range(5):
        land(site, hour)
    assert store.telemetry.uuids() != uuids
    same(hourly(site, 4), whole(site, 5))


def test_a_day_that_is_compacted_is_not_taken_for_changed(site):
    for hour in range(23):
        land(site, hour)
    hourly(site, 22)
    memory = FeatureMemory(site.memory_dir)
    land(site, 23)
    telemetry = TableStore(site.store_root).telemetry
    assert len(telemetry.files()) == 1
    assert memory.stale_from(telemetry.origins(), since=T0) == T0 + 23 * HOUR


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_hours_in_any_order_and_ticks_between_give_the_training_rows(site, seed):
    rng = np.random.default_rng(seed)
    for _ in range(12):
        hour, kind = int(rng.integers(0, 30)), rng.choice(["land", "again", "tick", "compact"])
        if kind == "land":
            land(site, hour, seed=int(rng.integers(3)), generation=int(rng.integers(3)))
        elif kind == "compact":
            TableStore(site.store_root).telemetry.compact(T0.date())
        else:
            same(hourly(site, hour), whole(site, 30))


def test_while_another_process_has_the_memory_an_hour_is_computed_from_the_samples(site):
    for hour in range(3):
        land(site, hour)
    hourly(site, 1)
    memory = FeatureMemory(site.memory_dir)
    with memory.held() as is_held, FeatureMemory(site.memory_dir).held() as is_held_twice:
        assert (is_held, is_held_twice) == (True, False)
        same(hourly(site, 2), whole(site, 3))
        assert T0 + 2 * HOUR not in memory.seen()
    same(hourly(site, 2), whole(site, 3))
    assert T0 + 2 * HOUR in memory.seen()


def test_without_room_on_disk_an_hour_is_computed_from_the_samples_and_says_so(
    site, monkeypatch, caplog
):
    land(site, 0)
    full = shutil.disk_usage(site.data_root)._replace(free=1000)
    monkeypatch.setattr(feature_memory.shutil, "disk_usage", lambda _: full)
    same(hourly(site, 0), whole(site, 1))
    assert "must be free to write it, got 1,000" in caplog.text
    assert "Make room" in caplog.text


def test_what_is_forgotten_is_zero_again(tmp_path):
    memory, found = FeatureMemory(tmp_path), np.ones(2, np.int64)
    with memory.opened(0, 16) as file:
        file.write(0, np.array([7, 7]))
        file.read(0, found)
    memory.commit(0, {"until": 3})
    assert memory.head(0) == {"until": 3}
    assert found.tolist() == [7, 7]
    (tmp_path / "shard=0000" / "older.bin").touch()
    memory.discard(0)
    assert memory.head(0) is None
    with memory.opened(0, 16) as file:
        file.read(0, found)
    assert found.tolist() == [0, 0]
    assert [path.name for path in (tmp_path / "shard=0000").iterdir()] == ["slots.bin"]


def test_a_head_that_was_cut_off_leaves_the_one_before(tmp_path):
    memory = FeatureMemory(tmp_path)
    with memory.opened(0, 16):
        pass
    path = tmp_path / "shard=0000" / "slots.bin"
    for until in range(4):
        memory.commit(0, {"until": until})
        assert memory.head(0) == {"until": until}
    whole = path.read_bytes()
    path.write_bytes(whole[: 4096 + 200] + b"#" + whole[4096 + 201 :])
    assert memory.head(0) == {"until": 2}
    memory.commit(0, {"until": 5})
    assert memory.head(0) == {"until": 5}


def test_a_head_that_is_written_in_part_is_told(tmp_path, monkeypatch):
    memory, write = FeatureMemory(tmp_path), os.pwrite
    with memory.opened(0, 16):
        pass
    memory.commit(0, {"until": 1})
    monkeypatch.setattr(os, "pwrite", lambda to, values, at: write(to, values[:512], at))
    with pytest.raises(OSError, match=r"512 of 4,096 bytes of a head.*slots\.bin"):
        memory.commit(0, {"until": 2})
    assert memory.head(0) == {"until": 1}


def test_what_a_network_disk_keeps_of_a_deleted_file_is_left_to_it(tmp_path):
    memory = FeatureMemory(tmp_path)
    with memory.opened(0, 16):
        kept = tmp_path / "shard=0000" / ".nfs0001"
        kept.touch()  # which cannot be deleted while the other is open
        memory.discard(0)
    assert list((tmp_path / "shard=0000").iterdir()) == [kept]


def test_slots_of_another_size_do_not_count(tmp_path):
    memory = FeatureMemory(tmp_path)
    with memory.opened(0, 16) as file:
        file.write(8, np.array([7]))
    memory.commit(0, {"until": 3})
    with memory.opened(0, 24) as file:
        found = np.ones(3, np.int64)
        file.read(0, found)
    assert found.tolist() == [0, 0, 0]
    assert memory.head(0) is None


def test_a_file_cut_while_it_is_read_is_named(tmp_path):
    memory = FeatureMemory(tmp_path)
    path = tmp_path / "shard=0000" / "slots.bin"
    with memory.opened(0, 16) as file:
        cut_short(path)
        with pytest.raises(OSError, match=r"8 more bytes were expected .*slots\.bin"):
            file.read(0, np.zeros(2, np.int64))


def test_a_damaged_list_of_hours_seen_is_none(site):
    for hour in range(2):
        land(site, hour)
        hourly(site, hour)
    (site.memory_dir / "seen.json").write_text('{"yesterday": "x"}')
    land(site, 2)
    same(hourly(site, 2), whole(site, 3))
