"""A node that we hold comes back for a settled cause and a check under load, for nothing else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediation.checks import CheckResult
from remediation.holds.returning import (
    Record,
    check_body,
    last_checks,
    may_return,
    offences_of,
)
from remediation.inbox.requested import Cause
from remediation.ledger.entries import MemoryLedger, NewEntry
from remediation.ledger.view import Held
from remediation.process_settings import ReturnRules

NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
TAKEN = NOW - 4 * HOUR
HELD = Held(intent_key="i", action="drain_after_jobs", boot_id="boot-0", since=TAKEN)
REPAIRED = Cause(verdict="repaired", actor="alice", at=NOW - 3 * HOUR, boot_id="boot-1")
CHECK = CheckResult(
    node="a",
    boot_id="boot-1",
    check="dcgm",
    status="passed",
    is_under_load=True,
    started_at=NOW - 2 * HOUR,
    ended_at=NOW - HOUR,
    exit_code=0,
    detail="exit code 0",
    output="",
)
RECORD = Record(now=NOW, boot_id="boot-1", offences=(TAKEN,))


@pytest.mark.parametrize("verdict", ["repaired", "false_alarm"])
def test_g24_a_settled_cause_and_a_passed_check_bring_a_node_back(verdict):
    found = may_return(HELD, replace(REPAIRED, verdict=verdict), CHECK, RECORD)
    assert found.way == "return"
    assert "alice" in found.reason
    assert "dcgm passed" in found.reason


@pytest.mark.parametrize(
    ("cause", "check", "way", "needs_check"),
    [
        (None, CHECK, "wait", False),
        (replace(REPAIRED, at=TAKEN), CHECK, "wait", False),
        (REPAIRED, None, "wait", True),
        (REPAIRED, replace(CHECK, status="unknown"), "wait", True),
        (REPAIRED, replace(CHECK, status="failed"), "repair", False),
        (REPAIRED, replace(CHECK, is_under_load=False), "wait", True),
        (REPAIRED, replace(CHECK, boot_id="boot-0"), "wait", True),
        (REPAIRED, replace(CHECK, started_at=REPAIRED.at - HOUR), "wait", True),
        (REPAIRED, replace(CHECK, started_at=REPAIRED.at - HOUR, status="failed"), "wait", True),
        (REPAIRED, replace(CHECK, ended_at=NOW - 6 * HOUR), "wait", True),
    ],
)
def test_g24_nothing_less_brings_it_back(cause, check, way, needs_check):
    found = may_return(HELD, cause, check, RECORD)
    assert (found.way, found.needs_check) == (way, needs_check)


def test_g24_after_a_false_alarm_a_check_made_before_that_verdict_counts():
    cause = replace(REPAIRED, verdict="false_alarm", at=NOW - HOUR)
    assert may_return(HELD, cause, CHECK, RECORD).way == "return"
    before = replace(CHECK, started_at=TAKEN - HOUR)
    assert may_return(HELD, cause, before, RECORD).way == "wait"


@pytest.mark.parametrize(("n", "way"), [(4, "return"), (5, "repair"), (6, "repair")])
def test_g19_five_times_in_seven_days_go_to_repair(n, way):
    offences = tuple(NOW - timedelta(days=6, hours=23) + i * HOUR for i in range(n))
    assert may_return(HELD, REPAIRED, CHECK, replace(RECORD, offences=offences)).way == way
    older = tuple(at - 2 * HOUR for at in offences[:1]) + offences[1:]
    if n == 5:
        assert may_return(HELD, REPAIRED, CHECK, replace(RECORD, offences=older)).way == "return"


causes = st.none() | st.builds(
    Cause,
    verdict=st.sampled_from(["repaired", "false_alarm"]),
    actor=st.just("alice"),
    at=st.integers(-9, 0).map(lambda n: NOW + n * HOUR),
    boot_id=st.just("boot-1"),
)
results = st.none() | st.builds(
    replace,
    st.just(CHECK),
    status=st.sampled_from(["passed", "failed", "unknown"]),
    is_under_load=st.booleans(),
    boot_id=st.sampled_from([None, "boot-0", "boot-1"]),
    started_at=st.integers(-9, 0).map(lambda n: NOW + n * HOUR),
)
times = st.lists(st.integers(-300, 0).map(lambda n: NOW + n * HOUR), max_size=8).map(tuple)


@given(causes, results, times)
def test_g24_every_return_has_a_cause_after_the_drain_and_a_check_that_passed_since(
    cause, check, offences
):
    found = may_return(HELD, cause, check, replace(RECORD, offences=offences))
    if found.way == "return":
        assert cause is not None
        assert cause.at > HELD.since
        assert check is not None
        assert (check.status, check.is_under_load, check.boot_id) == ("passed", True, "boot-1")
        assert check.started_at >= HELD.since
        assert cause.verdict == "false_alarm" or check.started_at >= cause.at
        assert sum(NOW - timedelta(days=7) < at for at in offences) < 5


@given(causes, results, times, st.lists(times, max_size=3))
def test_g19_more_drains_never_bring_a_node_back_sooner(cause, check, offences, more):
    rank = {"return": 0, "wait": 1, "repair": 2}
    few = may_return(HELD, cause, check, replace(RECORD, offences=offences))
    all_of_them = offences + sum(more, ())
    many = may_return(HELD, cause, check, replace(RECORD, offences=all_of_them))
    assert rank[many.way] >= rank[few.way]


def test_g24_the_rules_are_the_sites():
    rules = ReturnRules(offences=2, within_days=1, check_holds_hours=1)
    record = replace(RECORD, rules=rules)
    assert may_return(HELD, REPAIRED, CHECK, record).needs_check
    record = replace(record, offences=(TAKEN, TAKEN + HOUR))
    assert may_return(HELD, REPAIRED, CHECK, record).way == "repair"


class Book:
    """A ledger of drains and findings."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.n = 0

    def drain(
        self,
        at: datetime,
        *,
        status: str = "done",
        actuator: str = "fake",
        body: dict[str, str] | None = None,
    ) -> None:
        self.n += 1
        about = {"recorded_at": at, "actuator": actuator, "node": "a"}
        self.ledger.append(NewEntry(key=f"i{self.n}", kind="intent", body=body or {}, **about))
        self.ledger.append(
            NewEntry(
                key=f"r{self.n}",
                kind="result",
                refers_to=f"i{self.n}",
                body={"status": status},
                **about,
            )
        )

    def judge(self, what: str, at: datetime, *, status: str = "accepted") -> None:
        self.n += 1
        body = {"what": what, "status": status, "created": at.isoformat()}
        about = {"recorded_at": at, "actuator": "fake", "node": "a"}
        self.ledger.append(NewEntry(key=f"q{self.n}", kind="request", body=body, **about))

    def offences(self) -> tuple[datetime, ...]:
        return offences_of(self.ledger.entries(), actuator="fake").get("a", ())


