"""The published folder is read with distrust."""

import hashlib
import json
from datetime import timedelta

import polars as pl
import pytest

from features.errors import SourceError
from remediation.score_source import LATEST, FolderScoreSource


@pytest.fixture
def publish(kit, tmp_path):
    """Publishes one tick as the pipelines do, with changes to what `LATEST.json` says."""

    def write(*, files=None, frame=None, **changes):
        tick = kit.published({"a": 0.9, "b": None})
        frames = {
            "node_scores": tick.node_scores if frame is None else frame,
            "gpu_scores": tick.gpu_scores,
        }
        named = {}
        for name, table in frames.items():
            path = tmp_path / name / "tick.parquet"
            path.parent.mkdir(exist_ok=True)
            table.write_parquet(path)
            named[name] = {
                "path": f"{name}/tick.parquet",
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "rows": table.height,
            }
        for name, values in (files or {}).items():
            named[name] |= values
        latest = {
            "schema": 1,
            "as_of": kit.start.isoformat(),
            "published_at": kit.start.isoformat(),
            "expires_at": (kit.start + timedelta(minutes=30)).isoformat(),
            "model_versions": {"24": "17"},
            "trained_on": "real",
            "files": named,
            "coverage": 0.5,
        }
        (tmp_path / LATEST).write_text(json.dumps(latest | changes))
        return FolderScoreSource(tmp_path)

    return write


def test_what_was_published_is_read(kit, publish):
    found = publish().latest(kit.start)
    assert found.node_scores.equals(kit.published({"a": 0.9, "b": None}).node_scores)
    assert (found.model_versions, found.trained_on) == ({24: "17"}, "real")


def test_g05_expiry_is_half_open(kit, publish):
    found = publish().latest(kit.start)
    assert not found.is_expired(found.expires_at - timedelta(microseconds=1))
    assert found.is_expired(found.expires_at)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"node_scores": {"sha256": "0" * 64}}, "not the one that was published"),
        ({"node_scores": {"sha256": "0"}}, "files.node_scores.sha256"),
        ({"node_scores": {"rows": 3}}, "2 rows, LATEST.json says 3"),
        ({"node_scores": {"path": "../outside.parquet"}}, "outside the folder"),
        ({"node_scores": {"path": "/etc/hostname"}}, "outside the folder"),
        ({"gpu_scores": {"path": "gone.parquet"}}, "No such file"),
    ],
)
def test_files_that_are_not_as_published_are_refused(kit, publish, files, says):
    with pytest.raises(SourceError, match=says):
        publish(files=files).latest(kit.start)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema": 2}, "schema"),
        ({"trained_on": "dreams"}, "trained_on"),
        ({"coverage": 2}, "coverage"),
        ({"as_of": "2026-01-05T10:00:00"}, "as_of"),
        ({"surprise": 1}, "surprise"),
        ({"as_of": "2026-01-05T10:00:01Z"}, "from the future"),
        ({"published_at": "2026-01-05T10:00:01Z"}, "from the future"),
        ({"expires_at": "2026-01-05T10:00:00Z"}, "is not after as_of"),
        ({"expires_at": "2026-01-06T10:00:01Z"}, "more than 1 day"),
        ({"as_of": "2026-01-05T09:00:00Z"}, "rows have as_of"),
        ({"model_versions": {"24": "18"}}, "models by horizon are {24: '17'}"),
        ({"trained_on": "synthetic"}, "rows have trained_on real"),
    ],
)
def test_contradictions_are_refused(kit, publish, changes, says):
    with pytest.raises(SourceError, match=says):
        publish(**changes).latest(kit.start)


def test_a_link_out_of_the_folder_is_refused(kit, publish, tmp_path, tmp_path_factory):
    source = publish()
    inside = tmp_path / "node_scores" / "tick.parquet"
    outside = tmp_path_factory.mktemp("outside") / "tick.parquet"
    inside.rename(outside)
    inside.symlink_to(outside)
    with pytest.raises(SourceError, match="outside the folder"):
        source.latest(kit.start)


def test_a_file_cut_short_is_refused(kit, publish, tmp_path):
    source = publish()
    path = tmp_path / "node_scores" / "tick.parquet"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(SourceError, match="sha256"):
        source.latest(kit.start)


@pytest.mark.parametrize("score", [1.5, -0.1])
def test_rows_that_break_the_contract_are_refused(kit, publish, score):
    frame = kit.published({"a": 0.9}).node_scores.with_columns(score=pl.lit(score))
    with pytest.raises(SourceError, match="1 rows break"):
        publish(frame=frame).latest(kit.start)


def test_a_table_of_another_form_is_refused(kit, publish):
    with pytest.raises(SourceError, match="tick.parquet"):
        publish(frame=pl.DataFrame({"x": [1]})).latest(kit.start)


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b"[]"])
def test_without_a_readable_latest_there_is_one_clear_error(kit, tmp_path, content):
    if content is not None:
        (tmp_path / LATEST).write_bytes(content)
    with pytest.raises(SourceError, match="LATEST.json"):
        FolderScoreSource(tmp_path).latest(kit.start)
