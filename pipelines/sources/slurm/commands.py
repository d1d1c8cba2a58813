"""Running Slurm's own commands: where they run, in which clock, and what is tried again.

What is asked for is in `slurm.pull`, what the answers mean in the modules of their formats.
"""

import random
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from features.errors import SourceError

CLOCK: Final = ("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s")
"""Put before every command: it then reads times as UTC and writes seconds since the epoch
(checked with sacct, sacctmgr and scontrol of 22.05), also behind `ssh` or `kubectl exec`."""

_ABSENT: Final = (126, 127)
_SHOWN: Final = 300


class CommandError(SourceError):
    """A command did not give what was asked for.

    Attributes:
        may_pass: Whether trying again may help.
    """

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class CommandRunner(Protocol):
    """Runs a command somewhere and gives what it prints."""

    def run(self, argv: Sequence[str], *, timeout: float) -> bytes:
        """Standard output of a command.

        Args:
            argv: Program and arguments.
            timeout: Seconds after which it is given up.

        Raises:
            CommandError: It failed, is not there, or took too long.
        """
        ...


@dataclass(frozen=True)
class LocalCommands:
    """Runs commands on this machine, or through a prefix on another.

    Attributes:
        prefix: What stands before every command, such as `("ssh", "login1")`.
        environment: Its whole environment; None: that of this process.
    """

    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None

    def run(self, argv: Sequence[str], *, timeout: float) -> bytes:
        """See `CommandRunner.run`."""
        whole = [*self.prefix, *argv]
        name = _name(argv)
        try:
            done = subprocess.run(  # noqa: S603 - a list of arguments, no shell
                whole, capture_output=True, check=False, timeout=timeout, env=self.environment,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise _absent(name, str(error)) from error
        except subprocess.TimeoutExpired as error:
            raise CommandError(
                f"{name} gave no answer within {timeout:g} s and was stopped. Is slurmctld or "
                f"slurmdbd overloaded? Ask for a shorter span, or allow more time.",
                may_pass=True,
            ) from error
        except OSError as error:
            raise CommandError(f"{name} cannot be run: {error}", may_pass=False) from error
        if done.returncode in _ABSENT:
            raise _absent(name, done.stderr.decode("utf-8", errors="replace"))
        if done.returncode:
            said = done.stderr.decode("utf-8", errors="replace").strip()[:_SHOWN]
            raise CommandError(
                f"{name} ended with code {done.returncode}: {said or '(no message)'}. Run it by "
                f"hand as the same user: {' '.join(whole)[:_SHOWN]}",
                may_pass="nvalid" not in said and "unrecognized" not in said,
            )
        return done.stdout


def _name(argv: Sequence[str]) -> str:
    return next((word for word in argv if word != "env" and "=" not in word), "the command")


def _absent(name: str, said: str) -> CommandError:
    return CommandError(
        f"{name} is not on this machine ({said.strip()[:_SHOWN]}). Install Slurm's client commands "
        f"(slurm-client), or give a prefix that runs them elsewhere, such as ssh login1.",
        may_pass=False,
    )


@dataclass(frozen=True, kw_only=True)
class PatientRunner:
    """Tries a command again that failed in passing, with limits.

    Attributes:
        runner: Runs the commands.
        attempts: How often a command is tried in all.
        first_pause_s: Pause after the first failure; doubled each time, with up to as much again
            at random, so that many collectors do not come back at once.
        longest_pause_s: Longest pause.
        sleep: Waits.
        seed: Of the random part.
    """

    runner: CommandRunner
    attempts: int = 3
    first_pause_s: float = 2.0
    longest_pause_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    seed: int | None = None

    def run(self, argv: Sequence[str], *, timeout: float) -> bytes:
        """See `CommandRunner.run`; the last failure is raised."""
        rng = random.Random(self.seed)  # noqa: S311 - no secret
        pause = self.first_pause_s
        for attempt in range(1, self.attempts + 1):
            try:
                return self.runner.run(argv, timeout=timeout)
            except CommandError as error:
                if not error.may_pass or attempt >= self.attempts:
                    raise
            self.sleep(min(self.longest_pause_s, pause * (1 + rng.random())))
            pause *= 2
        raise CommandError("no attempt is allowed: attempts must be at least 1", may_pass=False)


@dataclass
class RecordedCommands:
    """Gives recorded answers: the fake of `CommandRunner`.

    Attributes:
        answers: Program -> its answers in turn; the last one is repeated. An error is raised.
        asked: Commands so far.
    """

    answers: Mapping[str, Sequence[bytes | CommandError]]
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, timeout: float) -> bytes:  # noqa: ARG002 - the Protocol's
        """See `CommandRunner.run`."""
        name = _name(argv)
        turn = sum(_name(past) == name for past in self.asked)
        self.asked.append(tuple(argv))
        answers = self.answers.get(name)
        if not answers:
            raise _absent(name, "nothing is recorded")
        answer = answers[min(turn, len(answers) - 1)]
        if isinstance(answer, CommandError):
            raise answer
        return answer
