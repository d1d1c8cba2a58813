"""The parallel ensemble: members fitted apart, joined by the one that is least convinced.

A row is among the top share q of every member exactly when its worst place among the members is
within q. So one score per row, the worst place, holds the intersections of all top-K sets at once,
and thresholds, calibration and warning policy apply to it as to any model. Places are looked up
in a reference kept with the ensemble and not among the rows at hand: a score does not depend on
which rows are scored together. Source of the intersection: Liu et al. 2022, see `top_k`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import DataError
from models.calibration import FloatArray
from models.member_protocol import Member

Rule = Literal["worst", "mean"]

MAX_KNOTS: Final = 1_000
"""Places kept per member, denser towards the top; the highest hundreds are kept one by one."""


@dataclass(frozen=True)
class Places:
    """A strictly rising map from a raw score to its place: -log of the share of scores as high.

    Attributes:
        knots: Raw scores of the reference, rising.
        levels: -log of the share of the reference at or above each, rising from 0.
    """

    knots: npt.NDArray[np.float64]
    levels: npt.NDArray[np.float64]

    def apply(self, raw: FloatArray) -> FloatArray:
        """Levels of raw scores, shape (n,); beyond the reference they go on with slope 1."""
        beyond = np.minimum(raw - self.knots[0], 0.0) + np.maximum(raw - self.knots[-1], 0.0)
        return np.asarray(np.interp(raw, self.knots, self.levels) + beyond)


def fit_places(raw: FloatArray) -> Places:
    """Places of a reference.

    Args:
        raw: Raw scores of reference rows, which the member did not learn from; shape (n,).

    Returns:
        The map, through every distinct score up to `MAX_KNOTS`, then at growing distance.

    Raises:
        DataError: No score, or one that is not finite.
    """
    if not raw.size or not np.isfinite(raw).all():
        raise DataError(
            f"parallel ensemble: needs finite reference scores, got {raw.size} of which "
            f"{int((~np.isfinite(raw)).sum())} are not finite. Give validation rows."
        )
    knots, first = np.unique(np.sort(raw), return_index=True)
    levels = np.log(raw.size) - np.log(raw.size - first)
    if knots.size > MAX_KNOTS:
        ranks = np.geomspace(1, knots.size, MAX_KNOTS).round().astype(int)
        keep = np.unique(knots.size - ranks)
        knots, levels = knots[keep], levels[keep]
    return Places(knots, levels)


@dataclass(frozen=True)
class ParallelEnsemble:
    """Members and the places of their scores; itself a member.

    Attributes:
        members: At least two.
        places: One per member.
        rule: worst: the least convinced member decides, which is the intersection. mean: the
            mean place, the usual way to average models.
    """

    members: tuple[Member, ...]
    places: tuple[Places, ...]
    rule: Rule = "worst"

    def raw_scores(self, rows: pl.DataFrame, *, earlier: pl.DataFrame | None = None) -> FloatArray:
        """See `Member.raw_scores`."""
        return self.join([one.raw_scores(rows, earlier=earlier) for one in self.members])

    def join(self, raw: Sequence[FloatArray]) -> FloatArray:
        """Scores from the members' own, where they are at hand; each of shape (n,)."""
        levels = [place.apply(one) for place, one in zip(self.places, raw, strict=True)]
        if self.rule == "worst":
            return np.asarray(np.minimum.reduce(levels))
        return np.asarray(np.mean(levels, axis=0))

    def to_dict(self) -> dict[str, Any]:
        """See `Member.to_dict`."""
        return {
            "kind": "parallel",
            "rule": self.rule,
            "members": [member.to_dict() for member in self.members],
            "places": [
                {"knots": place.knots.tolist(), "levels": place.levels.tolist()}
                for place in self.places
            ],
        }


def fit_parallel(
    members: Sequence[Member],
    reference: pl.DataFrame,
    *,
    earlier: pl.DataFrame | None = None,
    rule: Rule = "worst",
) -> ParallelEnsemble:
    """Joins fitted members.

    Args:
        members: At least two, fitted on rows that are not in the reference.
        reference: Validation rows; labels are not read.
        earlier: Earlier rows of the same entities, for members that look back.
        rule: See `ParallelEnsemble`.

    Returns:
        The ensemble.

    Raises:
        DataError: Fewer than two members, or no reference row.
    """
    if len(members) < 2:
        raise DataError(f"parallel ensemble: needs at least 2 members, got {len(members)}.")
    places = tuple(fit_places(one.raw_scores(reference, earlier=earlier)) for one in members)
    return ParallelEnsemble(tuple(members), places, rule)
