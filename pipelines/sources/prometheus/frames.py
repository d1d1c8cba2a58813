"""Compiled loops over frames of protocol buffers: CRC-32C and where series and chunks lie.

How a stream is cut into frames is in `prometheus.wire`, what is in a chunk in `prometheus.xor`.
Importing this module compiles (seconds, once; then cached), so import it where it is used.

All bit work is in unsigned 64-bit numbers: mixing signs would turn numba's integers into floats.
"""

from typing import Any, Final

import numpy as np

from features.compiled import jit

WHOLE: Final = 0
MALFORMED: Final = 1
BAD_LENGTH: Final = 2
BAD_CHECKSUM: Final = 3

LARGEST_FRAME: Final = 256 << 20

_U = np.uint64


def _crc_tables() -> Any:
    """Tables of CRC-32C (Castagnoli, reflected) for eight bytes at a time."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        tables[0, byte] = value
    for step in range(1, 8):
        before = tables[step - 1]
        tables[step] = (before >> np.uint32(8)) ^ tables[0][before & np.uint32(0xFF)]
    return tables


_CRC: Final = _crc_tables()


@jit
def crc32c(buf: Any, start: int, end: int) -> int:
    """CRC-32C of `buf[start:end]`."""
    crc = _U(0xFFFFFFFF)
    low = _U(0xFF)
    at = start
    while at + 8 <= end:
        a = crc ^ (
            _U(buf[at])
            | _U(buf[at + 1]) << _U(8)
            | _U(buf[at + 2]) << _U(16)
            | _U(buf[at + 3]) << _U(24)
        )
        crc = (
            _U(_CRC[7, a & low])
            ^ _U(_CRC[6, (a >> _U(8)) & low])
            ^ _U(_CRC[5, (a >> _U(16)) & low])
            ^ _U(_CRC[4, a >> _U(24)])
            ^ _U(_CRC[3, buf[at + 4]])
            ^ _U(_CRC[2, buf[at + 5]])
            ^ _U(_CRC[1, buf[at + 6]])
            ^ _U(_CRC[0, buf[at + 7]])
        )
        at += 8
    while at < end:
        crc = _U(_CRC[0, (crc ^ _U(buf[at])) & low]) ^ (crc >> _U(8))
        at += 1
    return int(crc ^ _U(0xFFFFFFFF))


@jit
def _varint(buf: Any, at: int, end: int) -> tuple[Any, int]:
    """A varint's value and where it ends; end -1: cut off or too long."""
    value = _U(0)
    for step in range(10):
        if at + step >= end:
            return 0, -1
        byte = _U(buf[at + step])
        value |= (byte & _U(0x7F)) << _U(7 * step)
        if byte < _U(0x80):
            return np.int64(value), at + step + 1
    return 0, -1


@jit
def _field(buf: Any, at: int, end: int) -> tuple[int, int, int, int]:
    """The field at `at`: number, value (of a varint), start of its content, end of it.

    A varint's content is empty: start is its end. End -1: malformed.
    """
    tag, at = _varint(buf, at, end)
    if at < 0 or tag < 8:
        return 0, 0, 0, -1
    wire = tag & 7
    if wire == 0:
        value, at = _varint(buf, at, end)
        return tag >> 3, value, at, at
    length = 8 if wire == 1 else 4
    if wire == 2:
        length, at = _varint(buf, at, end)
    elif wire not in (1, 5):
        return 0, 0, 0, -1
    if at < 0 or length < 0 or length > end - at:
        return 0, 0, 0, -1
    return tag >> 3, 0, at, at + length


@jit
def _chunk(buf: Any, at: int, end: int) -> tuple[int, int, int]:
    """Encoding, start and end of the data of one Chunk message; encoding -1: malformed."""
    encoding, data_start, data_end = 0, at, at
    while at < end:
        number, value, start, at = _field(buf, at, end)
        if at < 0:
            return -1, 0, 0
        if number == 3:
            encoding = max(value, 0)
        elif number == 4:
            data_start, data_end = start, at
    return encoding, data_start, data_end


@jit
def _series(buf: Any, span: Any, at: int, chunks: Any, n_chunks: int) -> int:
    """Finds labels and chunks of the ChunkedSeries in `buf[at:span[1]]`.

    `span` holds the end on entry, and start and end of the labels after. Returns the number of
    chunks so far, or -1: malformed.
    """
    end = span[1]
    begin, span[0], span[1] = at, at, at
    while at < end:
        before = at
        number, _, start, at = _field(buf, at, end)
        if at < 0:
            return -1
        if number == 1:
            if span[1] == begin:
                span[0] = before
            span[1] = at
        elif number == 2:
            encoding, data_start, data_end = _chunk(buf, start, at)
            if encoding < 0:
                return -1
            if n_chunks < chunks.shape[0]:
                chunks[n_chunks, 1] = encoding
                chunks[n_chunks, 2] = data_start
                chunks[n_chunks, 3] = data_end
            n_chunks += 1
    return n_chunks


