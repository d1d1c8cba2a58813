"""What a site's operators and its scheduler noted about nodes: outages with reasons.

Which of it becomes which file is in `simulation.writers.site_tables` and `.sinfo_text`. A failure
that nobody noticed leaves no outage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from simulation.fleet.generate import Fleet
from simulation.fleet.incidents import Incident, NodeTruth
from simulation.fleet.planned import PlannedWork
from simulation.fleet.seeds import Layer, random_stream

OPERATOR: Final = "ops(1001)"

_REBOOTS: Final = ("scheduled reboot", "reboot for kernel patch", "firmware upgrade")
_HOLDS: Final = (
    "reserved for acceptance tests",
    "held for benchmark team",
    "ask ops before use",
    "kernel debugging",
)


@dataclass(frozen=True, slots=True)
class Outage:
    """A node out of service in one state.

    Attributes:
        node: Index of the node.
        from_s: Since when, seconds since the fleet's start.
        to_s: Until when.
        state: DRAIN, DOWN or, where the node no longer answers, DOWN*.
        reason: Why, in words.
        user: Who said so.
    """

    node: int
    from_s: int
    to_s: int
    state: Literal["DRAIN", "DOWN", "DOWN*"]
    reason: str
    user: str


def list_outages(fleet: Fleet) -> list[Outage]:
    """All outages that began within the record.

    Args:
        fleet: The fleet.

    Returns:
        Outages by start and node; none is empty.
    """
    found = [outage for truth in fleet.nodes for outage in _of_node(fleet, truth)]
    kept = [outage for outage in found if outage.from_s < min(outage.to_s, fleet.end_s)]
    return sorted(kept, key=lambda outage: (outage.from_s, outage.node))


def _of_node(fleet: Fleet, truth: NodeTruth) -> Iterator[Outage]:
    noticed = [incident for incident in truth.incidents if incident.is_noticed]
    if not noticed and not truth.planned:
        return
    node = truth.node.index
    rng = random_stream(fleet.seed, Layer.REASONS, node)
    for incident in noticed:
        reason, user = node_reason(incident, rng)
        if incident.fault.node_state == "DRAIN":
            yield Outage(node, incident.detected_s, incident.grace_s, "DRAIN", reason, user)
        # slurmctld itself marks a node that no longer answers.
        down: Literal["DOWN", "DOWN*"] = "DOWN*" if reason == "Not responding" else "DOWN"
        yield Outage(node, incident.grace_s, incident.end_s, down, reason, user)
    for work in truth.planned:
        reason = planned_reason(fleet, node, work)
        if work.what == "hold":  # nobody touches it: it stays drained to its end
            yield Outage(node, work.drain_s, work.end_s, "DRAIN", reason, OPERATOR)
        else:
            yield Outage(node, work.drain_s, work.work_s, "DRAIN", reason, OPERATOR)
            yield Outage(node, work.work_s, work.end_s, "DOWN", reason, OPERATOR)


def planned_reason(fleet: Fleet, node: int, work: PlannedWork) -> str:
    """What operators write about planned work; the same wherever they write it.

    Args:
        fleet: The fleet.
        node: Index of the node.
        work: The work.

    Returns:
        The reason.
    """
    if work.what == "driver":
        return f"driver update {fleet.regime.disturbances.driver_after}"
    words = _HOLDS if work.what == "hold" else _REBOOTS
    return words[(node + work.drain_s) % len(words)]


def node_reason(incident: Incident, rng: np.random.Generator) -> tuple[str, str]:
    """The reason a health check or an operator gives, and who gave it.

    Args:
        incident: The incident.
        rng: Stream to draw from.

    Returns:
        Reason and user, as the scheduler keeps them.
    """
    gpu = f"GPU {incident.slot}"
    by_check = {
        "hbm_uncorrectable": (
            f"{gpu} uncorrectable ECC error",
            f"NHC: check_gpu: {gpu} double-bit ECC error",
        ),
        "row_remap_failure": (f"{gpu} row remap failure", f"NHC: check_gpu: {gpu} Xid 64"),
        "off_bus": (f"{gpu} has fallen off the bus", "NHC: check_gpu: 7 of 8 GPUs, GPU missing"),
        "gsp": (f"{gpu} GSP timeout", f"NHC: check_gpu: {gpu} GSP error"),
        "nvlink": (f"{gpu} NVLink error", f"NHC: check_gpu: {gpu} Xid 74"),
        "thermal": (f"{gpu} thermal slowdown", f"{gpu} over temperature, check cooling"),
        "power": (f"{gpu} power loss", "PSU or power cable fault"),
        "other_gpu": (f"{gpu} failed dcgmi diag", f"{gpu} GPU fault, sent for repair"),
        "nic_fabric": ("IB port down", "ens10f0np0 link down, check cable"),
        "sdc": (f"{gpu} wrong results in SDC check", f"{gpu} SDC check failed"),
    }[incident.fault.fault_type]
    is_silent = incident.fault.node_state == "DOWN" and rng.random() < 0.15
    if is_silent:
        return "Not responding", "slurm(64030)"
    reason = by_check[int(rng.integers(2))]
    is_check = reason == by_check[0] or reason.startswith("NHC")
    return reason, "root(0)" if is_check else OPERATOR
