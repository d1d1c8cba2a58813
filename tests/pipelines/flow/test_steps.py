"""Rules of the flow's edges: what is published, what is counted, and what the hook is told."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import polars as pl
import pytest

from features.contracts import TableContract
from features.core_tables import CoreTables
from features.errors import DataError, SettingsError
from features.grid import watched_grid
from features.matrix import build_gpu_matrix, matrix_features
from features.registry import feature_names
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
    GPU_MATRIX,
    GPU_SCORES,
    LABELS,
    NODE_SCORES,
)
from models.candidate.build import CandidatePlan
from models.evaluation.gate import GateDecision
from models.evaluation.row_metrics import Estimate
from models.policies.warnings import WarningPolicy
from models.registry.registered import RegisteredVersion, RegistryError
from models.specs import SiteChoice
from pipelines.defs.features import feature_assets
from pipelines.defs.partitions import partitions_of
from pipelines.defs.table_look import look_of
from pipelines.end_to_end.demo import run_demo
from pipelines.flow import remediate
from pipelines.flow import steps as flow
from pipelines.flow.feature_set import check_feature_set, matrix_spec
from pipelines.flow.publish import published_as_of
from pipelines.flow.recall_ceilings import recall_ceilings
from pipelines.flow.steps import labels_of, publish_latest, train_candidates
from pipelines.settings import Settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


def settings(folder: Path, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "site": "lab",
        "inputs": folder / "inputs.yaml",
        "data_root": folder / "data",
        "start": T0,
        "end": T0 + 5 * HOUR,
        "horizons_h": (24,),
    }
    return Settings.model_validate(values | changes)


def scores(kind: str, as_of: datetime, score: float = 0.5) -> pl.DataFrame:
    contract = GPU_SCORES if kind == "gpu" else NODE_SCORES
    row = {
        "entity_kind": kind,
        "entity_id": f"{kind}-1",
        "node": "n1",
        "as_of": as_of,
        "horizon_h": 24,
        "score": score,
        "status": "ok",
        "reasons": [],
        "missing_share": 0.0,
        "model_version": "3",
        "trained_on": "synthetic",
    }
    return pl.DataFrame([dict.fromkeys(contract.schema) | row], schema=contract.schema)


def publish(where: Settings, as_of: datetime, score: float = 0.5) -> None:
    publish_latest(
        scores("gpu", as_of, score),
        scores("node", as_of, score),
        settings=where,
        as_of=as_of,
        now=as_of,
    )


def test_a_backfill_never_replaces_newer_scores(tmp_path: Path) -> None:
    where = settings(tmp_path)
    publish(where, T0 + HOUR)
    publish(where, T0)
    assert published_as_of(where.scores_dir) == T0 + HOUR
    publish(where, T0 + 2 * HOUR)
    assert published_as_of(where.scores_dir) == T0 + 2 * HOUR


def test_scoring_a_tick_again_changes_no_published_file(tmp_path: Path) -> None:
    where = settings(tmp_path)
    publish(where, T0)
    latest = json.loads((where.scores_dir / "LATEST.json").read_text())
    first = where.scores_dir / latest["files"]["node_scores"]["path"]
    before = first.read_bytes()
    publish(where, T0, score=0.9)
    assert first.read_bytes() == before
    assert len(list((where.scores_dir / "node_scores").iterdir())) == 2


def test_events_are_covered_until_the_end_of_their_last_partition(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    assert store.covered_until(CORE_HEALTH_EVENTS) is None
    store.write(CORE_HEALTH_EVENTS, CORE_HEALTH_EVENTS.empty(), span=Span(T0, T0 + 3 * HOUR))
    assert store.covered_until(CORE_HEALTH_EVENTS) == T0 + 3 * HOUR


def test_planned_work_named_by_a_node_state_hides_the_outcome(tmp_path: Path) -> None:
    state = {"node": "n1", "state": "drain", "reason": "planned firmware upgrade"}
    state |= {"valid_from": T0 + 6 * HOUR, "valid_to": T0 + 8 * HOUR}
    tables = CoreTables(
        inventory=pl.DataFrame(
            [dict.fromkeys(CORE_INVENTORY.schema) | {"gpu_uuid": "g", "node": "n1"}],
            schema=CORE_INVENTORY.schema,
        ),
        node_states=pl.DataFrame(
            [dict.fromkeys(CORE_NODE_STATES.schema) | state], schema=CORE_NODE_STATES.schema
        ),
    )
    labels = labels_of(
        tables,
        settings(tmp_path),
        catalogue=load_catalogue(None),
        span=Span(T0, T0 + 3 * HOUR),
        data_end=T0 + 99 * HOUR,
    )
    # A start that nobody recorded means: in place since before the record began.
    assert set(labels["entity_id"]) == {"g", "n1"}
    assert set(labels["censored_by"]) == {"maintenance"}


def test_the_full_feature_set_has_the_standard_one_and_the_racks_of_the_site(
    tmp_path: Path,
) -> None:
    def names(**changes: Any) -> set[str]:
        spec = matrix_spec(settings(tmp_path, **changes), load_catalogue(None))
        return set(feature_names(matrix_features(spec, CORE_TOPOLOGY.empty())))

    usual, full = names(), names(feature_set="full", rack_level="cabinet")
    assert usual < full
    assert {"gpu_temp_c_cabinet_peer_z_1h", "power_w_min_7d", "pcie_replay_count_increase_15m"} <= (
        full - usual
    )


def stored_matrix(store: TableStore, where: Settings, *, hour: int) -> None:
    """An hour of one GPU whose samples hold its temperature alone, as the settings want it."""
    as_of = T0 + (hour + 1) * HOUR
    tables = CoreTables(
        inventory=row_of(CORE_INVENTORY, gpu_uuid="g", node="n1"),
        gpu_telemetry=row_of(
            CORE_GPU_TELEMETRY, gpu_uuid="g", ts=as_of - HOUR / 2, node="n1", gpu_temp_c=40.0
        ),
    )
    grid = watched_grid(tables.inventory, [as_of], unknown_start="watched")
    matrix = build_gpu_matrix(tables, grid, spec=matrix_spec(where, load_catalogue(None)))
    store.write(GPU_MATRIX, matrix, span=Span(as_of - HOUR, as_of))


def row_of(contract: TableContract, **values: Any) -> pl.DataFrame:
    return pl.DataFrame([dict.fromkeys(contract.schema) | values], schema=contract.schema)


def test_hours_without_the_features_of_the_full_set_are_not_trained_on(tmp_path: Path) -> None:
    usual, full = settings(tmp_path), settings(tmp_path, feature_set="full")
    store = TableStore(tmp_path)
    for hour in (0, 1):
        stored_matrix(store, usual, hour=hour)
    with pytest.raises(DataError, match="2 of 2 hours, for example 2026-01-05 01:00"):
        check_feature_set(store.read(GPU_MATRIX), full)
    stored_matrix(store, full, hour=0)
    check_feature_set(store.read(GPU_MATRIX), usual)
    with pytest.raises(DataError, match="1 of 2 hours, for example 2026-01-05 02:00.*train again"):
        check_feature_set(store.read(GPU_MATRIX), full)
    stored_matrix(store, full, hour=1)
    check_feature_set(store.read(GPU_MATRIX), full)


def test_training_looks_at_the_feature_set_first(tmp_path: Path) -> None:
    split = {"train_until": T0 + HOUR, "valid_until": T0 + 2 * HOUR}
    where = settings(tmp_path, feature_set="full", split=split)
    store = TableStore(tmp_path)
    stored_matrix(store, settings(tmp_path), hour=0)
    with pytest.raises(DataError, match="1 of 1 hours"):
        train_candidates(
            store.read(GPU_MATRIX),
            labels=LABELS.empty(),
            incidents=CORE_INCIDENTS.empty(),
            topology=CORE_TOPOLOGY.empty(),
            settings=where,
            catalogue=load_catalogue(None),
        )


def test_ensemble_span_and_ceilings_of_the_settings_reach_the_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def noted(*_: Any, plan: CandidatePlan, **__: Any) -> None:
        asked.append(plan)
        raise DataError("no rows")

    monkeypatch.setattr(flow, "build_candidate", noted)
    split = {"train_until": T0 + HOUR, "valid_until": T0 + 2 * HOUR}
    training = {"ensemble": "parallel", "span": 90}
    where = settings(tmp_path, regime="demo", split=split, training=training)
    stored_matrix(TableStore(tmp_path), where, hour=0)
    told = train_candidates(
        TableStore(tmp_path).read(GPU_MATRIX),
        labels=LABELS.empty(),
        incidents=CORE_INCIDENTS.empty(),
        topology=CORE_TOPOLOGY.empty(),
        settings=where,
        catalogue=load_catalogue(None),
    )
    assert told == {"gpu-failure-24h": "not trained, scored by prior: no rows"}
    assert asked[0].choice == SiteChoice(ensemble="parallel", span=90)
    assert asked[0].ceilings == recall_ceilings(where)
    assert asked[0].ceilings["all"] > 0


@pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")  # backfill_policy
@pytest.mark.parametrize(("feature_set", "reach_h"), [("standard", 48), ("full", 14 * 24)])
def test_the_matrix_rests_on_as_much_telemetry_as_its_features_reach_back(
    tmp_path: Path, feature_set: str, reach_h: int
) -> None:
    where = settings(tmp_path, feature_set=feature_set)
    matrix, _ = feature_assets(partitions_of(where), where, look_of(where))
    mapping = matrix.get_partition_mapping(dg.AssetKey(["core", "gpu_telemetry"]))
    assert isinstance(mapping, dg.TimeWindowPartitionMapping)
    assert mapping.start_offset == 1 - reach_h  # of hours, its own among them


class OneChampion:
    """A registry that has a champion."""

    def __init__(self) -> None:
        self.promoted: list[str] = []
        self.noted: list[str] = []

    def register(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(name="m", version=2, label="m/2")

    def version_of(self, *_: Any) -> Any:
        return SimpleNamespace(version=1)

    def load(self, *_: Any) -> Any:
        return None

    def promote(self, _: Any, *, decision: Any, against: Any) -> None:
        self.promoted.append(f"{decision.reason} {against.version}")

    def note_gate(self, _: Any, decision: Any) -> None:
        self.noted.append(decision.reason)


@pytest.mark.parametrize(
    ("is_accepted", "promoted", "noted"), [(True, ["the word 1"], []), (False, [], ["the word"])]
)
def test_the_gates_word_decides_and_is_kept_when_it_is_no(
    monkeypatch: pytest.MonkeyPatch, is_accepted: bool, promoted: list[str], noted: list[str]
) -> None:
    word = SimpleNamespace(is_accepted=is_accepted, reason="the word")
    monkeypatch.setattr(flow, "model_page", lambda _: None)
    monkeypatch.setattr(flow, "gate_against", lambda *_: word)
    registry = OneChampion()
    made = SimpleNamespace(bundle=None)
    assert flow._register(registry, made) == "m/2: the word"  # type: ignore[arg-type]  # stand-ins
    assert (registry.promoted, registry.noted) == (promoted, noted)


POLICY = WarningPolicy(threshold=0.2, n=2, k=3, tick=HOUR, cooldown=24 * HOUR)


@pytest.mark.parametrize(
    ("site", "threshold", "tick_minutes"),
    [
        (None, 0.2, 60.0),  # no site file: the champion's policy
        ("caps: {held_percent: 5}", 0.2, 60.0),
        ("warning: {threshold: 0.7}", 0.7, 15.0),  # the site's own word counts
    ],
)
def test_the_hook_is_told_the_champions_policy_unless_the_site_has_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    site: str | None,
    threshold: float,
    tick_minutes: float,
) -> None:
    monkeypatch.setattr(remediate, "node_policy", lambda *_, **__: POLICY)
    changes: dict[str, Any] = {}
    if site:
        (tmp_path / "site.yaml").write_text(site)
        changes["remediation"] = tmp_path / "site.yaml"
    told = remediate._site_of(settings(tmp_path, **changes))
    assert (told.warning.threshold, told.warning.tick_minutes) == (threshold, tick_minutes)
    assert told.horizon_h == 24


def test_a_site_file_must_act_on_a_horizon_that_is_scored(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("horizon_h: 7")
    with pytest.raises(SettingsError, match="horizon_h is 7, but the settings score 24"):
        remediate._site_of(settings(tmp_path, remediation=tmp_path / "site.yaml"))


def test_the_demo_leaves_a_folder_of_others_alone(tmp_path: Path) -> None:
    (tmp_path / "forewarn.yaml").write_text("site: production\n")
    with pytest.raises(SettingsError):
        run_demo(tmp_path, say=print)
    assert (tmp_path / "forewarn.yaml").read_text() == "site: production\n"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("error", "is_accepted"),
    [
        (DataError("has schema 1, this program reads 2."), True),  # nothing can score with it
        (RegistryError("its files cannot be read."), False),  # they may be restored
    ],
)
def test_a_champion_that_cannot_be_read_does_not_stop_training(error, is_accepted) -> None:
    class Unreadable(OneChampion):
        def load(self, *_: Any) -> Any:
            raise error

    first = GateDecision(is_accepted=True, difference=Estimate(0.1, 0.05, 0.15), reason="Better.")
    made: Any = SimpleNamespace(bundle=None, gate=first)
    found = flow._decision(Unreadable(), made, champion=RegisteredVersion("m", 1))  # type: ignore[arg-type]
    assert found.is_accepted == is_accepted
    assert found.reason.startswith(f"Better. The champion was not compared: {error}")
