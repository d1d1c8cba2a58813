"""Judges each fault type by itself: is it foreseen at all, and does a model of its own see more?

Shares of fault types for serving are in `models.faults.types`; nothing here serves scores.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import polars as pl

from features.errors import DataError
from models.calibration import FloatArray, log_odds_of
from models.evaluation.row_metrics import NOT_DEFINED, Bootstrap, Estimate, compare, row_metrics
from models.failure_model import FailureModel
from models.faults.types import FaultTypeModel
from models.prior import longest_history
from models.training.boosters import train

OWN_MODEL_INCIDENTS: Final = 30
"""With fewer incidents of a type a booster of its own learns single machines."""

SHRINK_INCIDENTS: Final = 30.0
"""A type with so many incidents is believed half its own model and half the general one."""

LEAST_TEST_INCIDENTS: Final = 10
"""With fewer incidents of a type in the test resamples hardly differ: nothing is said of it."""

_MOST_NEGATIVES: Final = 200_000
_GROUP: Final = "incident_or_entity"


@dataclass(frozen=True, kw_only=True)
class FaultClass:
    """What the test rows say of one fault type.

    Attributes:
        fault_type: The type.
        n_train: Its incidents in training.
        n_test: Its incidents in the test.
        prevalence: Share of test rows before one: average precision of no skill.
        auc: Area under the ROC curve of the failure score, for this type alone.
        average_precision: Of the failure score, for this type alone.
        gain_on_history: Average precision of the failure score minus that of counting earlier
            incidents; not defined without such a column.
        own_average_precision: Of the model of its own; not defined with too few incidents.
        own_gain: That minus the failure score times the forecast share of the type.
        own_gain_on_score: That minus the failure score alone.
    """

    fault_type: str
    n_train: int
    n_test: int
    prevalence: float | None
    auc: Estimate
    average_precision: Estimate
    gain_on_history: Estimate
    own_average_precision: Estimate
    own_gain: Estimate
    own_gain_on_score: Estimate

    @property
    def is_foreseen(self) -> bool:
        """Whether the failure score ranks this type better than chance, beyond chance."""
        return self._is_above(self.auc, 0.5)

    @property
    def beats_history(self) -> bool:
        """Whether the failure score beats counting earlier incidents, beyond chance."""
        return self._is_above(self.gain_on_history, 0.0)

    @property
    def needs_own_model(self) -> bool:
        """Whether a model of its own beats the score times the forecast share, beyond chance."""
        return self._is_above(self.own_gain, 0.0)

    def _is_above(self, found: Estimate, bound: float) -> bool:
        is_enough = self.n_test >= LEAST_TEST_INCIDENTS
        return is_enough and found.low is not None and found.low > bound

    def in_words(self) -> str:
        """The verdict in one sentence."""
        if self.auc.value is None:
            return f"{self.fault_type}: no failure of it in the test, nothing can be said."
        if self.n_test < LEAST_TEST_INCIDENTS:
            return f"{self.fault_type}: {self.n_test} incidents in the test, too few to say."
        said = (
            f"{self.fault_type} ({self.n_test} incidents): "
            f"{'foreseen' if self.is_foreseen else 'not foreseen beyond chance'}"
        )
        if self.gain_on_history.value is not None:
            word = "beats" if self.beats_history else "does not beat"
            said += f"; the score {word} counting earlier incidents"
        if self.own_gain.value is None:
            return f"{said}; no model of its own ({self.n_train} incidents in training)."
        word = "beats" if self.needs_own_model else "does not beat"
        return f"{said}; a model of its own {word} the score."

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            **asdict(self),
            "is_foreseen": self.is_foreseen,
            "beats_history": self.beats_history,
            "needs_own_model": self.needs_own_model,
            "words": self.in_words(),
        }


def judge_fault_classes(
    train_rows: pl.DataFrame,
    test: pl.DataFrame,
    *,
    model: FailureModel,
    kinds: FaultTypeModel,
    bootstrap: Bootstrap,
    own_model_incidents: int | None = OWN_MODEL_INCIDENTS,
) -> tuple[FaultClass, ...]:
    """Judges every fault type that was seen in training or test, most frequent first.

    Args:
        train_rows: Training rows with `label`, `fault_type`, `incident_id` and the features.
        test: Test rows with the same.
        model: The failure score.
        kinds: Forecast of fault types.
        bootstrap: How intervals are made; resamples draw incidents, and entities without one.
        own_model_incidents: Incidents of a type from which on it gets a model of its own; None:
            no such models, which cost a training each.

    Returns:
        One result per fault type.

    Raises:
        DataError: A feature is missing.
    """
    counts = {name: _incidents_by_type(rows) for name, rows in (("a", train_rows), ("b", test))}
    types = sorted(
        counts["a"].keys() | counts["b"].keys(),
        key=lambda name: (-counts["a"].get(name, 0) - counts["b"].get(name, 0), name),
    )
    general = model.raw_scores(test)
    shares = dict(zip(kinds.classes, kinds.probabilities(test).T, strict=True))
    scored = test.select("entity_id", "label", "fault_type", "incident_id").with_columns(
        pl.coalesce("incident_id", "entity_id").alias(_GROUP), pl.Series("score", general)
    )
    history = longest_history(test.columns)
    if history is not None:
        counted = test[history].cast(pl.Float64).fill_null(0.0)
        scored = scored.with_columns(counted.alias("history"))
    judged = []
    for name in types:
        own = None
        n_train = counts["a"].get(name, 0)
        if own_model_incidents is not None and n_train >= own_model_incidents:
            own = _own_scores(train_rows, test, name, model=model)
        share = shares.get(name)
        typed = _typed_score(general, share, calibration=model)
        if own is not None:
            weight = n_train / (n_train + SHRINK_INCIDENTS)
            own = weight * own + (1.0 - weight) * typed
        judged.append(
            _judge(
                scored,
                name,
                typed=typed,
                own=own,
                counts=(n_train, counts["b"].get(name, 0)),
                bootstrap=replace(bootstrap, group=_GROUP),
            )
        )
    return tuple(judged)


def _incidents_by_type(rows: pl.DataFrame) -> Mapping[str, int]:
    positive = rows.filter(pl.col("label") == 1, pl.col("fault_type").is_not_null())
    counted = positive.group_by("fault_type").agg(pl.col("incident_id").n_unique())
    return dict(counted.iter_rows())


def _typed_score(
    general: FloatArray, share: FloatArray | None, *, calibration: FailureModel
) -> FloatArray:
    """Log-odds of a failure of one type: the score times the type's forecast share."""
    probability = calibration.calibration.apply(general)
    return log_odds_of(probability * (1e-6 if share is None else share))


