"""Reads of a bucket that are waited for only so long, and then go on beside whoever asked.

What is read is known to the callers; what a bucket's client does when it is lost is in
`pipelines.storage.object_store`.
"""

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from features.errors import ForewarnError
from pipelines.storage.object_paths import Place

WAIT_S: Final = 1.5
"""How long a read is waited for: a page, which makes several, should come within two seconds."""

TAKEN_S: Final = 30.0
"""How long ago a read may have begun whose end nobody waited for: what it found is of then."""

_SHORT_S: Final = 0.05
"""How long the next is waited for while another is late: the bucket answers nobody."""

_MOST: Final = 8
"""Reads under way at once: a bucket that hangs holds as many threads."""

T = TypeVar("T")


class LateError(ForewarnError):
    """A bucket has not answered in time; this says nothing of what it holds."""


@dataclass(eq=False)
class _Read:
    """A read under way, or one that ended without anybody waiting for it."""

    began: float
    future: "Future[Any]"
    is_late: bool = False


class InTime:
    """Reads of one bucket, for as many threads as like; a folder is read as ever.

    Args:
        root: What is read.
        wait_s: As `WAIT_S`.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        root: Place,
        *,
        wait_s: float = WAIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._wait_s = wait_s
        self._clock = clock
        self._reads: dict[Hashable, _Read] = {}
        self._lock = threading.Lock()

    @property
    def is_late(self) -> bool:
        """Whether a read that somebody has given up waiting for is still to be taken."""
        oldest = self._clock() - TAKEN_S
        with self._lock:
            return any(
                one.is_late and (one.began >= oldest or not one.future.done())
                for one in self._reads.values()
            )

    def read(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is read, if it comes in time; of each key one read is under way at once.

        Args:
            key: What is read. Whoever asks for it while it is read waits for the same.
            make: Reads it.

        Raises:
            LateError: It has not come; it is read on, and taken by who asks for it soon after.
        """
        if isinstance(self._root, Path):
            return make()
        with self._lock:
            under_way = self._under_way(key, make)
            wait_s = _SHORT_S if self._is_slow() else self._wait_s
        wait({under_way.future}, timeout=wait_s)
        if not under_way.future.done():
            under_way.is_late = True
            raise self._late(f"no answer within {self._wait_s:g} s")
        with self._lock:
            if self._reads.get(key) is under_way:
                del self._reads[key]
        value: T = under_way.future.result()
        return value

    def _under_way(self, key: Hashable, make: Callable[[], T]) -> _Read:
        """The read of a key: one that may still be taken, or a new one."""
        oldest = self._clock() - TAKEN_S
        for other, one in list(self._reads.items()):
            if one.future.done() and one.began < oldest:
                del self._reads[other]
        found = self._reads.get(key)
        if found is not None:
            return found
        if sum(not one.future.done() for one in self._reads.values()) >= _MOST:
            raise self._late(f"{_MOST} reads wait for it already")
        future: Future[Any] = Future()
        # A daemon: a program that is told to stop does not wait for a bucket.
        threading.Thread(target=_run, args=(future, make), name="bucket-read", daemon=True).start()
        # Noted only now: a read whose thread cannot be started would be waited for ever after.
        started = self._reads[key] = _Read(self._clock(), future)
        return started

    def _is_slow(self) -> bool:
        """Whether a read is under way that somebody has given up waiting for."""
        return any(one.is_late and not one.future.done() for one in self._reads.values())

    def _late(self, cause: str) -> LateError:
        return LateError(
            f"{self._root}: {cause}. It is slow or cannot be reached; what comes late is shown at "
            "the next look. Run forewarn doctor if this lasts."
        )


def _run(future: "Future[Any]", make: Callable[[], Any]) -> None:
    try:
        future.set_result(make())
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        future.set_exception(error)
