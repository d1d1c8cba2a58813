"""Rules of live alerts: raised by the published policy, open through silence, told until over."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SettingsError, SourceError
from models.policies.warnings import WarningPolicy, raise_alerts
from pipelines.serving import alertmanager
from pipelines.serving.alert_book import Alert, AlertBook, Event, advance, alerts_frame
from pipelines.serving.alertmanager import COVERAGE_ALERT, payload
from pipelines.serving.delivery import read_book
from pipelines.serving.event_webhook import GIVE_UP, body_of, tell
from pipelines.serving.node_marks import marks_of
from pipelines.serving.place import score_engine
from pipelines.serving.score_database import Tick
from pipelines.serving.score_reader import alerts
from remediation.actuators.exchange import Answer, NoAnswerError
from remediation.actuators.webhook_signature import SigningKey, verify
from tests.pipelines.serving.score_rows import HOUR, T0, rows_of, tick_of
from tests.pipelines.serving.serving_world import GPUS, World

POLICY = WarningPolicy(threshold=0.5, n=2, k=2, tick=HOUR, cooldown=4 * HOUR)
LEAD = timedelta(minutes=30)
KEY = SigningKey(b"k" * 32)


def with_policy(tick: Tick, policy: WarningPolicy | None = POLICY) -> Tick:
    return replace(tick, policies={24: policy} if policy else {})


def run(
    course: Mapping[str, list[float | None]], *, policy: WarningPolicy = POLICY
) -> list[AlertBook]:
    """The book after each tick of a course of scores."""
    books, book = [], AlertBook()
    frames: list[pl.DataFrame] = []
    for hour in range(max(len(one) for one in course.values())):
        rows = rows_of("node", hour, {n: s[hour] for n, s in course.items() if hour < len(s)})
        earlier = pl.concat([rows.clear(), *frames])
        tick = with_policy(tick_of(hour), policy)
        book = advance(book, tick, rows, earlier=earlier, lead=LEAD, has_webhook=True)
        frames.append(rows)
        books.append(book)
    return books


def opened(books: list[AlertBook]) -> list[list[str]]:
    return [[one.node for one in book.open] for book in books]


def test_an_alert_needs_as_many_ticks_as_the_policy_says() -> None:
    assert opened(run({"a": [0.9, 0.1, 0.9, 0.9]})) == [[], [], [], ["a"]]


def test_silence_is_no_good_news_but_a_low_score_is() -> None:
    books = run({"a": [0.9, 0.9, None, None, None, 0.1]})
    assert opened(books)[-2:] == [["a"], []]
    assert books[-1].closed[0].why_closed == "the score is below the threshold"
    # One low tick of two is not enough.
    assert opened(run({"a": [0.9, 0.9, 0.1, 0.9]}))[-2:] == [["a"], ["a"]]


def test_an_alert_of_a_node_that_fell_silent_ends_with_its_horizon() -> None:
    books = run({"a": [0.9, 0.9, *[None] * 25]})
    assert opened(books)[-2:] == [["a"], []]
    assert books[-1].closed[0].why_closed == "its horizon has passed"


def test_without_a_policy_alerts_are_closed() -> None:
    book = run({"a": [0.9, 0.9]})[-1]
    tick = with_policy(tick_of(2), None)
    rows = rows_of("node", 2, {"a": 0.9})
    book = advance(book, tick, rows, earlier=rows.clear(), lead=LEAD)
    assert (book.open, book.closed[0].why_closed) == ((), "this horizon has no policy now")


def test_while_its_model_cannot_be_loaded_an_alert_stays_open_until_its_horizon_ends() -> None:
    book = run({"a": [0.9, 0.9]})[-1]
    for hour, n_open in ((2, 1), (25, 1), (26, 0)):
        tick = with_policy(tick_of(hour), None)
        rows = rows_of("node", hour, {"a": None})
        book = advance(book, tick, rows, earlier=rows.clear(), lead=LEAD)
        assert len(book.open) == n_open


def test_a_tick_that_is_known_changes_nothing() -> None:
    book = run({"a": [0.9, 0.9]})[-1]
    rows = rows_of("node", 1, {"a": 0.1})
    assert advance(book, with_policy(tick_of(1)), rows, earlier=rows.clear(), lead=LEAD) == book


def test_each_alert_is_fired_once_and_resolved_once() -> None:
    books = run({"a": [0.9, 0.9, 0.9, 0.9, 0.1, 0.1, 0.9, 0.9, 0.9]})
    told = [(event.kind, (event.at - T0) // HOUR) for event in books[-1].outbox]
    assert told == [("fired", 1), ("resolved", 5), ("fired", 7)]
    assert len({event.key for event in books[-1].outbox}) == 3


def test_a_node_that_is_above_again_within_the_cooldown_opens_its_alert_again() -> None:
    policy = WarningPolicy(threshold=0.5, n=1, k=1, tick=HOUR, cooldown=24 * HOUR)
    books = run({"a": [0.9, 0.1, 0.1, 0.9, 0.1]}, policy=policy)
    assert opened(books) == [["a"], [], [], ["a"], []]
    told = [(event.kind, (event.at - T0) // HOUR) for event in books[-1].outbox]
    assert told == [("fired", 0), ("resolved", 1), ("fired", 3), ("resolved", 4)]
    assert len({event.key for event in books[-1].outbox}) == 4
    assert len({event.alert.key for event in books[-1].outbox}) == 1
    assert len(books[-1].unstored) == 1
    assert books[3].closed == ()


SCORE = st.sampled_from([0.1, 0.9, None])


@settings(max_examples=25)  # a tick costs the same for one node and for eight
@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.lists(SCORE, min_size=9, max_size=9), min_size=4
    ),
    st.integers(1, 2), st.integers(0, 2), st.integers(0, 4),
)  # fmt: skip
def test_tick_by_tick_the_alerts_are_those_of_the_policy_over_the_whole_time(
    course: dict[str, list[float | None]], n: int, more: int, cooldown: int
) -> None:
    policy = WarningPolicy(threshold=0.5, n=n, k=n + more, tick=HOUR, cooldown=cooldown * HOUR)
    books = run(course, policy=policy)
    found = alerts_frame(books[-1].unstored).select("node", "as_of").sort("node", "as_of")
    rows = pl.concat(
        rows_of("node", hour, {node: s[hour] for node, s in course.items()}) for hour in range(9)
    )
    expected = raise_alerts(rows.select("entity_id", "as_of", "score"), policy)
    assert found.rows() == expected.select("entity_id", "as_of").rows()
    # Whatever the cooldown: of a node that is above as the policy wants it, an alert is open.
    above = raise_alerts(
        rows.select("entity_id", "as_of", "score"), replace(policy, cooldown=timedelta(0))
    )
    for node, as_of in above.select("entity_id", "as_of").iter_rows():
        assert node in {one.node for one in books[(as_of - T0) // HOUR].open}


def test_a_book_reads_back_as_it_was_written() -> None:
    book = run({"a": [0.9, 0.9, 0.1, 0.1, 0.9, 0.9], "b": [0.9, 0.9]})[-1]
    assert AlertBook.from_dict(json.loads(json.dumps(book.to_dict()))) == book


def test_alertmanager_is_told_of_a_node_once_and_of_its_newest_alert() -> None:
    book = run({"a": [0.9, 0.9, 0.1, 0.1, 0.9, 0.9]})[-1]
    assert book.open
    assert book.closed
    told = payload(book, site="lab")
    assert len(told) == 1
    assert told[0]["startsAt"] == (T0 + 5 * HOUR).isoformat()
    assert told[0]["endsAt"] == (T0 + 5 * HOUR + LEAD + 24 * HOUR).isoformat()


def test_a_coverage_that_is_low_is_an_alert_until_the_scores_expire() -> None:
    tick = replace(tick_of(0), coverage=0.5)
    (told,) = payload(AlertBook(), site="lab", tick=tick, min_coverage=0.9)
    assert told["labels"]["alertname"] == COVERAGE_ALERT
    assert told["endsAt"] == tick.expires_at.isoformat()
    (over,) = payload(AlertBook(), site="lab", tick=tick, min_coverage=0.5)
    assert over["endsAt"] == tick.published_at.isoformat()
    assert payload(AlertBook(), site="lab", tick=tick) == []


def test_marks_are_of_nodes_with_an_open_alert_alone() -> None:
    book = run({"a": [0.9, 0.9], "b": [0.1, 0.1]})[-1]
    marks = marks_of(book, tick_of(1))
    assert set(marks["nodes"]) == {"a"}
    condition = marks["nodes"]["a"]["kubernetes_condition"]
    assert (condition["type"], condition["status"]) == ("ForewarnFailureLikely", "True")
    assert marks["expires_at"] == tick_of(1).expires_at.isoformat()


class Receiver:
    """Takes requests as it is told to, and remembers keys as a receiver must."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.keys: list[str] = []

    def __call__(self, headers: Mapping[str, str], body: bytes) -> Answer:
        key = verify([KEY], headers, body, now=T0)
        assert json.loads(body)["id"] == key
        self.keys.append(key)
        status = self.answers.pop(0) if self.answers else 200
        if status is None:
            raise NoAnswerError("nobody there", may_have_acted=False)
        return Answer(status)


