"""How the data does: which exporters are silent, how much is covered, how old everything is.

Scores and their causes come from the tick in `fleet_view`; nothing is judged anew here.
"""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from features.contracts import TableContract
from features.errors import ForewarnError
from features.tables import (
    CORE_COVERAGE,
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
)
from pipelines.api.fleet_view import FleetView, Snapshot
from pipelines.serving.scorer_status import ScorerStatus, read_status
from pipelines.settings import Settings
from pipelines.storage.in_time import WAIT_S, InTime, LateError
from pipelines.storage.store import TableStore, scan_files

KEPT_S: Final = 60.0
MOST_NAMED: Final = 1000
FROM_FUTURE: Final = timedelta(minutes=5)
_WATCHED: Final = (CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS)


class SiteHealth:
    """Data health of an installation; what is slow to find is kept for a minute.

    Args:
        settings: The installation.
        fleet: The newest tick.
        reads: Reads of the tables; None: on its own.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        settings: Settings,
        fleet: FleetView,
        *,
        reads: InTime | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._store = TableStore(settings.store_root)
        self._reads = reads or InTime(settings.store_root)
        self._fleet = fleet
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, Any] = {}
        self._kept_at = float("-inf")

    def data_health(self, now: datetime) -> dict[str, Any]:
        """All of it, as `shapes_site.DataHealth` says.

        Args:
            now: The present.
        """
        snapshot, problem = self._fleet.current(), self._fleet.problem
        kept, late = self._stored()
        tables = [one | {"age_s": _age(one["covered_until"], now)} for one in kept["tables"]]
        return {
            "site": self._settings.site,
            "at": now,
            "problems": [*self._problems(snapshot, problem, now), *late],
            "scores": None if snapshot is None else scores_health(snapshot, now),
            "tables": tables,
            "sources": kept["sources"],
            "scorer": _scorer(read_status(self._settings.scores_dir)),
        }

    def _stored(self) -> tuple[dict[str, Any], list[str]]:
        """What the store says, and why it is unknown where it does not answer."""
        with self._lock:
            if self._clock() - self._kept_at < KEPT_S:
                return self._kept, []

        def read() -> dict[str, Any]:
            return {
                "tables": [_table(self._store, one) for one in _WATCHED],
                "sources": _sources(self._store),
            }

        try:
            found = self._reads.read("health", read)
        except (ForewarnError, OSError) as error:
            # Errors name places, which are nobody's business here.
            late = f": no answer within {WAIT_S:g} s" if isinstance(error, LateError) else ""
            why = {"covered_until": None, "why": "it cannot be read"}
            tables = [{"table": one.asset_key, **why} for one in _WATCHED]
            return {"tables": tables, "sources": []}, [f"the tables cannot be read{late}"]
        with self._lock:
            self._kept, self._kept_at = found, self._clock()
        return found, []

    def _problems(self, snapshot: Snapshot | None, problem: str, now: datetime) -> list[str]:
        """What is wrong with the published scores, in words."""
        found = [problem] if problem else []
        if snapshot is None:
            return [*found, "no scores are published"]
        if snapshot.is_expired(now):
            found.append("the scores have expired: they say nothing about the present")
        if snapshot.tick.as_of > now + FROM_FUTURE:
            found.append("the scores are of a moment to come: a clock is wrong")
        if snapshot.tick.coverage < self._settings.serving.min_coverage:
            found.append(f"only {snapshot.tick.coverage:.1%} of the GPUs have a score")
        return found


def scores_health(snapshot: Snapshot, now: datetime) -> dict[str, Any]:
    """What the tick says of its own inputs."""
    silent = snapshot.silent_nodes
    return {
        "as_of": snapshot.tick.as_of,
        "age_s": _age(snapshot.tick.as_of, now),
        "is_expired": snapshot.is_expired(now),
        "coverage": snapshot.tick.coverage,
        "n_nodes": len(snapshot.nodes.ids),
        "n_gpus": len(snapshot.gpus.ids),
        "unknown_gpus": dict(snapshot.unknown),
        "n_silent_nodes": len(silent),
        "silent_nodes": list(silent[:MOST_NAMED]),
    }


def _table(store: TableStore, contract: TableContract) -> dict[str, Any]:
    try:
        until = store.covered_until(contract)
    except (ForewarnError, OSError):
        return {"table": contract.asset_key, "covered_until": None, "why": "it cannot be read"}
    why = "nothing is stored" if until is None else None
    return {"table": contract.asset_key, "covered_until": until, "why": why}


def _sources(store: TableStore) -> list[dict[str, Any]]:
    """Each source in the last hour that core/coverage has: how much came, from how many."""
    files = store.files(CORE_COVERAGE)
    if not files:
        return []
    try:
        rows = scan_files(files[-1:])
        last = rows.filter(pl.col("hour") == pl.col("hour").max())
        found = last.group_by("source", "entity_kind").agg(
            hour=pl.col("hour").max(),
            n_entities=pl.len(),
            n_silent=(pl.col("n_received") == 0).sum(),
            n_received=pl.col("n_received").sum(),
            n_expected=pl.when(pl.col("n_expected").is_not_null().any()).then(
                pl.col("n_expected").sum()
            ),
            watermark=pl.col("watermark").max(),
        )
        return found.sort("source", "entity_kind").collect().to_dicts()
    except (PolarsError, OSError):
        return []  # replaced while it was read; the next minute has it


def _scorer(status: ScorerStatus | None) -> dict[str, Any] | None:
    """The scorer's state; its errors name files, so only which parts fail is told."""
    if status is None:
        return None
    return {
        "phase": status.phase,
        "as_of": status.as_of or None,
        "updated_at": status.updated_at or None,
        "started_at": status.started_at or None,
        "n_ticks": status.n_ticks,
        "n_failures": status.n_failures,
        "is_failing": bool(status.last_error),
        "failing_parts": sorted(status.problems),
        "n_open_alerts": status.n_open_alerts,
    }


def _age(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else (now - at).total_seconds()
