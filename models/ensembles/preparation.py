"""What comes before a network: a bounded sample of the rows, medians for nulls, one scale.

All of it is learned on training rows and kept as plain arrays. No network is in here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from models.failure_model import Values, feature_values, finite_values
from models.training.boosters import TooFewIncidentsError, count_incidents

FAR_LIMIT: Final = 8.0
"""Standard deviations beyond which a value says no more: a network goes on for ever, a tree not."""


@dataclass(frozen=True)
class Sample:
    """Rows to learn from.

    Attributes:
        rows: All rows given, by entity and moment; those without a label are context only.
        at: Positions of the sample in `rows`, shape (n,).
        label: 0 or 1, shape (n,).
        log_share: Log of the share of the negatives kept: what log-odds learned on the sample
            are too high by.
    """

    rows: pl.DataFrame
    at: npt.NDArray[np.intp]
    label: npt.NDArray[np.int8]
    log_share: float


def training_sample(
    rows: pl.DataFrame, *, max_negatives: int, seed: int, min_incidents: int
) -> Sample:
    """Every positive row and at most so many negatives, by chance.

    Args:
        rows: Rows with `entity_id`, `as_of` and `label`, in any order.
        max_negatives: Negatives kept, about.
        seed: Seed of the choice.
        min_incidents: Fewer incidents than this are too few.

    Returns:
        The sample.

    Raises:
        TooFewIncidentsError: Too few incidents, or no negative row.
    """
    rows = rows.sort("entity_id", "as_of")
    label = rows["label"].fill_null(-1).to_numpy()
    n_incidents, n_negative = count_incidents(rows), int((label == 0).sum())
    if n_incidents < max(min_incidents, 1) or n_negative == 0:
        raise TooFewIncidentsError(
            f"training a member: {n_incidents} incidents and {n_negative} negative rows, needed "
            f"{max(min_incidents, 1)} and 1. Train on a longer time, or score by prior."
        )
    share = min(1.0, max_negatives / n_negative)
    drawn = np.random.default_rng(seed).random(label.size) < share
    at = np.flatnonzero((label == 1) | ((label == 0) & drawn))
    return Sample(rows, at, label[at].astype(np.int8), float(np.log(share)))


@dataclass(frozen=True)
class Preparation:
    """From features with gaps to numbers near zero, with one column more per column with gaps.

    Attributes:
        feature_names: Columns taken, in order.
        fill: What a null becomes, per feature.
        gaps: Positions of the features whose nulls are told by a column of their own.
        mean: Subtracted, per resulting column.
        scale: Divided by, per resulting column.
    """

    feature_names: tuple[str, ...]
    fill: npt.NDArray[np.float64]
    gaps: npt.NDArray[np.intp]
    mean: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]

    @property
    def width(self) -> int:
        """Columns that come out."""
        return self.mean.size

    def apply(self, rows: pl.DataFrame) -> npt.NDArray[np.float32]:
        """Prepared values of rows, shape (n, width), row after row in memory.

        Raises:
            DataError: A feature is missing or not numeric.
        """
        return self.apply_values(feature_values(rows, self.feature_names))

    def apply_values(self, values: Values) -> npt.NDArray[np.float32]:
        """The same for values that were fetched already."""
        is_null = np.isnan(values)
        known = np.where(is_null, self.fill, values)
        both = np.concatenate([known, is_null[:, self.gaps]], axis=1)
        scaled = (both - self.mean) / self.scale
        return np.clip(scaled, -FAR_LIMIT, FAR_LIMIT).astype(np.float32, order="C")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "feature_names": list(self.feature_names),
            "fill": self.fill.tolist(),
            "gaps": self.gaps.tolist(),
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Preparation":
        """The preparation from what `to_dict` gave."""
        return cls(
            feature_names=tuple(values["feature_names"]),
            fill=np.asarray(values["fill"], dtype=np.float64),
            gaps=np.asarray(values["gaps"], dtype=np.intp),
            mean=np.asarray(values["mean"], dtype=np.float64),
            scale=np.asarray(values["scale"], dtype=np.float64),
        )


def fit_preparation(sample: Sample, feature_names: Sequence[str]) -> Preparation:
    """Learns medians, gaps and scale on the sample.

    Args:
        sample: Training rows.
        feature_names: Features, in order.

    Returns:
        The preparation.

    Raises:
        DataError: A feature is missing or not numeric.
    """
    names = tuple(feature_names)
    pipeline = make_pipeline(
        # A column without any value in training carries nothing: it becomes a constant.
        SimpleImputer(strategy="median", keep_empty_features=True, add_indicator=True),
        StandardScaler(),
    ).fit(finite_values(sample.rows[sample.at], names).astype(np.float64))
    imputer, scaler = pipeline[0], pipeline[1]
    return Preparation(
        names,
        fill=np.nan_to_num(imputer.statistics_),
        gaps=np.asarray(imputer.indicator_.features_, dtype=np.intp),
        mean=scaler.mean_,
        scale=scaler.scale_,
    )
