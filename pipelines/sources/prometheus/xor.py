"""Compiled decoder of Prometheus' XOR chunks (the encoding of the Gorilla paper, in its TSDB).

Where chunks come from is not known here; `prometheus.chunks` calls these loops.
Importing this module compiles (seconds, once; then cached), so import it where it is used.

All bit work is in unsigned 64-bit numbers: mixing signs would turn numba's integers into floats.
A look-ahead may pass the end of the data by less than `prometheus.wire.PAD` bytes; each loop then
compares its position with the end before it believes what it saw.
"""

from typing import Any, Final

import numpy as np

from features.compiled import jit

OK: Final = 0
MALFORMED: Final = 1
HISTOGRAM: Final = 2
UNKNOWN: Final = 3

_U = np.uint64
_STALE = np.uint64(0x7FF0000000000002)


@jit
def _peek(buf: Any, bit: int) -> Any:
    """64 bits from a position, of which at least the first 57 are true."""
    at = bit >> 3
    word = (
        _U(buf[at]) << _U(56)
        | _U(buf[at + 1]) << _U(48)
        | _U(buf[at + 2]) << _U(40)
        | _U(buf[at + 3]) << _U(32)
        | _U(buf[at + 4]) << _U(24)
        | _U(buf[at + 5]) << _U(16)
        | _U(buf[at + 6]) << _U(8)
        | _U(buf[at + 7])
    )
    return word << _U(bit & 7)


@jit
def _bits(buf: Any, bit: int, width: int) -> Any:
    """`width` bits, 1 to 64."""
    if width <= 57:
        return _peek(buf, bit) >> _U(64 - width)
    rest = width - 32
    return (_peek(buf, bit) >> _U(32)) << _U(rest) | _peek(buf, bit + 32) >> _U(64 - rest)


@jit
def _bit_varint(buf: Any, bit: int, end: int) -> tuple[Any, int]:
    """A varint at any bit position; position -1: cut off or too long."""
    value = _U(0)
    for step in range(10):
        if bit + 8 > end:
            return _U(0), -1
        byte = _peek(buf, bit) >> _U(56)
        bit += 8
        value |= (byte & _U(0x7F)) << _U(7 * step)
        if byte < _U(0x80):
            return value, bit
    return _U(0), -1


@jit
def _delta_of_delta(buf: Any, bit: int) -> tuple[Any, int]:
    """The change of the time step, and the position behind it."""
    word = _peek(buf, bit)
    if word >> _U(63) == _U(0):
        return np.int64(0), bit + 1
    if word >> _U(62) == _U(2):
        head, width = 2, 14
    elif word >> _U(61) == _U(6):
        head, width = 3, 17
    elif word >> _U(60) == _U(14):
        head, width = 4, 20
    else:
        return np.int64(_bits(buf, bit + 4, 64)), bit + 68
    value = np.int64((word << _U(head)) >> _U(64 - width))
    if value > 1 << (width - 1):  # not >=: the largest positive change is stored as itself
        value -= 1 << width
    return value, bit + head + width


@jit
def _claimed(buf: Any, start: int, end: int) -> Any:
    """The number of samples a chunk says it has; -1 where it cannot have so many."""
    if end - start < 2:
        return -1
    n = np.int64(buf[start]) << 8 | np.int64(buf[start + 1])
    least = 2 + (9 if n else 0) + (1 if n > 1 else 0)
    # From the third sample on, each takes two bits at least; so does the value of the second.
    bits = 8 * least + (2 * n - 3 if n > 1 else 0)
    return n if bits <= 8 * (end - start) else -1


@jit
def claimed_samples(buf: Any, chunks: Any, out: Any) -> int:
    """Reads the sample count of each XOR or histogram chunk into `out`; returns the XOR sum."""
    total = 0
    for i in range(chunks.shape[0]):
        start, end = chunks[i, 2], chunks[i, 3]
        if chunks[i, 1] == 1:
            out[i] = _claimed(buf, start, end)
            total += max(out[i], 0)
        elif end - start >= 2:
            out[i] = np.int64(buf[start]) << 8 | np.int64(buf[start + 1])
        else:
            out[i] = -1
    return total


