"""What the engine reads: samples of GPUs as integers, piece by piece.

Where samples are stored is in `pipelines.storage.telemetry.store`; how a core table becomes
integers is in `features.packing`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

SHARD_SIZE: Final = 1024
"""GPUs per shard; a GPU's shard is its code divided by this."""


@dataclass(frozen=True)
class Piece:
    """Some samples, sorted by (gpu, ts); of one GPU, a later piece holds later samples.

    Attributes:
        gpu: Code of each sample's GPU, shape (n,).
        ts_ms: Time in milliseconds since 1970, UTC, shape (n,).
        values: Column to integers of its resolution, shape (n,).
        nulls: Column to the value that stands for "unknown" in it; only columns that have any.
    """

    gpu: npt.NDArray[np.uint32]
    ts_ms: npt.NDArray[np.int64]
    values: Mapping[str, npt.NDArray[Any]]
    nulls: Mapping[str, int]


class SampleSource(Protocol):
    """Where samples come from."""

    def uuids(self) -> Sequence[str]:
        """UUID of each GPU, by its code."""
        ...

    def pieces(
        self,
        shard: int,
        *,
        start_ms: int,
        end_ms: int,
        columns: Sequence[str],
        gpus: range | None = None,
    ) -> Iterator[Piece]:
        """The samples of a shard with start_ms <= ts < end_ms.

        Args:
            shard: Number of the shard.
            start_ms: First moment, inclusive, milliseconds since 1970, UTC.
            end_ms: End, exclusive.
            columns: Columns wanted; one that was never stored is left out of the pieces.
            gpus: Codes of some of the shard's GPUs; None: all.
        """
        ...
