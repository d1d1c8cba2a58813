"""Rules of what follows a tick: a damaged file, full disk or dead receiver holds up no other."""

import errno
import fcntl
import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from features.errors import SourceError
from models.policies.warnings import WarningPolicy
from pipelines.flow import publish
from pipelines.flow.publish import discard_later, publish_scores, published_ticks
from pipelines.serving import delivery, node_marks
from pipelines.serving.delivery import delivery_of, read_book
from pipelines.serving.place import score_engine
from pipelines.serving.score_reader import alerts, latest_scores, ticks
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.file_lock import held
from tests.pipelines.serving.score_rows import HOUR, T0, rows_of
from tests.pipelines.serving.serving_world import MINUTE, settings_of

POLICY = WarningPolicy(threshold=0.5, n=1, k=1, tick=HOUR, cooldown=2 * HOUR)
ALERTMANAGER = {"serving": {"alertmanager": {"url": "http://127.0.0.1:9"}}}


@dataclass
class Site:
    """A published folder and what follows it; scores are made by hand."""

    folder: Path
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = settings_of(self.folder, **self.changes)
        self.scores = self.settings.scores_dir
        self.delivery = delivery_of(self.settings)

    def publish(self, hour: int, *, later: timedelta = MINUTE, **nodes: float | None) -> None:
        publish_scores(
            self.scores,
            gpu_scores=rows_of("gpu", hour, {"g": 0.5}),
            node_scores=rows_of("node", hour, nodes),
            published_at=T0 + hour * HOUR + later,
            ttl=2 * HOUR,
            policies={24: POLICY},
        )

    def deliver(self, hour: int, **more: Any) -> dict[str, str]:
        self.delivery.run(T0 + hour * HOUR + 2 * MINUTE, **more)
        return self.delivery.problems

    def tick(self, hour: int, **nodes: float | None) -> dict[str, str]:
        self.publish(hour, **nodes)
        return self.deliver(hour)

    def open(self) -> set[str]:
        return {one.node for one in read_book(self.scores).open}

    def hours(self) -> list[int]:
        return [(one.as_of - T0) // HOUR for one in ticks(score_engine(self.settings))]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """What Alertmanager is told."""
    told: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(delivery, "send", lambda _, payload, **__: told.append(payload))
    return told


def refuse(*_: object, **__: object) -> None:
    raise SourceError("nobody there")


@pytest.mark.parametrize("kind", ["ticks", "node_scores"])
def test_a_damaged_tick_is_left_out_and_holds_up_none_after_it(site: Site, kind: str) -> None:
    site.tick(0, a=0.1)
    site.publish(1, a=0.9)
    for path in (site.scores / kind).glob("20260105T01*"):
        path.write_bytes(b"{")
    site.publish(2, a=0.1, b=0.9)
    assert site.deliver(2) == {}
    assert site.open() == {"b"}
    assert site.hours() == [2, 0]


def test_scores_that_cannot_be_read_stop_neither_alertmanager_nor_webhook(
    tmp_path: Path, sent: list[list[dict[str, Any]]]
) -> None:
    site = Site(tmp_path, ALERTMANAGER)
    site.tick(0, a=0.9)
    (site.scores / "LATEST.json").write_text("{}")
    site.delivery.sent_at = None
    assert set(site.deliver(0)) == {"alerts", "database"}
    assert [one["labels"]["alertname"] for one in sent[-1]] == ["ForewarnNodeFailureLikely"]


def test_that_an_alert_is_over_is_told_however_long_alertmanager_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[list[dict[str, Any]]]
) -> None:
    site = Site(tmp_path, ALERTMANAGER)
    take = delivery.send
    site.tick(0, a=0.9)
    monkeypatch.setattr(delivery, "send", refuse)
    for hour in (1, 2, 8, 11):
        assert set(site.tick(hour, a=0.1)) == {"alertmanager"}
    monkeypatch.setattr(delivery, "send", take)
    site.tick(12, a=0.1)
    (told,) = (one for one in sent[-1] if one["labels"].get("node") == "a")
    assert told["endsAt"] == (T0 + HOUR).isoformat()
    site.tick(13, a=0.1)
    assert read_book(site.scores).closed == ()


def test_an_alert_that_ended_by_itself_is_not_kept_for_an_alertmanager_that_never_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, ALERTMANAGER)
    monkeypatch.setattr(delivery, "send", refuse)
    site.tick(0, a=0.9)
    for hour in (1, 2, 24, 26):
        site.tick(hour, a=0.1)
    assert read_book(site.scores).closed == ()


