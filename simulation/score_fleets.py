"""Fleets simulated at the level of scores: what a model would say of nodes, and what comes.

For checks of warning policies on hundreds of fleets; telemetry is simulated in `simulation.fleet`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.signal import lfilter

from features.contracts import UTC_TIME
from models.calibration import sigmoid
from models.specs import Task

TICK: Final = timedelta(hours=1)
TASK: Final = Task(
    horizon_h=24, lead=timedelta(hours=1), trained_on="synthetic", entity_kind="node"
)
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
REPAIR_H: Final = 12

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ScoreProcess:
    """How scores and incidents of nodes come about; the same at all times.

    A node's signal is its own level, plus noise that persists, plus `height` in the hours
    before an incident that announces itself and in those of a false alarm.

    Attributes:
        incidents_per_node_day: Incidents with a cause of their own.
        announced: Share of causes with a precursor.
        precursor_h: Shortest and longest precursor, hours.
        height: What a precursor adds to the signal, in standard deviations of the noise.
        persistence: Correlation of the noise from one hour to the next.
        level_sd: Spread of the nodes' own levels: how wrong scores are about single nodes.
        spells_per_node_day: False precursors of single nodes.
        chronic_share: Share of nodes with ten times the spells.
        shared_causes_per_day: Causes that strike several of 1,000 nodes (a bad batch, a switch).
        false_waves_per_day: False precursors that several of 1,000 nodes share (a hot day).
        shared_nodes: Nodes struck by one of these, on average.
        spread_h: Hours within which they are struck.
        slope: Log-odds per standard deviation; a wrong one makes scores miscalibrated.
    """

    incidents_per_node_day: float = 0.006
    announced: float = 0.7
    precursor_h: tuple[float, float] = (4.0, 24.0)
    height: float = 6.0
    persistence: float = 0.8
    level_sd: float = 0.3
    spells_per_node_day: float = 0.0002
    chronic_share: float = 0.0
    shared_causes_per_day: float = 0.0
    false_waves_per_day: float = 0.0
    shared_nodes: float = 6.0
    spread_h: float = 4.0
    slope: float = 1.0


class ScoreFleet(NamedTuple):
    """Rows of nodes (`entity_id`, `node`, `as_of`, `score`, `label`), and incidents of them."""

    rows: pl.DataFrame
    incidents: pl.DataFrame


class _Onsets(NamedTuple):
    """Starts of incidents or ends of false precursors: node and hour, shapes (n,)."""

    node: IntArray
    hour: FloatArray
    cause: IntArray


def draw_fleet(
    process: ScoreProcess, *, n_nodes: int, days: int, seed: int, floor: float = 2.5
) -> ScoreFleet:
    """Draws a fleet.

    Args:
        process: What comes about, and how.
        n_nodes: Nodes.
        days: Length of the record.
        seed: Seed; equal seeds give equal fleets.
        floor: Rows whose signal is lower are left out: no threshold worth having is there.

    Returns:
        Its rows, those above the floor, and its incidents.
    """
    rng = np.random.default_rng(seed)
    hours = days * 24
    incidents = _onsets(
        rng,
        n_nodes=n_nodes,
        hours=hours,
        single=np.full(n_nodes, process.incidents_per_node_day),
        shared_per_day=process.shared_causes_per_day,
        process=process,
    )
    is_chronic = rng.random(n_nodes) < process.chronic_share
    spells = _onsets(
        rng,
        n_nodes=n_nodes,
        hours=hours,
        single=process.spells_per_node_day * np.where(is_chronic, 10.0, 1.0),
        shared_per_day=process.false_waves_per_day,
        process=process,
    )
    signal = _noise(rng, n_nodes=n_nodes, hours=hours, process=process)
    causes = int(incidents.cause.max(initial=0)) + 1
    is_announced = (rng.random(causes) < process.announced)[incidents.cause]
    for onsets, is_seen in ((incidents, is_announced), (spells, spells.node >= 0)):
        _add_precursors(signal, onsets, is_seen, rng=rng, process=process)
    label = _labels(incidents, n_nodes=n_nodes, hours=hours)
    node, hour = np.nonzero(signal >= floor)
    return ScoreFleet(
        _rows(node, hour, score=sigmoid(process.slope * (signal[node, hour] - 5.0)), label=label),
        _incident_frame(incidents),
    )


def _onsets(
    rng: np.random.Generator,
    *,
    n_nodes: int,
    hours: int,
    single: FloatArray,
    shared_per_day: float,
    process: ScoreProcess,
) -> _Onsets:
    """Single ones at each node's own rate, and shared ones, sorted by cause."""
    counts = rng.poisson(single * hours / 24.0)
    node = [np.repeat(np.arange(n_nodes), counts)]
    hour = [rng.uniform(0.0, hours, int(counts.sum()))]
    cause = [np.arange(node[0].size)]
    n_shared = rng.poisson(shared_per_day * hours / 24.0 * n_nodes / 1000.0)
    for shared in range(n_shared):
        size = min(1 + rng.poisson(process.shared_nodes - 1.0), n_nodes)
        node.append(rng.choice(n_nodes, size=size, replace=False))
        hour.append(rng.uniform(0.0, hours) + rng.uniform(0.0, process.spread_h, size))
        cause.append(np.full(size, cause[0].size + shared))
    return _Onsets(np.concatenate(node), np.concatenate(hour), np.concatenate(cause))


