"""The rows of a benchmark: every snapshot's entities with features and label.

Nothing is trained or judged here (see `models.benchmark.run`).
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import polars as pl

from features.core_tables import CoreTables
from features.grid import as_of_times, watched_grid
from features.history_outages import classify_outages, outage_incidents
from features.history_rows import place_column, with_places
from features.labels import LabelSpec, build_labels
from features.matrix import build_gpu_matrix, matrix_features
from features.registry import Feature
from models.benchmark.protocol import BenchmarkProtocol
from models.training.boosters import training_rows

_INSTANT: Final = timedelta(microseconds=1)


def benchmark_rows(
    tables: CoreTables, protocol: BenchmarkProtocol
) -> tuple[pl.DataFrame, tuple[Feature, ...]]:
    """The labelled feature matrix of all snapshots.

    Args:
        tables: Core tables of the site.
        protocol: Snapshots, label and features.

    Returns:
        The matrix with `label`, `fault_type`, `incident_id`, `censored_by`, and, for
        populations and baselines only, `first_seen`, `n_incidents` (of the whole record) and,
        where the protocol names a level, `place`; and the features.
    """
    if protocol.outages is not None:
        tables = _with_outages(tables, protocol)
    # A snapshot whose horizon passes the end would keep its failures and lose the rest.
    last = protocol.data_end - protocol.task.embargo
    as_ofs = as_of_times(protocol.first_as_of, last + _INSTANT, every=protocol.every)
    grid = watched_grid(tables.inventory, as_ofs, entity_kind=protocol.entity_kind)
    if protocol.outages is not None:
        grid = _where_up(grid, tables.node_states)
    labels = build_labels(
        grid,
        incidents=tables.incidents,
        inventory=tables.inventory,
        maintenance=tables.maintenance,
        data_end=protocol.data_end,
        spec=LabelSpec(protocol.lead, (protocol.horizon_h,)),
    )
    matrix = build_gpu_matrix(tables, grid, spec=protocol.features)
    rows = training_rows(
        matrix, labels, horizon_h=protocol.horizon_h, entity_kind=protocol.entity_kind
    )
    features = matrix_features(protocol.features, tables.topology)
    return _with_populations(rows, tables, protocol), features


def shuffled_labels(rows: pl.DataFrame, *, seed: int) -> pl.DataFrame:
    """The rows with labels dealt anew among those of the same moment.

    What a model learns from them is chance, and it must not rank the others within a moment. Over
    several moments it may, for each keeps its share of positives and a model can tell them apart.

    Args:
        rows: See `benchmark_rows`.
        seed: Seed.
    """
    dealt = ["label", "fault_type", "incident_id", "censored_by"]
    order = pl.int_range(pl.len()).shuffle(seed=seed)
    return rows.with_columns(pl.col(dealt).gather(order).over("as_of"))


def ranks_within_moments(rows: pl.DataFrame, scores: pl.Series) -> pl.Series:
    """Each score's place among those of the same moment, from 0 to 1.

    What a model knows of how many fail at a moment, but not who, is gone from them.

    Args:
        rows: Rows with `as_of`, shape (n,).
        scores: Their scores, shape (n,).
    """
    place = pl.col("score").rank() / (pl.len() + 1)
    return rows.select("as_of", score=scores).select(place.over("as_of")).to_series()


def _with_outages(tables: CoreTables, protocol: BenchmarkProtocol) -> CoreTables:
    """The tables with the incidents that the outage rule finds in the node states."""
    if protocol.outages is None:
        return tables
    outages = classify_outages(tables.node_states, tables.topology, rule=protocol.outages)
    found = outage_incidents(outages, rule=protocol.outages)
    return replace(tables, incidents=pl.concat([tables.incidents, found]))


def _where_up(grid: pl.DataFrame, node_states: pl.DataFrame) -> pl.DataFrame:
    """The rows whose node is up at their moment."""
    states = node_states.filter(pl.col("valid_from").is_not_null()).sort("valid_from")
    states = states.select("node", "state", "valid_from", pl.col("valid_to").alias("until"))
    is_over = (pl.col("until") <= pl.col("as_of")).fill_null(value=False)
    return (
        grid.with_row_index("row")
        .sort("as_of")
        .join_asof(
            states,
            left_on="as_of",
            right_on="valid_from",
            by="node",
            check_sortedness=False,
        )
        .filter(pl.col("state") == "up", ~is_over)
        .sort("row")
        .select(grid.columns)
    )


def _with_populations(
    rows: pl.DataFrame, tables: CoreTables, protocol: BenchmarkProtocol
) -> pl.DataFrame:
    unit = "gpu_uuid" if protocol.entity_kind == "gpu" else "node"
    entity = pl.col(unit).alias("entity_id")
    first_seen = tables.inventory.group_by(entity).agg(first_seen=pl.col("valid_from").min())
    incidents = tables.incidents.group_by("entity_id").agg(n_incidents=pl.len())
    for known in (first_seen, incidents):
        rows = rows.join(known, on="entity_id", how="left", maintain_order="left")
    level = protocol.place_level
    if level is None:
        return rows
    rows = with_places(rows, tables.topology, levels=(level,), at="as_of")
    return rows.rename({place_column(level): "place"})
