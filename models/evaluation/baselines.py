"""Scores that need no learning, or little: what every model must beat.

They score the same rows as the model; how scores are judged is in `models.evaluation.row_metrics`.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from features.errors import DataError
from features.registry import Family, Feature
from models.evaluation.row_metrics import ScoreKind
from models.failure_model import finite_values
from models.prior import longest_history

RULE_WINDOW = timedelta(hours=24)
MAX_LOGISTIC_NEGATIVES = 10_000
"""Kept by chance and weighted up; with 185 features more of them move no coefficient much."""

LOGISTIC_ITERATIONS = 200

_NODE_STEP = 10_000.0
"""One incident of the GPU outranks any number of its node's."""


@dataclass(frozen=True)
class Baseline:
    """One baseline's scores of the rows, or why it has none.

    Attributes:
        name: Its name in tables.
        kind: probability, or rank for a score that only orders rows.
        scores: One per row, null where it has no opinion; None where it is not available.
        note: What it looks at, or what it lacks.
    """

    name: str
    kind: ScoreKind
    scores: pl.Series | None
    note: str


@dataclass(frozen=True)
class StaticRule:
    """What an operator's alert says today: some feature at or above a limit.

    Attributes:
        words: The rule in words.
        families: Families its features are in.
        pattern: Regular expression their names contain.
        minimum: The limit.
    """

    words: str
    families: frozenset[Family]
    pattern: str
    minimum: float


STATIC_RULES = (
    StaticRule("a hard fault event", frozenset({"event"}), r"(hbm|off_bus|nvlink).*count", 1),
    StaticRule("a precursor event", frozenset({"event"}), r"precursor.*count", 1),
    StaticRule(
        "a row remap pending or failed",
        frozenset({"telemetry_state"}),
        r"row_remap_(pending|failure)",
        1,
    ),
    StaticRule("GPU at 90 degC or more", frozenset({"telemetry_gauge"}), r"^gpu_temp_c.*max", 90),
    StaticRule(
        "memory at 100 degC or more", frozenset({"telemetry_gauge"}), r"^memory_temp_c.*max", 100
    ),
)
"""Limits near the slowdown temperatures NVIDIA publishes, and the events DCGM's health checks
act on; as a rule set, what sites run today."""


def all_baselines(
    train: pl.DataFrame, rows: pl.DataFrame, *, features: Sequence[Feature]
) -> tuple[Baseline, ...]:
    """Every baseline, in the order of the tables.

    Args:
        train: Training rows with `label` and the features; nothing is learned from others.
        rows: Rows to score, with the features; `label` only for the oracle.
        features: Registered features of the columns.

    Returns:
        The baselines; those without their columns say so.

    Raises:
        DataError: No training row has a label.
    """
    known = train.filter(pl.col("label").is_not_null())
    if known.is_empty():
        raise DataError("baselines: no training row has a label. Give labelled training rows.")
    rate = int((known["label"] == 1).sum()) / known.height
    return (
        Baseline("base rate", "probability", _constant(rate, rows), "share of positives in train"),
        static_rules(rows, features=features),
        history_count(rows, features=features),
        history_rank(rows, features=features),
        last_xid(rows, features=features),
        logistic_regression(known, rows, features=features),
        Baseline("always", "rank", _constant(1.0, rows), "an alert on every row"),
        Baseline("never", "rank", _constant(0.0, rows), "no alert"),
        oracle(rows),
    )


def static_rules(rows: pl.DataFrame, *, features: Sequence[Feature]) -> Baseline:
    """1 where any static rule holds in the last 24 h, else 0; an unknown value breaks no rule."""
    used, fired = [], []
    for rule in STATIC_RULES:
        names = [
            feature.name
            for feature in _recent(features)
            if feature.family in rule.families and re.search(rule.pattern, feature.name)
        ]
        if names:
            used.append(rule.words)
            fired += [(pl.col(name) >= rule.minimum).fill_null(value=False) for name in names]
    if not fired:
        return Baseline("static rules", "rank", None, "no column a rule looks at")
    scores = rows.select(pl.any_horizontal(fired).cast(pl.Float64).alias("score")).to_series()
    return Baseline("static rules", "rank", scores, "any of: " + "; ".join(used))


def history_count(rows: pl.DataFrame, *, features: Sequence[Feature]) -> Baseline:
    """Ranks by the entity's own incidents over the longest time there is."""
    by_name = {feature.name: feature for feature in features if feature.family == "history"}
    longest = longest_history(tuple(by_name))
    if longest is None:
        return Baseline("history count", "rank", None, "no column own_incident_count")
    scores = rows[longest].cast(pl.Float64).fill_null(0.0)
    return Baseline("history count", "rank", scores, by_name[longest].meaning)