def test_g19_only_what_we_surely_did_is_an_offence():
    book = Book()
    for status in ("not_done", "would_do", "ambiguous"):
        book.drain(TAKEN, status=status)
    book.drain(TAKEN, actuator="dry_run")
    assert book.offences() == ()
    book.drain(TAKEN)
    book.drain(TAKEN + HOUR, body={"step": "undrain"})
    assert book.offences() == (TAKEN,)


def test_g19_a_false_alarm_is_the_models_offence_not_the_nodes():
    book = Book()
    for hour in (0, 10, 20):
        book.drain(TAKEN + hour * HOUR)
    book.judge("false_alarm", TAKEN + 5 * HOUR)  # recorded late, said of the first drain
    book.judge("false_alarm", TAKEN + 21 * HOUR, status="refused")
    book.judge("repaired", TAKEN + 21 * HOUR)
    assert len(book.offences()) == 3
    book.judge("false_alarm", TAKEN + 22 * HOUR)
    book.judge("false_alarm", TAKEN + 23 * HOUR)
    assert book.offences() == (TAKEN, TAKEN + 10 * HOUR)


def test_g24_the_outcome_is_kept_and_read_back():
    ledger = MemoryLedger()
    for number, status in enumerate(["failed", "passed"]):
        result = replace(CHECK, status=status)
        ledger.append(
            NewEntry(
                key=f"c{number}",
                kind="checked",
                recorded_at=NOW,
                actuator="fake",
                node="a",
                body=check_body(result, intent_key="i"),
            )
        )
    assert last_checks(ledger.entries(), actuator="fake") == {"a": CHECK}
    assert last_checks(ledger.entries(), actuator="other") == {}
