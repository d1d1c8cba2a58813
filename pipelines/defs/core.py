"""Core assets: deduplicated telemetry, health events, jobs, node states and incidents.

How each is built is in `features.core_build` and `features.incidents`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import dagster as dg
import polars as pl

from features.contracts import TableContract
from features.core_build import (
    Built,
    build_health_events,
    build_jobs,
    build_node_states,
)
from features.incidents import build_incidents
from features.job_causes import explain_jobs
from features.monitoring_tables import QUARANTINE
from features.raw_tables import (
    RAW_GPU_TELEMETRY,
    RAW_JOB_LOG,
    RAW_JOB_OUTPUT,
    RAW_KERNEL_LOG,
    RAW_NODE_STATES,
    RAW_TRAINING_METRICS,
)
from features.tables import CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS, CORE_INCIDENTS
from features.training import build_training_metrics
from pipelines.defs.io import GENERATION
from pipelines.defs.partitions import ONE_RUN, Partitions, run_span
from pipelines.defs.resources import Installation
from pipelines.defs.table_look import TableLook, core_ins
from pipelines.flow.core_telemetry import make_core_telemetry
from pipelines.landing.ingest import coverage_of, landing_of
from pipelines.landing.rebuild_guard import check_can_be_built
from pipelines.storage.store import Span, TableStore


def core_assets(partitions: Partitions, look: TableLook) -> Sequence[dg.AssetsDefinition]:
    """The core assets of one installation.

    Args:
        partitions: How they are cut.
        look: How they are shown.
    """
    return [
        _gpu_telemetry(partitions, look),
        _health_events(partitions, look),
        _jobs(look),
        _node_states(look),
        _incidents(look),
        _coverage(partitions, look),
        _training_metrics(look),
    ]


def _gpu_telemetry(partitions: Partitions, look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "core/gpu_telemetry",
        deps=[["raw", "gpu_telemetry"]],
        ins=core_ins("inventory"),
        partitions_def=partitions.data,
        backfill_policy=ONE_RUN,
        code_version="1",
        description="One row per GPU and sample, deduplicated, with the node it was in.",
    )
    def gpu_telemetry(
        context: dg.AssetExecutionContext,
        installation: Installation,
        inventory: pl.DataFrame,
    ) -> dg.MaterializeResult[None]:
        span = run_span(context)
        _check_whole(installation, CORE_GPU_TELEMETRY, RAW_GPU_TELEMETRY, span)
        made = make_core_telemetry(installation.settings, inventory, span=span)
        return dg.MaterializeResult(metadata=asdict(made))

    return gpu_telemetry


def _health_events(partitions: Partitions, look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "core/health_events",
        deps=[["raw", "kernel_log"]],
        ins=core_ins("inventory"),
        partitions_def=partitions.data,
        backfill_policy=ONE_RUN,
        code_version="2",
        description="Xids and other hardware events, repeats within 5 s counted as one.",
    )
    def health_events(
        context: dg.AssetExecutionContext,
        installation: Installation,
        inventory: pl.DataFrame,
    ) -> dg.Output[pl.DataFrame]:
        span = run_span(context)
        _check_whole(installation, CORE_HEALTH_EVENTS, RAW_KERNEL_LOG, span)
        raw = _read(installation, RAW_KERNEL_LOG, span)
        built = build_health_events(raw.frame, inventory)
        return _output(built, raw, table="core/health_events", span=span)

    return health_events


def _jobs(look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "core/jobs",
        deps=[["raw", "job_log"], ["raw", "job_output"]],
        code_version="1",
        description="One row per attempt of a job, with why it ended badly.",
    )
    def jobs(installation: Installation) -> dg.Output[pl.DataFrame]:
        raw = _read(installation, RAW_JOB_LOG)
        built = build_jobs(raw.frame)
        output = _read(installation, RAW_JOB_OUTPUT).frame
        explained = replace(built, frame=explain_jobs(built.frame, output))
        return _output(explained, raw, table="core/jobs")

    return jobs


def _node_states(look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "core/node_states",
        deps=[["raw", "node_states"]],
        code_version="1",
        description="When each node was up, draining or down.",
    )
    def node_states(installation: Installation) -> dg.Output[pl.DataFrame]:
        raw = _read(installation, RAW_NODE_STATES)
        return _output(build_node_states(raw.frame), raw, table="core/node_states")

    return node_states


def _incidents(look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "core/incidents",
        ins={
            **core_ins("health_events", "jobs", "inventory"),
            "states": dg.AssetIn(["core", "node_states"]),
            "named": dg.AssetIn(["raw", "incidents"]),
        },
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

    return incidents


def _coverage(partitions: Partitions, look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "core/coverage",
        deps=[["raw", "coverage"], ["raw", "gpu_telemetry"], ["raw", "kernel_log"]],
        ins=core_ins("inventory"),
        partitions_def=partitions.daily,
        backfill_policy=ONE_RUN,
        code_version="1",
        description="Per source, entity and hour: what was expected and what came.",
    )
    def coverage(
        context: dg.AssetExecutionContext, installation: Installation, inventory: pl.DataFrame
    ) -> pl.DataFrame:
        span = run_span(context)
        return coverage_of(installation.settings, inventory, span)

    return coverage


def _training_metrics(look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "core/training_metrics",
        deps=[["raw", "training_metrics"]],
        code_version="1",
        description="What training jobs reported of each step, the latest word on it.",
    )
    def training_metrics(installation: Installation) -> dg.Output[pl.DataFrame]:
        raw = _read(installation, RAW_TRAINING_METRICS)
        return _output(build_training_metrics(raw.frame), raw, table="core/training_metrics")

    return training_metrics


@dataclass(frozen=True)
class _Landed:
    """Raw rows, and the latest reading that had landed before they were looked for."""

    frame: pl.DataFrame
    generation: int
    store: TableStore


def _check_whole(
    installation: Installation, core: TableContract, raw: TableContract, span: Span
) -> None:
    """Refuses to empty hours by building them from what retention has left of their rows."""
    landing = landing_of(installation.settings)
    check_can_be_built(landing, installation.store, core, raw=raw, span=span)


def _read(installation: Installation, table: TableContract, span: Span | None = None) -> _Landed:
    """Reads landed rows. What lands meanwhile may be in them; the next look sees it as changed."""
    landing = landing_of(installation.settings)
    generation = landing.journal.generation()
    return _Landed(landing.read(table, span=span), generation, installation.store)


def _output(
    built: Built, raw: _Landed, *, table: str, span: Span | None = None
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
    raw.store.keep_part(QUARANTINE, f"build-{name}", rejects)
    return dg.Output(
        frame,
        metadata={
            "read": built.n_read,
            "merged": built.n_merged,
            "skipped": built.n_skipped,
            GENERATION: raw.generation,
        },
    )
