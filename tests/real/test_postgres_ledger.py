"""The ledger and the lease on a real PostgreSQL: SQLite's very chain, and no way to change it."""

import itertools
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import DataError, SettingsError
from remediation.lease.leadership import Instant, Leadership, LeaseError
from remediation.lease.postgres import PostgresLease
from remediation.ledger import postgres as ledger_postgres
from remediation.ledger.entries import LedgerError, MemoryLedger, NewEntry, export_json_lines
from remediation.ledger.head import HeadedLedger, HeadFile, verify_export, write_export
from remediation.ledger.postgres import PostgresLedger, name_of
from remediation.ledger.sqlite import SqliteLedger

sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import ABSENT, PROGRAMS, PostgresServer

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAMS is None, reason=ABSENT),
]
psycopg = pytest.importorskip("psycopg", reason="forewarn[postgres] is not installed")

AT = datetime(2026, 1, 5, tzinfo=UTC)
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as started:
        yield started


@pytest.fixture
def conninfo(server):
    return server.database(f"db{next(NUMBERS)}")


@pytest.fixture
def ledger(conninfo):
    with PostgresLedger(conninfo) as opened:
        yield opened


def entry(key: str, kind: str = "intent", **changes: object) -> NewEntry:
    values = {"recorded_at": AT, "actuator": "fake", "node": "a", "body": {"n": 1}}
    return NewEntry(key=key, kind=kind, **(values | changes))  # type: ignore[arg-type]


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


def test_what_no_ledger_may_hold_is_refused_and_changes_nothing(ledger):
    with pytest.raises(LedgerError):
        ledger.append(entry("x", "rumour"))
    with pytest.raises(LedgerError):
        ledger.append(replace(entry("x"), recorded_at=datetime(2026, 1, 5)))  # noqa: DTZ001 - the point
    with pytest.raises(DataError):
        ledger.append(entry("x", body={"x": float("nan")}))
    for bad in ("\0", "\ud800"):
        with pytest.raises(LedgerError):
            ledger.append(entry("x", node=bad))
    assert ledger.entries() == ()
    assert ledger.append(entry("x"))


def test_many_entries_are_written_all_or_none(ledger):
    together = [entry("i"), entry("r", "result", refers_to="i"), entry("i")]
    assert ledger.append_all(together) == (True, True, False)
    with pytest.raises(LedgerError, match="answers no intent"):
        ledger.append_all([entry("j"), entry("q", "result", refers_to="absent")])
    with pytest.raises(LedgerError):
        ledger.append_all([entry("j"), entry("r2", "result", refers_to="i")])
    assert [one.key for one in ledger.entries()] == ["i", "r"]
    assert ledger.append_all([]) == ()


def test_entries_are_chosen_by_kind_and_time_in_order(ledger):
    later = AT + timedelta(hours=1)
    ledger.append(entry("i"))
    ledger.append(entry("e", "escalation", recorded_at=later))
    assert [e.key for e in ledger.entries(kinds=("escalation",))] == ["e"]
    assert [e.key for e in ledger.entries(since=later)] == ["e"]
    assert [e.seq for e in ledger.entries()] == [1, 2]


texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=5)
bodies = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3),
    ),
    max_size=3,
)
moments = st.datetimes(
    min_value=datetime(1990, 1, 1),  # noqa: DTZ001 - the zone is added
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@settings(max_examples=30)
@given(st.lists(st.tuples(texts, st.none() | texts, moments, bodies), max_size=6), st.booleans())
def test_g20_the_chain_and_its_export_are_those_of_the_other_ledgers(server, entries, together):
    memory = MemoryLedger()
    with PostgresLedger(server.conninfo) as ledger, psycopg.connect(server.conninfo) as other:
        other.execute("ALTER TABLE forewarn_ledger DISABLE TRIGGER no_truncate")
        other.execute("TRUNCATE forewarn_ledger")
        other.execute("ALTER TABLE forewarn_ledger ENABLE TRIGGER no_truncate")
        other.commit()
        new = [
            entry(key, node=node, actor=key, recorded_at=at, body=body)
            for key, node, at, body in entries
        ]
        if together:
            assert ledger.append_all(new) == memory.append_all(new)
        else:
            assert [*map(ledger.append, new)] == [*map(memory.append, new)]
        assert ledger.entries() == memory.entries()
        assert list(export_json_lines(ledger)) == list(export_json_lines(memory))
        assert ledger.verify() == memory.verify()


def test_g20_an_export_verifies_alike_by_the_head_of_either_ledger(ledger, tmp_path):
    with SqliteLedger(tmp_path / "ledger.db") as sqlite:
        for one in (ledger, sqlite):
            one.append(entry("i"))
            one.append(entry("r", "result", refers_to="i"))
        write_export(ledger, tmp_path / "postgres")
        write_export(sqlite, tmp_path / "sqlite")
        assert (tmp_path / "postgres").read_bytes() == (tmp_path / "sqlite").read_bytes()
        head = sqlite.verify().head
    assert verify_export(tmp_path / "postgres", expected_head=head).is_whole


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE forewarn_ledger SET actor = 'nobody'",
        "DELETE FROM forewarn_ledger",
        "TRUNCATE forewarn_ledger",
        """INSERT INTO forewarn_ledger SELECT * FROM forewarn_ledger
           ON CONFLICT (seq) DO UPDATE SET actor = 'nobody'""",
    ],
)
def test_g20_the_table_refuses_every_change(ledger, conninfo, statement):
    ledger.append(entry("i"))
    with psycopg.connect(conninfo) as other, pytest.raises(psycopg.Error, match="append-only"):
        other.execute(statement)
    assert ledger.verify().is_whole


