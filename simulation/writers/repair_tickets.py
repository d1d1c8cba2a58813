"""Rows of a repair desk's tickets: what was found about a failure, and what was done.

No table of the project takes them as they are: incidents named by a site are added to those found
in its logs, which would double each, and a repair is no planned work. So the list of inputs does
not name the file; it is for joining by hand.

A ticket is opened after the failure was noticed, some much later. It tells less than the truth:
some name the wrong slot, some only say that a job was slow.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from simulation.fleet.generate import Fleet
from simulation.fleet.incidents import Incident, NodeTruth
from simulation.fleet.seeds import Layer, log_uniform, random_stream
from simulation.writers.site_clock import print_recorded, print_time

HEADER: Final = (
    "ticket", "node", "slot", "gpu", "opened", "closed", "symptom", "finding", "action", "old_gpu",
    "new_gpu",
)  # fmt: skip

TICKETED: Final = 0.9
"""Of noticed failures, the share that gets a ticket; the rest is repaired on the quiet."""
LATE: Final = 0.15
WRONG_SLOT: Final = 0.06
FREE_TEXT: Final = 0.25
BY_SLOT: Final = 0.7
"""Of tickets about a GPU, the share that names its slot; the others name the GPU."""
PROMPT_H: Final = (0.1, 4.0)
LATE_H: Final = (12.0, 96.0)
CLOSING_H: Final = (0.2, 24.0)

_COMPLAINTS: Final = (
    "user says training hangs on this node",
    "job slow, same code fine elsewhere",
    "node acting up again, see chat",
    "nccl timeout, pls check",
)
_SYMPTOMS: Final = {
    "hbm_uncorrectable": "uncorrectable ECC error",
    "row_remap_failure": "row remapper out of spares",
    "off_bus": "GPU missing in nvidia-smi",
    "gsp": "GSP RPC timeout",
    "nvlink": "NVLink down",
    "thermal": "thermal throttling",
    "power": "node lost power",
    "other_gpu": "dcgmi diag -r 3 failed",
    "nic_fabric": "IB link down",
    "sdc": "checksum differs between runs",
}
_REPAIRS: Final = {  # fault type -> (finding, action) where the GPU stayed
    "hbm_uncorrectable": (("row remapped after reset", "reset"),),
    "row_remap_failure": (("passes diag after reset", "reset"),),
    "off_bus": (("card not seated", "reseat"), ("not reproducible", "no fault found")),
    "gsp": (("fine after power cycle", "reset"),),
    "nvlink": (("bridge contact", "reseat"), ("fine after reset", "reset")),
    "thermal": (("heat sink contact", "reseat"), ("dust in fan tray", "reseat")),
    "power": (("power cable loose", "cable"), ("PSU swapped", "cable")),
    "other_gpu": (("passes diag", "no fault found"), ("fine after reset", "reset")),
    "nic_fabric": (("bad cable", "cable"), ("transceiver", "cable"), ("port flap", "reset")),
    "sdc": (("not reproducible", "no fault found"),),
}


def ticket_rows(fleet: Fleet) -> Iterator[tuple[str, ...]]:
    """The desk's tickets as they stand at the end of the record, by opening, with a header.

    Args:
        fleet: The fleet.

    Yields:
        Cells in the order of `HEADER`. What is not yet done is blank.
    """
    yield HEADER
    found = [ticket for truth in fleet.nodes for ticket in _tickets(fleet, truth)]
    for number, (_, _, cells) in enumerate(sorted(found), start=1):
        yield (f"RMA-{number:06d}", *cells)


def _tickets(fleet: Fleet, truth: NodeTruth) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """When each ticket of a node was opened, its node, and its cells but the number."""
    noticed = [incident for incident in truth.incidents if incident.is_noticed]
    if not noticed:
        return
    rng = random_stream(fleet.seed, Layer.TICKETS, truth.node.index)
    for incident in noticed:
        has_ticket = rng.random() < TICKETED
        waits_h = log_uniform(rng, LATE_H if rng.random() < LATE else PROMPT_H)
        opened_s = incident.detected_s + int(waits_h * 3600)
        closed_s = max(incident.end_s, opened_s) + int(log_uniform(rng, CLOSING_H) * 3600)
        place = _place(fleet, incident, rng)
        symptom = _SYMPTOMS[incident.fault.fault_type]
        if rng.random() < FREE_TEXT:
            symptom = _COMPLAINTS[int(rng.integers(len(_COMPLAINTS)))]
        repair = _repair(truth, incident, rng)
        if has_ticket and opened_s < fleet.end_s:
            done = repair if closed_s < fleet.end_s else ("",) * 4
            times = (print_time(fleet, opened_s), print_recorded(fleet, closed_s))
            yield opened_s, truth.node.index, (truth.node.name, *place, *times, symptom, *done)


def _place(fleet: Fleet, incident: Incident, rng: np.random.Generator) -> tuple[str, str]:
    """Slot and GPU as the ticket names them: one of them, or none where the node failed."""
    names_slot, is_wrong = rng.random() < BY_SLOT, rng.random() < WRONG_SLOT
    shift = 1 + int(rng.integers(max(1, fleet.regime.gpus_per_node - 1)))
    if incident.slot is None or incident.gpu_uuid is None:
        return "", ""
    if not names_slot:
        return "", incident.gpu_uuid
    slot = incident.slot + shift if is_wrong else incident.slot
    return str(slot % fleet.regime.gpus_per_node), ""


def _repair(
    truth: NodeTruth, incident: Incident, rng: np.random.Generator
) -> tuple[str, str, str, str]:
    """Finding, action and, where a GPU was replaced, the old and the new one."""
    choices = _REPAIRS[incident.fault.fault_type]
    finding, action = choices[int(rng.integers(len(choices)))]
    if not incident.is_replaced:
        return finding, action, "", ""
    stays = [stay for stay in truth.stays if stay.gpu.slot == incident.slot]
    uuids = [stay.gpu.gpu_uuid for stay in stays]
    old = uuids.index(str(incident.gpu_uuid))
    return "GPU defective", "replace", uuids[old], uuids[old + 1]
