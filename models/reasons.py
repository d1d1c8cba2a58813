"""Says in words what raised a score: contributions of features, grouped by family.

A contribution is a share of the score, never a cause; nothing is scored or decided here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import polars as pl

from features.errors import DataError
from features.registry import FAMILY_WORDS, Feature, window_suffix
from models.calibration import FloatArray
from models.failure_model import FailureModel, check_feature_order, feature_values


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
        values = negative.select(pl.col(list(feature_names)).quantile(share))
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
    families = [by_name[name].family for name in model.feature_names]
    pushes = contributions(matrix, model)
    sentences = []
    for position, row in enumerate(matrix.iter_rows(named=True)):
        tops = _top_of_families(pushes[position], families)[:n_reasons]
        sentences.append(
            [
                _sentence(
                    by_name[model.feature_names[i]], row[model.feature_names[i]], usual, share
                )
                for i, share in tops
            ]
        )
    return sentences


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


def _top_of_families(push: FloatArray, families: Sequence[str]) -> list[tuple[int, float]]:
    """The strongest feature of each family that raised the score, with the family's share."""
    raised: dict[str, list[int]] = {}
    for i in np.flatnonzero(push > 0).tolist():
        raised.setdefault(families[i], []).append(i)
    total = sum(float(push[i]) for members in raised.values() for i in members)
    tops = [
        (max(members, key=lambda i: push[i]), sum(float(push[i]) for i in members) / total)
        for members in raised.values()
    ]
    return sorted(tops, key=lambda top: -top[1])


def _sentence(
    feature: Feature, value: float | None, usual: UsualValues | None, share: float
) -> str:
    # Some meanings name their window already.
    window = ""
    if feature.window is not None and window_suffix(feature.window) not in feature.meaning:
        window = f" over {describe_window(feature.window)}"
    if value is None:
        shown = "not known"
    else:
        unit = "" if feature.unit in {"1", "count", "flag"} else f" {feature.unit}"
        shown = f"{value:.4g}{unit}{_against_usual(feature.name, value, usual)}"
    family = FAMILY_WORDS[feature.family]
    meaning = feature.meaning.rstrip(".")
    return f"{family} ({share:.0%} of what raises the score): {meaning}{window}: {shown}"


def _against_usual(name: str, value: float, usual: UsualValues | None) -> str:
    if usual is None or name not in usual.median:
        return ""
    median = f"{usual.median[name]:.4g}"
    if value > usual.high[name]:
        return f", above usual (median {median})"
    if value < usual.low[name]:
        return f", below usual (median {median})"
    return ", as usual"
