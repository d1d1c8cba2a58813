"""The sizing guide shows what is computed, and what is computed grows as it must."""

from pathlib import Path

import pytest

from benchmarks.sizing import (
    FLEETS,
    Fleet,
    Measured,
    Prices,
    area_table,
    bytes_a_day,
    cost_a_gpu_year,
    cost_table,
    measure,
    needs_of,
    needs_table,
)
from pipelines.sections.retention import RetentionSettings
from tests.pipelines.serving.serving_world import World

GUIDE = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text()


def test_the_guide_shows_the_computed_tables() -> None:
    measured = Measured()
    tables = [
        needs_table(measured),
        needs_table(measured, is_full=True),
        area_table(measured),
        cost_table(measured, Prices()),
    ]
    for table in tables:
        assert "\n".join(table) in GUIDE


@pytest.mark.parametrize("n_gpus", FLEETS[1:])
def test_a_larger_fleet_needs_no_less_of_anything(n_gpus: int) -> None:
    smaller, larger = (needs_of(Fleet(size), Measured()) for size in (n_gpus - 1, n_gpus))
    assert larger.disk_to_give_gb >= smaller.disk_to_give_gb
    assert larger.memory_to_give_gb >= smaller.memory_to_give_gb
    assert larger.cores >= smaller.cores
    assert larger.network_mbit > smaller.network_mbit


def test_telemetry_is_rows_times_bytes_times_days() -> None:
    fleet = Fleet(1_000, sample_s=30, retention=RetentionSettings(telemetry_days=10))
    # 1,000 GPUs, 2,880 samples a day, 4.05 bytes, 10 days
    assert needs_of(fleet, Measured()).disk_gb["telemetry"] == pytest.approx(0.11664)


def test_half_the_samples_are_half_the_telemetry_and_as_many_scores() -> None:
    often, seldom = (bytes_a_day(Fleet(64, sample_s=s), Measured()) for s in (60, 120))
    assert seldom["telemetry"] == pytest.approx(often["telemetry"] / 2)
    assert seldom["scores"] == often["scores"]
    assert seldom["matrix"] == often["matrix"]


def test_a_gpu_of_a_larger_fleet_costs_less() -> None:
    costs = [sum(cost_a_gpu_year(f, needs_of(f, Measured()), Prices())) for f in map(Fleet, FLEETS)]
    assert costs == sorted(costs, reverse=True)


def test_an_installation_is_measured_by_area(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.tick(0)
    found = measure(world.settings)
    assert found["telemetry"] > 0
    assert found["landing"] == 0
