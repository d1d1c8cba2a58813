"""Rules of making hours: each once, the newest first, and none that fails holds up another."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import settings as options
from hypothesis import strategies as st

from pipelines.orchestration.hour_plan import (
    Failed,
    HourState,
    Launch,
    Rule,
    due_hours,
    launch_of,
    next_launch,
    set_aside,
)
from pipelines.settings import Settings
from pipelines.storage.store import Span

HOUR = timedelta(hours=1)
T0 = datetime(2026, 3, 1, tzinfo=UTC)
RULE = Rule(step=HOUR, most=8, attempts=3, first_wait=timedelta(minutes=5))


def hours(*numbers: int) -> list[datetime]:
    return [T0 + n * HOUR for n in numbers]


def span(first: int, end: int) -> Span:
    return Span(T0 + first * HOUR, T0 + end * HOUR)


def state(n_due: int, *, core: set[int], scored: set[int], **more: Any) -> HourState:
    due = hours(*range(n_due))
    return HourState(
        due=due,
        without_core=set(due) - set(hours(*core)),
        without_scores=set(due) - set(hours(*scored)),
        **more,
    )


def site(**changes: Any) -> Settings:
    values = {"site": "lab", "inputs": "i", "data_root": "d", "start": "2026-03-01T00:00:00Z"}
    return Settings.model_validate(values | changes)


@pytest.mark.parametrize(
    ("core", "scored", "expected"),
    [
        ({0, 1, 2}, {0, 1, 2}, "every hour is made"),
        ({0, 1}, {0, 1}, ("hour", 2, 3)),  # the usual hour, all of it in one run
        ({0}, {0}, ("core", 1, 3)),  # time off: what the newest needs, in one run
        ({0, 1, 2}, {0}, ("scores", 2, 3)),  # then the newest hour's scores
        ({0, 1, 2}, {0, 2}, ("scores", 1, 2)),  # then those before it
        ({0, 2}, {0, 2}, ("core", 1, 2)),  # a hole
    ],
)
def test_what_is_missing_is_made_newest_first(
    core: set[int], scored: set[int], expected: str | tuple[Any, int, int]
) -> None:
    found = next_launch(state(3, core=core, scored=scored), RULE, now=T0 + 3 * HOUR)
    if isinstance(expected, tuple):
        assert found == Launch(stage=expected[0], span=span(*expected[1:]))
    else:
        assert found == expected


def test_one_run_takes_no_more_hours_than_it_may_and_the_newest_of_them() -> None:
    found = next_launch(state(48, core=set(), scored=set()), RULE, now=T0 + 48 * HOUR)
    assert found == Launch(stage="core", span=span(40, 48))


def test_nothing_starts_while_a_run_of_hours_is_under_way() -> None:
    found = next_launch(state(3, core=set(), scored=set(), is_busy=True), RULE, now=T0)
    assert found == "a run of hours is under way"


def test_a_stretch_that_failed_is_tried_in_halves() -> None:
    failed = [Failed(stage="core", span=span(0, 8), at=T0 + 8 * HOUR)]
    found = next_launch(state(8, core=set(), scored=set(), failed=failed), RULE, now=T0 + 8 * HOUR)
    assert found == Launch(stage="core", span=span(4, 8))


def test_an_hour_that_failed_alone_waits_twice_as_long_each_time() -> None:
    at = T0 + 3 * HOUR
    for n, wait in ((1, 5), (2, 10), (3, 20)):
        failed = [Failed(stage="hour", span=span(2, 3), at=at)] * n
        known = state(3, core={0, 1}, scored={0, 1}, failed=failed)
        early = next_launch(known, RULE, now=at + timedelta(minutes=wait - 1))
        assert early == "1 failed hours wait to be tried again"
        assert isinstance(next_launch(known, RULE, now=at + timedelta(minutes=wait)), Launch)
        assert bool(set_aside(known, RULE)) == (n >= RULE.attempts)


def test_an_hour_set_aside_is_forgotten_once_it_is_made() -> None:
    failed = [Failed(stage="hour", span=span(1, 2), at=T0)] * 5
    assert set_aside(state(3, core={0, 1, 2}, scored={0, 1, 2}, failed=failed), RULE) == {}


class World:
    """A store, a clock, and runs that fail when they are to make a poisoned hour."""

    def __init__(self, poisoned: set[datetime], settings: Settings, rule: Rule) -> None:
        self.poisoned, self.settings, self.rule = poisoned, settings, rule
        self.core: set[datetime] = set()
        self.scored: set[datetime] = set()
        self.failed: list[Failed] = []
        self.made: Counter[tuple[str, datetime]] = Counter()

    def look(self, now: datetime) -> Launch | str:
        due = due_hours(self.settings, now=now)
        known = HourState(
            due=due,
            without_core=set(due) - self.core,
            without_scores=set(due) - self.scored,
            failed=self.failed,
        )
        found = next_launch(known, self.rule, now=now)
        if isinstance(found, Launch):
            self.run(found, now)
        return found

    def run(self, launch: Launch, now: datetime) -> None:
        parts = [part.start for part in launch.span.steps(self.rule.step)]
        if launch.stage != "scores" and self.poisoned & set(parts):
            self.failed.append(Failed(stage=launch.stage, span=launch.span, at=now))
            return
        if launch.stage != "scores":
            self.core |= set(parts)
            self.made.update(("core", hour) for hour in parts)
        if launch.stage != "core":
            self.scored |= set(parts)
            self.made.update(("scores", hour) for hour in parts)


@options(max_examples=15, deadline=None)
@given(
    poisoned=st.sets(st.integers(0, 47), max_size=3),
    off=st.tuples(st.integers(0, 20), st.integers(0, 28)),
)
def test_every_hour_is_made_once_whatever_fails_and_however_long_nothing_ran(
    poisoned: set[int], off: tuple[int, int]
) -> None:
    world = World(set(hours(*poisoned)), site(), RULE)
    asleep = range(off[0], off[0] + off[1])
    for minute in range(0, 49 * 60, 10):
        if minute // 60 not in asleep:
            world.look(T0 + timedelta(minutes=minute))
    for _ in range(100):
        world.look(T0 + 49 * HOUR)
    good = set(hours(*range(48))) - world.poisoned
    assert world.core >= good
    assert world.scored >= good
    assert set(world.made.values()) == {1}
    assert not world.core & world.poisoned


@options(max_examples=10, deadline=None)
@given(st.integers(0, 40))
def test_a_poisoned_hour_holds_no_later_hour_up(poisoned: int) -> None:
    world = World(set(hours(poisoned)), site(), RULE)
    for minute in range(0, 48 * 60, 10):
        now = T0 + timedelta(minutes=minute)
        world.look(now)
        due = [hour for hour in due_hours(world.settings, now=now) if hour not in world.poisoned]
        if due and now.minute >= 20:  # ten minutes after it has settled
            assert due[-1] in world.scored


CHANGES = (
    ("Europe/Berlin", (2026, 3, 28)),
    ("Europe/Berlin", (2026, 10, 24)),
    ("America/New_York", (2026, 3, 7)),
    ("America/New_York", (2026, 10, 31)),
    ("Australia/Lord_Howe", (2026, 4, 4)),  # half an hour
    ("Australia/Lord_Howe", (2026, 10, 3)),
)


@pytest.mark.parametrize(("zone", "before"), CHANGES)
def test_each_data_hour_is_made_once_over_every_change_of_clocks(
    zone: str, before: tuple[int, int, int]
) -> None:
    start = datetime(*before, tzinfo=ZoneInfo(zone)).astimezone(UTC).replace(minute=0)
    world = World(set(), site(start=start), RULE)
    now = start
    while now < start + timedelta(days=2, minutes=30):
        world.look(now.astimezone(ZoneInfo(zone)))  # a machine whose clock shows local time
        now += timedelta(minutes=15)
    made = sorted(hour for kind, hour in world.made if kind == "scores")
    assert made == [start + n * HOUR for n in range(48)]
    assert set(world.made.values()) == {1}


def test_a_site_that_is_cut_by_days_makes_days() -> None:
    settings = site(data_partition="day")
    due = due_hours(settings, now=T0 + timedelta(days=2, hours=3))
    assert due == [T0, T0 + timedelta(days=1)]


def test_hours_of_long_ago_and_after_the_records_end_are_not_due() -> None:
    settings = site(end="2026-03-20T00:00:00Z", schedule={"look_back_days": 2})
    due = due_hours(settings, now=T0 + timedelta(days=30))
    assert due[0] == T0 + timedelta(days=17)
    assert due[-1] == T0 + timedelta(days=18, hours=23)


def test_an_hour_is_due_once_its_data_has_settled() -> None:
    settled = T0 + HOUR + timedelta(minutes=10)
    assert due_hours(site(), now=settled - timedelta(seconds=1)) == []
    assert due_hours(site(), now=settled) == [T0]


def test_a_runs_tag_tells_what_it_was_to_make() -> None:
    launch = Launch(stage="scores", span=span(3, 9))
    assert launch_of(launch.words) == launch
    assert launch_of("core/2026-03-01T05/2026-03-01T04") is None
    assert launch_of("nonsense") is None
