"""Replaces jobs of Slurm that end before their worker has connected, a few times at most.

Dask sees a worker that leaves, and `SLURMCluster` submits another; of a job that never gets as far
nobody tells it. How jobs are submitted is in `pipelines.flow.scale_slurm`.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from distributed.core import Status
from distributed.deploy.adaptive import Adaptive

# Importing dask_jobqueue has Ctrl-C end the program as if it had done its work.
_ON_INTERRUPT: Final = signal.getsignal(signal.SIGINT)
from dask_jobqueue.slurm import SLURMJob  # noqa: E402

signal.signal(signal.SIGINT, _ON_INTERRUPT)

_LOG: Final = logging.getLogger(__name__)

LEAST_ANEW: Final = 3
"""So many jobs in a row may end too early, or as many as there are workers, and are replaced."""

_ENDED: Final = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    )
)
_ASK_S: Final = 30
_NOT_SUBMITTED: Final = "sbatch refused it"


class Job(SLURMJob):
    """A job that Slurm may refuse: of one that has not begun Dask cannot end the cluster."""

    async def start(self) -> None:
        """As of `SLURMJob`."""
        try:
            await super().start()  # type: ignore[no-untyped-call]
        except (RuntimeError, OSError):
            self.status = Status.failed
            raise


@dataclass
class EarlyEnds:
    """Jobs that ended before their worker had connected.

    Attributes:
        folder: Of the jobs' output.
        most: How many in a row are replaced.
        trouble: Why no more are; empty: they are.
        is_over: Whether no job is left that could still bring a worker.
    """

    folder: Path
    most: int
    trouble: str = ""
    is_over: bool = False
    _n_in_row: int = 0
    _connected: set[str] = field(default_factory=set)
    _known: set[str] = field(default_factory=set)

    def connect(self, job_id: str) -> None:
        """Notes that a job's worker has connected: those before it have no common cause."""
        if job_id not in self._connected:
            self._connected.add(job_id)
            self._n_in_row, self.trouble = 0, ""

    def is_early(self, job_id: str | None, states: dict[str, str]) -> bool:
        """Whether a job without a worker has ended, and never had one.

        Args:
            job_id: The job; None: it could not be submitted.
            states: State and reason of each job that Slurm tells of.
        """
        if job_id is None:
            return True
        if job_id in self._connected:
            return False  # Dask has seen its worker leave
        if job_id not in states:
            return job_id in self._known  # Slurm forgets jobs after some minutes
        self._known.add(job_id)
        return states[job_id].split()[0] in _ENDED

    def replace(self, job_id: str | None, states: dict[str, str]) -> bool:
        """Notes a job that ended too early; whether it is to be replaced."""
        if self.trouble:
            return False
        self._n_in_row += 1
        said = states.get(job_id or "", "gone" if job_id else _NOT_SUBMITTED)
        written = sorted(self.folder.glob(f"*-{job_id}*")) if job_id else []
        output = ", ".join(str(path) for path in written if path.stat().st_size) or "none"
        words = f"job {job_id or '(none)'}: {said}; its output: {output}"
        _LOG.warning("scale_out.slurm: ended before its worker had connected: %s", words)
        if self._n_in_row <= self.most:
            return True
        self.trouble = (
            f"{self._n_in_row} jobs of Slurm in a row ended before their worker had connected, and "
            f"no more are submitted. The last was {words}. Correct what that says, or see "
            "`scontrol show job`"
        )
        return False


class Replacing(Adaptive):
    """Holds the number of jobs, those included that end before their worker has connected.

    Args:
        ends: Told of each such job.
    """

    def __init__(self, *args: Any, ends: EarlyEnds, **more: Any) -> None:
        super().__init__(*args, **more)
        self._ends = ends

    async def recommendations(self, target: int) -> dict[str, Any]:
        """As of `Adaptive`, which submits whatever is planned and not there."""
        await self._let_go()
        found: dict[str, Any] = await super().recommendations(target)
        return found

    async def _let_go(self) -> None:
        """Takes jobs that have ended out of those that are there."""
        cluster: Any = self.cluster  # a SLURMCluster, which has no types
        there, connected = cluster.workers, cluster.observed
        for name in connected & there.keys():
            self._ends.connect(str(there[name].job_id))
        waiting = {name: job for name, job in there.items() if name not in connected}
        if not waiting:
            self._ends.is_over = False
            return
        states = await _states()
        if states is None:
            return
        n_left = 0
        for name, job in waiting.items():
            if not self._ends.is_early(job.job_id, states):
                continue
            if self._ends.replace(job.job_id, states):
                await job.close()
                there.pop(name, None)
            else:
                n_left += 1
        self._ends.is_over = n_left == len(self.plan)


async def _states() -> dict[str, str] | None:
    """State and reason of this user's jobs; None: Slurm does not say."""
    asked = ("squeue", "--noheader", f"--user={os.getuid()}", "--states=all", "--format=%i %T (%r)")
    try:
        told = await asyncio.create_subprocess_exec(*asked, stdout=PIPE, stderr=PIPE)
    except OSError as error:
        _LOG.warning("scale_out.slurm: squeue cannot be run: %s", error)
        return None
    try:
        out, words = await asyncio.wait_for(told.communicate(), _ASK_S)
    except TimeoutError:
        told.kill()
        _LOG.warning("scale_out.slurm: squeue has not answered within %s s", _ASK_S)
        return None
    if told.returncode != 0:
        _LOG.warning("scale_out.slurm: squeue: %s", words.decode(errors="replace").strip())
        return None
    lines = (line.partition(" ") for line in out.decode().splitlines())
    return {job_id: said for job_id, _, said in lines}
