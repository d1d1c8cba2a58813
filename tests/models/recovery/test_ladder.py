"""The ladder of an incident ends, keeps order and budget, whatever checks and job do."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from models.recovery.ladder import Trigger, begin, run_ladder

MACHINES = tuple("abcdef")
RUNGS = ("diagnose", "reattempt", "roll_back", "replay")


@dataclass
class FakeCheck:
    """A check whose findings are laid out in advance, the last one for ever."""

    findings: list[frozenset[str]]
    name: str = "fake"
    asked: list[frozenset[str]] = field(default_factory=list)

    def suspects(self, machines):
        self.asked.append(machines)
        return self.findings.pop(0) if len(self.findings) > 1 else self.findings[0]


@dataclass
class FakeControl:
    """A job that runs again once the right thing is done."""

    cure: str | None
    faulty: frozenset[str] = frozenset()
    has_change: bool = True
    gone: set[str] = field(default_factory=set)
    did: list[str] = field(default_factory=list)

    def restart(self, *, without):
        self.gone |= without
        self.did.append(f"restart -{''.join(sorted(without))}")
        if self.cure == "evict":
            return self.faulty <= self.gone
        return self.cure == "restart" or (self.cure == "roll_back" and "roll_back" in self.did)

    def roll_back(self):
        if self.has_change:
            self.did.append("roll_back")
        return self.has_change

    def replay(self, machines):
        return self.faulty


def climb(control, *findings, kind="crash", suspects="", budget=2):
    checks = [FakeCheck([frozenset(found) for found in findings] or [frozenset()])]
    trigger = Trigger(kind, frozenset(suspects))
    return run_ladder(trigger, MACHINES, checks, control, budget=budget)


def test_suspects_of_a_check_are_evicted_and_the_job_goes_on():
    found = climb(FakeControl("evict", frozenset("b")), "b")
    assert (found.taken, found.outcome, found.evicted) == (
        ("diagnose", "evict"),
        "eviction",
        ("b",),
    )


def test_known_suspects_are_evicted_before_any_test():
    found = climb(FakeControl("evict", frozenset("b")), kind="alert", suspects="b")
    assert (found.taken, found.outcome) == (("evict",), "eviction")


@pytest.mark.parametrize(
    ("cure", "outcome", "taken"),
    [
        ("restart", "reattempt", RUNGS[:2]),
        ("roll_back", "rollback", RUNGS[:3]),
        ("evict", "replay", (*RUNGS, "evict")),
        (None, "person", (*RUNGS, "evict")),
    ],
)
def test_when_all_tests_pass_the_rungs_follow_in_order(cure, outcome, taken):
    found = climb(FakeControl(cure, frozenset("c")))
    assert (found.outcome, found.taken) == (outcome, taken)


def test_an_error_of_the_code_is_rolled_back_first_and_once():
    found = climb(FakeControl(None), kind="user_code")
    assert found.taken == ("roll_back", "diagnose", "reattempt", "replay")
    assert climb(FakeControl("roll_back"), kind="user_code").outcome == "rollback"


def test_without_a_change_there_is_nothing_to_roll_back_and_no_restart():
    control = FakeControl(None, has_change=False)
    climb(control)
    assert control.did == ["restart -"]


def test_an_eviction_that_did_not_help_is_followed_by_another_look():
    found = climb(FakeControl("evict", frozenset("bc")), "b", "c")
    assert found.taken == ("diagnose", "evict", "diagnose", "evict")
    assert found.evicted == ("b", "c")


def test_more_suspects_than_may_be_evicted_are_a_matter_for_a_person():
    found = climb(FakeControl("evict", frozenset("abc")), "abc")
    assert (found.outcome, found.evicted) == ("person", ())
    assert found.why == "3 machines are suspect and 2 more may be evicted"


def test_the_first_check_that_finds_suspects_ends_the_row():
    later = FakeCheck([frozenset("a")])
    checks = [FakeCheck([frozenset("b")]), later]
    run_ladder(Trigger("crash"), MACHINES, checks, FakeControl("evict", frozenset("b")), budget=1)
    assert later.asked == []


def test_a_negative_budget_is_refused():
    with pytest.raises(DataError, match="budget of 0 machines or more, got -1"):
        begin(Trigger("crash"), MACHINES, budget=-1)


@given(
    kind=st.sampled_from(["alert", "crash", "user_code", "hang", "slow", "nan"]),
    known=st.frozensets(st.sampled_from([*MACHINES, "elsewhere"])),
    findings=st.lists(st.frozensets(st.sampled_from([*MACHINES, "elsewhere"])), min_size=1),
    cure=st.sampled_from(["evict", "restart", "roll_back", None]),
    faulty=st.frozensets(st.sampled_from(MACHINES)),
    has_change=st.booleans(),
    budget=st.integers(0, 7),
)
def test_every_incident_ends_within_its_budget_and_in_order(
    kind, known, findings, cure, faulty, has_change, budget
):
    control = FakeControl(cure, faulty, has_change)
    found = run_ladder(
        Trigger(kind, known), MACHINES, [FakeCheck(findings)], control, budget=budget
    )
    assert found.step == "end"
    assert found.outcome is not None
    assert len(found.evicted) == len(set(found.evicted)) <= budget
    assert set(found.evicted) == control.gone <= set(MACHINES)
    assert bool(found.why) == (found.outcome == "person")
    rungs = [step for step in found.taken if step in RUNGS and step != "diagnose"]
    assert len(rungs) == len(set(rungs))
    later = [RUNGS.index(step) for step in found.taken if step in RUNGS]
    if kind == "user_code" and found.taken[:1] == ("roll_back",):
        later = later[1:]
    assert later == sorted(later)
