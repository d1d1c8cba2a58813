"""The exact argument lists that carry out an order on Slurm; never shell text.

Nothing is run here: the dry run shows these lists, an actuator runs them.
"""

import re
from typing import Final

from features.errors import DataError
from remediation.actuators.protocol import Order
from remediation.reasons import PREFIX

# Node names come from logs. scontrol reads `ALL`, commas and brackets as many nodes, so a name
# must be one plain word.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_JOB = re.compile(r"[0-9]+(_[0-9]+|\+[0-9]+)?")
_MANY: Final = "all"

Command = tuple[str, ...]


def is_plain_node_name(name: str) -> bool:
    """Whether a name can only mean one node.

    >>> [is_plain_node_name(name) for name in ("gpu-07.rack2", "gpu[1-99]", "ALL")]
    [True, False, False]
    """
    return bool(_NODE.fullmatch(name)) and name.lower() != _MANY


def hold_commands(order: Order) -> tuple[Command, ...]:
    """The commands that cordon or drain a node.

    For Slurm both are `State=DRAIN`; a deadline first warns the jobs, a drain at once requeues
    them.

    Args:
        order: The order.

    Raises:
        DataError: The node's name or a job's id could mean more than one.
    """
    node = _checked_node(order)
    drain = ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={order.reason}")
    jobs = [_checked_job(job.job_id) for job in order.jobs]
    if order.action == "checkpoint_then_drain":
        text = (
            f"{PREFIX} node {node} is about to fail; write a checkpoint, this job is requeued in "
            f"{order.notice_minutes:.0f} minutes"
        )
        return (drain, *(("scontrol", "notify", job, text) for job in jobs))
    if order.action == "drain_now":
        return (drain, *(("scontrol", "requeue", job) for job in jobs))
    return (drain,)


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
