"""Rules of `forewarn backfill`: which tables are made over which stretch, and what is left out."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from features.errors import DataError, SettingsError
from pipelines.cli import app
from pipelines.end_to_end import backfill

NOW = datetime(2026, 3, 1, 10, 30, tzinfo=UTC)
FIRST, LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, str]]:
    """First and last partition by what is made, as runs would have them."""
    made: dict[str, tuple[str, str]] = {}

    def run(step, _definitions, *, instance, tags):
        made[step.words] = (tags.get(FIRST, ""), tags.get(LAST, ""))

    monkeypatch.setattr(backfill, "_run", run)
    monkeypatch.setattr("pipelines.definitions.build_definitions", lambda *_, **__: None)
    return made


def _settings(folder: Path, **given: object) -> Path:
    values = {
        "site": "small",
        "inputs": "inputs.yaml",
        "data_root": "data",
        "start": "2026-01-01T00:00:00Z",
        **given,
    }
    path = folder / "forewarn.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _run(path: Path, **given: datetime) -> list[str]:
    said: list[str] = []
    backfill.run_backfill(path, now=NOW, say=said.append, **given)
    return said


SPLIT = {"train_until": "2026-02-01T00:00:00Z", "valid_until": "2026-02-10T00:00:00Z"}


def test_an_hourly_record_that_goes_on_ends_with_its_last_full_hour_and_day(tmp_path, runs):
    _run(_settings(tmp_path, split=SPLIT))
    assert runs["telemetry and logs"] == ("2026-01-01-00:00", "2026-03-01-09:00")
    assert runs["labels"] == ("2026-01-01", "2026-02-28")
    assert runs["jobs, node states, incidents"] == ("", "")


def test_scores_begin_where_the_test_does(tmp_path, runs):
    _run(_settings(tmp_path, split=SPLIT))
    assert runs["scores"] == ("2026-02-10-00:00", "2026-03-01-09:00")


def test_daily_partitions_end_with_the_last_full_day(tmp_path, runs):
    _run(_settings(tmp_path, split=SPLIT, data_partition="day"))
    assert runs["features"] == ("2026-01-01", "2026-02-28")
    assert runs["scores"] == ("2026-02-10", "2026-02-28")


def test_a_stretch_is_cut_to_the_record(tmp_path, runs):
    path = _settings(tmp_path, split=SPLIT, end="2026-02-20T00:00:00Z")
    _run(path, since=NOW - timedelta(days=400))
    assert runs["features"] == ("2026-01-01-00:00", "2026-02-19-23:00")
    _run(path, since=datetime(2026, 2, 1, tzinfo=UTC), until=datetime(2026, 2, 3, tzinfo=UTC))
    assert runs["features"] == ("2026-02-01-00:00", "2026-02-02-23:00")


def test_without_a_split_everything_is_scored_by_prior(tmp_path, runs):
    said = _run(_settings(tmp_path))
    assert "models" not in runs
    assert any(line.startswith("models: none yet") for line in said)
    assert runs["scores"][0] == "2026-01-01-00:00"


def test_a_record_that_has_just_begun_is_scored_by_prior(tmp_path, runs):
    said = _run(_settings(tmp_path, split={"valid_days": 30, "test_days": 30}))
    assert "models" not in runs
    assert any(line.startswith("models: none yet") for line in said)
    assert runs["scores"][0] == "2026-01-01-00:00"


def test_what_lies_before_the_test_is_not_scored(tmp_path, runs):
    said = _run(_settings(tmp_path, split=SPLIT), until=datetime(2026, 1, 20, tzinfo=UTC))
    assert "scores" not in runs
    assert any(line.startswith("scores: left out") for line in said)


def test_a_stretch_without_a_full_partition_is_an_error(tmp_path, runs):
    with pytest.raises(DataError, match="no full hour of the record of small"):
        _run(_settings(tmp_path), since=NOW - timedelta(minutes=10))


def test_a_step_that_fails_says_which_and_why(tmp_path):
    with pytest.raises(DataError, match=r"jobs, nodes, places and stays: .*inputs\.yaml"):
        _run(_settings(tmp_path))


def test_settings_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(SettingsError, match="forewarn"):
        _run(tmp_path / "forewarn.yaml")


def test_days_of_the_command_are_days_of_utc(tmp_path, runs):
    path = _settings(tmp_path, split=SPLIT, end="2026-02-20T00:00:00Z")
    given = ["--settings", str(path), "--since", "2026-02-11", "--until", "2026-02-13"]
    assert CliRunner().invoke(app, ["backfill", *given]).exit_code == 0
    assert runs["features"] == ("2026-02-11-00:00", "2026-02-12-23:00")
    assert runs["scores"] == ("2026-02-11-00:00", "2026-02-12-23:00")
