"""Live alerts at a real Alertmanager: firing, updated, resolved, and told again after a restart."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.serving import score_reader, score_schema
from pipelines.serving.place import score_engine
from pipelines.serving.score_schema import ScoreDatabaseError
from tests.pipelines.serving.serving_world import GPUS, HOUR, MINUTE, T0, World
from tests.real import alertmanager_server, postgres_server
from tests.real.alertmanager_server import AlertmanagerServer, Receiver
from tests.real.postgres_server import PostgresServer

pytestmark = pytest.mark.real


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def hour_now() -> int:
    """An hour that is over, counted from the world's beginning: Alertmanager's clock is real.

    The one before the last: two minutes after its end are past at any minute of the real hour.
    """
    return (datetime.now(UTC) - T0) // HOUR - 2


@pytest.mark.skipif(alertmanager_server.PROGRAM is None, reason=alertmanager_server.ABSENT)
def test_an_alert_fires_is_updated_and_is_resolved(tmp_path: Path, hour_now: int) -> None:
    with Receiver() as receiver, AlertmanagerServer(tmp_path / "am", receiver.url) as server:
        serving = {"alertmanager": {"url": server.url, "resend_minutes": 0.001}}
        # Long-lived scores: the tick before the last must hold at any minute of the real hour.
        world = World(tmp_path / "site", {"serving": serving, "score_ttl_minutes": 240})
        world.tick(hour_now - 2, hot=["GPU-5"])
        assert world.scorer.delivery.problems == {}
        until(lambda: receiver.states() == [("n2", "firing")])
        (first,) = server.alerts()
        assert first["labels"]["horizon"] == "24h"
        assert "leading GPU: GPU-5" in first["annotations"]["reasons"]
        # Half of the fleet falls silent, the alert's node among it: it stays, and we say so.
        world.tick(hour_now - 1, silent=GPUS[2:6])
        both = {"ForewarnNodeFailureLikely", "ForewarnCoverageLow"}
        until(lambda: {one["labels"]["alertname"] for one in server.alerts()} == both)
        world.tick(hour_now)
        until(lambda: ("n2", "resolved") in receiver.states())
        until(lambda: server.alerts() == [])


@pytest.mark.skipif(alertmanager_server.PROGRAM is None, reason=alertmanager_server.ABSENT)
def test_an_alertmanager_that_lost_its_memory_is_told_again(tmp_path: Path, hour_now: int) -> None:
    with Receiver() as receiver:
        server = AlertmanagerServer(tmp_path / "am", receiver.url)
        serving = {"alertmanager": {"url": server.url, "resend_minutes": 5}}
        world = World(tmp_path / "site", {"serving": serving})
        world.tick(hour_now, hot=["GPU-5"])  # it is not there yet
        assert "alertmanager" in world.scorer.delivery.problems
        with server:
            world.now += MINUTE
            assert world.scorer.once() is None
            assert world.scorer.delivery.problems == {}
            until(lambda: len(server.alerts()) == 1)
        fresh = AlertmanagerServer(tmp_path / "fresh", receiver.url)
        fresh.port, fresh.url = server.port, server.url
        with fresh:
            world.now += 4 * MINUTE
            world.scorer.once()
            assert fresh.alerts() == []
            world.now += 2 * MINUTE
            world.scorer.once()
            until(lambda: len(fresh.alerts()) == 1)


@pytest.mark.skipif(postgres_server.PROGRAMS is None, reason=postgres_server.ABSENT)
def test_a_postgres_that_is_gone_and_back_lacks_no_tick(tmp_path: Path) -> None:
    with PostgresServer() as server:
        url = f"postgresql://forewarn@/postgres?host={server.folder}"
        world = World(tmp_path, {"score_database": {"url": url}})
        engine = world.scorer.delivery.engine
        world.tick(0, hot=["GPU-5"])
        assert world.scorer.delivery.problems == {}
        page = score_reader.latest_scores(engine, kind="node", horizon_h=24, limit=2)
        assert page.rows["entity_id"][0] == "n2"
        assert page.after is not None
        more = score_reader.latest_scores(
            engine, kind="node", horizon_h=24, limit=2, after=page.after
        )
        assert set(page.rows["entity_id"]) | set(more.rows["entity_id"]) == {"n0", "n1", "n2", "n3"}
        server.kill()
        made = world.tick(1, hot=["GPU-1"])
        assert made.is_published
        assert "database" in world.scorer.delivery.problems
        with pytest.raises(ScoreDatabaseError):
            score_reader.latest_tick(engine)
        server.start()
        world.now += timedelta(minutes=1)
        assert world.scorer.once() is None
        assert world.scorer.delivery.problems == {}
        assert len(score_reader.ticks(engine)) == 2
        assert set(score_reader.alerts(engine)["node"]) == {"n0", "n2"}
        history = score_reader.score_history(engine, kind="node", entity_id="n0", horizon_h=24)
        assert history.height == 2
        world.tick(2, hot=["GPU-1"])
        world.tick(2)
        assert len(score_reader.ticks(engine)) == 3
        engine.dispose()


@pytest.mark.skipif(postgres_server.PROGRAMS is None, reason=postgres_server.ABSENT)
def test_a_writer_that_hangs_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_schema, "_PATIENCE_S", 1)
    with PostgresServer() as server:
        url = f"postgresql://forewarn@/postgres?host={server.folder}"
        world = World(tmp_path, {"score_database": {"url": url}})
        other = score_engine(world.settings)
        with score_schema.writing(other):
            assert world.tick(0).is_published
            assert "lock timeout" in world.scorer.delivery.problems["database"]
        world.scorer.once()
        assert world.scorer.delivery.problems == {}
        assert len(score_reader.ticks(other)) == 1
        other.dispose()
        world.scorer.delivery.engine.dispose()
