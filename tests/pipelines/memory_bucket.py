"""A bucket in memory that keeps the promises of a real one, and can be lost.

The promises are those of `pipelines.storage.object_store.Bucket`. What is stored and expected is
each test's own.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from pipelines.storage.object_paths import ObjectPath
from pipelines.storage.object_store import Listed, ObjectStoreError


@dataclass(eq=False)
class MemoryBucket:
    """Objects in a dictionary; each request is counted."""

    local: Path
    url: str = "s3://memory"
    objects: dict[str, bytes] = field(default_factory=dict)
    n_requests: int = 0
    fails_after: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def path(self, key: str) -> ObjectPath:
        return ObjectPath(self, key)

    def get(self, key: str) -> tuple[bytes, str]:
        self._request(key)
        if key not in self.objects:
            raise FileNotFoundError(2, "no such object", f"{self.url}/{key}")
        return self.objects[key], self._listed(key).tag

    def put(self, key: str, content: bytes) -> None:
        self._request(key)
        self.objects[key] = content

    def put_new(self, key: str, content: bytes) -> bool:
        self._request(key)
        return self.objects.setdefault(key, content) is content

    def copy(self, key: str, to: str) -> None:
        self.put(to, self.get(key)[0])

    def delete(self, keys: list[str]) -> None:
        self._request(",".join(keys))
        for key in keys:
            self.objects.pop(key, None)

    def look(self, key: str) -> Listed | None:
        self._request(key)
        return self._listed(key) if key in self.objects else None

    def listing(
        self, prefix: str, *, after: str = "", is_flat: bool = False
    ) -> Iterator[Listed | str]:
        self._request(prefix)
        last = None
        for key in sorted(self.objects):
            if not key.startswith(prefix) or key <= after:
                continue
            head, slash, _ = key.removeprefix(prefix).partition("/")
            if is_flat and slash:
                folder = f"{prefix}{head}/"
                if folder != last:
                    yield folder
                last = folder
            else:
                yield self._listed(key)

    def _listed(self, key: str) -> Listed:
        content = self.objects[key]
        return Listed(key, len(content), datetime.now(UTC), sha256(content).hexdigest())

    def _request(self, key: str) -> None:
        with self._lock:
            self.n_requests += 1
            if self.fails_after is not None and self.n_requests > self.fails_after:
                raise ObjectStoreError(f"object store memory: cannot reach {self.url}/{key}")
