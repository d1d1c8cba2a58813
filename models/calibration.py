"""Turns raw log-odds into probabilities by plain numbers that live in JSON beside the model.

No model is trained here, and the order of two scores is never changed.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from features.errors import DataError

FloatArray = npt.NDArray[np.float64]
Method = Literal["sigmoid", "platt", "isotonic"]

MIN_POSITIVES = 5
"""Below this a fit says more about chance than about the model."""

ISOTONIC_INCIDENTS = 200
"""Isotonic fits one number per step: in ten steps of twenty incidents each is right to a fifth or
so. On fewer it repeats what chance did; Platt fits two numbers in all."""

TAIL_SLOPE = 0.05
"""Log-odds per raw log-odds beyond the outer knots: small, so that ranks survive, nothing else."""


@dataclass(frozen=True)
class Calibration:
    """A strictly rising, piecewise linear map from raw to calibrated log-odds.

    Attributes:
        method: How it was fitted.
        knots: Raw log-odds, rising.
        log_odds: Calibrated log-odds at the knots, rising.
        tail_slope: Slope beyond the outer knots.
        n_rows: Rows it was fitted on.
        n_positive: Positives among them.
    """

    method: Method
    knots: tuple[float, ...]
    log_odds: tuple[float, ...]
    tail_slope: float
    n_rows: int = 0
    n_positive: int = 0

    def apply(self, raw: FloatArray) -> FloatArray:
        """Probabilities of raw log-odds.

        Args:
            raw: Raw log-odds, shape (n,); NaN stays NaN.

        Returns:
            Probabilities in (0, 1), shape (n,), in the same order of rank.
        """
        knots = np.asarray(self.knots)
        inner = np.interp(raw, knots, np.asarray(self.log_odds))
        beyond = np.minimum(raw - knots[0], 0.0) + np.maximum(raw - knots[-1], 0.0)
        return sigmoid(inner + self.tail_slope * beyond)

    def to_dict(self) -> dict[str, Any]:
        """The map as plain values, for JSON."""
        return {
            "method": self.method,
            "knots": list(self.knots),
            "log_odds": list(self.log_odds),
            "tail_slope": self.tail_slope,
            "n_rows": self.n_rows,
            "n_positive": self.n_positive,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Calibration":
        """The map from what `to_dict` gave."""
        return cls(
            method=values["method"],
            knots=tuple(values["knots"]),
            log_odds=tuple(values["log_odds"]),
            tail_slope=values["tail_slope"],
            n_rows=values["n_rows"],
            n_positive=values["n_positive"],
        )


UNCALIBRATED = Calibration("sigmoid", (0.0,), (0.0,), tail_slope=1.0)
"""The model's own probabilities, before validation has said anything."""


def sigmoid(log_odds: FloatArray) -> FloatArray:
    """Probabilities of log-odds, without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * log_odds)), dtype=np.float64)


def log_odds_of(probability: FloatArray) -> FloatArray:
    """Log-odds of probabilities; 0 and 1 are moved by 1e-12 so that the result is finite."""
    inside = np.clip(probability, 1e-12, 1.0 - 1e-12)
    return np.asarray(np.log(inside) - np.log1p(-inside), dtype=np.float64)


def fit_calibration(
    raw: FloatArray,
    label: npt.NDArray[np.int8],
    *,
    n_incidents: int | None = None,
    method: Method | None = None,
) -> Calibration:
    """Fits a calibration on validation rows.

    Isotonic is *centred* (each flat step becomes one knot at its mean raw score, as in Oron &
    Flournoy 2017) and linear in log-odds between knots, so that no two raw scores become equal:
    operators rank by the result. Platt uses Platt's (1999) smoothed targets.

    Args:
        raw: Raw log-odds, shape (n,).
        label: 0 or 1, shape (n,).
        n_incidents: Distinct incidents behind the positives: the rows before one resemble each
            other. None: every positive is its own.
        method: isotonic or platt; default: isotonic from 200 incidents on, else Platt.

    Returns:
        A strictly rising map.

    Raises:
        DataError: Fewer than 5 positives or 5 negatives, or a raw score that is not finite.
    """
    positives, negatives = int((label == 1).sum()), int((label == 0).sum())
    if positives < MIN_POSITIVES or negatives < MIN_POSITIVES:
        raise DataError(
            f"calibration: needs at least {MIN_POSITIVES} positives and negatives in validation, "
            f"got {positives} and {negatives}. Validate on a longer time, or keep the model "
            f"uncalibrated."
        )
    if not np.isfinite(raw).all():
        count = int((~np.isfinite(raw)).sum())
        raise DataError(f"calibration: {count} of {raw.size} raw scores are not finite.")
    if method is None:
        found = positives if n_incidents is None else n_incidents
        method = "isotonic" if found >= ISOTONIC_INCIDENTS else "platt"
    knots, log_odds, slope = _isotonic(raw, label) if method == "isotonic" else _platt(raw, label)
    return Calibration(method, knots, log_odds, slope, int(raw.size), positives)


def incidents_behind(rows: pl.DataFrame) -> int | None:
    """Distinct incidents of the positive rows; None where rows do not name them.

    Args:
        rows: `label` and, where known, `incident_id`.
    """
    if "incident_id" not in rows.columns:
        return None
    return rows.filter(pl.col("label") == 1)["incident_id"].drop_nulls().n_unique()


def _isotonic(
    raw: FloatArray, label: npt.NDArray[np.int8]
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Knots of centred isotonic regression, rates kept inside (0, 1) by half a count."""
    rate = IsotonicRegression().fit_transform(raw, label.astype(np.float64))
    _, block, size = np.unique(rate, return_inverse=True, return_counts=True)
    centre = np.bincount(block, weights=raw) / size
    positives = np.bincount(block, weights=label)
    inside = np.clip(positives / size, 0.5 / (size + 1.0), (size + 0.5) / (size + 1.0))
    height = np.maximum.accumulate(log_odds_of(inside))
    # Clipping may level neighbours; one of two level knots goes, so the map keeps rising.
    keep = np.concatenate([[True], (np.diff(height) > 1e-9) & (np.diff(centre) > 1e-9)])
    return tuple(centre[keep].tolist()), tuple(height[keep].tolist()), TAIL_SLOPE


def _platt(
    raw: FloatArray, label: npt.NDArray[np.int8]
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """One knot at the mean raw score and a slope, from two-number logistic regression."""
    positives, negatives = float((label == 1).sum()), float((label == 0).sum())
    target = np.where(label == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    centre, spread = float(raw.mean()), float(raw.std()) or 1.0
    x = np.tile((raw - centre) / spread, 2)[:, None]
    y = np.repeat([1, 0], raw.size)
    weight = np.concatenate([target, 1.0 - target])
    fitted = LogisticRegression(C=1e6, tol=1e-8).fit(x, y, sample_weight=weight)
    slope = float(fitted.coef_[0, 0]) / spread
    if slope < TAIL_SLOPE:
        # Worse than chance on validation: say the base rate and keep the order.
        base = float(log_odds_of(np.asarray(positives / raw.size)))
        return (centre,), (base,), TAIL_SLOPE
    return (centre,), (float(fitted.intercept_[0]),), slope
