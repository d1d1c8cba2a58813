"""Scores a feature matrix with models: the tables scores/gpu_scores and scores/node_scores.

Where an input is missing or old the status says unknown; no earlier score is ever repeated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial

import numpy as np
import polars as pl

from features.errors import DataError
from features.registry import Feature
from features.tables import GPU_SCORES, NODE_SCORES
from features.vocabulary import FAULT_TYPES
from models.bundle import ModelBundle
from models.calibration import FloatArray
from models.doubts import FAILED_MODEL, doubt, outside_share
from models.failure_model import Values, feature_values
from models.host_part import HOST_FEATURES
from models.node_scores import NodeCombination
from models.prior import PriorModel
from models.reasons import explain

TELEMETRY_FAMILIES = frozenset({"telemetry_gauge", "telemetry_counter", "telemetry_state"})
_ROW = "row"
_NO_REASONS = pl.lit([], dtype=pl.List(pl.String))
_TYPE_COLUMNS = ("fault_type", "fault_probability", "fault_probabilities")


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model with the version its scores carry.

    Attributes:
        version: Registry version, such as `gpu-failure-24h/3`.
        model: A bundle, or the prior of a site in cold start.
    """

    version: str
    model: ModelBundle | PriorModel


@dataclass(frozen=True, kw_only=True)
class ScoreLimits:
    """When a score is not to be trusted, and how much is explained.

    Attributes:
        max_missing_share: Share of telemetry features known in training that may be null.
        max_outside_share: Share of features that may be far outside what they were in training
            (`models.doubts.outside_share`).
        sample_age: Column with the age of the newest sample, hours; None: not checked.
        max_sample_age: Oldest newest sample.
        max_unknown_gpus: Share of a node's GPUs that may be unknown.
        n_explained: Rows of the newest moment explained per model, highest scores first (reasons
            are costly, and those of the past are read by nobody).
        n_reasons: Reasons per row.
    """

    max_missing_share: float = 0.5
    max_outside_share: float = 0.3
    sample_age: str | None = None
    max_sample_age: timedelta = timedelta(minutes=30)
    max_unknown_gpus: float = 0.5
    n_explained: int = 50
    n_reasons: int = 3


