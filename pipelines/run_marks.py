"""A mark for each run that is at work: a lock that its process holds, and loses when it dies.

What a run does, and who is told that it died, is known to `pipelines.resources` and the sensors.
"""

import contextlib
import fcntl
from pathlib import Path
from typing import IO, Final, Literal

_SUFFIX: Final = ".run"


def mark(folder: Path, run_id: str) -> IO[str]:
    """Takes the mark of a run; it lasts until the file is closed, or the process ends.

    Args:
        folder: Where marks are; made where absent.
        run_id: The run.

    Returns:
        The open file.

    Raises:
        OSError: The file cannot be made, or the disk knows no locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / f"{run_id}{_SUFFIX}").open("w")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def unmark(folder: Path, run_id: str, file: IO[str]) -> None:
    """Gives the mark of a run back."""
    (folder / f"{run_id}{_SUFFIX}").unlink(missing_ok=True)
    file.close()


def state_of(folder: Path, run_id: str) -> Literal["at_work", "dead", "unknown"]:
    """What the mark of a run says of it.

    A process that was killed leaves its mark unlocked. Without a mark nothing is known: the run
    has not begun, has ended, or is on a machine that shares no disk with this one.

    Args:
        folder: Where marks are.
        run_id: The run.
    """
    path = folder / f"{run_id}{_SUFFIX}"
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "at_work"
    except OSError:
        return "unknown"
    return "dead"


def sweep(folder: Path, run_id: str) -> None:
    """Removes the mark of a run that died."""
    with contextlib.suppress(OSError):
        (folder / f"{run_id}{_SUFFIX}").unlink(missing_ok=True)
