"""What a site may choose for its failure score: the stretch it learns from, and an ensemble.

What these choices are worth is in docs/benchmarks/ensembles.md; members are in the files beside.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import isnan
from typing import Any, Final

import polars as pl

from models.ensembles.cascade import CascadeSpec, fit_cascade
from models.ensembles.members import BoostedMember, BoostedSpec
from models.ensembles.parallel import fit_parallel
from models.ensembles.sliding import (
    EVERYTHING,
    SlidingSpec,
    TrainingLength,
    choose_training_length,
    recent_rows,
)
from models.failure_model import FailureModel
from models.member_protocol import Member
from models.specs import Ensemble, SiteChoice, Span, Task, TrainSpec
from models.training.splits import Origin, TimeSplit

_DAY: Final = timedelta(days=1)
_N_ORIGINS: Final = 3


def choice_on_card(choice: SiteChoice, length: TrainingLength) -> dict[str, Any]:
    """The choice and what it came to; None where a length could not be judged.

    Args:
        choice: What was asked for.
        length: What `chosen_length` gave.
    """

    def told(found: Sequence[float]) -> list[float | None]:
        return [None if isnan(one) else one for one in found]

    return {
        "ensemble": choice.ensemble,
        "span": choice.span,
        "days": None if length.length == EVERYTHING else length.length / _DAY,
        "average_precision": [
            {"days": None if tried == EVERYTHING else tried / _DAY, "by_origin": told(found)}
            for tried, found in sorted(length.precision.items())
        ],
    }


def chosen_length(
    rows: pl.DataFrame,
    span: Span,
    *,
    origin: Origin,
    names: Sequence[str],
    task: Task,
    spec: TrainSpec,
) -> TrainingLength:
    """How far back training reaches.

    Args:
        rows: Training rows, all of them before `origin.train_until`.
        span: See `SiteChoice`.
        origin: Cuts; lengths are compared on windows as long as validation.
        names: Features.
        task: What is predicted.
        spec: How boosters are trained.

    Returns:
        The length, with what it was chosen by where it was chosen here.
    """
    until = origin.train_until
    if span == "all" or rows.is_empty():
        return TrainingLength(EVERYTHING, {})
    if span != "auto":
        return TrainingLength(span * _DAY, {})
    whole = until - rows.select(pl.col("as_of").min()).item()
    parts = tuple(max(_DAY, whole // part // _DAY * _DAY) for part in (4, 2))
    return choose_training_length(
        rows,
        until=until,
        spec=SlidingSpec(lengths=parts, n_origins=_N_ORIGINS, window=origin.valid_until - until),
        member=BoostedSpec(spec=spec),
        feature_names=names,
        task=task,
    )


def last_of(split: TimeSplit, length: TrainingLength, *, until: datetime) -> TimeSplit:
    """The split, with the last stretch of its training rows alone."""
    if length.length == EVERYTHING:
        return split
    return replace(split, train=recent_rows(split.train, until=until, length=length.length))


def with_ensemble(
    model: FailureModel, split: TimeSplit, *, ensemble: Ensemble, spec: TrainSpec
) -> FailureModel:
    """The model scoring by an ensemble; its own boosters stay, for reasons.

    Args:
        model: A trained model, not calibrated yet.
        split: Rows that the other members learn from, and validation, which places their scores.
        ensemble: Which.
        spec: How boosters are trained, here those of a cascade's second member.

    Returns:
        The model, to be calibrated.

    Raises:
        TooFewIncidentsError: Too little to learn from.
        DataError: Validation has no positive row, which a cascade needs.
    """
    if ensemble == "none":
        return model
    # Here, so that a site without an ensemble does not wait for scikit-learn's networks.
    from models.ensembles.networks import LogisticSpec, MlpSpec

    names, task = model.feature_names, model.task
    seed, least = spec.seeds[0], spec.min_incidents
    logistic = LogisticSpec(seed=seed, min_incidents=least)
    if ensemble == "cascade":
        cascade = CascadeSpec(first=logistic, second=BoostedSpec(spec=spec), seed=seed)
        member = fit_cascade(split.train, split.valid, spec=cascade, feature_names=names, task=task)
        return replace(model, member=member)
    others = (logistic, MlpSpec(seed=seed, min_incidents=least))
    members: list[Member] = [
        BoostedMember(boosters=model.boosters, feature_names=names),
        *(one.fit(split.train, feature_names=names, task=task) for one in others),
    ]
    return replace(model, member=fit_parallel(members, split.valid))
