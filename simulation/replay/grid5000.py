"""A record from two public traces: node states of Grid'5000, with jobs of Philly on its nodes.

Pure. Neither trace knows of the other, so every rule here is an assumption, stated in
docs/replay.md; scores come from a model of the nodes' own past, fitted only on what lies before.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from features.errors import DataError
from features.tables import (
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
    NODE_SCORES,
)
from simulation.replay.history import HOUR, BoolArray, FloatArray, IntArray, micros, moment_of
from simulation.replay.tables import Record

NODE_GPUS: Final = 8
PARTITION: Final = "philly"
LEAST_DOWN: Final = timedelta(minutes=15)
"""A shorter time down is a reboot between two users, as Grid'5000 has by design, and no failure."""
WEEK_H: Final = 168
_COUNT_EDGES: Final = (1, 2, 4)
_SINCE_EDGES_H: Final = (6.0, 24.0, 72.0, 168.0)
_PRIOR_ROWS: Final = 200.0
"""How many rows of the fleet's own rate each cell of the model is mixed with."""


@dataclass(frozen=True)
class Downs:
    """When each node was down, by code.

    Attributes:
        names: Node names.
        starts: Starts of each node, rising.
        ends: Ends of each node.
    """

    names: tuple[str, ...]
    starts: tuple[IntArray, ...]
    ends: tuple[IntArray, ...]


def downs_of(states: pl.DataFrame, *, cluster: str) -> Downs:
    """The failures of one cluster.

    Args:
        states: `node` (`G1/site/cluster/node`), `is_up`, `start`, `stop`.
        cluster: `site/cluster`.

    Raises:
        DataError: There is no such cluster.
    """
    own = states.filter(pl.col("node").str.contains(f"/{cluster}/", literal=True))
    if own.is_empty():
        known = states["node"].str.extract(r"^[^/]+/(.+)/[^/]+$").drop_nulls().unique().sort()
        raise DataError(f"no node of cluster {cluster!r}; clusters are {', '.join(known)}")
    down = own.filter(~pl.col("is_up"), pl.col("stop") - pl.col("start") >= LEAST_DOWN)
    raw = sorted(own["node"].unique(), key=lambda name: (len(name), name))
    by_node = {
        str(key[0]): part.sort("start")
        for key, part in down.partition_by("node", as_dict=True).items()
    }
    none = down.clear()
    frames = [by_node.get(name, none) for name in raw]
    return Downs(
        # A slash could mean more than one node to the hook.
        names=tuple("-".join(name.split("/")[1:]) for name in raw),
        starts=tuple(one["start"].dt.epoch("us").to_numpy() for one in frames),
        ends=tuple(one["stop"].dt.epoch("us").to_numpy() for one in frames),
    )


def record_of(
    downs: Downs,
    jobs: pl.DataFrame,
    *,
    start: datetime,
    end: datetime,
    horizon_h: int,
    checkpoint_h: float,
) -> Record:
    """The record of a time: failures, placed jobs, and scores at every full hour.

    Args:
        downs: Failures, from long before `start`.
        jobs: Rows of `simulation.job_trace.usable_jobs`; the first is submitted at `start`.
        start: First moment.
        end: End, exclusive.
        horizon_h: Horizon of the scores.
        checkpoint_h: Work that a failure costs a job, at most.
    """
    attempts = place_jobs(
        downs, jobs, start=micros(start), end=micros(end), lost=round(checkpoint_h * HOUR)
    )
    rows = [
        {
            "incident_id": f"{name}-{low}", "entity_kind": "node", "entity_id": name, "node": name,
            "start": moment_of(low), "end": moment_of(high), "fault_type": "host",
            "evidence": "node down", "detected_by": "node_state", "catalogue_version": "1",
        }
        for name, lows, highs in zip(downs.names, downs.starts, downs.ends, strict=True)
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
    ]  # fmt: skip
    states = [
        {"node": one["node"], "state": "down", "valid_from": one["start"], "valid_to": one["end"]}
        for one in rows
    ]
    places = [{"node": name, "level": "pool", "place": PARTITION} for name in downs.names]
    gpus = [
        {"gpu_uuid": f"{name}-{slot}", "node": name, "slot": str(slot)}
        for name in downs.names
        for slot in range(NODE_GPUS)
    ]
    return Record(
        incidents=pl.DataFrame(rows, schema=CORE_INCIDENTS.schema),
        jobs=pl.DataFrame(attempts, schema=CORE_JOBS.schema),
        node_states=pl.DataFrame(states, schema=CORE_NODE_STATES.schema),
        inventory=pl.DataFrame(gpus, schema=CORE_INVENTORY.schema),
        topology=pl.DataFrame(places, schema=CORE_TOPOLOGY.schema),
        node_scores=rolling_scores(downs, start=start, end=end, horizon_h=horizon_h),
        state_without_record="up",
    )


@dataclass(order=True)
class _Waiting:
    """A job in the queue, or its next attempt: first come, first served."""

    at: int
    number: int
    attempt: int = field(compare=False)
    gpus: int = field(compare=False)
    left: int = field(compare=False)


