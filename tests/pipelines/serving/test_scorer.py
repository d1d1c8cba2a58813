"""Rules of a tick: when one is due, what is unknown and why, and never an old score."""

import json
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import DataError, SettingsError, SourceError
from models.bundle import ModelBundle
from models.doubts import CAUSES
from models.registry.registered import RegisteredVersion
from pipelines.flow.feature_set import matrix_spec
from pipelines.flow.publish import published_as_of
from pipelines.sections.secret_source import SecretSource, read_secret
from pipelines.serving import score_loop, score_reader
from pipelines.serving.delivery import read_book
from pipelines.serving.place import score_engine
from pipelines.serving.published import latest_published
from pipelines.serving.score_loop import StoppedError
from pipelines.serving.scorer import due_tick
from pipelines.serving.scorer_status import read_status
from pipelines.settings import settings_from
from pipelines.storage.file_lock import held
from tests.pipelines.serving.serving_world import (
    GPUS,
    HOUR,
    MINUTE,
    T0,
    FakeRegistry,
    World,
    bundle,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def published(world: World) -> pl.DataFrame:
    found = latest_published(world.settings.scores_dir)
    assert found is not None
    return found.gpu_scores()


def test_a_tick_is_published_with_everything_that_is_promised(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.flow.steps.matrix_spec", matrix_spec)  # all features of a site
    made = world.tick(0, hot=["GPU-5"])
    assert (made.as_of, made.is_published, made.n_gpus, made.n_nodes) == (T0 + HOUR, True, 8, 4)
    scores = published(world).sort("score", descending=True)
    top = scores.row(0, named=True)
    assert (top["entity_id"], top["status"], top["horizon_h"]) == ("GPU-5", "ok", 24)
    assert top["model_version"] == "gpu-failure-24h/1"
    assert "gpu_temp" in top["reasons"][0] or "temperature" in top["reasons"][0].lower()
    assert sum(top["fault_probabilities"]) == pytest.approx(1.0, abs=0.01)
    page = score_reader.latest_scores(score_engine(world.settings), kind="node", horizon_h=24)
    assert page.tick is not None
    assert page.tick.as_of == T0 + HOUR
    assert page.rows["entity_id"][0] == "n2"
    assert json.loads(page.rows["fault_probabilities"][0]) == {"nvlink": 0.6, "thermal": 0.4}


def test_the_same_tick_run_twice_publishes_once(world: World) -> None:
    world.tick(0)
    latest = (world.settings.scores_dir / "LATEST.json").stat()
    world.now += 10 * MINUTE
    assert world.scorer.once() is None
    assert world.new_scorer().once() is None
    assert (world.settings.scores_dir / "LATEST.json").stat().st_mtime_ns == latest.st_mtime_ns
    assert len(list((world.settings.scores_dir / "ticks").iterdir())) == 1
    assert len(score_reader.ticks(score_engine(world.settings))) == 1


def test_an_hour_is_waited_for_and_then_scored_without_its_data(world: World) -> None:
    world.tick(0)
    world.now = T0 + 2 * HOUR + 5 * MINUTE
    due = due_tick(world.settings, now=world.now)
    assert due.as_of is None
    assert "waiting" in due.why
    world.now = T0 + 2 * HOUR + 10 * MINUTE
    made = world.scorer.once()
    assert made is not None
    assert made.unknown == {"stale": 8}
    scores = published(world)
    assert scores["score"].null_count() == 8
    # The exporter's last word was at five to one.
    assert set(scores["status_reason"]) == {"newest sample is 65 min old"}
    assert set(scores["as_of"]) == {T0 + 2 * HOUR}


def test_of_a_half_silent_fleet_the_other_half_is_scored(world: World) -> None:
    world.tick(0)
    made = world.tick(1, silent=GPUS[:4])
    assert made.unknown == {"stale": 4}
    scores = published(world)
    assert set(scores.filter(pl.col("status") == "ok")["entity_id"]) == set(GPUS[4:])
    assert world.tick(2).unknown == {}


def test_an_exporter_whose_clock_is_behind_is_stale(world: World) -> None:
    # Its samples of this hour carry times of two hours ago and land there.
    world.tick(0)
    made = world.tick(1, shift=-2 * HOUR)
    assert made.unknown == {"stale": 8}


def test_a_scorer_whose_clock_went_back_scores_nothing(world: World) -> None:
    world.tick(3)
    world.now = T0 + HOUR
    with pytest.raises(DataError, match="clock"):
        world.scorer.once()
    assert published_as_of(world.settings.scores_dir) == T0 + 4 * HOUR


def test_ticks_of_the_future_are_taken_back_and_the_present_is_scored(world: World) -> None:
    world.tick(0)
    world.land(1)
    world.now = T0 + 50 * HOUR + 11 * MINUTE  # for a moment
    world.scorer.once()
    world.now = T0 + 2 * HOUR + 2 * MINUTE
    with pytest.raises(DataError, match="--discard-future"):
        world.scorer.once()
    said = score_loop.discard_future(world.settings, now=lambda: world.now)
    assert said == "1 published ticks of the future taken back"
    made = world.scorer.once()
    assert made is not None
    assert (made.as_of, made.unknown) == (T0 + 2 * HOUR, {})
    assert world.scorer.delivery.problems == {}
    found = score_reader.latest_tick(score_engine(world.settings))
    assert found is not None
    assert found.as_of == T0 + 2 * HOUR


@pytest.mark.parametrize("as_of", ["2026-01-05T01:00:00", 3, None, "nonsense"])
def test_a_latest_that_says_no_time_is_written_anew(world: World, as_of: object) -> None:
    world.tick(0)
    path = world.settings.scores_dir / "LATEST.json"
    whole = path.read_bytes()
    path.write_text(json.dumps(json.loads(whole) | {"as_of": as_of}))
    with pytest.raises(SourceError, match="not a published tick"):
        latest_published(world.settings.scores_dir)
    assert world.scorer.once() is not None
    assert path.read_bytes() == whole


def test_of_two_scorers_one_scores(world: World) -> None:
    world.land(0)
    world.now = T0 + HOUR + MINUTE
    with held(world.settings.scores_dir / ".scorer.lock") as is_held:
        assert is_held
        assert world.scorer.once() is None
        assert world.scorer.status.why == "another forewarn score is at work"
    assert world.scorer.once() is not None


def test_a_dagster_that_cannot_be_told_is_a_problem_of_a_published_tick(world: World) -> None:
    def report(_: object) -> None:
        raise SourceError("Dagster was not told")

    world.scorer.report = report
    assert world.tick(0).is_published
    status = read_status(world.settings.scores_dir)
    assert status is not None
    assert status.problems == {"dagster": "Dagster was not told"}


def test_who_interrupts_twice_does_not_wait() -> None:
    stop = threading.Event()
    with score_loop.stopped_by_signals(stop):
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_fleet_that_the_model_has_never_seen_is_unknown(world: World) -> None:
    made = world.tick(0, temperature=120.0)
    assert made.unknown == {"out_of_distribution": 8}


def test_a_shard_that_cannot_be_read_is_unknown_and_later_known_again(world: World) -> None:
    world.tick(0)
    world.land(1, hot=["GPU-6"])  # a sign that is to be remembered
    files = world.store.telemetry.files(start=T0 + HOUR, end=T0 + 2 * HOUR)
    whole = {path: path.read_bytes() for path in files}
    for path, content in whole.items():
        path.write_bytes(content[: len(content) // 2])
    world.now = T0 + 2 * HOUR + 2 * MINUTE
    made = world.scorer.once()
    assert made is not None
    assert made.unknown == {"failed_input": 8}
    assert published(world)["status_reason"][0].startswith("inputs could not be read: ")
    assert published(world)["score"].null_count() == 8
    for path, content in whole.items():
        path.write_bytes(content)
    made = world.tick(2, hot=["GPU-1"])
    assert made.unknown == {}
    other = World(world.folder / "other")
    for hour, hot in enumerate(([], ["GPU-6"], ["GPU-1"])):
        other.land(hour, hot=hot)
    other.now = world.now
    other.scorer.once()
    assert published(world)["score"].to_list() == published(other)["score"].to_list()


def test_a_new_champion_scores_the_next_tick(world: World) -> None:
    assert world.tick(0).model_versions == {24: "gpu-failure-24h/1"}
    assert world.tick(1).model_versions == {24: "gpu-failure-24h/1"}
    assert world.registry.n_loaded == 1
    world.registry.version = 2
    assert world.tick(2).model_versions == {24: "gpu-failure-24h/2"}
    assert world.registry.n_loaded == 2


def test_while_the_registry_is_down_the_last_champion_goes_on(world: World) -> None:
    world.tick(0)
    world.registry.is_down = True
    assert world.tick(1).model_versions == {24: "gpu-failure-24h/1"}
    world.land(2)
    world.now = T0 + 3 * HOUR + MINUTE
    another = world.new_scorer()
    with pytest.raises(DataError, match="down"):
        another.once()
    assert published_as_of(world.settings.scores_dir) == T0 + 2 * HOUR


def test_without_a_champion_the_prior_scores_and_says_so(world: World) -> None:
    world.registry.version = None
    made = world.tick(0)
    assert made.model_versions == {24: "gpu-failure-24h/prior"}
    assert set(published(world)["status"]) == {"prior"}


def test_a_model_for_another_contract_makes_its_horizon_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.flow.champions.contract_version", lambda _: "another")
    made = world.tick(0)
    assert made.unknown == {"failed_model": 8}
    assert made.model_versions == {24: "gpu-failure-24h/1"}
    assert "train again" in published(world)["status_reason"][0]


def test_a_champion_that_cannot_be_loaded_makes_its_own_horizon_unknown(tmp_path: Path) -> None:
    registry = PartRegistry()
    world = World(tmp_path, {"horizons_h": (24, 168)}, registry=registry)
    made = world.tick(0, hot=["GPU-5"])
    assert made.unknown == {"failed_model": 8}
    assert made.model_versions[168] == "gpu-failure-168h/1"
    scores = published(world).filter(pl.col("horizon_h") == 168)
    assert set(scores["status_reason"]) == {"the model cannot score: of another release"}
    assert len(read_book(world.settings.scores_dir).open) == 1
    with pytest.raises(DataError, match="of another release"):
        World(tmp_path / "alone", {"horizons_h": (168,)}, registry=registry).tick(0)


class PartRegistry(FakeRegistry):
    """Can load the model of 24 h alone."""

    def load(self, version: RegisteredVersion) -> ModelBundle:
        if "168" in version.name:
            raise DataError("of another release")
        return super().load(version)


def test_every_cause_has_a_name() -> None:
    assert len(set(CAUSES)) == len(CAUSES)


@pytest.mark.parametrize("phase", ["features", "scores", "history", "publishing"])
def test_told_to_stop_a_tick_is_given_up_unseen(world: World, phase: str) -> None:
    world.tick(0)
    before = (world.settings.scores_dir / "LATEST.json").read_bytes()
    world.land(1)
    world.now = T0 + 2 * HOUR + MINUTE

    def stop(line: str) -> None:
        if line.startswith(phase):
            world.scorer.stop.set()

    world.scorer.say = stop
    if phase == "publishing":  # past the last point: the tick is finished
        assert world.scorer.once() is not None
        return
    with pytest.raises(StoppedError):
        world.scorer.once()
    assert (world.settings.scores_dir / "LATEST.json").read_bytes() == before
    world.scorer = world.new_scorer()
    assert world.scorer.once() is not None


def test_the_loop_says_what_it_is_at_and_goes_on_after_a_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.land(0)
    world.now = T0 + HOUR + MINUTE
    world.registry.is_down = True
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        status = read_status(world.settings.scores_dir)
        assert status is not None
        if len(waited) == 1:
            assert (status.n_failures, status.phase) == (1, "idle")
            assert "down" in status.last_error
            world.registry.is_down = False
        if len(waited) == 2:
            assert (status.n_ticks, status.last_error) == (1, "")
            world.scorer.stop.set()
        return False

    monkeypatch.setattr(world.scorer.stop, "wait", wait)
    told: list[str] = []
    monkeypatch.setattr(score_loop, "notify", told.append)
    world.scorer.run()
    status = read_status(world.settings.scores_dir)
    assert status is not None
    assert status.phase == "stopped"
    assert (told[0], told[-1]) == ("READY=1", "STOPPING=1")


def test_scores_of_a_tick_do_not_depend_on_the_ticks_before(world: World, tmp_path: Path) -> None:
    for hour in range(4):
        world.tick(hour, hot=["GPU-3"] if hour == 2 else [])
    fresh = World(tmp_path / "fresh")
    for hour in range(4):
        fresh.land(hour, hot=["GPU-3"] if hour == 2 else [])
    fresh.now = world.now
    fresh.scorer.once()
    assert published(fresh).equals(published(world))


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:hunter2@h/db", "postgresql+psycopg://u:hunter2@h/db"],
)
def test_a_password_in_the_settings_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    content: dict[str, Any] = {
        "site": "a", "inputs": "i", "data_root": "d", "start": "2026-01-01T00:00:00Z",
        "score_database": {"url": url},
    }  # fmt: skip
    with pytest.raises(SettingsError) as raised:
        settings_from(content, origin=tmp_path / "s.yaml")
    assert "hunter2" not in str(raised.value)
    assert "score_database.password" in str(raised.value)


def test_a_secret_is_read_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("of a file\n")
    monkeypatch.setenv("A_SECRET", "of a variable")
    assert read_secret(SecretSource(file=tmp_path / "secret"), what="x") == "of a file"
    assert read_secret(SecretSource(variable="A_SECRET"), what="x") == "of a variable"
    monkeypatch.setenv("TWO_LINES", "a\nb")
    with pytest.raises(SettingsError, match="x: variable TWO_LINES holds more than one line"):
        read_secret(SecretSource(variable="TWO_LINES"), what="x")
    with pytest.raises(SettingsError, match="x: variable NONE is empty"):
        read_secret(SecretSource(variable="NONE"), what="x")


def test_the_made_up_model_knows_heat() -> None:
    assert bundle().model.n_positive > 100
    assert timedelta(minutes=30) == bundle().model.lead
