"""Contents of small objects, kept in memory by their tag: a tick reads what the last one has read.

Which objects there are, and whether they have changed, is asked of the store each time.
"""

import threading
from collections import OrderedDict
from typing import Final

_MOST_BYTES: Final = 64 << 20
_LARGEST: Final = 1 << 20
"""Of larger objects the time goes into bytes, not into requests."""

Name = tuple[str, str, str]
"""Address of the bucket, key and tag."""


class KeptObjects:
    """Contents by name, those used last; used by several threads.

    Args:
        most_bytes: Bytes kept at most.
        largest: Larger contents are not kept.
    """

    def __init__(self, *, most_bytes: int = _MOST_BYTES, largest: int = _LARGEST) -> None:
        self._most, self._largest = most_bytes, largest
        self._kept: OrderedDict[Name, bytes] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def get(self, name: Name) -> bytes | None:
        """A content, if it is kept."""
        with self._lock:
            content = self._kept.get(name)
            if content is not None:
                self._kept.move_to_end(name)
            return content

    def put(self, name: Name, content: bytes) -> None:
        """Keeps a content, and lets go of those that were used longest ago."""
        if len(content) > self._largest:
            return
        with self._lock:
            self._n_bytes += len(content) - len(self._kept.pop(name, b""))
            self._kept[name] = content
            while self._n_bytes > self._most:
                _, gone = self._kept.popitem(last=False)
                self._n_bytes -= len(gone)


KEPT: Final = KeptObjects()
"""Those of this process."""
