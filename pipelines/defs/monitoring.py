"""Monitoring assets: what became of every record, how alerts did, whether inputs drifted.

Counting is done where records are read and written; checks are in `pipelines.defs.checks`.
"""

from collections.abc import Sequence

import dagster as dg
import polars as pl

from features.monitoring_tables import READS
from pipelines.defs.resources import Installation
from pipelines.defs.table_look import TableLook
from pipelines.flow.drift import drift_in_words, drift_of
from pipelines.landing.ingest import landing_of
from pipelines.landing.quarantine import all_refusals
from pipelines.serving.live_outcomes import judge_live
from pipelines.serving.outcome_words import words_of
from pipelines.serving.place import open_scores

RAW = [
    dg.AssetKey(["raw", name])
    for name in ("gpu_telemetry", "kernel_log", "job_log", "node_states", "incidents")
]
CORE = [dg.AssetKey(["core", name]) for name in ("gpu_telemetry", "health_events", "jobs")]


def monitoring_assets(look: TableLook) -> Sequence[dg.AssetsDefinition]:
    """The monitoring assets of one installation.

    Args:
        look: How they are shown.
    """
    return [
        _reads(look),
        _quarantine(look),
        _live_quality(look),
        _drift(look),
    ]


def _reads(look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "monitoring/reads",
        deps=RAW,
        description="Per input file: records read, parsed, skipped and quarantined.",
    )
    def reads(installation: Installation) -> pl.DataFrame:
        landed = landing_of(installation.settings).journal.reads()
        reads = pl.concat([landed, installation.store.gather_parts(READS)])
        return reads.unique(READS.key, maintain_order=True)

    return reads


def _quarantine(look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "monitoring/quarantine",
        deps=[*RAW, *CORE],
        description="Records refused by sources, builders and contracts, with rule and example.",
    )
    def quarantine(installation: Installation) -> pl.DataFrame:
        return all_refusals(installation.settings)

    return quarantine


def _live_quality(look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "monitoring/live_quality",
        deps=[["scores", "node_scores"], ["core", "incidents"]],
        description="Whether published alerts came true, by week and model; also the outcomes.",
    )
    def live_quality(installation: Installation) -> dg.MaterializeResult[None]:
        settings = installation.settings
        with open_scores(settings) as engine:
            judged = judge_live(
                settings, engine=engine, catalogue=installation.catalogue, now=installation.now
            )
        rows = 0 if judged is None else judged.quality.height
        return dg.MaterializeResult(metadata={"rows": rows, "quality": words_of(judged)})

    return live_quality


def _drift(look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "monitoring/drift",
        deps=[["features", "gpu_matrix"], ["features", "labels"], ["scores", "gpu_scores"]],
        code_version="1",
        description="Inputs and scores of the last weeks against each champion's training.",
    )
    def drift(installation: Installation) -> dg.Output[pl.DataFrame]:
        found = drift_of(installation.settings, now=installation.now)
        return dg.Output(found, metadata={"drift": drift_in_words(found)[0]})

    return drift
