"""A lock between processes of one machine, or of several that share a disk: held, or not got.

What is done under it is known to those who take it.
"""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

_LOG: Final = logging.getLogger(__name__)


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether this process holds the lock until the block ends; it does not wait for another.

    A process that is killed lets go of it.

    Args:
        path: The lock's file; it and its folder are made where absent.

    Raises:
        OSError: The file cannot be made, or the disk knows no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """As `held`, for work that loses nothing when two do it: without locks it is done all the same.

    Args:
        path: The lock's file.
    """
    with ExitStack() as stack:
        try:
            is_alone = stack.enter_context(held(path))
        except OSError as error:
            _LOG.warning("%s cannot be locked: %s", path, error)
            is_alone = True
        yield is_alone


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Holds the lock until the block ends, after waiting for whoever holds it.

    Without locks, or without the right to write there, the block runs all the same.

    Args:
        path: The lock's file; it is made where absent, its folder is not.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a"))
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            _LOG.warning("%s cannot be locked: %s", path, error)
        yield
