"""The append-only log of promotions and rollbacks, and the lock under which aliases move.

What the aliases mean is in `models.registry.model_registry`; the log only remembers who moved them,
and why.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from features.errors import DataError

Move = Literal["promote", "rollback"]


@dataclass(frozen=True, kw_only=True)
class AliasMove:
    """One promotion or rollback; each is written twice, before and after the aliases moved.

    Attributes:
        at: When, UTC.
        name: Registered model.
        move: promote or rollback.
        version: The new champion.
        earlier: The champion so far; None where there was none.
        by: Who.
        reason: Why, in words.
        is_done: False: about to move; True: moved.
    """

    at: datetime
    name: str
    move: Move
    version: int
    earlier: int | None
    by: str
    reason: str
    is_done: bool

    def in_words(self) -> str:
        """The move in one line."""
        what = "made champion" if self.move == "promote" else "made champion again"
        instead = f" instead of {self.earlier}" if self.earlier is not None else ""
        state = "" if self.is_done else " (begun)"
        return (
            f"{self.at:%Y-%m-%d %H:%M} UTC  {self.name}/{self.version} {what}{instead}{state} by "
            f"{self.by}: {self.reason}"
        )


def begin_move(
    path: Path, move: Move, name: str, *, version: int, earlier: int | None, by: str, reason: str
) -> AliasMove:
    """Writes down what is about to be moved, and gives it back; see `AliasMove`."""
    begun = AliasMove(
        at=datetime.now(UTC).replace(microsecond=0),
        name=name,
        move=move,
        version=version,
        earlier=earlier,
        by=by,
        reason=reason,
        is_done=False,
    )
    append_move(path, begun)
    return begun


def append_move(path: Path, move: AliasMove) -> None:
    """Writes a line at the end and waits until the disk has it; nothing is ever rewritten."""
    line = json.dumps({**asdict(move), "at": move.at.isoformat()}, sort_keys=True) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    is_torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        # One write: lines of two processes do not mix, and a torn one is not continued.
        os.write(handle, ("\n" * is_torn + line).encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def read_moves(path: Path, name: str | None = None) -> tuple[AliasMove, ...]:
    """The log, oldest first.

    Args:
        path: The log; absent means nothing was ever moved.
        name: Only this model.

    Returns:
        The moves; a line cut off by a crash of the machine is left out.

    Raises:
        DataError: A whole line cannot be read.
    """
    if not path.exists():
        return ()
    moves = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.endswith("}"):
            continue
        try:
            values = json.loads(line)
            move = AliasMove(**{**values, "at": datetime.fromisoformat(values["at"])})
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"log of promotions {path}: line {number} cannot be read: {error}. Where "
                f"a later release wrote it, use that one; else repair or remove the line. Aliases "
                f"are not affected."
            ) from error
        if name is None or move.name == name:
            moves.append(move)
    return tuple(moves)


def interrupted_move(path: Path, name: str) -> AliasMove | None:
    """A model's last move, if it was begun and not finished."""
    moves = read_moves(path, name)
    return moves[-1] if moves and not moves[-1].is_done else None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits for other processes, then holds the lock; a process that dies gives it back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
