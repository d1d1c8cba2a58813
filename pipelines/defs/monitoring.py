"""Monitoring assets and checks: what became of every record, and whether the tables make sense.

Counting is done where records are read and written; here the counts are gathered and judged.
"""

from collections.abc import Sequence

import dagster as dg
import polars as pl

from features.tables import READS
from pipelines.ingest import landing_of
from pipelines.quarantine import all_refusals
from pipelines.resources import Installation

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

    return [reads, quarantine]


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
