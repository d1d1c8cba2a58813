"""Ledgers and leases of other releases: older ones come forward whole, later ones stay as they are.

The old tables are made by the statements of the old release, as they were.
"""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SourceError
from remediation.lease.leadership import LeaseError
from remediation.lease.sqlite import SqliteLease
from remediation.ledger import sqlite as ledger_sqlite
from remediation.ledger.entries import FIRST_HASH, LedgerError, NewEntry, seal, to_values
from remediation.ledger.head import HeadedLedger, HeadFile, write_export
from remediation.ledger.sqlite import SqliteLedger
from remediation.score_source import FolderScoreSource

T0 = datetime(2026, 1, 5, tzinfo=UTC)

LEDGER_1 = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY CHECK (seq >= 1),
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('observed', 'decision', 'intent', 'result', 'released',
        'escalation', 'acknowledged')),
    recorded_at TEXT NOT NULL,
    actuator TEXT NOT NULL,
    actor TEXT NOT NULL,
    node TEXT,
    decision_id TEXT,
    refers_to TEXT REFERENCES entries (key),
    body_json TEXT NOT NULL CHECK (json_valid(body_json)),
    previous_hash TEXT NOT NULL UNIQUE,
    hash TEXT NOT NULL UNIQUE,
    CHECK ((refers_to IS NOT NULL) = (kind IN ('result', 'released', 'acknowledged')))
) STRICT;
CREATE UNIQUE INDEX one_answer ON entries (kind, refers_to) WHERE refers_to IS NOT NULL;
CREATE INDEX by_kind ON entries (kind, recorded_at);
CREATE TRIGGER no_update BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
PRAGMA user_version = 1;
"""

LEASE_0 = """
CREATE TABLE lease (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    boot TEXT NOT NULL,
    ends REAL NOT NULL,
    seconds REAL NOT NULL
) STRICT;
INSERT INTO lease VALUES (1, 'host:1:ab', 7, 'boot', 12.5, 60.0);
"""


def old_ledger(path: Path, n_actions: int) -> tuple[list[dict[str, object]], str]:
    """A ledger as the old release left it: its rows and its head."""
    rows, head = [], FIRST_HASH
    for number in range(n_actions):
        at = T0 + timedelta(minutes=number)
        for kind, refers_to in (("intent", None), ("result", f"intent-{number}")):
            new = NewEntry(
                key=f"{kind}-{number}",
                kind=kind,
                recorded_at=at,
                actuator="slurm",
                node="gpu-1",
                refers_to=refers_to,
                body={"n": number},
            )
            sealed = seal(new, seq=len(rows) + 1, previous_hash=head)
            rows.append(to_values(sealed))
            head = sealed.hash
    with closing(sqlite3.connect(path)) as file, file:
        file.executescript(LEDGER_1)
        for row in rows:
            file.execute(
                f"INSERT INTO entries VALUES ({', '.join('?' * len(row))})",  # noqa: S608
                tuple(row.values()),
            )
    return rows, head


@settings(max_examples=5)
@given(n_actions=st.integers(0, 4))
def test_an_older_ledger_comes_forward_with_every_entry_and_the_chain(
    tmp_path_factory: pytest.TempPathFactory, n_actions: int
) -> None:
    path = tmp_path_factory.mktemp("old") / "ledger.sqlite"
    rows, head = old_ledger(path, n_actions)
    with SqliteLedger(path) as ledger:
        assert [to_values(one) for one in ledger.entries()] == rows
        found = ledger.verify(expected_head=head if rows else None)
        assert (found.is_whole, found.head) == (True, head)
        # What the older release did not know can be written now, and nothing be changed still.
        asked = NewEntry(key="r", kind="request", recorded_at=T0, actuator="slurm")
        assert ledger.append(asked)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            file.execute("DELETE FROM entries")
        kinds = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
        assert {"entries", "one_answer", "by_kind", "no_update", "no_delete"} <= kinds
        assert "entries_before" not in kinds


def test_the_rules_of_answers_hold_after_coming_forward(tmp_path: Path) -> None:
    old_ledger(tmp_path / "l.sqlite", 2)
    with SqliteLedger(tmp_path / "l.sqlite") as ledger:
        again = NewEntry(
            key="x", kind="result", recorded_at=T0, actuator="slurm", refers_to="intent-1"
        )
        with pytest.raises(LedgerError):
            ledger.append(again)


def test_a_head_that_the_older_release_noted_still_holds(tmp_path: Path) -> None:
    rows, head = old_ledger(tmp_path / "l.sqlite", 3)
    noted = tmp_path / "head.json"
    noted.write_text(f'{{"seq": {len(rows)}, "hash": "{head}"}}')
    with SqliteLedger(tmp_path / "l.sqlite") as ledger:
        headed = HeadedLedger(ledger, HeadFile(noted))
        assert headed.append(NewEntry(key="n", kind="checked", recorded_at=T0, actuator="slurm"))
        assert write_export(ledger, tmp_path / "out.jsonl") == len(rows) + 1


def test_coming_forward_that_fails_half_way_leaves_the_older_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = old_ledger(tmp_path / "l.sqlite", 2)
    broken = ledger_sqlite.MIGRATIONS[1].replace("DROP TABLE entries_before;", "NONSENSE;")
    monkeypatch.setitem(ledger_sqlite.MIGRATIONS, 1, broken)
    with pytest.raises(LedgerError, match="syntax error"):
        SqliteLedger(tmp_path / "l.sqlite")
    with closing(sqlite3.connect(tmp_path / "l.sqlite")) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (1,)
        assert file.execute("SELECT count(*) FROM entries").fetchone() == (len(rows),)
    monkeypatch.undo()
    SqliteLedger(tmp_path / "l.sqlite").close()


def test_a_ledger_of_a_later_release_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    SqliteLedger(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 3")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="version 3 .*expected version 2"):
        SqliteLedger(path)
    assert path.read_bytes() == before


def test_an_unstamped_lease_keeps_its_token_and_is_stamped(tmp_path: Path) -> None:
    path = tmp_path / "lease.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(LEASE_0)
    found = SqliteLease(path).read()
    assert found is not None
    assert (found.token, found.holder) == (7, "host:1:ab")
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (1,)
        file.execute("PRAGMA user_version = 2")
    with pytest.raises(LeaseError, match="version 2, this program has 1"):
        SqliteLease(path)


def test_scores_published_by_a_later_release_are_refused_in_those_words(tmp_path: Path) -> None:
    (tmp_path / "LATEST.json").write_text('{"schema": 2, "something": "new"}')
    with pytest.raises(SourceError, match="the release that published it"):
        FolderScoreSource(tmp_path).latest(T0)


def test_an_older_hook_at_work_ends_its_round_in_the_ledger_that_came_forward(
    tmp_path: Path,
) -> None:
    path = tmp_path / "l.sqlite"
    rows, head = old_ledger(path, 1)
    insert = f"INSERT INTO entries VALUES ({', '.join('?' * len(rows[0]))})"  # noqa: S608
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        assert older.execute("SELECT count(*) FROM entries").fetchone() == (2,)
        with SqliteLedger(path) as ledger:
            late = NewEntry(key="late", kind="observed", recorded_at=T0, actuator="slurm")
            older.execute(insert, tuple(to_values(seal(late, seq=3, previous_hash=head)).values()))
            assert ledger.append(NewEntry(key="r", kind="request", recorded_at=T0, actuator="s"))
            assert ledger.verify().is_whole
            assert [one.key for one in ledger.entries()][2:] == ["late", "r"]
