"""Rules of forgetting a person: nothing is left, nothing comes back, nobody else is touched."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.contracts import TableContract
from features.core_build import build_jobs
from features.errors import DataError, SettingsError
from features.monitoring_tables import QUARANTINE
from features.raw_tables import (
    RAW_JOB_LOG,
    RAW_JOB_OUTPUT,
    RAW_NODE_STATES,
    RAW_TRAINING_METRICS,
)
from features.tables import CORE_JOBS, CORE_NODE_STATES, CORE_TRAINING_METRICS
from pipelines.landing.forgotten import HIDDEN, Forgotten, forgotten_of
from pipelines.landing.ingest import landing_of
from pipelines.landing.journal import Reading
from pipelines.landing.landed import reading_id
from pipelines.retention.compaction_landing import LandingCompactor
from pipelines.retention.forget import RECEIPTS, Receipt, receipt_in_words, traces_of
from pipelines.retention.forget_examples import holding
from pipelines.retention.forget_person import Person
from pipelines.settings import Settings
from pipelines.sources.private_names import hash_names
from pipelines.sources.result import SourceResult
from pipelines.storage.store import TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
NOW = T0 + timedelta(days=10)
SAID = {"source": "x", "ingested_at": T0}
KEY = b"0123456789abcdef"


@pytest.fixture
def site(tmp_path: Path) -> Settings:
    (tmp_path / "inputs.yaml").write_text(
        "site: lab\ntime_zone: UTC\nhide_names: {key_file: names.key}\ninputs:\n"
        "  - {kind: sacct, path: 'jobs/*.txt', may_be_absent: true}\n"
    )
    (tmp_path / "names.key").write_bytes(KEY)
    return Settings.model_validate(
        {"site": "lab", "inputs": tmp_path / "inputs.yaml", "data_root": tmp_path / "data"}
        | {"start": T0, "horizons_h": (24,)}
    )


def frame(contract: TableContract, *rows: dict[str, Any]) -> pl.DataFrame:
    empty = dict.fromkeys(contract.schema)
    return pl.DataFrame([empty | row for row in rows], schema=contract.schema)


def tables_given(ann: str, *, at: datetime = T0) -> dict[str, pl.DataFrame]:
    """What two people and a scheduler leave."""
    done = {"state": "FAILED", "submit": at, "start": at, "end": at + timedelta(hours=1)} | SAID
    output = {"fault_class": "oom", "cause": "hang", "rule": "r", "priority": 1, "position": 0}
    output |= {"is_collateral": False, "count": 1, "line": "killed", "ts": at} | SAID
    metric = {"step": 1, "ts": at, "loss": 1.0} | SAID
    state = {"node": "n1", "state": "drain", "valid_from": at, "valid_to": at} | SAID
    return {
        "raw/job_log": frame(
            RAW_JOB_LOG,
            {"job_id": "12", "user": ann, "job_name": "llama"} | done,
            {"job_id": "12", "step": "batch"} | done,
            {"job_id": "13_4", "user": ann, "job_name": "train"} | done,
            {"job_id": "14", "user": "bob", "job_name": "train"} | done,
        ),
        "raw/job_output": frame(
            RAW_JOB_OUTPUT, *({"job_id": job} | output for job in ("12", "13_4", "14", "112", None))
        ),
        "raw/training_metrics": frame(
            RAW_TRAINING_METRICS, *({"job_id": job} | metric for job in ("llama", "train", "13"))
        ),
        "raw/node_states": frame(
            RAW_NODE_STATES,
            {"actor": ann, "reason": "by hand"} | state,
            {"actor": "root", "reason": f"asked by {ann}@login"} | state | {"node": "n2"},
            {"actor": "root", "reason": "fan"} | state | {"node": "n3"},
        ),
    }


def land(site: Settings, name: str, tables: dict[str, pl.DataFrame]) -> None:
    refusal = {"table": "raw/job_log", "source": "x", "origin": name, "rule": "r", "count": 1}
    examples = [refusal | {"rule": text, "example": text} for text in ("job 12|x", "job 112|x")]
    chunk = SourceResult(tables, quarantine=frame(QUARANTINE, *examples))
    named = Reading(reading_id(how="", what=name), input="in", source="x", origin=name)
    with landing_of(site).writer() as writer:
        writer.add(named, [chunk], landed_at=T0)


def store_core(site: Settings) -> None:
    landing, store = landing_of(site), TableStore(site.store_root)
    store.write(CORE_JOBS, build_jobs(landing.read(RAW_JOB_LOG)).frame, generation=7)
    metrics = landing.read(RAW_TRAINING_METRICS).select(CORE_TRAINING_METRICS.schema.names())
    store.write(CORE_TRAINING_METRICS, metrics, generation=7)
    states = landing.read(RAW_NODE_STATES).select(CORE_NODE_STATES.schema.names())
    store.write(CORE_NODE_STATES, states, generation=7)
    row = {"table": "t", "source": "s", "origin": "o", "rule": "r", "count": 1}
    store.keep_part(QUARANTINE, "p", frame(QUARANTINE, row | {"example": "{'job_id': '12'}"}))


def jobs_of(frame: pl.DataFrame) -> set[str | None]:
    return set(frame["job_id"])


def forget(site: Settings, name: str = "ann") -> Receipt:
    return traces_of(site, name, now=NOW).remove()


@pytest.fixture
def token() -> str:
    named = hash_names(pl.DataFrame({"user": ["ann"]}), columns=["user"], key=KEY)
    return str(named["user"][0])


@pytest.mark.parametrize("is_hidden", [False, True])
def test_everything_of_a_person_goes_and_nothing_of_anybody_else(
    site: Settings, token: str, *, is_hidden: bool
) -> None:
    ann = token if is_hidden else "ann"
    land(site, "a", tables_given(ann))
    store_core(site)
    receipt = forget(site, "ann")
    landing, store = landing_of(site), TableStore(site.store_root)
    assert jobs_of(landing.read(RAW_JOB_LOG)) == {"14"}
    assert jobs_of(landing.read(RAW_JOB_OUTPUT)) == {"14", "112", None}
    assert jobs_of(landing.read(RAW_TRAINING_METRICS)) == {"train"}  # bob's run is called so, too
    states = landing.read(RAW_NODE_STATES).sort("node")
    assert states["actor"].to_list() == [None, None, "root"]
    assert states["reason"].to_list() == [None, None, "fan"]
    assert jobs_of(store.read(CORE_JOBS)) == {"14"}
    assert jobs_of(store.read(CORE_TRAINING_METRICS)) == {"train"}
    assert set(store.read(CORE_NODE_STATES)["actor"]) == {None, "root"}
    assert set(store.generations(CORE_JOBS).values()) == {7}
    assert landing.journal.refusals()["example"].to_list() == ["job 112|x", HIDDEN]
    assert store.gather_parts(QUARANTINE)["example"].to_list() == [HIDDEN]
    assert (receipt.n_jobs, receipt.removed["core/jobs"]) == (2, 2)
    assert not forget(site, "ann").removed


def test_no_byte_of_the_name_is_left(site: Settings) -> None:
    land(site, "a", tables_given("annabelle-lee"))
    store_core(site)
    forget(site, "annabelle-lee")
    for path in site.data_root.rglob("*"):
        if path.is_file():
            assert b"annabelle-lee" not in path.read_bytes(), path
            assert b"annabelle-lee" not in str(path).encode()


def test_counting_changes_nothing_and_tells_what_removing_does(site: Settings) -> None:
    land(site, "a", tables_given("ann"))
    store_core(site)
    before = {path: path.read_bytes() for path in site.data_root.rglob("*") if path.is_file()}
    counted = traces_of(site, "ann", now=NOW).count()
    assert {path: path.read_bytes() for path in before} == before
    assert counted.removed == forget(site).removed
    assert "to be removed" in receipt_in_words(counted)


def test_the_same_input_again_brings_nobody_back_but_later_work_is_a_new_record(
    site: Settings,
) -> None:
    land(site, "a", tables_given("ann"))
    forget(site)
    land(site, "b", tables_given("ann"))
    examples = landing_of(site).journal.refusals()["example"].to_list()
    assert examples == ["job 112|x", HIDDEN, "job 112|x", HIDDEN]
    later = NOW + timedelta(days=60)
    landing = landing_of(site)
    assert jobs_of(landing.read(RAW_JOB_LOG)) == {"14"}
    assert jobs_of(landing.read(RAW_JOB_OUTPUT)) == {"14", "112", None}
    assert set(landing.read(RAW_NODE_STATES)["actor"]) == {None, "root"}
    assert set(landing.read(RAW_NODE_STATES)["reason"]) == {None, "fan"}
    land(site, "c", tables_given("ann", at=later))
    assert jobs_of(landing.read(RAW_JOB_LOG).filter(pl.col("end") > NOW)) == {"12", "13_4", "14"}


def test_a_kill_half_way_leaves_what_the_next_call_finds(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(site, "a", tables_given("ann"))
    store_core(site)
    calls = []
    real = LandingCompactor.rewrite

    def killed(*args: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(LandingCompactor, "rewrite", killed)
        with pytest.raises(KeyboardInterrupt):
            forget(site)
    land(site, "b", tables_given("ann"))
    forget(site)
    assert jobs_of(landing_of(site).read(RAW_TRAINING_METRICS)) == {"train"}
    assert jobs_of(TableStore(site.store_root).read(CORE_JOBS)) == {"14"}


def test_a_receipt_is_kept_that_names_nobody(site: Settings) -> None:
    land(site, "a", tables_given("ann"))
    receipt = forget(site)
    lines = (site.data_root / RECEIPTS).read_text().splitlines()
    kept = json.loads(lines[0])
    assert (
        kept["person"]
        == receipt.person
        == forgotten_of(site.landing_root).word(min(traces_of(site, "ann", now=NOW).person.names))[
            :16
        ]
    )
    assert "ann" not in {kept["person"], *kept["removed"]}
    assert "What stays:" in receipt_in_words(receipt)


def test_a_damaged_list_of_the_forgotten_lets_nothing_land(site: Settings) -> None:
    land(site, "a", tables_given("ann"))
    forget(site)
    (site.landing_root / "forgotten.json").write_text("{")
    with pytest.raises(DataError, match="would be kept again"):
        land(site, "b", tables_given("ann"))


@pytest.mark.parametrize("table", ["raw/job_log", "core/jobs"])
def test_a_kill_before_the_job_records_go_leaves_nothing_that_is_not_found_again(
    site: Settings, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    land(site, "a", tables_given("ann"))
    store_core(site)
    rewrite, write = LandingCompactor.rewrite, TableStore.write

    def killed_rewrite(self: Any, key: str, *args: Any) -> None:
        if key == table:
            raise KeyboardInterrupt
        rewrite(self, key, *args)

    def killed_write(self: Any, contract: TableContract, *args: Any, **named: Any) -> Any:
        if contract.asset_key == table:
            raise KeyboardInterrupt
        return write(self, contract, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(LandingCompactor, "rewrite", killed_rewrite)
        patch.setattr(TableStore, "write", killed_write)
        with pytest.raises(KeyboardInterrupt):
            forget(site)
    forget(site)
    store = TableStore(site.store_root)
    assert jobs_of(store.read(CORE_TRAINING_METRICS)) == {"train"}
    assert jobs_of(store.read(CORE_JOBS)) == {"14"}
    assert jobs_of(landing_of(site).read(RAW_JOB_OUTPUT)) == {"14", "112", None}


def test_what_was_superseded_or_removed_before_leaves_no_byte_of_the_name(site: Settings) -> None:
    name = "annabelle-lee"
    refusal = {"table": "t", "source": "x", "origin": "o", "rule": "r", "count": 1}
    first, second, other = (
        Reading(reading_id(how="", what=what), input="in", source="x", origin=what)
        for what in ("first", "second", "other")
    )
    given = {"raw/job_log": tables_given(name)["raw/job_log"]}
    others = {"raw/job_log": tables_given("bob")["raw/job_log"]}
    examples = frame(QUARANTINE, refusal | {"example": f"{name}|" * 200})
    with landing_of(site).writer() as writer:  # one part of both
        writer.add(first, [SourceResult(given, quarantine=examples)], landed_at=T0)
        writer.add(other, [SourceResult(others)], landed_at=T0)
    with closing(sqlite3.connect(site.landing_root / "journal.sqlite")) as sql:
        sql.execute("PRAGMA secure_delete = OFF")  # as most builds of SQLite have it
        sql.execute("DELETE FROM refusals")
        sql.commit()
    assert name.encode() in (site.landing_root / "journal.sqlite").read_bytes()
    with landing_of(site).writer() as writer:
        newer = replace(second, supersedes=(first.reading_id,))
        writer.add(newer, [SourceResult({})], landed_at=T0)
    forget(site, name)
    for path in site.data_root.rglob("*"):
        if path.is_file():
            assert name.encode() not in path.read_bytes(), path
    assert landing_of(site).read(RAW_JOB_LOG).height == 4


def test_jobs_that_land_while_the_name_is_typed_are_theirs_too(site: Settings) -> None:
    land(site, "a", {"raw/node_states": tables_given("ann")["raw/node_states"]})
    traces = traces_of(site, "ann", now=NOW)
    land(site, "b", tables_given("ann"))
    assert traces.remove().n_jobs == 2
    assert jobs_of(landing_of(site).read(RAW_JOB_OUTPUT)) == {"14", "112", None}


@pytest.mark.parametrize(
    ("reason", "is_theirs"),
    [
        ("asked by ann.", True),
        (r"LAB\ann: fan", True),
        ("(ann@login) fan", True),
        ("ann", True),
        ("told -ann- so", True),
        ("hannah", False),
        ("mary-ann", False),
        ("ann.lee", False),
        ("annä", False),
        ("node ann2", False),
    ],
)
def test_a_reason_that_names_a_person_is_known_when_it_goes_and_when_it_comes_again(
    reason: str, *, is_theirs: bool
) -> None:
    states = tables_given("ann")["raw/node_states"].head(1)
    rows = states.with_columns(reason=pl.lit(reason), actor=pl.lit("root"))
    assert rows.select(Person(frozenset({"ann"})).is_actor()).item() == is_theirs
    known = Forgotten().with_people(["ann"], [], until=NOW)
    assert (known.without("raw/node_states", rows)["reason"].item() is None) == is_theirs


def test_only_the_owner_may_read_who_was_forgotten(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(site, "a", tables_given("ann"))
    modes, place = [], Path.replace

    def placed(path: Path, target: Path) -> Path:
        if target.name == "forgotten.json":
            modes.append(path.stat().st_mode & 0o777)
        return place(path, target)

    monkeypatch.setattr(Path, "replace", placed)
    forget(site)
    assert modes == [0o600]
    assert (site.landing_root / "forgotten.json").stat().st_mode & 0o777 == 0o600


def test_an_empty_name_is_refused(site: Settings) -> None:
    with pytest.raises(SettingsError, match="name is needed"):
        traces_of(site, " ", now=NOW)


def test_a_number_of_a_forgotten_job_may_be_anothers_years_later() -> None:
    known = Forgotten().with_people(["ann"], ["12"], until=NOW)
    rows = {"job_id": "12", "state": "FAILED", "user": "bob", "end": T0} | SAID
    assert known.without("raw/job_log", frame(RAW_JOB_LOG, rows)).height == 1


@pytest.mark.parametrize(
    ("text", "is_held"),
    [
        ("user=ann|x", True),
        ("hannah", False),
        ("ann.b", True),
        ("job 123_4", True),
        ("1234", False),
    ],
)
def test_a_word_is_found_as_a_word(text: str, *, is_held: bool) -> None:
    assert holding([text], {"ann", "123"}) == [is_held]
