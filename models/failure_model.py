"""The failure score as a value: boosters, their columns, and the map to a probability.

It is trained in `models.training.boosters` and stored by `models.registry.model_registry`; nothing
is read or written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import DataError
from features.tables import GPU_MATRIX
from models.calibration import (
    UNCALIBRATED,
    Calibration,
    FloatArray,
    fit_calibration,
    incidents_behind,
)
from models.forest.scorer import RawScorer
from models.specs import Task, TrainSpec

if TYPE_CHECKING:
    from models.member_protocol import Member

_LARGEST = 1e18

Values = npt.NDArray[np.float32]
"""Features as models read them: shape (rows, features), NaN where unknown."""


@dataclass(frozen=True, kw_only=True)
class FailureModel:
    """A trained failure score with all it needs to be used and judged.

    Attributes:
        boosters: One per seed; raw log-odds are averaged.
        feature_names: Columns, in the boosters' order.
        task: What it predicts.
        spec: How it was trained.
        calibration: From raw log-odds to probability.
        member: The ensemble that scores; None: the boosters do. Reasons are theirs in any case.
        data_span: First and last `as_of` of the training rows.
        contract_version: Fingerprint of the matrix contract and the feature names.
        data_hash: Fingerprint of the training rows.
        n_rows: Training rows with a label.
        n_positive: Positive ones.
        n_incidents: Distinct incidents among them.
    """

    boosters: tuple[lgb.Booster, ...]
    feature_names: tuple[str, ...]
    task: Task
    spec: TrainSpec
    calibration: Calibration = UNCALIBRATED
    member: "Member | None" = None
    data_span: tuple[datetime, datetime]
    contract_version: str
    data_hash: str
    n_rows: int
    n_positive: int
    n_incidents: int

    @property
    def horizon_h(self) -> int:
        """Horizon H, hours."""
        return self.task.horizon_h

    @property
    def lead(self) -> timedelta:
        """Minimum lead L."""
        return self.task.lead

    @property
    def entity_kind(self) -> str:
        """Gpu or node."""
        return self.task.entity_kind

    @property
    def trained_on(self) -> str:
        """Synthetic or real."""
        return self.task.trained_on

    @cached_property
    def _scorers(self) -> tuple[RawScorer, ...]:
        threads = self.spec.num_threads
        return tuple(RawScorer(booster=one, num_threads=threads) for one in self.boosters)

    def raw_scores(self, matrix: pl.DataFrame, *, values: Values | None = None) -> FloatArray:
        """Raw log-odds: of the ensemble, or the mean of the boosters.

        Args:
            matrix: One row per entity and moment; columns are picked by name, extra ones ignored.
            values: Its `feature_values` of this model's features, where they are at hand.

        Returns:
            Log-odds, shape (n,).

        Raises:
            DataError: A feature is missing or not numeric, or a booster's own names disagree.
        """
        if self.member is not None:
            return self.member.raw_scores(matrix)
        if values is None:
            values = feature_values(matrix, self.feature_names)
        total = np.zeros(matrix.height)
        if not matrix.height:
            return total
        for scorer in self._scorers:
            check_feature_order(scorer.booster, self.feature_names)
            total += scorer.raw_scores(values)
        return total / len(self.boosters)

    def scores(self, matrix: pl.DataFrame, *, values: Values | None = None) -> FloatArray:
        """Calibrated probabilities; see `raw_scores` for arguments and errors."""
        return self.calibration.apply(self.raw_scores(matrix, values=values))

    def calibrated_on(self, rows: pl.DataFrame) -> "FailureModel":
        """The same model, calibrated on validation rows.

        Args:
            rows: Rows with features, `label` and, where known, `incident_id`; null labels are left
                out.

        Returns:
            A new model.

        Raises:
            DataError: Too few positives to calibrate on.
        """
        known = rows.filter(pl.col("label").is_not_null())
        label = known["label"].to_numpy().astype(np.int8)
        fitted = fit_calibration(self.raw_scores(known), label, n_incidents=incidents_behind(known))
        return replace(self, calibration=fitted)


def feature_values(matrix: pl.DataFrame, names: Sequence[str]) -> Values:
    """The named columns as float32; null becomes NaN here and nowhere else.

    Args:
        matrix: Any frame that holds the columns.
        names: Columns, in the order wanted.

    Returns:
        Array of shape (rows, names), column after column in memory, as frames are.

    Raises:
        DataError: A column is missing or not numeric.
    """
    schema = matrix.schema  # once: it is made anew each time, of hundreds of columns
    missing = [name for name in names if name not in schema]
    if missing:
        raise DataError(
            f"feature matrix: {len(missing)} of {len(names)} features are missing: "
            f"{', '.join(missing[:5])}. Build the matrix with the features the model was "
            f"trained with (feature_set and topology of the site), or train again."
        )
    # LightGBM aborts the whole process on text, enum and time columns: only numbers go on.
    wrong = [n for n in names if not (schema[n].is_numeric() or schema[n] == pl.Boolean)]
    if wrong:
        raise DataError(
            f"feature matrix: column {wrong[0]!r} must be Float32, got {schema[wrong[0]]} "
            f"({len(wrong)} such columns). Features are numbers."
        )
    values = matrix.select(pl.col(names).cast(pl.Float32)).to_numpy(order="fortran")
    # Columns that lie in one piece of memory come uncopied: not to be written to.
    return np.require(values, requirements=("F", "W"))


def finite_values(matrix: pl.DataFrame, names: Sequence[str]) -> Values:
    """`feature_values` for whoever computes with values, where trees only compare them.

    An infinite one, as a quotient by nothing is, becomes 1e18: no measured value is so large, and
    its square is a float32 still. See `feature_values` for arguments and errors.
    """
    values = feature_values(matrix, names)
    return np.clip(values, -_LARGEST, _LARGEST, out=values)


def check_feature_order(booster: lgb.Booster, names: Sequence[str]) -> None:
    """Holds a model's feature names against the booster's own.

    Raises:
        DataError: They differ; a reordered column would change scores without a word.
    """
    own = booster.feature_name()
    if list(names) != own:
        at = next((i for i, (a, b) in enumerate(zip(names, own, strict=False)) if a != b), -1)
        raise DataError(
            f"model: its {len(names)} feature names are not the booster's {len(own)}"
            + (f"; at {at} it says {names[at]!r}, the booster {own[at]!r}" if at >= 0 else "")
            + ". The model's files do not belong together; register it again."
        )


def contract_version(feature_names: Sequence[str]) -> str:
    """Fingerprint of the matrix contract and a list of features, in order."""
    contract = [f"{c.name}:{c.dtype}:{c.nullable}" for c in GPU_MATRIX.columns]
    return sha256("\n".join([*contract, *feature_names]).encode()).hexdigest()[:12]