def at_once() -> float:
    return 0.0


def events() -> tuple[Event, ...]:
    alert = Alert(
        node="a", horizon_h=24, as_of=T0, last_above=T0, ends_at=T0 + HOUR, score=0.9,
        threshold=0.5, fault_type=None, reasons=(), model_version="m",
    )  # fmt: skip
    return (Event(kind="fired", alert=alert, at=T0), Event(kind="resolved", alert=alert, at=T0))


def test_what_is_told_is_signed_in_order_and_under_one_key() -> None:
    receiver = Receiver()
    assert tell(events(), post=receiver, key=KEY, site="lab", now=T0) == ()
    assert receiver.keys == [one.key for one in events()]
    assert b'"site":"lab"' in body_of(events()[0], site="lab")


@pytest.mark.parametrize("answer", [None, 500, 404, 302])
def test_what_was_not_taken_waits_longer_each_time_and_holds_back_the_rest(
    answer: int | None,
) -> None:
    receiver = Receiver(answer, answer)
    left = tell(events(), post=receiver, key=KEY, site="lab", now=T0, elapsed=at_once)
    assert [one.kind for one in left] == ["fired", "resolved"]
    assert left[0].next_try == T0 + timedelta(seconds=30)
    assert tell(left, post=receiver, key=KEY, site="lab", now=T0) == left
    ready = tuple(replace(one, next_try=None) for one in left)
    left = tell(ready, post=receiver, key=KEY, site="lab", now=T0, elapsed=at_once)
    assert left[0].next_try == T0 + timedelta(seconds=60)
    assert len(set(receiver.keys)) == 1