def _noise(
    rng: np.random.Generator, *, n_nodes: int, hours: int, process: ScoreProcess
) -> FloatArray:
    """Levels and persistent noise of standard deviation 1, shape (nodes, hours)."""
    rho = process.persistence
    shocks = rng.standard_normal((n_nodes, hours))
    shocks[:, 1:] *= np.sqrt(1.0 - rho * rho)
    levels = process.level_sd * rng.standard_normal((n_nodes, 1))
    return np.asarray(lfilter([1.0], [1.0, -rho], shocks, axis=1) + levels, dtype=np.float64)


def _add_precursors(
    signal: FloatArray,
    onsets: _Onsets,
    is_seen: npt.NDArray[np.bool_],
    *,
    rng: np.random.Generator,
    process: ScoreProcess,
) -> None:
    length = rng.uniform(*process.precursor_h, onsets.node.size)
    for node, hour, before in zip(
        onsets.node[is_seen], onsets.hour[is_seen], length[is_seen], strict=True
    ):
        signal[node, max(int(hour - before), 0) : int(hour) + 1] += process.height


def _labels(incidents: _Onsets, *, n_nodes: int, hours: int) -> npt.NDArray[np.int8]:
    """1, 0, or -1 for unknown, shape (nodes, hours)."""
    lead = TASK.lead / timedelta(hours=1)
    ahead = TASK.embargo / timedelta(hours=1)
    label = np.zeros((n_nodes, hours), dtype=np.int8)
    moments = np.arange(hours)
    for node, hour in zip(incidents.node, incidents.hour, strict=True):
        label[node, (moments > hour - ahead) & (moments <= hour - lead)] = 1
    for node, hour in zip(incidents.node, incidents.hour, strict=True):
        label[node, (moments > hour - lead) & (moments < hour + REPAIR_H)] = -1
    label[:, moments + ahead > hours] = -1
    return label


def _rows(
    node: IntArray, hour: IntArray, *, score: FloatArray, label: npt.NDArray[np.int8]
) -> pl.DataFrame:
    said = label[node, hour]
    return pl.DataFrame({"node": node, "hour": hour, "score": score, "label": said}).select(
        entity_id=pl.format("node-{}", "node"),
        node=pl.format("node-{}", "node"),
        as_of=(pl.lit(START) + pl.duration(hours="hour")).cast(UTC_TIME),
        score="score",
        label=pl.when(pl.col("label") >= 0).then("label"),
    )


def _incident_frame(incidents: _Onsets) -> pl.DataFrame:
    names = [f"node-{node}" for node in incidents.node]
    return pl.DataFrame(
        {
            "incident_id": [f"inc-{i}" for i in range(len(names))],
            "entity_kind": "node",
            "entity_id": names,
            "node": names,
            "start": [START + timedelta(hours=hour) for hour in incidents.hour.tolist()],
        },
        schema_overrides={
            "start": UTC_TIME,
            "incident_id": pl.String,
            "entity_id": pl.String,
            "node": pl.String,
        },
    )
