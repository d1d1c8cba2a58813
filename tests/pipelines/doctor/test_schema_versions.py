"""Which versions lie on disk is told, and nothing touched; older journals and tables still read."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from features.contracts import TableContract
from features.errors import DataError, SourceError
from features.tables import CORE_TOPOLOGY, TABLES
from models.registry.alias_log import read_moves
from pipelines.cli import app
from pipelines.doctor.schema_versions import stored_versions
from pipelines.landing import schema as landing_schema
from pipelines.landing.schema import open_journal
from pipelines.serving.place import score_engine
from pipelines.serving.published import latest_published
from pipelines.serving.score_schema import writing
from pipelines.settings import Settings, load_settings
from pipelines.storage.store import TableStore
from remediation.hook_settings import HookSettings
from remediation.lease.sqlite import SqliteLease
from remediation.ledger.sqlite import SqliteLedger


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "forewarn.yaml").write_text(
        "site: lab\ninputs: inputs.yaml\ndata_root: data\nstart: 2026-01-01T00:00:00Z\n"
    )
    return load_settings(tmp_path / "forewarn.yaml")


def states(settings: Settings, hook: HookSettings | None = None) -> dict[str, str]:
    return {one.what: one.state for one in stored_versions(settings, hook)}


def stamp(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {version}")


def test_nothing_is_there_and_nothing_is_made(settings: Settings) -> None:
    assert set(states(settings).values()) == {"absent"}
    assert not settings.data_root.exists()


def test_what_this_release_made_is_of_its_versions(settings: Settings, tmp_path: Path) -> None:
    settings.landing_root.mkdir(parents=True)
    open_journal(settings.landing_root / "journal.sqlite").close()
    SqliteLedger(settings.ledger_path).close()
    engine = score_engine(settings)
    with writing(engine):
        pass
    engine.dispose()
    settings.scores_dir.mkdir()
    (settings.scores_dir / "LATEST.json").write_text('{"schema": 1}')
    store = TableStore(settings.store_root)
    store.write(CORE_TOPOLOGY, CORE_TOPOLOGY.empty())
    hook = HookSettings.model_validate(
        {
            "state": tmp_path / "hook",
            "scores": {"folder": settings.scores_dir},
            "cluster": {"kind": "slurm"},
            "ledger": {"sqlite": settings.ledger_path},
        }
    )
    SqliteLease(hook.state / "lease.sqlite")
    found = states(settings, hook)
    assert set(found.values()) == {"same"}, found
    assert len(found) == 6


def test_older_and_later_ones_are_told_apart_and_left_as_they_are(settings: Settings) -> None:
    settings.landing_root.mkdir(parents=True)
    journal = settings.landing_root / "journal.sqlite"
    open_journal(journal).close()
    SqliteLedger(settings.ledger_path).close()
    stamp(journal, 9)
    stamp(settings.ledger_path, 1)
    settings.scores_dir.mkdir()
    (settings.scores_dir / "LATEST.json").write_text('{"schema": 4}')
    before = journal.read_bytes(), settings.ledger_path.read_bytes()
    found = {one.what: one for one in stored_versions(settings)}
    assert found["landing journal"].state == "newer"
    assert (found["ledger"].state, "brought forward" in found["ledger"].then) == ("older", True)
    assert found["published scores"].state == "newer"
    assert (journal.read_bytes(), settings.ledger_path.read_bytes()) == before


@pytest.mark.parametrize(
    ("change", "state", "then"),
    [
        (lambda frame: frame.with_columns(later=pl.lit(1)), "newer", "refuses"),
        (lambda frame: frame.drop("node"), "older", "materialise"),
    ],
)
def test_tables_of_other_columns_are_told(
    settings: Settings, change: Any, state: str, then: str
) -> None:
    folder = TableStore(settings.store_root).folder(CORE_TOPOLOGY)
    Path(str(folder)).mkdir(parents=True)
    change(CORE_TOPOLOGY.empty()).write_parquet(Path(str(folder)) / "all.parquet")
    found = {one.what: one for one in stored_versions(settings)}["core/topology"]
    assert (found.state, then in found.then) == (state, True)


def test_telemetry_of_before_it_was_packed_is_told(settings: Settings) -> None:
    folder = settings.data_root / "tables" / "core" / "gpu_telemetry"
    folder.mkdir(parents=True)
    (folder / "2026-01-01T00.parquet").touch()
    found = {one.what: one for one in stored_versions(settings)}["core/gpu_telemetry"]
    assert (found.state, "materialise" in found.then) == ("older", True)


def optional_columns() -> list[tuple[TableContract, str]]:
    return [(t, c.name) for t in TABLES for c in t.columns if c.is_optional]


@pytest.mark.parametrize(
    ("table", "column"), optional_columns(), ids=lambda one: getattr(one, "asset_key", one)
)
def test_a_file_from_before_an_optional_column_reads_as_unknown(
    table: TableContract, column: str
) -> None:
    older = table.empty().drop(column)
    assert table.conform(older).schema == table.empty().schema


def test_the_command_lists_them_and_a_later_one_is_code_2(
    settings: Settings, tmp_path: Path
) -> None:
    run, file = CliRunner(), str(tmp_path / "forewarn.yaml")
    assert run.invoke(app, ["versions", "--settings", file]).exit_code == 0
    SqliteLedger(settings.ledger_path).close()
    stamp(settings.ledger_path, 99)
    made = run.invoke(app, ["versions", "--settings", file])
    assert (made.exit_code, "version 99, expected 2" in made.output) == (2, True)


def test_a_journal_from_before_an_index_has_it_once_opened(tmp_path: Path) -> None:
    """The first release's journal: another index of the readings, and one fewer."""
    path = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(landing_schema._SCHEMA)
        file.execute("CREATE INDEX readings_by_origin ON readings (input, origin)")
        file.execute(
            "INSERT INTO readings (reading_id, input, source, origin, landed_at, n_read, n_parsed,"
            " n_skipped, n_quarantined) VALUES ('r', 'i', 's', 'o', '2026', 1, 1, 0, 0)"
        )
        file.commit()
    stamp(path, 1)
    with closing(open_journal(path)) as opened:
        assert opened.execute("SELECT reading_id FROM readings").fetchall() == [("r",)]
        plan = opened.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM readings WHERE origin = 'o'"
        ).fetchall()
        assert "readings_by_place" in str(plan)
        assert opened.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_tick_published_by_a_later_release_is_refused_in_those_words(tmp_path: Path) -> None:
    (tmp_path / "LATEST.json").write_text(json.dumps({"schema": 2}))
    with pytest.raises(SourceError, match="schema 2, this program reads 1"):
        latest_published(tmp_path)


def test_a_line_of_a_later_release_in_the_log_of_promotions_is_told(tmp_path: Path) -> None:
    (tmp_path / "promotions.jsonl").write_text('{"at": "2026-01-01T00:00:00+00:00", "later": 1}\n')
    with pytest.raises(DataError, match="a later release wrote it"):
        read_moves(tmp_path / "promotions.jsonl")


def test_a_damaged_store_is_told_from_one_that_cannot_be_opened(settings: Settings) -> None:
    settings.landing_root.mkdir(parents=True)
    (settings.landing_root / "journal.sqlite").write_bytes(b"no database at all" * 100)
    settings.ledger_path.mkdir()
    settings.scores_dir.mkdir()
    (settings.scores_dir / "LATEST.json").write_text('{"schema": "x"}')
    found = {one.what: one for one in stored_versions(settings)}
    assert "from a backup" in found["landing journal"].then
    assert "the account that it belongs to" in found["ledger"].then
    assert found["published scores"].state == "unreadable"
