"""Monitoring assets and checks: what became of every record, and whether the tables make sense.

Counting is done where records are read and written; here the counts are gathered and judged.
"""

from collections.abc import Sequence

import dagster as dg
import polars as pl

from features.monitoring_tables import READS
from pipelines.drift_flow import drift_in_words, drift_of
from pipelines.ingest import landing_of
from pipelines.quarantine import all_refusals
from pipelines.resources import Installation
from pipelines.serving.live_outcomes import judge_live
from pipelines.serving.outcome_words import words_of
from pipelines.serving.place import score_engine

RAW = [
    dg.AssetKey(["raw", name])
    for name in ("gpu_telemetry", "kernel_log", "job_log", "node_states", "incidents")
]
CORE = [dg.AssetKey(["core", name]) for name in ("gpu_telemetry", "health_events", "jobs")]

MAX_QUARANTINED_SHARE = 0.01
"""Above this share of refused records an input has changed its format, not lost a line."""


def monitoring_assets() -> Sequence[dg.AssetsDefinition]:
    """The monitoring assets of one installation."""

    @dg.asset(
        key=["monitoring", "reads"],
        deps=RAW,
        group_name="monitoring",
        kinds={"parquet"},
        description="Per input file: records read, parsed, skipped and quarantined.",
    )
    def reads(installation: Installation) -> pl.DataFrame:
        landed = landing_of(installation.settings).journal.reads()
        reads = pl.concat([landed, installation.store.gather_parts(READS)])
        return reads.unique(READS.key, maintain_order=True)

    @dg.asset(
        key=["monitoring", "quarantine"],
        deps=[*RAW, *CORE],
        group_name="monitoring",
        kinds={"parquet"},
        description="Records refused by sources, builders and contracts, with rule and example.",
    )
    def quarantine(installation: Installation) -> pl.DataFrame:
        return all_refusals(installation.settings)

    @dg.asset(
        key=["monitoring", "live_quality"],
        deps=[["scores", "node_scores"], ["core", "incidents"]],
        group_name="monitoring",
        kinds={"parquet"},
        description="Whether published alerts came true, by week and model; also the outcomes.",
    )
    def live_quality(installation: Installation) -> dg.MaterializeResult[None]:
        settings = installation.settings
        judged = judge_live(
            settings,
            engine=score_engine(settings),
            catalogue=installation.catalogue,
            now=installation.now,
        )
        rows = 0 if judged is None else judged.quality.height
        return dg.MaterializeResult(metadata={"rows": rows, "quality": words_of(judged)})

    @dg.asset(
        key=["monitoring", "drift"],
        deps=[["features", "gpu_matrix"], ["features", "labels"], ["scores", "gpu_scores"]],
        group_name="monitoring",
        kinds={"parquet"},
        code_version="1",
        description="Inputs and scores of the last weeks against each champion's training.",
    )
    def drift(installation: Installation) -> dg.Output[pl.DataFrame]:
        found = drift_of(installation.settings, now=installation.now)
        return dg.Output(found, metadata={"drift": drift_in_words(found)[0]})

    return [reads, quarantine, live_quality, drift]


def monitoring_checks() -> Sequence[dg.AssetChecksDefinition]:
    """Checks that judge the gathered counts."""

    @dg.asset_check(
        asset=["monitoring", "reads"],
        description="read = parsed + skipped + quarantined, and few records are refused.",
    )
    def nothing_lost(reads: pl.DataFrame) -> dg.AssetCheckResult:
        kept = pl.col("n_parsed") + pl.col("n_skipped") + pl.col("n_quarantined")
        lost = reads.filter(pl.col("n_read") != kept)
        refused = int(reads["n_quarantined"].sum())
        share = refused / max(1, int(reads["n_read"].sum()))
        return dg.AssetCheckResult(
            passed=lost.is_empty() and share <= MAX_QUARANTINED_SHARE,
            metadata={"files that lost records": lost.height, "quarantined share": share},
        )

    return [nothing_lost]
