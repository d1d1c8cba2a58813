"""Ranking metrics under many row weightings at once: AUC, average precision, precision at the top.

One weighting is one bootstrap resample; what is resampled is decided in `models.evaluation`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RankedRows:
    """Rows sorted by falling score, with the groups of equal scores.

    Attributes:
        order: Position of each sorted row in the given rows.
        label: Labels in sorted order, 0.0 or 1.0.
        ends: Index of the last sorted row of each group of ties.
    """

    order: npt.NDArray[np.intp]
    label: FloatArray
    ends: npt.NDArray[np.intp]


def rank_rows(score: FloatArray, label: npt.NDArray[np.int8]) -> RankedRows:
    """Sorts once, so that every weighting costs two cumulative sums.

    Args:
        score: Finite scores, shape (n,).
        label: 0 or 1, shape (n,).

    Returns:
        The rows in order of falling score.
    """
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], np.ones(min(1, score.size), bool)))
    return RankedRows(order, label[order].astype(np.float64), ends)


def auc(ranked: RankedRows, weights: FloatArray) -> FloatArray:
    """Area under the ROC curve; half a point for ties.

    Args:
        ranked: Rows.
        weights: Row weights in the given rows' order, shape (resamples, n).

    Returns:
        Shape (resamples,); NaN where a resample has one class only.
    """
    true, false = _cumulated(ranked, weights)
    area = np.sum(np.diff(false, prepend=0.0) * (true + _shifted(true)) / 2.0, axis=1)
    return _ratio(area, true[:, -1] * false[:, -1])


def average_precision(ranked: RankedRows, weights: FloatArray) -> FloatArray:
    """Mean precision over the positives (no interpolation), shapes as in `auc`."""
    true, false = _cumulated(ranked, weights)
    precision = _ratio(true, true + false)
    gained = np.diff(true, prepend=0.0)
    return _ratio(np.nansum(precision * gained, axis=1), true[:, -1])


def precision_at_top(ranked: RankedRows, weights: FloatArray, *, share: float) -> FloatArray:
    """Precision among the top share of the weight; ties at the cut count by their mean.

    Args:
        ranked: Rows.
        weights: As in `auc`.
        share: Share of the rows, (0, 1].

    Returns:
        Shape (resamples,).
    """
    caught, size = _caught_in_top(ranked, weights, share=share)
    return _ratio(caught, size)


def recall_at_top(ranked: RankedRows, weights: FloatArray, *, share: float) -> FloatArray:
    """Share of the positives among the top share of the weight; see `precision_at_top`."""
    caught, _ = _caught_in_top(ranked, weights, share=share)
    return _ratio(caught, weights[:, ranked.order] @ ranked.label)


def _caught_in_top(
    ranked: RankedRows, weights: FloatArray, *, share: float
) -> tuple[FloatArray, FloatArray]:
    """Weight of positives in the top share, and the weight of that share; shape (resamples,)."""
    true, false = _cumulated(ranked, weights)
    total = true + false
    size = share * total[:, -1]
    caught = np.empty(len(weights))
    for resample in range(len(weights)):
        xs = np.concatenate([[0.0], total[resample]])
        ys = np.concatenate([[0.0], true[resample]])
        caught[resample] = np.interp(size[resample], xs, ys)
    return caught, size


def _cumulated(ranked: RankedRows, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weight of positives and negatives at or above each group of ties."""
    sorted_weights = weights[:, ranked.order]
    true = np.cumsum(sorted_weights * ranked.label, axis=1)[:, ranked.ends]
    total = np.cumsum(sorted_weights, axis=1)[:, ranked.ends]
    return true, total - true


def _shifted(cumulated: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((len(cumulated), 1)), cumulated[:, :-1]], axis=1)


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    ratio = np.full(above.shape, np.nan)
    np.divide(above, below, out=ratio, where=below > 0)
    return ratio
