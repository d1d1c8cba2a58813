"""A synthetic fleet read as a site's: raw files, core tables, features and labels, by stretches.

Nothing is trained or judged here, and the fleet's truth is not looked at.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from features.catalogue import FaultCatalogue
from features.core_build import (
    build_core_telemetry,
    build_health_events,
    build_jobs,
    build_node_states,
)
from features.core_tables import CoreTables
from features.grid import as_of_times, watched_grid
from features.incidents import build_incidents
from features.labels import LabelSpec, build_labels
from features.matrix import MatrixSpec, build_gpu_matrix
from features.outages import build_maintenance
from features.packing import FrameSamples
from features.tables import CORE_GPU_TELEMETRY
from features.telemetry_features import telemetry_reach
from pipelines.sources.site.inputs import HistoryInput
from pipelines.sources.site.listing import SiteInputs, load_inputs
from pipelines.sources.site.readers import read_inputs, stream_file
from simulation.fleet.generate import Fleet
from simulation.writers.raw import write_fleet

SHARD_NODES: Final = 128
"""Nodes simulated together, a thousand GPUs: what fits into memory for a week or two."""
STRETCH: Final = timedelta(days=8)
TICK: Final = timedelta(hours=1)

_DAY: Final = timedelta(days=1)
_LOGS: Final = (
    "raw/kernel_log",
    "raw/job_log",
    "raw/node_states",
    "core/inventory",
    "core/topology",
    "core/maintenance",
)


@dataclass(frozen=True)
class Stretch:
    """Some days of a shard.

    Attributes:
        matrix: features/gpu_matrix of every watched GPU at every tick.
        labels: features/labels of GPUs and nodes at the same ticks, every horizon.
    """

    matrix: pl.DataFrame
    labels: pl.DataFrame


@dataclass(frozen=True)
class FleetShard:
    """What a site would know of some simulated nodes.

    Attributes:
        name: Told before the names of nodes, which repeat from shard to shard.
        tables: Core tables but telemetry.
        start: First moment of the record.
        end: End of the record, exclusive.
        inputs: The raw files, telemetry among them.
        catalogue: Fault catalogue.
    """

    name: str
    tables: CoreTables
    start: datetime
    end: datetime
    inputs: SiteInputs
    catalogue: FaultCatalogue

    @property
    def incidents(self) -> pl.DataFrame:
        """core/incidents, nodes and what is them under the shard's own names."""
        return self._own(self.tables.incidents)

    def stretches(self, spec: MatrixSpec, *, labels: LabelSpec) -> Iterator[Stretch]:
        """Features and labels, stretch by stretch; only one stretch of telemetry is in memory.

        Args:
            spec: Which features.
            labels: Lead and horizons.

        Yields:
            Stretches in order of time; the first day of the record has no day before it and is
            left out.
        """
        reach = telemetry_reach(spec.telemetry)
        samples = CORE_GPU_TELEMETRY.empty()
        days = self._telemetry_files()
        read_until = self.start
        at = self.start + _DAY
        while at < self.end:
            until = min(self.end, at + STRETCH)
            newer = [samples.filter(pl.col("ts") >= at - reach)]
            while read_until < until:
                newer.append(self._telemetry_of(read_until, days))
                read_until += _DAY
            samples = pl.concat(newer)
            yield self._stretch(samples, at=at, until=until, spec=spec, labels=labels)
            at = until

    def _stretch(
        self,
        samples: pl.DataFrame,
        *,
        at: datetime,
        until: datetime,
        spec: MatrixSpec,
        labels: LabelSpec,
    ) -> Stretch:
        tables = self.tables
        moments = as_of_times(at, until, every=TICK)
        gpus, nodes = (
            watched_grid(tables.inventory, moments, entity_kind=kind, unknown_start="watched")
            for kind in ("gpu", "node")
        )
        told = pl.concat(
            build_labels(
                grid,
                incidents=tables.incidents,
                inventory=tables.inventory,
                maintenance=tables.maintenance,
                data_end=self.end,
                spec=labels,
            )
            for grid in (gpus, nodes)
        )
        matrix = build_gpu_matrix(tables, gpus, spec=spec, samples=FrameSamples(samples))
        return Stretch(self._own(matrix), self._own(told))

    def _own(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with nodes named apart from those of other shards."""
        named = pl.format(f"{self.name}/{{}}", "node").alias("node")
        if "entity_kind" not in frame.columns:
            return frame.with_columns(named)
        of_node = pl.format(f"{self.name}/{{}}", "entity_id")
        entity = pl.when(pl.col("entity_kind") == "node").then(of_node).otherwise("entity_id")
        renamed = [named] if "node" in frame.columns else []
        return frame.with_columns(entity.alias("entity_id"), *renamed)

    def _telemetry_files(self) -> Mapping[str, list[Path]]:
        by_day: dict[str, list[Path]] = {}
        spec = _telemetry_input(self.inputs)
        for path in self.inputs.files(spec):
            by_day.setdefault(path.parent.name, []).append(path)
        return by_day

    def _telemetry_of(self, day: datetime, files: Mapping[str, list[Path]]) -> pl.DataFrame:
        """core/gpu_telemetry of a day."""
        spec = _telemetry_input(self.inputs)
        read_at = self.end + _DAY
        raw = [
            chunk.tables["raw/gpu_telemetry"]
            for path in files.get(f"{day:%Y-%m-%d}", ())
            for chunk in stream_file(self.inputs, spec, path, ingested_at=read_at)
        ]
        if not raw:
            return CORE_GPU_TELEMETRY.empty()
        built = build_core_telemetry(pl.concat(raw), self.tables.inventory).frame
        return built.filter(pl.col("ts").is_between(day, day + _DAY, closed="left"))


def read_shard(fleet: Fleet, folder: Path, *, name: str, catalogue: FaultCatalogue) -> FleetShard:
    """Writes a simulated fleet as a site's raw files and reads all but telemetry.

    Args:
        fleet: The fleet; one of `SHARD_NODES` nodes is a thousand GPUs.
        folder: Folder for its files; they are needed until the last stretch is read.
        name: Name of the shard.
        catalogue: Fault catalogue.

    Returns:
        The shard.
    """
    write_fleet(fleet, folder / "raw", folder / "truth")
    shutil.rmtree(folder / "truth")  # known to whoever has the fleet, and to nobody else
    inputs = load_inputs(folder / "raw" / "inputs.yaml")
    end = fleet.moment(fleet.end_s)
    read = read_inputs(inputs, ingested_at=end + _DAY, tables=_LOGS).tables
    inventory = read["core/inventory"]
    events = build_health_events(read["raw/kernel_log"], inventory).frame
    jobs = build_jobs(read["raw/job_log"]).frame
    states = build_node_states(read["raw/node_states"]).frame
    planned = build_maintenance(states, catalogue=catalogue)
    tables = CoreTables(
        inventory=inventory,
        topology=read["core/topology"],
        incidents=build_incidents(events, states, jobs, inventory, catalogue=catalogue),
        maintenance=pl.concat([read["core/maintenance"], planned]),
        health_events=events,
        jobs=jobs,
        node_states=states,
    )
    start = fleet.regime.start.astimezone(UTC)
    return FleetShard(name, tables, start, end, inputs, catalogue)


def _telemetry_input(inputs: SiteInputs) -> HistoryInput:
    """The input that lists Parquet telemetry."""
    return next(
        spec
        for spec in inputs.spec.inputs
        if isinstance(spec, HistoryInput) and spec.path.endswith(".parquet")
    )
