"""Drift of calibration: incidents that came each week against those the scores expected.

Drift of inputs is in `models.drift.inputs`; no calibration is fitted here.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from features.errors import DataError
from models.drift.inputs import WEEK
from models.evaluation.intervals import poisson_interval

CONFIDENCE: Final = 0.99
"""Of the interval that decides an alarm: one false alarm in a hundred weeks at most."""

FAIR_RATIO: Final = (0.8, 1.25)
"""Observed over expected that nobody needs to act on, however sure it is."""


@dataclass(frozen=True)
class CalibrationWeek:
    """Incidents that came in a week against those that the scores expected.

    Attributes:
        start: Start of the week.
        n_rows: Rows judged: of each entity, moments one horizon apart.
        expected: Sum of their scores.
        observed: Rows that an incident followed.
        low: Lower end of the exact 99 % interval of observed / expected.
        high: Upper end.
    """

    start: datetime
    n_rows: int
    expected: float
    observed: int
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """Observed over expected; 1 is calibrated."""
        return self.observed / self.expected

    @property
    def is_alarm(self) -> bool:
        """Whether the scores promise wrongly beyond chance, and by more than a quarter."""
        is_sure = self.low > 1.0 or self.high < 1.0
        is_large = not FAIR_RATIO[0] <= self.ratio <= FAIR_RATIO[1]
        return is_sure and is_large


def calibration_moments(start: datetime, *, horizon: timedelta) -> list[datetime]:
    """Moments of a week a whole horizon apart, or its first where the horizon is longer.

    An incident is seen by every row in the horizon before it, so rows nearer than that are one
    observation.

    >>> from datetime import UTC
    >>> start = datetime(2026, 1, 5, tzinfo=UTC)
    >>> [at.day for at in calibration_moments(start, horizon=timedelta(days=3))]
    [8, 11]
    """
    count = max(1, WEEK // horizon)
    step = min(horizon, WEEK)
    return [start + number * step for number in range(1, count + 1)]


def calibration_by_week(
    scored: pl.DataFrame, *, start: datetime, horizon: timedelta
) -> CalibrationWeek | None:
    """Counts expected and observed incidents of one week.

    Args:
        scored: `entity_id`, `as_of`, `score`, `label`; rows with a null in either are left out,
            and so are those at other moments than `calibration_moments`.
        start: Start of the week.
        horizon: Horizon H of the score.

    Returns:
        The week; None where nothing was expected. The interval is the exact one of a Poisson
        count (Garwood 1936), which for a sum of rare events is wide rather than narrow.

    Raises:
        DataError: A column is missing.
    """
    for name in ("entity_id", "as_of", "score", "label"):
        if name not in scored.columns:
            raise DataError(
                f"calibration per week: column {name!r} is missing, found "
                f"{', '.join(scored.columns)}. Join scores and labels on entity_id and as_of."
            )
    moments = calibration_moments(start, horizon=horizon)
    rows = scored.drop_nulls(["score", "label"]).filter(pl.col("as_of").is_in(moments))
    expected = float(rows["score"].sum())
    if expected <= 0.0:
        return None
    observed = int(rows["label"].sum())
    low, high = poisson_interval(observed, confidence=CONFIDENCE)
    return CalibrationWeek(start, rows.height, expected, observed, low / expected, high / expected)