def test_an_event_that_nobody_took_for_a_day_is_given_up() -> None:
    assert tell(events(), post=Receiver(None), key=KEY, site="lab", now=T0 + GIVE_UP) == ()


def of_node(event: Event, node: str) -> Event:
    return replace(event, alert=replace(event.alert, node=node))


def test_an_event_that_is_refused_for_itself_holds_up_its_own_node_alone() -> None:
    fired, resolved = events()
    other = of_node(fired, "b")
    receiver = Receiver(400)
    left = tell(
        (fired, other, resolved), post=receiver, key=KEY, site="lab", now=T0, elapsed=at_once
    )
    assert receiver.keys == [fired.key, other.key]
    assert [(one.kind, one.alert.node) for one in left] == [("fired", "a"), ("resolved", "a")]
    # So it stays while it waits, and after a restart.
    left = tuple(Event.from_dict(json.loads(json.dumps(one.to_dict()))) for one in left)
    more = of_node(fired, "c")
    assert tell((*left, more), post=Receiver(), key=KEY, site="lab", now=T0) == left


def test_a_slow_receiver_is_told_for_a_minute_and_each_request_is_signed_when_it_is_sent() -> None:
    seconds = iter(range(0, 1000, 10))
    signed: list[int] = []

    def post(headers: Mapping[str, str], _: bytes) -> Answer:
        signed.append(int(headers["Forewarn-Timestamp"]) - int(T0.timestamp()))
        return Answer(200)

    many = tuple(of_node(events()[0], f"n{i}") for i in range(9))
    left = tell(many, post=post, key=KEY, site="lab", now=T0, elapsed=lambda: float(next(seconds)))
    assert signed == [10, 30, 50, 70]
    assert left == many[4:]


