"""What the feature engine remembers from tick to tick, as one file per shard on disk.

What its bytes mean is in `features.engine.ring`. They may be deleted at any time: the next tick
then starts from the stored samples. So it does after the machine was started anew: a crash of the
process leaves what it wrote to the kernel, a crash of the machine may not, and waiting for the disk
at every tick costs ten times as much as the tick.
"""

import errno
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.storage.atomic_files import replace_file
from pipelines.storage.file_lock import held

_SLOTS: Final = "slots.bin"
_SEEN: Final = "seen.json"
_LOCK: Final = ".lock"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")

_HEAD_BYTES: Final = 4096
"""Room for a head; a file begins with two, which are written in turn, and slots follow. A new file
per head would take longer than all else that is written."""
_CHECKSUM_BYTES: Final = 8
_SPARE_BYTES: Final = 1_000_000_000
"""Room on disk that others may take while a shard is written."""


@dataclass(frozen=True)
class _Slots:
    """A SlotFile on disk. A mapped file would be simpler, but its page faults cost more.

    Attributes:
        path: The file.
        descriptor: It, opened.
    """

    path: Path
    descriptor: int

    def read(self, at: int, out: npt.NDArray[Any]) -> None:
        """Fills a contiguous array with the bytes from `at` on.

        Raises:
            OSError: The file cannot be read, or ends before.
        """
        left = out.reshape(-1).view(np.uint8).data
        while left:
            n_bytes = os.preadv(self.descriptor, [left], 2 * _HEAD_BYTES + at)
            if not n_bytes:
                words = f"{len(left):,} more bytes were expected from byte {at:,} of the slots on"
                raise OSError(errno.EIO, f"{words}. Another process has cut it", str(self.path))
            left, at = left[n_bytes:], at + n_bytes

    def expect(self, at: int, size: int) -> None:
        """Has the kernel read bytes ahead."""
        if size:  # to the kernel 0 is all that follows
            start = 2 * _HEAD_BYTES + at
            os.posix_fadvise(self.descriptor, start, size, os.POSIX_FADV_WILLNEED)

    def write(self, at: int, values: npt.NDArray[Any]) -> None:
        """Puts a contiguous array at `at`.

        Raises:
            OSError: The disk is full, or broken.
        """
        left = values.reshape(-1).view(np.uint8).data
        while left:
            n_bytes = os.pwrite(self.descriptor, left, 2 * _HEAD_BYTES + at)
            left, at = left[n_bytes:], at + n_bytes


