"""Rules of the score database: a tick is there as a whole and once, pages never mix two."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SettingsError
from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY
from pipelines.serving import score_reader, score_schema
from pipelines.serving.score_database import write_outcomes, write_tick
from pipelines.serving.score_history import HistoryRule, changed, loud
from pipelines.serving.score_reader import PageError
from pipelines.serving.score_schema import ScoreDatabaseError, open_engine, reading, writing
from pipelines.storage.store import Span
from tests.pipelines.serving.score_rows import HOUR, RULE, T0, rows_of, tick_of


def put(
    engine: sa.Engine, hour: int, *, nodes: dict[str, float | None], digest: str = "a", **more: Any
) -> bool:
    gpus = more.get("gpus", {})
    return write_tick(
        engine,
        tick_of(hour, digest),
        node_scores=rows_of("node", hour, nodes),
        gpu_scores=rows_of("gpu", hour, gpus),
        rule=RULE,
    )


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    return open_engine(f"sqlite:///{tmp_path / 'scores.db'}")


def ranking(engine: sa.Engine, **more: Any) -> score_reader.Page:
    return score_reader.latest_scores(engine, kind="node", horizon_h=24, **more)


def test_before_the_first_tick_everything_is_empty_and_no_file_is_made(
    engine: sa.Engine, tmp_path: Path
) -> None:
    assert score_reader.latest_tick(engine) is None
    assert ranking(engine).rows.is_empty()
    assert score_reader.live_quality(engine).is_empty()
    assert not (tmp_path / "scores.db").exists()


def test_the_database_is_written_while_another_process_makes_the_file(
    engine: sa.Engine, tmp_path: Path
) -> None:
    path = tmp_path / "scores.db"

    def write() -> int | None:
        with writing(engine) as connection:
            return score_schema.version_of(connection)

    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        ThreadPoolExecutor() as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        written = pool.submit(write)
        wait([written], timeout=0.5)
        other.execute("ROLLBACK")
        assert written.result() == score_schema.VERSION


def test_a_tick_is_written_once_and_an_older_one_never(engine: sa.Engine) -> None:
    assert put(engine, 2, nodes={"n1": 0.5})
    assert not put(engine, 2, nodes={"n1": 0.5})
    assert not put(engine, 1, nodes={"n1": 0.9})
    assert ranking(engine).rows["score"].to_list() == [0.5]
    # The same hour scored again with other data replaces it.
    assert put(engine, 2, nodes={"n1": 0.7}, digest="b")
    assert ranking(engine).rows["score"].to_list() == [0.7]
    assert [one.digest for one in score_reader.ticks(engine)] == ["2b"]
    history = score_reader.score_history(engine, kind="node", entity_id="n1", horizon_h=24)
    assert history.height <= 1


def test_a_tick_reads_back_as_it_was_written(engine: sa.Engine) -> None:
    put(engine, 0, nodes={"n1": 0.5, "n2": None})
    found = score_reader.latest_tick(engine)
    assert found is not None
    assert found.n_node_rows == 2
    assert (found.as_of, found.model_versions) == (T0, {24: "m/0"})


def test_pages_together_are_the_ranking_and_unknown_ones_come_last(engine: sa.Engine) -> None:
    scores: dict[str, float | None] = {f"n{i}": (i % 3) / 4 for i in range(7)} | {"x": None}
    put(engine, 0, nodes=scores)
    names: list[str] = []
    after = None
    while True:
        page = ranking(engine, limit=3, after=after)
        names += page.rows["entity_id"].to_list()
        after = page.after
        if after is None:
            break
    expected = sorted(scores, key=lambda n: (-(-1 if scores[n] is None else scores[n]), n))
    assert names == expected
    assert ranking(engine, status="unknown").rows["entity_id"].to_list() == ["x"]
    assert ranking(engine, text="%").rows.is_empty()


def test_a_page_of_an_earlier_tick_is_refused(engine: sa.Engine) -> None:
    put(engine, 0, nodes={"n1": 0.5, "n2": 0.4})
    after = ranking(engine, limit=1).after
    put(engine, 1, nodes={"n1": 0.5, "n2": 0.4})
    with pytest.raises(PageError, match="Begin again"):
        ranking(engine, limit=1, after=after)


@pytest.mark.parametrize(
    "after", ["", "%", "bm9uc2Vuc2U=", "WzEsIDIsIDNd", "WzEsMixudWxsLDNd", "é"]
)
def test_a_made_up_cursor_is_refused(engine: sa.Engine, after: str) -> None:
    put(engine, 0, nodes={"n1": 0.5})
    with pytest.raises(PageError):
        ranking(engine, after=after)


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_page_has_a_size(engine: sa.Engine, limit: int) -> None:
    with pytest.raises(PageError):
        ranking(engine, limit=limit)


def test_hostile_names_stay_text(engine: sa.Engine) -> None:
    names = ["'; DROP TABLE ticks; --", "a\0b", "<script>", "ü" * 300, "%_"]
    put(engine, 0, nodes=dict.fromkeys(names, 0.5))
    assert ranking(engine).rows.height == 5
    assert ranking(engine, text="%_").rows["entity_id"].to_list() == ["%_"]
    history = score_reader.score_history(engine, kind="node", entity_id=names[0], horizon_h=24)
    assert history.height == 1


def test_history_holds_the_ticks_at_which_a_score_changed(engine: sa.Engine) -> None:
    course = [0.001, 0.002, 0.3, 0.31, None, None, 0.3, 0.001]
    for hour, score in enumerate(course):
        put(engine, hour, nodes={"n1": score})
    history = score_reader.score_history(engine, kind="node", entity_id="n1", horizon_h=24)
    assert history["score"].to_list() == [0.001, 0.3, None, 0.3, 0.001]
    assert history["as_of"].to_list()[0] == T0 + 7 * HOUR
    part = score_reader.score_history(
        engine, kind="node", entity_id="n1", horizon_h=24, since=T0 + HOUR, before=T0 + 5 * HOUR
    )
    assert part["score"].to_list() == [None, 0.3]


def test_quiet_gpus_take_no_room_until_they_are_loud(engine: sa.Engine) -> None:
    for hour, score in enumerate([0.001, 0.5, 0.001]):
        put(engine, hour, nodes={}, gpus={"g1": score, "g2": 0.0001})
    history = score_reader.score_history(engine, kind="gpu", entity_id="g1", horizon_h=24)
    assert history["score"].to_list() == [0.001, 0.5]
    assert score_reader.score_of(engine, kind="gpu", entity_id="g2").rows.is_empty()
    found = score_reader.latest_tick(engine)
    assert found is not None
    assert (found.n_gpu_rows, found.n_gpu_rows_kept) == (2, 0)


def test_of_a_silent_fleet_no_more_rows_are_kept_than_said() -> None:
    scores = rows_of("gpu", 0, {f"g{i}": None for i in range(20)} | {"a": 0.9})
    kept = loud(scores, RULE)
    assert kept.height == RULE.most_gpu_rows
    assert kept["entity_id"][0] == "a"


SCORE = st.one_of(st.none(), st.floats(0, 1))


@settings(max_examples=30)  # a tick costs the same for one node and for ten
@given(st.lists(st.tuples(*[SCORE] * 10), min_size=1, max_size=6))
def test_what_is_not_in_the_history_is_close_to_what_is(
    course: list[tuple[float | None, ...]],
) -> None:
    before, last = rows_of("node", 0, {}), {}
    for hour, scores in enumerate(course):
        rows = rows_of("node", hour, {f"n{i}": score for i, score in enumerate(scores)})
        fresh = changed(rows, before, every=rows, rule=RULE)
        last |= dict(fresh.select("entity_id", "score").iter_rows())
        before = rows
        for name, score in rows.select("entity_id", "score").iter_rows():
            kept = last[name]
            assert (kept is None) == (score is None)
            if score is not None and max(score, kept) >= RULE.floor:
                assert min(score, kept) >= RULE.floor / 1.000001
                assert max(score, kept) / min(score, kept) <= RULE.step * 1.000001


def test_old_history_is_forgotten(engine: sa.Engine) -> None:
    rule = HistoryRule(floor=0.01, days=2)
    for hour in (0, 24 * 3):
        write_tick(
            engine,
            tick_of(hour),
            node_scores=rows_of("node", hour, {"n1": 0.5 if hour else 0.1}),
            gpu_scores=rows_of("gpu", hour, {}),
            rule=rule,
        )
    history = score_reader.score_history(engine, kind="node", entity_id="n1", horizon_h=24)
    assert history["as_of"].to_list() == [T0 + 72 * HOUR]
    assert [one.as_of for one in score_reader.ticks(engine)] == [T0 + 72 * HOUR]


def outcome_rows(*nodes: str) -> pl.DataFrame:
    rows = [
        dict.fromkeys(LIVE_OUTCOMES.schema)
        | {"node": node, "as_of": T0 + HOUR, "horizon_h": 24, "model_version": "m",
           "outcome": "miss"}
        for node in nodes
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=LIVE_OUTCOMES.schema)


def test_what_was_judged_anew_replaces_what_was_found_before(engine: sa.Engine) -> None:
    week = Span(T0, T0 + 24 * 7 * HOUR)
    none = LIVE_QUALITY.empty()
    write_outcomes(engine, outcome_rows("a", "b"), none, span=week)
    # The incident of b turned out to be none; that of c came late.
    write_outcomes(engine, outcome_rows("a", "c"), none, span=week)
    assert score_reader.outcomes(engine)["node"].to_list() == ["a", "c"]
    later = Span(week.end, week.end + 24 * HOUR)
    write_outcomes(engine, outcome_rows(), none, span=later)
    assert score_reader.outcomes(engine).height == 2


def test_a_file_that_is_no_database_is_said_with_what_to_do(
    engine: sa.Engine, tmp_path: Path
) -> None:
    (tmp_path / "scores.db").write_bytes(b"no database at all" * 99)
    with pytest.raises(ScoreDatabaseError, match="Move the file away: it is made again"):
        ranking(engine)


def test_a_password_in_the_query_of_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(SettingsError) as raised:
        open_engine("postgresql://forewarn@db/forewarn?password=hunter2")
    assert "hunter2" not in str(raised.value)


def test_an_older_schema_is_brought_forward_and_a_newer_one_left_alone(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, 0, nodes={"n1": 0.5})
    monkeypatch.setattr(score_schema, "VERSION", 2)

    def add(connection: sa.Connection) -> None:
        connection.execute(sa.text("ALTER TABLE ticks ADD COLUMN more TEXT"))

    monkeypatch.setitem(score_schema.MIGRATIONS, 1, add)
    with pytest.raises(ScoreDatabaseError, match="next tick"):
        ranking(engine)
    assert put(engine, 1, nodes={"n1": 0.5})
    with reading(engine) as connection:
        assert connection is not None
        assert score_schema.version_of(connection) == 2
        assert connection.execute(sa.text("SELECT more FROM ticks")).fetchall()
    monkeypatch.setattr(score_schema, "VERSION", 1)
    with pytest.raises(ScoreDatabaseError, match="release that wrote it"):
        put(engine, 2, nodes={"n1": 0.5})


def test_a_tick_that_fails_half_way_leaves_the_one_before(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, 0, nodes={"n1": 0.5}, gpus={"g": 0.5})
    broken = rows_of("node", 1, {"n1": 0.9})
    twice = pl.concat([broken, broken])
    with pytest.raises(ScoreDatabaseError, match="the next tick writes"):
        write_tick(
            engine, tick_of(1), node_scores=twice, gpu_scores=rows_of("gpu", 1, {}), rule=RULE
        )
    assert ranking(engine).rows["score"].to_list() == [0.5]
    assert score_reader.latest_tick(engine) == score_reader.ticks(engine)[0]
    assert score_reader.score_of(engine, kind="gpu", entity_id="g").rows.height == 1


@pytest.mark.parametrize("url", ["mysql://h/db", "nonsense", "sqlite+nothing://"])
def test_a_database_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="score_database"):
        open_engine(url)


def test_readers_see_whole_ticks_while_one_is_written(engine: sa.Engine) -> None:
    """Each tick gives all nodes one score: two scores in a page would be a mix."""
    names = [f"n{i}" for i in range(200)]
    put(engine, 1, nodes=dict.fromkeys(names, 0.01))
    is_over = threading.Event()
    seen: list[tuple[datetime, set[float], int]] = []

    def read() -> None:
        while not is_over.is_set():
            page = ranking(engine, limit=1000)
            assert page.tick is not None
            seen.append((page.tick.as_of, set(page.rows["score"]), page.rows.height))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for one in readers:
        one.start()
    for hour in range(2, 7):
        put(engine, hour, nodes=dict.fromkeys(names, hour / 100))
    is_over.set()
    for one in readers:
        one.join()
    assert seen
    for as_of, scores, n_rows in seen:
        assert n_rows == 200
        assert scores == {((as_of - T0) // timedelta(hours=1)) / 100}


def test_a_writer_waits_for_another_and_both_ticks_are_there(engine: sa.Engine) -> None:
    put(engine, 0, nodes={"n1": 0.5})
    began = threading.Event()

    def hold() -> None:
        with writing(engine):
            began.set()
            time.sleep(0.2)

    other = threading.Thread(target=hold)
    other.start()
    began.wait()
    assert put(engine, 1, nodes={"n1": 0.6})
    other.join()
    assert len(score_reader.ticks(engine)) == 2


@pytest.mark.slow
def test_killed_at_any_point_readers_see_the_old_tick_or_the_new(tmp_path: Path) -> None:
    """A publisher of folder and database is killed again and again while both are read."""
    program = Path(__file__).with_name("publish_for_ever.py")
    folder, engine = tmp_path / "scores", open_engine(f"sqlite:///{tmp_path / 'scores.db'}")
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    n_seen = n_kills = 0
    last: datetime = T0
    for round_ in range(6):
        process = subprocess.Popen(
            [sys.executable, str(program), str(folder), str(tmp_path / "scores.db")],
            env=environment, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        until = time.monotonic() + 0.3 + 0.17 * round_
        while time.monotonic() < until:
            last = max(last, _whole_folder(folder, last), _whole_database(engine, last))
            n_seen += 1
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        n_kills += 1
        last = max(last, _whole_folder(folder, last), _whole_database(engine, T0))
    assert n_kills == 6
    assert n_seen > 20
    assert last > T0


def _whole_folder(folder: Path, last: datetime) -> datetime:
    from remediation.score_source import FolderScoreSource

    found = FolderScoreSource(folder).latest(T0 + 100_000 * HOUR)
    expected = {((found.as_of - T0) // HOUR) % 97 / 100}
    assert set(found.node_scores["score"]) == set(found.gpu_scores["score"]) == expected
    return found.as_of


def _whole_database(engine: sa.Engine, last: datetime) -> datetime:
    page = ranking(engine, limit=1000)
    if page.tick is None:
        return last
    assert page.rows.height == 300
    assert set(page.rows["score"]) == {((page.tick.as_of - T0) // HOUR) % 97 / 100}
    return page.tick.as_of
