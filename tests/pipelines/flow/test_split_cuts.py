"""Rules of where a record is cut: fixed times stay, a rolling split follows the data's end."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError
from models.training.splits import Origin
from pipelines.flow.split_cuts import origin_of, split_of
from pipelines.settings import Settings, SplitSettings

DAY = timedelta(days=1)
T0 = datetime(2026, 1, 1, tzinfo=UTC)
FIXED = {"train_until": T0 + 10 * DAY, "valid_until": T0 + 20 * DAY}
ROLLING = {"valid_days": 7, "test_days": 5}


def site(**changes: Any) -> Settings:
    values = {"site": "lab", "inputs": "i", "data_root": "/nowhere", "start": T0}
    return Settings.model_validate(values | changes)


def test_a_fixed_split_stays_whatever_the_data() -> None:
    settings = site(split=FIXED, end=T0 + 30 * DAY)
    assert origin_of(settings, data_end=T0 + 25 * DAY) == Origin(
        T0 + 10 * DAY, T0 + 20 * DAY, T0 + 30 * DAY
    )
    assert split_of(site(split=None)) is None


def test_a_rolling_split_counts_back_from_the_last_midnight_of_the_data() -> None:
    settings = site(split=ROLLING)
    late = origin_of(settings, data_end=T0 + 40 * DAY + timedelta(hours=13))
    assert late == Origin(T0 + 28 * DAY, T0 + 35 * DAY, T0 + 40 * DAY)
    assert late == origin_of(settings, data_end=T0 + 40 * DAY)


@given(st.integers(13, 400), st.integers(0, 23))
def test_a_later_training_never_tests_on_what_an_earlier_one_tested_later(
    days: int, hour: int
) -> None:
    settings = site(split=ROLLING)
    end = T0 + days * DAY + timedelta(hours=hour)
    first = origin_of(settings, data_end=end)
    second = origin_of(settings, data_end=end + DAY)
    assert first.train_until < first.valid_until < first.test_until <= end
    assert second.train_until - first.train_until == DAY
    assert second.valid_until > first.valid_until


def test_a_record_that_is_too_short_is_refused_in_words() -> None:
    assert split_of(site(split=ROLLING), data_end=T0 + 12 * DAY) is None
    with pytest.raises(
        SettingsError, match="days back from 2026-01-13 reach to the record's start"
    ):
        origin_of(site(split=ROLLING), data_end=T0 + 12 * DAY)


def test_training_without_a_split_is_refused_in_words() -> None:
    with pytest.raises(SettingsError, match=r"split\.valid_days and split\.test_days"):
        origin_of(site())


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ({"valid_days": 7}, "split.rolling.test_days"),
        ({"valid_days": 0, "test_days": 5}, "split.rolling.valid_days"),
        ({"train_until": T0}, "split.fixed.valid_until"),
        ({"valid_days": 7, "test_days": 5, "train_until": T0}, "split.rolling.train_until"),
    ],
)
def test_a_mistake_in_a_split_speaks_of_the_form_that_was_meant(
    split: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        site(split=split)


def test_a_split_that_was_read_is_accepted_again() -> None:
    settings = site(split=FIXED)
    assert isinstance(settings.split, SplitSettings)
    assert Settings.model_validate(settings.model_dump()) == settings