class FeatureMemory:
    """A `BucketStore` in a folder, one folder per shard.

    One process at a time may use it (`held`): files change in place.

    Args:
        folder: Where; made on the first tick.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._boot = _boot_id()

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Whether this process has the memory for itself until it lets go; it does not wait.

        Raises:
            OSError: The folder cannot be written.
        """
        with held(self.folder / _LOCK) as is_held:
            yield is_held

    def head(self, shard: int) -> Mapping[str, Any] | None:
        """What was committed last; None where nothing was, or it may not be whole."""
        try:
            with self._of(shard).open("rb", buffering=0) as file:
                found, size = self._heads(file.fileno()), os.fstat(file.fileno()).st_size
        except OSError:
            return None
        if not found or found[-1]["size"] != size:
            return None
        head: dict[str, Any] = found[-1]["head"]
        return head

    @contextmanager
    def opened(self, shard: int, size: int) -> Iterator[_Slots]:
        """A shard's bytes; zeros, and no room on disk, where nothing was written yet.

        Raises:
            OSError: The disk has no room for what is still to be written of it.
        """
        path = self._of(shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if os.fstat(descriptor).st_size != size + 2 * _HEAD_BYTES:
                os.ftruncate(descriptor, 0)
                os.ftruncate(descriptor, size + 2 * _HEAD_BYTES)
            _check_room(path)
            # What is read ahead of the few slots that a tick looks at only fills memory.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            yield _Slots(path, descriptor)
        finally:
            os.close(descriptor)

    def commit(self, shard: int, head: Mapping[str, Any]) -> None:
        """Makes the head count in one step: beside the last one, which counts until this is whole.

        Raises:
            OSError: The shard was never opened, or its disk is full.
        """
        with self._of(shard).open("r+b", buffering=0) as file:
            found, size = self._heads(file.fileno()), os.fstat(file.fileno()).st_size
            number = found[-1]["number"] + 1 if found else 0
            content = {"number": number, "boot": self._boot, "size": size, "head": dict(head)}
            text = json.dumps(content).encode().ljust(_HEAD_BYTES - _CHECKSUM_BYTES)
            if len(text) > _HEAD_BYTES - _CHECKSUM_BYTES:
                words = f"a head must be below {_HEAD_BYTES:,} bytes, got {len(text):,}"
                raise OSError(errno.EFBIG, words, str(self._of(shard)))
            block = _checksum(text) + text
            n_bytes = os.pwrite(file.fileno(), block, number % 2 * _HEAD_BYTES)
            if n_bytes != len(block):
                words = f"{n_bytes:,} of {len(block):,} bytes of a head were written"
                raise OSError(errno.EIO, words, str(self._of(shard)))

    def discard(self, shard: int) -> None:
        """Forgets a shard, also what an older version left of it."""
        # A hidden file is none of ours: a network disk keeps one for what is deleted while open.
        for path in self._of(shard).parent.glob("[!.]*"):
            path.unlink(missing_ok=True)

    def seen(self) -> dict[datetime, str]:
        """The hours that the last tick knew, each with the origin of its rows."""
        read = _read_json(self.folder / _SEEN) or {}
        try:
            return {datetime.fromisoformat(hour): origin for hour, origin in read.items()}
        except ValueError:
            return {}

    def stale_from(self, hours: Mapping[datetime, str], *, since: datetime) -> datetime | None:
        """The first hour that is not as the last tick knew it.

        Args:
            hours: The stored hours, each with the origin of its rows.
            since: Hours before this one do not matter any more.
        """
        seen = self.seen()
        changed = [
            hour for hour in {*hours, *seen} if hour >= since and hours.get(hour) != seen.get(hour)
        ]
        return min(changed, default=None)

    def remember(self, hours: Mapping[datetime, str]) -> None:
        """Keeps what a finished tick knew."""
        content = {hour.isoformat(): origin for hour, origin in sorted(hours.items())}
        replace_file(self.folder / _SEEN, json.dumps(content).encode())

    def _of(self, shard: int) -> Path:
        return self.folder / f"shard={shard:04d}" / _SLOTS

    def _heads(self, descriptor: int) -> list[dict[str, Any]]:
        """The whole heads that were committed since the machine was started, the newest last."""
        found = []
        for number in range(2):
            block = os.pread(descriptor, _HEAD_BYTES, number * _HEAD_BYTES)
            text = block[_CHECKSUM_BYTES:]
            if len(block) == _HEAD_BYTES and block[:_CHECKSUM_BYTES] == _checksum(text):
                found.append(json.loads(text))
        of_now = [one for one in found if one["boot"] == self._boot]
        return sorted(of_now, key=lambda one: int(one["number"]))


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)


def _check_room(path: Path) -> None:
    """Refuses a file that the disk may have no room for, before others lack it."""
    status = path.stat()
    missing = status.st_size - status.st_blocks * 512
    free = shutil.disk_usage(path.parent).free
    if missing > 0 and free < missing + _SPARE_BYTES:
        words = f"{missing + _SPARE_BYTES:,} bytes must be free to write it, got {free:,}"
        raise OSError(errno.ENOSPC, words, str(path))


def _boot_id() -> str:
    """Which start of the machine this is; where that cannot be known, of this process alone."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        read = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None
