"""Rules of scores shown in a terminal."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from pipelines.serving import score_reader
from pipelines.serving.score_schema import open_engine
from pipelines.serving.score_words import entity_in_words, ranking_in_words
from tests.pipelines.serving.test_score_database import HOUR, T0, put


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    return open_engine(f"sqlite:///{tmp_path / 'scores.db'}")


def shown(engine: sa.Engine, *, hours: float = 0.5, **more: int) -> str:
    page = score_reader.latest_scores(engine, kind="node", horizon_h=24, **more)
    return ranking_in_words(page, horizon_h=24, now=T0 + hours * HOUR)


def test_without_a_tick_it_says_what_to_do(engine: sa.Engine) -> None:
    assert shown(engine) == "No tick is in the score database yet: run `forewarn score`."


def test_the_highest_come_first_and_an_unknown_one_is_told_with_its_cause(
    engine: sa.Engine,
) -> None:
    put(engine, 0, nodes={"n1": None, "n2": 0.5, "n3": 0.7})
    lines = shown(engine).splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [
        ["70.0%", "n3"], ["50.0%", "n2"], ["unknown", "n1"],
    ]  # fmt: skip
    assert "0.0%" not in lines[-1]
    assert shown(engine, limit=1).endswith("The first 1; --limit shows more.")


def test_expired_scores_are_told_to_be_so(engine: sa.Engine) -> None:
    put(engine, 0, nodes={"n1": 0.5})
    assert "EXPIRED" not in shown(engine)
    assert "EXPIRED" in shown(engine, hours=48)


def test_an_entity_has_a_line_per_horizon_and_names_cannot_forge_lines(engine: sa.Engine) -> None:
    put(engine, 0, nodes={"a\nb\x1b[2J": 0.5})
    name = "a\nb\x1b[2J"
    page = score_reader.score_of(engine, kind="node", entity_id=name)
    said = entity_in_words(page, entity_id=name, now=T0)
    assert "within 24 h: 50.0%" in said
    assert "\x1b" not in said
    assert said.splitlines()[1] == r"a\nb\x1b[2J:"
    nobody = score_reader.score_of(engine, kind="node", entity_id="x")
    assert "no score" in entity_in_words(nobody, entity_id="x", now=T0)
