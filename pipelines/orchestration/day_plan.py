"""Which days are due of what is made daily: labels whose outcome is known, and coverage. Pure.

Hours are planned in `pipelines.orchestration.hour_plan`.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

from pipelines.settings import RollingSplit, Settings
from pipelines.storage.store import Span

DAY: Final = timedelta(days=1)
LATE_NEWS: Final = timedelta(days=7)
"""Labels of this many days are made again: an incident's record may come late."""


def label_days(settings: Settings, *, until: datetime, made: Collection[datetime]) -> Span | None:
    """The days to label: those not labelled whose longest horizon is over, and the last of them.

    Args:
        settings: Record, lead and horizons.
        until: Until when hours are made: one that is missing would look like one without failures.
        made: Start of each day that has labels.

    Returns:
        One stretch of days; None: there is none yet.
    """
    longest = settings.lead + timedelta(hours=max(settings.horizons_h))
    # The last as_of of a day is its end.
    end = _floor(settings.data_end(until) - longest)
    return _stretch(settings, until=end, made=made, again=LATE_NEWS)


def coverage_days(
    settings: Settings, *, until: datetime, made: Collection[datetime]
) -> Span | None:
    """The days to count: those not counted that are over, and the last again for late data.

    Args:
        settings: The record.
        until: As in `label_days`.
        made: Start of each day that is counted.

    Returns:
        One stretch of days; None: there is none yet.
    """
    return _stretch(settings, until=_floor(settings.data_end(until)), made=made, again=DAY)


def can_train(settings: Settings, *, until: datetime | None) -> str | None:
    """Why there is nothing to train yet; None: there is.

    Args:
        settings: Split and record.
        until: Where stored labels end; None: there are none.
    """
    if settings.split is None:
        return "the settings name no split"
    if until is None:
        return "no labels are stored yet"
    if isinstance(settings.split, RollingSplit):
        days = settings.split.valid_days + settings.split.test_days
        first = settings.start + (days + 1) * DAY
        if until < first:
            return f"the record is shorter than the split: labels are needed until {first:%Y-%m-%d}"
    return None


def _stretch(
    settings: Settings, *, until: datetime, made: Collection[datetime], again: timedelta
) -> Span | None:
    first = _floor(settings.start)
    since = max(first, until - timedelta(days=settings.schedule.look_back_days) - again)
    if until <= since:
        return None
    held = set(made)
    missing = [day.start for day in Span(since, until).steps(DAY) if day.start not in held]
    start = min([*missing, max(since, until - again)])
    return Span(start, until)


def _floor(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
