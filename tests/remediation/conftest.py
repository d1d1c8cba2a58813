"""A small cluster with scores, for the hook's tests; no assertion lives here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from features.tables import GPU_SCORES, NODE_SCORES
from remediation import site as settings
from remediation.actuators.protocol import Actuator, FakeActuator
from remediation.cluster.state import ClusterState, FakeCluster, JobView, NodeView
from remediation.hook import HookRun, run_once
from remediation.ledger.entries import Ledger, MemoryLedger
from remediation.score_source import FakeScoreSource, PublishedScores
from remediation.site import Burst, Caps, LevelRule, Site

START = datetime(2026, 1, 5, 10, tzinfo=UTC)
TICK = timedelta(minutes=15)


def published(
    scores: Mapping[str, float | None],
    *,
    as_of: datetime = START,
    trained_on: str = "real",
    status: str = "ok",
    valid_for: timedelta = timedelta(minutes=30),
) -> PublishedScores:
    rows = [
        {
            "entity_kind": "node",
            "entity_id": node,
            "node": node,
            "as_of": as_of,
            "horizon_h": 24,
            "score": score,
            "status": "unknown" if score is None else status,
            "status_reason": "no telemetry" if score is None else None,
            "fault_type": None if score is None else "nvlink",
            "fault_probability": None,
            "reasons": [] if score is None else [f"retries of {node} rise"],
            "missing_share": 0.0,
            "model_version": "17",
            "trained_on": trained_on,
        }
        for node, score in scores.items()
    ]
    return PublishedScores(
        as_of=as_of,
        expires_at=as_of + valid_for,
        model_versions={24: "17"},
        trained_on=trained_on,
        node_scores=pl.DataFrame(rows, schema=NODE_SCORES.schema),
        gpu_scores=GPU_SCORES.empty(),
    )


def node(name: str, **changes: object) -> NodeView:
    values = {"state": "up", "boot_id": "boot-1", "rack": f"rack-{name}", "n_gpus": 8} | changes
    return NodeView(name=name, **values)  # type: ignore[arg-type]


def open_site(**changes: object) -> Site:
    """A site that lets the hook drain at the first alert."""
    values = {
        "levels": (LevelRule(level="notify_then_drain"),),
        "caps": Caps(held_percent=100, actions_per_hour=100, per_rack=None),
        "warning": settings.Warning(n=1, k=1),
        "burst": Burst(fleet_nodes=1000, component_nodes=1000),
    }
    return Site(**(values | changes))  # type: ignore[arg-type]


@dataclass
class World:
    """A cluster, scores, a ledger, a clock and an actuator that belong together."""

    cluster: FakeCluster
    scores: PublishedScores
    site: Site
    ledger: Ledger = field(default_factory=MemoryLedger)
    now: datetime = START
    actuator: Actuator = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.actuator is None:
            self.actuator = FakeActuator(self.cluster)

    @property
    def acted_on(self) -> list[str]:
        assert isinstance(self.actuator, FakeActuator)
        return [order.expected.name for order in self.actuator.orders]

    def run(self, **changes: object) -> HookRun:
        parts = {
            "scores": FakeScoreSource(self.scores),
            "cluster": self.cluster,
            "actuator": self.actuator,
            "ledger": self.ledger,
            "site": self.site,
            "clock": lambda: self.now,
        }
        return run_once(**(parts | changes))  # type: ignore[arg-type]

    def next_tick(self, scores: Mapping[str, float | None], **changes: object) -> HookRun:
        self.now += TICK
        self.scores = published(scores, as_of=self.now)
        return self.run(**changes)


@dataclass(frozen=True)
class Kit:
    """What tests build worlds from."""

    start: datetime = START
    tick: timedelta = TICK
    published: Callable[..., PublishedScores] = published
    node: Callable[..., NodeView] = node
    site: Callable[..., Site] = open_site

    def world(
        self,
        scores: Mapping[str, float | None],
        *,
        nodes: tuple[NodeView, ...] | None = None,
        jobs: tuple[JobView, ...] = (),
        site: Site | None = None,
        ledger: Ledger | None = None,
        **published_changes: object,
    ) -> World:
        """A world whose nodes are those scored and one that idles, unless given."""
        views = (*(node(name) for name in scores), node("idle")) if nodes is None else nodes
        return World(
            cluster=FakeCluster(ClusterState(as_of=START, nodes=views, jobs=jobs)),
            scores=published(scores, **published_changes),  # type: ignore[arg-type]
            site=open_site() if site is None else site,
            ledger=MemoryLedger() if ledger is None else ledger,
        )


@pytest.fixture
def kit() -> Kit:
    return Kit()
