"""The feature matrix of GPUs: every family of features beside each other, in registered order.

How a family is computed is in its own module; which rows are wanted comes as a grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import polars as pl

from features.catalogue import FaultCatalogue
from features.core_tables import CoreTables
from features.engine.samples import SampleSource
from features.errors import DataError
from features.event_features import EventSpec, build_events, event_features
from features.grid import watched_grid
from features.history_counters import CounterSpec, build_counters, counter_features
from features.history_features import (
    HistorySpec,
    build_history,
    history_features,
    history_levels,
)
from features.history_rows import place_column, with_places
from features.history_states import StateSpec, build_states, state_features
from features.job_features import JobSpec, build_job_features, job_features
from features.packing import FrameSamples
from features.peer_features import peer_group
from features.registry import Feature, feature_names
from features.repair_features import RepairSpec, build_repairs, repair_features
from features.tables import GPU_MATRIX
from features.telemetry_features import (
    Memory,
    build_telemetry,
    peer_groups,
    telemetry_features,
)
from features.telemetry_spec import TelemetrySpec

Part = Literal["telemetry", "events", "history", "jobs", "repairs", "counters", "states"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
NODE_PARTS: Final[tuple[Part, ...]] = ("history", "states")
"""Parts that can be built for nodes too."""

DEFAULT_PARTS: Final[tuple[Part, ...]] = ("telemetry", "events", "history", "jobs")


@dataclass(frozen=True, kw_only=True)
class MatrixSpec:
    """Which features a site's matrix has; the same for training and scoring.

    Attributes:
        parts: Parts that are built; a site with a history alone takes `("history",)`.
        telemetry: Telemetry features.
        events: Event features.
        history: History, stay and place features.
        jobs: Job features.
        repairs: Repair features; off by default.
        counters: Features of slow counters; off by default.
        states: Features of times up and down; off by default.
        catalogue: Groups of events; needed for the part `events`.
    """

    parts: tuple[Part, ...] = DEFAULT_PARTS
    telemetry: TelemetrySpec = field(default_factory=TelemetrySpec)
    events: EventSpec = field(default_factory=EventSpec)
    history: HistorySpec = field(default_factory=HistorySpec)
    jobs: JobSpec = field(default_factory=JobSpec)
    repairs: RepairSpec = field(default_factory=RepairSpec)
    counters: CounterSpec = field(default_factory=CounterSpec)
    states: StateSpec = field(default_factory=StateSpec)
    catalogue: FaultCatalogue | None = None

    def __post_init__(self) -> None:
        """Refuses parts that are unknown or lack what they need.

        Raises:
            DataError: As said.
        """
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown or not self.parts:
            raise DataError(
                f"matrix spec: parts must be some of {', '.join(PARTS)}, got "
                f"{', '.join(self.parts) or 'none'}. Name at least one of them."
            )
        if "events" in self.parts and self.catalogue is None:
            raise DataError(
                "matrix spec: the part events needs a fault catalogue, got none. Load one, or "
                "leave events out of parts."
            )


def matrix_features(spec: MatrixSpec, topology: pl.DataFrame) -> tuple[Feature, ...]:
    """The features that `build_gpu_matrix` gives, in order.

    Args:
        spec: Which features.
        topology: core/topology; each of its levels gives history features.
    """
    levels = history_levels(topology, spec.history)
    of_part: dict[str, Sequence[Feature]] = {
        "telemetry": telemetry_features(spec.telemetry),
        "events": event_features(spec.events),
        "history": history_features(spec.history, levels),
        "jobs": job_features(spec.jobs),
        "repairs": repair_features(spec.repairs),
        "counters": counter_features(spec.counters),
        "states": state_features(spec.states),
    }
    return tuple(feature for part in PARTS if part in spec.parts for feature in of_part[part])


def build_gpu_matrix(
    tables: CoreTables,
    grid: pl.DataFrame,
    *,
    spec: MatrixSpec,
    samples: SampleSource | None = None,
    threads: int = 1,
    memory: Memory | None = None,
) -> pl.DataFrame:
    """Computes every feature for every row of a grid of GPUs, or of nodes with a history alone.

    Args:
        tables: Core tables. Telemetry is needed from `telemetry_reach` before the first `as_of`
            on, health events from 30 days before it, the rest from the beginning; nothing at or
            after a row's `as_of` enters its features. Give the telemetry of a node's every GPU, and
            of a place's where places are compared, also where the grid asks for one: neighbours
            are compared.
        grid: `entity_kind`, `entity_id`, `node`, `slot`, `as_of` (`features.grid.watched_grid`).
        spec: Which features.
        samples: The telemetry, read piece by piece; None: that of `tables`.
        threads: Groups of GPUs computed at once.
        memory: What earlier ticks have left, for a grid of one moment; the result is the same.

    Returns:
        features/gpu_matrix in the order of the grid.

    Raises:
        DataError: The grid holds nodes where a part is of GPUs, or a row twice.
    """
    _check_grid(grid, parts=spec.parts)
    of_part = {
        "telemetry": lambda: build_telemetry(
            telemetry_rows(tables, grid, spec=spec.telemetry),
            samples or FrameSamples(tables.gpu_telemetry),
            spec=spec.telemetry,
            threads=threads,
            memory=memory,
        ).head(grid.height),
        "events": lambda: _events(tables, grid, spec),
        "history": lambda: build_history(
            grid,
            incidents=tables.incidents,
            inventory=tables.inventory,
            topology=tables.topology,
            spec=spec.history,
        ),
        "jobs": lambda: build_job_features(grid, tables.jobs, spec=spec.jobs),
        "repairs": lambda: build_repairs(grid, tables, spec=spec.repairs),
        "counters": lambda: build_counters(grid, tables.counters, spec=spec.counters),
        "states": lambda: build_states(
            grid, node_states=tables.node_states, topology=tables.topology, spec=spec.states
        ),
    }
    parts = [of_part[part]().drop("entity_id", "as_of") for part in PARTS if part in spec.parts]
    names = feature_names(matrix_features(spec, tables.topology))
    matrix = grid.select("entity_id", "as_of", "node").hstack(
        [column for part in parts for column in part.get_columns()]
    )
    return GPU_MATRIX.conform(
        matrix.select("entity_id", "as_of", "node", pl.col(names).cast(pl.Float32))
    )


def telemetry_rows(tables: CoreTables, grid: pl.DataFrame, *, spec: TelemetrySpec) -> pl.DataFrame:
    """The grid's rows and, after them, those of the GPUs that they are compared with.

    Args:
        tables: Core tables; inventory and topology are used.
        grid: See `build_gpu_matrix`.
        spec: Says which levels of the topology are compared beside the node.

    Returns:
        `entity_id`, `node`, `as_of` and the place at each level.
    """

    def placed(rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows.select("entity_id", "node", "as_of")
        return with_places(rows, tables.topology, levels=spec.peer_levels, at="as_of")

    asked = placed(grid)
    # Of a large fleet few GPUs were ever on these nodes; their stays elsewhere say when.
    nodes = _nodes_around(asked, tables.topology, levels=spec.peer_levels)
    nearby = tables.inventory.filter(pl.col("node").is_in(nodes.implode()))
    stays = tables.inventory.join(nearby, on="gpu_uuid", how="semi")
    in_place = watched_grid(stays, grid["as_of"].unique().sort(), unknown_start="watched")
    others = placed(in_place.join(grid, on=["entity_id", "as_of"], how="anti"))
    compared = pl.concat(
        others.join(asked, on=[peer_group(by), "as_of"], how="semi") for by in peer_groups(spec)
    )
    return pl.concat([asked, compared.unique(["entity_id", "as_of"], maintain_order=True)])


def _nodes_around(
    asked: pl.DataFrame, topology: pl.DataFrame, *, levels: Sequence[str]
) -> pl.Series:
    """The rows' nodes and all that were ever in one of their places."""
    nodes = [asked["node"]]
    for level in levels:
        places = asked[place_column(level)].unique().implode()
        at_level = topology.filter(pl.col("level") == level, pl.col("place").is_in(places))
        nodes.append(at_level["node"])
    return pl.concat(nodes).unique()


def _events(tables: CoreTables, grid: pl.DataFrame, spec: MatrixSpec) -> pl.DataFrame:
    if spec.catalogue is None:
        raise DataError("matrix spec: the part events needs a fault catalogue, got none.")
    return build_events(grid, tables.health_events, catalogue=spec.catalogue, spec=spec.events)


def _check_grid(grid: pl.DataFrame, *, parts: Sequence[Part]) -> None:
    others = grid.filter(pl.col("entity_kind") != "gpu")
    of_gpus = [part for part in parts if part not in NODE_PARTS]
    if others.height and (of_gpus or others.height < grid.height):
        raise DataError(
            f"gpu matrix: {others.height} of {grid.height} grid rows are not GPUs, for example "
            f"{others['entity_id'][0]}. Make the grid with entity_kind gpu, or one of nodes alone "
            f"with the parts {', '.join(NODE_PARTS)}."
        )
    repeated = grid.filter(pl.struct("entity_id", "as_of").is_duplicated())
    if not repeated.is_empty():
        raise DataError(
            f"gpu matrix: {repeated.height} grid rows repeat an entity and moment, for example "
            f"{repeated['entity_id'][0]} at {repeated['as_of'][0]}. Give each pair once."
        )
