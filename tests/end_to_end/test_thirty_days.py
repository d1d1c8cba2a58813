"""Thirty days in the life of one installation, at speed, through real Dagster runs.

What must hold at the end of every day is in `life_rules`; how time passes is in `life`.
"""

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
import pytest
import yaml

from features.errors import StructureError
from features.monitoring_tables import DRIFT
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_MAINTENANCE,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
    GPU_MATRIX,
    LABELS,
)
from models.registry.model_registry import CHAMPION
from models.registry.registered import RegisteredVersion
from pipelines.doctor.schema_versions import stored_versions
from pipelines.flow.publish import published_as_of
from pipelines.flow.steps import planned_work, registered_name, registry_of, train_candidates
from pipelines.landing.ingest import ingest
from pipelines.retention.forget import traces_of
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.store import Span, TableStore
from remediation.ledger.entries import LedgerError
from remediation.ledger.sqlite import SqliteLedger
from remediation.score_source import FolderScoreSource
from tests.end_to_end.life import Life, new_life
from tests.end_to_end.life_fleet import DAY, HOUR, T0, make_fleet
from tests.end_to_end.life_rules import Watch, alerts_are_judged_right, ledger_of

pytestmark = pytest.mark.slow

THIRD: Final = ("gpu001", "gpu002", "gpu003", "gpu004")
HALF: Final = tuple(f"gpu{i:03}" for i in range(1, 7))
SHIFT_C: Final = 8
AFTER: Final = timedelta(minutes=20)
"""A look is made so long after a full hour: records are read at 5 past, hours settle in 10."""


def at(day: int, hour: int = 4) -> datetime:
    """A moment of January, some minutes after a full hour."""
    return T0 + (day - 1) * DAY + hour * HOUR + AFTER


def champion_of(life: Life) -> RegisteredVersion | None:
    name = registered_name(life.settings, 24)
    return registry_of(life.settings).version_of(name, CHAMPION)


def statuses(life: Life) -> dict[str, str]:
    """Status of each node in the tick that is published."""
    latest = FolderScoreSource(life.settings.scores_dir).latest(life.now)
    return dict(latest.node_scores.select("node", "status").iter_rows())


def model_of_tick(life: Life) -> set[str]:
    latest = FolderScoreSource(life.settings.scores_dir).latest(life.now)
    return set(latest.node_scores["model_version"])


def n_samples(life: Life, span: Span) -> int:
    return TableStore(life.settings.store_root).read(CORE_GPU_TELEMETRY, span=span).height


def start(life: Life) -> None:
    """Before there is a model scores are priors, and nothing is done on them."""
    for day in (2, 6, 10):
        life.go_to(at(day))
    assert champion_of(life) is None
    assert set(statuses(life).values()) == {"prior"}
    assert not [entry for entry in ledger_of(life) if entry.kind == "intent"]
    skipped = [ran for ran in life.runs if ran.job == "training"]
    assert not skipped, "the record was shorter than the split"


def first_training(life: Life) -> None:
    """The first Sunday on which the record is long enough gives the first champion."""
    life.go_to(at(11))
    (ran,) = [ran for ran in life.runs if ran.job == "training"]
    assert ran.is_fine
    champion = champion_of(life)
    assert champion is not None
    life.look()
    assert model_of_tick(life) == {champion.label}
    assert "ok" in statuses(life).values()


def outage(life: Life) -> None:
    """Silent nodes are unknown, never healthy; what comes late is made up, and published never."""
    life.go_to(at(12))
    begin, silent = T0 + 11 * DAY + 5 * HOUR, pl.col("Hostname").is_in(THIRD)
    acted = len(ledger_of(life))
    for hour in (9, 12):
        life.go_to(at(12, hour), withhold=silent & (pl.col("timestamp") >= begin))
        found = statuses(life)
        assert {found[node] for node in THIRD if node in found} == {"unknown"}
        assert "ok" in {found[node] for node in found if node not in THIRD}
    assert "ForewarnCoverageLow" in life.open_alerts()
    life.drop.deliver(T0 + 11 * DAY + 13 * HOUR)
    life.go_to(at(12, 14), withhold=pl.col("timestamp") < T0 + 11 * DAY + 14 * HOUR)
    assert set(statuses(life).values()) == {"unknown"}
    drained = [entry for entry in ledger_of(life)[acted:] if entry.kind == "intent"]
    assert not {entry.node for entry in drained} & set(THIRD)
    life.go_to(at(12, 16))
    assert "ok" in statuses(life).values()
    life.go_to(at(14))
    hours = Span(begin, begin + 9 * HOUR)
    before, n_late = n_samples(life, hours), life.drop.deliver_late("20260114T0430-late")
    life.go_to(at(14, 5))
    assert n_samples(life, hours) == before + n_late


