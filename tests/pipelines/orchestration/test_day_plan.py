"""Rules of the daily work: labels once their outcome is known, coverage once a day is over."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipelines.orchestration.day_plan import can_train, coverage_days, label_days
from pipelines.settings import Settings
from pipelines.storage.store import Span

DAY = timedelta(days=1)
T0 = datetime(2026, 3, 1, tzinfo=UTC)


def site(**changes: Any) -> Settings:
    values = {"site": "lab", "inputs": "i", "data_root": "d", "start": T0, "horizons_h": (24, 48)}
    return Settings.model_validate(values | changes)


@pytest.mark.parametrize(
    ("after", "days"),
    [
        (timedelta(days=3), None),  # lead of half an hour and 48 h after the day's last as_of
        (timedelta(days=3, minutes=29), None),
        (timedelta(days=3, minutes=30), 1),
        (timedelta(days=5, minutes=30), 3),
    ],
)
def test_a_day_is_labelled_once_lead_and_longest_horizon_are_past(
    after: timedelta, days: int | None
) -> None:
    found = label_days(site(), until=T0 + after, made=())
    assert found == (None if days is None else Span(T0, T0 + days * DAY))


def test_days_that_were_missed_and_the_last_week_are_labelled_again() -> None:
    settings, now = site(), T0 + 32 * DAY + timedelta(hours=1)
    every = [T0 + n * DAY for n in range(30)]
    assert label_days(settings, until=now, made=every) == Span(T0 + 23 * DAY, T0 + 30 * DAY)
    gap = [day for day in every if day != T0 + 20 * DAY]
    assert label_days(settings, until=now, made=gap) == Span(T0 + 20 * DAY, T0 + 30 * DAY)


def test_coverage_counts_days_that_are_over_and_the_last_one_again() -> None:
    now = T0 + 5 * DAY + timedelta(hours=3)
    made = [T0 + n * DAY for n in range(5)]
    assert coverage_days(site(), until=now, made=made) == Span(T0 + 4 * DAY, T0 + 5 * DAY)
    assert coverage_days(site(), until=T0 + timedelta(hours=3), made=()) is None


@pytest.mark.parametrize(
    ("split", "labelled", "why"),
    [
        (None, T0 + 9 * DAY, "the settings name no split"),
        ({"valid_days": 2, "test_days": 2}, None, "no labels are stored yet"),
        ({"valid_days": 2, "test_days": 2}, T0 + 4 * DAY, "the record is shorter than the split"),
        ({"valid_days": 2, "test_days": 2}, T0 + 5 * DAY, None),
    ],
)
def test_nothing_is_trained_before_there_is_enough(
    split: dict[str, int] | None, labelled: datetime | None, why: str | None
) -> None:
    found = can_train(site(split=split), until=labelled)
    assert (found is None) if why is None else (found or "").startswith(why)
