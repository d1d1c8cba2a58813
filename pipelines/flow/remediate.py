"""Runs the hook in dry run on the latest published scores and the stored core tables.

What is decided and guarded is in `remediation`; a live cluster is never touched from here.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from features.errors import SettingsError
from features.tables import (
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
    DECISIONS,
)
from pipelines.flow.steps import node_policy
from pipelines.settings import Settings
from pipelines.storage.store import TableStore
from remediation.actuators.dry_run import DryRunActuator
from remediation.cluster.frames import FrameClusterReader
from remediation.cluster.state import ClusterState
from remediation.hook import HookRun, run_once
from remediation.ledger.sqlite import SqliteLedger
from remediation.plan import render_plan
from remediation.score_source import FolderScoreSource
from remediation.site import Site, load_site


@dataclass(frozen=True)
class PlanRun:
    """A dry run of the hook.

    Attributes:
        as_of: Moment of the scores it rests on.
        coverage: Share of GPUs with a score at that moment.
        decisions: remediation/decisions.
        text: The plan in words.
    """

    as_of: datetime
    coverage: float
    decisions: pl.DataFrame
    text: str


def plan_on_latest(settings: Settings, *, now: datetime) -> PlanRun:
    """Decides on the latest published scores, writes the ledger, and changes nothing else.

    Args:
        settings: The installation.
        now: The present, UTC; core tables are read as they were then.

    Returns:
        The plan; its decisions are also stored as remediation/decisions.

    Raises:
        SourceError: No scores are published, or they cannot be trusted.
        DataError: A core table is not stored.
    """
    store = TableStore(settings.store_root)
    cluster = stored_cluster(settings, now=now)
    site = _site_of(settings)
    with SqliteLedger(settings.ledger_path) as ledger:
        run = run_once(
            scores=FolderScoreSource(settings.scores_dir),
            cluster=cluster,
            actuator=DryRunActuator(cluster),
            ledger=ledger,
            site=site,
            clock=lambda: now,
        )
    store.write(DECISIONS, run.decisions)
    return PlanRun(run.published.as_of, _coverage(run), run.decisions, render_plan(run))


@dataclass(frozen=True)
class StoredCluster:
    """The stored core tables as a cluster, read anew each time; for the hook as a program.

    Attributes:
        settings: The installation.
    """

    settings: Settings

    def read(self) -> ClusterState:
        """The state now.

        Raises:
            DataError: A core table is not stored.
        """
        return stored_cluster(self.settings, now=datetime.now(UTC)).read()


def stored_cluster(settings: Settings, *, now: datetime) -> FrameClusterReader:
    """The stored core tables as they were at a moment.

    Raises:
        DataError: A core table is not stored.
    """
    store = TableStore(settings.store_root)
    return FrameClusterReader(
        as_of=now,
        node_states=store.read(CORE_NODE_STATES),
        jobs=store.read(CORE_JOBS),
        topology=store.read(CORE_TOPOLOGY),
        inventory=store.read(CORE_INVENTORY),
        switch_level=settings.switch_level,
        state_without_record="up" if settings.node_states_hold_only_trouble else "unknown",
    )


def dry_run(settings: Settings) -> str:
    """The plan on the latest scores, in words."""
    return plan_on_latest(settings, now=datetime.now(UTC)).text


def _site_of(settings: Settings) -> Site:
    """The site file, with what it leaves out taken from the settings and the champion.

    The alert threshold with its n of k was chosen on validation for the alert budget and is kept
    with the champion; a fixed number would mean another budget at every site.

    Raises:
        SettingsError: The site file acts on a horizon that is not scored.
    """
    site = load_site(settings.remediation) if settings.remediation else Site()
    given: dict[str, object] = {}
    if "horizon_h" not in site.model_fields_set:
        given["horizon_h"] = settings.horizons_h[0]
    elif site.horizon_h not in settings.horizons_h:
        raise SettingsError(
            f"site file {settings.remediation}: horizon_h is {site.horizon_h}, but the settings "
            f"score {', '.join(map(str, settings.horizons_h))}. Name one of them."
        )
    policy = node_policy(settings, horizon_h=int(str(given.get("horizon_h", site.horizon_h))))
    if "warning" not in site.model_fields_set and policy is not None:
        given["warning"] = site.warning.model_copy(
            update={
                # The site file has no word for "never": a threshold of 1 is never reached.
                "threshold": min(policy.threshold, 1.0),
                "n": policy.n,
                "k": policy.k,
                "tick_minutes": policy.tick / timedelta(minutes=1),
            }
        )
    return site.model_copy(update=given)


def _coverage(run: HookRun) -> float:
    gpus = run.published.gpu_scores.filter(pl.col("horizon_h") == run.horizon_h)
    known = gpus.filter(pl.col("status") != "unknown").height
    return known / gpus.height if gpus.height else 0.0
