"""Rules of day files: which files of an hourly table count."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipelines.storage.day_files import (
    day_file_of,
    day_name,
    hour_name,
    hours_in,
    is_day_file,
    leftovers,
    valid_names,
)

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(hour: int) -> datetime:
    return T0 + hour * HOUR


HOURS = st.sets(st.integers(0, 47), min_size=1, max_size=8)


@given(HOURS)
def test_a_name_tells_the_hours_that_it_stands_for(hours: set[int]) -> None:
    days = {at(hour).date() for hour in hours}
    for day in days:
        wanted = sorted(at(hour) for hour in hours if at(hour).date() == day)
        assert list(hours_in(day_name(wanted))) == wanted
        assert is_day_file(day_name(wanted))
    assert all(hours_in(hour_name(at(hour))) == (at(hour),) for hour in hours)


@given(alone=HOURS, older=HOURS, newer=HOURS)
def test_each_hour_is_read_from_exactly_one_file_and_the_rest_are_leftovers(
    alone: set[int], older: set[int], newer: set[int]
) -> None:
    names = {hour_name(at(hour)) for hour in alone}
    for day in (0, 24):
        first = [at(hour) for hour in older if day <= hour < day + 24]
        second = first + [at(hour) for hour in newer if day <= hour < day + 24]
        names |= {day_name(hours) for hours in (first, second) if hours}
    valid = valid_names(names)
    read = [hour for name in valid for hour in hours_in(name)]
    assert sorted(read) == sorted({hour for name in names for hour in hours_in(name)})
    assert sorted([*valid, *leftovers(sorted(names))]) == sorted(names)
    assert all(day_file_of(hour, names) in {*valid, None} for hour in read)


@given(hours=HOURS, first=st.integers(0, 47), length=st.integers(1, 30))
def test_a_span_takes_the_files_with_an_hour_in_it(
    hours: set[int], first: int, length: int
) -> None:
    names = [hour_name(at(hour)) for hour in hours] + [day_name([at(0), at(3)])]
    start, end = at(first), at(first + length)
    expected = [
        name for name in valid_names(names) if any(start <= hour < end for hour in hours_in(name))
    ]
    assert valid_names(names, start=start, end=end) == expected