def poisoned_hour(life: Life) -> None:
    """A damaged file fails its hour alone: told of, set aside, and made once it is whole again."""
    poisoned = T0 + 14 * DAY + 7 * HOUR
    life.clock.set(at(15, 7))
    life.drop.deliver(poisoned)
    life.look()
    folder = life.settings.landing_root
    known = set(folder.rglob("*.parquet"))
    life.clock.set(at(15, 8))
    life.drop.deliver(poisoned + HOUR)
    ingest(life.settings, now=life.now)
    fresh = sorted(
        path for path in set(folder.rglob("*.parquet")) - known if "gpu_telemetry" in str(path)
    )
    kept = {path: path.read_bytes() for path in fresh}
    assert kept
    for path in fresh:
        path.write_bytes(b"no longer Parquet")
    life.excused.add(poisoned)
    life.unpublished[poisoned] = "its samples could not be read"
    life.look()
    for hour in (9, 10, 11):
        life.go_to(at(15, hour))
        assert published_as_of(life.settings.scores_dir) == T0 + 14 * DAY + hour * HOUR
    assert any(name.startswith("ForewarnHoursSetAside") for name in life.open_alerts())
    for path, content in kept.items():
        path.write_bytes(content)
    life.excused.clear()
    life.go_to(at(15, 13))
    assert not any(name.startswith("ForewarnHoursSetAside") for name in life.open_alerts())


def two_days_off(life: Life) -> None:
    """After two days without Dagster the newest hour is made first, and every hour once."""
    n_before = len(life.runs)
    life.go_to(at(18))
    made = [ran for ran in life.runs[n_before:] if ran.by == "hourly"]
    spans = [ran.tags["forewarn/hours"].split("/") for ran in made]
    assert spans[0][2] == "2026-01-18T04"
    # The newest hour is scored at once, and again when the hours are there that it looks back on.
    newest = "2026-01-18T03"
    assert [begin for stage, begin, _ in spans if stage == "scores"].count(newest) <= 2
    for stage, left_out in (("core", ""), ("scores", newest)):
        own = sorted(one[1:] for one in spans if one[0] == stage and one[1] != left_out)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(own)), own
    assert all(ran.is_fine for ran in made)


def bad_model(life: Life) -> None:
    """A model of dealt labels is refused by the gate; forced, it scores until it is rolled back."""
    good = champion_of(life)
    assert good is not None
    registry, bad = registry_of(life.settings), register_bad(life)
    assert not registry.standing(bad).is_gate_passed
    registry.promote_by_hand(bad, by="eve", reason="in a hurry", overrules_gate=True)
    life.go_to(at(19, 8))
    assert model_of_tick(life) == {bad.label}
    life.go_to(at(20, 8))
    registry.rollback(bad.name, by="ada", reason="it raises whatever it likes")
    n_before = len(life.runs)
    life.look()
    assert "champion_moved" in [ran.by for ran in life.runs[n_before:]]
    assert model_of_tick(life) == {good.label}
    life.go_to(at(20, 9))
    assert model_of_tick(life) == {good.label}


def register_bad(life: Life) -> RegisteredVersion:
    """Trains on a record whose incidents were dealt to other nodes; registers what came of it."""
    settings = life.settings
    store, catalogue = TableStore(settings.store_root), load_catalogue(None)
    registry, name = registry_of(settings), registered_name(settings, 24)
    before = registry.versions(name)
    names = others(life)
    said = train_candidates(
        store.read(GPU_MATRIX),
        labels=store.read(LABELS).with_columns(pl.col("entity_id").replace(names)),
        incidents=store.read(CORE_INCIDENTS).with_columns(
            pl.col("entity_id", "node").replace(names)
        ),
        topology=store.read(CORE_TOPOLOGY),
        settings=settings,
        catalogue=catalogue,
        maintenance=planned_work(
            store.read(CORE_MAINTENANCE), store.read(CORE_NODE_STATES), catalogue=catalogue
        ),
    )
    new = set(registry.versions(name)) - set(before)
    assert len(new) == 1, said
    return new.pop()


def others(life: Life) -> dict[str, str]:
    """For each node and GPU another one."""
    inventory = TableStore(life.settings.store_root).read(CORE_INVENTORY).sort("node", "slot")
    found: dict[str, str] = {}
    for column, by in (("node", 5), ("gpu_uuid", 40)):
        names = inventory[column].unique(maintain_order=True).to_list()
        found |= dict(zip(names, names[by:] + names[:by], strict=True))
    return found


def warmer(samples: pl.DataFrame) -> pl.DataFrame:
    """Another firmware reads half of the fleet warmer."""
    column = "DCGM_FI_DEV_GPU_TEMP"
    is_half = pl.col("Hostname").is_in(HALF)
    return samples.with_columns(
        pl.when(is_half & (pl.col(column) < 200)).then(pl.col(column) + SHIFT_C).otherwise(column)
        .alias(column)
    )  # fmt: skip


