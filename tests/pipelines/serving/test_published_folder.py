"""Rules of the published folder over time: ticks stay until they are old, never the latest."""

import json
import os
from pathlib import Path

import pytest

from features.errors import SourceError
from pipelines.flow.publish import forget_ticks, publish_scores, published_ticks
from pipelines.serving.published import latest_published, read_tick
from remediation.score_source import FolderScoreSource
from tests.pipelines.serving.score_rows import HOUR, T0, rows_of


def publish(folder: Path, hour: int, score: float = 0.5, later: int = 0) -> None:
    publish_scores(
        folder,
        gpu_scores=rows_of("gpu", hour, {"g": score}),
        node_scores=rows_of("node", hour, {"n": score}),
        published_at=T0 + (hour + later) * HOUR,
        ttl=HOUR,
    )


def test_latest_is_a_copy_of_its_ticks_own_file(tmp_path: Path) -> None:
    publish(tmp_path, 0)
    publish(tmp_path, 1)
    first, second = published_ticks(tmp_path)
    assert second.read_bytes() == (tmp_path / "LATEST.json").read_bytes()
    assert read_tick(first, tmp_path).tick.as_of == T0
    assert published_ticks(tmp_path, since=T0) == [second]


def test_a_tick_published_twice_keeps_the_time_of_the_first(tmp_path: Path) -> None:
    publish(tmp_path, 0)
    before = (tmp_path / "LATEST.json").read_bytes()
    publish(tmp_path, 0, later=1)
    assert (tmp_path / "LATEST.json").read_bytes() == before
    publish(tmp_path, 0, score=0.6, later=1)
    assert (tmp_path / "LATEST.json").read_bytes() != before
    assert len(published_ticks(tmp_path)) == 2


def test_old_ticks_go_but_never_what_latest_names(tmp_path: Path) -> None:
    for hour in range(4):
        publish(tmp_path, hour, score=hour / 10)
    far = T0 + 99 * HOUR
    removed = forget_ticks(tmp_path, before=T0 + 2 * HOUR, gpus_before=far)
    assert removed == 2 + 2 + 3
    assert len(published_ticks(tmp_path)) == 2
    assert FolderScoreSource(tmp_path).latest(far).as_of == T0 + 3 * HOUR
    forget_ticks(tmp_path, before=far, gpus_before=far)
    assert FolderScoreSource(tmp_path).latest(far).as_of == T0 + 3 * HOUR


def test_what_a_killed_writer_left_goes_after_a_day(tmp_path: Path) -> None:
    publish(tmp_path, 0)
    old, young = (tmp_path / "gpu_scores" / f".unfinished-{name}" for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    forget_ticks(tmp_path, before=T0 - HOUR, gpus_before=T0 - HOUR)
    assert (old.exists(), young.exists()) == (False, True)
    assert latest_published(tmp_path) is not None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"as_of": 3}', "\xff"])
def test_what_is_no_tick_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "LATEST.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(SourceError):
        latest_published(tmp_path)


def test_scores_that_were_altered_are_refused(tmp_path: Path) -> None:
    publish(tmp_path, 0)
    found = latest_published(tmp_path)
    assert found is not None
    path = (
        tmp_path
        / json.loads((tmp_path / "LATEST.json").read_bytes())["files"]["gpu_scores"]["path"]
    )
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(SourceError, match="not the one that was published"):
        found.gpu_scores()
