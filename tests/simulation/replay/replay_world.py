"""Small records for the tests of the replay: tables by hand, times in hours after one moment.

No test is here.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from features.contracts import TableContract
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
    NODE_SCORES,
)
from remediation.site import Burst, Caps, Costs, LevelRule, Site
from remediation.site import Warning as WarningSettings
from simulation.replay.history import History
from simulation.replay.tables import Record, history_of

T = datetime(2026, 1, 5, tzinfo=UTC)
H = timedelta(hours=1)
COSTS = Costs(
    restart_minutes=12, wait_minutes=48, detection_minutes=30, lost_work_minutes=60,
    notice_minutes=30, drain_hours=0.5, repair_hours=8, planned_repair_hours=8,
)  # fmt: skip
FREE = Site(
    costs=COSTS,
    caps=Caps(
        held_percent=100, held_most=1000, partition_percent=100, per_rack=None, per_job=1000,
        actions_per_hour=1000,
    ),
    warning=WarningSettings(threshold=0.5, n=1, k=1, tick_minutes=60),
    burst=Burst(fleet_nodes=1000, component_nodes=1000),
    levels=(LevelRule(level="notify_then_drain"),),
    undrain_cooldown_hours=0,
)  # fmt: skip
"""Everything allowed: what is left are the policy and the costs."""


def table(contract: TableContract, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=contract.schema)


def job(
    name: str, start: float, end: float | None, cause: str | None = None, **changes: Any
) -> dict[str, Any]:
    return {
        "job_id": name, "attempt": 0, "nodes": ["a"], "n_gpus": 4, "start": T + start * H,
        "end": None if end is None else T + end * H, "cause": cause, "partition": "batch",
    } | changes  # fmt: skip


def incident(
    at: float, *, end: float | None = None, node: str = "a", **changes: Any
) -> dict[str, Any]:
    return {
        "incident_id": f"i-{node}-{at}", "entity_kind": "node", "entity_id": node, "node": node,
        "start": T + at * H, "end": T + (at + 2 if end is None else end) * H,
        "fault_type": "nvlink", "evidence": "Xid 74", "detected_by": "xid",
        "catalogue_version": "1",
    } | changes  # fmt: skip


def score(at: float, value: float | None, node: str = "a", **changes: Any) -> dict[str, Any]:
    return {
        "entity_kind": "node", "entity_id": node, "node": node, "as_of": T + at * H,
        "horizon_h": 24, "score": value, "status": "unknown" if value is None else "ok",
        "reasons": [], "missing_share": 0.0, "model_version": "m/1", "trained_on": "real",
    } | changes  # fmt: skip


def event(at: float, node: str = "a", code: int = 48) -> dict[str, Any]:
    return {
        "event_id": f"{node}-{at}", "ts": T + at * H, "node": node, "kind": "xid", "code": code,
        "count": 1,
    }  # fmt: skip


def state(
    node: str, low: float | None, high: float | None, what: str = "down", **changes: Any
) -> dict[str, Any]:
    return {
        "node": node, "state": what, "valid_from": None if low is None else T + low * H,
        "valid_to": None if high is None else T + high * H,
    } | changes  # fmt: skip


def record(
    *,
    nodes: Sequence[str] = ("a", "b", "c"),
    jobs: Sequence[Mapping[str, Any]] = (),
    incidents: Sequence[Mapping[str, Any]] = (),
    scores: Sequence[Mapping[str, Any]] | None = (),
    events: Sequence[Mapping[str, Any]] = (),
    states: Sequence[Mapping[str, Any]] = (),
    racks: Mapping[str, str] | None = None,
) -> Record:
    """A record of nodes with 8 GPUs each, up where nothing else is said."""
    places = [{"node": node, "level": "pool", "place": "batch"} for node in nodes]
    places += [{"node": n, "level": "rack", "place": r} for n, r in (racks or {}).items()]
    gpus = [{"gpu_uuid": f"{n}-{i}", "node": n, "slot": str(i)} for n in nodes for i in range(8)]
    return Record(
        incidents=table(CORE_INCIDENTS, incidents),
        jobs=table(CORE_JOBS, jobs),
        node_states=table(CORE_NODE_STATES, states),
        inventory=table(CORE_INVENTORY, gpus),
        topology=table(CORE_TOPOLOGY, places),
        events=table(CORE_HEALTH_EVENTS, events),
        node_scores=None if scores is None else table(NODE_SCORES, scores),
        state_without_record="up",
    )


def history(given: Record, *, hours: float = 72, site: Site = FREE, every_h: float = 1) -> History:
    """The record from T on, with a tick every hour."""
    n_ticks = int(hours / every_h)
    return history_of(
        given,
        start=T,
        end=T + hours * H,
        horizon_h=site.horizon_h,
        repair_hours=site.costs.repair_hours,
        ticks=[T + every_h * n * H for n in range(n_ticks)],
    )