def test_g20_a_change_behind_the_triggers_back_is_seen(ledger, conninfo):
    ledger.append(entry("i"))
    ledger.append(entry("j"))
    with psycopg.connect(conninfo) as other:
        other.execute("ALTER TABLE forewarn_ledger DISABLE TRIGGER ALL")
        other.execute("UPDATE forewarn_ledger SET actor = 'nobody' WHERE seq = 1")
    assert ledger.verify().problem == "entry 1 (i) was altered"


def test_g20_a_restored_database_is_noticed_by_the_head(ledger, conninfo, tmp_path):
    headed = HeadedLedger(ledger, HeadFile(tmp_path / "ledger.head"))
    headed.append(entry("i"))
    headed.append(entry("j"))
    with psycopg.connect(conninfo) as other:
        other.execute("ALTER TABLE forewarn_ledger DISABLE TRIGGER ALL")
        other.execute("DELETE FROM forewarn_ledger WHERE seq = 2")
    assert ledger.verify().is_whole
    assert "a backup restored" in headed.verify().problem


def test_g13_hooks_that_write_at_once_make_one_chain(conninfo):
    lost: list[BaseException] = []

    def write(name: str) -> None:
        try:
            with PostgresLedger(conninfo) as ledger:
                for n in range(25):
                    assert ledger.append(entry(f"{name}{n}"))
                    ledger.append(entry(f"shared{n}"))
        except BaseException as error:  # noqa: BLE001 - a thread's own end says nothing
            lost.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert lost == []
    with PostgresLedger(conninfo) as ledger:
        assert ledger.verify().is_whole
        assert len(ledger.entries()) == 4 * 25 + 25


def test_a_hook_needs_no_more_than_to_read_and_to_add(ledger, conninfo):
    with psycopg.connect(conninfo) as other:
        other.execute("DROP ROLE IF EXISTS hook")
        other.execute("CREATE ROLE hook LOGIN")
        other.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        other.execute("GRANT USAGE ON SCHEMA public TO hook")
        other.execute("GRANT SELECT, INSERT ON forewarn_ledger TO hook")
    with PostgresLedger(conninfo.replace("user=forewarn", "user=hook")) as least:
        assert least.append(entry("i"))
        assert least.verify().is_whole
    with psycopg.connect(conninfo) as other:
        other.execute("DROP OWNED BY hook")
        other.execute("DROP ROLE hook")


def test_a_table_of_another_version_is_left_as_it_is(ledger, conninfo):
    with psycopg.connect(conninfo) as other:
        other.execute("COMMENT ON TABLE forewarn_ledger IS 'forewarn ledger version 9'")
    with pytest.raises(LedgerError, match="is forewarn ledger version 9, expected version 1"):
        PostgresLedger(conninfo)


def test_g13_nothing_is_lost_when_the_server_dies_and_the_next_run_goes_on():
    with PostgresServer() as server, PostgresLedger(server.conninfo) as ledger:
        lease = PostgresLease(server.conninfo)
        for n in range(20):
            ledger.append(entry(f"i{n}"))
        server.kill()
        with pytest.raises(LedgerError, match="Without its ledger the hook does nothing"):
            ledger.append(entry("lost"))
        with pytest.raises(LeaseError, match="Without its lease the hook does nothing"):
            lease.read()
        server.start()
        assert ledger.append(entry("next"))
        assert len(ledger.entries()) == 21
        assert ledger.verify().is_whole


def test_an_answer_is_waited_for_but_not_for_ever(ledger, conninfo, monkeypatch):
    monkeypatch.setattr(ledger_postgres, "_SESSION", "SET lock_timeout = '200ms'")
    with PostgresLedger(conninfo) as waiting, psycopg.connect(conninfo) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (ledger_postgres._WRITER_LOCK,))
        with pytest.raises(LedgerError, match="lock timeout"):
            waiting.append(entry("i"))
        other.rollback()
        assert waiting.append(entry("i"))


def test_g23_no_password_is_shown():
    assert name_of("host=db1 dbname=fw user=u password=secret") == "db1/fw"
    for conninfo in (
        "host=127.0.0.1 port=1 password=secret",
        "postgresql://u:secret@127.0.0.1:1/d",
    ):
        with pytest.raises(LedgerError) as error:
            PostgresLedger(conninfo)
        assert "secret" not in str(error.value)
    with pytest.raises(SettingsError) as broken:
        PostgresLedger("host=db1 secret")
    assert "secret" not in str(broken.value)
    assert broken.value.__suppress_context__


def test_the_lease_of_a_real_server_is_one_for_all_machines(conninfo):
    now = [0.0]

    def hook(name: str) -> Leadership:
        store = PostgresLease(conninfo)
        clock = lambda: Instant(f"boot of {name}", now[0])  # noqa: E731 - a clock of its own
        return Leadership(store, holder=name, clock=clock, seconds=10, act_seconds=4)

    a, b = hook("a"), hook("b")
    assert (a.take(), b.take()) == (True, False)
    now[0] = 9.0
    assert a.take()
    assert not b.take()
    now[0] = 18.0
    assert not b.take()
    now[0] = 19.0
    assert b.take()
    assert a.fence() is not None
    assert (b.fence(), b.token) == (None, 2)


def test_of_machines_that_ask_at_once_one_gets_the_lease(conninfo):
    won: list[str] = []
    ready = threading.Barrier(4, timeout=120)

    def ask(name: str) -> None:
        leader = Leadership(
            PostgresLease(conninfo),
            holder=name,
            clock=lambda: Instant(name, 0.0),
            seconds=10,
            act_seconds=4,
        )
        ready.wait()
        if leader.take():
            won.append(name)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(won) == 1