def place_jobs(
    downs: Downs, jobs: pl.DataFrame, *, start: int, end: int, lost: int
) -> list[dict[str, Any]]:
    """Places jobs by a plain rule, and ends those whose node fails.

    First come, first served, none overtakes. A job of up to eight GPUs goes to the node with the
    fewest free GPUs that suffice, a larger one to as many empty nodes as it needs, by code. When a
    node fails, its jobs end there, lose at most `lost` of their work, and queue again at once,
    before all that came later.

    Args:
        downs: Failures.
        jobs: As for `record_of`.
        start: When the first is submitted.
        end: No attempt starts at or after it.
        lost: Work lost with a failure, at most.

    Returns:
        Rows of core/jobs.

    Raises:
        DataError: A job is larger than all nodes together.
    """
    return _Placing(downs, end=end, lost=lost).run(
        _queue(jobs, n_nodes=len(downs.names), start=start, end=end)
    )


def _queue(jobs: pl.DataFrame, *, n_nodes: int, start: int, end: int) -> list[_Waiting]:
    known = jobs.select(
        pl.col("timestamp").dt.epoch("us"), (pl.col("duration") * 1e6).cast(pl.Int64), "num_gpus"
    )
    ordered = known.sort("timestamp", maintain_order=True)
    shift = start - (ordered["timestamp"].min() or 0)  # type: ignore[operator]
    most = NODE_GPUS * n_nodes
    larger = ordered.filter(pl.col("num_gpus") > most)
    if not larger.is_empty():
        raise DataError(
            f"{larger.height:,} jobs are larger than the {n_nodes} nodes of {NODE_GPUS} GPUs and "
            f"would hold up the queue for ever, the first with {larger['num_gpus'][0]:,} GPUs; "
            "take them out of the jobs"
        )
    found = [
        _Waiting(at + shift, number, 0, gpus, left)
        for number, (at, left, gpus) in enumerate(ordered.iter_rows())
    ]
    return [one for one in found if one.at < end]


@dataclass
class _Running:
    """An attempt that runs."""

    job: _Waiting
    since: int
    nodes: tuple[int, ...]
    is_over: bool = False


