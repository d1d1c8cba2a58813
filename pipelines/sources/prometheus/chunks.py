"""Remote read's binary answers to flat samples: streamed XOR chunks, and plain samples.

The compiled loops are in `prometheus.xor` and `prometheus.frames`; they are imported when first
needed, because that compiles them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines.sources.http.errors import AnswerError
from pipelines.sources.prometheus.readings import (
    I64,
    Readings,
    Refused,
    Window,
    join,
    within,
)
from pipelines.sources.prometheus.series import Series
from pipelines.sources.prometheus.wire import PAD, Block, frame_blocks, read_labels, unpack_snappy

ReadLabels = Callable[[Mapping[str, str]], Series]

_MOST_CACHED: Final = 50_000
_RULES: Final = {
    1: "XOR chunk is malformed",
    2: "native histogram chunk: no DCGM field is one",
    3: "chunk of an unknown encoding",
}


class LabelCache:
    """Remembers series by the bytes of their labels, as they come again in every answer.

    Args:
        read: Reads labels.
    """

    def __init__(self, read: ReadLabels) -> None:
        self._read = read
        self._known: dict[bytes, Series] = {}

    def series(self, raw: bytes) -> Series:
        """The series of a message's label fields.

        Args:
            raw: The fields.
        """
        found = self._known.get(raw)
        if found is None:
            found = self._read(read_labels(raw))
            if len(self._known) >= _MOST_CACHED:
                self._known.clear()
            self._known[raw] = found
        return found


def read_chunks(
    pieces: Iterable[bytes], window: Window, *, labels: LabelCache, max_samples: int
) -> Readings:
    """Decodes a streamed answer (ChunkedReadResponse frames).

    Args:
        pieces: The body as it comes in.
        window: Half-open; chunks reach beyond it, and their other samples are left out.
        labels: Reads series.
        max_samples: Most samples to hold.

    Returns:
        The samples of the window. A malformed chunk gives none and is refused with the number of
        samples it says it has (at least one).

    Raises:
        AnswerError: A frame is cut off, its checksum is wrong, or it is no such message.
    """
    parts: list[Readings] = []
    n = 0
    for block in frame_blocks(pieces):
        part = _read_block(block, window, labels=labels, room=max_samples - n)
        n += len(part.ts)
        parts.append(part)
    return join(parts)


def _read_block(block: Block, window: Window, *, labels: LabelCache, room: int) -> Readings:
    from pipelines.sources.prometheus import frames as loops
    from pipelines.sources.prometheus import xor

    buf, frames = block
    none: I64 = np.empty((0, 2), np.int64)
    n_series, n_chunks, status = loops.walk_frames(buf, frames, none, np.empty((0, 4), np.int64))
    if status != loops.WHOLE:
        raise AnswerError("a frame is no ChunkedReadResponse", may_pass=True)
    spans, chunks = np.empty((n_series, 2), np.int64), np.empty((n_chunks, 4), np.int64)
    loops.walk_frames(buf, frames, spans, chunks)
    claimed = np.empty(n_chunks, np.int64)
    total = xor.claimed_samples(buf, chunks, claimed)
    # Chunks may hold far more than the window: what counts is what is kept, so the decoder's
    # room is only bounded, not the answer's.
    if total > 16 * max(room, 0) + 65_536:
        raise AnswerError(f"a part of the answer holds {total:,} samples", is_too_much=True)
    ts, bits = np.empty(total, np.int64), np.empty(total, np.uint64)
    ends, fates = np.empty(n_chunks, np.int64), np.empty(n_chunks, np.int64)
    stale = np.zeros(1, np.int64)
    n = xor.decode_chunks(buf, chunks, np.array(window), ts, bits, ends, fates, stale)
    if n > room:
        raise AnswerError("the answer holds more samples than the limit", is_too_much=True)
    series = _named(buf, spans, labels)
    segments = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1) if n_chunks else none
    return Readings(
        series,
        chunks[:, 0].copy(),
        segments,
        ts[:n].copy(),
        bits[:n].view(np.float64).copy(),
        int(stale[0]),
        tuple(
            Refused(_RULES[int(fates[i])], max(int(claimed[i]), 1), series[chunks[i, 0]].text)
            for i in np.flatnonzero(fates)
        ),
    )


def read_samples(
    body: bytes, window: Window, *, labels: LabelCache, max_bytes: int, max_samples: int
) -> Readings:
    """Decodes a plain answer (ReadResponse, snappy).

    Args:
        body: The whole body.
        window: Half-open; other samples are left out.
        labels: Reads series.
        max_bytes: Longest content.
        max_samples: Most samples to hold.

    Raises:
        AnswerError: It is no such message, or holds too much.
    """
    from pipelines.sources.prometheus import frames as loops

    buf = unpack_snappy(body, max_bytes=max_bytes)
    size = len(buf) - PAD
    no_bits = np.empty(0, np.uint64)
    none: I64 = np.empty(0, np.int64)
    n_series, n, status = loops.walk_samples(buf, size, none.reshape(0, 4), none, no_bits)
    if status != loops.WHOLE:
        raise AnswerError("the answer is no ReadResponse", may_pass=True)
    if n > max_samples:
        raise AnswerError(f"the answer holds {n:,} samples", is_too_much=True)
    spans = np.empty((n_series, 4), np.int64)
    ts, bits = np.empty(n, np.int64), np.empty(n, np.uint64)
    loops.walk_samples(buf, size, spans, ts, bits)
    readings = Readings(
        _named(buf, spans[:, :2], labels),
        np.arange(n_series),
        spans[:, 2:].copy(),
        ts,
        bits.view(np.float64),
    )
    return within(readings, window)


def _named(buf: NDArray[np.uint8], spans: I64, labels: LabelCache) -> tuple[Series, ...]:
    data = buf.tobytes()
    return tuple(labels.series(data[start:end]) for start, end in spans.tolist())
