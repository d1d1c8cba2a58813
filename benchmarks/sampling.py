"""Training on all positives and a weighted share of the negatives, against training on all rows.

The rows come from the fleet simulator: GPUs of an H100 fleet every six hours, with the features of
events, history and repairs, and for each kind of sign a counter that rises while the simulated
signs go on, decoys included, over a background that says nothing. Both train with the same
settings on the same earlier days and are judged by average precision on the later ones, after an
embargo. One thread; another fleet for each seed.

Run as `python -m benchmarks.sampling`.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl
from sklearn.metrics import average_precision_score

from features.contracts import UTC_TIME, TableContract
from features.core_tables import CoreTables
from features.grid import as_of_times, watched_grid
from features.labels import LabelSpec, build_labels
from features.matrix import MatrixSpec, build_gpu_matrix, matrix_features
from features.registry import feature_names
from features.tables import CORE_HEALTH_EVENTS, CORE_INCIDENTS, CORE_INVENTORY, CORE_MAINTENANCE
from models.specs import Task, TrainSpec
from models.training.boosters import train, training_rows
from pipelines.sources.catalogue import load_catalogue
from simulation.fleet.events import tell_node
from simulation.fleet.generate import Fleet, simulate_failures
from simulation.fleet.incidents import Episode, NodeTruth, Stay
from simulation.regimes.load import load_regime

SEEDS: Final = (1, 2, 3, 4, 5)
SHARES: Final = (0.1, 0.05, 0.02)
HELD_TO: Final = 0.05  # the share that is held to the limits
LEAST_GAIN: Final = 7.0
MOST_LOSS: Final = 0.01
_T_OF_FOUR: Final = 2.776  # 95 % of a t distribution with one degree less than there are seeds
NODES: Final = 1_000
DAYS: Final = 90
TRAIN_DAYS: Final = 60
EVERY: Final = timedelta(hours=6)
TASK: Final = Task(horizon_h=24, lead=timedelta(minutes=30), trained_on="synthetic")
_NOISE_COLUMNS: Final = 40  # gauges of healthy GPUs: a matrix is mostly such columns
_BACKGROUND: Final = 0.3  # counts a day that mean nothing


def fleet_tables(fleet: Fleet) -> CoreTables:
    """What a site would have recorded of a fleet: its stays, noticed incidents and Xids."""
    incidents, stays, events = [], [], []
    for truth in fleet.nodes:
        node = truth.node.name
        stays += [
            (
                stay.gpu.gpu_uuid,
                node,
                str(stay.gpu.slot),
                stay.gpu.batch.name,
                *(None if s is None else fleet.moment(s) for s in (stay.from_s, stay.to_s)),
            )
            for stay in truth.stays
        ]
        incidents += [
            (x.gpu_uuid, node, fleet.moment(x.onset_s), fleet.moment(x.end_s), x.fault.fault_type)
            for x in truth.incidents
            if x.is_noticed and x.gpu_uuid is not None
        ]
        for line in tell_node(fleet.regime, truth, (), seed=fleet.seed).lines:
            gpu = _in_slot(truth.stays, line.slot, line.at_s) if line.code is not None else None
            if gpu is not None:
                events.append((fleet.moment(line.at_s), node, gpu, line.code))
    stay_names = ["gpu_uuid", "node", "slot", "batch", "valid_from", "valid_to"]
    incident_names = ["entity_id", "node", "start", "end", "fault_type"]
    return CoreTables(
        inventory=_table(CORE_INVENTORY, stays, stay_names, {}),
        incidents=_table(
            CORE_INCIDENTS,
            incidents,
            incident_names,
            {"entity_kind": "gpu", "evidence": "-", "detected_by": "xid", "catalogue_version": "-"},
        ).with_columns(incident_id=pl.int_range(pl.len()).cast(pl.String)),
        health_events=_table(
            CORE_HEALTH_EVENTS, events, ["ts", "node", "gpu_uuid", "code"], {"kind": "xid"}
        ),
    )


def _table(
    contract: TableContract,
    rows: Sequence[tuple[object, ...]],
    names: list[str],
    same: dict[str, str],
) -> pl.DataFrame:
    known = {name: contract.schema[name] for name in names}
    frame = pl.DataFrame(rows, schema=known, orient="row")
    given = frame.with_columns(pl.lit(word).alias(name) for name, word in same.items())
    missing = [name for name in contract.schema.names() if name not in given.columns]
    return given.with_columns(
        pl.lit(None, contract.schema[name]).alias(name) for name in missing
    ).select(contract.schema.names())


def _in_slot(stays: Sequence[Stay], slot: int | None, at_s: float) -> str | None:
    found = (s.gpu.gpu_uuid for s in stays if s.gpu.slot == slot and s.holds_at(at_s))
    return next(found, None)


def labelled_rows(fleet: Fleet) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Every GPU every six hours with its features and label, and the names of the features."""
    tables = fleet_tables(fleet)
    end = fleet.moment(fleet.end_s)
    # The first day has no day before it.
    moments = as_of_times(fleet.regime.start + timedelta(days=1), end, every=EVERY)
    grid = watched_grid(tables.inventory, moments, unknown_start="watched")
    spec = MatrixSpec(parts=("events", "history", "repairs"), catalogue=load_catalogue())
    names = feature_names(matrix_features(spec, tables.topology))
    matrix = build_gpu_matrix(tables, grid, spec=spec)
    matrix = matrix.with_columns(_telemetry(fleet, matrix, seed=fleet.seed))
    labels = build_labels(
        grid,
        incidents=tables.incidents,
        inventory=tables.inventory,
        maintenance=CORE_MAINTENANCE.empty(),
        data_end=end,
        spec=LabelSpec(lead=TASK.lead, horizons_h=(TASK.horizon_h,)),
    )
    added = tuple(name for name in matrix.columns if name.startswith(("sign_", "gauge_")))
    rows = training_rows(matrix, labels, horizon_h=TASK.horizon_h)
    return rows.filter(pl.col("label").is_not_null()), (*names, *added)