class _Placing:
    """The state of the placement: free GPUs, who runs where, and what comes next."""

    def __init__(self, downs: Downs, *, end: int, lost: int) -> None:
        self.names, self.end, self.lost = downs.names, end, lost
        self.free = [NODE_GPUS] * len(downs.names)
        self.is_up = [True] * len(downs.names)
        self.on_node: list[list[_Running]] = [[] for _ in downs.names]
        self.rows: list[dict[str, Any]] = []
        self.waiting: list[_Waiting] = []
        # Kind orders what happens at once: repairs, ends, failures, and then arrivals.
        self.events: list[tuple[int, int, int, Any]] = []
        for node, (lows, highs) in enumerate(zip(downs.starts, downs.ends, strict=True)):
            for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
                self.events += [(high, 0, node, None), (low, 2, node, None)]

    def run(self, queue: Sequence[_Waiting]) -> list[dict[str, Any]]:
        self.events += [(one.at, 3, one.number, one) for one in queue]
        heapq.heapify(self.events)
        while self.events and self.events[0][0] < self.end:
            now, kind, node, what = heapq.heappop(self.events)
            if kind == 0:
                self.is_up[node] = True
            elif kind == 1 and not what.is_over:
                self._stop(what, now, cause=None)
            elif kind == 2:
                self._fail(node, now)
            elif kind == 3:
                heapq.heappush(self.waiting, what)
            # What happens at once is one change; jobs start after all of it.
            if not self.events or self.events[0][0] != now:
                self._start_waiting(now)
        # A job of several nodes stands on each of them.
        left = {one.job.number: one for ones in self.on_node for one in ones}
        return [*self.rows, *(self._row(one, None, None) for one in left.values())]

    def _start_waiting(self, now: int) -> None:
        while self.waiting:
            nodes = self._nodes_for(self.waiting[0].gpus)
            if nodes is None:
                return
            job = heapq.heappop(self.waiting)
            running = _Running(job, now, nodes)
            for node in nodes:
                self.free[node] -= min(job.gpus, NODE_GPUS)
                self.on_node[node].append(running)
            heapq.heappush(self.events, (now + job.left, 1, job.number, running))

    def _nodes_for(self, gpus: int) -> tuple[int, ...] | None:
        up = [node for node in range(len(self.free)) if self.is_up[node]]
        if gpus <= NODE_GPUS:
            fits = [(self.free[node], node) for node in up if self.free[node] >= gpus]
            return (min(fits)[1],) if fits else None
        empty = [node for node in up if self.free[node] == NODE_GPUS]
        count = -(-gpus // NODE_GPUS)
        return tuple(empty[:count]) if len(empty) >= count else None

    def _fail(self, node: int, now: int) -> None:
        self.is_up[node] = False
        for running in list(self.on_node[node]):
            job = running.job
            self._stop(running, now, cause="hardware")
            done = now - running.since
            left = job.left - done + min(done, self.lost)
            again = _Waiting(job.at, job.number, job.attempt + 1, job.gpus, left)
            heapq.heappush(self.waiting, again)

    def _stop(self, running: _Running, now: int, *, cause: str | None) -> None:
        running.is_over = True
        for node in running.nodes:
            self.on_node[node].remove(running)
            self.free[node] += min(running.job.gpus, NODE_GPUS)
        if now > running.since:
            self.rows.append(self._row(running, now, cause))

    def _row(self, running: _Running, end: int | None, cause: str | None) -> dict[str, Any]:
        job = running.job
        return {
            "job_id": f"j{job.number}",
            "attempt": job.attempt,
            "partition": PARTITION,
            "nodes": [self.names[node] for node in running.nodes],
            "n_gpus": job.gpus,
            "start": moment_of(running.since),
            "end": None if end is None else moment_of(end),
            "cause": cause,
        }


def rolling_scores(downs: Downs, *, start: datetime, end: datetime, horizon_h: int) -> pl.DataFrame:
    """Scores at every full hour, by a table of rates fitted anew each week on what lies before it.

    A row's cell is its failures in the last 7 days and the time since the last repair. The rate of
    a cell is the share of its earlier rows whose node failed within the horizon, mixed with the
    fleet's own. A row counts only where its horizon was over when the week began; a node that is
    down has no score.

    Args:
        downs: Failures, from long before `start`.
        start: First hour.
        end: End, exclusive.
        horizon_h: Horizon.

    Returns:
        scores/node_scores.
    """
    first = min((int(one[0]) for one in downs.starts if one.size), default=micros(start))
    low, high = micros(start), micros(end)
    n_before = max(0, (low - first) // HOUR)
    times = low + HOUR * np.arange(-n_before, -(-(high - low) // HOUR), dtype=np.int64)
    cells, labels, up = _rows(downs, times, horizon=horizon_h * HOUR)
    scores = np.full(cells.shape, np.nan)
    for place in range(n_before, times.size, WEEK_H):
        known = times + horizon_h * HOUR <= times[place]
        rates = _rates(cells[:, known][up[:, known]], labels[:, known][up[:, known]])
        week = slice(place, min(times.size, place + WEEK_H))
        scores[:, week] = np.where(up[:, week], rates[cells[:, week]], np.nan)
    return _score_frame(downs.names, times[n_before:], scores[:, n_before:], horizon_h=horizon_h)


def _rows(downs: Downs, times: IntArray, *, horizon: int) -> tuple[IntArray, FloatArray, BoolArray]:
    """Cell, label and whether it is up, of each node and time; only what began before counts."""
    shape = (len(downs.names), times.size)
    cells, labels = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    up = np.ones(shape, dtype=bool)
    for node, (starts, ends) in enumerate(zip(downs.starts, downs.ends, strict=True)):
        begun = np.searchsorted(starts, times)
        recent = begun - np.searchsorted(starts, times - WEEK_H * HOUR)
        labels[node] = np.searchsorted(starts, times + horizon) > begun
        if ends.size:
            last_end = ends[np.maximum(begun - 1, 0)]
            up[node] = (begun == 0) | (last_end <= times)
            since_h = np.where(begun == 0, np.inf, (times - last_end) / HOUR)
        else:
            since_h = np.full(times.size, np.inf)
        count_cell = np.searchsorted(_COUNT_EDGES, recent, side="right")
        since_cell = np.searchsorted(_SINCE_EDGES_H, since_h, side="right")
        cells[node] = count_cell * (len(_SINCE_EDGES_H) + 1) + since_cell
    return cells, labels, up


def _rates(cells: IntArray, labels: FloatArray) -> FloatArray:
    size = (len(_COUNT_EDGES) + 1) * (len(_SINCE_EDGES_H) + 1)
    rows = np.bincount(cells, minlength=size)
    failed = np.bincount(cells, weights=labels, minlength=size)
    base = labels.mean() if labels.size else 0.0
    rates: FloatArray = (failed + _PRIOR_ROWS * base) / (rows + _PRIOR_ROWS)
    return rates


def _score_frame(
    names: Sequence[str], times: IntArray, scores: FloatArray, *, horizon_h: int
) -> pl.DataFrame:
    n_nodes, n_times = scores.shape
    node = np.repeat(np.array(names), n_times)
    frame = pl.DataFrame(
        {
            "entity_id": node,
            "node": node,
            "as_of": np.tile(times, n_nodes),
            "score": pl.Series(scores.ravel()).fill_nan(None),
        }
    ).with_columns(
        pl.lit("node").alias("entity_kind"),
        pl.col("as_of").cast(pl.Datetime("us", "UTC")),
        pl.lit(horizon_h, dtype=pl.Int32).alias("horizon_h"),
        pl.when(pl.col("score").is_null())
        .then(pl.lit("unknown"))
        .otherwise(pl.lit("ok"))
        .alias("status"),
        pl.lit("own-past/1").alias("model_version"),
        pl.lit("real").alias("trained_on"),
    )
    missing = [
        pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in NODE_SCORES.schema.items()
        if name not in frame.columns
    ]
    return frame.with_columns(missing).select(*NODE_SCORES.schema)
