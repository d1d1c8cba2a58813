"""Turns raw log-odds into probabilities by plain numbers that live in JSON beside the model.

No model is trained here, and the order of two scores is never changed.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

from features.errors import DataError

FloatArray = npt.NDArray[np.float64]
Method = Literal["sigmoid", "beta", "isotonic"]

MIN_POSITIVES = 5
"""Below this a fit says more about chance than about the model."""

ISOTONIC_INCIDENTS = 400
"""Isotonic fits one number per step: in ten steps of forty incidents each is right to a sixth or
so. On fewer it repeats what chance did, in the top step above all (of 160 incidents of synthetic
fleets 0.85 of what it said came, of beta calibration's three numbers 0.94)."""

BEND_SPREAD = 2.0
"""How far the slope among likely failures may well be from that among rare ones (standard
deviation): boosters that are too sure had 0.4 to 1.1 less there."""

TAIL_SLOPE = 0.05
"""Log-odds per raw log-odds beyond the outer knots: small, so that ranks survive, nothing else."""

_BETA_KNOTS: Final = np.concatenate([[-40.0], np.arange(-8.0, 8.25, 0.5), [40.0]])
"""Straight lines between these are within 0.01 log-odds of the bend per unit of its size."""
_CELLS: Final = 4096


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
    operators rank by the result. Beta calibration has one slope where failures are rare and one
    where they are likely: boosters are surest of what they have seen often, and too sure.

    Args:
        raw: Raw log-odds, shape (n,).
        label: 0 or 1, shape (n,).
        n_incidents: Distinct incidents behind the positives: the rows before one resemble each
            other. None: every positive is its own.
        method: isotonic or beta; default: isotonic from 400 incidents on, else beta.

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
    found = positives if n_incidents is None else max(1, n_incidents)
    if method is None:
        method = "isotonic" if found >= ISOTONIC_INCIDENTS else "beta"
    if method == "isotonic":
        knots, log_odds, slope = _isotonic(raw, label)
    else:
        knots, log_odds, slope = _beta(raw, label, n_incidents=found)
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


def _beta(
    raw: FloatArray, label: npt.NDArray[np.int8], *, n_incidents: int
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Knots of a curve that is straight in log-odds but for one bend, where chances are even.

    `c + a ln p - b ln(1 - p)` (Kull et al. 2017): slope `a` where failures are rare, `b` where
    they are likely. Of the latter few incidents tell, so `b` is drawn towards `a`, by as much as
    incidents, not rows, bear witness.
    """
    score, rows, positives = _cells(raw, label)
    found, rest = positives.sum(), rows.sum() - positives.sum()
    # Platt's (1999) targets: no score is certain.
    target = positives * (found + 1.0) / (found + 2.0) + (rows - positives) / (rest + 2.0)
    terms = _beta_terms(score)
    pull = np.array([0.0, -1.0, 1.0]) * float(found / n_incidents) / BEND_SPREAD**2

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        fitted, bend = terms @ weights, weights[2] - weights[1]
        value = rows @ np.logaddexp(0.0, fitted) - target @ fitted + pull[2] * bend * bend / 2.0
        slope = terms.T @ (rows * sigmoid(fitted) - target) + pull * bend
        return float(value / rows.sum()), np.asarray(slope / rows.sum(), dtype=np.float64)

    bounds = [(None, None), (TAIL_SLOPE, None), (TAIL_SLOPE, None)]
    options = {"ftol": 1e-13, "gtol": 1e-9, "maxiter": 500}
    start = np.array([0.0, 1.0, 1.0])
    ended = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    log_odds = _beta_terms(_BETA_KNOTS) @ ended.x
    return tuple(_BETA_KNOTS.tolist()), tuple(log_odds.tolist()), TAIL_SLOPE


def _beta_terms(score: FloatArray) -> FloatArray:
    """1, ln p and -ln(1 - p) of raw log-odds, shape (n, 3)."""
    likely = np.logaddexp(0.0, score)
    return np.column_stack([np.ones_like(score), score - likely, likely])


def _cells(
    raw: FloatArray, label: npt.NDArray[np.int8]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean raw score, rows and positives of narrow cells: millions of rows in thousands."""
    low, width = float(raw.min()), float(np.ptp(raw)) / _CELLS or 1.0
    cell = np.minimum(((raw - low) / width).astype(np.int64), _CELLS - 1)
    rows = np.bincount(cell).astype(np.float64)
    there = rows > 0
    score = np.bincount(cell, weights=raw)[there] / rows[there]
    positives = np.bincount(cell[label == 1], minlength=rows.size)[there].astype(np.float64)
    return score, rows[there], positives
