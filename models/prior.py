"""The score of a site in cold start: a published rate, moved by the site's own few incidents.

Nothing is fitted to features here; a prior may rank and recommend, never act.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl

from features.errors import DataError
from models.calibration import FloatArray
from models.specs import Task

PUBLISHED_INCIDENTS_PER_GPU_YEAR = 0.11
"""268 GPU and HBM interruptions of 16,384 H100 in 54 days (Llama 3, 2024, table 5)."""

PRIOR_WEIGHT_INCIDENTS = 5.0
"""How many incidents of one's own weigh as much as the published rate."""

REPEAT_FACTOR = 10.0
"""How much likelier an entity with an earlier incident is to fail; a round figure to rank by,
for sites report 4 to 40 (Titan's GPUs, Meta's lemon nodes)."""

HISTORY_COUNT = re.compile(r"own_incident_count(?:_(\d+)d)?")
"""The feature that counts an entity's own incidents: over all time, or over a window."""


@dataclass(frozen=True, kw_only=True)
class PriorModel:
    """A rate per entity-hour, and the column that tells who has failed before.

    Attributes:
        task: What is scored.
        rate_per_hour: Incidents per entity and hour.
        history_feature: Feature that counts an entity's own incidents; None: all score alike.
        n_incidents: The site's own incidents in it.
    """

    task: Task
    rate_per_hour: float
    history_feature: str | None
    n_incidents: int

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns it looks at."""
        return (self.history_feature,) if self.history_feature else ()

    def scores(self, matrix: pl.DataFrame) -> FloatArray:
        """Probability of an incident within the horizon.

        Args:
            matrix: Rows; an unknown history counts as none.

        Returns:
            Shape (rows,).

        Raises:
            DataError: The history's column is missing.
        """
        factor = np.ones(matrix.height)
        if self.history_feature:
            if self.history_feature not in matrix.columns:
                raise DataError(f"prior: column {self.history_feature!r} is missing in the matrix.")
            has_failed = (matrix[self.history_feature] > 0).fill_null(value=False).to_numpy()
            factor = np.where(has_failed, REPEAT_FACTOR, 1.0)
        expected: FloatArray = self.rate_per_hour * self.task.horizon_h * factor
        return np.asarray(-np.expm1(-expected), dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """The prior as plain values, for JSON."""
        return {
            "rate_per_hour": self.rate_per_hour,
            "history_feature": self.history_feature,
            "n_incidents": self.n_incidents,
        }


def fit_prior(rows: pl.DataFrame, *, n_incidents: int, tick: timedelta, task: Task) -> PriorModel:
    """A gamma-Poisson rate: the published one, moved by what the site has seen itself.

    Args:
        rows: Every row watched: `entity_id`, `as_of` and the features.
        n_incidents: Incidents of these entities in that time.
        tick: Time between two rows of an entity.
        task: What is scored.

    Returns:
        The prior.
    """
    years = rows.height * (tick / timedelta(days=365.25))
    prior_years = PRIOR_WEIGHT_INCIDENTS / PUBLISHED_INCIDENTS_PER_GPU_YEAR
    per_year = (PRIOR_WEIGHT_INCIDENTS + n_incidents) / (prior_years + years)
    return PriorModel(
        task=task,
        rate_per_hour=per_year / (365.25 * 24.0),
        history_feature=longest_history(rows.columns),
        n_incidents=n_incidents,
    )


def longest_history(names: Sequence[str]) -> str | None:
    """The count that looks back furthest."""
    found = [match for name in names if (match := HISTORY_COUNT.fullmatch(name))]
    if not found:
        return None
    return max(found, key=lambda match: float(match[1] or "inf"))[0]
