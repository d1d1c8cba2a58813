"""Looks for signs that a score knows the future: too good, carried by one column, or by identity.

It suspects and says why; that features end before `as_of` is a property test of `features`, and
whether a candidate goes on is for the gate and for people.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from models.calibration import FloatArray
from models.evaluation.gate import GateDecision
from models.evaluation.ranking_metrics import auc, rank_rows
from models.evaluation.row_metrics import NOT_DEFINED, Bootstrap, Estimate, row_metrics
from models.failure_model import feature_values
from models.specs import Task, TrainSpec
from models.training.boosters import TooFewIncidentsError, train
from models.training.splits import TimeSplit, without_shared_entities

STRONG_AUC: Final = 0.9
"""No published score of failures from telemetry is above it; one that is, is looked at first."""

IMPLAUSIBLE_AUC: Final = 0.98
"""Half of all failures come without a sign: nobody who looks only back ranks like this."""

ALONE_AUC: Final = 0.95
"""A column that ranks so well by itself is not a sign but the outcome, told another way."""

MEMORY_GAP: Final = 0.1
"""An area this much lower on entities never seen: much of the score is who, not how."""

_MOST_ROWS: Final = 20_000
_FOLDS: Final = 2


@dataclass(frozen=True, kw_only=True)
class LeakCheck:
    """What looks too good to be true.

    Attributes:
        suspicions: Reasons to hold the candidate back until a person accepts it.
        notices: Reasons to look, which hold nothing back.
        alone: The columns that rank best by themselves, with their area, best first.
        unseen_auc: Area on entities that training never saw; not defined where too few incidents
            are left to learn from.
        is_accepted: Whether a person has looked and lets the candidate pass as it is.
    """

    suspicions: tuple[str, ...]
    notices: tuple[str, ...]
    alone: tuple[tuple[str, float], ...]
    unseen_auc: Estimate
    is_accepted: bool = False

    def in_words(self) -> tuple[str, ...]:
        """One sentence each, the suspicions first, as the model card says them."""
        return (
            *(f"Looks like a leak: {one}." for one in self.suspicions),
            *(f"Look into this: {one}." for one in self.notices),
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "suspicions": list(self.suspicions),
            "notices": list(self.notices),
            "alone": [list(one) for one in self.alone],
            "unseen_auc": asdict(self.unseen_auc),
            "is_accepted": self.is_accepted,
        }


def look_for_leaks(
    test: pl.DataFrame,
    *,
    area: Estimate,
    unseen: Estimate,
    feature_names: Sequence[str],
    is_accepted: bool = False,
) -> LeakCheck:
    """Holds a score's area against what is plausible, and each column's against it.

    Args:
        test: Test rows with `label` and the features.
        area: Area under the ROC curve of the score on them.
        unseen: The same on entities that training never saw (`unseen_area`).
        feature_names: Columns of the model.
        is_accepted: Whether a person has looked and lets the candidate pass.

    Returns:
        The check.

    Raises:
        DataError: A feature is missing or not numeric.
    """
    alone = _areas_alone(test, feature_names)
    suspicions, notices = [], []
    if area.value is not None and area.value >= IMPLAUSIBLE_AUC:
        suspicions.append(
            f"the area under the ROC curve is {area}; {IMPLAUSIBLE_AUC} and more is not plausible"
        )
    elif area.value is not None and area.value > STRONG_AUC:
        notices.append(
            f"the area under the ROC curve is {area}: above {STRONG_AUC}, look for a leak first"
        )
    for found, least, most in ((suspicions, ALONE_AUC, 1.1), (notices, STRONG_AUC, ALONE_AUC)):
        carriers = [f"{name} ({one:.3f})" for name, one in alone if least <= one < most]
        if carriers:
            found.append(f"single columns rank failures by themselves: {', '.join(carriers)}")
    if None not in (area.value, unseen.value):
        gap = float(area.value or 0.0) - float(unseen.value or 0.0)
        if gap > MEMORY_GAP:
            notices.append(
                f"on entities it has never seen the area is {unseen}, lower by {gap:.2f}: part of "
                "the score is memory of who failed before"
            )
    return LeakCheck(
        suspicions=tuple(suspicions),
        notices=tuple(notices),
        alone=alone[:5],
        unseen_auc=unseen,
        is_accepted=is_accepted,
    )


def unseen_area(
    split: TimeSplit,
    *,
    feature_names: Sequence[str],
    task: Task,
    spec: TrainSpec,
    bootstrap: Bootstrap,
) -> Estimate:
    """Area under the ROC curve on test rows of entities that the model was not trained on.

    Half of the entities learn for the other half, and the other way round, with the first seed.

    Args:
        split: Rows in time.
        feature_names: Columns of the model.
        task: What is predicted.
        spec: How; a model of half of the entities may have half as many incidents.
        bootstrap: How the interval is made.

    Returns:
        The area; not defined where a half has too few incidents.
    """
    halved = replace(
        spec, seeds=spec.seeds[:1], min_incidents=spec.min_incidents // _FOLDS, early_stopping=None
    )
    parts = []
    for fold in range(_FOLDS):
        apart = without_shared_entities(split, n_folds=_FOLDS, test_fold=fold)
        try:
            model = train(apart.train, feature_names=feature_names, task=task, spec=halved)
        except TooFewIncidentsError:
            return NOT_DEFINED
        score = pl.Series("score", model.raw_scores(apart.test))
        parts.append(apart.test.with_columns(score))
    return row_metrics(pl.concat(parts), kind="rank", bootstrap=bootstrap).auc


def held_back(decision: GateDecision, check: LeakCheck) -> GateDecision:
    """The gate's decision, withheld where the candidate looks like a leak.

    Args:
        decision: The gate's own.
        check: What was found.

    Returns:
        The decision, with the suspicion in its reason.
    """
    if not check.suspicions:
        return decision
    found = "; ".join(check.suspicions)
    if check.is_accepted:
        return replace(decision, reason=f"{decision.reason} Accepted although {found}.")
    return replace(
        decision,
        is_accepted=False,
        reason=f"Looks like a leak: {found}. {decision.reason} Look for what these columns know of "
        "the future; if it is honest, accept it with accept_leak_suspects.",
    )


def _areas_alone(test: pl.DataFrame, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Each column's own area, in the better direction, unknown values at the better end.

    All positives are looked at and a fixed draw of negatives; an area needs no more.
    """
    known = test.filter(pl.col("label").is_not_null())
    label = known["label"].to_numpy().astype(np.int8)
    chosen = np.concatenate([_drawn(np.flatnonzero(label == value)) for value in (1, 0)])
    if not (label[chosen] == 1).any() or not (label[chosen] == 0).any():
        return ()
    values = feature_values(known[chosen], names)
    found = [
        (name, _area_alone(values[:, place].astype(np.float64), label[chosen]))
        for place, name in enumerate(names)
    ]
    return tuple(sorted(found, key=lambda one: (-one[1], one[0])))


def _area_alone(values: FloatArray, label: npt.NDArray[np.int8]) -> float:
    """The best of four rankings: rising or falling, unknown first or last."""
    is_unknown = np.isnan(values)
    best = 0.5
    for end in (-1.0, 1.0) if is_unknown.any() else (1.0,):
        filled = np.where(is_unknown, end * np.finfo(np.float64).max, values)
        ranked = rank_rows(filled, label)
        area = float(auc(ranked, np.ones((1, label.size)))[0])
        best = max(best, area, 1.0 - area)
    return best


def _drawn(rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    if rows.size <= _MOST_ROWS:
        return rows
    return np.sort(np.random.default_rng(1).choice(rows, _MOST_ROWS, replace=False))
