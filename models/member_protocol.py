"""What an ensemble is made of: a fitted member, and how one is fitted.

Members themselves are elsewhere; nothing is imported from them here.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import polars as pl

from models.calibration import FloatArray
from models.specs import Task


class Member(Protocol):
    """A fitted model that scores rows by raw log-odds."""

    def raw_scores(self, rows: pl.DataFrame, *, earlier: pl.DataFrame | None = None) -> FloatArray:
        """Scores rows.

        Args:
            rows: One row per entity and moment, with `entity_id`, `as_of` and the features.
            earlier: Earlier rows of the same entities, for members that look back; none of them
                is scored, and labels are not read.

        Returns:
            Raw log-odds, shape (n,).

        Raises:
            DataError: A feature is missing or not numeric.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to score the same to the last bit, as plain values for JSON."""
        ...


class MemberSpec(Protocol):
    """How a member is fitted."""

    @property
    def name(self) -> str:
        """Name in tables."""
        ...

    def fit(self, rows: pl.DataFrame, *, feature_names: Sequence[str], task: Task) -> Member:
        """Fits on the rows whose label is known; the same rows and spec give the same member.

        Args:
            rows: Rows with `entity_id`, `as_of`, `label` and the features, in any order.
            feature_names: Features to learn from.
            task: What is predicted.

        Returns:
            The member.

        Raises:
            TooFewIncidentsError: Too little to learn from.
            DataError: A feature is missing or not numeric, or no row is negative.
        """
        ...
