"""What the Slurm actuator does to the jobs of a node that it holds: notices and interruptions.

Whether a node may be held is not decided here.
"""

from collections.abc import Collection

from features.errors import SourceError
from remediation.actuators.protocol import Order, Outcome
from remediation.actuators.slurm_commands import interrupt_commands, notify_command
from remediation.actuators.slurm_records import SlurmJob
from remediation.actuators.slurm_run import CommandRunner, Ran
from remediation.actuators.slurm_state import SlurmCluster


def notify_jobs(
    order: Order, cluster: SlurmCluster, runner: CommandRunner, *, timeout_s: float
) -> Outcome:
    """Tells the jobs of the order that are still on the node; who could not be told is named.

    Args:
        order: The order.
        cluster: Reads the jobs.
        runner: Runs the commands.
        timeout_s: Seconds for each.
    """
    jobs = _present(order, cluster)
    if isinstance(jobs, Outcome):
        return jobs
    said, commands = [], []
    for job in jobs:
        command = notify_command(order, job.view, number=job.number)
        commands.append(command)
        ran = runner.run(command, timeout_s=timeout_s)
        if ran.code != 0:
            said.append(f"job {job.view.job_id} may not have been told: {ran}")
    return Outcome(status="done", detail="; ".join(said), commands=tuple(commands))


def interrupt_jobs(
    order: Order,
    cluster: SlurmCluster,
    runner: CommandRunner,
    *,
    interruptible: Collection[str],
    timeout_s: float,
) -> Outcome:
    """Requeues the jobs of the order that are still on the node and allow it, now.

    Others are left running unless their partition is listed; then they are cancelled. A job that
    is ending is not interrupted again.

    Args:
        order: The order.
        cluster: Reads the jobs, before and after.
        runner: Runs the commands.
        interruptible: The listed partitions.
        timeout_s: Seconds for each.

    Returns:
        done, with the jobs that are left and why; not_done where nothing was run; ambiguous where
        a job is still there and nobody knows whether its command is under way.
    """
    jobs = _present(order, cluster)
    if isinstance(jobs, Outcome):
        return jobs
    said: list[str] = []
    ran: dict[str, Ran] = {}
    for job in jobs:
        wanted = interrupt_commands([job.view], interruptible=interruptible)
        if not wanted:
            said.append(f"job {job.view.job_id} may not be interrupted and runs on")
        for command in wanted:
            ran[job.view.job_id] = runner.run(command, timeout_s=timeout_s)
    said += [str(one) for one in ran.values() if one.code != 0]
    is_clear = True
    if ran:
        left = _present(order, cluster)
        if isinstance(left, Outcome):
            said.append(left.detail)
            is_clear = False
        else:
            names = [job.view.job_id for job in left if job.view.job_id in ran]
            said += [f"job {name} still runs" for name in names]
            is_clear = all(ran[name].is_refusal for name in names)
    return Outcome(
        status="done" if is_clear else "ambiguous",
        detail="; ".join(said),
        commands=tuple(one.command for one in ran.values()),
    )


def _present(order: Order, cluster: SlurmCluster) -> list[SlurmJob] | Outcome:
    """The jobs of the order that are on the node and not ending, as they are now."""
    wanted = {job.job_id for job in order.jobs}
    try:
        jobs = cluster.jobs_on(order.expected.name)
    except SourceError as error:
        return Outcome(status="not_done", detail=f"the jobs on it cannot be told: {error}")
    return [job for job in jobs if job.view.job_id in wanted and not job.is_ending]
