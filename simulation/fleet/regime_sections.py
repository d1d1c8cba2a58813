"""What all parts of a regime share: sections that refuse unknown keys, and checked units.

The parts are in the other `regime_` modules; what they add up to is in `.regime`.
"""

from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

DAYS_PER_YEAR: Final = 365.25
HOURS_PER_YEAR: Final = DAYS_PER_YEAR * 24


def _as_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("give the start with its offset, for instance 2026-01-01T00:00:00Z")
    if not 1971 <= moment.year <= 2200:
        raise ValueError(f"expected a year from 1971 to 2200, got {moment.year}")
    return moment.astimezone(UTC)


def _as_range(bounds: tuple[float, float]) -> tuple[float, float]:
    if not 0 < bounds[0] <= bounds[1]:
        raise ValueError(f"expected 0 < low <= high, got {bounds[0]:g} and {bounds[1]:g}")
    return bounds


UtcMoment = Annotated[datetime, AfterValidator(_as_utc)]
HourRange = Annotated[tuple[float, float], AfterValidator(_as_range)]
Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Word = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f-\x9f|,\"]*$")]
"""Text that is printed into files of one line per row: no control characters, no delimiters."""


class Section(BaseModel):
    """A part of a regime: unknown keys, NaN and infinity are errors; it never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
