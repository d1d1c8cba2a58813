"""Rules of the flow's edges: what is published, what is counted, and what the hook is told."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.core_tables import CoreTables
from features.errors import SettingsError
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INVENTORY,
    CORE_NODE_STATES,
    GPU_SCORES,
    NODE_SCORES,
)
from models.warnings import WarningPolicy
from pipelines import remediate
from pipelines.demo import run_demo
from pipelines.flow import labels_of, publish_latest
from pipelines.publish import published_as_of
from pipelines.settings import Settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.store import Span, TableStore

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
