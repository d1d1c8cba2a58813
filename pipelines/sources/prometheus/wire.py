"""Prometheus remote read on the wire: the request, the frames of a streamed answer, labels.

Samples are decoded in `prometheus.chunks`; no request is sent here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.sources.http.errors import AnswerError
from pipelines.sources.prometheus.readings import Window
from pipelines.sources.prometheus.series import Matcher

STREAMED: Final = "application/x-streamed-protobuf"
SAMPLED: Final = "application/x-protobuf"
PAD: Final = 64
"""Zero bytes behind the data in every buffer: the compiled loops look ahead by less."""

_MATCH_TYPES: Final = {"=": 0, "!=": 1, "=~": 2, "!~": 3}
_BLOCK: Final = 1 << 20
_LEAST_FRAME: Final = 5  # a length and a checksum
_STREAMED_XOR_CHUNKS: Final = 1


def encode_varint(value: int) -> bytes:
    """A varint; a negative number as its 64-bit complement."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_field(number: int, value: int | bytes) -> bytes:
    """One field of a message: a number as varint, bytes with their length.

    Args:
        number: Field number.
        value: What it holds.
    """
    if isinstance(value, int):
        return encode_varint(number << 3) + encode_varint(value)
    return encode_varint(number << 3 | 2) + encode_varint(len(value)) + value


def encode_read_request(
    matchers: Sequence[Matcher], window: Window, *, types: Sequence[int] = (_STREAMED_XOR_CHUNKS, 0)
) -> bytes:
    """A ReadRequest of one query, snappy-compressed as the protocol wants it.

    Args:
        matchers: Conditions on the series.
        window: Half-open; the protocol's own end is inclusive.
        types: Kinds of answers accepted, best first: 1 streamed chunks, 0 samples.
    """
    query = encode_field(1, window.start) + encode_field(2, window.end - 1)
    for matcher in matchers:
        kind = encode_field(1, _MATCH_TYPES[matcher.op])
        name, value = matcher.name.encode(), matcher.value.encode()
        query += encode_field(3, kind + encode_field(2, name) + encode_field(3, value))
    request = encode_field(1, query) + b"".join(encode_field(2, kind) for kind in types)
    compressed: bytes = pa.compress(request, codec="snappy", asbytes=True)
    return compressed


def unpack_snappy(data: bytes, *, max_bytes: int) -> NDArray[np.uint8]:
    """Unpacks a raw snappy block.

    Args:
        data: The block.
        max_bytes: Longest content.

    Returns:
        u8 of the content and PAD zeros behind it.

    Raises:
        AnswerError: It is no snappy block, or holds too much.
    """
    size, _ = _varint(data, 0)
    if size is None:
        raise AnswerError("the answer is no snappy block", is_foreign=True)
    # A byte of snappy unpacks to 64 at most: a longer promise is a lie or a bomb.
    if size > max_bytes or size > 64 * len(data):
        raise AnswerError(
            f"the answer says it unpacks to {size:,} bytes (limit {max_bytes:,})",
            is_too_much=True,
        )
    try:
        content = pa.decompress(data, decompressed_size=size, codec="snappy", asbytes=True)
    except (OSError, ValueError) as error:
        raise AnswerError("the answer is no snappy block", is_foreign=True) from error
    return padded(content)


def padded(data: bytes | bytearray | memoryview) -> NDArray[np.uint8]:
    """The bytes as an array, with PAD zeros behind them."""
    out = np.zeros(len(data) + PAD, np.uint8)
    out[: len(data)] = np.frombuffer(data, np.uint8)
    return out


class Block(NamedTuple):
    """Whole frames of a stream.

    Attributes:
        buf: u8 with PAD bytes behind the data.
        frames: i64[k, 2]: start and end of each frame's message.
    """

    buf: NDArray[np.uint8]
    frames: NDArray[np.int64]


def frame_blocks(pieces: Iterable[bytes]) -> Iterator[Block]:
    """Cuts a streamed answer into its frames, many at a time: servers send one per series.

    Args:
        pieces: The body as it comes in; where it is cut does not matter.

    Yields:
        The frames, checksums checked.

    Raises:
        AnswerError: The stream ends within a frame, or a checksum is wrong.
    """
    waiting, wanted = bytearray(), _BLOCK
    for piece in pieces:
        waiting += piece
        if len(waiting) < wanted:
            continue
        yield from _whole_frames(waiting)
        # A frame longer than a block is not looked at again for every piece of it.
        wanted = max(_BLOCK, 2 * len(waiting))
    yield from _whole_frames(waiting)
    if waiting:
        raise AnswerError(
            f"the answer ends within a frame, {len(waiting):,} bytes into it", may_pass=True
        )


def _whole_frames(waiting: bytearray) -> Iterator[Block]:
    """Takes the whole frames off the beginning of what has come in."""
    from pipelines.sources.prometheus import frames as loops

    buf = padded(waiting)
    frames = np.empty((len(waiting) // _LEAST_FRAME + 1, 2), np.int64)
    n, used, status = loops.scan_frames(buf, len(waiting), frames)
    if status != loops.WHOLE:
        wrong = "checksum" if status == loops.BAD_CHECKSUM else "length"
        raise AnswerError(f"the {wrong} of a frame is wrong", may_pass=True)
    del waiting[:used]
    if n:
        yield Block(buf, frames[:n])


def _varint(data: bytes | bytearray, at: int) -> tuple[int | None, int]:
    """A varint and where it ends; None with the end of the data: cut off; None with -1: none."""
    value = 0
    for step in range(10):
        if at + step >= len(data):
            return None, len(data)
        byte = data[at + step]
        value |= (byte & 0x7F) << 7 * step
        if byte < 0x80:
            return value, at + step + 1
    return None, -1


def read_labels(raw: bytes) -> Mapping[str, str]:
    """Reads the Label fields (number 1) of a message; other fields are passed over.

    Args:
        raw: The fields, as `walk_frames` found them whole.

    Returns:
        Label -> value; bytes that are not UTF-8 become U+FFFD.
    """
    labels = _short_labels(raw)
    if labels is None:
        labels = {}
        for number, content in _fields(raw):
            if number == 1:
                parts = dict(_fields(content))
                name = parts.get(1, b"").decode("utf-8", errors="replace")
                labels[name] = parts.get(2, b"").decode("utf-8", errors="replace")
    return labels


def _short_labels(raw: bytes) -> dict[str, str] | None:
    """The same for labels under 128 bytes in the order that all servers write; None: others."""
    labels = {}
    at, size = 0, len(raw)
    while at + 4 <= size:
        end = at + 2 + raw[at + 1]
        split = at + 4 + raw[at + 3]
        if split + 2 > end or end > size or raw[at + 1] > 0x7F or raw[at + 3] > 0x7F:
            return None
        if (
            raw[at] != 10
            or raw[at + 2] != 10
            or raw[split] != 18
            or split + 2 + raw[split + 1] != end
        ):
            return None
        name = raw[at + 4 : split].decode("utf-8", errors="replace")
        labels[name] = raw[split + 2 : end].decode("utf-8", errors="replace")
        at = end
    return labels if at == size else None


def _fields(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Fields of a message with their content, until its end or the first that is none."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        if tag is None:
            return
        if tag & 7 == 2:
            size, at = _varint(raw, at)
            if size is None:
                return
            yield tag >> 3, raw[at : at + size]
            at += size
        elif tag & 7 == 0:
            _, at = _varint(raw, at)
            if at < 0:
                return
        else:
            at += {1: 8, 5: 4}.get(tag & 7, len(raw))