@jit
def _next_step(buf: Any, bit: int, stop: int, i: int, step: Any) -> tuple[Any, int]:
    """The time from sample i - 1 to sample i, and the position behind it; -1: malformed."""
    if i == 1:
        raw, bit = _bit_varint(buf, bit, stop)
        return np.int64(raw), bit
    change, bit = _delta_of_delta(buf, bit)
    return step + change, bit if bit < stop else -1


@jit
def _next_value(buf: Any, bit: int, value: Any, lead: Any, width: Any) -> tuple[Any, int, Any, Any]:
    """A value by its difference from the one before, the position behind it; -1: malformed.

    `lead` and `width` say which bits of the difference are written; they hold until changed.
    """
    control = _peek(buf, bit) >> _U(62)
    if control < _U(2):
        return value, bit + 1, lead, width
    bit += 2
    if control == _U(3):
        lead, width = np.int64(_bits(buf, bit, 5)), np.int64(_bits(buf, bit + 5, 6))
        bit += 11
        if width == 0:
            width = np.int64(64)
    if lead + width > 64:
        return value, -1, lead, width
    value ^= _bits(buf, bit, width) << _U(64 - lead - width)
    return value, bit + width, lead, width


@jit
def _decode_chunk(
    buf: Any, start: int, end: int, window: Any, ts: Any, values: Any, at: int, tally: Any
) -> int:
    """Decodes one XOR chunk to `ts[at:]`; returns the new end, or -1: malformed."""
    n = _claimed(buf, start, end)
    if n <= 0:
        return at if n == 0 else -1
    stop = end * 8
    raw, bit = _bit_varint(buf, (start + 2) * 8, stop)
    if bit < 0 or bit + 64 > stop:
        return -1
    moment = np.int64(raw >> _U(1)) ^ -np.int64(raw & _U(1))
    value = _bits(buf, bit, 64)
    bit += 64
    step, lead, width = np.int64(0), np.int64(0), np.int64(64)
    for i in range(n):
        if i > 0:
            step, bit = _next_step(buf, bit, stop, i, step)
            if bit < 0:
                return -1
            moment += step
            value, bit, lead, width = _next_value(buf, bit, value, lead, width)
            if bit < 0 or bit > stop:
                return -1
        if window[0] <= moment < window[1]:
            if value == _STALE:
                tally[0] += 1
            else:
                ts[at], values[at] = moment, value
                at += 1
    return at


@jit
def decode_chunks(
    buf: Any, chunks: Any, window: Any, ts: Any, values: Any, ends: Any, status: Any, tally: Any
) -> int:
    """Decodes XOR chunks one after the other.

    Args:
        buf: Where they lie, padded.
        chunks: i64[m, 4] of `walk_frame`.
        window: i64[2], milliseconds; samples outside the half-open window are left out.
        ts: i64, filled with milliseconds.
        values: u64, filled with the bits of the values.
        ends: i64[m], filled with the end of each chunk's samples in `ts`.
        status: i64[m], filled with OK, MALFORMED, HISTOGRAM or UNKNOWN.
        tally: i64[1]; stale markers within the window are added.

    Returns:
        Number of samples. A malformed chunk gives none, not even those before the fault.
    """
    at = 0
    for i in range(chunks.shape[0]):
        encoding = chunks[i, 1]
        if encoding == 1:
            before = tally[0]
            after = _decode_chunk(buf, chunks[i, 2], chunks[i, 3], window, ts, values, at, tally)
            if after < 0:
                status[i] = MALFORMED
                tally[0] = before
            else:
                status[i] = OK
                at = after
        else:
            status[i] = HISTOGRAM if encoding in (2, 3) else UNKNOWN
        ends[i] = at
    return at