def score_gpus(
    matrix: pl.DataFrame,
    served: Sequence[ServedModel],
    *,
    limits: ScoreLimits | None = None,
    failed: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Scores each row with each model.

    Args:
        matrix: features/gpu_matrix.
        served: Models, one per horizon.
        limits: When a score is unknown.
        failed: GPUs whose inputs could not be read, with the cause; they are unknown.

    Returns:
        scores/gpu_scores: one row per matrix row and model, unknown ones included.

    Raises:
        DataError: A feature is missing, or a column that a limit names.
    """
    limits = limits or ScoreLimits()
    # Models of one training read the same features: fetching them costs more than the trees.
    values_of = lru_cache(maxsize=1)(partial(feature_values, matrix))
    parts = [
        _score_with(matrix, one, limits=limits, values_of=values_of, failed=failed)
        for one in served
    ]
    return pl.concat(parts) if parts else GPU_SCORES.empty()


def score_nodes(
    gpu_scores: pl.DataFrame,
    served: Sequence[ServedModel],
    *,
    matrix: pl.DataFrame | None = None,
    limits: ScoreLimits | None = None,
) -> pl.DataFrame:
    """Combines the GPU scores of each node, by each model's own combination.

    Args:
        gpu_scores: scores/gpu_scores of the same models.
        served: The models.
        matrix: features/gpu_matrix of the same rows, for what is the node's own; None: nodes
            are taken to fail by themselves at their mean rate.
        limits: When a score is unknown.

    Returns:
        scores/node_scores: one row per node, moment and model. Fault type and reasons are
        those of the node's highest GPU.

    Raises:
        DataError: A bundle has no combination for nodes.
    """
    limits = limits or ScoreLimits()
    if matrix is not None:
        keys = ["entity_id", "as_of"]
        counts = [name for name in HOST_FEATURES if name in matrix.columns]
        known = matrix.select(*keys, *counts)
        gpu_scores = gpu_scores.join(known, on=keys, how="left", maintain_order="left")
    parts = []
    for one in served:
        own = gpu_scores.filter(
            pl.col("model_version") == one.version, pl.col("node").is_not_null()
        )
        parts.append(_combine_with(own, one, limits=limits))
    return pl.concat(parts) if parts else NODE_SCORES.empty()


def missing_share(
    matrix: pl.DataFrame, features: Sequence[Feature], known: frozenset[str]
) -> FloatArray:
    """Share of the telemetry features, known in training, that are null in each row.

    A null in the history ("no incident yet") is an answer; a null in telemetry is not.

    Args:
        matrix: Rows.
        features: Features of the model.
        known: Features that had values in training.

    Returns:
        Shape (rows,); 0 for a model without telemetry.
    """
    names = [f.name for f in features if f.family in TELEMETRY_FAMILIES and f.name in known]
    if not names:
        return np.zeros(matrix.height)
    # Of a fleet's hundreds of columns most have no null at all.
    holed = [name for name in names if matrix[name].null_count()]
    if not holed:
        return np.zeros(matrix.height)
    nulls = matrix.select(pl.sum_horizontal(pl.col(holed).is_null().cast(pl.UInt16)))
    return np.asarray(nulls.to_series().to_numpy() / len(names), dtype=np.float64)


def _score_with(
    matrix: pl.DataFrame,
    one: ServedModel,
    *,
    limits: ScoreLimits,
    values_of: Callable[[tuple[str, ...]], Values],
    failed: Mapping[str, str] | None,
) -> pl.DataFrame:
    if isinstance(one.model, PriorModel):
        return _score_by_prior(matrix, one.model, version=one.version)
    bundle = one.model
    values = values_of(bundle.model.feature_names)
    scored = _with_scores(matrix, bundle, values=values, limits=limits, failed=failed)
    is_ok = pl.col("status") == "ok"
    types = _fault_types(matrix, bundle, values=values)
    return (
        scored.hstack(types)
        .with_columns(reasons=_reasons(scored, bundle, limits=limits))
        .with_columns(
            *(pl.when(is_ok).then(pl.col(name)).alias(name) for name in types.columns),
            entity_kind=pl.lit(bundle.model.entity_kind),
            horizon_h=pl.lit(bundle.model.horizon_h, dtype=pl.Int32),
            model_version=pl.lit(one.version),
            trained_on=pl.lit(bundle.model.trained_on),
        )
        .select(GPU_SCORES.schema.names())
    )


def _with_scores(
    matrix: pl.DataFrame,
    bundle: ModelBundle,
    *,
    values: Values,
    limits: ScoreLimits,
    failed: Mapping[str, str] | None,
) -> pl.DataFrame:
    """The rows with `score`, `status`, `status_reason` and `missing_share`."""
    missing = missing_share(matrix, bundle.features, frozenset(bundle.usual.median))
    why = doubt(
        matrix,
        missing=missing,
        outside=outside_share(values, bundle.model.feature_names, bundle.usual),
        max_missing_share=limits.max_missing_share,
        max_outside_share=limits.max_outside_share,
        sample_age=limits.sample_age,
        max_sample_age=limits.max_sample_age,
        failed=failed,
    )
    scored = matrix.with_columns(
        score=pl.Series(bundle.model.scores(matrix, values=values), dtype=pl.Float64),
        missing_share=pl.Series(missing, dtype=pl.Float64),
        status_reason=why,
    )
    is_sure = pl.col("status_reason").is_null()
    return scored.with_columns(
        status=pl.when(is_sure).then(pl.lit("ok")).otherwise(pl.lit("unknown")),
        score=pl.when(is_sure).then(pl.col("score")),
    )


def _fault_types(matrix: pl.DataFrame, bundle: ModelBundle, *, values: Values) -> pl.DataFrame:
    """The most probable fault type of each row, its share, and all shares; null without a model."""
    kinds = bundle.fault_types
    if kinds is None:
        schema = {name: GPU_SCORES.schema[name] for name in _TYPE_COLUMNS}
        return pl.DataFrame(schema=schema).clear(matrix.height)
    is_same = kinds.feature_names == bundle.model.feature_names
    shares = kinds.probabilities(matrix, values=values if is_same else None)
    best = shares.argmax(axis=1)
    # To a thousandth: more digits say nothing, and take ten times the room on disk.
    every = np.zeros((matrix.height, len(FAULT_TYPES)), dtype=np.float32)
    for position, name in enumerate(kinds.classes):
        if name in FAULT_TYPES:
            every[:, FAULT_TYPES.index(name)] = shares[:, position].round(3)
    of_best = shares[np.arange(matrix.height), best]
    return pl.DataFrame(
        {
            "fault_type": pl.Series(kinds.classes, dtype=pl.String).gather(best),
            "fault_probability": pl.Series(of_best, dtype=pl.Float64),
            "fault_probabilities": pl.Series(every).cast(pl.List(pl.Float32)),
        }
    )


def unknown_scores(matrix: pl.DataFrame, one: ServedModel, *, cause: str) -> pl.DataFrame:
    """Rows that say why a model gave no score at all.

    Args:
        matrix: features/gpu_matrix.
        one: The model.
        cause: Why.

    Returns:
        scores/gpu_scores, every one unknown.
    """
    task = one.model.task if isinstance(one.model, PriorModel) else one.model.model.task
    nothing = {name: GPU_SCORES.schema[name] for name in ("score", *_TYPE_COLUMNS)}
    return matrix.with_columns(
        *(pl.lit(None, dtype=dtype).alias(name) for name, dtype in nothing.items()),
        entity_kind=pl.lit(task.entity_kind),
        horizon_h=pl.lit(task.horizon_h, dtype=pl.Int32),
        status=pl.lit("unknown"),
        status_reason=pl.lit(FAILED_MODEL + cause),
        reasons=_NO_REASONS,
        missing_share=pl.lit(1.0),
        model_version=pl.lit(one.version),
        trained_on=pl.lit(task.trained_on),
    ).select(GPU_SCORES.schema.names())


def _reasons(scored: pl.DataFrame, bundle: ModelBundle, *, limits: ScoreLimits) -> pl.Series:
    """Reasons of the newest moment's highest scores; an empty list for the rest."""
    # Ranked by few columns: sorting the features along takes longer than scoring them.
    ranked = (
        scored.select("score", "entity_id", "as_of")
        .with_row_index(_ROW)
        .filter(pl.col("score").is_not_null(), pl.col("as_of") == pl.col("as_of").max())
        .sort(["score", "entity_id", "as_of"], descending=[True, False, False])
        .head(limits.n_explained)
    )
    top = scored[ranked[_ROW]].with_columns(ranked[_ROW])
    words = explain(
        top,
        bundle.model,
        features=bundle.features,
        usual=bundle.usual,
        n_reasons=limits.n_reasons,
    )
    told = top.select(_ROW, pl.Series("reasons", words, dtype=pl.List(pl.String)))
    every = pl.select(pl.int_range(scored.height, dtype=pl.get_index_type()).alias(_ROW))
    found = every.join(told, on=_ROW, how="left", maintain_order="left")
    return found.select(pl.col("reasons").fill_null(_NO_REASONS)).to_series()


def _score_by_prior(matrix: pl.DataFrame, prior: PriorModel, *, version: str) -> pl.DataFrame:
    reason = (
        "no model of this site's own is champion: the score is a published rate, raised where "
        "the GPU has failed before"
    )
    return matrix.with_columns(
        entity_kind=pl.lit(prior.task.entity_kind),
        horizon_h=pl.lit(prior.task.horizon_h, dtype=pl.Int32),
        score=pl.Series(prior.scores(matrix), dtype=pl.Float64),
        status=pl.lit("prior"),
        status_reason=pl.lit(reason),
        fault_type=pl.lit(None, dtype=pl.String),
        fault_probability=pl.lit(None, dtype=pl.Float64),
        fault_probabilities=pl.lit(None, dtype=GPU_SCORES.schema["fault_probabilities"]),
        reasons=_NO_REASONS,
        missing_share=pl.lit(0.0),
        model_version=pl.lit(version),
        trained_on=pl.lit(prior.task.trained_on),
    ).select(GPU_SCORES.schema.names())


def _combine_with(own: pl.DataFrame, one: ServedModel, *, limits: ScoreLimits) -> pl.DataFrame:
    """Node rows of one model's GPU rows."""
    if isinstance(one.model, PriorModel):
        combination, task = NodeCombination(host_probability=0.0), one.model.task
    else:
        if one.model.nodes is None:
            raise DataError(
                f"node scores: model {one.version} has no combination for nodes. Fit "
                f"models.node_scores.NodeCombination and register the model with it."
            )
        combination, task = one.model.nodes, one.model.model.task
    nodes = combination.combine(own).join(_leading(own), on=["node", "as_of"], how="left")
    unknown = pl.col("n_unknown") / pl.col("n_gpus") > limits.max_unknown_gpus
    is_prior = isinstance(one.model, PriorModel)
    is_unknown = unknown | pl.col("score").is_null()
    counted = pl.format("{} of {} GPUs unknown: {}", "n_unknown", "n_gpus", "doubt")
    return nodes.select(
        entity_kind=pl.lit("node"),
        entity_id=pl.col("node"),
        node=pl.col("node"),
        as_of=pl.col("as_of"),
        horizon_h=pl.lit(task.horizon_h, dtype=pl.Int32),
        score=pl.when(~is_unknown).then(pl.col("score")),
        status=pl.when(is_unknown)
        .then(pl.lit("unknown"))
        .otherwise(pl.lit("prior" if is_prior else "ok")),
        status_reason=pl.when(is_unknown)
        .then(counted)
        .otherwise(pl.col("doubt") if is_prior else pl.lit(None, dtype=pl.String)),
        **{name: pl.when(~is_unknown).then(pl.col(name)) for name in _TYPE_COLUMNS},
        reasons=_node_reasons(is_unknown),
        missing_share=pl.col("missing_share"),
        model_version=pl.lit(one.version),
        trained_on=pl.lit(task.trained_on),
    ).select(NODE_SCORES.schema.names())


def _leading(own: pl.DataFrame) -> pl.DataFrame:
    """Of each node and moment the highest GPU, with its fault type and reasons."""
    # By few columns, as the lists of types and reasons are heavy to sort along.
    leading = (
        own.select("node", "as_of", "score", "entity_id", "status_reason", "missing_share")
        .with_row_index(_ROW)
        # Unknown ones last by a number: nulls_last takes Polars seven times as long.
        .sort(pl.col("score").fill_null(-1.0), "entity_id", descending=[True, False])
        .group_by("node", "as_of", maintain_order=True)
        .agg(
            pl.col(_ROW, "entity_id").first(),
            pl.col("missing_share").mean(),
            pl.col("status_reason").drop_nulls().first().alias("doubt"),
        )
        .rename({"entity_id": "gpu"})
    )
    return leading.hstack(own[leading[_ROW]].select(*_TYPE_COLUMNS, "reasons"))


def _node_reasons(is_unknown: pl.Expr) -> pl.Expr:
    """Reasons of the leading GPU, each with its name; a note where some GPUs are unknown."""
    of_gpu = pl.concat_list(pl.format("leading GPU: {}", "gpu"), "reasons")
    note = pl.concat_list(
        of_gpu, pl.format("{} of {} GPUs not scored: {}", "n_unknown", "n_gpus", "doubt")
    )
    return (
        pl.when(is_unknown)
        .then(_NO_REASONS)
        .when(pl.col("n_unknown") > 0)
        .then(note)
        .otherwise(of_gpu)
    )
