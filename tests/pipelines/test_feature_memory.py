"""What is remembered on disk: safe against crashes, damage and late data; hours as a week later."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.core_tables import CoreTables
from features.engine import ring
from features.tables import CORE_GPU_TELEMETRY, CORE_INVENTORY
from pipelines import feature_memory, flow
from pipelines.feature_memory import FeatureMemory
from pipelines.settings import Settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.store import Span, TableStore

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
@pytest.mark.parametrize("name", ["sums.bin", "extremes.bin", "before.bin", "head.json"])
def test_a_damaged_memory_is_built_anew(site, name, damage):
    for hour in range(3):
        land(site, hour)
        hourly(site, hour)
    damage(site.memory_dir / "shard=0000" / name)
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
