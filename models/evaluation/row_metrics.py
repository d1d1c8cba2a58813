"""Judges scores row by row: ranking, calibration, intervals by bootstrap, one unit left out.

Alerts and incidents are judged in `models.evaluation.event_metrics`; nothing is fitted here.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import DataError
from models.evaluation.ranking_metrics import (
    FloatArray,
    IndexArray,
    RankedRows,
    auc,
    average_precision,
    precision_at_top,
    rank_rows,
    recall_at_top,
)

TOP_SHARE = 0.01
RELIABILITY_BINS = 10
CURVE_POINTS = 200

ScoreKind = Literal["probability", "rank"]
Statistic = Callable[[RankedRows, FloatArray], FloatArray]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None where it is not defined.

    Attributes:
        value: On the rows as they are.
        low: 2.5 % point over resamples.
        high: 97.5 % point.
    """

    value: float | None
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.value is None:
            return "not defined"
        if self.low is None or self.high is None:
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


NOT_DEFINED = Estimate(None, None, None)


@dataclass(frozen=True)
class ReliabilityBin:
    """Rows of similar score: what was said and what came.

    Attributes:
        n_rows: Rows.
        mean_score: Mean score.
        rate: Share of positives.
    """

    n_rows: int
    mean_score: float
    rate: float


@dataclass(frozen=True)
class CurvePoint:
    """One point of the precision-recall curve: alerting on every row at or above `threshold`."""

    threshold: float
    precision: float
    recall: float


