"""Training jobs as the scheduler gets them, and what is known of one while it is there.

How jobs are drawn from a trace is in `simulation.scheduling.workload`.
"""

from dataclasses import dataclass, field

from remediation.cluster.state import JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job.

    Attributes:
        number: Its index among the jobs of the run.
        submit_s: Seconds from the start of the run.
        duration_s: Seconds it runs with its base workers.
        worker_gpus: GPUs of one worker on a training server.
        min_workers: Base workers, without which it does not run.
        max_workers: Most workers it can use; equal to `min_workers` where it is not elastic.
        is_fungible: Whether it may run on inference GPUs.
        is_counted: Whether it counts in the result; jobs that were there at the start do not.
    """

    number: int
    submit_s: float
    duration_s: float
    worker_gpus: int = 1
    min_workers: int = 1
    max_workers: int = 1
    is_fungible: bool = False
    is_counted: bool = True

    @property
    def n_gpus(self) -> int:
        """GPUs of the base workers on training servers."""
        return self.min_workers * self.worker_gpus

    @property
    def max_extra(self) -> int:
        """Workers it can use beyond its base."""
        return self.max_workers - self.min_workers


@dataclass(slots=True, eq=False)
class Progress:
    """One job in the run; changed by the engine alone.

    Attributes:
        job: The job.
        remaining_s: Seconds left with base workers, as of `settled_s`.
        settled_s: When `remaining_s` was right.
        waiting_s: When it began to wait last.
        queued_s: Seconds it waited in all.
        preemptions: How often it lost its base workers.
        end_s: When it ended; None: not yet.
        base: GPUs taken on each server by its base workers; empty: it waits.
        flexible: Flexible workers on each server.
        extra: Flexible workers in all.
        turn: Changes whenever its end moves, so that older ends are known as stale.
        view: As the hook sees its base workers, where they are on lent servers.
    """

    job: Job
    remaining_s: float
    settled_s: float = 0.0
    waiting_s: float = 0.0
    queued_s: float = 0.0
    preemptions: int = 0
    end_s: float | None = None
    base: dict[int, int] = field(default_factory=dict)
    flexible: dict[int, int] = field(default_factory=dict)
    extra: int = 0
    turn: int = 0
    view: JobView | None = None

    @property
    def rate(self) -> float:
        """Speed against base workers alone: linear in workers."""
        return 1.0 + self.extra / self.job.min_workers

    def settle(self, now_s: float) -> None:
        """Counts the work done since the last time."""
        if self.base:
            self.remaining_s = max(0.0, self.remaining_s - (now_s - self.settled_s) * self.rate)
        self.settled_s = now_s
