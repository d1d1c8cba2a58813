"""Core assets: deduplicated telemetry, health events, jobs, node states and incidents.

How each is built is in `features.core_build` and `features.incidents`.
"""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg
import polars as pl

from features.core_build import (
    Built,
    build_core_telemetry,
    build_health_events,
    build_jobs,
    build_node_states,
)
from features.incidents import build_incidents
from features.tables import CORE_INCIDENTS, QUARANTINE
from pipelines.defs.partitions import ONE_RUN, Partitions, run_span
from pipelines.flow import TICK
from pipelines.resources import Installation
from pipelines.store import Span, TableStore

KINDS = {"parquet"}
# A burst of lines that crosses the hour belongs to the event it began with.
_BURST = timedelta(hours=2)


def core_assets(partitions: Partitions) -> Sequence[dg.AssetsDefinition]:
    """The core assets of one installation."""

    @dg.asset(
        key=["core", "gpu_telemetry"],
        ins={
            "raw": dg.AssetIn(["raw", "gpu_telemetry"]),
            "inventory": dg.AssetIn(["core", "inventory"]),
        },
        partitions_def=partitions.data,
        backfill_policy=ONE_RUN,
        group_name="core",
        kinds=KINDS,
        code_version="1",
        description="One row per GPU and sample, deduplicated, with the node it was in.",
    )
    def gpu_telemetry(
        context: dg.AssetExecutionContext,
        installation: Installation,
        raw: pl.DataFrame,
        inventory: pl.DataFrame,
    ) -> dg.Output[pl.DataFrame]:
        built = build_core_telemetry(raw, inventory)
        return _output(
            built, installation.store, table="core/gpu_telemetry", span=run_span(context)
        )

    @dg.asset(
        key=["core", "health_events"],
        ins={
            "raw": dg.AssetIn(
                ["raw", "kernel_log"], partition_mapping=partitions.trailing(_BURST + TICK)
            ),
            "inventory": dg.AssetIn(["core", "inventory"]),
        },
        partitions_def=partitions.data,
        backfill_policy=ONE_RUN,
        group_name="core",
        kinds=KINDS,
        code_version="1",
        description="Xids and other hardware events, repeats within 5 s counted as one.",
    )
    def health_events(
        context: dg.AssetExecutionContext,
        installation: Installation,
        raw: pl.DataFrame,
        inventory: pl.DataFrame,
    ) -> dg.Output[pl.DataFrame]:
        span = run_span(context)
        built = build_health_events(raw, inventory)
        return _output(built, installation.store, table="core/health_events", span=span)

    @dg.asset(
        key=["core", "jobs"],
        ins={"raw": dg.AssetIn(["raw", "job_log"])},
        group_name="core",
        kinds=KINDS,
        code_version="1",
        description="One row per attempt of a job, with why it ended badly.",
    )
    def jobs(installation: Installation, raw: pl.DataFrame) -> dg.Output[pl.DataFrame]:
        return _output(build_jobs(raw), installation.store, table="core/jobs")

    @dg.asset(
        key=["core", "node_states"],
        ins={"raw": dg.AssetIn(["raw", "node_states"])},
        group_name="core",
        kinds=KINDS,
        code_version="1",
        description="When each node was up, draining or down.",
    )
    def node_states(installation: Installation, raw: pl.DataFrame) -> dg.Output[pl.DataFrame]:
        return _output(build_node_states(raw), installation.store, table="core/node_states")

    @dg.asset(
        key=["core", "incidents"],
        ins={
            "health_events": dg.AssetIn(["core", "health_events"]),
            "states": dg.AssetIn(["core", "node_states"]),
            "jobs": dg.AssetIn(["core", "jobs"]),
            "inventory": dg.AssetIn(["core", "inventory"]),
            "named": dg.AssetIn(["raw", "incidents"]),
        },
        group_name="core",
        kinds=KINDS,
        code_version="1",
        description="Failures, one per entity and repair, with fault type and evidence.",
    )
    def incidents(
        installation: Installation,
        health_events: pl.DataFrame,
        states: pl.DataFrame,
        jobs: pl.DataFrame,
        inventory: pl.DataFrame,
        named: pl.DataFrame,
    ) -> dg.Output[pl.DataFrame]:
        catalogue = installation.catalogue
        found = build_incidents(health_events, states, jobs, inventory, catalogue=catalogue)
        frame = pl.concat([found, CORE_INCIDENTS.conform(named)])
        counts = frame["fault_type"].value_counts(sort=True)
        return dg.Output(frame, metadata={"fault types": str(dict(counts.iter_rows()))})

    return [gpu_telemetry, health_events, jobs, node_states, incidents]


def _output(
    built: Built, store: TableStore, *, table: str, span: Span | None = None
) -> dg.Output[pl.DataFrame]:
    """Keeps what a builder refused, and hands on the rows of the run's span."""
    frame = built.frame
    if span:
        frame = frame.filter((pl.col("ts") >= span.start) & (pl.col("ts") < span.end))
    name = table.replace("/", "-") + (
        f"-{span.start:%Y%m%dT%H}-{span.end:%Y%m%dT%H}" if span else ""
    )
    rejects = built.rejects.with_columns(
        table=pl.lit(table), source=pl.lit("core_build"), origin=pl.lit(name)
    )
    store.keep_part(QUARANTINE, f"build-{name}", rejects)
    return dg.Output(
        frame,
        metadata={
            "read": built.n_read,
            "merged": built.n_merged,
            "skipped": built.n_skipped,
        },
    )