def test_a_next_try_that_a_wrong_clock_set_is_not_waited_for() -> None:
    (fired, _) = events()
    far = (replace(fired, next_try=T0 + timedelta(days=9)),)
    assert tell(far, post=Receiver(), key=KEY, site="lab", now=T0) == ()


def test_a_batch_that_is_refused_does_not_keep_later_ones_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def exchange(*_: object, body: bytes, **__: object) -> Answer:
        sizes.append(len(json.loads(body)))
        return Answer(400 if len(sizes) == 1 else 200, b"bad label")

    monkeypatch.setattr(alertmanager, "exchange", exchange)
    with pytest.raises(SourceError, match="HTTP 400 bad label"):
        alertmanager.send("http://am", [{}] * 600)
    assert sizes == [500, 100]


@pytest.mark.parametrize("token", ["hunter2\nX-Evil: 1", "hünter2"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(SettingsError) as raised:
        alertmanager.send("http://127.0.0.1:9", [{}], token=token)
    assert "nter2" not in str(raised.value)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_hot_gpu_opens_an_alert_that_ends_when_it_is_cool(world: World) -> None:
    folder = world.settings.scores_dir
    world.tick(0)
    assert read_book(folder).open == ()
    world.tick(1, hot=["GPU-5"])
    (alert,) = read_book(folder).open
    assert (alert.node, alert.as_of) == ("n2", T0 + 2 * HOUR)
    assert alert.reasons[0] == "leading GPU: GPU-5"
    assert alerts(score_engine(world.settings))["node"].to_list() == ["n2"]
    assert set(json.loads((folder / "node_marks.json").read_bytes())["nodes"]) == {"n2"}
    world.tick(2, silent=GPUS)
    assert len(read_book(folder).open) == 1


def test_while_the_database_is_gone_the_rest_goes_on_and_it_is_filled_later(world: World) -> None:
    world.tick(0)
    whole = score_engine(world.settings)
    path = world.settings.data_root / "scores.db"
    kept = path.read_bytes()
    world.scorer.delivery.engine.dispose()
    for part in path.parent.glob("scores.db*"):
        part.unlink()
    path.mkdir()
    world.tick(1, hot=["GPU-5"])
    assert set(world.scorer.delivery.problems) == {"database"}
    assert world.scorer.status.n_database_errors == 1
    assert len(read_book(world.settings.scores_dir).open) == 1
    path.rmdir()
    path.write_bytes(kept)
    world.tick(2)
    assert world.scorer.delivery.problems == {}
    from pipelines.serving.score_reader import ticks

    assert [one.as_of for one in ticks(whole)] == [T0 + h * HOUR for h in (3, 2, 1)]
    assert alerts(whole)["node"].to_list() == ["n2"]


def test_a_book_that_is_no_book_begins_anew(world: World) -> None:
    world.tick(0)
    (world.settings.scores_dir / "alerts.json").write_text('{"open": 3}')
    world.tick(1, hot=["GPU-5"])
    assert len(read_book(world.settings.scores_dir).open) == 1


def test_an_address_that_is_dead_is_a_problem_and_no_end(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"serving": {"alertmanager": {"url": "http://127.0.0.1:9"}}}
    world = World(tmp_path, changes)
    assert world.tick(0, hot=["GPU-5"]).is_published
    assert "Alertmanager" in world.scorer.delivery.problems["alertmanager"]
