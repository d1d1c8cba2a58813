"""Model and score assets: candidates in the registry, and scores by the champions.

Training order is in `models.candidate.build`; scoring in `models.scoring`.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import dagster as dg
import polars as pl

from models.candidate.build import Candidate
from models.registry.version_page import page_metrics
from pipelines.defs.partitions import ONE_RUN, Partitions, run_span
from pipelines.defs.resources import Installation
from pipelines.defs.table_look import TRAINING_POOL, TableLook, core_ins
from pipelines.flow.steps import (
    planned_work,
    publish_latest,
    registry_of,
    score_matrix,
    train_candidates,
)
from pipelines.orchestration.tick_words import score_bars
from pipelines.report.model_plots import in_markdown
from pipelines.report.plots import reliability_plot
from pipelines.serving.delivery import delivery_of, read_book
from pipelines.serving.scorer import unknown_by_cause
from pipelines.settings import Settings

MODEL_KINDS = {"lightgbm", "mlflow"}

SHOWN: Final = (
    "gpu.average_precision",
    "gpu.brier",
    "node.average_precision",
    "node.alert_precision",
    "node.alert_recall",
)
"""Numbers of a version that Dagster plots from training to training."""


def model_assets(partitions: Partitions, look: TableLook) -> Sequence[dg.AssetsDefinition]:
    """The model and score assets of one installation.

    Args:
        partitions: How they are cut.
        look: How they are shown.
    """
    return [
        _candidate(look),
        _scores(partitions, look),
    ]


def _candidate(look: TableLook) -> dg.AssetsDefinition:
    @dg.asset(
        key=["models", "candidate"],
        ins={
            "matrix": dg.AssetIn(["features", "gpu_matrix"]),
            "labels": dg.AssetIn(["features", "labels"]),
            **core_ins("incidents", "topology", "maintenance", "node_states"),
        },
        group_name="models",
        owners=list(look.owners),
        kinds=MODEL_KINDS,
        pool=TRAINING_POOL,
        code_version="1",
        description="One model per horizon: trained, calibrated, judged, registered and gated.",
    )
    def candidate(
        installation: Installation,
        matrix: pl.DataFrame,
        labels: pl.DataFrame,
        incidents: pl.DataFrame,
        topology: pl.DataFrame,
        maintenance: pl.DataFrame,
        node_states: pl.DataFrame,
    ) -> dg.MaterializeResult[None]:
        catalogue, plots = installation.catalogue, dict[str, Any]()
        outcome = train_candidates(
            matrix,
            labels=labels,
            incidents=incidents,
            topology=topology,
            settings=installation.settings,
            catalogue=catalogue,
            maintenance=planned_work(maintenance, node_states, catalogue=catalogue),
            show=lambda made: plots.update(_reliability(made)),
        )
        return dg.MaterializeResult(metadata=plots | _versions(outcome, installation.settings))

    return candidate


def _reliability(made: Candidate) -> dict[str, Any]:
    """The picture of how true a candidate's probabilities are; none where it has no rows."""
    plot = reliability_plot(made.gpu_evaluation.all_rows.reliability)
    if plot is None:
        return {}
    return {f"{made.bundle.name} reliability": dg.MetadataValue.md(in_markdown(plot))}


def _scores(partitions: Partitions, look: TableLook) -> dg.AssetsDefinition:
    @dg.multi_asset(
        outs={
            name: dg.AssetOut(**look.spec(f"scores/{name}"), description=words)
            for name, words in (
                ("gpu_scores", "Probability of a failure per GPU, hour and horizon."),
                ("node_scores", "The same per node: what the hook acts on."),
            )
        },
        ins={"matrix": dg.AssetIn(["features", "gpu_matrix"])},
        deps=[dg.AssetKey(["models", "candidate"])],
        partitions_def=partitions.data,
        backfill_policy=ONE_RUN,
        pool="write_scores",
        description="Failure scores per GPU and node by the champions; the last hour is published.",
    )
    def scores(
        context: dg.AssetExecutionContext, installation: Installation, matrix: pl.DataFrame
    ) -> tuple[dg.Output[pl.DataFrame], dg.Output[pl.DataFrame]]:
        span, settings = run_span(context), installation.settings
        gpu_scores, node_scores = score_matrix(matrix, settings, span=span)
        is_published = publish_latest(
            gpu_scores, node_scores, settings=settings, as_of=span.end, now=installation.now
        )
        if is_published:
            with closing(delivery_of(settings)) as delivery:
                delivery.run(installation.now)
        told: dict[str, Any] = {
            "as_of": dg.MetadataValue.timestamp(span.end),
            "published": is_published,
            "open alerts": len(read_book(settings.scores_dir).open),
        }
        return (
            dg.Output(gpu_scores, metadata=told | _counted(gpu_scores), output_name="gpu_scores"),
            dg.Output(
                node_scores, metadata=told | _counted(node_scores), output_name="node_scores"
            ),
        )

    return scores


def _counted(scores: pl.DataFrame) -> dict[str, Any]:
    """What a run's scores are like."""
    causes = unknown_by_cause(scores)
    return {
        "unknown rows": sum(causes.values()),
        "unknown by cause": ", ".join(f"{n} {cause}" for cause, n in causes.items()) or "none",
        "models": ", ".join(sorted(scores["model_version"].unique())),
        "scores": dg.MetadataValue.md(score_bars(scores)),
    }


def _versions(outcome: Mapping[str, str], settings: Settings) -> dict[str, Any]:
    """The gate's word on each version, its numbers on the test rows, and its page in MLflow."""
    registry, base = registry_of(settings), settings.schedule.mlflow_url
    told: dict[str, Any] = {}
    for name, words in outcome.items():
        told[name] = words
        trained = [one for one in registry.versions(name) if words.startswith(f"{one.label}:")]
        for version in trained:
            numbers = page_metrics(registry.load(version).card)
            told |= {f"{name} {key}": value for key, value in numbers.items() if key in SHOWN}
            if base:
                page = f"{base.rstrip('/')}/#/models/{name}/versions/{version.version}"
                told[f"{name} in MLflow"] = dg.MetadataValue.url(page)
    return told
