"""Rules of `forewarn benchmark`: two YAML files make one, and a result is shown and kept."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from features.errors import ForewarnError, SettingsError, SourceError
from models.benchmark_result import MODEL
from pipelines import benchmark
from pipelines.benchmark import benchmark_names, load_protocol, render, run_benchmark

START = datetime(2024, 1, 1, tzinfo=UTC)
SOME_DAY = datetime(2025, 2, 1, tzinfo=UTC)
MAPPING = """
file: {format: csv}
tables:
  core/inventory:
    columns: {gpu_uuid: serial, node: location, valid_from: insert}
    only_if: [insert]
  core/topology:
    node: location
    levels: {pattern: '^c(?P<cage>\\d)n', places: {cage: "{cage}"}}
  core/incidents:
    entity: {kind: gpu, column: serial}
    node: location
    start: remove
    end: remove
    event: event
    fault_types: {DBE: hbm_uncorrectable}
"""
PROTOCOL = """
mapping: small.yaml
files: [record.csv]
data_end: 2025-06-01T00:00:00Z
first_as_of: 2024-02-01T00:00:00Z
every_d: 30
lead_h: 0
horizon_d: 30
test_d: 90
origins: [2025-01-01T00:00:00Z]
old_before: 2024-03-01T00:00:00Z
place_level: cage
history: {windows_d: [30], scopes: [own], ordinal_levels: [cage]}
train:
  {num_leaves: 4, learning_rate: 0.1, rounds: 5, min_data_in_leaf: 5, lambda_l2: 1.0,
   feature_fraction: 1.0, seeds: [1]}
"""


def record():
    """Forty GPUs in two cages; each month three of cage 1 fail."""
    lines = ["serial,location,insert,remove,event"]
    lines += [f"g{i},c{i % 2}n{i},{START.isoformat()},," for i in range(40)]
    for month in range(17):
        at = START + timedelta(days=20 + 30 * month)
        for k in range(3):
            i = (2 * (3 * month + k) + 1) % 40
            lines.append(f"g{i},c1n{i},,{(at + timedelta(days=k)).isoformat()},DBE")
    return "\n".join(lines) + "\n"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with a record, and a benchmark `small` of it."""
    mappings, folder = tmp_path / "mappings", tmp_path / "data"
    mappings.mkdir()
    folder.mkdir()
    (mappings / "small.yaml").write_text(MAPPING)
    (mappings / "small_protocol.yaml").write_text(PROTOCOL)
    (folder / "record.csv").write_text(record())
    monkeypatch.setattr(benchmark, "MAPPINGS", mappings)
    return folder


def test_two_files_make_a_benchmark_that_beats_chance(data):
    assert benchmark_names() == ("small",)
    result = run_benchmark("small", data_dir=data)
    assert result.windows[0].origin == datetime(2025, 1, 1, tzinfo=UTC)
    assert result.windows[0].metrics().auc.value > 0.6


@pytest.mark.parametrize("origin", [SOME_DAY, SOME_DAY.replace(tzinfo=None)])
def test_origins_can_be_given_and_without_a_zone_are_utc(data, origin):
    result = run_benchmark("small", data_dir=data, origins=[origin])
    assert [w.origin for w in result.windows] == [datetime(2025, 2, 1, tzinfo=UTC)]


def test_the_text_names_windows_populations_and_scorers(data):
    text = render(run_benchmark("small", data_dir=data))
    wanted = ("S = 2025-01-01", "old batch", "without the top units", MODEL, "age", "place", "AUC")
    assert [word for word in wanted if word not in text] == []


def test_the_result_is_kept_as_json(data, tmp_path):
    path = tmp_path / "result.json"
    result = run_benchmark("small", data_dir=data, json_path=path)
    kept = json.loads(path.read_text())
    assert kept["windows"][0]["origin"] == "2025-01-01T00:00:00+00:00"
    auc = kept["windows"][0]["rows"][0]["metrics"]["auc"]["value"]
    assert auc == result.windows[0].metrics().auc.value
    assert [other.name for other in tmp_path.glob("*partial*")] == []


def test_a_missing_folder_for_the_json_is_found_out_before_any_work(data, tmp_path):
    (data / "record.csv").unlink()
    with pytest.raises(ForewarnError, match="there is no folder"):
        run_benchmark("small", data_dir=data, json_path=tmp_path / "none" / "result.json")


def test_an_unknown_benchmark_names_those_there_are(data):
    with pytest.raises(SettingsError, match="'summit' is not known; there are: small"):
        run_benchmark("summit", data_dir=data)


def test_absent_data_is_one_clear_error(data):
    (data / "record.csv").unlink()
    with pytest.raises(SourceError, match=r"record\.csv: no such file"):
        run_benchmark("small", data_dir=data)


def test_a_protocol_with_a_mistake_names_it(data):
    path = benchmark.MAPPINGS / "small_protocol.yaml"
    path.write_text(PROTOCOL.replace("every_d: 30", "every_d: 0").replace("test_d", "tets_d"))
    with pytest.raises(SettingsError) as caught:
        load_protocol("small")
    assert all(word in str(caught.value) for word in ("every_d", "test_d", "tets_d", path.name))


def test_the_packaged_protocols_hold_the_grammar():
    assert "titan" in benchmark_names()
    for name in benchmark_names():
        protocol = load_protocol(name).protocol(name)
        assert protocol.task.trained_on == "real"
        assert all(origin.tzinfo is UTC for origin in protocol.origins)
