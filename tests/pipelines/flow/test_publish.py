"""The warning policy that was chosen with a model reaches the hook with the scores it is for."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import SourceError
from features.tables import GPU_SCORES, NODE_SCORES
from models.candidate.build import NEVER_ALERT
from models.policies.warnings import WarningPolicy
from pipelines.flow import steps as flow
from pipelines.flow.publish import publish_scores
from pipelines.flow.steps import publish_latest
from pipelines.settings import Settings
from remediation.score_source import FolderScoreSource, PublishedScores

T0 = datetime(2026, 1, 5, tzinfo=UTC)
POLICY = WarningPolicy(
    threshold=0.3, n=2, k=4, tick=timedelta(hours=1), cooldown=timedelta(hours=6)
)
NAME = "gpu-failure-24h"


def scores(kind: str, version: str) -> pl.DataFrame:
    contract = GPU_SCORES if kind == "gpu" else NODE_SCORES
    row = {
        "entity_kind": kind, "entity_id": f"{kind}-1", "node": "n1", "as_of": T0, "horizon_h": 24,
        "score": 0.5, "status": "ok", "reasons": [], "missing_share": 0.0,
        "model_version": version, "trained_on": "real",
    }  # fmt: skip
    return pl.DataFrame([dict.fromkeys(contract.schema) | row], schema=contract.schema)


def publish(folder: Path, policies: dict[int, WarningPolicy] | None) -> None:
    publish_scores(
        folder,
        gpu_scores=scores("gpu", "3"),
        node_scores=scores("node", "3"),
        published_at=T0,
        ttl=timedelta(minutes=30),
        policies=policies,
    )


def read(folder: Path) -> PublishedScores:
    return FolderScoreSource(folder).latest(T0)


def test_a_policy_is_read_back_as_it_was_published(tmp_path: Path) -> None:
    publish(tmp_path, {24: POLICY})
    assert read(tmp_path).policies == {24: POLICY}
    latest = json.loads((tmp_path / "LATEST.json").read_text())
    assert read(tmp_path).digest == latest["files"]["node_scores"]["sha256"]


def test_a_policy_that_never_alerts_still_never_does(tmp_path: Path) -> None:
    never = WarningPolicy(
        threshold=NEVER_ALERT, tick=timedelta(hours=1), cooldown=timedelta(hours=1)
    )
    publish(tmp_path, {24: never})
    assert read(tmp_path).policies[24].threshold == 1.0


def test_scores_without_a_policy_say_so(tmp_path: Path) -> None:
    publish(tmp_path, None)
    assert read(tmp_path).policies == {}


@pytest.mark.parametrize(
    "change",
    [{"threshold": 0.0}, {"threshold": 1.5}, {"n": 5}, {"k": 0}, {"tick_s": 0}, {"more": 1}],
)
def test_a_policy_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    publish(tmp_path, {24: POLICY})
    latest = json.loads((tmp_path / "LATEST.json").read_text())
    latest["policies"]["24"] |= change
    (tmp_path / "LATEST.json").write_text(json.dumps(latest))
    with pytest.raises(SourceError, match=r"policies\.24"):
        read(tmp_path)


@dataclass
class FakeRegistry:
    """Has one champion."""

    label: str
    policies: dict[str, WarningPolicy] = field(default_factory=lambda: {"node": POLICY})

    def version_of(self, name: str, alias: str) -> "FakeRegistry":
        return self

    def load(self, version: "FakeRegistry") -> "FakeRegistry":
        return version


@pytest.mark.parametrize(
    ("scored_by", "champion", "expected"),
    [
        (f"{NAME}/3", f"{NAME}/3", {24: POLICY}),
        (f"{NAME}/3", f"{NAME}/4", {}),
        (f"{NAME}/prior", f"{NAME}/prior", {}),
    ],
)
def test_only_the_policy_of_the_model_that_scored_is_published(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scored_by: str,
    champion: str,
    expected: dict[int, WarningPolicy],
) -> None:
    monkeypatch.setattr(flow, "registry_of", lambda _: FakeRegistry(champion))
    monkeypatch.setattr(flow, "registered_name", lambda *_, **__: NAME)
    settings = Settings(site="a", inputs=tmp_path, data_root=tmp_path, start=T0, horizons_h=(24,))
    publish_latest(
        scores("gpu", scored_by), scores("node", scored_by), settings=settings, as_of=T0, now=T0
    )
    assert read(settings.scores_dir).policies == expected
