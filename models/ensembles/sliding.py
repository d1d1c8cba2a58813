"""Sliding training: learn from the last stretch only, as long as earlier origins say is best.

The stretch is chosen by rolling origins before the training moment; nothing after it is looked at.
Source of sliding training and of multiplied positives: Liu et al. 2022, see `top_k`, who chose the
length by hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from models.ensembles.top_k import precision_of_ranking
from models.member_protocol import MemberSpec
from models.specs import Task
from models.training.boosters import TooFewIncidentsError
from models.training.splits import TimeSplit, split_by_time

EVERYTHING: Final = timedelta.max
"""A length of training without a limit."""


@dataclass(frozen=True, kw_only=True)
class SlidingSpec:
    """How the length of training is chosen.

    Attributes:
        lengths: Lengths tried; `EVERYTHING` is always among them.
        n_origins: Origins before the training moment, one window apart.
        window: Time after each origin on which lengths are compared.
    """

    lengths: tuple[timedelta, ...]
    n_origins: int
    window: timedelta


@dataclass(frozen=True)
class TrainingLength:
    """A chosen length with what it was chosen by.

    Attributes:
        length: The length; `EVERYTHING` for no limit.
        precision: Average precision per length, one value per origin.
    """

    length: timedelta
    precision: dict[timedelta, tuple[float, ...]]


def recent_rows(rows: pl.DataFrame, *, until: datetime, length: timedelta) -> pl.DataFrame:
    """Rows of the last stretch before a moment.

    Args:
        rows: Rows with `as_of`.
        until: The moment, exclusive.
        length: The stretch; `EVERYTHING` for no limit.
    """
    before = rows.filter(pl.col("as_of") < until)
    if length == EVERYTHING:
        return before
    return before.filter(pl.col("as_of") >= until - length)


def with_multiplied_positives(rows: pl.DataFrame, *, every: timedelta) -> pl.DataFrame:
    """Training rows at a coarse step, with every positive row between the steps too.

    A failing entity is then seen in as many windows before its incident as there are rows, a
    healthy one once a step. For training only: in what is tested or calibrated on it would make
    failures look more frequent than they are. Raw scores rise with it; calibration undoes that.

    Args:
        rows: Rows with `as_of` and `label`, at a finer step.
        every: The coarse step; its moments are its multiples since 1970.

    Returns:
        The rows, null labels between the steps left in: members that look back need them.
    """
    is_step = pl.col("as_of").dt.epoch("us") % int(every.total_seconds() * 1e6) == 0
    return rows.with_columns(pl.when(is_step | (pl.col("label") == 1)).then("label").alias("label"))


def choose_training_length(
    rows: pl.DataFrame,
    *,
    until: datetime,
    spec: SlidingSpec,
    member: MemberSpec,
    feature_names: Sequence[str],
    task: Task,
) -> TrainingLength:
    """Chooses the length that ranks best after earlier origins; the longer one where it is close.

    Close means: the mean loss against the best, over the same origins, is within two standard
    errors. More data is the safer choice where the record cannot tell.

    Args:
        rows: Rows with `entity_id`, `as_of`, `label` and the features.
        until: The training moment: rows whose label is known later are not looked at.
        spec: Lengths and origins.
        member: What is trained.
        feature_names: Features.
        task: What is predicted.

    Returns:
        The choice; `EVERYTHING` where no length could be judged.
    """
    known = rows.filter(pl.col("as_of") + task.embargo <= until)
    found: dict[timedelta, list[float]] = {x: [] for x in sorted({*spec.lengths, EVERYTHING})}
    for back in range(spec.n_origins, 0, -1):
        origin = until - back * spec.window
        split = split_by_time(
            known,
            train_until=origin,
            valid_until=origin,
            test_until=origin + spec.window,
            embargo=task.embargo,
        )
        if not (split.test["label"] == 1).any():
            continue
        for length, values in found.items():
            train = recent_rows(split.train, until=origin, length=length)
            values.append(_judge(member, train, split, feature_names=feature_names, task=task))
    precision = {length: tuple(values) for length, values in found.items()}
    return TrainingLength(longest_near_best(precision), precision)


def longest_near_best(precision: dict[timedelta, tuple[float, ...]]) -> timedelta:
    """The longest length that is within two standard errors of the best.

    Args:
        precision: Average precision per length, one value per origin, NaN where it could not be
            trained; such lengths are out.

    Returns:
        The length; `EVERYTHING` where none could be judged.

    >>> week = timedelta(days=7)
    >>> longest_near_best({week: (0.30, 0.31), EVERYTHING: (0.10, 0.12)}) == week
    True
    """
    judged = {k: np.asarray(v) for k, v in precision.items() if v and not np.isnan(v).any()}
    if not judged:
        return EVERYTHING
    # Among equals the longest is the best.
    best = max(judged, key=lambda length: (judged[length].mean(), length))
    near = [
        length
        for length, values in judged.items()
        if (judged[best] - values).mean() <= 2 * _standard_error(judged[best] - values)
    ]
    return max(near)


def _standard_error(values: np.ndarray) -> float:
    if values.size < 2:
        return 0.0
    return float(values.std(ddof=1) / np.sqrt(values.size))


def _judge(
    member: MemberSpec,
    train: pl.DataFrame,
    split: TimeSplit,
    *,
    feature_names: Sequence[str],
    task: Task,
) -> float:
    """Average precision after an origin; NaN where the stretch holds too little to learn from."""
    try:
        fitted = member.fit(train, feature_names=feature_names, task=task)
    except TooFewIncidentsError:
        return float("nan")
    raw = fitted.raw_scores(split.test, earlier=split.train)
    label = split.test["label"].fill_null(-1).to_numpy()
    return precision_of_ranking(raw[label >= 0], label[label >= 0])
