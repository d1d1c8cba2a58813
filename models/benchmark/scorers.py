"""Whom a benchmark's model is held against: rules, orders, logistic regression, rival models.

How scores are judged is in `models.benchmark.run`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from features.errors import DataError
from features.registry import Feature
from models.benchmark.protocol import BenchmarkProtocol, Ranking, Rival
from models.evaluation.baselines import all_baselines
from models.failure_model import FailureModel
from models.specs import Task, TrainSpec
from models.training.boosters import TooFewIncidentsError, train

LEFT: Final = "not_watched"
"""Why the label of a row is null whose entity left unharmed within its horizon."""

_NO_SKILL: Final = frozenset({"always", "never", "oracle"})


def varying(train_rows: pl.DataFrame, features: Sequence[Feature]) -> tuple[Feature, ...]:
    """The features that have more than one value, null included, in the labelled training rows.

    A site without serials, say, has no batch: what carries nothing must not take the place of what
    does when a tree sees a share of the features.
    """
    known = train_rows.filter(pl.col("label").is_not_null())
    names = [feature.name for feature in features]
    bounds = known.select(
        *(pl.col(n).min().alias(f"{n} min") for n in names),
        *(pl.col(n).max().alias(f"{n} max") for n in names),
        *(pl.col(n).null_count().alias(f"{n} null") for n in names),
    ).row(0, named=True)

    def varies(name: str) -> bool:
        nulls = bounds[f"{name} null"]
        return bool(bounds[f"{name} min"] != bounds[f"{name} max"] or 0 < nulls < known.height)

    return tuple(feature for feature in features if varies(feature.name))


def with_leavers(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows in the reading in which an entity that left unharmed did not fail.

    The product's label is null there, for nobody saw how it would have gone on; other work counts
    these rows as negatives.
    """
    has_left = pl.col("censored_by") == LEFT
    label = pl.when(has_left).then(pl.lit(0, pl.Int8)).otherwise("label").alias("label")
    return rows.with_columns(label)


def baseline_scores(
    train_rows: pl.DataFrame,
    test: pl.DataFrame,
    features: tuple[Feature, ...],
    protocol: BenchmarkProtocol,
) -> tuple[dict[str, pl.Series], tuple[str, ...]]:
    """Scores of the test rows by everything that is no LightGBM model.

    Args:
        train_rows: Training rows.
        test: Rows to score.
        features: Features that vary in training.
        protocol: Its rankings, and whether there are places.

    Returns:
        Scores by name; and what is not available, with what it lacks.

    Raises:
        DataError: A ranking names a feature that is not there.
    """
    found = {"age": test["age_days"].fill_null(0.0)}
    if "place" in test.columns:
        known = train_rows.filter(pl.col("label").is_not_null())
        rate = known.group_by("place").agg(pl.col("label").mean().alias("rate"))
        place = test.select("place").join(rate, on="place", how="left", maintain_order="left")
        found["place"] = place["rate"].fill_null(0.0)
    found |= {ranking.name: _ranked(ranking, test) for ranking in protocol.rankings}
    unavailable = []
    for baseline in all_baselines(train_rows, test, features=features):
        if baseline.scores is None:
            unavailable.append(f"{baseline.name}: {baseline.note}")
        elif baseline.name not in _NO_SKILL:
            found[baseline.name] = baseline.scores
    return found, tuple(unavailable)


def _ranked(ranking: Ranking, test: pl.DataFrame) -> pl.Series:
    missing = [name for name in ranking.features if name not in test.columns]
    if missing:
        raise DataError(
            f"benchmark baseline {ranking.name!r}: no feature {', '.join(missing)}. Correct its "
            f"features; the matrix has {', '.join(test.columns[3:8])}, ..."
        )
    values = [pl.col(name).fill_null(0.0).cast(pl.Float64) for name in ranking.features]
    if ranking.above is None:
        return test.select(pl.sum_horizontal(values).alias("score")).to_series()
    holds = pl.any_horizontal(value > ranking.above for value in values)
    return test.select(holds.cast(pl.Float64).alias("score")).to_series()


def fit(
    rows: pl.DataFrame,
    feature_names: Sequence[str],
    *,
    task: Task,
    specs: Sequence[TrainSpec],
) -> FailureModel:
    """Trains by several specs; the boosters of all make one model, which averages raw scores.

    Args:
        rows: Training rows; those without a label are left out.
        feature_names: Features to learn from.
        task: What is predicted.
        specs: How; the model carries the first.

    Returns:
        The model.

    Raises:
        TooFewIncidentsError: Too few incidents to learn from.
    """
    models = [train(rows, feature_names=feature_names, task=task, spec=spec) for spec in specs]
    boosters = tuple(booster for model in models for booster in model.boosters)
    return replace(models[0], boosters=boosters)


def rival_scores(
    rival: Rival,
    train_rows: pl.DataFrame,
    test: pl.DataFrame,
    features: tuple[Feature, ...],
    protocol: BenchmarkProtocol,
) -> pl.Series | None:
    """Scores of the test rows by a rival; None where it has too few incidents to learn from.

    Raises:
        DataError: None of its features is there.
    """
    names = [
        feature.name
        for feature in features
        if any(re.fullmatch(pattern, feature.name) for pattern in rival.features)
    ]
    if not names:
        raise DataError(
            f"benchmark rival {rival.name!r}: no feature matches {', '.join(rival.features)}. "
            f"Correct its patterns; the first features are "
            f"{', '.join(feature.name for feature in features[:5])}."
        )
    try:
        model = train(train_rows, feature_names=names, task=protocol.task, spec=rival.train)
    except TooFewIncidentsError:
        return None
    return pl.Series(model.raw_scores(test))
