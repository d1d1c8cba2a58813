"""The cascade: a first member lets through what may fail, a second ranks what got through.

The second member learns from *out-of-fold* survivors only: rows that a first member fitted on
other entities lets through. The survivors of a member's own training rows are its memories, all
positives among them, and nothing like what it will let through later. Source of the cascade:
Liu et al. 2022, see `top_k`; the folds are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from features.errors import DataError
from models.calibration import FloatArray
from models.member_protocol import Member, MemberSpec
from models.specs import Task
from models.training.splits import entity_fold, without_incidents_of


@dataclass(frozen=True)
class Cascade:
    """Two members in a row; itself a member.

    Attributes:
        first: Decides what gets through.
        second: Ranks it.
        threshold: Raw score of the first member from which on a row gets through.
        kept_share: Share of the validation rows that got through.
    """

    first: Member
    second: Member
    threshold: float
    kept_share: float

    def raw_scores(self, rows: pl.DataFrame, *, earlier: pl.DataFrame | None = None) -> FloatArray:
        """See `Member.raw_scores`.

        What gets through scores above the threshold, in the second member's order; what does not
        scores below it, in the first's.
        """
        first = self.first.raw_scores(rows, earlier=earlier)
        return self.join(first, self.second.raw_scores(rows, earlier=earlier))

    def join(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Scores from the members' own, where they are at hand; each of shape (n,)."""
        # log(e^t + e^s): above t, rising in s, and close to s where s is well above t.
        through = np.logaddexp(second, self.threshold)
        return np.asarray(np.where(first >= self.threshold, through, first))

    def to_dict(self) -> dict[str, Any]:
        """See `Member.to_dict`."""
        return {
            "kind": "cascade",
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "threshold": self.threshold,
            "kept_share": self.kept_share,
        }


@dataclass(frozen=True, kw_only=True)
class CascadeSpec:
    """How a cascade is fitted.

    Attributes:
        first: The first member.
        second: The second.
        retain: Share of the validation positives that must get through, at least.
        n_folds: Folds of entities for the survivors that the second member learns from.
        max_negatives: Negatives that survivors are looked for among, about; more cost time only.
            Where there are more, the second member's log-odds are too high by one constant.
        seed: Seed of their choice.
    """

    first: MemberSpec
    second: MemberSpec
    retain: float = 0.95
    n_folds: int = 2
    max_negatives: int = 50_000
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuses what cannot be fitted.

        Raises:
            DataError: A value is out of range.
        """
        if not 0.0 < self.retain <= 1.0:
            raise DataError(f"cascade: retain must be in (0, 1], got {self.retain:g}.")
        if self.n_folds < 2:
            raise DataError(
                f"cascade: needs at least 2 folds, got {self.n_folds}: with one, the second member "
                f"would learn from what the first remembers."
            )

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"cascade {self.first.name} > {self.second.name}"


def fit_cascade(
    rows: pl.DataFrame,
    valid: pl.DataFrame,
    *,
    spec: CascadeSpec,
    feature_names: Sequence[str],
    task: Task,
    first: Member | None = None,
    earlier: pl.DataFrame | None = None,
) -> Cascade:
    """Fits a cascade.

    Args:
        rows: Training rows, as for `MemberSpec.fit`.
        valid: Validation rows, later and an embargo apart; they fix the share that gets through.
        spec: Members and folds.
        feature_names: Features to learn from.
        task: What is predicted.
        first: The first member fitted on `rows`, where it is at hand.
        earlier: Rows before those of `valid`, for members that look back; default `rows`.

    Returns:
        The cascade.

    Raises:
        TooFewIncidentsError: Too little to learn from, in all or in the other folds of one.
        DataError: Validation has no positive row.
    """
    if first is None:
        first = spec.first.fit(rows, feature_names=feature_names, task=task)
    label = valid["label"].fill_null(-1).to_numpy()
    raw = first.raw_scores(valid, earlier=rows if earlier is None else earlier)
    threshold = retaining_threshold(raw[label == 1], retain=spec.retain)
    kept_share = float(np.mean(raw[label >= 0] >= threshold))
    survivors = out_of_fold_survivors(
        rows, spec=spec, kept_share=kept_share, feature_names=feature_names, task=task
    )
    second = spec.second.fit(survivors, feature_names=feature_names, task=task)
    return Cascade(first, second, threshold, kept_share)


def retaining_threshold(positives: FloatArray, *, retain: float) -> float:
    """The highest threshold that at least a share of the positives reaches.

    Args:
        positives: Raw scores of validation positives, shape (n,).
        retain: The share.

    Returns:
        One of the scores.

    Raises:
        DataError: No positive.

    >>> retaining_threshold(np.array([4.0, 1.0, 3.0, 2.0]), retain=0.75)
    2.0
    """
    if not positives.size:
        raise DataError("cascade: validation has no positive row. Validate on a longer time.")
    needed = int(np.ceil(retain * positives.size - 1e-9))
    return float(np.sort(positives)[positives.size - needed])


def out_of_fold_survivors(
    rows: pl.DataFrame,
    *,
    spec: CascadeSpec,
    kept_share: float,
    feature_names: Sequence[str],
    task: Task,
) -> pl.DataFrame:
    """The training rows, labelled only where a first member that never saw their entity keeps them.

    Args:
        rows: Training rows.
        spec: The first member and the folds.
        kept_share: Share of the rows looked at in each fold that is kept, the highest.
        feature_names: Features.
        task: What is predicted.

    Returns:
        The rows with a null label where they do not survive; a second member that looks back
        still finds them.
    """
    rows = _thinned(rows.sort("entity_id", "as_of"), spec)
    fold = pl.Series(entity_fold(rows["entity_id"].to_list(), n_folds=spec.n_folds))
    parts = []
    for number in range(spec.n_folds):
        inside = rows.filter(fold == number)
        outside = without_incidents_of(rows.filter(fold != number), [inside])
        member = spec.first.fit(outside, feature_names=feature_names, task=task)
        is_known = pl.col("label").is_not_null()
        known, context = inside.filter(is_known), inside.filter(~is_known)
        raw = member.raw_scores(known, earlier=context)
        cut = np.quantile(raw, 1.0 - kept_share) if raw.size else np.inf
        kept = pl.when(pl.Series(raw >= cut)).then("label")
        parts += [known.with_columns(kept.alias("label")), context]
    return pl.concat(parts)


def _thinned(rows: pl.DataFrame, spec: CascadeSpec) -> pl.DataFrame:
    """The rows with the labels of some negatives taken away."""
    n_negative = int((rows["label"] == 0).sum())
    share = spec.max_negatives / max(n_negative, 1)
    is_drawn = pl.Series(np.random.default_rng(spec.seed).random(rows.height) < share)
    return rows.with_columns(
        pl.when(is_drawn | (pl.col("label") == 1)).then("label").alias("label")
    )
