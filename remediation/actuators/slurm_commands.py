"""The exact argument lists that carry out an order on Slurm; never shell text.

Nothing is run here: the dry run shows these lists, an actuator runs them.
"""

import re

from features.errors import DataError
from remediation.actuators.protocol import Order
from remediation.cluster import is_plain_node_name
from remediation.reasons import PREFIX

_JOB = re.compile(r"[0-9]+(_[0-9]+|\+[0-9]+)?")

Command = tuple[str, ...]


def hold_commands(order: Order) -> tuple[Command, ...]:
    """The commands that cordon or drain a node.

    For Slurm both are `State=DRAIN`. A drain by deadline warns the jobs and requeues them when the
    notice has passed; a drain at once requeues them without.

    Args:
        order: The order.

    Raises:
        DataError: The node's name or a job's id could mean more than one.
    """
    node = _checked_node(order)
    drain = ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={order.reason}")
    jobs = [_checked_job(job.job_id) for job in order.jobs]
    requeue = [("scontrol", "requeue", job) for job in jobs]
    if order.action == "checkpoint_then_drain":
        text = (
            f"{PREFIX} node {node} is about to fail; write a checkpoint, this job is requeued in "
            f"{order.notice_minutes:.0f} minutes"
        )
        return (drain, *(("scontrol", "notify", job, text) for job in jobs), *requeue)
    return (drain, *requeue) if order.action == "drain_now" else (drain,)


def undrain_commands(order: Order) -> tuple[Command, ...]:
    """The command that returns a node: `UNDRAIN`, which never revives one that is down.

    Raises:
        DataError: The node's name could mean more than one.
    """
    return (("scontrol", "update", f"NodeName={_checked_node(order)}", "State=UNDRAIN"),)


def _checked_node(order: Order) -> str:
    name = order.expected.name
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