def test_a_clock_that_was_set_back_does_not_keep_alertmanager_waiting(
    tmp_path: Path, sent: list[list[dict[str, Any]]]
) -> None:
    site = Site(tmp_path, ALERTMANAGER)
    site.tick(0, a=0.9)
    site.delivery.sent_at = T0 + 99 * HOUR
    site.deliver(0)
    assert len(sent) == 2


def test_after_ticks_of_the_future_are_taken_back_alerts_and_database_go_on(site: Site) -> None:
    site.tick(0, a=0.9)
    site.tick(1, a=0.9)
    site.tick(50, a=None, b=0.9)  # a clock that was ahead
    assert site.open() == {"b"}
    assert discard_later(site.scores, now=T0 + HOUR + 30 * MINUTE) == 1
    assert site.deliver(1) == {}
    assert site.open() == {"a"}
    assert site.hours() == [1, 0]
    engine = score_engine(site.settings)
    page = latest_scores(engine, kind="node", horizon_h=24)
    assert page.rows["entity_id"].to_list() == ["a"]
    assert set(alerts(engine)["node"]) == {"a"}
    site.tick(2, a=0.1, c=0.9)
    assert (site.open(), site.hours()) == ({"c"}, [2, 1, 0])


def test_where_all_ticks_are_of_the_future_nothing_is_published_then(site: Site) -> None:
    site.tick(50, a=0.9)
    assert discard_later(site.scores, now=T0) == 1
    assert not (site.scores / "LATEST.json").exists()
    assert discard_later(site.scores, now=T0) == 0


def test_a_new_database_knows_the_alerts_that_were_raised_before_it(site: Site) -> None:
    for hour in range(4):
        site.tick(hour, a=0.9 if hour == 1 else 0.1, b=0.9)
    before = alerts(site.delivery.engine)
    site.delivery.engine.dispose()
    for path in site.settings.data_root.glob("scores.db*"):
        path.unlink()
    assert site.deliver(3) == {}
    assert before.height == 3
    assert alerts(score_engine(site.settings)).equals(before)


def test_of_two_at_once_one_delivers(site: Site) -> None:
    site.publish(0, a=0.9)
    with held(site.scores / ".delivery.lock") as is_held:
        assert is_held
        assert site.deliver(0) == {}
        assert site.hours() == []
    site.deliver(0)
    assert site.hours() == [0]


def test_on_a_disk_without_locks_it_is_delivered_all_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    site.tick(0, a=0.9)
    assert site.hours() == [0]


def test_a_tick_that_never_became_the_latest_is_not_taken_for_it(site: Site) -> None:
    site.publish(0, a=0.1)
    latest = (site.scores / "LATEST.json").read_bytes()
    site.publish(0, later=5 * MINUTE, a=0.9)
    (site.scores / "LATEST.json").write_bytes(latest)  # killed before the rename
    site.deliver(0)
    assert site.open() == set()
    page = latest_scores(score_engine(site.settings), kind="node", horizon_h=24)
    assert page.rows["score"].to_list() == [0.1]


class FullOnce:
    """Writes files, but for one: then the disk is full."""

    def __init__(self, number: int) -> None:
        self.number, self.seen = number, 0

    def __call__(self, *words: Any, **more: Any) -> None:
        self.seen += 1
        if self.seen == self.number:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace_file(*words, **more)


def test_a_disk_that_is_full_at_any_write_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write fails once; tried again, all is as if none had."""

    def outcome(number: int) -> tuple[tuple[object, ...], int]:
        site, disk = Site(tmp_path / str(number)), FullOnce(number)
        site.tick(0, a=0.1)
        with monkeypatch.context() as patch:
            for module in (publish, delivery, node_marks):
                patch.setattr(module, "replace_file", disk)
            for _ in range(2):
                with suppress(OSError):
                    site.publish(1, a=0.9)
                    site.deliver(1)
        book = read_book(site.scores)
        marks = json.loads((site.scores / "node_marks.json").read_bytes())["nodes"]
        raised = alerts(site.delivery.engine)["node"].to_list()
        n_ticks = len(published_ticks(site.scores))
        return (book, set(marks), site.hours(), raised, n_ticks), disk.seen

    whole, n_writes = outcome(0)
    assert n_writes > 6
    assert whole[1:] == ({"a"}, [1, 0], ["a"], 2)
    for number in range(1, n_writes + 1):
        assert outcome(number)[0] == whole