@dataclass(frozen=True)
class RowMetrics:
    """How well scores rank and, for probabilities, how true they are.

    Attributes:
        n_rows: Rows judged.
        n_positive: Positive ones.
        n_entities: Entities among them.
        n_unlabelled: Rows left out for a null label.
        n_unscored: Labelled rows left out for a null score.
        prevalence: Share of positives: the average precision of no skill.
        auc: Area under the ROC curve.
        average_precision: Area under the precision-recall curve, without interpolation.
        precision_top_1pct: Precision in the top 1 % of rows.
        recall_top_1pct: Share of positives in the top 1 % of rows.
        brier: Mean squared error of probabilities.
        log_loss: Mean negative log likelihood of probabilities.
        reliability: Ten bins of equal size by score.
        curve: Precision and recall by threshold.
    """

    n_rows: int
    n_positive: int
    n_entities: int
    n_unlabelled: int
    n_unscored: int
    prevalence: float | None
    auc: Estimate
    average_precision: Estimate
    precision_top_1pct: Estimate
    recall_top_1pct: Estimate
    brier: float | None = None
    log_loss: float | None = None
    reliability: tuple[ReliabilityBin, ...] = ()
    curve: tuple[CurvePoint, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Evaluation:
    """Metrics on all rows, and without the entity that has the most positives.

    Attributes:
        all_rows: On all rows.
        top_unit: The entity left out; None without positives.
        without_top_unit: The rest; a result that falls with one unit was that unit's.
    """

    all_rows: RowMetrics
    top_unit: str | None
    without_top_unit: RowMetrics

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """How intervals are made: whole groups are drawn with replacement.

    Attributes:
        resamples: Draws; 0 for no interval.
        seed: Seed.
        group: Column whose values are drawn together, for rows of one entity are not
            independent.
    """

    resamples: int = 200
    seed: int = 1
    group: str = "entity_id"


def evaluate(
    rows: pl.DataFrame,
    *,
    score: str = "score",
    kind: ScoreKind = "probability",
    bootstrap: Bootstrap | None = None,
) -> Evaluation:
    """Judges a score column, on all rows and without the top unit.

    Args:
        rows: `entity_id`, `label`, the score column and the bootstrap's group column.
        score: Name of the score column; null is unknown and left out, counted.
        kind: probability, or rank for a score that only orders rows.
        bootstrap: How intervals are made; default 200 resamples of entities.

    Returns:
        The metrics.

    Raises:
        DataError: A column is missing, or a score is not finite.
    """
    all_rows = row_metrics(rows, score=score, kind=kind, bootstrap=bootstrap)
    unit = top_unit(rows)
    if unit is None:
        return Evaluation(all_rows, None, all_rows)
    rest = rows.filter(pl.col("entity_id") != unit)
    return Evaluation(
        all_rows, unit, row_metrics(rest, score=score, kind=kind, bootstrap=bootstrap)
    )


def top_unit(rows: pl.DataFrame) -> str | None:
    """The entity with the most positive rows, the first by name among equals."""
    positive = rows.filter(pl.col("label") == 1)
    if positive.is_empty():
        return None
    counts = (
        positive.group_by("entity_id").len().sort(["len", "entity_id"], descending=[True, False])
    )
    return str(counts["entity_id"][0])


def row_metrics(
    rows: pl.DataFrame,
    *,
    score: str = "score",
    kind: ScoreKind = "probability",
    bootstrap: Bootstrap | None = None,
) -> RowMetrics:
    """Judges a score column on the rows given; see `evaluate`."""
    bootstrap = bootstrap or Bootstrap()
    judged, n_unlabelled, n_unscored = _judged(rows, (score,), group=bootstrap.group)
    values = judged[score].cast(pl.Float64).to_numpy()
    label = judged["label"].to_numpy().astype(np.int8)
    group, n_groups = group_codes(judged[bootstrap.group])
    ranked = rank_rows(values, label, group=group)
    estimates = _estimates(ranked, n_groups=n_groups, bootstrap=bootstrap)
    is_probability = kind == "probability" and judged.height > 0
    return RowMetrics(
        n_rows=judged.height,
        n_positive=int(label.sum()),
        n_entities=judged["entity_id"].n_unique(),
        n_unlabelled=n_unlabelled,
        n_unscored=n_unscored,
        prevalence=float(label.mean()) if judged.height else None,
        **estimates,
        brier=float(np.mean((values - label) ** 2)) if is_probability else None,
        log_loss=float(row_losses(values, label).mean()) if is_probability else None,
        reliability=_reliability(values, label) if is_probability else (),
        curve=precision_recall_curve(values, label),
    )


def compare(
    rows: pl.DataFrame,
    *,
    score: str,
    other: str,
    statistic: Statistic = average_precision,
    bootstrap: Bootstrap | None = None,
) -> Estimate:
    """Difference of a statistic between two scores on the same rows and the same resamples.

    Against a constant score take `auc`: chance has an average precision above the base rate.

    Args:
        rows: `entity_id`, `label`, both score columns and the bootstrap's group column.
        score: The score that is to be better.
        other: The score it is held against.
        statistic: A metric of `models.evaluation.ranking_metrics`.
        bootstrap: How the interval is made.

    Returns:
        `statistic(score) - statistic(other)`: better beyond chance when `low > 0`.

    Raises:
        DataError: A column is missing, or a score is not finite.
    """
    bootstrap = bootstrap or Bootstrap()
    judged, _, _ = _judged(rows, (score, other), group=bootstrap.group)
    if judged.is_empty():
        return NOT_DEFINED
    label = judged["label"].to_numpy().astype(np.int8)
    group, n_groups = group_codes(judged[bootstrap.group])
    first, second = (
        rank_rows(judged[name].cast(pl.Float64).to_numpy(), label, group=group)
        for name in (score, other)
    )

    def difference(weights: FloatArray) -> FloatArray:
        return statistic(first, weights) - statistic(second, weights)

    value = difference(np.ones((1, n_groups)))
    return estimate(float(value[0]), difference(resample_groups(n_groups, bootstrap)))


def group_codes(group: pl.Series) -> tuple[IndexArray, int]:
    """Numbers the groups in the order of their names.

    Args:
        group: The group of each row, shape (n,).

    Returns:
        The number of each row's group, shape (n,), and how many groups there are.
    """
    codes = group.rank("dense").to_numpy().astype(np.intp) - 1
    return codes, int(codes.max()) + 1 if codes.size else 0


def row_losses(probability: FloatArray, label: npt.NDArray[np.generic]) -> FloatArray:
    """Negative log likelihood of each row; probabilities are kept 1e-12 inside (0, 1)."""
    inside = np.clip(probability, 1e-12, 1.0 - 1e-12)
    return np.asarray(-np.where(label == 1, np.log(inside), np.log1p(-inside)))


def resample_groups(n_groups: int, bootstrap: Bootstrap) -> FloatArray:
    """Resamples in which whole groups are drawn with replacement.

    Args:
        n_groups: Number of groups.
        bootstrap: Number of resamples and seed.

    Returns:
        How often each group was drawn, shape (resamples, groups).
    """
    if not n_groups:
        return np.zeros((bootstrap.resamples, 0))
    rng = np.random.default_rng(bootstrap.seed)
    share = np.full(n_groups, 1.0 / n_groups)
    return rng.multinomial(n_groups, share, size=bootstrap.resamples).astype(np.float64)


def estimate(value: float, drawn: FloatArray) -> Estimate:
    """A value with the middle 95 % of its resamples; NaN resamples are left out."""
    if np.isnan(value):
        return NOT_DEFINED
    defined = drawn[~np.isnan(drawn)]
    if not defined.size:
        return Estimate(value, None, None)
    low, high = np.quantile(defined, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def precision_recall_curve(
    score: FloatArray, label: npt.NDArray[np.int8]
) -> tuple[CurvePoint, ...]:
    """Precision and recall at up to 200 thresholds, evenly spread over the recall.

    Args:
        score: Shape (n,).
        label: 0 or 1, shape (n,).

    Returns:
        Points by falling threshold; none without positives.
    """
    positives = int(label.sum())
    if not positives:
        return ()
    order = np.argsort(-score, kind="stable")
    threshold = score[order]
    ends = np.flatnonzero(np.append(threshold[1:] != threshold[:-1], True))  # of ties
    true = np.cumsum(label[order], dtype=np.int64)[ends]
    precision, recall = true / (ends + 1.0), true / positives
    wanted = np.searchsorted(recall, np.linspace(0.0, 1.0, CURVE_POINTS))
    return tuple(
        CurvePoint(float(threshold[ends[i]]), float(precision[i]), float(recall[i]))
        for i in np.unique(wanted)
    )


def _judged(
    rows: pl.DataFrame, scores: tuple[str, ...], *, group: str
) -> tuple[pl.DataFrame, int, int]:
    """Rows with label and scores, the number without a label, and that without a score."""
    for name in ("entity_id", "label", group, *scores):
        if name not in rows.columns:
            raise DataError(
                f"evaluation: column {name!r} is missing, found {', '.join(rows.columns)}. "
                f"Join labels and scores on entity_id and as_of."
            )
    labelled = rows.filter(pl.col("label").is_not_null())
    judged = labelled.filter(pl.all_horizontal(pl.col(name).is_not_null() for name in scores))
    for name in scores:
        count = judged.filter(~pl.col(name).cast(pl.Float64).is_finite()).height
        if count:
            raise DataError(
                f"evaluation: {count} of {judged.height} values of {name!r} are not finite. "
                f"An unknown score is null."
            )
    return judged, rows.height - labelled.height, labelled.height - judged.height


def _estimates(ranked: RankedRows, *, n_groups: int, bootstrap: Bootstrap) -> dict[str, Estimate]:
    statistics: dict[str, Statistic] = {
        "auc": auc,
        "average_precision": average_precision,
        "precision_top_1pct": lambda r, w: precision_at_top(r, w, share=TOP_SHARE),
        "recall_top_1pct": lambda r, w: recall_at_top(r, w, share=TOP_SHARE),
    }
    if not n_groups:
        return dict.fromkeys(statistics, NOT_DEFINED)
    as_is, drawn = np.ones((1, n_groups)), resample_groups(n_groups, bootstrap)
    return {
        name: estimate(float(statistic(ranked, as_is)[0]), statistic(ranked, drawn))
        for name, statistic in statistics.items()
    }


def _reliability(
    probability: FloatArray, label: npt.NDArray[np.int8]
) -> tuple[ReliabilityBin, ...]:
    order = np.argsort(probability, kind="stable")
    return tuple(
        ReliabilityBin(int(part.size), float(probability[part].mean()), float(label[part].mean()))
        for part in np.array_split(order, RELIABILITY_BINS)
        if part.size
    )
