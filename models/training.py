"""Trains the failure score: LightGBM boosters on a feature matrix and labels.

Calibration, evaluation and storage are elsewhere; no file is read or written here.
"""

from collections.abc import Sequence
from hashlib import sha256

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import DataError
from models.failure_model import FailureModel, contract_version, feature_values
from models.specs import Task, TrainSpec


class TooFewIncidentsError(DataError):
    """The training rows hold too few incidents: the site is in cold start."""


def training_rows(
    matrix: pl.DataFrame, labels: pl.DataFrame, *, horizon_h: int, entity_kind: str = "gpu"
) -> pl.DataFrame:
    """Joins a matrix with its labels of one horizon.

    Args:
        matrix: features/gpu_matrix.
        labels: features/labels.
        horizon_h: Horizon to keep.
        entity_kind: Kind of entity to keep.

    Returns:
        The matrix's rows that have a label row, with `label`, `fault_type`, `incident_id` and
        `censored_by`; censored rows keep their null label.
    """
    wanted = labels.filter(
        pl.col("horizon_h") == horizon_h, pl.col("entity_kind") == entity_kind
    ).select("entity_id", "as_of", "label", "fault_type", "incident_id", "censored_by")
    return matrix.join(wanted, on=["entity_id", "as_of"], how="inner", maintain_order="left")


def train(
    rows: pl.DataFrame,
    *,
    feature_names: Sequence[str],
    task: Task,
    spec: TrainSpec | None = None,
    valid: pl.DataFrame | None = None,
) -> FailureModel:
    """Trains one booster per seed on the rows whose label is known.

    Args:
        rows: Rows with `entity_id`, `as_of`, `label`, the features and, where known,
            `incident_id`; rows with a null label are left out. Their order does not matter.
        feature_names: Features to learn from.
        task: What is predicted.
        spec: How; default `TrainSpec()`.
        valid: Rows for early stopping.

    Returns:
        An uncalibrated model (`FailureModel.calibrated_on` is the next step).

    Raises:
        TooFewIncidentsError: Fewer incidents than `spec.min_incidents`: score by prior.
        DataError: No negative row, a feature missing or not numeric.
    """
    spec = spec or TrainSpec()
    names = tuple(feature_names)
    known = (
        rows.select("entity_id", "as_of", "label")
        .with_row_index("row")
        .filter(pl.col("label").is_not_null())
        .sort("entity_id", "as_of")
    )
    label = known["label"].to_numpy().astype(np.float32)
    n_positive = int((label == 1).sum())
    n_incidents = count_incidents(rows)
    if n_incidents < spec.min_incidents or n_positive == 0:
        raise TooFewIncidentsError(
            f"training {task.entity_kind} {task.horizon_h} h: {n_incidents} incidents "
            f"({n_positive} positive of {known.height} labelled rows), needed "
            f"{max(spec.min_incidents, 1)}. Score by prior until more have been seen."
        )
    if n_positive == known.height:
        raise DataError(
            f"training {task.entity_kind} {task.horizon_h} h: all {n_positive} labelled rows are "
            f"positive. Give rows of entities that did not fail too."
        )
    # Only rows that some booster learns from are fetched: with few negatives, most are not.
    samples = [_sample_negatives(label, share=spec.negative_share, seed=s) for s in spec.seeds]
    is_used = np.logical_or.reduce(samples)
    used, label = known.filter(is_used), label[is_used]
    values = feature_values(rows[used["row"]], names)
    boosters = tuple(
        _booster(
            values, label, keep=sample[is_used], names=names, spec=spec, seed=seed, valid=valid
        )
        for seed, sample in zip(spec.seeds, samples, strict=True)
    )
    as_of = known["as_of"]
    return FailureModel(
        boosters=boosters,
        feature_names=names,
        task=task,
        spec=spec,
        data_span=(as_of.min(), as_of.max()),  # type: ignore[arg-type]  # a datetime column
        contract_version=contract_version(names),
        data_hash=_data_hash(used, values, label),
        n_rows=known.height,
        n_positive=n_positive,
        n_incidents=n_incidents,
    )


def count_incidents(rows: pl.DataFrame) -> int:
    """Distinct incidents among positive rows; without ids, distinct failing entities."""
    positive = rows.filter(pl.col("label") == 1)
    if "incident_id" in rows.columns:
        return positive["incident_id"].drop_nulls().n_unique()
    return positive["entity_id"].n_unique()


def _data_hash(
    known: pl.DataFrame, values: npt.NDArray[np.float32], label: npt.NDArray[np.float32]
) -> str:
    digest = sha256("\n".join(known["entity_id"].to_list()).encode())
    digest.update(known["as_of"].dt.epoch("us").to_numpy().tobytes())
    digest.update(np.ascontiguousarray(values).tobytes())
    digest.update(np.ascontiguousarray(label).tobytes())
    return digest.hexdigest()


def _booster(
    values: npt.NDArray[np.float32],
    label: npt.NDArray[np.float32],
    *,
    keep: npt.NDArray[np.bool_],
    names: tuple[str, ...],
    spec: TrainSpec,
    seed: int,
    valid: pl.DataFrame | None,
) -> lgb.Booster:
    weight = np.where(label == 1, 1.0, 1.0 / spec.negative_share).astype(np.float32)[keep]
    data = lgb.Dataset(values[keep], label[keep], weight=weight, feature_name=list(names))
    parameters = _parameters(spec, names=names, seed=seed)
    if valid is None or spec.early_stopping is None:
        return lgb.train(parameters, data, num_boost_round=spec.rounds)
    known = valid.filter(pl.col("label").is_not_null())
    watched = lgb.Dataset(
        feature_values(known, names), known["label"].to_numpy().astype(np.float32), reference=data
    )
    stop = lgb.early_stopping(spec.early_stopping, verbose=False)
    fitted = lgb.train(
        parameters, data, num_boost_round=spec.rounds, valid_sets=[watched], callbacks=[stop]
    )
    # The text of a booster does not carry its best round: cut the rest off.
    return lgb.Booster(model_str=fitted.model_to_string(num_iteration=fitted.best_iteration))


def _sample_negatives(
    label: npt.NDArray[np.float32], *, share: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Rows to keep: every positive, and a share of the negatives."""
    chosen = np.random.default_rng(seed).random(label.size) < share
    return np.asarray((label == 1) | chosen)


def _parameters(spec: TrainSpec, *, names: tuple[str, ...], seed: int) -> dict[str, object]:
    parameters: dict[str, object] = {
        "objective": "binary",
        "num_leaves": spec.num_leaves,
        "learning_rate": spec.learning_rate,
        # Counted in rows of the population, of which a share of the negatives is left.
        "min_data_in_leaf": max(1, round(spec.min_data_in_leaf * spec.negative_share)),
        "lambda_l2": spec.lambda_l2,
        "feature_fraction": spec.feature_fraction,
        "bagging_fraction": spec.bagging_fraction,
        "bagging_freq": 1,
        "seed": seed,
        "num_threads": spec.num_threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    if spec.monotone:
        unknown = [name for name, _ in spec.monotone if name not in names]
        if unknown:
            raise DataError(
                f"train spec: monotone names features that are not there: {', '.join(unknown)}."
            )
        direction = dict(spec.monotone)
        parameters["monotone_constraints"] = [direction.get(name, 0) for name in names]
    return parameters
