"""What was published is joined with what came of it: outcomes and quality of the live system."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import SettingsError
from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_MAINTENANCE,
    CORE_NODE_STATES,
)
from pipelines.serving import score_reader
from pipelines.serving.live_outcomes import judge_live, weeks_to_judge
from pipelines.serving.outcome_words import words_of
from pipelines.storage.store import Span
from tests.pipelines.serving.conftest import few_features
from tests.pipelines.serving.serving_world import CATALOGUE, HOUR, MINUTE, T0, World


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ticks: n2 is hot in the first, n0 in the second."""
    folder = tmp_path_factory.mktemp("scored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.flow.steps.matrix_spec", few_features)
        world = World(folder)
        for hour, hot in enumerate((["GPU-5"], ["GPU-1"], [])):
            world.tick(hour, hot=hot)
    world.scorer.delivery.engine.dispose()
    shutil.rmtree(world.settings.memory_dir)
    return folder


@pytest.fixture
def world(scored: Path, tmp_path: Path) -> World:
    """Those ticks; the record goes on for two days."""
    shutil.copytree(scored, tmp_path, dirs_exist_ok=True)
    world = World(tmp_path)
    span = Span(T0, T0 + 48 * HOUR)
    world.store.write(CORE_HEALTH_EVENTS, CORE_HEALTH_EVENTS.empty(), span=span)
    world.now = T0 + 49 * HOUR
    return world


def incident(world: World, node: str, hour: int) -> None:
    row: dict[str, Any] = dict.fromkeys(CORE_INCIDENTS.schema) | {
        "incident_id": f"i-{node}", "entity_kind": "node", "entity_id": node, "node": node,
        "start": T0 + hour * HOUR, "fault_type": "nvlink", "evidence": "x", "detected_by": "x",
        "catalogue_version": "x",
    }  # fmt: skip
    earlier = world.store.read(CORE_INCIDENTS) if world.store.has(CORE_INCIDENTS) else None
    frame = pl.DataFrame([row], schema=CORE_INCIDENTS.schema)
    world.store.write(CORE_INCIDENTS, frame if earlier is None else pl.concat([earlier, frame]))


def judge(world: World) -> list[tuple[str, str]]:
    judged = judge_live(
        world.settings, engine=world.scorer.delivery.engine, catalogue=CATALOGUE, now=world.now
    )
    assert judged is not None
    assert words_of(judged)
    return judged.outcomes.select("node", "outcome").sort("node", "outcome").rows()


def test_alerts_and_incidents_meet(world: World) -> None:
    incident(world, "n2", 6)
    incident(world, "n3", 7)
    assert judge(world) == [("n0", "false_alarm"), ("n2", "hit"), ("n3", "miss")]
    engine = world.scorer.delivery.engine
    (row,) = score_reader.live_quality(engine).to_dicts()
    assert (row["n_alerts"], row["precision"], row["recall"]) == (2, 0.5, 0.5)
    assert row["median_lead_h"] == pytest.approx(5.0)
    assert row["model_version"] == "gpu-failure-24h/1"
    assert score_reader.outcomes(engine)["node"].to_list() == ["n3", "n0", "n2"]
    assert world.store.read(LIVE_OUTCOMES).height == 3
    assert world.store.read(LIVE_QUALITY).height == 1


def test_judging_again_changes_nothing_and_late_news_changes_what_it_is_about(
    world: World,
) -> None:
    incident(world, "n2", 6)
    first = judge(world)
    assert judge(world) == first
    incident(world, "n0", 9)
    assert judge(world) == [("n0", "hit"), ("n2", "hit")]
    assert world.store.read(LIVE_OUTCOMES).height == 2


def test_what_our_own_drain_hid_is_censored_and_what_is_to_come_is_not_there_yet(
    world: World,
) -> None:
    row = dict.fromkeys(CORE_MAINTENANCE.schema) | {
        "node": "n0", "start": T0 + 3 * HOUR, "end": None, "kind": "own_action",
    }  # fmt: skip
    world.store.write(CORE_MAINTENANCE, pl.DataFrame([row], schema=CORE_MAINTENANCE.schema))
    assert judge(world) == [("n0", "censored"), ("n2", "false_alarm")]
    world.now = T0 + 20 * HOUR  # no horizon has passed; the drain is known
    assert ("n2", "false_alarm") not in judge(world)


def test_our_own_drain_is_known_by_the_reason_that_the_scheduler_keeps(world: World) -> None:
    row = dict.fromkeys(CORE_NODE_STATES.schema) | {
        "node": "n0", "state": "drain", "reason": "forewarn 0123: drain",
        "valid_from": T0 + 3 * HOUR,
    }  # fmt: skip
    world.store.write(CORE_NODE_STATES, pl.DataFrame([row], schema=CORE_NODE_STATES.schema))
    assert judge(world) == [("n0", "censored"), ("n2", "false_alarm")]


def test_a_new_database_and_a_damaged_tick_change_no_outcome(world: World) -> None:
    incident(world, "n2", 6)
    before = judge(world)
    world.scorer.delivery.engine.dispose()
    for path in world.settings.data_root.glob("scores.db*"):
        path.unlink()
    world.now = T0 + 3 * HOUR + MINUTE
    world.scorer.once()
    world.now = T0 + 49 * HOUR
    assert judge(world) == before
    (path,) = (world.settings.scores_dir / "node_scores").glob("20260105T02*")
    path.write_bytes(b"no scores")
    assert judge(world) == before


def test_an_incident_that_was_none_is_taken_back(world: World) -> None:
    incident(world, "n3", 7)
    assert ("n3", "miss") in judge(world)
    world.store.write(CORE_INCIDENTS, CORE_INCIDENTS.empty())
    judge(world)
    assert "n3" not in score_reader.outcomes(world.scorer.delivery.engine)["node"].to_list()


def test_what_became_of_a_node_that_the_inventory_lost_cannot_be_told(world: World) -> None:
    inventory = world.store.read(CORE_INVENTORY)
    world.store.write(CORE_INVENTORY, inventory.filter(pl.col("node") != "n2"))
    world.now = T0 + 20 * HOUR
    assert ("n2", "censored") not in judge(world)  # it may still come back
    world.now = T0 + 49 * HOUR
    assert ("n2", "censored") in judge(world)


def test_what_is_not_kept_for_long_enough_is_not_judged(tmp_path: Path) -> None:
    world = World(tmp_path, {"serving": {"published_days": 17}})
    with pytest.raises(SettingsError, match="published_days is 17: .* 24 h, at least 18"):
        judge_live(world.settings, engine=world.scorer.delivery.engine, catalogue=CATALOGUE, now=T0)


def test_before_anything_is_published_there_is_nothing_to_judge(tmp_path: Path) -> None:
    world = World(tmp_path)
    found = judge_live(
        world.settings, engine=world.scorer.delivery.engine, catalogue=CATALOGUE, now=T0
    )
    assert found is None
    assert "nothing to judge" in words_of(found)


def test_weeks_begin_on_mondays_and_cover_the_longest_horizon(world: World) -> None:
    span = weeks_to_judge(world.settings, now=T0 + timedelta(days=60))
    assert span.start.weekday() == span.end.weekday() == 0
    assert span.start <= T0 + timedelta(days=60 - 8)
    assert span.end > T0 + timedelta(days=60)