def _telemetry(fleet: Fleet, matrix: pl.DataFrame, *, seed: int) -> list[pl.Series]:
    """Counts of each kind of sign over the last day, and columns that say nothing."""
    rng = np.random.default_rng(seed)
    columns = []
    for kind in sorted({e.kind for _, e in _episodes(fleet)}):
        counts = rng.poisson(_BACKGROUND, matrix.height) + rng.poisson(_signs(fleet, matrix, kind))
        columns.append(pl.Series(f"sign_{kind}", counts, dtype=pl.Float32))
    return columns + [
        pl.Series(f"gauge_{i}", rng.standard_normal(matrix.height, dtype=np.float32))
        for i in range(_NOISE_COLUMNS)
    ]


def _episodes(fleet: Fleet) -> list[tuple[NodeTruth, Episode]]:
    """True signs and decoys of GPUs."""
    return [
        (truth, episode)
        for truth in fleet.nodes
        for episode in (*truth.decoys, *(x.precursor for x in truth.incidents))
        if episode is not None and episode.slot is not None
    ]


def _signs(fleet: Fleet, matrix: pl.DataFrame, kind: str) -> np.ndarray:
    """Expected signs of a kind in the day before each row: 6 a day at strength 1."""
    episodes = pl.DataFrame(
        [
            (
                _in_slot(truth.stays, e.slot, e.start_s),
                fleet.moment(e.start_s),
                fleet.moment(e.end_s),
                e.strength,
            )
            for truth, e in _episodes(fleet)
            if e.kind == kind
        ],
        schema={"entity_id": pl.String, "from": UTC_TIME, "to": UTC_TIME, "strength": pl.Float64},
        orient="row",
    )
    day = pl.duration(days=1)
    as_of = pl.col("as_of")
    seen = pl.min_horizontal("to", as_of) - pl.max_horizontal("from", as_of - day)
    days = seen.dt.total_seconds() / 86_400
    level = (
        matrix.select("entity_id", "as_of")
        .with_row_index("row")
        .join(episodes, on="entity_id")
        .filter(pl.col("from") < as_of, pl.col("to") > as_of - day)
        .group_by("row")
        .agg((days * pl.col("strength") * 6).sum().alias("level"))
    )
    levels = np.zeros(matrix.height)
    levels[level["row"].to_numpy()] = level["level"].to_numpy()
    return levels


@dataclass(frozen=True)
class Trained:
    """CPU seconds of one training, and average precision on the later days."""

    seconds: float
    precision: float


def trained(seed: int) -> dict[float, Trained]:
    """Training on all rows (share 1) and on each share of the negatives, by share.

    Args:
        seed: Of the fleet and of the training.
    """
    regime = load_regime("h100").with_size(nodes=NODES, days=DAYS)
    quiet = regime.disturbances.model_copy(update={"chatter_per_day": 0.0})
    regime = regime.model_copy(update={"disturbances": quiet, "hazard_multiplier": 2.0})
    rows, names = labelled_rows(simulate_failures(regime, seed=seed))
    cut = regime.start + timedelta(days=TRAIN_DAYS)
    earlier = rows.filter(pl.col("as_of") < cut - TASK.embargo)
    later = rows.filter(pl.col("as_of") >= cut)
    label = later["label"].to_numpy()
    spec = TrainSpec(seeds=(seed,))
    found = {}
    for share in (1.0, *SHARES):
        chosen = replace(spec, negative_share=share)
        began = time.process_time()
        model = train(earlier, feature_names=names, task=TASK, spec=chosen)
        seconds = time.process_time() - began
        found[share] = Trained(seconds, average_precision_score(label, model.raw_scores(later)))
    return found


def rows() -> list[str]:
    """One line per share; the share that is held to the limits says whether they hold."""
    runs = [trained(seed) for seed in SEEDS]
    full_s, full_ap = (
        statistics.mean(getattr(run[1.0], name) for run in runs)
        for name in ("seconds", "precision")
    )
    lines = [f"all rows: {full_s:.1f} CPU s, average precision {full_ap:.4f}, {len(SEEDS)} fleets"]
    for share in SHARES:
        gain = statistics.median(run[1.0].seconds / run[share].seconds for run in runs)
        losses = [run[1.0].precision - run[share].precision for run in runs]
        loss = statistics.mean(losses)
        half = _T_OF_FOUR * statistics.stdev(losses) / len(losses) ** 0.5
        line = f"{share:.0%} of the negatives: {gain:.1f} times as fast, "
        line += f"loses {loss:+.4f} ± {half:.4f}"
        if share == HELD_TO:
            holds = gain >= LEAST_GAIN and loss <= MOST_LOSS
            verdict = "holds" if holds else "MISSED"
            line += f" (at least {LEAST_GAIN:g} times, at most {MOST_LOSS:g}: {verdict})"
        lines.append(line)
    return lines


if __name__ == "__main__":
    print("\n".join(rows()))
