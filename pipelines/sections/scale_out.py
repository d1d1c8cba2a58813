"""The `scale_out` section of the settings: which other processes compute features and scores.

Using them is in `pipelines.flow.scale_out`.
"""

from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from pipelines.sections.section import Section

ONE_THREAD: Final = dict.fromkeys(
    ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
"""Environment of a worker's process: there are as many of them as cores."""

# They become lines of a job script.
_Name = Annotated[str, StringConstraints(pattern=r"^[\w.,-]+$")]
_Option = Annotated[str, StringConstraints(pattern=r"^--[a-z][a-z0-9-]*(=[^\s#]+)?$")]


class SlurmWorkers(Section):
    """Workers as jobs of Slurm, each with one core; they are submitted and ended with the run.

    Attributes:
        partition: Where jobs run; none: Slurm's default.
        account: What they are charged to; none: the user's default.
        time_limit: Of a job, as `sbatch --time` reads it; one that ends so is followed by another.
        memory_gb: Of a job.
        options: More options of sbatch, such as `--qos=low`.
        host: Name or address of this machine that compute nodes reach; none: that of its default
            route.
    """

    partition: _Name | None = None
    account: _Name | None = None
    time_limit: str = Field(default="04:00:00", pattern=r"^\d+(-\d+)?(:\d+){0,2}$")
    memory_gb: int = Field(default=2, ge=1)
    options: tuple[_Option, ...] = ()
    host: _Name | None = None


class ScaleOutSettings(Section):
    """Where features and scores of long spans are computed; by default in the process that asks.

    Attributes:
        scheduler: Address of a Dask scheduler, such as `tcp://head:8786`; its workers must see
            `data_root` at the same path, or have tables in a bucket.
        workers: Without a scheduler: processes on this machine, or jobs of Slurm. With one: workers
            to wait for before the first part is handed out.
        wait_minutes: How long workers are waited for, at first and when none is left.
        slurm: Has the workers be jobs of Slurm.
    """

    scheduler: str | None = Field(default=None, pattern=r"^(tcp|tls)://[^\s/:]+:\d{1,5}$")
    workers: int = Field(default=0, ge=0, le=10_000)
    wait_minutes: float = Field(default=5.0, gt=0)
    slurm: SlurmWorkers | None = None

    @property
    def is_on(self) -> bool:
        """Whether other processes compute at all."""
        return self.scheduler is not None or self.workers > 0

    @property
    def n_awaited(self) -> int:
        """Workers to be there before work is handed out: of jobs in a queue, the first."""
        return 1 if self.slurm else max(1, self.workers)

    @model_validator(mode="after")
    def _check_slurm(self) -> Self:
        if self.slurm and self.scheduler:
            raise ValueError("slurm starts a scheduler of its own: leave one of the two out")
        if self.slurm and not self.workers:
            raise ValueError("slurm needs workers: how many jobs")
        return self