def renamed(samples: pl.DataFrame) -> pl.DataFrame:
    """The exporter's next release."""
    return samples.rename(
        {
            "Hostname": "hostname",
            "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        }
    )


def schema_change(life: Life) -> None:
    """Fields with other names are refused in words; with a mapping of their own nothing is lost."""
    life.drop.changes.append((T0 + 20 * DAY, warmer))
    life.go_to(T0 + 20 * DAY + AFTER)
    life.go_to(at(23))
    life.drop.changes.append((life.now, renamed))
    life.clock.set(at(23, 5))
    n_before = life.drop.n_samples
    path = life.drop.deliver(life.now)
    life.drop.n_unreadable = life.drop.n_samples - n_before
    life.look()
    assert set(statuses(life).values()) == {"unknown"}
    (said,) = ingest(life.settings, now=life.now, only=["history telemetry/*/*.parquet"])
    assert "Hostname" in said.failures[0]
    assert "hostname" in said.failures[0]
    use_new_names(life, path)
    life.drop.n_unreadable = 0
    life.clock.set(at(23, 6))
    life.drop.deliver(life.now)
    life.look()
    assert "ok" in statuses(life).values()


def use_new_names(life: Life, unread: Path) -> None:
    """What the operator does: an input of its own for the new files, with its mapping."""
    folder = life.drop.folder
    text = (folder / "mappings" / "telemetry.yaml").read_text()
    text = text.replace("Hostname", "hostname").replace("CLOCK_THROTTLE", "CLOCKS_EVENT")
    (folder / "mappings" / "telemetry_4.yaml").write_text(text)
    inputs = yaml.safe_load((folder / "inputs.yaml").read_text())
    one = {
        "kind": "history",
        "path": "telemetry_4/*/*.parquet",
        "mapping": "mappings/telemetry_4.yaml",
    }
    inputs["inputs"].append(one)
    (folder / "inputs.yaml").write_text(yaml.safe_dump(inputs))
    life.drop.telemetry = folder / "telemetry_4"
    target = life.drop.telemetry / unread.parent.name / unread.name
    target.parent.mkdir(parents=True)
    unread.rename(target)


def older_table(life: Life) -> None:
    """A table that lacks a column is refused in words until it is made again; no row is lost."""
    store = TableStore(life.settings.store_root)
    rows = store.read(CORE_JOBS)
    (path,) = store.files(CORE_JOBS)
    assert isinstance(path, Path)
    pl.read_parquet(path).drop("cause").write_parquet(path)
    with pytest.raises(StructureError, match="core/jobs: column 'cause'"):
        store.read(CORE_JOBS)
    life.go_to(at(23, 7))
    assert rows.join(store.read(CORE_JOBS), on=CORE_JOBS.key, how="anti").is_empty()


def forgotten_user(life: Life) -> None:
    """Who was forgotten stays so, although the files that name them are still there."""
    life.go_to(at(25))
    store = TableStore(life.settings.store_root)
    user = store.read(CORE_JOBS)["user"].drop_nulls().mode()[0]
    receipt = traces_of(life.settings, user, now=life.now).remove()
    assert receipt.n_jobs > 0
    life.go_to(at(25, 6))
    later = store.read(CORE_JOBS).filter(pl.col("user") == user, pl.col("end") < at(25))
    assert later.is_empty()


def older_release(life: Life) -> None:
    """Everything is of this release; a ledger of a newer one is refused and left as it is."""
    strange = [
        one.words() for one in stored_versions(life.settings) if one.state in ("older", "newer")
    ]
    assert not strange
    copy = life.root / "newer.sqlite"
    with sqlite3.connect(life.settings.ledger_path) as ledger, sqlite3.connect(copy) as other:
        ledger.backup(other)
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(LedgerError, match="99"), SqliteLedger(copy):
        pass


def last_days(life: Life) -> None:
    """The shifted temperatures are named; alerts were judged as a slow count judges them."""
    life.go_to(at(28))
    drift = TableStore(life.settings.store_root).read(DRIFT)
    alarms = drift.filter(pl.col("is_alarm"), pl.col("kind") == "feature")
    assert any("temp" in name for name in alarms["name"]), drift.filter("is_alarm")
    life.go_to(at(30))
    life.go_to(T0 + 30 * DAY + AFTER)
    assert alerts_are_judged_right(life) > 0
    days = life.days_of_alerts()
    assert days["ForewarnHoursSetAside"] == days["ForewarnJobFailed"] == {15}
    assert {12, 23} <= days["ForewarnCoverageLow"]
    failed = [ran for ran in life.runs if not ran.is_fine]
    assert {ran.at.day for ran in failed} == {15}, failed


DAYS: Final[Sequence[Callable[[Life], None]]] = (
    start,
    first_training,
    outage,
    poisoned_hour,
    two_days_off,
    bad_model,
    schema_change,
    older_table,
    forgotten_user,
    older_release,
    last_days,
)


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    with new_life(tmp_path, make_fleet(tmp_path)) as made:
        monkeypatch.setattr("pipelines.orchestration.troubles.send", made.hear)
        monkeypatch.setattr("pipelines.serving.delivery.send", made.hear)
        made.watch = Watch()
        yield made


def test_thirty_days_in_the_life_of_an_installation(life: Life) -> None:
    for step in DAYS:
        step(life)
