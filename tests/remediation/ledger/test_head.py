"""A ledger cut off at its end, or restored from a backup, is noticed; a crash is not mistaken."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediation.ledger import head as ledger_head
from remediation.ledger.entries import FIRST_HASH, LedgerError, MemoryLedger, NewEntry
from remediation.ledger.head import (
    Head,
    HeadedLedger,
    HeadFile,
    note_head_anew,
    verify_export,
    write_export,
)
from remediation.ledger.sqlite import SqliteLedger

AT = datetime(2026, 1, 5, tzinfo=UTC)


class Crash(BaseException):
    """The process is gone."""


def entry(number: int, **changes: object) -> NewEntry:
    values = {"recorded_at": AT, "actuator": "fake", "body": {"n": number}}
    return NewEntry(key=f"i{number}", kind="intent", **(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def head(tmp_path):
    return HeadFile(tmp_path / "elsewhere" / "ledger.head")


def filled(head: HeadFile, n_entries: int = 3) -> tuple[MemoryLedger, HeadedLedger]:
    inner = MemoryLedger()
    headed = HeadedLedger(inner, head)
    for number in range(n_entries):
        headed.append(entry(number))
    return inner, headed


def test_g20_the_head_follows_each_entry(head):
    inner, headed = filled(head, 0)
    assert head.read() == Head(0, FIRST_HASH)
    for number in range(3):
        assert headed.append(entry(number))
        assert not headed.append(entry(number))
        last = inner.entries()[-1]
        assert head.read() == Head(number + 1, last.hash)
        assert headed.verify().is_whole


def test_g20_of_many_entries_the_last_that_was_written_is_the_head(head):
    inner, headed = filled(head, 2)
    assert headed.append_all([entry(2), entry(3), entry(0)]) == (True, True, False)
    assert head.read() == Head(4, inner.entries()[-1].hash)
    assert headed.append_all([]) == ()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_g20_the_head_is_the_last_entry_whatever_the_clock_does(minutes):
    written = []
    inner = MemoryLedger()
    headed = HeadedLedger.__new__(HeadedLedger)
    headed._ledger = inner
    headed._head = type("Head", (), {"write": lambda _, new: written.append(new)})()
    headed._is_checked = True
    for number, minute in enumerate(minutes):
        headed.append(entry(number, recorded_at=AT + timedelta(minutes=minute)))
        assert written[-1].hash in {one.hash for one in inner.entries()}
        assert written[-1].seq == number + 1


@pytest.mark.parametrize("n_left", [0, 1, 2])
def test_g20_a_cut_off_end_is_noticed(head, n_left):
    inner, headed = filled(head)
    assert headed.verify().is_whole
    del inner._entries[n_left:]
    found = headed.verify()
    assert not found.is_whole
    assert "its end was cut off, or a backup restored" in found.problem
    assert "Look at every node" in found.problem
    with pytest.raises(LedgerError, match="Nothing was written"):
        headed.append(entry(9))


def test_g20_a_restored_backup_that_went_on_is_noticed(tmp_path, head):
    path, backup = tmp_path / "ledger.db", tmp_path / "backup.db"
    with SqliteLedger(path) as ledger:
        HeadedLedger(ledger, head).append(entry(1))
    shutil.copy(path, backup)
    with SqliteLedger(path) as ledger:
        HeadedLedger(ledger, head).append(entry(2))
    shutil.copy(backup, path)
    with SqliteLedger(path) as ledger:
        headed = HeadedLedger(ledger, head)
        assert not headed.verify().is_whole
        ledger.append(entry(3))
        ledger.append(entry(4))
        assert not headed.verify().is_whole


@pytest.mark.parametrize("n_left", [0, 2])
def test_g20_a_ledger_that_lacks_its_head_is_not_written_on(head, n_left):
    inner, _ = filled(head)
    noted = head.read()
    del inner._entries[n_left:]
    headed = HeadedLedger(inner, head)
    for number in range(10, 15):
        with pytest.raises(LedgerError, match="Nothing was written"):
            headed.append(entry(number))
    assert (len(inner.entries()), head.read()) == (n_left, noted)


def test_g20_a_lost_head_is_noticed_too(head):
    inner, headed = filled(head)
    Path(str(head)).unlink()
    assert "which is gone" in headed.verify().problem
    assert not HeadedLedger(inner, head).verify().is_whole
    assert head.read() is None


def test_g20_a_broken_chain_is_told_as_such(head):
    inner, headed = filled(head)
    del inner._entries[0]
    assert headed.verify().problem == "entry 1 is missing, found 2"
    with pytest.raises(LedgerError, match="Nothing was written"):
        headed.append(entry(9))


def test_g20_another_head_can_be_asked_for_as_well(head):
    inner, headed = filled(head)
    assert headed.verify(expected_head=inner.entries()[0].hash).is_whole
    assert not headed.verify(expected_head="f" * 64).is_whole


@pytest.mark.parametrize("step", ["open", "fsync", "replace", "after"])
@pytest.mark.parametrize("n_before", [0, 2])
def test_g13_a_crash_while_the_head_is_noted_is_not_mistaken_for_tampering(
    head, monkeypatch, step, n_before
):
    inner, headed = filled(head, n_before)

    def dies(*_, **__):
        raise Crash

    with monkeypatch.context() as patched:
        if step == "open":
            patched.setattr(HeadFile, "write", dies)
        elif step == "fsync":
            patched.setattr(ledger_head.os, "fsync", dies)
        elif step == "replace":
            patched.setattr(ledger_head.Path, "replace", dies)
        else:
            patched.setattr(ledger_head.os, "open", dies)
        with pytest.raises(Crash):
            headed.append(entry(9))
    again = HeadedLedger(inner, head)
    assert again.verify().is_whole
    again.append(entry(10))
    assert head.read().seq == n_before + 2
    assert again.verify().is_whole


def test_g13_a_head_that_cannot_be_noted_stops_the_hook(head, monkeypatch):
    _, headed = filled(head)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger_head.os, "fsync", full)
    with pytest.raises(LedgerError, match="No space left"):
        headed.append(entry(9))


def test_g20_the_head_never_goes_back(head):
    head.write(Head(5, "5" * 64))
    head.write(Head(4, "4" * 64))
    assert head.read() == Head(5, "5" * 64)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"seq": "x", "hash": "y"}'])
def test_g20_what_is_no_head_stops_the_hook(head, tmp_path, content):
    _, headed = filled(head)
    (tmp_path / "elsewhere" / "ledger.head").write_bytes(content)
    with pytest.raises(LedgerError, match="not a head"):
        headed.verify()


def test_g20_a_person_notes_the_head_anew(head, tmp_path):
    inner, headed = filled(head)
    del inner._entries[1:]
    path = tmp_path / "elsewhere" / "ledger.head"
    assert note_head_anew(inner, path) == Head(1, inner.entries()[0].hash)
    assert headed.verify().is_whole
    assert (path.parent / "ledger.head.before").exists()


def test_g20_no_head_is_noted_of_a_broken_ledger(head, tmp_path):
    inner, _ = filled(head)
    del inner._entries[0]
    with pytest.raises(LedgerError, match="No head was noted"):
        note_head_anew(inner, tmp_path / "elsewhere" / "ledger.head")


def test_g20_an_export_is_written_whole_and_verifies(head, tmp_path, monkeypatch):
    inner, headed = filled(head)
    path = tmp_path / "export.jsonl"
    assert write_export(headed, path) == 3
    noted = inner.entries()[-1].hash
    assert verify_export(path, expected_head=noted).is_whole

    def dies(_):
        raise OSError("disk")

    before = path.read_bytes()
    monkeypatch.setattr(ledger_head.os, "fsync", dies)
    with pytest.raises(OSError, match="disk"):
        write_export(headed, path)
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["elsewhere", "export.jsonl"]


@given(place=st.integers(0, 10_000), value=st.integers(0, 255), n_lost=st.integers(0, 2))
def test_g20_any_change_of_an_export_is_noticed(tmp_path_factory, place, value, n_lost):
    folder = tmp_path_factory.mktemp("export")
    inner = MemoryLedger()
    for number in range(3):
        inner.append(entry(number))
    write_export(inner, folder / "export")
    noted = inner.entries()[-1].hash
    lines = (folder / "export").read_bytes().splitlines(keepends=True)
    content = bytearray(b"".join(lines[: 3 - n_lost]))
    place %= len(content) - 1  # the last line break means nothing
    is_same = content[place] == value
    content[place] = value
    (folder / "export").write_bytes(content)
    try:
        is_whole = verify_export(folder / "export", expected_head=noted).is_whole
    except LedgerError:
        is_whole = False
    assert is_whole == (is_same and n_lost == 0) or bytes([value]).isspace()


def test_a_headed_sqlite_ledger_reads_few_rows_for_its_head(tmp_path, head):
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        headed = HeadedLedger(ledger, head)
        for number in range(20):
            headed.append(entry(number, recorded_at=AT + timedelta(minutes=number)))
        plan = ledger._connection.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM entries WHERE kind IN (?) AND recorded_at >= ?",
            ("intent", "2026"),
        ).fetchall()
    assert "by_kind" in str(plan)
