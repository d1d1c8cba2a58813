"""The compiled part of `telemetry.exposition_scan`: one pass over the bytes of a page.

Importing this loads numba, which takes most of a second: `telemetry.exposition_scan` does so once
there is enough to read. Nothing but bytes and numbers is known here.

Text is kept once in an arena and has an entry number there: names, label blocks (from `{`) and
comments (from `#`). After each entry its successor is remembered, as pages repeat themselves: a
line is then read by comparing bytes, and only its value is parsed.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, no-any-return"

import numpy as np
from numba import njit

N_ENTRIES = 0
USED = 1
LAST_BLOCK = 2
LAST_COMMENT = 3
LAST_NAME = 4

N_LINES = 0
N_PLAIN = 1
N_SAMPLES = 2
N_COMMENTS = 3
N_ODD = 4
N_UNROUNDED = 5
PLACE = 6
COUNTS = (N_LINES, N_PLAIN, N_SAMPLES, N_COMMENTS, N_ODD, N_UNROUNDED, PLACE)

NO_ENTRY = -1
NO_LABELS = 0  # the entry of a line without labels
NO_TIME = -(2**63)

_TAB, _LF, _CR, _SPACE, _QUOTE, _HASH = 9, 10, 13, 32, 34, 35
_PLUS, _MINUS, _POINT, _ZERO, _NINE = 43, 45, 46, 48, 57
_BACKSLASH, _OPEN, _CLOSE = 92, 123, 125
_EXACT_DIGITS = 15  # any whole number of 15 digits is a double
_EXACT_POWER = 22  # 10**22 is the largest power of ten that is a double
_POWERS = np.array([10.0**power for power in range(_EXACT_POWER + 1)])


@njit(cache=True, nogil=True)
def _is_equal(buffer, at, arena, start, length):
    """Whether `length` bytes are the same; without a way out in between, for vector units."""
    one, other = buffer[at : at + length], arena[start : start + length]
    difference = np.uint8(0)
    for k in range(length):
        difference |= one[k] ^ other[k]
    return difference == 0


@njit(cache=True, nogil=True)
def _hash(buffer, at, length):
    """FNV-1a."""
    value = np.uint64(14695981039346656037)
    for k in range(length):
        value = (value ^ np.uint64(buffer[at + k])) * np.uint64(1099511628211)
    return value ^ (value >> np.uint64(29))


@njit(cache=True, nogil=True)
def _intern(buffer, at, length, arena, starts, lengths, table, state):
    """The entry of a stretch of bytes, made where there is none."""
    mask = np.uint64(table.size - 1)
    slot = np.int64(_hash(buffer, at, length) & mask)
    while table[slot] != NO_ENTRY:
        entry = table[slot]
        if lengths[entry] == length and _is_equal(buffer, at, arena, starts[entry], length):
            return np.int64(entry)
        slot = (slot + 1) & np.int64(mask)
    entry = state[N_ENTRIES]
    start = state[USED]
    for k in range(length):
        arena[start + k] = buffer[at + k]
    starts[entry], lengths[entry], table[slot] = start, length, entry
    state[N_ENTRIES], state[USED] = entry + 1, start + length
    return entry


@njit(cache=True, nogil=True)
def _block_end(buffer, at, size):
    """Where a label block ends, one past its `}`; -1 where it does not on this line."""
    i = at + 1
    while i < size:
        c = buffer[i]
        if c == _CLOSE:
            return i + 1
        if c == _LF:
            return -1
        if c == _QUOTE:
            i += 1
            while i < size and buffer[i] != _QUOTE:
                if buffer[i] == _LF:
                    return -1
                i += 2 if buffer[i] == _BACKSLASH and i + 1 < size and buffer[i + 1] != _LF else 1
        i += 1
    return -1


@njit(cache=True, nogil=True)
def _exponent(buffer, at, size):
    """Reads `e-5` where it stands; where it ends (-1: not valid) and its value."""
    if at >= size or (buffer[at] != 101 and buffer[at] != 69):  # e, E
        return at, 0
    i = at + 1
    is_negative = i < size and buffer[i] == _MINUS
    if i < size and (is_negative or buffer[i] == _PLUS):
        i += 1
    first, exponent = i, 0
    while i < size and _is_digit(buffer[i]):
        exponent = min(exponent * 10 + int(buffer[i]) - _ZERO, 10_000)
        i += 1
    if i == first:
        return -1, 0
    return i, -exponent if is_negative else exponent


@njit(cache=True, nogil=True)
def _number(buffer, at, size):  # noqa: C901, PLR0912 - one automaton, read in one place
    """Reads a decimal number exactly, else leaves it.

    Returns:
        Where it ends, the value, and whether it is exact (1), for Python to round (0), or no
        number of digits at all (-1).
    """
    i = at
    is_negative = buffer[i] == _MINUS
    if is_negative or buffer[i] == _PLUS:
        i += 1
    mantissa = np.int64(0)
    digits = fraction = seen = 0
    is_whole = True
    while i < size:
        c = buffer[i]
        if _is_digit(c):
            seen += 1
            if digits > 0 or c != _ZERO:
                digits += 1
                if digits <= _EXACT_DIGITS:
                    mantissa = mantissa * 10 + (np.int64(c) - _ZERO)
            if not is_whole:
                fraction += 1
        elif c == _POINT and is_whole:
            is_whole = False
        else:
            break
        i += 1
    if seen == 0:
        return i, 0.0, -1
    i, exponent = _exponent(buffer, i, size)
    if i < 0:
        return i, 0.0, -1
    power = exponent - fraction
    if digits > _EXACT_DIGITS or power > _EXACT_POWER or power < -_EXACT_POWER:
        return i, 0.0, 0
    value = np.float64(mantissa)
    if power < 0:
        value /= _POWERS[-power]
    else:
        value *= _POWERS[power]
    if is_negative and mantissa == 0:
        return i, 0.0, 0  # -0 is the integer 0, -0.0 is not
    return i, -value if is_negative else value, 1


@njit(cache=True, nogil=True)
def _after_blanks(buffer, at, size):
    i = at
    while i < size and (buffer[i] == _SPACE or buffer[i] == _TAB):
        i += 1
    return i


@njit(cache=True, nogil=True)
def _is_blank(c):
    return c in (_SPACE, _TAB, _CR)


@njit(cache=True, nogil=True)
def _line_begin(buffer, at, size):
    """Where a line says something; carriage returns may stand before it, too."""
    i = at
    while i < size and _is_blank(buffer[i]):
        i += 1
    return i


@njit(cache=True, nogil=True)
def _is_letter(c):
    """Letters of metric names, underscore and colon among them."""
    return 65 <= c <= 90 or 97 <= c <= 122 or c in (95, 58)


@njit(cache=True, nogil=True)
def _is_digit(c):
    return _ZERO <= c <= _NINE


@njit(cache=True, nogil=True)
def _line_end(buffer, at, size):
    i = at
    while i < size and buffer[i] != _LF:
        i += 1
    return i


@njit(cache=True, nogil=True)
def _is_at_end(buffer, at, size):
    return (
        at >= size
        or buffer[at] == _LF
        or (buffer[at] == _CR and (at + 1 >= size or buffer[at + 1] == _LF))
    )


@njit(cache=True, nogil=True)
def _comment(buffer, at, size, arena, starts, lengths, table, state, successors):
    """The entry of a comment and where its line ends."""
    last = state[LAST_COMMENT]
    entry = successors[last] if last >= 0 else NO_ENTRY
    if entry >= 0:
        end = at + lengths[entry]
        is_whole = end == size or (end < size and buffer[end] == _LF)
        if is_whole and _is_equal(buffer, at, arena, starts[entry], lengths[entry]):
            state[LAST_COMMENT] = entry
            return entry, end
    end = _line_end(buffer, at, size)
    stop = end
    while stop > at and _is_blank(buffer[stop - 1]):
        stop -= 1
    entry = _intern(buffer, at, stop - at, arena, starts, lengths, table, state)
    if last >= 0:
        successors[last] = entry
    state[LAST_COMMENT] = entry
    return entry, end


@njit(cache=True, nogil=True)
def _name(buffer, at, size, arena, starts, lengths, table, state):
    """The entry of a metric name and where it ends; -1 where there is none."""
    last = state[LAST_NAME]
    if last >= 0:
        end = at + lengths[last]
        is_whole = end < size and not (_is_letter(buffer[end]) or _is_digit(buffer[end]))
        if is_whole and _is_equal(buffer, at, arena, starts[last], lengths[last]):
            return last, end
    i = at
    while i < size and (_is_letter(buffer[i]) or (i > at and _is_digit(buffer[i]))):
        i += 1
    if i == at:
        return NO_ENTRY, i
    entry = _intern(buffer, at, i - at, arena, starts, lengths, table, state)
    state[LAST_NAME] = entry
    return entry, i


@njit(cache=True, nogil=True)
def _block(buffer, at, size, arena, starts, lengths, table, state, successors):
    """The entry of a label block and where it ends; -1 where it does not end."""
    last = state[LAST_BLOCK]
    entry = successors[last] if last >= 0 else NO_ENTRY
    is_inside = entry >= 0 and at + lengths[entry] <= size
    if is_inside and _is_equal(buffer, at, arena, starts[entry], lengths[entry]):
        state[LAST_BLOCK] = entry
        return entry, at + lengths[entry]
    end = _block_end(buffer, at, size)
    if end < 0:
        return NO_ENTRY, at
    entry = _intern(buffer, at, end - at, arena, starts, lengths, table, state)
    if last >= 0:
        successors[last] = entry
    state[LAST_BLOCK] = entry
    return entry, end


@njit(cache=True, nogil=True)
def _time(buffer, at, size, limit):
    """Reads a whole, positive time up to `limit`; where it ends, or -1."""
    i = at
    value = np.int64(0)
    while i < size and _ZERO <= buffer[i] <= _NINE and i - at < 18:
        value = value * 10 + (np.int64(buffer[i]) - _ZERO)
        i += 1
    if i == at or value > limit:
        return -1, value
    return i, value


@njit(cache=True, nogil=True)
def _sample(buffer, begin, at, size, memory, time_limit, time_scale, out, counts):  # noqa: PLR0911
    """Reads a sample line of the usual form; where it ends, -1 where it is of another."""
    arena, starts, lengths, table, state, successors = memory
    name, block, value, ts, place, _, _, _, fix, fix_start, fix_end = out
    k = counts[N_SAMPLES]
    entry, i = _name(buffer, at, size, arena, starts, lengths, table, state)
    if entry < 0:
        return -1
    name[k], block[k], ts[k], place[k] = entry, NO_LABELS, NO_TIME, begin
    gap = i
    i = _after_blanks(buffer, i, size)
    if i < size and buffer[i] == _OPEN:
        block[k], i = _block(buffer, i, size, arena, starts, lengths, table, state, successors)
        if block[k] < 0:
            return -1
        i = _after_blanks(buffer, i, size)
    elif i == gap:
        return -1
    if i >= size:
        return -1
    start = i
    i, value[k], certainty = _number(buffer, i, size)
    if certainty < 0:
        return -1
    stop = i
    i = _after_blanks(buffer, i, size)
    if not _is_at_end(buffer, i, size):
        end, time = _time(buffer, i, size, time_limit)
        ts[k] = time * time_scale
        gap, i = i - stop, _after_blanks(buffer, max(end, 0), size)
        if gap == 0 or end < 0 or not _is_at_end(buffer, i, size):
            return -1
    if certainty == 0:
        u = counts[N_UNROUNDED]
        fix[u], fix_start[u], fix_end[u] = k, start, stop
        counts[N_UNROUNDED] += 1
    counts[N_SAMPLES] += 1
    return _line_end(buffer, i, size)


@njit(cache=True, nogil=True)
def scan(buffer, memory, time_limit, time_scale, out, counts):
    """Reads a page, or the rest of it.

    Args:
        buffer: uint8, the page.
        memory: Arena, starts, lengths, hash table (a power of two, -1: free), state, successors;
            large enough for what the lines that `out` holds may add.
        time_limit: Largest time read here.
        time_scale: Nanoseconds of its unit.
        out: Columns to fill: name entry, block entry, value, time, place; comment entry, place;
            places of odd lines; sample number, start and end of numbers left to Python.
        counts: As `COUNTS`; zeros at first.

    Returns:
        False where `out` is full: call again with longer columns of the same beginning.
    """
    arena, starts, lengths, table, state, successors = memory
    _, _, _, _, _, comment, comment_place, odd, _, _, _ = out
    size = buffer.size
    room = odd.size
    at = counts[PLACE]
    while at < size:
        if max(counts[N_SAMPLES], counts[N_COMMENTS], counts[N_ODD]) >= room:
            counts[PLACE] = at
            return False
        counts[N_LINES] += 1
        i = _line_begin(buffer, at, size)
        if i >= size or buffer[i] == _LF:
            counts[N_PLAIN] += 1
            end = i
        elif buffer[i] == _HASH:
            entry, end = _comment(buffer, i, size, arena, starts, lengths, table, state, successors)
            k = counts[N_COMMENTS]
            comment[k], comment_place[k] = entry, at
            counts[N_COMMENTS] += 1
            counts[N_PLAIN] += 1
        else:
            end = _sample(buffer, at, i, size, memory, time_limit, time_scale, out, counts)
            if end < 0:
                odd[counts[N_ODD]] = at
                counts[N_ODD] += 1
                end = _line_end(buffer, at, size)
        at = end + 1
    counts[PLACE] = at
    return True


@njit(cache=True, nogil=True)
def rehash(arena, starts, lengths, table, n_entries):
    """Fills an empty hash table with the entries there are."""
    mask = np.uint64(table.size - 1)
    for entry in range(n_entries):
        slot = np.int64(_hash(arena, starts[entry], lengths[entry]) & mask)
        while table[slot] != NO_ENTRY:
            slot = (slot + 1) & np.int64(mask)
        table[slot] = entry
