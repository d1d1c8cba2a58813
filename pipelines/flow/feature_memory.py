"""What the feature engine remembers from tick to tick, as mapped files on disk.

What the arrays mean is in `features.engine.ring`. They may be deleted at any time: the next tick
then starts from the stored samples. So it does after the machine was started anew: a crash of the
process leaves what it wrote to the kernel, a crash of the machine may not, and waiting for the disk
at every tick costs ten times as much as the tick.
"""

import errno
import json
import mmap
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.storage.atomic_files import replace_file
from pipelines.storage.file_lock import held

_HEAD: Final = "head.json"
_SEEN: Final = "seen.json"
_LOCK: Final = ".lock"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


_SPARE_BYTES: Final = 1_000_000_000
"""Room on disk that others may take while a shard is written."""


class FeatureMemory:
    """A `BucketStore` in a folder, one folder per shard.

    One process at a time may use it (`held`): the arrays change in place.

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
        folder = self._of(shard)
        read = _read_json(folder / _HEAD)
        if read is None or set(read) != {"boot", "head", "files"} or read["boot"] != self._boot:
            return None
        for name, size in read["files"].items():
            path = folder / name
            if not path.exists() or path.stat().st_size != size:
                return None
        head: dict[str, Any] = read["head"]
        return head

    def array(self, shard: int, name: str, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """A mapped array; zeros, and no room on disk, where nothing was written yet.

        Raises:
            OSError: The disk has no room for what is still to be written of it.
        """
        path = self._of(shard) / f"{name}.bin"
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not size:
            return np.zeros(shape, dtype)
        if not path.exists() or path.stat().st_size != size:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.truncate(size)
        _check_room(path)
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), size)
        # A tick looks at a few slots of a long file; what is read ahead of them only fills memory
        # (200,000 GPUs: 10 CPU seconds a tick instead of one).
        mapped.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(mapped, dtype=dtype).reshape(shape)

    def commit(self, shard: int, head: Mapping[str, Any]) -> None:
        """Replaces the head in one step; what was written to the arrays before it counts."""
        folder = self._of(shard)
        files = {path.name: path.stat().st_size for path in sorted(folder.glob("*.bin"))}
        content = json.dumps({"boot": self._boot, "head": dict(head), "files": files})
        replace_file(folder / _HEAD, content.encode())

    def discard(self, shard: int) -> None:
        """Forgets a shard: its head first, as without one nothing else counts."""
        folder = self._of(shard)
        for path in (folder / _HEAD, *folder.glob("*.bin")):
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
        return self.folder / f"shard={shard:04d}"


def _check_room(path: Path) -> None:
    """Refuses a mapped file that the disk may have no room for.

    A write to it on a full disk ends the process by a signal, without a word.
    """
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
