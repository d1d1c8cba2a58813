"""Model and score assets: candidates in the registry, and scores by the champions.

Training order is in `models.candidate`; scoring in `models.scoring`.
"""

from collections.abc import Sequence

import dagster as dg
import polars as pl

from pipelines.defs.partitions import ONE_RUN, Partitions, run_span
from pipelines.flow import planned_work, publish_latest, score_matrix, train_candidates
from pipelines.resources import Installation
from pipelines.serving.delivery import delivery_of

KINDS = {"parquet"}


def model_assets(partitions: Partitions) -> Sequence[dg.AssetsDefinition]:
    """The model and score assets of one installation."""

    @dg.asset(
        key=["models", "candidate"],
        ins={
            "matrix": dg.AssetIn(["features", "gpu_matrix"]),
            "labels": dg.AssetIn(["features", "labels"]),
            "incidents": dg.AssetIn(["core", "incidents"]),
            "topology": dg.AssetIn(["core", "topology"]),
            "maintenance": dg.AssetIn(["core", "maintenance"]),
            "node_states": dg.AssetIn(["core", "node_states"]),
        },
        group_name="models",
        kinds={"lightgbm", "mlflow"},
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
        catalogue = installation.catalogue
        outcome = train_candidates(
            matrix,
            labels=labels,
            incidents=incidents,
            topology=topology,
            settings=installation.settings,
            catalogue=catalogue,
            maintenance=planned_work(maintenance, node_states, catalogue=catalogue),
        )
        return dg.MaterializeResult(metadata=dict(outcome))

    @dg.multi_asset(
        outs={
            "gpu_scores": dg.AssetOut(key=["scores", "gpu_scores"], kinds=KINDS),
            "node_scores": dg.AssetOut(key=["scores", "node_scores"], kinds=KINDS),
        },
        ins={"matrix": dg.AssetIn(["features", "gpu_matrix"])},
        deps=[dg.AssetKey(["models", "candidate"])],
        partitions_def=partitions.data,
        backfill_policy=ONE_RUN,
        group_name="scores",
        description="Failure scores per GPU and node by the champions; the last hour is published.",
    )
    def scores(
        context: dg.AssetExecutionContext, installation: Installation, matrix: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        span = run_span(context)
        gpu_scores, node_scores = score_matrix(matrix, installation.settings, span=span)
        if publish_latest(
            gpu_scores,
            node_scores,
            settings=installation.settings,
            as_of=span.end,
            now=installation.now,
        ):
            delivery_of(installation.settings).run(installation.now)
        return gpu_scores, node_scores

    return [candidate, scores]
