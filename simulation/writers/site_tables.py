"""Writes a site's small tables: asset list, topology, planned work, and the scheduler's node log.

How they are read back is described by the mappings beside this module, in `site/mappings`.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulation.fleet.generate import Fleet
from simulation.fleet.incidents import Incident
from simulation.fleet.seeds import Layer, random_stream


def write_site_tables(fleet: Fleet, folder: Path) -> dict[Path, int]:
    """Writes inventory.csv, topology.csv, maintenance.csv and node_events.csv.

    Args:
        fleet: The fleet.
        folder: Folder to write to.

    Returns:
        The files with the number of bad lines in each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return (
        _write(folder / "inventory.csv", _inventory(fleet), bad=_bad_inventory())
        | _write(folder / "topology.csv", _topology(fleet), bad=[["gpu999", "r99"]])
        | _write(
            folder / "maintenance.csv",
            _maintenance(fleet),
            bad=[["gpu001", "2026-01-09T12:00:00", "2026-01-09T10:00:00", "ends before it begins"]],
        )
        | _write(
            folder / "node_events.csv",
            _node_events(fleet),
            bad=[["forewarn", "gpu001", "2026-01-32T08:00:00", "Unknown", "DOWN", "bad day", ""]],
            delimiter="|",
        )
    )


def _write(
    path: Path, rows: Sequence[Sequence[str]], *, bad: Sequence[Sequence[str]], delimiter: str = ","
) -> dict[Path, int]:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows([*rows, *bad])
    path.write_text(text.getvalue(), encoding="utf-8", newline="\n")
    return {path: len(bad)}


def _bad_inventory() -> list[list[str]]:
    return [
        ["GPU-00000000-0000-4000-8000-000000000001", "gpu001", "0"],
        ["", "gpu001", "0", "00000000:1B:00.0", "", "", "2026-01-01T00:00:00Z", ""],
    ]


def _time(fleet: Fleet, at_s: int | None) -> str:
    """A local time of the site (which is UTC), blank where there is none in the record."""
    if at_s is None or at_s >= fleet.end_s:
        return ""
    return f"{fleet.moment(at_s):%Y-%m-%dT%H:%M:%S}"


def _inventory(fleet: Fleet) -> list[list[str]]:
    rows = [["uuid", "host", "slot", "pci_bus_id", "product", "lot", "installed", "removed"]]
    for truth in fleet.nodes:
        for stay in truth.stays:
            if stay.from_s is not None and stay.from_s >= fleet.end_s:
                continue
            installed = f"{stay.gpu.batch.installed:%Y-%m-%dT%H:%M:%S}"
            bus = fleet.regime.hardware.pci_buses[stay.gpu.slot].upper()
            rows.append(
                [
                    stay.gpu.gpu_uuid,
                    truth.node.name,
                    str(stay.gpu.slot),
                    f"00000000:{bus}:00.0",
                    fleet.regime.hardware.model,
                    stay.gpu.batch.name,
                    installed if stay.from_s is None else _time(fleet, stay.from_s),
                    _time(fleet, stay.to_s),
                ]
            )
    return rows


def _topology(fleet: Fleet) -> list[list[str]]:
    nodes = [truth.node for truth in fleet.nodes]
    rows = [[node.name, node.rack, node.leaf_switch, "batch"] for node in nodes]
    return [["host", "rack", "leaf_switch", "pool"], *rows]


def _maintenance(fleet: Fleet) -> list[list[str]]:
    rows = [["host", "begin", "end", "what"]]
    what = f"driver update to {fleet.regime.disturbances.driver_after}"
    for truth in fleet.nodes:
        for work in truth.planned:
            begin, end = (_time(fleet, s) for s in (work.drain_s, work.end_s))
            rows.append([truth.node.name, begin, end, what])
    return rows


def _node_events(fleet: Fleet) -> list[list[str]]:
    """`sacctmgr list event --parsable2`, by start: nothing is listed for nodes that are up."""
    rows: list[tuple[int, list[str]]] = []

    def add(name: str, span: tuple[int, int], *, state: str, reason: str, user: str) -> None:
        if span[0] < min(span[1], fleet.end_s):
            end = _time(fleet, span[1]) or "Unknown"
            cells = ["forewarn", name, _time(fleet, span[0]), end, state, reason, user]
            rows.append((span[0], cells))

    for truth in fleet.nodes:
        name = truth.node.name
        rng = random_stream(fleet.seed, Layer.REASONS, truth.node.index)
        for incident in truth.incidents:
            reason, user = node_reason(incident, rng)
            # slurmctld itself marks a node DOWN* that no longer answers.
            down = "DOWN*" if reason == "Not responding" else "DOWN"
            if incident.fault.node_state == "DRAIN":
                span = (incident.detected_s, incident.grace_s)
                add(name, span, state="DRAIN", reason=reason, user=user)
            add(name, (incident.grace_s, incident.end_s), state=down, reason=reason, user=user)
        for plan in truth.planned:
            what = f"driver update {fleet.regime.disturbances.driver_after}"
            add(name, (plan.drain_s, plan.work_s), state="DRAIN", reason=what, user="ops(1001)")
            add(name, (plan.work_s, plan.end_s), state="DOWN", reason=what, user="ops(1001)")
    header = ["Cluster", "NodeName", "TimeStart", "TimeEnd", "State", "Reason", "User"]
    return [header, *(cells for _, cells in sorted(rows))]


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
        "hbm_uncorrectable": (f"{gpu} uncorrectable ECC error", f"NHC: check_gpu: {gpu} Xid 48"),
        "row_remap_failure": (f"{gpu} row remap failure", f"NHC: check_gpu: {gpu} Xid 64"),
        "off_bus": (f"{gpu} has fallen off the bus", "NHC: check_gpu: 7 of 8 GPUs, GPU missing"),
        "gsp": (f"{gpu} GSP timeout", f"NHC: check_gpu: {gpu} Xid 119"),
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
    choice = int(rng.integers(2))
    return by_check[choice], ("root(0)", "ops(1001)")[choice]
