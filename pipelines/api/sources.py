"""What the API and the board read, opened once for a process.

How each is read is in the module of its own; nothing is written but requests, in `hook_requests`.
"""

from dataclasses import dataclass

import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from features.clock import Clock, utc_now
from pipelines.api.fleet_view import FleetView, Snapshot
from pipelines.api.hook_requests import HookDesk
from pipelines.api.ledger_reader import LedgerReader
from pipelines.api.model_view import ModelView
from pipelines.api.site_health import SiteHealth
from pipelines.serving.open_metrics import metrics_registry
from pipelines.serving.place import score_engine
from pipelines.settings import Settings
from pipelines.storage.in_time import InTime


@dataclass(frozen=True, kw_only=True)
class Sources:
    """All that is read.

    Attributes:
        settings: The installation.
        fleet: The newest tick.
        engine: The score database.
        ledger: The hook's ledger.
        models: The registry.
        health: How the data does.
        metrics: What /metrics shows.
        desk: Takes what operators ask for.
        reads: Reads of the tables, waited for only so long where those are in a bucket.
        now: Clock.
    """

    settings: Settings
    fleet: FleetView
    engine: sa.Engine
    ledger: LedgerReader
    models: ModelView
    health: SiteHealth
    metrics: CollectorRegistry
    desk: HookDesk
    reads: InTime
    now: Clock

    def usual_horizon_h(self, snapshot: Snapshot) -> int:
        """The first horizon of the installation that the tick has; the hook acts on it."""
        ours, scored = self.settings.horizons_h, snapshot.horizons_h
        return next((h for h in ours if h in scored), (*scored, *ours)[0])


def open_sources(
    settings: Settings,
    *,
    fleet: FleetView | None = None,
    now: Clock = utc_now,
) -> Sources:
    """Opens what an installation has; what is not there yet is looked for again when asked for.

    Args:
        settings: The installation.
        fleet: The newest tick; None: read beside.
        now: Clock.

    Raises:
        SettingsError: The score database's address or password cannot be used.
    """
    view = fleet or FleetView(settings)
    ledger, reads = LedgerReader(settings), InTime(settings.store_root)
    return Sources(
        settings=settings,
        fleet=view,
        engine=score_engine(settings),
        ledger=ledger,
        models=ModelView(settings),
        health=SiteHealth(settings, view, reads=reads),
        metrics=metrics_registry(settings),
        desk=HookDesk(settings, ledger, now),
        reads=reads,
        now=now,
    )
