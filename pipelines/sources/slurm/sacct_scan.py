"""Compiled passes over `sacct --parsable2` bytes: where fields are, and the plain ones read.

What is not plain is only marked here; what fields mean is in `slurm.fields`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from features.compiled import inlined, jit
from pipelines.sources.slurm.field_values import Bytes, Flags, Ints, Longs, Words, load_word

NULL_TIME: Final = 0
LOCAL_TIME: Final = 1
EPOCH_TIME: Final = 2
NO_TIME: Final = 3

_NEWLINE: Final = 10
_RETURN: Final = 13
_DAYS_BEFORE: Final = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334], np.int64)
_DAYS_IN: Final = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_FIRST_YEAR: Final = 1971  # before it: Slurm's "never", which the careful reader knows
_LAST_YEAR: Final = 9998  # west of Greenwich the last day of 9999 has no UTC
_MOST_DIGITS: Final = 18
_MOST_EPOCH_DIGITS: Final = 11
_NO_SECONDS: Final = 2**32 - 2  # from here on NO_VAL, INFINITE and what lies beyond
_LEAST_EPOCH_DIGITS: Final = 9
_ONES: Final = np.uint64(0x0101010101010101)
_TOPS: Final = np.uint64(0x8080808080808080)


@jit
def scan_lines(  # noqa: PLR0913, PLR0917 - one pass over the bytes, compiled
    data: Bytes,
    words: Words,
    delimiter: Bytes,
    slots: Ints,
    is_closed: bool,  # noqa: FBT001 - compiled functions take no keywords cheaply
    at: int,
    low: int,
    bounds: Longs,
    starts: Ints,
    lengths: Ints,
    is_whole: Flags,
) -> tuple[int, bool]:
    """Finds the fields of each line of a block.

    Args:
        data: Lines, each ended by a line feed (the last may lack it).
        words: The same bytes, as `as_words` gives them.
        delimiter: What stands between fields.
        slots: For each column of the layout, the row of `starts` that takes it, or -1.
        is_closed: Whether records end with a delimiter.
        at: Where the block starts.
        low: Number of its first line.
        bounds: Out, (n_lines + 1,): where each line starts, and where the last ends.
        starts: Out, (n_slots, n_lines): first byte of each field.
        lengths: Out, (n_slots, n_lines): its length.
        is_whole: Out, (n_block,): whether a line has exactly the fields of the layout.

    Returns:
        Where the block ends; whether any byte of it is not ASCII.
    """
    size, seen = data.size, np.uint64(0)
    of_newline, of_delimiter = _ONES * np.uint64(_NEWLINE), _ONES * np.uint64(delimiter[0])
    for line in range(low, low + is_whole.size):
        bounds[line] = at
        field, began = 0, at
        while at < size:
            # Eight bytes at once: in which of them is a line feed or a delimiter?
            word = load_word(words, at)
            seen |= word
            found = _zero_bytes(word ^ of_newline) | _zero_bytes(word ^ of_delimiter)
            if found == 0:
                at += 8
                continue
            at += _first_byte(found)
            if at >= size or data[at] == _NEWLINE:
                break
            if _is_delimiter(data, at, delimiter):
                _note_field(slots, starts, lengths, field, line, began, at)
                field += 1
                at += delimiter.size
                began = at
            else:
                at += 1
        end = min(at, size)  # what follows the text may look like anything
        at = end + 1
        if end > began and data[end - 1] == _RETURN:
            end -= 1
        if is_closed:
            is_whole[line - low] = field == slots.size and end == began
        else:
            _note_field(slots, starts, lengths, field, line, began, end)
            is_whole[line - low] = field == slots.size - 1
        bounds[line + 1] = min(at, size)
    return at, seen & _TOPS != 0


@inlined
def _zero_bytes(word: np.uint64) -> np.uint64:
    """The highest bit of each byte that is zero, and perhaps of some above the first of them."""
    return (word - _ONES & ~word) & _TOPS


@inlined
def _first_byte(marks: np.uint64) -> int:
    """Which byte has the lowest bit that is set, where only highest bits of bytes are."""
    lowest = (marks & (~marks + np.uint64(1))) >> np.uint64(7)
    return int(lowest * np.uint64(0x0001020304050607) >> np.uint64(56))


@inlined
def _is_delimiter(data: Bytes, at: int, delimiter: Bytes) -> bool:
    if data[at] != delimiter[0]:
        return False
    for k in range(1, delimiter.size):
        if at + k >= data.size or data[at + k] != delimiter[k]:
            return False
    return True


@inlined
def _note_field(
    slots: Ints, starts: Ints, lengths: Ints, field: int, line: int, began: int, end: int
) -> None:
    """Keeps where a field is, if its column is wanted."""
    if field < slots.size and slots[field] >= 0:
        starts[slots[field], line] = began
        lengths[slots[field], line] = end - began


@jit
def split_job_ids(
    data: Bytes, starts: Ints, lengths: Ints, is_plain: Flags, job: Ints, step: Ints
) -> None:
    """Cuts job ids at the step; `123`, `123_4`, `123+1`, each with or without `.batch`.

    Args:
        data: The bytes.
        starts: (n,) first byte of each id.
        lengths: (n,) its length.
        is_plain: (n,) in and out: made false where the id has another form.
        job: Out, (n,): length of the job's part.
        step: Out, (n,): length of the step, 0 where there is none.
    """
    for i in range(starts.size):
        job[i] = step[i] = 0
        if not is_plain[i]:
            continue
        begin, size = starts[i], lengths[i]
        at = 0
        while at < size and 48 <= data[begin + at] <= 57:
            at += 1
        good = 0 < at <= _MOST_DIGITS
        if good and at < size and (data[begin + at] == 95 or data[begin + at] == 43):
            most = 10 if data[begin + at] == 95 else 6
            part = at + 1
            at = part
            while at < size and 48 <= data[begin + at] <= 57:
                at += 1
            good = 0 < at - part <= most
        job[i] = at
        if good and at < size:
            good = data[begin + at] == 46 and 0 < size - at - 1 <= 64
            step[i] = size - at - 1
            for k in range(at + 1, size):
                byte = data[begin + k]
                good &= (
                    48 <= byte <= 57
                    or 65 <= byte <= 90
                    or 97 <= byte <= 122
                    or byte in (43, 45, 95)
                )
        is_plain[i] = good


@jit
def _digits(data: Bytes, begin: int, count: int) -> int:
    """The number that `count` digits write; -1 where one is none."""
    number, worst = np.int64(0), np.uint8(0)
    for k in range(count):
        digit = np.uint8(data[begin + k] - np.uint8(48))  # below 48 wraps round to a large one
        worst = max(worst, digit)
        number = number * 10 + digit
    return -1 if worst > 9 else int(number)


@jit
def _is_unknown(data: Bytes, begin: int, size: int) -> bool:
    """Whether the word is nothing, Unknown or None."""
    if size == 0:
        return True
    if size == 4:
        is_none = data[begin] == 78 and data[begin + 1] == 111 and data[begin + 2] == 110
        return bool(is_none and data[begin + 3] == 101)
    if size != 7:
        return False
    is_it = data[begin] == 85 and data[begin + 1] == 110 and data[begin + 2] == 107
    is_it = is_it and data[begin + 3] == 110 and data[begin + 4] == 111
    return bool(is_it and data[begin + 5] == 119 and data[begin + 6] == 110)


@jit
def _civil_seconds(data: Bytes, begin: int) -> int:
    """Seconds since the epoch of `YYYY-MM-DDTHH:MM:SS` read as UTC; -1 where it is none."""
    if (
        data[begin + 4] != 45
        or data[begin + 7] != 45
        or data[begin + 10] != 84
        or data[begin + 13] != 58
        or data[begin + 16] != 58
    ):
        return -1
    year, month = _digits(data, begin, 4), _digits(data, begin + 5, 2)
    day, hour = _digits(data, begin + 8, 2), _digits(data, begin + 11, 2)
    minute, second = _digits(data, begin + 14, 2), _digits(data, begin + 17, 2)
    if year < _FIRST_YEAR or year > _LAST_YEAR or month < 1 or month > 12 or day < 1:
        return -1
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return -1
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _DAYS_IN[month - 1] + (1 if is_leap and month == 2 else 0):
        return -1
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - 719_162
    days += _DAYS_BEFORE[month - 1] + (1 if is_leap and month > 2 else 0) + day - 1
    return int(((days * 24 + hour) * 60 + minute) * 60 + second)


@jit
def read_times(
    data: Bytes, starts: Ints, lengths: Ints, is_plain: Flags, seconds: Longs, kinds: Bytes
) -> None:
    """Reads times: nothing, `2026-01-05T00:00:00`, or seconds since the epoch.

    Args:
        data: The bytes.
        starts: (n,) first byte of each time.
        lengths: (n,) its length.
        is_plain: (n,) in and out: made false where the time has another form.
        seconds: Out, (n,): of the wall clock or since the epoch.
        kinds: Out, (n,): which: NULL_TIME, LOCAL_TIME, EPOCH_TIME, or NO_TIME where it is not
            plain.
    """
    for i in range(starts.size):
        seconds[i] = 0
        kinds[i] = NO_TIME
        if not is_plain[i]:
            continue
        begin, size = starts[i], lengths[i]
        found = np.int64(-1)
        if size == 19:
            found = np.int64(_civil_seconds(data, begin))
            kinds[i] = LOCAL_TIME
        elif _is_unknown(data, begin, size):
            found = np.int64(0)
            kinds[i] = NULL_TIME
        elif _LEAST_EPOCH_DIGITS <= size <= _MOST_EPOCH_DIGITS:
            found = np.int64(_digits(data, begin, size))
            kinds[i] = EPOCH_TIME
            if found >= _NO_SECONDS:
                found = np.int64(-1)
        seconds[i] = found
        if found < 0:
            kinds[i] = NO_TIME
            is_plain[i] = False


@jit
def bucket_range(seconds: Longs, kinds: npt.NDArray[np.uint8], width: int) -> tuple[int, int]:
    """First and last bucket of local times; the first is after the last where there are none."""
    low, high = np.int64(1 << 62), np.int64(-1)
    for i in range(seconds.size):
        if kinds[i] == LOCAL_TIME:
            low, high = min(low, seconds[i]), max(high, seconds[i])
    return int(low // width), int(high // width)


@jit
def mark_buckets(
    seconds: Longs, kinds: npt.NDArray[np.uint8], width: int, low: int, is_met: Flags
) -> None:
    """Marks the buckets that local times fall into."""
    for i in range(seconds.size):
        if kinds[i] == LOCAL_TIME:
            is_met[seconds[i] // width - low] = True


@jit
def shift_times(
    seconds: Longs, kinds: npt.NDArray[np.uint8], width: int, low: int, table: Longs
) -> None:
    """Adds to each local time what its bucket's clock is behind UTC."""
    for i in range(seconds.size):
        if kinds[i] == LOCAL_TIME:
            seconds[i] += table[seconds[i] // width - low]


@jit
def count_lines(data: Bytes) -> int:
    """Lines of a text; the last may lack its end."""
    count = np.int64(0)
    for i in range(data.size):
        count += data[i] == _NEWLINE
    is_torn = data.size > 0 and data[data.size - 1] != _NEWLINE
    return int(count) + is_torn
