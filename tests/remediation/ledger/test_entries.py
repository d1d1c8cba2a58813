"""Both ledgers hold the same promises; the SQLite one also against people with a shell."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from remediation.ledger.entries import (
    FIRST_HASH,
    Entry,
    LedgerError,
    MemoryLedger,
    NewEntry,
    export_json_lines,
    parse_json_line,
    verify_chain,
)
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
        with SqliteLedger(tmp_path / "new" / "ledger.db") as opened:
            yield opened


def filled() -> MemoryLedger:
    ledger = MemoryLedger()
    for i in range(4):
        ledger.append(entry(f"i{i}"))
    ledger.append(entry("r0", "result", refers_to="i0", body={"status": "done"}))
    return ledger


def test_a_key_is_written_once(ledger):
    assert ledger.append(entry("i"))
    assert not ledger.append(entry("i", body={"n": 2}))
    (only,) = ledger.entries()
    assert only.body == {"n": 1}


def test_an_answer_needs_what_it_answers_and_there_is_one(ledger):
    with pytest.raises(LedgerError, match="answers no intent"):
        ledger.append(entry("r", "result", refers_to="absent"))
    ledger.append(entry("i"))
    ledger.append(entry("r", "result", refers_to="i"))
    with pytest.raises(LedgerError):
        ledger.append(entry("r2", "result", refers_to="i"))
    assert len(ledger.entries()) == 2


def test_an_answer_to_an_entry_of_another_kind_is_refused_and_the_ledger_named(ledger):
    ledger.append(entry("d", "decision"))
    with pytest.raises(LedgerError, match=r"^ledger.*: r answers no intent 'd'$"):
        ledger.append(entry("r", "result", refers_to="d"))
    assert [e.key for e in ledger.entries()] == ["d"]


def test_a_time_that_was_altered_is_an_error_that_names_the_ledger(tmp_path):
    path = tmp_path / "ledger.db"
    with SqliteLedger(path) as ledger:
        ledger.append(entry("i"))
        with closing(sqlite3.connect(path)) as shell:
            shell.executescript("DROP TRIGGER no_update; UPDATE entries SET recorded_at = 'soon'")
        with pytest.raises(LedgerError, match=rf"^ledger {path}: an entry's time is not a time"):
            ledger.entries()


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "rumour"},
        {"kind": "result"},
        {"kind": "intent", "refers_to": "i"},
        {"recorded_at": datetime(2026, 1, 5)},  # noqa: DTZ001 - the missing zone is the point
    ],
)
def test_what_no_ledger_may_hold_is_refused_and_changes_nothing(ledger, bad):
    with pytest.raises(LedgerError):
        ledger.append(replace(entry("x"), **bad))
    assert ledger.entries() == ()


@pytest.mark.parametrize("body", [{"x": float("nan")}, {"x": AT}])
def test_a_body_that_is_not_plain_values_is_refused(ledger, body):
    with pytest.raises(DataError, match="cannot be written as JSON"):
        ledger.append(entry("x", body=body))
    assert ledger.entries() == ()


def test_entries_are_chosen_by_kind_and_time_in_order(ledger):
    zone_free = AT + timedelta(hours=1)
    ledger.append(entry("i"))
    ledger.append(entry("e", "escalation", recorded_at=zone_free))
    assert [e.key for e in ledger.entries(kinds=("escalation",))] == ["e"]
    assert [e.key for e in ledger.entries(since=zone_free)] == ["e"]
    assert [e.seq for e in ledger.entries()] == [1, 2]


def test_the_chain_holds_and_its_head_can_be_noted(ledger):
    assert ledger.verify().head == FIRST_HASH
    ledger.append(entry("i"))
    head = ledger.verify().head
    ledger.append(entry("j"))
    assert ledger.verify(expected_head=head).is_whole
    assert not ledger.verify(expected_head="f" * 64).is_whole


def test_both_ledgers_give_the_same_chain(tmp_path):
    memory = filled()
    with SqliteLedger(tmp_path / "ledger.db") as sqlite:
        for i in range(4):
            sqlite.append(entry(f"i{i}"))
        sqlite.append(entry("r0", "result", refers_to="i0", body={"status": "done"}))
        assert sqlite.entries() == memory.entries()


def test_an_export_reads_back_and_verifies():
    lines = list(export_json_lines(filled()))
    entries = [parse_json_line(line) for line in lines]
    assert tuple(entries) == filled().entries()
    assert verify_chain(entries).is_whole
    with pytest.raises(LedgerError, match="not an entry"):
        parse_json_line("{}")


@given(
    place=st.integers(0, 4),
    name=st.sampled_from([f.name for f in fields(Entry)]),
    number=st.integers(6, 99),
)
def test_g20_any_change_to_any_field_of_any_entry_is_seen(place, name, number):
    entries = list(filled().entries())
    value: object = AT + timedelta(seconds=number) if name == "recorded_at" else f"other {number}"
    if name == "seq":
        value = number
    if name == "body_json":
        value = f'{{"n":{number}}}'
    entries[place] = replace(entries[place], **{name: value})
    assert verify_chain(entries).broken_at is not None


@given(st.permutations(range(5)))
def test_g20_any_other_order_is_seen(order):
    entries = filled().entries()
    assert verify_chain(entries[i] for i in order).is_whole == (order == sorted(order))


@given(st.sets(st.integers(0, 4), min_size=1))
def test_g20_any_entry_left_out_is_seen_the_end_by_the_noted_head(gone):
    entries = filled().entries()
    rest = [one for i, one in enumerate(entries) if i not in gone]
    assert not verify_chain(rest, expected_head=entries[-1].hash).is_whole


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET actor = 'nobody'",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries",
    ],
)
def test_g20_the_file_refuses_update_and_delete(tmp_path, statement):
    path = tmp_path / "ledger.db"
    with SqliteLedger(path) as ledger:
        ledger.append(entry("i"))
        other = sqlite3.connect(path)
        other.execute("PRAGMA recursive_triggers = ON")
        with pytest.raises(sqlite3.IntegrityError):
            other.execute(statement)
        other.close()
        assert ledger.verify().is_whole


def test_g20_a_change_behind_the_triggers_back_is_seen(tmp_path):
    path = tmp_path / "ledger.db"
    with SqliteLedger(path) as ledger:
        ledger.append(entry("i"))
        ledger.append(entry("j"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("DROP TRIGGER no_update")
        other.execute("UPDATE entries SET actor = 'nobody' WHERE seq = 1")
        other.close()
        found = ledger.verify()
    assert (found.broken_at, found.problem) == (1, "entry 1 (i) was altered")


def test_a_ledger_survives_being_closed(tmp_path):
    path = tmp_path / "ledger.db"
    with SqliteLedger(path) as ledger:
        ledger.append(entry("i"))
    with SqliteLedger(path) as ledger:
        assert not ledger.append(entry("i"))
        assert ledger.append(entry("j"))
        assert ledger.verify().is_whole


def test_a_ledger_is_opened_while_another_process_makes_its_file(tmp_path):
    path = tmp_path / "ledger.sqlite"

    def append() -> bool:
        with SqliteLedger(path) as ledger:
            return ledger.append(entry("i1"))

    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        ThreadPoolExecutor() as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        appended = pool.submit(append)
        wait([appended], timeout=0.2)
        other.execute("ROLLBACK")
        assert appended.result()


@pytest.mark.parametrize("content", [b"not a database at all, but long enough", b"dir"])
def test_what_is_no_ledger_is_one_clear_error(tmp_path, content):
    path = tmp_path / "ledger.db"
    if content == b"dir":
        path.mkdir()
    else:
        path.write_bytes(content * 100)
    with pytest.raises(LedgerError, match="Without its ledger the hook does nothing"):
        SqliteLedger(path)


def test_a_database_of_something_else_is_left_as_it_is(tmp_path):
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE things (id)")
    other.commit()
    other.close()
    with pytest.raises(LedgerError, match="version 0 with 1 objects"):
        SqliteLedger(path)


def test_a_name_that_cannot_be_written_is_an_error_of_the_ledger(tmp_path):
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(LedgerError, match="ledger"):
            ledger.append(
                NewEntry(
                    key="k",
                    kind="decision",
                    recorded_at=datetime(2026, 1, 5, tzinfo=UTC),
                    actuator="fake",
                    node="\ud800",
                )
            )
        assert ledger.verify().n_entries == 0
