"""Reads what the shadow report rests on: the ledger, the site's settings and the stored tables.

Nothing is judged here, and nothing is written.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

import polars as pl

from features.contracts import TableContract
from features.errors import SettingsError
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_MAINTENANCE,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
    NODE_SCORES,
)
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore
from remediation.cluster.frames import FrameClusterReader
from remediation.cluster.state import ClusterState
from remediation.holds.recovery import check_chain
from remediation.ledger.entries import Entry, Ledger
from remediation.shadow import ClusterAt
from remediation.site import Site, load_site


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The stored tables, as far as they are there.

    Attributes:
        incidents: core/incidents.
        inventory: core/inventory.
        maintenance: core/maintenance.
        node_states: core/node_states.
        topology: core/topology.
        jobs: core/jobs that ran in the time.
        events: core/health_events of the time; None: none are stored.
        node_scores: scores/node_scores of the time; None: none are stored.
    """

    incidents: pl.DataFrame
    inventory: pl.DataFrame = field(default_factory=CORE_INVENTORY.empty)
    maintenance: pl.DataFrame = field(default_factory=CORE_MAINTENANCE.empty)
    node_states: pl.DataFrame = field(default_factory=CORE_NODE_STATES.empty)
    topology: pl.DataFrame = field(default_factory=CORE_TOPOLOGY.empty)
    jobs: pl.DataFrame = field(default_factory=CORE_JOBS.empty)
    events: pl.DataFrame | None = None
    node_scores: pl.DataFrame | None = None


@dataclass(frozen=True, kw_only=True)
class ShadowInput:
    """All that a shadow report rests on.

    Attributes:
        name: The site.
        note: The site's line for reports.
        entries: Entries `decision` and `observed` of the ledger, in order.
        since: Start of the time.
        until: Its end, exclusive.
        data_end: Where the record of the tables ends.
        level: How far automation would have been allowed to go.
        is_synthetic: Whether the installation's record is synthetic.
        site: The hook's site settings.
        settings: The installation.
        tables: The stored tables.
    """

    name: str
    note: str
    entries: tuple[Entry, ...]
    since: datetime
    until: datetime
    data_end: datetime
    level: str
    is_synthetic: bool
    site: Site
    settings: Settings
    tables: Tables

    def cluster_at(self) -> ClusterAt:
        """The cluster at a moment, from the core tables."""
        reader = FrameClusterReader(
            as_of=self.since,
            node_states=self.tables.node_states,
            jobs=self.tables.jobs,
            topology=self.tables.topology,
            inventory=self.tables.inventory,
            switch_level=self.settings.switch_level,
            state_without_record="up" if self.settings.node_states_hold_only_trouble else "unknown",
        )

        # Decisions of one round share a moment.
        @lru_cache(maxsize=8)
        def at(now: datetime) -> ClusterState:
            return replace(reader, as_of=now).read()

        return at


@contextmanager
def opened_ledger(settings: Settings, hook: Path | None) -> Iterator[tuple[Ledger, Site]]:
    """The hook's ledger and site settings; without hook settings those of the installation.

    Raises:
        SettingsError: The settings are wrong, or there is no ledger yet.
        LedgerError: The ledger cannot be read.
    """
    if hook is not None:
        from remediation.hook_settings import load_hook_settings
        from remediation.program.parts import open_bare_ledger

        found = load_hook_settings(hook)
        if found.ledger.postgres_variable is None:
            _need(found.ledger_file)
        with open_bare_ledger(found) as ledger:
            yield ledger, found.site
        return
    from remediation.ledger.sqlite import SqliteLedger

    _need(settings.ledger_path)
    site = load_site(settings.remediation) if settings.remediation else Site()
    if "horizon_h" not in site.model_fields_set:
        # As the rehearsal does, whose ledger this is.
        site = site.model_copy(update={"horizon_h": settings.horizons_h[0]})
    with SqliteLedger(settings.ledger_path) as own:
        yield own, site


def _need(path: Path) -> None:
    if not path.is_file():
        raise SettingsError(
            f"no ledger at {path}: the hook has not run yet. Start it in observe mode "
            "(`forewarn remediate loop`), or name its settings with --hook FILE"
        )


def read_input(
    settings: Settings,
    *,
    hook: Path | None,
    since: datetime | None,
    until: datetime | None,
    level: str,
    now: datetime,
) -> ShadowInput:
    """Reads everything.

    Args:
        settings: The installation.
        hook: The hook's settings file.
        since: Start; None: the ledger's first decision or tick.
        until: End, exclusive; None: where the record ends.
        level: How far automation would have been allowed to go.
        now: The present.

    Raises:
        SettingsError: The time is empty, or settings are wrong.
        LedgerError: The ledger cannot be read, or was altered.
        DataError: Incidents are not stored, so nothing can be judged.
    """
    with opened_ledger(settings, hook) as (ledger, site):
        check_chain(ledger)
        entries = ledger.entries(kinds=("decision", "observed"))
    store = TableStore(settings.store_root)
    data_end = settings.data_end(now)
    known = store.covered_until(CORE_HEALTH_EVENTS)
    data_end = data_end if known is None else min(data_end, known)
    start = since or (entries[0].recorded_at if entries else settings.start)
    # The last round of a finished record is made a little after its end.
    last = max((entry.recorded_at for entry in entries), default=start)
    end = until or max(data_end, last + timedelta(microseconds=1))
    if start >= end:
        raise SettingsError(f"--since {start} is not before --until {end}")
    return ShadowInput(
        name=settings.site,
        note=settings.note,
        entries=tuple(entries),
        since=start,
        until=end,
        data_end=data_end,
        level=level,
        is_synthetic=settings.trained_on == "synthetic" or settings.regime is not None,
        site=site,
        settings=settings,
        tables=_tables(store, Span(start, end)),
    )


def _tables(store: TableStore, span: Span) -> Tables:
    def known(contract: TableContract) -> pl.DataFrame:
        return store.read(contract) if store.has(contract) else contract.empty()

    def within(contract: TableContract) -> pl.DataFrame | None:
        return store.read(contract, span=span) if store.files(contract, span=span) else None

    return Tables(
        incidents=store.read(CORE_INCIDENTS),
        inventory=known(CORE_INVENTORY),
        maintenance=known(CORE_MAINTENANCE),
        node_states=known(CORE_NODE_STATES),
        topology=known(CORE_TOPOLOGY),
        jobs=known(CORE_JOBS).filter(
            (pl.col("end") >= span.start).fill_null(value=True), pl.col("start") < span.end
        ),
        events=within(CORE_HEALTH_EVENTS),
        node_scores=within(NODE_SCORES),
    )
