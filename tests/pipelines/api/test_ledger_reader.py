"""The ledger can be read by an account that may change nothing, between two rounds and within."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.api.ledger_reader import LedgerReader
from remediation.ledger.entries import NewEntry
from remediation.ledger.sqlite import SqliteLedger
from tests.pipelines.serving.serving_world import settings_of

NOBODY = 65534


def entry(key: str) -> NewEntry:
    at = datetime(2026, 1, 5, tzinfo=UTC)
    return NewEntry(key=key, kind="observed", recorded_at=at, actuator="slurm", body={"why": key})


@contextmanager
def another_account() -> Iterator[None]:
    """Files are reached as an account that owns none of them."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another account")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another account may look into; pytest's own are closed to it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def reader_of(folder: Path) -> LedgerReader:
    return LedgerReader(settings_of(folder, api={"ledger": {"sqlite": folder / "ledger.sqlite"}}))


def keys(reader: LedgerReader) -> list[str]:
    return [one.key for one in reader.entries()]


def test_between_two_rounds_a_ledger_that_may_only_be_read_is_read(folder: Path) -> None:
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.append(entry("a"))
    reader = reader_of(folder)
    with another_account():
        assert keys(reader) == ["a"]
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.append(entry("b"))
    with another_account():
        assert keys(reader) == ["b", "a"]


def test_within_a_round_what_is_not_yet_in_the_file_is_read_too(folder: Path) -> None:
    reader = reader_of(folder)
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.append(entry("a"))
        with another_account():
            assert keys(reader) == ["a"]


def test_a_file_that_is_written_while_it_is_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.append(entry("a"))
    connect, waiting = LedgerReader._connect, ["b"]

    def overtaken(reader: LedgerReader) -> Any:
        found = connect(reader)
        if waiting:
            with SqliteLedger(folder / "ledger.sqlite") as ledger:
                ledger.append(entry(waiting.pop()))
        return found

    monkeypatch.setattr(LedgerReader, "_connect", overtaken)
    assert keys(reader_of(folder)) == ["b", "a"]


def test_a_log_beside_the_file_that_a_link_names_is_read(folder: Path) -> None:
    (folder / "hook").mkdir()
    (folder / "ledger.sqlite").symlink_to("hook/ledger.sqlite")
    with SqliteLedger(folder / "hook" / "ledger.sqlite") as ledger:
        ledger.append(entry("a"))
        assert keys(reader_of(folder)) == ["a"]
