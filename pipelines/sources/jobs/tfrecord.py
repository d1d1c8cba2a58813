"""Records of TFRecord files: lengths and checksums held, what is torn or spoilt told apart.

What a record means is not known here. A record is its length (u64), a checksum of that (u32), the
payload and its checksum (u32), all little-endian; checksums are CRC-32C, masked.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal

import numpy as np

LARGEST_RECORD: Final = 64_000_000
"""Bytes of a payload that are held; larger ones (images, graphs) are passed over."""

_HEADER: Final = struct.Struct("<QI")
_FOOTER: Final = struct.Struct("<I")
_MASK: Final = 0xA282EAD8
_COMPILED_FROM: Final = 65_536  # bytes; loading the compiled loop costs more than short ones save

Fate = Literal["whole", "torn", "spoilt", "lost", "too_large"]


@dataclass(frozen=True)
class TfRecord:
    """A record and what became of it.

    Attributes:
        fate: `whole`; `torn`, the file ends within it; `spoilt`, its payload does not fit its
            checksum; `lost`, its length does not, so that nothing after it can be found;
            `too_large` to be held.
        position: Where it begins in the file, in bytes.
        payload: Its bytes, where it is whole.
    """

    fate: Fate
    position: int
    payload: bytes = b""


def _table() -> tuple[int, ...]:
    values = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        values.append(value)
    return tuple(values)


_TABLE: Final = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of some bytes.

    Args:
        data: The bytes; long ones take a compiled way.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if len(data) >= _COMPILED_FROM:
        from pipelines.sources.prometheus.frames import crc32c as compiled

        return int(compiled(np.frombuffer(data, np.uint8), 0, len(data)))
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """A checksum as the format stores it, so that checksums of checksums are of use."""
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def tf_records(file: BinaryIO) -> Iterator[TfRecord]:
    """Goes through the records of a file.

    Args:
        file: An open file, at its start; it must allow to seek.

    Yields:
        Every record. After a `torn` or `lost` one nothing follows.
    """
    position = 0
    while header := file.read(_HEADER.size):
        if len(header) < _HEADER.size:
            yield TfRecord("torn", position)
            return
        length, length_crc = _HEADER.unpack(header)
        if masked(crc32c(header[:8])) != length_crc:
            yield TfRecord("lost", position)
            return
        end = position + _HEADER.size + length + _FOOTER.size
        if length > LARGEST_RECORD:
            is_there = file.seek(0, 2) >= end
            yield TfRecord("too_large" if is_there else "torn", position)
            if not is_there:
                return
            file.seek(end)
        else:
            body = file.read(length + _FOOTER.size)
            if len(body) < length + _FOOTER.size:
                yield TfRecord("torn", position)
                return
            payload = body[:length]
            is_whole = masked(crc32c(payload)) == _FOOTER.unpack(body[length:])[0]
            yield TfRecord("whole", position, payload) if is_whole else TfRecord("spoilt", position)
        position = end
