"""Runs Slurm's own commands as argument lists, and tells exactly how each one ended.

Which commands, and what their answers mean, is in the other `slurm_*` modules.
"""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Protocol

from features.errors import SourceError

CLOCK: Final = ("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s")
"""Put before a command that is asked for times: it then writes seconds since the epoch."""

_NOT_STARTED: Final = (126, 127)
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5
_SHOWN: Final = 300
_UNASKED: Final = ("env", *CLOCK[1:])

# What slurmctld or scontrol says when it refused, so that surely nothing changed. Whatever is not
# here (no answer, a lost connection, a text of a newer release) leaves the effect open.
_REFUSALS: Final = (
    "Invalid node name specified",
    "Invalid node state specified",
    "Invalid user id",
    "Invalid job id specified",
    "Access/permission denied",
    "Requested operation is presently disabled",
    "Only batch jobs are accepted",
    "You must specify a reason",
    "Protocol authentication error",
    "not allowed to execute",
    "a password is required",
)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a command ended.

    Attributes:
        command: What was run, without the prefix.
        code: Exit code; None: it gave no answer in time and was killed.
        out: Standard output.
        err: Standard error.
    """

    command: tuple[str, ...]
    code: int | None
    out: str = ""
    err: str = ""

    @property
    def is_refusal(self) -> bool:
        """Whether it surely changed nothing: it never started, or Slurm said no."""
        if self.code in _NOT_STARTED:
            return True
        return self.code not in (None, 0) and any(text in self.err for text in _REFUSALS)

    def __str__(self) -> str:
        """Command, exit code and what it said, for a person."""
        program = " ".join(word for word in self.command if word not in _UNASKED)[:_SHOWN]
        if self.code is None:
            return f"`{program}` gave no answer in time and was stopped"
        said = (self.err.strip() or self.out.strip())[:_SHOWN] or "(no message)"
        return f"`{program}` ended with code {self.code}: {said}"


class CommandRunner(Protocol):
    """Runs a command somewhere."""

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        meanwhile: Callable[[], None] | None = None,
    ) -> Ran:
        """Runs a command to its end, or until the time is over.

        Args:
            command: Program and arguments.
            timeout_s: Seconds after which it is killed.
            meanwhile: Called now and then while the command is under way.

        Returns:
            How it ended; that it failed, or could not be started, is an answer too.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class LocalRunner:
    """Runs commands on this machine, or through a prefix on another or as another user.

    No shell runs here. `ssh` hands its words to a shell on the other side, so behind it each
    word is quoted.

    Attributes:
        prefix: What stands before every command: `("sudo", "-n")`, `("ssh", "login1")`.
        environment: Its whole environment; None: that of this process.
    """

    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        meanwhile: Callable[[], None] | None = None,
    ) -> Ran:
        """As in `CommandRunner`."""
        words = tuple(command)
        is_remote = bool(self.prefix) and PurePath(self.prefix[0]).name == "ssh"
        whole = [*self.prefix, *(map(shlex.quote, words) if is_remote else words)]
        try:
            process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
                whole, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=self.environment, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            return Ran(command=words, code=_NOT_STARTED[1], err=str(error))
        return _wait(process, words, timeout_s=timeout_s, meanwhile=meanwhile)


def _wait(
    process: subprocess.Popen[bytes],
    words: tuple[str, ...],
    *,
    timeout_s: float,
    meanwhile: Callable[[], None] | None,
) -> Ran:
    end = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S if meanwhile else timeout_s
    while True:
        left = end - time.monotonic()
        try:
            out, err = process.communicate(timeout=max(0.0, min(pause, left)))
            return Ran(command=words, code=process.returncode, out=_text(out), err=_text(err))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= end:
                _kill(process)
                return Ran(command=words, code=None)
        if meanwhile:
            meanwhile()
        pause = min(_LONGEST_PAUSE_S, 2 * pause)


def _text(data: bytes) -> str:
    # Not as text from the start: that would turn a lone carriage return into a line's end.
    return data.decode("utf-8", errors="replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the command with all it started, as far as that is allowed."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:  # it runs as another user (sudo), or is gone
        with suppress(PermissionError):
            process.kill()
    try:
        process.communicate(timeout=1.0)
    except subprocess.TimeoutExpired:
        # What sudo started lives on and holds the pipes: they are left to it.
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def ask(runner: CommandRunner, command: Sequence[str], *, timeout_s: float) -> Ran:
    """Runs a command that must answer.

    Raises:
        SourceError: It failed or took too long; names command, exit code and what it said.
    """
    ran = runner.run((*CLOCK, *command), timeout_s=timeout_s)
    if ran.code != 0:
        raise SourceError(
            f"{ran}. The cluster's state is unknown; run the command by hand as the same user."
        )
    return ran
