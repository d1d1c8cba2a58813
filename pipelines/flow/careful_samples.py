"""Telemetry of which a part may be unreadable: the rest is scored, that part is named.

What is unknown for a GPU of such a shard is decided in `models.doubts`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from polars.exceptions import PolarsError

from features.engine.ring import BucketStore
from features.engine.samples import SHARD_SIZE, Piece, SampleSource
from features.engine.slots import SlotFile
from features.errors import ForewarnError


@dataclass(frozen=True)
class CarefulSamples:
    """A SampleSource that notes the shards it cannot read, instead of failing with them.

    Attributes:
        source: Where samples come from.
        failed: What was wrong, by shard; filled while samples are read.
    """

    source: SampleSource
    failed: dict[int, str] = field(default_factory=dict)

    def uuids(self) -> Sequence[str]:
        """As in `SampleSource`."""
        return self.source.uuids()

    def pieces(
        self,
        shard: int,
        *,
        start_ms: int,
        end_ms: int,
        columns: Sequence[str],
        gpus: range | None = None,
    ) -> Iterator[Piece]:
        """As in `SampleSource`, up to where the shard cannot be read."""
        try:
            yield from self.source.pieces(
                shard, start_ms=start_ms, end_ms=end_ms, columns=columns, gpus=gpus
            )
        except (ForewarnError, OSError, PolarsError) as error:
            self.failed.setdefault(shard, str(error).splitlines()[0][:200])

    def failed_gpus(self) -> Mapping[str, str]:
        """The GPUs of those shards, each with what was wrong."""
        uuids = self.uuids()
        return {
            uuids[code]: words
            for shard, words in self.failed.items()
            for code in range(shard * SHARD_SIZE, min((shard + 1) * SHARD_SIZE, len(uuids)))
        }


@dataclass(frozen=True)
class CarefulStore:
    """A BucketStore that keeps nothing of a shard whose samples could not all be read.

    Attributes:
        store: Where slots are kept.
        samples: Knows which shards failed.
    """

    store: BucketStore
    samples: CarefulSamples

    def head(self, shard: int) -> Mapping[str, Any] | None:
        """As in `BucketStore`."""
        return self.store.head(shard)

    def opened(self, shard: int, size: int) -> AbstractContextManager[SlotFile]:
        """As in `BucketStore`."""
        return self.store.opened(shard, size)

    def commit(self, shard: int, head: Mapping[str, Any]) -> None:
        """As in `BucketStore`; a failed shard is forgotten, and starts anew at the next tick."""
        if shard in self.samples.failed:
            self.store.discard(shard)
        else:
            self.store.commit(shard, head)

    def discard(self, shard: int) -> None:
        """As in `BucketStore`."""
        self.store.discard(shard)
