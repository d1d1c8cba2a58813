"""What file names and file systems say: bytes of a file, the node and the time in its name.

No content is understood here.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from features.errors import SourceError

_SEPARATOR: Final = "__"
_TIME: Final = re.compile(
    r"(?:^|__)(?P<time>\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2})(?:[.-](?P<part>\d{1,6}))?Z$", re.ASCII
)


def read_bytes(path: Path) -> bytes:
    """Reads a whole file.

    Args:
        path: The file.

    Returns:
        Its bytes.

    Raises:
        SourceError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}. Check that it exists, is a "
            f"file, and that this user may read it."
        ) from error


def decode(data: bytes) -> str:
    """Text of a file whose bytes nobody promised to be UTF-8; bad bytes become U+FFFD.

    Args:
        data: The bytes.

    Returns:
        The text, without a byte order mark.
    """
    return data.decode("utf-8", errors="replace").removeprefix("\ufeff")


def time_in_name(path: Path) -> datetime | None:
    """The UTC time a file name ends with, `<anything>__2026-01-05T00-05-00Z.prom`.

    Args:
        path: The file.

    Returns:
        The time, or None where the name gives none.

    Example:
        >>> time_in_name(Path("gpu001__2026-01-05T00-05-00Z.prom")).isoformat()
        '2026-01-05T00:05:00+00:00'
    """
    found = _TIME.search(path.stem)
    if found is None:
        return None
    micros = (found["part"] or "").ljust(6, "0")
    try:
        moment = datetime.strptime(found["time"], "%Y-%m-%dT%H-%M-%S")  # noqa: DTZ007
    except ValueError:
        return None
    return moment.replace(microsecond=int(micros), tzinfo=UTC)


def node_in_name(path: Path) -> str | None:
    """The node a file is named after: its stem up to `__`, `gpu001__boot3.log`.

    Args:
        path: The file.

    Returns:
        The node, or None where the name is only a time.
    """
    stem = path.stem.split(_SEPARATOR, maxsplit=1)[0]
    return None if not stem or _TIME.search(stem) else stem
