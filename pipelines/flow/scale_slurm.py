"""Workers of a scaled-out run as jobs of Slurm, by dask-jobqueue.

What they compute is in `pipelines.flow.scale_work`; the job script for workers that stay is in
deploy/slurm.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from features.errors import SettingsError
from pipelines.sections.scale_out import ONE_THREAD, SlurmWorkers

if TYPE_CHECKING:
    from dask_jobqueue.slurm import SLURMCluster
    from distributed import Security

    from pipelines.flow.slurm_jobs import EarlyEnds

JOB_NAME: Final = "forewarn-worker"
_ALONE_S: Final = 60
"""A worker that finds no scheduler for so long ends its job."""
_LOOK_EVERY: Final = "5s"
_ASK_S: Final = 60


@contextmanager
def slurm_workers(
    slurm: SlurmWorkers, n_jobs: int, *, folder: Path
) -> Iterator[tuple["SLURMCluster", "EarlyEnds"]]:
    """A scheduler in this process, whose workers are jobs of Slurm until the block ends.

    A job that ends before, by its time limit or by hand, is followed by another; of those that end
    before their worker has connected, only some in a row.

    Args:
        slurm: What jobs.
        n_jobs: How many.
        folder: For certificates and the jobs' output; compute nodes see it too. Output stays there
            if the block fails.

    Raises:
        SettingsError: dask-jobqueue or Slurm is not installed, Slurm refuses such a job, its script
            could not name the folder, or no scheduler can listen here.
    """
    if len(str(folder).split()) > 1:
        raise SettingsError(
            f"scale_out.slurm: {folder} has a blank in its path, where lines of a job script would "
            "break. Give data_root a path without, or start workers by "
            "deploy/slurm/dask_workers.sh and name their scheduler instead."
        )
    check_jobs(slurm)
    folder.mkdir(parents=True, exist_ok=True)
    mine = Path(tempfile.mkdtemp(dir=folder))
    try:
        with _security(mine) as security, _cluster(slurm, mine, security=security) as cluster:
            from pipelines.flow.slurm_jobs import LEAST_ANEW, EarlyEnds, Replacing

            ends = EarlyEnds(mine, most=max(LEAST_ANEW, n_jobs))
            # Equal bounds: a cluster that is merely scaled does not replace a job that has ended.
            bounds = {"minimum": n_jobs, "maximum": n_jobs, "interval": _LOOK_EVERY}
            cluster.adapt(Replacing, ends=ends, **bounds)
            yield cluster, ends
        # A job that is just ending may still open its output.
        shutil.rmtree(mine, ignore_errors=True)
    finally:
        with suppress(OSError):  # not empty: a failed run's output
            mine.rmdir()


def _cluster(slurm: SlurmWorkers, folder: Path, *, security: "Security") -> "SLURMCluster":
    """A scheduler without any job as yet."""
    try:
        from pipelines.flow.slurm_jobs import Job  # first: it keeps Ctrl-C as it is

        from dask_jobqueue.slurm import SLURMCluster  # isort: skip
    except ImportError as error:
        raise SettingsError(
            "scale_out.slurm needs dask-jobqueue, which is not installed. Install forewarn[dask], "
            "or leave scale_out.slurm out of the settings."
        ) from error
    with _refusal(slurm):
        return SLURMCluster(
            job_cls=Job,  # type: ignore[arg-type]  # there it is said to be a job, not its class
            queue=slurm.partition,
            account=slurm.account,
            walltime=slurm.time_limit,
            cores=1,
            processes=1,
            memory=f"{slurm.memory_gb}GiB",
            job_name=JOB_NAME,
            job_extra_directives=list(slurm.options),
            job_script_prologue=[f"export {name}={value}" for name, value in ONE_THREAD.items()],
            log_directory=str(folder),
            worker_extra_args=["--no-dashboard"],
            death_timeout=_ALONE_S,
            security=security,  # who may connect may run code
            scheduler_options={
                "dashboard_address": "127.0.0.1:0",
                **({"host": slurm.host} if slurm.host else {}),
            },
        )


@contextmanager
def _refusal(slurm: SlurmWorkers) -> Iterator[None]:
    """Says why no scheduler has started; what is raised then is about its missing address."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        first: BaseException = error
        while before := first.__cause__ or first.__context__:
            first = before
        where = slurm.host or "the address of the default route"
        raise SettingsError(
            f"scale_out.slurm: no scheduler can listen at {where}: {first}. Set "
            "scale_out.slurm.host to a name or address of this machine that compute nodes reach "
            "(`ip address` lists them), see ~/.config/dask/jobqueue.yaml, then run again."
        ) from error


@contextmanager
def _security(folder: Path) -> Iterator["Security"]:
    """Certificates for this run alone, in files that only this user reads, until the block ends."""
    from distributed import Security

    made = Security.temporary()
    files: dict[str, Path] = {}
    for role in ("scheduler", "worker", "client"):
        for name, text in made.get_tls_config_for_role(role).items():
            if name in ("ca_file", "cert", "key"):
                key = "tls_ca_file" if name == "ca_file" else f"tls_{role}_{name}"
                files[key] = folder / f"{key}.pem"
                files[key].touch(mode=0o600)
                files[key].write_text(text)
    try:
        yield Security(require_encryption=True, **{key: str(path) for key, path in files.items()})
    finally:
        for path in files.values():
            path.unlink(missing_ok=True)


def check_jobs(slurm: SlurmWorkers) -> None:
    """Has Slurm judge a job before any is submitted: a refusal later would be a line in a log.

    Args:
        slurm: What jobs are asked for.

    Raises:
        SettingsError: Slurm is not here, does not answer, or would not run such a job.
    """
    if shutil.which("sbatch") is None:
        raise SettingsError(
            "scale_out.slurm: no sbatch in PATH. Run this on a machine that submits jobs, or start "
            "workers by deploy/slurm/dask_workers.sh and name their scheduler instead."
        )
    words = ["--cpus-per-task=1", f"--mem={slurm.memory_gb}G", f"--time={slurm.time_limit}"]
    words += [f"--partition={slurm.partition}"] if slurm.partition else []
    words += [f"--account={slurm.account}"] if slurm.account else []
    try:
        told = subprocess.run(  # noqa: S603 - a list of arguments, no shell
            ["sbatch", "--test-only", *words, *slurm.options, "--wrap=true"],  # noqa: S607 - in PATH
            capture_output=True,
            text=True,
            check=False,
            timeout=_ASK_S,
        )
    except subprocess.TimeoutExpired as error:
        raise SettingsError(
            f"scale_out.slurm: sbatch has not answered within {_ASK_S} s. See whether slurmctld "
            "runs (scontrol ping), then run again."
        ) from error
    if told.returncode != 0:
        raise SettingsError(
            f"scale_out.slurm: no node would run such a job: {' '.join(told.stderr.split())}. "
            "Correct partition, account, time_limit, memory_gb or options, or see sinfo, then run "
            "again."
        )
