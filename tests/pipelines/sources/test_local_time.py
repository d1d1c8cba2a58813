"""Wall clocks: daylight saving, leap seconds, missing years."""

# ruff: noqa: DTZ001 - wall clocks are the subject, and they have no offset

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SourceError
from pipelines.sources.local_time import CLOCK_SLACK, latest_year, to_utc, wall_clock, zone_of

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [ZoneInfo(name) for name in ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York")]


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        (datetime(2025, 7, 1, 12), datetime(2025, 7, 1, 10, tzinfo=UTC)),
        (datetime(2025, 10, 26, 2, 30), datetime(2025, 10, 26, 1, 30, tzinfo=UTC)),  # twice
        (datetime(2025, 3, 30, 2, 30), datetime(2025, 3, 30, 1, 30, tzinfo=UTC)),  # never
    ],
)
def test_of_two_readings_the_later_one_is_taken(local, utc):
    assert to_utc(local, BERLIN) == utc


@given(local=st.datetimes(), zone=st.sampled_from(ZONES))
def test_no_reading_is_earlier_than_either_fold(local, zone):
    moment = to_utc(local, zone)
    if moment is not None:
        for fold in (0, 1):
            assert moment >= local.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def test_years_beyond_the_calendar_are_no_time():
    assert to_utc(datetime(1, 1, 1), BERLIN) is None


def test_a_leap_second_is_the_moment_after_it():
    assert wall_clock((2016, 12, 31), (23, 59, 60)) == datetime(2017, 1, 1)


@pytest.mark.parametrize(
    ("date", "time"),
    [((2025, 2, 29), (0, 0, 0)), ((2025, 1, 1), (24, 0, 0)), ((0, 0, 0), (0,) * 3)],
)
def test_days_and_hours_that_do_not_exist_are_no_time(date, time):
    assert wall_clock(date, time) is None


@pytest.mark.parametrize(
    ("month_day", "read_until", "year"),
    [
        ((12, 31), datetime(2026, 1, 1, tzinfo=UTC), 2025),
        ((1, 1), datetime(2026, 1, 1, tzinfo=UTC), 2026),
        ((1, 2), datetime(2025, 12, 31, tzinfo=UTC), 2025),  # a year ago, not two days ahead
        ((1, 1), datetime(2025, 12, 31, 23, 59, tzinfo=UTC), 2026),  # a clock some minutes ahead
        ((2, 29), datetime(2027, 6, 1, tzinfo=UTC), 2024),
    ],
)
def test_a_missing_year_is_the_latest_that_is_not_in_the_future(month_day, read_until, year):
    moment = latest_year(month_day, (0, 0, 1), zone=ZoneInfo("UTC"), read_until=read_until)
    assert moment is not None
    assert (moment.year, moment.month, moment.day) == (year, *month_day)


@given(
    read_until=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    back=st.timedeltas(timedelta(0), timedelta(days=360)),
    zone=st.sampled_from(ZONES),
)
def test_a_time_of_the_last_months_gets_its_own_year_back(read_until, back, zone):
    truth = (read_until - back).replace(microsecond=0)
    local = truth.astimezone(zone)
    moment = latest_year(
        (local.month, local.day),
        (local.hour, local.minute, local.second),
        zone=zone,
        read_until=read_until,
    )
    assert moment is not None
    assert moment <= read_until + CLOCK_SLACK
    assert abs(moment - truth) <= timedelta(hours=1)  # an hour that came twice


def test_a_day_that_never_was_gets_no_year():
    until = datetime(2026, 1, 1, tzinfo=UTC)
    assert latest_year((2, 30), (0, 0, 0), zone=BERLIN, read_until=until) is None


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc", "\0"])
def test_an_unknown_zone_is_one_clear_error(name):
    with pytest.raises(SourceError, match="is not known; write an IANA name"):
        zone_of(name, origin="jobs.txt")
