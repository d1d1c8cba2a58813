"""Times without an offset: from a wall clock in a named zone to UTC.

Formats are not known here; each source finds its own digits.
"""

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from features.errors import SourceError

CLOCK_SLACK: Final = timedelta(days=1)
"""How far a yearless time may lie after the moment of reading: clocks run ahead, and zones are
misconfigured, by hours; a log read a year late is off by a year."""

_YEARS_BACK: Final = 9  # 29 February comes every four years, but for 1900 and 2100


def zone_of(name: str, *, origin: str) -> ZoneInfo:
    """Finds a time zone.

    Args:
        name: IANA name.
        origin: What is read with it, for the message.

    Returns:
        The zone.

    Raises:
        SourceError: There is no such zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SourceError(
            f"{origin}: time zone {name!r} is not known; write an IANA name such as UTC or "
            f"Europe/Berlin"
        ) from error


def to_utc(local: datetime, zone: ZoneInfo) -> datetime | None:
    """Turns a wall-clock time into UTC.

    An hour that a clock shows twice (the end of summer time) is read as its second pass, one
    that it never shows as the hour after it: of two readings the later one, so that an event
    may seem late by an hour but is never known before it happened.

    Args:
        local: Wall-clock time without an offset.
        zone: The clock's zone.

    Returns:
        UTC time, or None beyond the years a datetime can hold.

    Example:
        >>> from zoneinfo import ZoneInfo
        >>> to_utc(datetime(2025, 10, 26, 2, 30), ZoneInfo("Europe/Berlin")).isoformat()
        '2025-10-26T01:30:00+00:00'
    """
    if zone.key == "UTC":
        return local.replace(tzinfo=UTC)
    try:
        return max(local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    except (OverflowError, ValueError):
        return None


def named_zone_to_utc(local: datetime, name: str, zone: ZoneInfo) -> datetime | None:
    """Turns a wall-clock time with an abbreviated zone (`CEST`) into UTC.

    An abbreviation alone names no zone (`IST` is three), but says which of the two passes of the
    repeated hour is meant, and whether the clock is the one we think it is.

    Args:
        local: Wall-clock time.
        name: Abbreviation, `UTC`, `GMT`, or whole hours (`+03`) in zones without a name.
        zone: The clock's zone, as set.

    Returns:
        UTC time; None where the abbreviation is not one of the zone at that time: then the set
        zone is not this clock's, and the time is unknown.

    Example:
        >>> from zoneinfo import ZoneInfo
        >>> twice, berlin = datetime(2025, 10, 26, 2, 30), ZoneInfo("Europe/Berlin")
        >>> named_zone_to_utc(twice, "CEST", berlin).isoformat()
        '2025-10-26T00:30:00+00:00'
    """
    if name in ("UTC", "GMT"):
        return local.replace(tzinfo=UTC)
    for fold in (0, 1):
        moment = local.replace(tzinfo=zone, fold=fold)
        try:
            if moment.tzname() == name:
                return moment.astimezone(UTC)
        except (OverflowError, ValueError):
            return None
    return None


def wall_clock(
    date: tuple[int, int, int], time: tuple[int, int, int], *, micros: int = 0
) -> datetime | None:
    """Builds a wall-clock time; a leap second (60) is the moment after it.

    Args:
        date: Year, month, day.
        time: Hour, minute, second.
        micros: Microseconds.

    Returns:
        The time, or None where there is no such day or hour.
    """
    hour, minute, second = time
    leap = second == 60
    try:
        moment = datetime(*date, hour, minute, 59 if leap else second, micros)  # noqa: DTZ001
        return moment + timedelta(seconds=1) if leap else moment
    except (OverflowError, ValueError):
        return None


def latest_year(
    month_day: tuple[int, int],
    time: tuple[int, int, int],
    *,
    micros: int = 0,
    zone: ZoneInfo,
    read_until: datetime,
) -> datetime | None:
    """Gives a time without a year the latest year that does not put it into the future.

    Args:
        month_day: Month and day.
        time: Hour, minute, second.
        micros: Microseconds.
        zone: The clock's zone.
        read_until: When the text was read, UTC; up to `CLOCK_SLACK` after it is no future.

    Returns:
        UTC time, or None where there is no such day or hour.
    """
    latest = read_until + CLOCK_SLACK
    # No zone is more than a day from UTC: what lies further ahead needs no calendar to be refused.
    soonest = latest + timedelta(days=2)
    for year in range(soonest.year, latest.year - _YEARS_BACK, -1):
        if year == soonest.year and month_day > (soonest.month, soonest.day):
            continue
        local = wall_clock((year, *month_day), time, micros=micros)
        moment = to_utc(local, zone) if local is not None else None
        if moment is not None and moment <= latest:
            return moment
    return None
