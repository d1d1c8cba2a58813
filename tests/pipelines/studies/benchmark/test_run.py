"""Rules of `forewarn benchmark`: two YAML files make one, and a result is shown and kept."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from features.errors import ForewarnError, SettingsError, SourceError
from models.benchmark.result import MODEL
from pipelines.studies.benchmark import settings as benchmark_settings
from pipelines.studies.benchmark.run import read_benchmark, run_benchmark
from pipelines.studies.benchmark.settings import (
    benchmark_names,
    load_protocol,
    load_shared,
    protocol_path,
)
from pipelines.studies.benchmark.text import render

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
files: ["rec*.csv"]
first_as_of: 2024-02-01T00:00:00Z
every_d: 30
lead_h: 0
horizon_d: 30
test_d: 90
origins: [2025-01-01T00:00:00Z]
old_before: 2024-03-01T00:00:00Z
place_level: cage
ordinal_levels: [cage]
"""


def record(months=17):
    """Forty GPUs in two cages; each month three of cage 1 fail."""
    lines = ["serial,location,insert,remove,event"]
    lines += [f"g{i},c{i % 2}n{i},{START.isoformat()},," for i in range(40)]
    for month in range(months):
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
    monkeypatch.setattr(benchmark_settings, "MAPPINGS", mappings)
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
    with pytest.raises(SourceError, match=r"holds no file rec\*\.csv"):
        run_benchmark("small", data_dir=data)


def test_a_longer_version_of_a_record_is_read_by_naming_its_file(data):
    protocol_path("small").write_text(PROTOCOL + "has_parts: false\n")
    (data / "record_long.csv").write_text(record(months=20))
    with pytest.raises(SourceError, match=r"record\.csv, record_long\.csv\. Each is the whole"):
        run_benchmark("small", data_dir=data)
    later = datetime(2025, 6, 1, tzinfo=UTC)  # past the end of the short one
    result = run_benchmark("small", data_dir=data / "record_long.csv", origins=[later])
    assert result.windows[0].metrics().n_positive > 0


def test_a_protocol_with_a_mistake_names_it(data):
    path = protocol_path("small")
    path.write_text(PROTOCOL.replace("every_d: 30", "every_d: 0").replace("test_d", "tets_d"))
    with pytest.raises(SettingsError) as caught:
        load_protocol(path)
    assert all(word in str(caught.value) for word in ("every_d", "test_d", "tets_d", path.name))


def test_the_packaged_protocols_hold_the_grammar_and_share_their_settings():
    assert benchmark_names() == ("backblaze", "grid5000", "titan")
    for name in benchmark_names():
        settings = load_protocol(protocol_path(name))
        assert settings.rivals
        assert not {"train", "features"} & set(type(settings).model_fields)
    assert all(training.spec().seeds for training in load_shared().train)


@pytest.mark.parametrize(("horizon_d", "used"), [(1, (1, 7, 30, 90, 365)), (30, (30, 90, 365))])
def test_events_are_counted_in_no_window_shorter_than_the_horizon(data, horizon_d, used):
    path = protocol_path("small")
    path.write_text(PROTOCOL.replace("horizon_d: 30", f"horizon_d: {horizon_d}"))
    _, protocol = read_benchmark(path, data_dir=data)
    assert protocol.features.history.windows == tuple(map(timedelta, used))


def test_a_record_of_ones_own_lies_beside_its_protocol(data):
    (data / "small.yaml").write_text(MAPPING)
    (data / "mine.yaml").write_text(PROTOCOL)
    result = run_benchmark(None, history=data / "mine.yaml")
    assert result.name == "mine"
    assert result.windows[0].metrics().auc.value > 0.6


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": None}, "give the name of a data set, or --history"),
        ({"name": "small"}, "say with --data which folder or file"),
    ],
)
def test_a_benchmark_that_is_not_said_is_asked_for(data, asked, said):
    with pytest.raises(SettingsError, match=said):
        run_benchmark(**asked)


def test_a_protocol_that_is_not_there_is_one_clear_error(data):
    with pytest.raises(SettingsError, match=r"none\.yaml cannot be read"):
        run_benchmark(None, history=data / "none.yaml")


def test_the_page_shows_each_window_with_its_gains(data, tmp_path):
    page = tmp_path / "result.html"
    run_benchmark("small", data_dir=data, page_path=page)
    text = page.read_text()
    wanted = ("S = 2025-01-01", "the model has more", "labels dealt anew", "control, ranked within")
    assert [word for word in wanted if word not in text] == []
