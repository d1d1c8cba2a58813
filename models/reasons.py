"""Says in words what raised a score: contributions of features, grouped by family.

A contribution is a share of the score, never a cause; nothing is scored or decided here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import DataError
from features.registry import FAMILY_WORDS, Feature, window_suffix
from models.calibration import FloatArray
from models.failure_model import FailureModel, check_feature_order, feature_values

_FAR: Final = 1e18
"""Beyond any value that a sensor gives."""

_SECONDS: Final = {"d": 86_400.0, "h": 3_600.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Units of time by their length, seconds."""

_SHORT_SPAN: Final = re.compile(r"\b(\d+)(min|h|d)\b")
"""Windows as names of features have them: 24h."""


@dataclass(frozen=True)
class UsualValues:
    """What a feature usually is, so that a reason can say above or below.

    Attributes:
        low: 10 % point by feature name.
        median: Median by feature name.
        high: 90 % point by feature name.
    """

    low: dict[str, float]
    median: dict[str, float]
    high: dict[str, float]


def usual_values(rows: pl.DataFrame, feature_names: Sequence[str]) -> UsualValues:
    """Quantiles of features over rows that were not followed by an incident.

    Args:
        rows: Training rows with `label` and the features.
        feature_names: Features to describe.

    Returns:
        The quantiles; a feature that is null throughout is left out.
    """
    negative = rows.filter(pl.col("label") == 0)

    def quantile(share: float) -> dict[str, float]:
        # Infinities cannot be stored as JSON; so far out, a large number says the same.
        finite = pl.col(list(feature_names)).cast(pl.Float64).clip(-_FAR, _FAR)
        values = negative.select(finite.quantile(share))
        return {name: float(v) for name, v in values.row(0, named=True).items() if v is not None}

    return UsualValues(quantile(0.1), quantile(0.5), quantile(0.9))


def explain(
    matrix: pl.DataFrame,
    model: FailureModel,
    *,
    features: Sequence[Feature],
    usual: UsualValues | None = None,
    n_reasons: int = 3,
) -> list[list[str]]:
    """The top reasons of each row, one per feature family.

    Costly (TreeSHAP by LightGBM): give it the rows that will be looked at, not the fleet.

    Args:
        matrix: Rows to explain.
        model: The model that scored them.
        features: Registered features, for words and units.
        usual: Usual values, for "above usual".
        n_reasons: Reasons per row, at most.

    Returns:
        Per row, sentences by falling contribution; only what raised the score is named.

    Raises:
        DataError: A feature of the model is not registered, or a column is missing.
    """
    by_name = {feature.name: feature for feature in features}
    unknown = [name for name in model.feature_names if name not in by_name]
    if unknown:
        raise DataError(
            f"reasons: {len(unknown)} features of the model are not registered: "
            f"{', '.join(unknown[:5])}. Give the features the model was trained with."
        )
    if matrix.is_empty():
        return []
    names = model.feature_names
    is_unusual = unusual_values(matrix, names, usual)
    families = [by_name[name].family for name in names]
    tops = top_of_families(contributions(matrix, model), families, is_unusual=is_unusual)
    values = matrix.select(names)
    return [
        [
            _sentence(
                by_name[names[at]],
                values.item(position, at),
                usual,
                share=share,
                is_unusual=bool(is_unusual[position, at]),
            )
            for at, share in found[:n_reasons]
        ]
        for position, found in enumerate(tops)
    ]


def contributions(matrix: pl.DataFrame, model: FailureModel) -> FloatArray:
    """Contribution of each feature to the raw log-odds, mean of the boosters.

    Args:
        matrix: Rows.
        model: The model.

    Returns:
        Shape (rows, features); with the boosters' base value, a row sums to its raw score.
    """
    values = feature_values(matrix, model.feature_names)
    total = np.zeros(values.shape)
    for booster in model.boosters:
        check_feature_order(booster, model.feature_names)
        pushes = booster.predict(values, pred_contrib=True, num_threads=model.spec.num_threads)
        total += np.asarray(pushes, dtype=np.float64)[:, :-1]  # the last column is the base value
    return total / len(model.boosters)


def describe_window(window: timedelta) -> str:
    """A window in words.

    >>> describe_window(timedelta(hours=24)), describe_window(timedelta(days=7))
    ('24 h', '7 d')
    """
    hours = window / timedelta(hours=1)
    if hours < 1:
        return f"{window / timedelta(minutes=1):g} min"
    return f"{hours:g} h" if hours <= 48 else f"{hours / 24:g} d"


def describe_value(value: float, unit: str) -> str:
    """A value of a feature in the unit a person would say it in, with no more digits than it has.

    >>> describe_value(620.4, "h"), describe_value(4.021, "h"), describe_value(0.25, "h")
    ('25.9 d', '4 h', '15 min')
    >>> describe_value(13.98, "1/GPU-year"), describe_value(69.0, "count")
    ('14 per GPU-year', '69')
    >>> describe_value(2_400_000.0, "us"), describe_value(3.103, "sigma")
    ('2.4 s', '3.1 sigma')
    """
    if unit in _SECONDS:
        return _duration(value * _SECONDS[unit])
    shown = _digits(value)
    if unit in {"1", "count", "flag"}:
        return shown
    return f"{shown} per {unit[2:]}" if unit.startswith("1/") else f"{shown} {unit}"


