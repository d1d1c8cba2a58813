"""The exact argument lists that carry out an order on Slurm; never shell text.

Nothing is run here: the dry run shows these lists, `remediation.actuators.slurm` runs them.
"""

import re
from collections.abc import Collection
from typing import Final

from features.errors import DataError
from remediation.actuators.protocol import Order
from remediation.cluster.reasons import PREFIX
from remediation.cluster.state import JobView

# Node names come from logs. scontrol reads `ALL`, commas and brackets as many nodes, so a name
# must be one plain word.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_JOB = re.compile(r"[0-9]+(_[0-9]+|\+[0-9]+)?")
_MANY: Final = "all"

GIVES_NOTICE: Final = ("checkpoint_then_drain", "drain_now")

Command = tuple[str, ...]


def is_plain_node_name(name: str) -> bool:
    """Whether a name can only mean one node.

    >>> [is_plain_node_name(name) for name in ("gpu-07.rack2", "gpu[1-99]", "ALL")]
    [True, False, False]
    """
    return bool(_NODE.fullmatch(name)) and name.lower() != _MANY


def hold_commands(order: Order, *, interruptible: Collection[str] = ()) -> tuple[Command, ...]:
    """The commands that cordon or drain a node.

    For Slurm both are `State=DRAIN`. A deadline first warns the jobs; a drain at once warns them
    and interrupts those that may be.

    Args:
        order: The order.
        interruptible: Partitions whose jobs may be cancelled where they may not be requeued.

    Raises:
        DataError: The node's name or a job's id could mean more than one.
    """
    drain = drain_command(order)
    for job in order.jobs:
        _checked_job(job.job_id)
    if order.action not in GIVES_NOTICE:
        return (drain,)
    notices = tuple(notify_command(order, job, number=job.job_id) for job in order.jobs)
    if order.action == "checkpoint_then_drain":
        return (drain, *notices)
    return (drain, *notices, *interrupt_commands(order.jobs, interruptible=interruptible))


def drain_command(order: Order) -> Command:
    """Takes a node out of service; its jobs run on.

    Raises:
        DataError: The node's name could mean more than one.
    """
    node = _checked_node(order.expected.name)
    return ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={order.reason}")


def undrain_commands(order: Order) -> tuple[Command, ...]:
    """The command that returns a node: `UNDRAIN`, which never revives one that is down.

    Raises:
        DataError: The node's name could mean more than one.
    """
    node = _checked_node(order.expected.name)
    return (("scontrol", "update", f"NodeName={node}", "State=UNDRAIN"),)


def notify_command(order: Order, job: JobView, *, number: str) -> Command:
    """Tells a job what is coming, on its standard error.

    Args:
        order: The order.
        job: The job.
        number: Its plain job id: scontrol notifies no `7_1`.
    """
    node = _checked_node(order.expected.name)
    when = (
        "now"
        if order.action == "drain_now"
        else f"in {order.notice_minutes:.0f} minutes, where that is allowed"
    )
    text = f"{PREFIX} node {node} is about to fail; write a checkpoint. Job {job.job_id} is "
    return ("scontrol", "notify", _checked_job(number), f"{text}interrupted {when}.")


def interrupt_commands(
    jobs: Collection[JobView], *, interruptible: Collection[str]
) -> tuple[Command, ...]:
    """Requeues the jobs that allow it; cancels others only if their partition is listed.

    A job of which it is unknown counts as one that does not allow it.

    Args:
        jobs: Jobs on the node.
        interruptible: The listed partitions.
    """
    commands: list[Command] = []
    for job in jobs:
        job_id = _checked_job(job.job_id)
        if job.is_requeue_allowed is True:
            commands.append(("scontrol", "requeue", job_id))
        elif job.partition is not None and job.partition in interruptible:
            commands.append(("scancel", job_id))
    return tuple(commands)


def restore_command(node: str, reason: str, *, is_drain: bool) -> Command:
    r"""Gives a node back the reason that somebody else had set.

    The text stays one argument. scontrol takes one quote off each end, so a pair is put on.

    Args:
        node: The node.
        reason: Their text.
        is_drain: Whether the node must be drained again with it.

    Raises:
        DataError: The name could mean more than one node, or the text holds control characters.

    >>> restore_command("gpu-1", 'bad "disk"', is_drain=False)
    ('scontrol', 'update', 'NodeName=gpu-1', 'Reason="bad "disk""')
    """
    if not reason.isprintable():
        raise DataError(f"{node}: the reason {reason!r} holds control characters; set it by hand")
    state = ("State=DRAIN",) if is_drain else ()
    return ("scontrol", "update", f"NodeName={_checked_node(node)}", *state, f'Reason="{reason}"')


def _checked_node(name: str) -> str:
    if not is_plain_node_name(name):
        raise DataError(
            f"node name {name!r} could mean more than one node to scontrol; expected letters, "
            f"digits, dots, dashes and underscores. Nothing was run."
        )
    return name


def _checked_job(job_id: str) -> str:
    if not _JOB.fullmatch(job_id):
        raise DataError(f"job id {job_id!r} is not one job's number. Nothing was run.")
    return job_id
