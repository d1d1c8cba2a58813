"""Rules of pages over a bucket that hangs: they come at once, and call unknown what they lack."""

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, wait
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from features.contracts import TableContract
from features.tables import CORE_NODE_STATES, CORE_TOPOLOGY
from pipelines.api.fleet_view import RACKS_AGAIN_S
from pipelines.board import history, stored
from pipelines.sections.secret_source import SecretSource
from pipelines.sections.storage import ObjectStoreSettings, StorageSettings
from pipelines.settings import Settings
from pipelines.storage import in_time
from pipelines.storage.in_time import InTime
from pipelines.storage.store import TableStore
from tests.pipelines.answering_server import Answer, answering
from tests.pipelines.api.api_world import T0
from tests.pipelines.board.board_world import BoardWorld, Browser
from tests.pipelines.memory_bucket import MemoryBucket

SOON_S = 3.5
"""What reads are waited for: 1.5 s for the racks of a new tick, 1.5 s for the page, 0.05 s for each
further one. A page's own work takes longer on a machine with other work."""

WITHIN_S = 50.0
"""What else waits for the bucket's client waits for 100 seconds."""

LATE = "no answer within 1.5 s"


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """A board whose scores are known, and whose tables are in a bucket that says nothing."""
    monkeypatch.setenv("A_KEY", "the-key")
    world = BoardWorld(tmp_path)
    world.publish()
    key = SecretSource(variable="A_KEY")
    with answering(lambda _, __: Answer(is_silent=True)) as server:
        how = ObjectStoreSettings(endpoint=server.url, access_key=key, secret_key=key)
        storage = StorageSettings(tables="s3://fleet/tables", object_store=how)
        world.settings = world.settings.model_copy(update={"storage": storage})
        yield world.browser()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that each read was waited for, at most."""
    found = list[float]()

    def noted(futures: "set[Future[object]]", *, timeout: float) -> None:
        found.append(timeout)
        wait(futures, timeout)

    monkeypatch.setattr(in_time, "wait", noted)
    return found


def timed(browser: Browser, path: str, waits: list[float]) -> tuple[int, str, bool]:
    """Status, text, and whether it came soon."""
    waits.clear()
    began = time.monotonic()
    answer = browser.get(path)
    is_soon = sum(waits) <= SOON_S and time.monotonic() - began < WITHIN_S
    return answer.status_code, answer.text, is_soon


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/", 200, "Which nodes are drained or down is unknown"),
        ("/node?name=n1", 200, "The stored tables cannot be read"),
        ("/gpu?id=n1-g0", 200, "The stored tables cannot be read"),
        ("/node?name=nobody-knows", 503, "The stored tables cannot be read"),
        ("/data", 200, "the tables cannot be read"),
        ("/quality", 503, "This part cannot be read at present"),
        ("/models", 200, "Drift cannot be read"),
        ("/api/v1/data-health", 200, "the tables cannot be read"),
    ],
)
def test_a_page_comes_soon_and_says_what_is_unknown_and_why(
    lost: Browser, waits: list[float], path: str, status: int, said: str
) -> None:
    for _ in range(2):
        found, text, is_soon = timed(lost, path, waits)
        assert (found, is_soon) == (status, True), waits
        assert said.lower() in text.lower()
        assert LATE in text


def test_metrics_of_scores_come_soon_though_the_bucket_is_lost(
    lost: Browser, waits: list[float]
) -> None:
    status, text, is_soon = timed(lost, "/api/v1/metrics", waits)
    assert (status, is_soon) == (200, True), waits
    assert "forewarn_scores_age_seconds" in text
    assert "forewarn_ingest_watermark_timestamp_seconds{" not in text


def test_what_comes_late_is_shown_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, opened = BoardWorld(tmp_path), threading.Event()
    bucket = MemoryBucket(tmp_path)
    monkeypatch.setattr(Settings, "store_root", property(lambda _: bucket.path("tables")))
    world.publish()
    world.store(CORE_NODE_STATES, [{"node": "n1", "state": "down", "valid_from": T0}])
    read = stored.states_now

    def hangs(store: TableStore, now: datetime) -> pl.DataFrame:
        assert opened.wait(30)
        return read(store, now)

    monkeypatch.setattr("pipelines.board.desk.states_now", hangs)
    browser = world.browser()
    unknown = browser.get("/")
    assert LATE in unknown.text
    assert 'data-refresh="5"' in unknown.text  # and not only after the usual half minute
    opened.set()
    monkeypatch.setattr(in_time, "_SHORT_S", 20.0)  # on a machine with other work it takes time
    world.seconds += 20  # what could not be read is not kept for longer
    known = browser.get("/")
    assert LATE not in known.text
    assert 'data-refresh="30"' in known.text
    assert "down" in known.text


def test_racks_that_come_late_are_known_a_minute_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, opened = BoardWorld(tmp_path), threading.Event()
    bucket = MemoryBucket(tmp_path)
    monkeypatch.setattr(Settings, "store_root", property(lambda _: bucket.path("tables")))
    world.place({"n1": "r7"})
    world.publish()
    read = TableStore.read

    def hangs(store: TableStore, table: TableContract, **more: Any) -> pl.DataFrame:
        assert table is not CORE_TOPOLOGY or opened.wait(30)
        return read(store, table, **more)

    monkeypatch.setattr(TableStore, "read", hangs)
    browser = world.browser()
    assert "r7" not in browser.get("/").text
    opened.set()
    world.seconds += RACKS_AGAIN_S - 1
    assert "r7" not in browser.get("/").text  # the tick is read again once a minute, no more
    world.seconds += 1
    assert "r7" in browser.get("/").text


def test_a_bucket_that_refuses_leaves_the_rest_of_the_data_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, bucket = BoardWorld(tmp_path), MemoryBucket(tmp_path)
    monkeypatch.setattr(Settings, "store_root", property(lambda _: bucket.path("tables")))
    world.publish()
    bucket.fails_after = bucket.n_requests
    for path in ("/data", "/api/v1/data-health"):
        answer = world.browser().get(path)
        assert answer.status_code == 200
        assert "the tables cannot be read" in answer.text.lower()
    assert "s3://" not in answer.text  # of the API's answer


def test_a_look_some_time_later_takes_what_the_last_one_began_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, read = BoardWorld(tmp_path), InTime.read
    world.publish()
    looked_for: list[Hashable] = []

    def noted(reads: InTime, key: Hashable, make: Callable[[], object]) -> object:
        looked_for.append(key)
        return read(reads, key, make)

    monkeypatch.setattr(InTime, "read", noted)
    # A database with one tick: what came before is in the store.
    tick = SimpleNamespace(as_of=T0)
    monkeypatch.setattr(history, "latest_tick", lambda _: tick)
    monkeypatch.setattr(history, "ticks", lambda _, limit: [tick])
    row = {"as_of": [T0], "score": [0.5], "status": ["ok"]}
    monkeypatch.setattr(history, "score_history", lambda _, **asked: pl.DataFrame(row))
    browser = world.browser()
    for _ in range(2):
        assert browser.get("/node?name=n1").status_code == 200
        world.now += timedelta(seconds=5)
    scores = [key for key in looked_for if isinstance(key, tuple) and key[0] == "scores"]
    assert len(scores) == 2
    assert len(set(scores)) == 1
