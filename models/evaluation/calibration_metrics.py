"""Holds probabilities against what came: observed over expected, slope, gain on the base rate.

Calibrations are fitted in `models.calibration`; drift from week to week is in
`models.drift.calibration`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import expit

from models.calibration import FloatArray, log_odds_of
from models.evaluation.row_metrics import (
    NOT_DEFINED,
    Bootstrap,
    Estimate,
    estimate,
    group_codes,
    resample_groups,
    row_losses,
)

BANDS: Final = 5
_STEPS: Final = 50


@dataclass(frozen=True)
class CalibrationBand:
    """Scores of one band in the test: what was expected and what came.

    Attributes:
        low: Lowest score of the band.
        high: Highest.
        n_rows: Rows.
        expected: Sum of the scores.
        observed: Positive rows.
        ratio: observed / expected, with its interval.
    """

    low: float
    high: float
    n_rows: int
    expected: float
    observed: int
    ratio: Estimate


@dataclass(frozen=True)
class CalibrationCheck:
    """How true the probabilities are in the test.

    Attributes:
        bands: Bands of score above the alert threshold, lowest first.
        slope: Of the log-odds of outcomes on those of scores; 1 is right, below 1 too sure.
        observed_by_expected: Over all rows.
        log_loss: Of the model.
        base_rate_log_loss: Of the constant share of positives in training.
        fitted_prevalence: Share of positives where the calibration was fitted.
        test_prevalence: Share of positives in the test: another one moves observed / expected.
    """

    bands: tuple[CalibrationBand, ...]
    slope: Estimate
    observed_by_expected: Estimate
    log_loss: float | None
    base_rate_log_loss: float | None
    fitted_prevalence: float | None = None
    test_prevalence: float | None = None


def check_calibration(
    rows: pl.DataFrame,
    *,
    threshold: float,
    base_rate: float,
    fitted_prevalence: float | None = None,
    bootstrap: Bootstrap | None = None,
) -> CalibrationCheck:
    """Judges the probabilities of test rows.

    Args:
        rows: `score`, `label` and the bootstrap's group column; nulls in either are left out.
        threshold: Alert threshold; bands are made of the rows from it on.
        base_rate: Share of positives in training.
        fitted_prevalence: That of the rows the calibration was fitted on.
        bootstrap: How intervals are made; rows of a group are not independent.

    Returns:
        The judgement; no bands where no row reaches the threshold.
    """
    bootstrap = bootstrap or Bootstrap()
    known = rows.drop_nulls(["score", "label"])
    if known.is_empty():
        return CalibrationCheck((), NOT_DEFINED, NOT_DEFINED, None, None, fitted_prevalence)
    score = known["score"].cast(pl.Float64).to_numpy()
    label = known["label"].cast(pl.Float64).to_numpy()
    group, n_groups = group_codes(known[bootstrap.group])
    drawn = resample_groups(n_groups, bootstrap)
    return CalibrationCheck(
        bands=_bands(score, label, group=group, drawn=drawn, threshold=threshold),
        slope=calibration_slope(score, label, group=group),
        observed_by_expected=_ratio(score, label, group=group, drawn=drawn),
        log_loss=log_loss(score, label),
        base_rate_log_loss=log_loss(np.full(label.size, base_rate), label),
        fitted_prevalence=fitted_prevalence,
        test_prevalence=float(label.mean()),
    )


def log_loss(probability: FloatArray, label: FloatArray) -> float:
    """Mean negative log likelihood.

    Args:
        probability: Shape (n,).
        label: 0 or 1, shape (n,).
    """
    return float(row_losses(probability, label).mean())


def calibration_slope(
    score: FloatArray, label: FloatArray, *, group: npt.NDArray[np.intp]
) -> Estimate:
    """Slope of the log-odds of outcomes on the log-odds of scores (Cox 1958).

    The interval is that of the cluster-robust variance: rows of a group may depend on each other
    in any way. It needs some twenty groups with positives to be trusted.

    Args:
        score: Probabilities, shape (n,).
        label: 0 or 1, shape (n,).
        group: Group of each row, 0 to groups - 1, shape (n,).

    Returns:
        The slope; not defined with one class only, one score only, or where a score parts the
        classes perfectly.
    """
    x = np.column_stack([np.ones(score.size), log_odds_of(score)])
    if not 0.0 < label.mean() < 1.0 or np.ptp(x[:, 1]) < 1e-9:
        return NOT_DEFINED
    beta = np.array([0.0, 1.0])
    for _ in range(_STEPS):
        chance = expit(x @ beta)
        bread = (x * (chance * (1.0 - chance))[:, None]).T @ x
        if np.linalg.cond(bread) > 1e12:
            return NOT_DEFINED
        step = np.linalg.solve(bread, x.T @ (label - chance))
        beta += np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-9:
            break
    else:
        return NOT_DEFINED
    pulls = x * (label - expit(x @ beta))[:, None]
    summed = np.column_stack([np.bincount(group, weights=pulls[:, i]) for i in range(2)])
    variance = np.linalg.solve(bread, np.linalg.solve(bread, summed.T @ summed).T)
    error = 1.96 * float(np.sqrt(variance[1, 1]))
    return Estimate(float(beta[1]), float(beta[1]) - error, float(beta[1]) + error)


def _bands(
    score: FloatArray,
    label: FloatArray,
    *,
    group: npt.NDArray[np.intp],
    drawn: FloatArray,
    threshold: float,
) -> tuple[CalibrationBand, ...]:
    """Rows at or above the threshold in bands of equal expectation, lowest scores first."""
    above = np.flatnonzero(score >= threshold)
    order = above[np.argsort(score[above], kind="stable")]
    expected = np.cumsum(score[order])
    if not order.size:
        return ()
    # Of equal expectation, not of equal size: each band then can be told as surely as the others.
    cuts = np.searchsorted(expected, expected[-1] * np.arange(1, BANDS) / BANDS)
    return tuple(
        CalibrationBand(
            low=float(score[part[0]]),
            high=float(score[part[-1]]),
            n_rows=int(part.size),
            expected=float(score[part].sum()),
            observed=int(label[part].sum()),
            ratio=_ratio(score[part], label[part], group=group[part], drawn=drawn),
        )
        for part in np.split(order, cuts)
        if part.size
    )


def _ratio(
    score: FloatArray, label: FloatArray, *, group: npt.NDArray[np.intp], drawn: FloatArray
) -> Estimate:
    """Observed over expected, resampled by group."""
    observed, expected = (
        np.bincount(group, weights=values, minlength=drawn.shape[1]) for values in (label, score)
    )
    below = drawn @ expected
    ratios = (drawn @ observed) / np.where(below > 0, below, np.nan)
    return estimate(float(observed.sum() / expected.sum()), ratios)
