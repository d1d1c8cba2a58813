"""Judges node scores and alerts where the ceiling is known: recall by class, truth of scores.

What an alert is decides `models.warnings`; where rows and ceilings come from is not known here.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import beta

from models.calibration import FloatArray, log_odds_of, sigmoid
from models.evaluation import Bootstrap, Estimate, estimate, group_codes, resample_groups
from models.event_metrics import caught_pairs
from models.specs import Task

BINS: Final = 5
ALL: Final = "all"
_SLOPE_BINS: Final = 60
_STEPS: Final = 25


@dataclass(frozen=True)
class ClassRecall:
    """How many incidents of a class were caught, against how many could be.

    Attributes:
        fault_type: The class, or `all`.
        n_incidents: Incidents that some row could catch.
        n_caught: Those that an alert caught.
        recall: With its exact 95 % interval.
        ceiling: Largest recall of any reader at the budget; None: not known.
        by_signs: Share of the class that announces itself in time; None: not known.
        lead_h: Median lead of the first alert that caught each, hours; None: none was caught.
    """

    fault_type: str
    n_incidents: int
    n_caught: int
    recall: Estimate
    ceiling: float | None
    by_signs: float | None
    lead_h: float | None

    @property
    def ratio(self) -> float | None:
        """Recall over ceiling."""
        return self._over(self.ceiling)

    @property
    def ratio_by_signs(self) -> float | None:
        """Recall over what announces itself; chance and history may take it above 1."""
        return self._over(self.by_signs)

    def _over(self, bound: float | None) -> float | None:
        if not bound or self.recall.value is None:
            return None
        return self.recall.value / bound

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {**asdict(self), "ratio": self.ratio, "ratio_by_signs": self.ratio_by_signs}


@dataclass(frozen=True)
class ScoreBin:
    """Rows of similar score above a threshold: what came over what was said.

    Attributes:
        n_rows: Rows.
        mean_score: Mean score.
        ratio: Positives over the sum of scores.
    """

    n_rows: int
    mean_score: float
    ratio: Estimate


@dataclass(frozen=True)
class ScoreTruth:
    """How far scores can be taken at their word.

    Attributes:
        bins: Bins of equal size of the rows above the threshold, by rising score.
        slope: Of a logistic regression of labels on the scores' log-odds; 1 is calibrated.
        overall: Positives over the sum of scores, of all rows.
        log_loss: Mean log loss.
        log_loss_gain: Log loss of the rows' own base rate minus that of the scores.
    """

    bins: tuple[ScoreBin, ...]
    slope: Estimate
    overall: Estimate
    log_loss: float
    log_loss_gain: Estimate

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)


def recall_by_class(
    alerts: pl.DataFrame,
    rows: pl.DataFrame,
    *,
    incidents: pl.DataFrame,
    task: Task,
    ceilings: Mapping[str, float],
    by_signs: Mapping[str, float],
) -> tuple[ClassRecall, ...]:
    """Recall of each class, most frequent first, `all` before them.

    Args:
        alerts: `entity_id`, `as_of`, of the rows.
        rows: Scored rows: `entity_id`, `as_of`, `label`.
        incidents: core/incidents.
        task: Lead, horizon and entity kind.
        ceilings: Largest recall by class at the budget.
        by_signs: Share of each class that announces itself in time.

    Returns:
        One entry per class with an incident that some row could catch.
    """
    known = rows.filter(pl.col("label").is_not_null()).select("entity_id", "as_of")
    asked = alerts.select("entity_id", "as_of").join(known, on=["entity_id", "as_of"], how="semi")
    kinds = incidents.select("incident_id", "fault_type").unique("incident_id")
    catchable = caught_pairs(known, incidents, task=task).select("incident_id").unique()
    first = (
        caught_pairs(asked, incidents, task=task)
        .group_by("incident_id")
        .agg(pl.col("lead_h").max())
    )
    found = catchable.join(kinds, on="incident_id").join(first, on="incident_id", how="left")
    classes = (
        found["fault_type"]
        .value_counts(sort=True, name="n")
        .sort("n", "fault_type", descending=[True, False])
    )
    parts = [(ALL, found)]
    parts += [(name, found.filter(pl.col("fault_type") == name)) for name in classes["fault_type"]]
    return tuple(
        _class_recall(name, part, ceiling=ceilings.get(name), by_signs=by_signs.get(name))
        for name, part in parts
        if part.height
    )


def judge_scores(
    rows: pl.DataFrame, *, threshold: float, bootstrap: Bootstrap | None = None, n_bins: int = BINS
) -> ScoreTruth:
    """Holds scores against what came; intervals are over whole entities.

    Args:
        rows: `entity_id`, `label`, `score`, and the bootstrap's group column; rows without label
            or score are left out.
        threshold: The bins are made of the rows at or above it.
        bootstrap: How intervals are made.
        n_bins: Bins.

    Returns:
        The judgement; without rows above the threshold there are no bins.
    """
    bootstrap = bootstrap or Bootstrap()
    known = rows.drop_nulls(["label", "score"])
    score = known["score"].cast(pl.Float64).to_numpy()
    label = known["label"].cast(pl.Float64).to_numpy()
    group, n_groups = group_codes(known[bootstrap.group])
    drawn = resample_groups(n_groups, bootstrap)
    by_group = _Sums(group, n_groups, drawn)
    return ScoreTruth(
        bins=_bins(score, label, by_group, threshold=threshold, n_bins=n_bins),
        slope=_slope(score, label, by_group),
        overall=by_group.ratio(label, score),
        log_loss=float(_loss(score, label).mean()),
        log_loss_gain=_gain(score, label, by_group),
    )


@dataclass(frozen=True)
class _Sums:
    """Sums over rows, as they are and over resamples of their groups."""

    group: npt.NDArray[np.intp]
    n_groups: int
    drawn: FloatArray

    def of(self, values: FloatArray, rows: npt.NDArray[np.intp] | None = None) -> FloatArray:
        """Sum of each resample, the first of all rows as they are."""
        group = self.group if rows is None else self.group[rows]
        sums = np.bincount(group, weights=values, minlength=self.n_groups)
        return np.concatenate([[sums.sum()], self.drawn @ sums])

    def ratio(
        self, above: FloatArray, below: FloatArray, rows: npt.NDArray[np.intp] | None = None
    ) -> Estimate:
        """Ratio of two sums."""
        top, bottom = self.of(above, rows), self.of(below, rows)
        share = top / np.where(bottom > 0, bottom, np.nan)
        return estimate(float(share[0]), share[1:])


def _class_recall(
    name: str, part: pl.DataFrame, *, ceiling: float | None, by_signs: float | None
) -> ClassRecall:
    n, leads = part.height, part["lead_h"].drop_nulls()
    k = leads.len()
    low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
    high = float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
    lead = leads.median()
    return ClassRecall(
        name,
        n,
        k,
        Estimate(k / n, low, high),
        ceiling,
        by_signs,
        float(lead) if isinstance(lead, float) else None,
    )


def _bins(
    score: FloatArray, label: FloatArray, sums: _Sums, *, threshold: float, n_bins: int
) -> tuple[ScoreBin, ...]:
    above = np.flatnonzero(score >= threshold)
    above = above[np.argsort(score[above], kind="stable")]
    return tuple(
        ScoreBin(
            int(rows.size),
            float(score[rows].mean()),
            sums.ratio(label[rows], score[rows], rows),
        )
        for rows in np.array_split(above, n_bins)
        if rows.size
    )


def _slope(score: FloatArray, label: FloatArray, sums: _Sums) -> Estimate:
    """Slope of logistic regression on bins of log-odds, for itself and each resample."""
    odds = log_odds_of(score)
    edges = np.unique(np.quantile(odds, np.linspace(0, 1, _SLOPE_BINS + 1)))
    # The few rows that matter lie at the top: half of the bins are of the highest percent.
    top = np.quantile(odds, 1 - np.geomspace(0.01, 1e-5, _SLOPE_BINS))
    bins = np.searchsorted(np.unique([*edges, *top]), odds)
    used, bins = np.unique(bins, return_inverse=True)
    centre = np.bincount(bins, weights=odds) / np.bincount(bins)
    shape = (sums.n_groups, used.size)
    cell = sums.group * used.size + bins
    size = np.prod(shape)
    counts = np.bincount(cell, minlength=size).reshape(shape).astype(np.float64)
    positives = np.bincount(cell, weights=label, minlength=size).reshape(shape)
    values = [_fit_slope(centre, counts.sum(axis=0), positives.sum(axis=0))]
    values += [
        _fit_slope(centre, n, k)
        for n, k in zip(sums.drawn @ counts, sums.drawn @ positives, strict=True)
    ]
    return estimate(values[0], np.asarray(values[1:]))


def _fit_slope(x: FloatArray, n: FloatArray, k: FloatArray) -> float:
    """Slope of logistic regression on counts by Newton's method; NaN where there is none."""
    if not 0 < k.sum() < n.sum():
        return float("nan")
    design = np.column_stack([np.ones_like(x), x])
    weights = np.array([0.0, 1.0])
    for _ in range(_STEPS):
        p = sigmoid(design @ weights)
        curvature = design.T @ (design * (n * p * (1 - p))[:, None])
        try:
            step = np.linalg.solve(curvature, design.T @ (k - n * p))
        except np.linalg.LinAlgError:
            return float("nan")
        weights = weights + np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-8:
            break
    return float(weights[1])


def _loss(score: FloatArray, label: FloatArray) -> FloatArray:
    inside = np.clip(score, 1e-12, 1 - 1e-12)
    return np.asarray(-(label * np.log(inside) + (1 - label) * np.log1p(-inside)))


def _gain(score: FloatArray, label: FloatArray, sums: _Sums) -> Estimate:
    """Log loss of the base rate, that of each resample, minus that of the scores."""
    n, k = sums.of(np.ones_like(label)), sums.of(label)
    rate = np.clip(k / n, 1e-12, 1 - 1e-12)
    base = -(k * np.log(rate) + (n - k) * np.log1p(-rate)) / n
    gain = base - sums.of(_loss(score, label)) / n
    return estimate(float(gain[0]), gain[1:])
