"""Runs checks of nodes: any command, with a time limit, whose exit code says passed or failed.

Which check a node needs, and what follows from it, is in `remediation.holds.returning`.

A check is a list of arguments from the site file. `{node}` in them becomes the node's name; no
shell runs here, and a name that is not plain never gets this far. `ssh` hands its words to a
shell on the other side, and does not end there what is killed here: put `timeout` before it.
Should the hook itself be killed, systemd ends its checks with it (`KillMode=control-group`).

    check:                             # a full diagnosis by DCGM
      name: diagnosis
      command: [ssh, -o, BatchMode=yes, "{node}", timeout, "3300", dcgmi, diag, -r, "3"]
      timeout_minutes: 60
      is_under_load: true

    check:                             # the same by Slurm; a reservation lets it on a drained node
      name: diagnosis
      command: [srun, --reservation=forewarn, "--nodelist={node}", --nodes=1, --exclusive,
                --immediate=60, --time=60, dcgmi, diag, -r, "3"]
      timeout_minutes: 65
      is_under_load: true

    check:                             # NCCL tests: with -c 1 a wrong sum exits with 1
      name: all-reduce
      command: [ssh, -o, BatchMode=yes, "{node}", timeout, "540", all_reduce_perf,
                -b, 1G, -e, 8G, -f, "2", -g, "8", -c, "1"]
      timeout_minutes: 10
      is_under_load: true
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from selectors import EVENT_READ, DefaultSelector
from typing import IO, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from features.clock import Clock
from features.errors import DataError
from remediation.actuators.slurm_commands import is_plain_node_name

CheckStatus = Literal["passed", "failed", "unknown"]

PLACE: Final = "{node}"
MOST_OUTPUT: Final = 16_384
"""Bytes kept of what a check says: its end, where it sums up."""

PASSED_ON: Final = ("HOME", "LANG", "PATH", "USER", "SSH_AUTH_SOCK", "SLURM_CONF", "KUBECONFIG")
"""Variables a check sees; others, such as keys, are not its business."""

_GRACE_S: Final = 5.0
_POLL_S: Final = 0.1
_PIECE: Final = 65_536
_PIECES: Final = 64


class Check(BaseModel):
    """A command that finds out whether a node is well.

    Attributes:
        name: What it is called in the ledger.
        command: Program and arguments; `{node}` stands for the node's name.
        timeout_minutes: After this it is killed with all it started, and its outcome is unknown.
        expected_exit: Exit code of a node that is well.
        unknown_exits: Exit codes that say nothing about the node: by default those of `timeout`
            (124, 137), of a program that could not be started (126, 127), and of `ssh` without a
            connection (255).
        is_under_load: Whether it loads the GPUs; only such a check can bring a node back.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=60)
    command: tuple[str, ...] = Field(min_length=1)
    timeout_minutes: float = Field(default=60.0, gt=0, le=10_080)
    expected_exit: int = Field(default=0, ge=0, le=255)
    unknown_exits: tuple[int, ...] = (124, 126, 127, 137, 255)
    is_under_load: bool = False

    @field_validator("command")
    @classmethod
    def _only_known_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if PLACE in value[0] or not value[0]:
            raise ValueError("the program itself must be named, and not by the node")
        unknown = [word for word in value if re.search(r"\{\w*\}", word.replace(PLACE, ""))]
        if unknown or any("\0" in word for word in value):
            raise ValueError(f"only {PLACE} can be filled in, found {unknown or 'a NUL'}")
        return value

    def arguments(self, node: str) -> tuple[str, ...]:
        """The command for one node.

        Raises:
            DataError: The name could mean more than one node, or an option.
        """
        if not is_plain_node_name(node):
            raise DataError(f"check {self.name}: {node!r} is not the plain name of one node")
        return tuple(word.replace(PLACE, node) for word in self.command)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What a check found.

    Attributes:
        node: Node.
        boot_id: Instance and boot that was checked; None: unknown.
        check: Name of the check.
        status: passed, failed, or unknown: it did not end, could not be started or was stopped.
        is_under_load: Whether it loaded the GPUs.
        started_at: When it began.
        ended_at: When it ended.
        exit_code: Its exit code; None: none, or by a signal.
        detail: How it ended, in words.
        output: The end of what it said.
    """

    node: str
    boot_id: str | None
    check: str
    status: CheckStatus
    is_under_load: bool
    started_at: datetime
    ended_at: datetime
    exit_code: int | None
    detail: str
    output: str


class CheckRunner:
    """Runs checks beside the hook's ticks, a few at a time and one per node.

    Args:
        clock: The present.
        environment: The environment of this process; checks see `PASSED_ON` of it.
        at_once: How many checks may run at a time.
    """

    def __init__(self, *, clock: Clock, environment: Mapping[str, str], at_once: int = 2) -> None:
        self._clock = clock
        self._environment = {name: environment[name] for name in PASSED_ON if name in environment}
        self._at_once = at_once
        self._pool = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="check")
        self._running: dict[str, Future[CheckResult]] = {}
        self._wanted: set[str] = set()
        self._is_stopped = False

    def __enter__(self) -> Self:
        """The runner itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what runs: otherwise the program would wait for it at its end."""
        self.stop()

    @property
    def running(self) -> frozenset[str]:
        """Nodes whose check was begun and not yet taken by `finished`."""
        return frozenset(self._running)

    def start(self, check: Check, *, node: str, boot_id: str | None) -> bool:
        """Begins a check.

        Args:
            check: The check.
            node: Node.
            boot_id: Its instance and boot.

        Returns:
            Whether it was begun; False: one of the node runs, or as many as may.

        Raises:
            DataError: The node's name is not plain.
        """
        arguments = check.arguments(node)
        if self._is_stopped or node in self._running or len(self._running) >= self._at_once:
            return False
        self._wanted.add(node)
        self._running[node] = self._pool.submit(self._run, check, arguments, node, boot_id)
        return True

    def keep(self, nodes: Collection[str]) -> None:
        """Kills the checks of all other nodes: a load test must not run beside new jobs.

        Args:
            nodes: Nodes whose checks may go on.
        """
        self._wanted.intersection_update(nodes)

    def finished(self, *, wait_s: float = 0.0) -> tuple[CheckResult, ...]:
        """The results of checks that have ended, each once.

        Args:
            wait_s: How long to wait for those that run.
        """
        end = time.monotonic() + wait_s
        while any(not one.done() for one in self._running.values()) and time.monotonic() < end:
            time.sleep(_POLL_S)
        ended = sorted(node for node, one in self._running.items() if one.done())
        return tuple(self._running.pop(node).result() for node in ended)

    def stop(self) -> tuple[CheckResult, ...]:
        """Kills all that run, and begins no more; those killed are unknown."""
        self._is_stopped = True
        self._pool.shutdown(wait=True)
        return self.finished()

    def _run(
        self, check: Check, arguments: tuple[str, ...], node: str, boot_id: str | None
    ) -> CheckResult:
        started_at = self._clock()
        code, why, output = self._carry_out(node, arguments, check.timeout_minutes * 60)
        if why is None:
            status, detail = _judge(check, code)
        else:
            status, detail = "unknown", why
        return CheckResult(
            node=node,
            boot_id=boot_id,
            check=check.name,
            status=status,
            is_under_load=check.is_under_load,
            started_at=started_at,
            ended_at=self._clock(),
            exit_code=code,
            detail=detail,
            output=output.decode("utf-8", errors="replace"),
        )

    def _carry_out(
        self, node: str, arguments: tuple[str, ...], timeout_s: float
    ) -> tuple[int | None, str | None, bytes]:
        """Exit code, why there is none that counts, and the end of the output."""
        try:
            process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return None, f"could not be started: {error}", b""
        tail = None
        end = time.monotonic() + timeout_s
        why = None
        try:
            tail = _Tail(process)
            while not tail.read(_POLL_S):
                if self._is_stopped:
                    why = "stopped together with the hook"
                elif node not in self._wanted:
                    why = "stopped, for the node is no longer held"
                elif time.monotonic() >= end:
                    why = f"did not end within {timeout_s / 60:g} min"
                if why is not None:
                    break
        except OSError as error:
            why = f"could not be watched: {error}"
        finally:
            _end(process, tail)
        code = process.returncode if why is None else None
        return code, why, b"" if tail is None else tail.content


def _judge(check: Check, code: int | None) -> tuple[CheckStatus, str]:
    if code is None or code < 0:
        return "unknown", "ended by a signal" if code is None else f"ended by signal {-code}"
    if code == check.expected_exit:
        return "passed", f"exit code {code}"
    if code in check.unknown_exits:
        return "unknown", f"exit code {code}, which says nothing about the node"
    return "failed", f"exit code {code}, expected {check.expected_exit}"


class _Tail:
    """Reads a process's output as it comes, and keeps its end.

    Args:
        process: The process.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pipe: IO[bytes] = process.stdout  # type: ignore[assignment]  # PIPE was asked for
        os.set_blocking(self._pipe.fileno(), False)
        self._selector = DefaultSelector()
        self._selector.register(self._pipe, EVENT_READ)
        self._is_open = True
        self.content = b""

    def read(self, seconds: float) -> bool:
        """Reads for some time; whether the process has ended and all it said was read."""
        # What it left running may hold the pipe for good, so its own end is what counts. So many
        # pieces at most, for it may write faster than anyone reads.
        is_over = _has_ended(self._process)
        if self._is_open and self._selector.select(0.0 if is_over else seconds):
            any(not self._read_piece() for _ in range(_PIECES))
        elif not is_over and not self._is_open:
            time.sleep(seconds)
        return is_over

    def close(self) -> None:
        self._selector.close()

    def _read_piece(self) -> bool:
        try:
            piece = os.read(self._pipe.fileno(), _PIECE)
        except BlockingIOError:
            return False
        if not piece:
            self._selector.unregister(self._pipe)
            self._is_open = False
            return False
        self.content = (self.content + piece)[-MOST_OUTPUT:]
        return True


def _end(process: subprocess.Popen[bytes], tail: _Tail | None) -> None:
    """Ends the process and all it started: asks first, for a diagnosis may have to tidy up."""
    if tail is not None and not _has_ended(process):
        _signal(process, signal.SIGTERM)
        end = time.monotonic() + _GRACE_S
        while not tail.read(_POLL_S) and time.monotonic() < end:
            pass
    _signal(process, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # what sudo started is left to it
        process.wait(_GRACE_S)
    if tail is not None:
        tail.close()
    if process.stdout is not None:
        process.stdout.close()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; it is not yet reaped, so that its group's number stays its own."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    # The group outlives its first process; that it is gone, or another user's, is no trouble here.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
