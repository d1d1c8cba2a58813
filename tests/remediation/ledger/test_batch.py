"""Many entries at once: the same chain as one by one, all of them or none."""

from datetime import UTC, datetime

import pytest

from remediation.ledger.entries import LedgerError, MemoryLedger, NewEntry
from remediation.ledger.sqlite import SqliteLedger

AT = datetime(2026, 1, 5, tzinfo=UTC)


def entry(key: str, kind: str = "intent", **changes: object) -> NewEntry:
    values = {"recorded_at": AT, "actuator": "fake", "node": "a", "body": {"n": 1}}
    return NewEntry(key=key, kind=kind, **(values | changes))  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    if request.param == "memory":
        yield MemoryLedger()
    else:
        with SqliteLedger(tmp_path / "ledger.db") as opened:
            yield opened


NEW = (
    entry("d", "decision"),
    entry("i"),
    entry("r", "result", refers_to="i"),
    entry("d", "decision", body={"n": 2}),
)


def test_the_chain_is_that_of_one_by_one(ledger):
    alone = MemoryLedger()
    assert ledger.append_all(NEW) == tuple(alone.append(one) for one in NEW)
    assert ledger.entries() == alone.entries()
    assert ledger.verify().is_whole


def test_a_key_twice_in_a_batch_is_written_once(ledger):
    assert ledger.append_all(NEW) == (True, True, True, False)
    assert ledger.append_all(NEW) == (False, False, False, False)


def test_g13_one_that_cannot_be_written_leaves_none(ledger):
    ledger.append(entry("before"))
    with pytest.raises(LedgerError, match="answers no intent"):
        ledger.append_all(
            (entry("x"), entry("r", "result", refers_to="x"), entry("q", "result", refers_to="y"))
        )
    assert [one.key for one in ledger.entries()] == ["before"]
    assert ledger.append_all((entry("x"), entry("r", "result", refers_to="x"))) == (True, True)
    assert ledger.verify().is_whole


def test_no_entries_are_no_entries(ledger):
    assert ledger.append_all(()) == ()


def test_g13_decisions_are_on_disk_before_any_intent(kit):
    world = kit.world({"a": 0.9, "b": 0.8, "c": 0.7})
    world.run()
    kinds = [one.kind for one in world.ledger.entries()]
    assert kinds == ["observed", *("decision", "intent", "result") * 3]


def test_g20_decisions_that_lead_to_no_action_are_written_too(kit):
    world = kit.world({"a": 0.9, "b": 0.8}, site=kit.site(deny=("*",)))
    world.run()
    assert [one.node for one in world.ledger.entries(kinds=("decision",))] == ["a", "b"]


def test_g20_the_same_verdicts_a_minute_later_are_not_written_again(kit):
    world = kit.world({"a": 0.9}, site=kit.site(deny=("*",)))
    for _ in range(3):
        world.run()
        world.now += kit.tick / 15
    assert len(world.ledger.entries(kinds=("decision",))) == 1
