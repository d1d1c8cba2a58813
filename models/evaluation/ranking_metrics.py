"""Ranking metrics under many row weightings at once: AUC, average precision, precision at the top.

One weighting is one bootstrap resample; what is resampled is decided in
`models.evaluation.row_metrics`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


@dataclass(frozen=True)
class RankedRows:
    """Rows in order of falling score, counted by block and by group.

    Rows of equal score are one block, and so are the negatives between two blocks that hold
    positives: no metric here changes within them. A resample then costs as much as there are
    positives, not as there are rows.

    Attributes:
        positives: Positive rows, shape (blocks, groups).
        rows: All rows, shape (blocks, groups).
    """

    positives: csr_array
    rows: csr_array


def rank_rows(
    score: FloatArray, label: npt.NDArray[np.int8], *, group: IndexArray | None = None
) -> RankedRows:
    """Sorts once, so that every weighting costs two sparse products.

    Args:
        score: Finite scores, shape (n,).
        label: 0 or 1, shape (n,).
        group: The group of each row, 0 to groups - 1, shape (n,); rows of a group share their
            weight. None: each row is its own.

    Returns:
        The rows in order of falling score.
    """
    size = score.size
    group = np.arange(size, dtype=np.intp) if group is None else group
    order = np.argsort(-score, kind="stable")
    ranked, positive = score[order], label[order] == 1
    is_new = np.ones(size, dtype=bool)
    is_new[1:] = ranked[1:] != ranked[:-1]
    tie = np.cumsum(is_new) - 1
    holds = np.bincount(tie, weights=positive) > 0
    # A tie opens a block unless it continues a run of ties without positives.
    opens = np.ones(holds.size, dtype=bool)
    opens[1:] = holds[1:] | holds[:-1]
    block = (np.cumsum(opens) - 1)[tie]
    shape = (int(opens.sum()), int(group.max()) + 1 if size else 0)

    def counted(chosen: npt.NDArray[np.bool_]) -> csr_array:
        where = (block[chosen], group[order][chosen])
        return csr_array((np.ones(int(chosen.sum())), where), shape=shape)

    return RankedRows(counted(positive), counted(np.ones(size, dtype=bool)))


def auc(ranked: RankedRows, weights: FloatArray) -> FloatArray:
    """Area under the ROC curve; half a point for ties.

    Args:
        ranked: Rows.
        weights: Weights of the groups, shape (resamples, groups).

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
    caught, size, _ = _caught_in_top(ranked, weights, share=share)
    return _ratio(caught, size)


def recall_at_top(ranked: RankedRows, weights: FloatArray, *, share: float) -> FloatArray:
    """Share of the positives among the top share of the weight; see `precision_at_top`."""
    caught, _, positives = _caught_in_top(ranked, weights, share=share)
    return _ratio(caught, positives)


def _caught_in_top(
    ranked: RankedRows, weights: FloatArray, *, share: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight of positives in the top share, of that share, of all positives; (resamples,)."""
    true, false = _cumulated(ranked, weights)
    total = true + false
    size = share * total[:, -1]
    caught = np.empty(len(weights))
    for resample in range(len(weights)):
        xs = np.concatenate([[0.0], total[resample]])
        ys = np.concatenate([[0.0], true[resample]])
        caught[resample] = np.interp(size[resample], xs, ys)
    return caught, size, true[:, -1]


def _cumulated(ranked: RankedRows, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weight of positives and negatives at or above each block; shape (resamples, blocks)."""
    true = np.cumsum((ranked.positives @ weights.T).T, axis=1)
    total = np.cumsum((ranked.rows @ weights.T).T, axis=1)
    return true, total - true


def _shifted(cumulated: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((len(cumulated), 1)), cumulated[:, :-1]], axis=1)


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    ratio = np.full(above.shape, np.nan)
    np.divide(above, below, out=ratio, where=below > 0)
    return ratio
