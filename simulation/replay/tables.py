"""From core tables to the record of a replay: views of nodes, attempts, outages, scores.

Pure: tables are read in `pipelines.studies.replay.input`; nothing is decided here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from features.errors import DataError
from features.tables import CORE_HEALTH_EVENTS, CORE_INVENTORY, CORE_NODE_STATES, CORE_TOPOLOGY
from remediation.cluster.state import JobView, NodeState
from remediation.policy.costs import DEFAULT_NODE_GPUS
from remediation.policy.evidence import rests_on_applications_alone
from remediation.shadow_outcomes import place_incidents
from simulation.replay.history import (
    Attempt,
    History,
    Hit,
    IntArray,
    NodeAttempts,
    Outage,
    ScoreRows,
    micros,
)
from simulation.replay.node_views import ViewRows, node_changes

STATIC_XIDS: Final = (48, 63, 64, 74, 79, 95)
"""Xids on which many sites drain a node by rule; one event is enough."""
HARDWARE_CAUSES: Final = ("hardware", "hang", "unknown")
"""Causes of a bad end that a failure of the node may be behind; all others explain themselves."""
UNKNOWN_REPAIR: Final = timedelta(hours=24)
"""How long after the onset of a failure without known end a job's bad end is put down to it."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The tables that a replay rests on.

    Attributes:
        incidents: core/incidents.
        jobs: core/jobs.
        node_states: core/node_states.
        inventory: core/inventory.
        topology: core/topology.
        events: core/health_events.
        node_scores: scores/node_scores; None: none are stored.
        rack_level: Topology level that is the rack.
        switch_level: Topology level that is the leaf switch.
        partition_level: Topology level that is the partition or pool.
        state_without_record: State of a node that no interval covers.
    """

    incidents: pl.DataFrame
    jobs: pl.DataFrame
    node_states: pl.DataFrame = field(default_factory=CORE_NODE_STATES.empty)
    inventory: pl.DataFrame = field(default_factory=CORE_INVENTORY.empty)
    topology: pl.DataFrame = field(default_factory=CORE_TOPOLOGY.empty)
    events: pl.DataFrame = field(default_factory=CORE_HEALTH_EVENTS.empty)
    node_scores: pl.DataFrame | None = None
    rack_level: str = "rack"
    switch_level: str = "switch"
    partition_level: str = "pool"
    state_without_record: NodeState = "unknown"


def history_of(
    record: Record,
    *,
    start: datetime,
    end: datetime,
    horizon_h: int,
    repair_hours: float,
    ticks: Sequence[datetime] = (),
    is_synthetic: bool = False,
) -> History:
    """Builds the record of a replay.

    Args:
        record: The tables.
        start: First moment.
        end: End, exclusive.
        horizon_h: Horizon of the scores that are replayed.
        repair_hours: How long a failure without known end takes to repair.
        ticks: Moments of decisions; empty: those of the stored scores.
        is_synthetic: Whether the record is synthetic.

    Raises:
        DataError: There is no node, or no tick within the time.
    """
    names = _names(record)
    code = {name: place for place, name in enumerate(names)}
    low, high = micros(start), micros(end)
    attempts, rows = _attempts(record.jobs, code, start=start, end=end)
    outages, past = _outages(record, code, rows, span=(low, high), repair_hours=repair_hours)
    inside = _ticks(record.node_scores, ticks, span=(start, end), horizon_h=horizon_h)
    scores = _scores(record.node_scores, code, inside, horizon_h=horizon_h)
    changes, sizes = node_changes(
        ViewRows(
            states=record.node_states,
            topology=record.topology,
            inventory=record.inventory,
            levels=(record.rack_level, record.switch_level, record.partition_level),
            without_record=record.state_without_record,
        ),
        names,
    )
    synthetic = is_synthetic or (scores is not None and scores.trained_on == "synthetic")
    return History(
        names=names,
        sizes=tuple(size or DEFAULT_NODE_GPUS for size in sizes),
        start=low,
        end=high,
        ticks=inside,
        changes=changes,
        attempts=attempts,
        outages=outages,
        past=past,
        events=_rule_events(record.events, code),
        scores=scores,
        is_synthetic=synthetic,
    )


def _names(record: Record) -> tuple[str, ...]:
    frames = (record.node_states, record.topology, record.inventory)
    names = tuple(sorted(set().union(*(frame["node"].to_list() for frame in frames))))
    if not names:
        raise DataError(
            "replay: no node is known from node states, topology or inventory. Store one of them."
        )
    return names


@dataclass(frozen=True)
class _Run:
    """An attempt with what says whether a failure ended it."""

    attempt: Attempt
    is_open: bool
    cause: str | None


def _attempts(
    jobs: pl.DataFrame, code: Mapping[str, int], *, start: datetime, end: datetime
) -> tuple[tuple[NodeAttempts, ...], dict[tuple[str, int], _Run]]:
    # A job that ended right before the time may still have been ended by a failure within it.
    ran = jobs.filter(
        pl.col("start").is_not_null(),
        pl.col("start") < end,
        (pl.col("end") >= start).fill_null(value=True),
        pl.col("nodes").list.len() > 0,
    ).sort("start", "job_id", "attempt")
    found: list[list[Attempt]] = [[] for _ in code]
    rows: dict[tuple[str, int], _Run] = {}
    for row in ran.iter_rows(named=True):
        nodes = tuple(dict.fromkeys(code[n] for n in row["nodes"] if n in code))
        if not nodes:
            continue
        one = _attempt(row, nodes, end=end)
        rows[one.key] = _Run(one, row["end"] is None, row["cause"])
        for node in nodes:
            found[node].append(one)
    return tuple(NodeAttempts(tuple(ones)) for ones in found), rows


def _attempt(row: Mapping[str, Any], nodes: tuple[int, ...], *, end: datetime) -> Attempt:
    n_gpus = row["n_gpus"]
    view = JobView(
        job_id=row["job_id"],
        nodes=tuple(row["nodes"]),
        n_gpus=n_gpus,
        start=row["start"],
        user=row["user"],
        partition=row["partition"],
    )
    return Attempt(
        key=(row["job_id"], row["attempt"]),
        nodes=nodes,
        gpus=float(len(nodes) * DEFAULT_NODE_GPUS if n_gpus is None else n_gpus),
        start=micros(row["start"]),
        end=micros(row["end"] or end),
        view=view,
    )


def _outages(
    record: Record,
    code: Mapping[str, int],
    runs: Mapping[tuple[str, int], _Run],
    *,
    span: tuple[int, int],
    repair_hours: float,
) -> tuple[tuple[Outage, ...], tuple[tuple[int, ...], ...]]:
    """Outages within the time, and the starts of all incidents of each node."""
    past: list[list[int]] = [[] for _ in code]
    by_node: dict[int, list[tuple[int, int, int, str | None]]] = {}
    for row in place_incidents(record.incidents, record.inventory):
        node = code.get(row["node"])
        if node is None:
            continue
        start = micros(row["start"])
        past[node].append(start)
        if span[0] <= start < span[1]:
            until = row["end"] or row["start"] + UNKNOWN_REPAIR
            repaired = row["end"] or row["start"] + timedelta(hours=repair_hours)
            found = (start, micros(repaired), micros(until), row["fault_type"])
            by_node.setdefault(node, []).append(found)
    ordered = sorted((one[0], node, one) for node, ones in by_node.items() for one in ones)
    hits = _hits(ordered, runs.values())
    merged = [one for node, ones in by_node.items() for one in _merged(node, sorted(ones), hits)]
    merged.sort(key=lambda one: (one.start, one.node))
    numbered = tuple(replace(one, number=number) for number, one in enumerate(merged))
    return numbered, tuple(tuple(sorted(starts)) for starts in past)


def _hits(
    ordered: Iterable[tuple[int, int, tuple[int, int, int, str | None]]],
    runs: Iterable[_Run],
) -> dict[tuple[int, int], list[Hit]]:
    """The attempts that each incident ended, by node and start; the first incident has them."""
    on_node: dict[int, list[_Run]] = {}
    for run in runs:
        if run.cause in HARDWARE_CAUSES and not run.is_open:
            for node in run.attempt.nodes:
                on_node.setdefault(node, []).append(run)
    taken: set[tuple[str, int]] = set()
    found: dict[tuple[int, int], list[Hit]] = {}
    for start, node, (_, _, until, _) in ordered:
        for run in on_node.get(node, ()):
            one = run.attempt
            if one.start < start <= one.end <= until and one.key not in taken:
                taken.add(one.key)
                found.setdefault((node, start), []).append(Hit(attempt=one, onset=start))
    return found


def _merged(
    node: int,
    ones: Iterable[tuple[int, int, int, str | None]],
    hits: Mapping[tuple[int, int], Sequence[Hit]],
) -> list[Outage]:
    found: list[Outage] = []
    seen: set[int] = set()
    for start, end, _, fault_type in ones:
        own = tuple(hits.get((node, start), ())) if start not in seen else ()
        seen.add(start)
        if found and start <= found[-1].end:
            last = found[-1]
            found[-1] = Outage(
                number=0,
                node=node,
                start=last.start,
                end=max(last.end, end),
                fault_type=last.fault_type,
                hits=last.hits + own,
            )
        else:
            found.append(
                Outage(number=0, node=node, start=start, end=end, fault_type=fault_type, hits=own)
            )
    return found


def _rule_events(events: pl.DataFrame, code: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    named = events.filter(pl.col("kind") == "xid", pl.col("code").is_in(STATIC_XIDS)).sort("ts")
    pairs = named.select("ts", "node").iter_rows()
    return tuple((micros(ts), code[node]) for ts, node in pairs if node in code)


def _ticks(
    scores: pl.DataFrame | None,
    ticks: Sequence[datetime],
    *,
    span: tuple[datetime, datetime],
    horizon_h: int,
) -> IntArray:
    """The moments of decisions: those that are given, otherwise those of the scores."""
    found = list(ticks)
    if not found and scores is not None:
        found = scores.filter(pl.col("horizon_h") == horizon_h)["as_of"].unique().to_list()
    inside = sorted({micros(at) for at in found if span[0] <= at < span[1]})
    if not inside:
        known = [] if scores is None else sorted(scores["horizon_h"].unique())
        stored = ", ".join(f"{hours} h" for hours in known) or "none"
        raise DataError(
            f"replay: no score of horizon {horizon_h} h between {span[0]} and {span[1]}. Stored "
            f"are horizons {stored}: set horizon_h in the policy file, or another time."
        )
    return np.array(inside, dtype=np.int64)


def _scores(
    scores: pl.DataFrame | None, code: Mapping[str, int], ticks: IntArray, *, horizon_h: int
) -> ScoreRows | None:
    """The scores of one horizon; where two models scored a node, the later version's row counts."""
    if scores is None:
        return None
    codes = pl.DataFrame({"entity_id": list(code), "_node": range(len(code))})
    places = pl.DataFrame({"_at": ticks, "_tick": np.arange(len(ticks))})
    own = (
        scores.filter(pl.col("horizon_h") == horizon_h)
        .with_columns(_at=pl.col("as_of").dt.epoch("us"))
        .join(codes, on="entity_id")
        .join(places, on="_at")
        .sort("_tick", "_node", "model_version")
        .unique(["_tick", "_node"], keep="last", maintain_order=True)
    )
    faults = tuple(sorted(own["fault_type"].drop_nulls().unique()))
    place = {name: number for number, name in enumerate(faults)}
    known = pl.col("score").is_not_null() & (pl.col("status") != "unknown")
    score = own.select(pl.when(known).then("score"))["score"]
    lists = own["reasons"].unique().drop_nulls().to_list() if own.height else []
    alone = [one for one in lists if rests_on_applications_alone(one)]
    return ScoreRows(
        tick=own["_tick"].to_numpy().astype(np.int64),
        node=own["_node"].to_numpy().astype(np.int64),
        score=score.cast(pl.Float64).fill_null(float("nan")).to_numpy(),
        fault=np.array([place.get(name, -1) for name in own["fault_type"]], dtype=np.int64),
        faults=faults,
        is_prior=(own["status"] == "prior").to_numpy(),
        is_application_only=np.array([one in alone for one in own["reasons"].to_list()], bool)
        if alone
        else np.zeros(own.height, dtype=bool),
        versions=tuple(sorted(own["model_version"].unique())),
        trained_on="synthetic" if "synthetic" in own["trained_on"].unique() else "real",
    )