@jit
def scan_frames(buf: Any, size: int, frames: Any) -> tuple[int, int, int]:
    """Finds the whole frames at the beginning of a stream's bytes, and checks them.

    Args:
        buf: The bytes.
        size: Their number.
        frames: i64[n, 2], filled with start and end of each frame's message.

    Returns:
        Number of frames found (at most n), and where the first that is not whole begins; with
        WHOLE, BAD_LENGTH or BAD_CHECKSUM.
    """
    n, at = 0, 0
    while at < size and n < frames.shape[0]:
        length, start = _varint(buf, at, size)
        if start < 0:
            return n, at, WHOLE if size - at < 10 else BAD_LENGTH
        if length < 0 or length > LARGEST_FRAME:
            return n, at, BAD_LENGTH
        end = start + 4 + length
        if end > size:
            break
        told = np.int64(0)
        for k in range(4):
            told = told << 8 | np.int64(buf[start + k])
        if crc32c(buf, start + 4, end) != told:
            return n, at, BAD_CHECKSUM
        frames[n, 0], frames[n, 1] = start + 4, end
        n, at = n + 1, end
    return n, at, WHOLE


@jit
def walk_frames(buf: Any, frames: Any, series: Any, chunks: Any) -> tuple[int, int, int]:
    """Finds series and chunks in ChunkedReadResponse messages.

    Args:
        buf: The bytes.
        frames: i64[k, 2]: start and end of each message.
        series: i64[n, 2], filled with start and end of each series' labels. Fewer rows than there
            are series: the rest is only counted.
        chunks: i64[m, 4], filled with series, encoding, start and end of each chunk's data.

    Returns:
        Number of series, number of chunks, WHOLE or MALFORMED.
    """
    n_series, n_chunks = 0, 0
    span = np.zeros(2, np.int64)
    for frame in range(frames.shape[0]):
        at, size = frames[frame, 0], frames[frame, 1]
        while at < size:
            number, _, begin, at = _field(buf, at, size)
            if at < 0:
                return n_series, n_chunks, MALFORMED
            if number != 1:
                continue
            before, span[1] = n_chunks, at
            n_chunks = _series(buf, span, begin, chunks, n_chunks)
            if n_chunks < 0:
                return n_series, before, MALFORMED
            for i in range(before, min(n_chunks, chunks.shape[0])):
                chunks[i, 0] = n_series
            if n_series < series.shape[0]:
                series[n_series] = span
            n_series += 1
    return n_series, n_chunks, WHOLE


@jit
def _sample(buf: Any, at: int, end: int, i: int, ts: Any, bits: Any) -> bool:
    """Reads a Sample message to place i, where that exists; False: malformed."""
    moment, value = 0, _U(0)
    while at < end:
        number, read, start, at = _field(buf, at, end)
        if at < 0:
            return False
        if number == 1 and at - start == 8:
            value = _U(0)
            for k in range(8):
                value |= _U(buf[start + k]) << _U(8 * k)
        elif number == 2:
            moment = read
    if i < ts.shape[0]:
        ts[i], bits[i] = moment, value
    return True


@jit
def _time_series(buf: Any, at: int, end: int, span: Any, n: int, ts: Any, bits: Any) -> int:
    """Reads a TimeSeries message; fills span with the labels. Returns the samples so far."""
    begin, span[0], span[1] = at, at, at
    while at < end:
        before = at
        number, _, start, at = _field(buf, at, end)
        if at < 0:
            return -1
        if number == 1:
            if span[1] == begin:
                span[0] = before
            span[1] = at
        elif number == 2:
            if not _sample(buf, start, at, n, ts, bits):
                return -1
            n += 1
    return n


@jit
def walk_samples(buf: Any, size: int, series: Any, ts: Any, bits: Any) -> tuple[int, int, int]:
    """Reads a ReadResponse.

    Args:
        buf: The message.
        size: Its length.
        series: i64[n, 4], filled with start and end of each series' labels, and of its samples.
            Fewer rows than there are series: the rest is only counted; so with samples.
        ts: i64, filled with milliseconds.
        bits: u64, filled with the bits of the values.

    Returns:
        Number of series, number of samples, WHOLE or MALFORMED.
    """
    n_series, n, at = 0, 0, 0
    span = np.zeros(2, np.int64)
    while at < size:
        number, _, inner, at = _field(buf, at, size)
        if at < 0:
            return n_series, n, MALFORMED
        while number == 1 and inner < at:
            part, _, begin, inner = _field(buf, inner, at)
            if inner < 0:
                return n_series, n, MALFORMED
            if part != 1:
                continue
            before, n = n, _time_series(buf, begin, inner, span, n, ts, bits)
            if n < 0:
                return n_series, before, MALFORMED
            if n_series < series.shape[0]:
                series[n_series, :2] = span
                series[n_series, 2], series[n_series, 3] = before, n
            n_series += 1
    return n_series, n, WHOLE
