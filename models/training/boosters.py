"""Trains the failure score: LightGBM boosters on a feature matrix and labels.

How rows become bins is in `models.training.binning`; calibration, evaluation and storage are
elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import DataError
from models.failure_model import FailureModel, contract_version, feature_values
from models.specs import Task, TrainSpec
from models.training.binning import (
    BATCH_ROWS,
    BIN_PARAMETERS,
    FrameReader,
    RowReader,
    ScanReader,
    bin_features,
)
from models.training.uncertain import WEIGHT

_ORDER: Final = ("as_of", "entity_id")


class TooFewIncidentsError(DataError):
    """The training rows hold too few incidents: the site is in cold start."""


@dataclass(frozen=True, kw_only=True)
class BinnedRows:
    """Training rows in bins, for every spec with the same seeds and share of negatives.

    Attributes:
        data: Bins, one per seed; the same for all seeds where all negatives are kept.
        feature_names: Features, in order.
        seeds: Seeds of the samples.
        negative_share: Share of negatives kept.
        data_span: First and last `as_of` of the rows whose label is known.
        data_hash: Fingerprint of the rows.
        n_rows: Rows whose label is known.
        n_positive: Positive ones.
        n_incidents: Distinct incidents among them.
    """

    data: tuple[lgb.Dataset, ...]
    feature_names: tuple[str, ...]
    seeds: tuple[int, ...]
    negative_share: float
    data_span: tuple[datetime, datetime]
    data_hash: str
    n_rows: int
    n_positive: int
    n_incidents: int


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
    rows: pl.DataFrame | pl.LazyFrame,
    *,
    feature_names: Sequence[str],
    task: Task,
    spec: TrainSpec | None = None,
    valid: pl.DataFrame | None = None,
) -> FailureModel:
    """Trains one booster per seed on the rows whose label is known.

    Features are read in batches and kept as bins, a byte a value: a lazy frame, such as a scan of
    Parquet files, is never in memory as a whole.

    Args:
        rows: Rows with `entity_id`, `as_of`, `label`, the features and, where known,
            `incident_id` and `weight` (`models.training.uncertain`); rows with a null label are
            left out. The order of a frame does not matter; a lazy frame is sorted by `as_of` and
            `entity_id`.
        feature_names: Features to learn from.
        task: What is predicted.
        spec: How; default `TrainSpec()`.
        valid: Rows for early stopping.

    Returns:
        An uncalibrated model (`FailureModel.calibrated_on` is the next step).

    Raises:
        TooFewIncidentsError: Fewer incidents than `spec.min_incidents`: score by prior.
        DataError: No negative row, a feature missing or not numeric, a lazy frame not sorted.
    """
    spec = spec or TrainSpec()
    binned = bin_rows(rows, feature_names=feature_names, task=task, spec=spec)
    return train_binned(binned, task=task, spec=spec, valid=valid)


def bin_rows(
    rows: pl.DataFrame | pl.LazyFrame, *, feature_names: Sequence[str], task: Task, spec: TrainSpec
) -> BinnedRows:
    """Bins training rows once, for any number of trainings.

    Args:
        rows: As for `train`.
        feature_names: Features to learn from.
        task: What is predicted.
        spec: Its seeds, share of negatives and least number of incidents are used.

    Returns:
        The bins.

    Raises:
        TooFewIncidentsError: As for `train`.
        DataError: As for `train`.
    """
    names = tuple(feature_names)
    reader, keys = _open(rows)
    label = keys["label"].fill_null(0).to_numpy().astype(np.float32)
    is_known = keys["label"].is_not_null().to_numpy()
    n_rows, n_positive = int(is_known.sum()), int((label == 1).sum())
    n_incidents = count_incidents(keys)
    _check_classes(n_positive, n_rows, n_incidents=n_incidents, task=task, spec=spec)
    as_of = keys["as_of"].filter(pl.Series(is_known))
    span = (as_of.min(), as_of.max())
    # All negatives: the same rows for every seed, binned once.
    drawn = spec.seeds if spec.negative_share < 1.0 else spec.seeds[:1]
    samples = [_sample(label, is_known, share=spec.negative_share, seed=seed) for seed in drawn]
    own_weight = keys[WEIGHT].to_numpy().astype(np.float32) if WEIGHT in keys.columns else None
    hashes = _key_hashes(keys, label, samples)
    del keys, as_of  # names of entities would stay in memory beside the bins
    data = []
    for used in samples:
        weight = _weights(label, own_weight, used, share=spec.negative_share)
        bins, values_hash = bin_features(
            reader, used, names=names, label=label[used], weight=weight
        )
        data.append(bins)
        hashes.append(values_hash)
    return BinnedRows(
        data=tuple(data) if spec.negative_share < 1.0 else (data[0],) * len(spec.seeds),
        feature_names=names,
        seeds=spec.seeds,
        negative_share=spec.negative_share,
        data_span=span,  # type: ignore[arg-type]  # a datetime column
        data_hash=sha256("".join(hashes).encode()).hexdigest(),
        n_rows=n_rows,
        n_positive=n_positive,
        n_incidents=n_incidents,
    )


def train_binned(
    binned: BinnedRows, *, task: Task, spec: TrainSpec, valid: pl.DataFrame | None = None
) -> FailureModel:
    """Trains on rows that are binned already; the same as `train` on the rows themselves.

    Args:
        binned: The rows.
        task: What is predicted.
        spec: How; seeds and share of negatives must be those of the bins.
        valid: Rows for early stopping.

    Returns:
        An uncalibrated model.

    Raises:
        DataError: The bins were made for other seeds or another share.
    """
    asked, made = (spec.seeds, spec.negative_share), (binned.seeds, binned.negative_share)
    if asked != made:
        raise DataError(
            f"training on bins: spec asks for seeds and negative_share {asked}, the bins were made "
            f"for {made}. Bin the rows anew."
        )
    names = binned.feature_names
    boosters = tuple(
        _booster(data, names=names, spec=spec, seed=seed, valid=valid)
        for seed, data in zip(spec.seeds, binned.data, strict=True)
    )
    return FailureModel(
        boosters=boosters,
        feature_names=names,
        task=task,
        spec=spec,
        data_span=binned.data_span,
        contract_version=contract_version(names),
        data_hash=binned.data_hash,
        n_rows=binned.n_rows,
        n_positive=binned.n_positive,
        n_incidents=binned.n_incidents,
    )


def count_incidents(rows: pl.DataFrame) -> int:
    """Distinct incidents among positive rows; without ids, distinct failing entities."""
    positive = rows.filter(pl.col("label") == 1)
    if "incident_id" in rows.columns:
        return positive["incident_id"].drop_nulls().n_unique()
    return positive["entity_id"].n_unique()


def _open(rows: pl.DataFrame | pl.LazyFrame) -> tuple[RowReader, pl.DataFrame]:
    """The reader of rows, and their keys and labels in the order of training."""
    wanted = [*_ORDER, "label"]
    wanted += [name for name in ("incident_id", WEIGHT) if name in rows.collect_schema()]
    if isinstance(rows, pl.LazyFrame):
        keys = rows.select(wanted).collect()
        if not keys.select(pl.struct(_ORDER)).to_series().is_sorted():
            raise DataError(
                f"training rows: a lazy frame of {keys.height} rows must be sorted by as_of and "
                f"entity_id, for it is read in its own order. Sort it when it is written."
            )
        return ScanReader(rows), keys
    order = rows.select(_ORDER).with_row_index("row").sort(_ORDER, maintain_order=True)["row"]
    return FrameReader(rows, order.to_numpy().astype(np.intp)), rows.select(wanted)[order]


def _check_classes(
    n_positive: int, n_rows: int, *, n_incidents: int, task: Task, spec: TrainSpec
) -> None:
    if n_incidents < spec.min_incidents or n_positive == 0:
        raise TooFewIncidentsError(
            f"training {task.entity_kind} {task.horizon_h} h: {n_incidents} incidents "
            f"({n_positive} positive of {n_rows} labelled rows), needed "
            f"{max(spec.min_incidents, 1)}. Score by prior until more have been seen."
        )
    if n_positive == n_rows:
        raise DataError(
            f"training {task.entity_kind} {task.horizon_h} h: all {n_positive} labelled rows are "
            f"positive. Give rows of entities that did not fail too."
        )


def _weights(
    label: npt.NDArray[np.float32],
    own: npt.NDArray[np.float32] | None,
    used: npt.NDArray[np.bool_],
    *,
    share: float,
) -> npt.NDArray[np.float32] | None:
    """Weights of the used rows; None, which takes no memory, where all are 1."""
    if share == 1.0 and own is None:
        return None
    weight = np.where(label[used] == 1, 1.0, 1.0 / share).astype(np.float32)
    return weight if own is None else weight * own[used]


def _key_hashes(
    keys: pl.DataFrame, label: npt.NDArray[np.float32], samples: Sequence[npt.NDArray[np.bool_]]
) -> list[str]:
    """Fingerprints of who, when and how labelled the rows of each sample are."""
    hashes = []
    for used in samples:
        digest = sha256(label[used].tobytes())
        if WEIGHT in keys.columns:
            digest.update(keys[WEIGHT].to_numpy()[used].tobytes())
        for part in keys.select(_ORDER).filter(pl.Series(used)).iter_slices(BATCH_ROWS):
            digest.update(("\n".join(part["entity_id"].to_list()) + "\n").encode())
            digest.update(part["as_of"].dt.epoch("us").to_numpy().tobytes())
        hashes.append(digest.hexdigest())
    return hashes


def _booster(
    data: lgb.Dataset,
    *,
    names: tuple[str, ...],
    spec: TrainSpec,
    seed: int,
    valid: pl.DataFrame | None,
) -> lgb.Booster:
    parameters = booster_parameters(spec, names=names, seed=seed)
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


def _sample(
    label: npt.NDArray[np.float32],
    is_known: npt.NDArray[np.bool_],
    *,
    share: float,
    seed: int,
) -> npt.NDArray[np.bool_]:
    """Rows to keep: every positive, and a share of the negatives."""
    chosen = np.zeros(label.size, dtype=np.bool_)
    # Drawn for known rows alone: others beside them change nothing.
    chosen[is_known] = np.random.default_rng(seed).random(int(is_known.sum())) < share
    return np.asarray((label == 1) | chosen)


def booster_parameters(spec: TrainSpec, *, names: tuple[str, ...], seed: int) -> dict[str, object]:
    """What LightGBM is told for a spec.

    Raises:
        DataError: A monotone direction is given for a feature that is not there.
    """
    parameters: dict[str, object] = {
        **BIN_PARAMETERS,
        "objective": "binary",
        "num_leaves": spec.num_leaves,
        "learning_rate": spec.learning_rate,
        # Counted in rows of the population, of which a share of the negatives is left.
        "min_data_in_leaf": max(1, round(spec.min_data_in_leaf * spec.negative_share)),
        "lambda_l2": spec.lambda_l2,
        "feature_fraction": spec.feature_fraction,
        "bagging_fraction": spec.bagging_fraction,
        "bagging_freq": 1,
        "extra_trees": spec.extra_trees,
        "path_smooth": spec.path_smooth,
        "seed": seed,
        "num_threads": spec.num_threads,
        "deterministic": True,
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