def _own_scores(
    train_rows: pl.DataFrame, test: pl.DataFrame, fault_type: str, *, model: FailureModel
) -> FloatArray | None:
    """Log-odds by a booster for which failures of other types count as none."""
    is_own = (pl.col("fault_type") == fault_type).fill_null(value=False)
    rows = train_rows.with_columns(
        pl.when(pl.col("label").is_not_null()).then(is_own.cast(pl.Int8)).alias("label")
    )
    n_negative = max(int((rows["label"] == 0).sum()), 1)
    share = min(model.spec.negative_share, 1.0, _MOST_NEGATIVES / n_negative)
    spec = replace(
        model.spec,
        seeds=model.spec.seeds[:1],
        min_incidents=1,
        negative_share=share,
        early_stopping=None,
    )
    try:
        own = train(rows, feature_names=model.feature_names, task=model.task, spec=spec)
    except DataError:
        return None
    return own.raw_scores(test)


def _judge(
    scored: pl.DataFrame,
    fault_type: str,
    *,
    typed: FloatArray,
    own: FloatArray | None,
    counts: tuple[int, int],
    bootstrap: Bootstrap,
) -> FaultClass:
    """Metrics of one type; rows before failures of other types count for neither side."""
    rows = scored.with_columns(pl.Series("typed", typed))
    if own is not None:
        rows = rows.with_columns(pl.Series("own", own))
    is_other = (pl.col("label") == 1) & (pl.col("fault_type") != fault_type).fill_null(value=True)
    rows = rows.filter(pl.col("label").is_not_null() & ~is_other)
    metrics = row_metrics(rows, kind="rank", bootstrap=bootstrap)

    def gain(score: str, other: str) -> Estimate:
        if not {score, other} <= set(rows.columns) or not metrics.n_positive:
            return NOT_DEFINED
        return compare(rows, score=score, other=other, bootstrap=bootstrap)

    is_own = own is not None and metrics.n_positive > 0
    return FaultClass(
        fault_type=fault_type,
        n_train=counts[0],
        n_test=counts[1],
        prevalence=metrics.prevalence,
        auc=metrics.auc if metrics.n_positive else NOT_DEFINED,
        average_precision=metrics.average_precision if metrics.n_positive else NOT_DEFINED,
        gain_on_history=gain("score", "history"),
        own_average_precision=row_metrics(
            rows, score="own", kind="rank", bootstrap=bootstrap
        ).average_precision
        if is_own
        else NOT_DEFINED,
        own_gain=gain("own", "typed"),
        own_gain_on_score=gain("own", "score"),
    )
