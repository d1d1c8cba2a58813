"""A hook's folder with settings, published scores and a Slurm in memory; no assertion here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from features.tables import GPU_SCORES, NODE_SCORES
from models.policies.warnings import WarningPolicy
from pipelines.flow.publish import publish_scores
from remediation.actuators import slurm_run
from remediation.hook_settings import HookSettings, load_hook_settings
from remediation.inbox.files import submit
from remediation.inbox.site import prepare_inbox
from remediation.signed_requests import Request, RequestKey
from tests.remediation.slurm_world import FakeNode, FakeSlurm

POLICY = WarningPolicy(threshold=0.4, n=1, k=1, tick=timedelta(minutes=15), cooldown=timedelta(0))
KEY = "k" * 40
SETTINGS: Mapping[str, Any] = {
    "state": "state",
    "scores": {"folder": "scores"},
    "cluster": {"kind": "slurm"},
    "actuator": {"kind": "slurm"},
    "inbox": {
        "folder": "inbox",
        "keys": {"desk": {"file": "key"}},
        "actors": {"ada": ["*"], "eve": ["acknowledge"]},
    },
    "site": {
        "levels": [{"level": "notify_then_drain"}],
        "caps": {"held_percent": 100, "partition_percent": 100, "per_rack": None},
    },
}


@dataclass
class ProgramWorld:
    """Attributes: the folder, Slurm, and how many requests were made."""

    root: Path
    slurm: FakeSlurm
    asked: int = field(default=0)

    @property
    def file(self) -> Path:
        return self.root / "hook.yaml"

    @property
    def drained(self) -> list[str]:
        return [name for name, node in self.slurm.nodes.items() if "DRAIN" in node.flags]

    def write(self, **changes: Any) -> HookSettings:
        """Writes the settings, with changes to whole keys; None leaves a key out."""
        values = {k: v for k, v in {**SETTINGS, **changes}.items() if v is not None}
        self.file.write_text(yaml.safe_dump(values))
        return load_hook_settings(self.file)

    def publish(
        self,
        scores: Mapping[str, float],
        *,
        policy: WarningPolicy | None = POLICY,
        as_of: datetime | None = None,
    ) -> None:
        """Publishes one tick that holds for half an hour."""
        at = as_of or datetime.now(UTC)

        def rows(kind: str) -> pl.DataFrame:
            contract = GPU_SCORES if kind == "gpu" else NODE_SCORES
            common = {
                "entity_kind": kind, "as_of": at, "horizon_h": 24, "status": "ok",
                "fault_type": "nvlink", "reasons": [], "missing_share": 0.0,
                "model_version": "gpu-failure-24h/3", "trained_on": "real",
            }  # fmt: skip
            named = [
                {"entity_id": f"{kind}-{node}" if kind == "gpu" else node, "node": node, "score": s}
                for node, s in scores.items()
            ]
            return pl.DataFrame(
                [dict.fromkeys(contract.schema) | common | one for one in named],
                schema=contract.schema,
            )

        publish_scores(
            self.root / "scores",
            gpu_scores=rows("gpu"),
            node_scores=rows("node"),
            published_at=at,
            ttl=timedelta(minutes=30),
            policies=None if policy is None else {24: policy},
        )

    def ask(self, what: str, **about: Any) -> None:
        """Puts a signed request of ada's into the inbox."""
        self.asked += 1
        now = datetime.now(UTC)
        prepare_inbox(self.root / "inbox")
        request = Request(
            what=what,
            actor="ada",
            created=now,
            expires=now + timedelta(hours=1),
            nonce=f"{self.asked:032x}",
            key_id="desk",
            **about,
        )
        submit(self.root / "inbox", request, RequestKey(KEY.encode()))


def make_world(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, nodes: tuple[str, ...] = ("n1", "n2", "n3")
) -> ProgramWorld:
    """A world of idle nodes whose Slurm is asked instead of a real one."""
    slurm = FakeSlurm({name: FakeNode() for name in nodes})
    monkeypatch.setattr(slurm_run, "LocalRunner", lambda **_: slurm)
    (root / "key").write_text(KEY)
    (root / "key").chmod(0o600)
    world = ProgramWorld(root, slurm)
    world.write()
    return world