def _duration(seconds: float) -> str:
    for unit, size, least in (("d", 86_400, 2), ("h", 3_600, 1), ("min", 60, 1)):
        if abs(seconds) >= least * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds)} s"


def _digits(value: float) -> str:
    """Whole where it is whole or large, else one or two digits that say something."""
    if value == round(value) or abs(value) >= 100:
        return f"{value:.0f}"
    text = f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"
    return text.removesuffix(".0")


def top_of_families(
    pushes: FloatArray, families: Sequence[str], *, is_unusual: npt.NDArray[np.bool_]
) -> list[list[tuple[int, float]]]:
    """One feature of each family that raised a score, with the family's share.

    It is the strongest; but one that lies outside its usual range goes before one that does not,
    if it raised the score at least half as much: "69 W, as usual" sends nobody anywhere.

    Args:
        pushes: Contributions, shape (rows, features).
        families: Family of each feature.
        is_unusual: Whether each value lies outside its usual range, shape (rows, features).

    Returns:
        Per row, positions of features with shares of all that raised the score, by falling share;
        among equal shares the family whose first raising feature comes first.
    """
    distinct, code = np.unique(np.asarray(families), return_inverse=True)
    raised = np.maximum(pushes, 0.0)
    shape = (len(raised), distinct.size)
    sums, named, first = (np.zeros(shape, dtype) for dtype in (np.float64, np.intp, np.intp))
    for family in range(distinct.size):
        at = np.flatnonzero(code == family)
        part = raised[:, at]
        # One addition after the other: the sum of a row is the same whatever rows are beside it.
        sums[:, family] = np.cumsum(part, axis=1)[:, -1]
        telling = np.where(is_unusual[:, at] & (part >= 0.5 * part.max(axis=1)[:, None]), part, 0.0)
        has_telling = (telling > 0).any(axis=1)
        named[:, family] = at[np.where(has_telling, telling.argmax(axis=1), part.argmax(axis=1))]
        first[:, family] = at[(part > 0).argmax(axis=1)]
    total = sums.sum(axis=1, keepdims=True)
    shares = np.divide(sums, total, out=np.zeros(shape), where=total > 0)
    order = np.lexsort((first, -shares), axis=1)
    return [
        [(int(named[row, f]), float(shares[row, f])) for f in order[row] if sums[row, f] > 0]
        for row in range(shape[0])
    ]


def _sentence(
    feature: Feature,
    value: float | None,
    usual: UsualValues | None,
    *,
    share: float,
    is_unusual: bool,
) -> str:
    # Some meanings name their window already.
    window = ""
    if feature.window is not None and window_suffix(feature.window) not in feature.meaning:
        window = f" over {describe_window(feature.window)}"
    if value is None:
        shown = "not known"
    else:
        against = _against_usual(feature, value, usual, is_unusual=is_unusual)
        shown = f"{describe_value(value, feature.unit)}{against}"
    family = FAMILY_WORDS[feature.family]
    meaning = _SHORT_SPAN.sub(r"\1 \2", feature.meaning.rstrip("."))
    return f"{family} ({100 * share:.0f} % of what raises the score): {meaning}{window}: {shown}"


def unusual_values(
    matrix: pl.DataFrame, names: Sequence[str], usual: UsualValues | None
) -> npt.NDArray[np.bool_]:
    """Whether each value lies outside what is usual; a null never does.

    Args:
        matrix: Rows.
        names: Features.
        usual: Usual values; a feature without any is never unusual.

    Returns:
        Shape (rows, features).
    """
    if usual is None:
        return np.zeros((matrix.height, len(names)), dtype=np.bool_)
    known = [name in usual.median for name in names]
    low = np.array([usual.low[n] if k else np.nan for n, k in zip(names, known, strict=True)])
    high = np.array([usual.high[n] if k else np.nan for n, k in zip(names, known, strict=True)])
    values = matrix.select(pl.col(names).cast(pl.Float64)).to_numpy()
    is_null = matrix.select(pl.col(names).is_null()).to_numpy()
    is_inside = (low <= values) & (values <= high)
    return np.asarray(np.array(known) & ~is_null & ~is_inside)


def _against_usual(
    feature: Feature, value: float, usual: UsualValues | None, *, is_unusual: bool
) -> str:
    name = feature.name
    if usual is None or name not in usual.median:
        return ""
    median = describe_value(usual.median[name], feature.unit)
    if not is_unusual:
        return ", as usual"
    side = "above" if value > usual.high[name] else "below"
    return f", {side} usual (median {median})"