def history_rank(rows: pl.DataFrame, *, features: Sequence[Feature]) -> Baseline:
    """Ranks by who has failed before: the GPU itself, then its node, then how long ago.

    What HeaRank and Meta's search for lemon nodes do without a model: the past of the machine is
    its rank.
    """
    names = {feature.name: feature for feature in features if feature.family == "history"}
    own = longest_history(tuple(names))
    of_node = [name for name in names if name.startswith("node_incident_count_")]
    if own is None or not of_node:
        return Baseline("history rank", "rank", None, "no column node_incident_count")
    node = max(of_node, key=lambda name: names[name].window or timedelta(0))
    scores = pl.col(own).fill_null(0.0) * _NODE_STEP + pl.col(node).fill_null(0.0)
    if "own_days_since_incident" in names:
        scores += 1.0 / (2.0 + pl.col("own_days_since_incident").fill_null(1e9))
    return Baseline(
        "history rank",
        "rank",
        rows.select(scores.cast(pl.Float64).alias("score")).to_series(),
        f"{names[own].meaning}; at a tie {names[node].meaning.lower()}; then the latest",
    )


def last_xid(rows: pl.DataFrame, *, features: Sequence[Feature]) -> Baseline:
    """Ranks by how recent the last health event is; entities without one come last."""
    names = [
        feature.name
        for feature in features
        if feature.family == "event" and re.search(r"since", feature.name)
    ]
    if not names:
        return Baseline("last Xid", "rank", None, "no column with the time since an event")
    newest = pl.min_horizontal(pl.col(name).cast(pl.Float64) for name in names)
    scores = rows.select((-newest).fill_null(-1e12).alias("score")).to_series()
    return Baseline("last Xid", "rank", scores, "time since the last health event")


def logistic_regression(
    train: pl.DataFrame, rows: pl.DataFrame, *, features: Sequence[Feature]
) -> Baseline:
    """Logistic regression on all features; medians and scales are those of the training rows.

    Args:
        train: Labelled training rows.
        rows: Rows to score.
        features: Features to learn from.

    Returns:
        The baseline; not available where training has one class only.
    """
    names = [feature.name for feature in features]
    label = train["label"].to_numpy().astype(np.int8)
    if not names or label.min() == label.max():
        return Baseline("logistic regression", "probability", None, "one class only in training")
    negatives = int((label == 0).sum())
    share = min(1.0, MAX_LOGISTIC_NEGATIVES / max(negatives, 1))
    keep = (label == 1) | (np.random.default_rng(1).random(label.size) < share)
    weight = np.where(label[keep] == 1, 1.0, 1.0 / share)
    fitted = _fit_logistic(finite_values(train.filter(pl.Series(keep)), names), label[keep], weight)
    note = f"{len(names)} features, median imputation and scaling fitted on training rows"
    if int(fitted[-1].n_iter_[0]) >= LOGISTIC_ITERATIONS:
        note += f"; stopped after {LOGISTIC_ITERATIONS} iterations"
    if rows.is_empty():
        return Baseline("logistic regression", "probability", pl.Series([], dtype=pl.Float64), note)
    probability = fitted.predict_proba(finite_values(rows, names))[:, 1]
    return Baseline(
        "logistic regression", "probability", pl.Series(probability, dtype=pl.Float64), note
    )


def oracle(rows: pl.DataFrame) -> Baseline:
    """The label itself: the ceiling, and a check of the metrics."""
    if "label" not in rows.columns:
        return Baseline("oracle", "probability", None, "the rows have no label")
    return Baseline("oracle", "probability", rows["label"].cast(pl.Float64), "the label itself")


def _fit_logistic(
    values: npt.NDArray[np.float32], label: npt.NDArray[np.int8], weight: npt.NDArray[np.float64]
) -> Pipeline:
    pipeline = make_pipeline(
        # A column without any value in training carries nothing: it becomes a constant.
        SimpleImputer(strategy="median", keep_empty_features=True),
        StandardScaler(),
        LogisticRegression(C=0.1, max_iter=LOGISTIC_ITERATIONS),
    )
    with warnings.catch_warnings():
        # Not converged is said in the note; the baseline still stands.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return pipeline.fit(values, label, logisticregression__sample_weight=weight)


def _recent(features: Sequence[Feature]) -> list[Feature]:
    return [f for f in features if f.window is None or f.window <= RULE_WINDOW]


def _constant(value: float, rows: pl.DataFrame) -> pl.Series:
    return pl.Series([value] * rows.height, dtype=pl.Float64)
