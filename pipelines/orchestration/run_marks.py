"""A mark for each run that is at work: a lock that its process holds, and loses when it ends.

What a run does, and who is told that it died, is known to `pipelines.defs.resources` and the
sensors.
"""

import atexit
import contextlib
import fcntl
from pathlib import Path
from typing import IO, Final, Literal

_SUFFIX: Final = ".run"

_held: list[tuple[Path, IO[str]]] = []
"""The mark of this process. It outlives the run: that a run has ended is written after all that
belongs to it was given back, and a process may be killed in between."""


def mark(folder: Path, run_id: str) -> None:
    """Takes the mark of a run. It lasts until the process ends, or takes that of its next run.

    Args:
        folder: Where marks are; made where absent.
        run_id: The run.

    Raises:
        OSError: The file cannot be made, or the disk knows no locks.
    """
    _give_back()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run_id}{_SUFFIX}"
    # Locked before it has its name: nobody ever finds it free while the run lives.
    unnamed = path.with_suffix(".new")
    file = unnamed.open("w")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.replace(path)
    _held.append((path, file))


def _give_back() -> None:
    while _held:
        path, file = _held.pop()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        file.close()


atexit.register(_give_back)


def dead(folder: Path) -> list[str]:
    """Runs whose process has ended, be it well or not, and left its mark.

    Args:
        folder: Where marks are.
    """
    found = (path.name.removesuffix(_SUFFIX) for path in folder.glob(f"*{_SUFFIX}"))
    return sorted(run_id for run_id in found if state_of(folder, run_id) == "dead")


def state_of(folder: Path, run_id: str) -> Literal["at_work", "dead", "unmarked", "unknown"]:
    """What the mark of a run says of it.

    A process that was killed leaves its mark unlocked. A run without a mark has not begun, has
    ended, or is on a machine that shares no disk with this one.

    Args:
        folder: Where marks are.
        run_id: The run.
    """
    path = folder / f"{run_id}{_SUFFIX}"
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # Given back since it was opened: the run has ended, and said so itself.
            return "dead" if path.exists() else "unmarked"
    except BlockingIOError:
        return "at_work"
    except FileNotFoundError:
        return "unmarked"
    except OSError:
        return "unknown"


def sweep(folder: Path, run_id: str) -> None:
    """Removes the mark of a run whose process has ended."""
    with contextlib.suppress(OSError):
        (folder / f"{run_id}{_SUFFIX}").unlink(missing_ok=True)
