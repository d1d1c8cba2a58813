"""The rule of the K highest: which rows of each moment are alerts, and how true they are.

Source of the rule: Liu et al., "Prediction of GPU Failures Under Deep Learning Workloads", 2022.
Thresholds on calibrated scores are in `models.policies.thresholds`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import DataError
from models.calibration import FloatArray
from models.evaluation.ranking_metrics import average_precision, rank_rows


@dataclass(frozen=True)
class AlertMetrics:
    """How true a set of alerts is, row by row.

    Attributes:
        n_alerts: Rows alerted on whose label is known.
        n_true: Positive ones among them.
        n_positive: Positive rows in all.
    """

    n_alerts: int
    n_true: int
    n_positive: int

    @property
    def precision(self) -> float | None:
        """Share of the alerts that are true; None without alerts."""
        return self.n_true / self.n_alerts if self.n_alerts else None

    @property
    def recall(self) -> float | None:
        """Share of the positives alerted on; None without positives."""
        return self.n_true / self.n_positive if self.n_positive else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of both; None where neither alerts nor positives are."""
        both = self.n_alerts + self.n_positive
        return 2 * self.n_true / both if both else None


def rank_of_moment(rows: pl.DataFrame, *, score: str) -> pl.Series:
    """Rank of each row among those of its moment, 1 the highest; among equals, entities by name.

    Args:
        rows: `entity_id`, `as_of` and the score; each entity once a moment.
        score: Name of the score column.

    Returns:
        Ranks; null where the score is.
    """
    key = pl.struct(-pl.col(score), "entity_id")
    known = pl.when(pl.col(score).is_not_null()).then(key)
    return rows.select(known.rank("ordinal").over("as_of").alias("rank")).to_series()


def top_k(rank: pl.Series, k: int | pl.Series) -> pl.Series:
    """The K highest of each moment.

    Args:
        rank: See `rank_of_moment`.
        k: How many; or, row by row, how many at the row's moment.

    Returns:
        Whether each row is among them; a row without a score never is.
    """
    return (rank <= k).fill_null(value=False)


def share_of_moment(rows: pl.DataFrame, *, share: float) -> pl.Series:
    """K as a share of the rows of each moment, at least one.

    Raises:
        DataError: The share is out of range.
    """
    if not 0.0 < share <= 1.0:
        raise DataError(f"top-K rule: the share must be in (0, 1], got {share:g}.")
    size = (pl.len().over("as_of") * share).round().clip(1).cast(pl.Int64)
    return rows.select(size.alias("k")).to_series()


def intersection(ranks: Sequence[pl.Series], k: int | pl.Series) -> pl.Series:
    """Rows that are among the K highest of every member.

    Args:
        ranks: One per member, see `rank_of_moment`.
        k: See `top_k`.

    Returns:
        Whether each row is in the intersection.
    """
    return reduce(and_, (top_k(rank, k) for rank in ranks))


def alert_metrics(chosen: pl.Series, label: pl.Series) -> AlertMetrics:
    """Counts alerts; rows without a label are in no count.

    Args:
        chosen: Whether each row is an alert.
        label: 0, 1 or null.
    """
    true = int((chosen & (label == 1)).sum())
    return AlertMetrics(int((chosen & label.is_not_null()).sum()), true, int((label == 1).sum()))


def precision_of_ranking(raw: FloatArray, label: npt.NDArray[np.integer]) -> float:
    """Average precision of one ranking.

    Args:
        raw: Finite scores, shape (n,).
        label: 0 or 1, shape (n,).

    Returns:
        Average precision; NaN without positives.
    """
    ranked = rank_rows(raw, label.astype(np.int8))
    return float(average_precision(ranked, np.ones((1, raw.size)))[0])
