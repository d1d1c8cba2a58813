"""The present as an argument: what tells the time, and the one that tells the machine's.

Nothing that computes features asks for it: their moment is `as_of`.
"""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Gives the present, with a time zone."""


def utc_now() -> datetime:
    """The present."""
    return datetime.now(UTC)
