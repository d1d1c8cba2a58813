"""Names of an hourly table's files: one per hour, or one per day that stands for many hours.

    2026-01-05T07.parquet         an hour
    2026-01-05-ffffff.parquet     the hours of a day whose bits are set, midnight the lowest

A day file is what counts for its hours: files of the same hours, and day files that stand for
fewer, are leftovers that nobody reads. Files are read, written and removed elsewhere
(`pipelines.storage.store`, `pipelines.retention.compaction`); nothing of their content is known
here.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

ENDING: Final = ".parquet"
_HOUR: Final = timedelta(hours=1)
_DAY_DIGITS: Final = len("2026-01-05")
_HOUR_DIGITS: Final = len("2026-01-05T07")
_MASK_DIGITS: Final = 6
WHOLE_DAY: Final = (1 << 24) - 1


def hour_name(hour: datetime) -> str:
    """The file of an hour.

    >>> hour_name(datetime(2026, 1, 5, 7, tzinfo=UTC))
    '2026-01-05T07.parquet'
    """
    return f"{hour:%Y-%m-%dT%H}{ENDING}"


def day_name(hours: Iterable[datetime]) -> str:
    """The file that stands for some hours of one day, UTC.

    >>> day_name(datetime(2026, 1, 5, hour, tzinfo=UTC) for hour in range(4))
    '2026-01-05-00000f.parquet'
    """
    given = sorted(set(hours))
    mask = sum(1 << hour.hour for hour in given)
    return f"{given[0]:%Y-%m-%d}-{mask:0{_MASK_DIGITS}x}{ENDING}"


def is_day_file(name: str) -> bool:
    """Whether a file stands for the hours of a day.

    >>> is_day_file("2026-01-05-00000f.parquet"), is_day_file("2026-01-05.parquet")
    (True, False)
    """
    return len(name) == _DAY_DIGITS + 1 + _MASK_DIGITS + len(ENDING) and name[_DAY_DIGITS] == "-"


def hours_in(name: str) -> tuple[datetime, ...]:
    """The hours that a file stands for, in order.

    >>> [f"{hour:%d %H}" for hour in hours_in("2026-01-05-000005.parquet")]
    ['05 00', '05 02']
    """
    if not is_day_file(name):
        return (datetime.fromisoformat(name[:_HOUR_DIGITS]).replace(tzinfo=UTC),)
    day = datetime.fromisoformat(name[:_DAY_DIGITS]).replace(tzinfo=UTC)
    mask = _mask(name)
    return tuple(day + hour * _HOUR for hour in range(24) if mask >> hour & 1)


def valid_names(
    names: Iterable[str], *, start: datetime | None = None, end: datetime | None = None
) -> list[str]:
    """The files that count, in the order of their last hours.

    Args:
        names: All finished files of a table.
        start: Only files with an hour at or after it, a full hour.
        end: Only files with an hour before it.

    >>> valid_names(["2026-01-05T00.parquet", "2026-01-05-000003.parquet", "2026-01-05T02.parquet"])
    ['2026-01-05-000003.parquet', '2026-01-05T02.parquet']
    """
    first, last = _window(start, end)
    in_reach = [name for name in names if first <= name[:_DAY_DIGITS] <= last]
    days = _day_files(in_reach)
    kept = [
        name
        for name in in_reach
        if (days[name[:_DAY_DIGITS]] == name if is_day_file(name) else not _stands(days, name))
        and _is_within(name, start, end)
    ]
    return sorted(kept, key=_last_hour)


def leftovers(names: Sequence[str]) -> list[str]:
    """The files that nobody reads: what they hold is in a day file."""
    valid = set(valid_names(names))
    return sorted(name for name in names if name not in valid)


def n_hidden_by(name: str) -> int:
    """For how many hours a file hides others: none for an hour's own, or a whole day's.

    >>> n_hidden_by("2026-01-05-000005.parquet"), n_hidden_by("2026-01-05.parquet")
    (2, 0)
    """
    return _mask(name).bit_count() if is_day_file(name) else 0


def day_file_of(hour: datetime, names: Iterable[str]) -> str | None:
    """The day file that stands for an hour; None: no one does."""
    day = f"{hour:%Y-%m-%d}"
    found = _day_files(name for name in names if name.startswith(day)).get(day)
    return found if found is not None and _mask(found) >> hour.hour & 1 else None


def _day_files(names: Iterable[str]) -> dict[str, str]:
    """The valid day file of each day: the one that stands for most hours."""
    days: dict[str, str] = {}
    for name in names:
        if is_day_file(name):
            day = name[:_DAY_DIGITS]
            before = days.get(day)
            # More hours; of as many, any rule that all readers share.
            if before is None or _weight(name) > _weight(before):
                days[day] = name
    return days


def _stands(days: dict[str, str], hour_file: str) -> bool:
    day = days.get(hour_file[:_DAY_DIGITS])
    return day is not None and bool(_mask(day) >> int(hour_file[_DAY_DIGITS + 1 :][:2]) & 1)


def _weight(name: str) -> tuple[int, int]:
    return _mask(name).bit_count(), _mask(name)


def _last_hour(name: str) -> str:
    if not is_day_file(name):
        return name[:_HOUR_DIGITS]
    return f"{name[:_DAY_DIGITS]}T{_mask(name).bit_length() - 1:02d}"


def _mask(name: str) -> int:
    return int(name[_DAY_DIGITS + 1 :][:_MASK_DIGITS], 16)


def _window(start: datetime | None, end: datetime | None) -> tuple[str, str]:
    first = "" if start is None else f"{start.astimezone(UTC):%Y-%m-%d}"
    last = "~" if end is None else f"{(end - timedelta(microseconds=1)).astimezone(UTC):%Y-%m-%d}"
    return first, last


def _is_within(name: str, start: datetime | None, end: datetime | None) -> bool:
    if start is None and end is None:
        return True
    hours = hours_in(name)
    return any(
        (start is None or start < hour + _HOUR) and (end is None or hour < end) for hour in hours
    )
