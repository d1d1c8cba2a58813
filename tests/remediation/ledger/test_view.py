"""What entries mean at present, at the borders of its windows."""

from datetime import timedelta

import pytest

from remediation.ledger.entries import MemoryLedger, NewEntry
from remediation.ledger.view import ATTEMPTS_WINDOW, view_of

DAY = timedelta(hours=24)


@pytest.fixture
def view(kit):
    """The view of one intent with one result."""

    def build(*, age=timedelta(0), status="done", released=None):
        ledger = MemoryLedger()
        about = {"actuator": "fake", "node": "a", "recorded_at": kit.start - age}
        body = {"action": "cordon", "boot_id": "b"}
        ledger.append(NewEntry(key="i", kind="intent", decision_id="d", body=body, **about))
        if status is not None:
            body = {"status": status, "detail": ""}
            ledger.append(NewEntry(key="r", kind="result", refers_to="i", body=body, **about))
        if released is not None:
            body = {"why": released}
            ledger.append(NewEntry(key="x", kind="released", refers_to="i", body=body, **about))
        return view_of(ledger.entries(), actuator="fake", now=kit.start, would_hold=DAY)

    return build


@pytest.mark.parametrize(
    ("status", "is_held", "is_settled", "is_ambiguous", "counts"),
    [
        ("done", True, True, False, True),
        ("would_do", True, True, False, True),
        ("not_done", False, False, False, False),
        ("ambiguous", True, False, True, True),
        (None, True, False, True, True),
    ],
)
def test_each_result_has_one_meaning(view, status, is_held, is_settled, is_ambiguous, counts):
    found = view(status=status)
    assert ("a" in found.held) == is_held
    assert ("d" in found.settled) == is_settled
    assert ("a" in found.ambiguous) == is_ambiguous
    assert bool(found.acted_at) == counts
    assert found.tries == {"d": 1}
    assert bool(found.open_intents) == (status is None)


def test_what_was_done_is_held_until_released_what_would_be_done_for_a_time(view):
    moment = timedelta(microseconds=1)
    assert "a" in view(age=100 * DAY).held
    assert "a" not in view(released="undrained").held
    assert "a" in view(age=DAY - moment, status="would_do").held
    assert "a" not in view(age=DAY, status="would_do").held


def test_g19_tries_count_for_a_while(view):
    moment = timedelta(microseconds=1)
    assert view(age=ATTEMPTS_WINDOW - moment, status="not_done").failed == {("a", "b"): 1}
    assert view(age=ATTEMPTS_WINDOW, status="not_done").failed == {}


@pytest.mark.parametrize("why", ["undrained", "taken_over", "replaced", "returned"])
def test_g10_however_a_node_was_let_go_it_cools_down(view, why):
    assert "a" in view(released=why).undrained
