"""Writes a site's small tables: assets, places, planned work, repairs, and the states of nodes.

How they are read back is described by the mappings beside this module, in `site/mappings`.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from simulation.fleet.generate import Fleet
from simulation.writers.node_log import Outage, list_outages, planned_reason
from simulation.writers.repair_tickets import ticket_rows
from simulation.writers.sinfo_text import write_sinfo
from simulation.writers.site_clock import print_recorded, print_time


def write_site_tables(fleet: Fleet, folder: Path) -> dict[Path, int]:
    """Writes inventory, topology, maintenance, node_events, repair_tickets, and looks by sinfo.

    Args:
        fleet: The fleet.
        folder: Folder to write to.

    Returns:
        The files with the number of bad lines in each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outages = list_outages(fleet)
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
            _node_events(fleet, outages),
            bad=[["forewarn", "gpu001", "2026-01-32T08:00:00", "Unknown", "DOWN", "bad day", ""]],
            delimiter="|",
        )
        | _write(folder / "repair_tickets.csv", ticket_rows(fleet), bad=[])
        | write_sinfo(fleet, outages, folder / "sinfo", n_bad=1)
    )


def _write(
    path: Path, rows: Iterable[Sequence[str]], *, bad: Sequence[Sequence[str]], delimiter: str = ","
) -> dict[Path, int]:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(chain(rows, bad))
    return {path: len(bad)}


def _bad_inventory() -> list[list[str]]:
    return [
        ["GPU-00000000-0000-4000-8000-000000000001", "gpu001", "0"],
        ["", "gpu001", "0", "00000000:1B:00.0", "", "", "2026-01-01T00:00:00Z", ""],
    ]


def _inventory(fleet: Fleet) -> Iterator[list[str]]:
    yield ["uuid", "host", "slot", "pci_bus_id", "product", "lot", "installed", "removed"]
    hardware = fleet.regime.hardware
    buses = [f"00000000:{bus.upper()}:00.0" for bus in hardware.pci_buses]
    lots = {batch.name: f"{batch.installed:%Y-%m-%dT%H:%M:%S}" for batch in fleet.regime.batches}
    for truth in fleet.nodes:
        for stay in truth.stays:
            if stay.from_s is not None and stay.from_s >= fleet.end_s:
                continue
            gpu, lot = stay.gpu, stay.gpu.batch.name
            since = lots[lot] if stay.from_s is None else print_time(fleet, stay.from_s)
            yield [
                gpu.gpu_uuid, truth.node.name, str(gpu.slot), buses[gpu.slot], hardware.model,
                lot, since, print_recorded(fleet, stay.to_s),
            ]  # fmt: skip


def _topology(fleet: Fleet) -> Iterator[list[str]]:
    yield ["host", "rack", "leaf_switch", "pool"]
    for truth in fleet.nodes:
        node = truth.node
        yield [node.name, node.rack, node.leaf_switch, "mig" if node.is_mig else "batch"]


def _maintenance(fleet: Fleet) -> Iterator[list[str]]:
    """The operators' calendar; what is to begin after the record is not yet in it."""
    yield ["host", "begin", "end", "what"]
    for truth in fleet.nodes:
        for work in truth.planned:
            if work.drain_s < fleet.end_s:
                begin, end = (print_recorded(fleet, s) for s in (work.drain_s, work.end_s))
                reason = planned_reason(fleet, truth.node.index, work)
                yield [truth.node.name, begin, end, reason]


def _node_events(fleet: Fleet, outages: Sequence[Outage]) -> Iterator[list[str]]:
    """`sacctmgr list event --parsable2`, by start: nothing is listed for nodes that are up."""
    yield ["Cluster", "NodeName", "TimeStart", "TimeEnd", "State", "Reason", "User"]
    for outage in outages:
        name = fleet.nodes[outage.node].node.name
        begin = print_time(fleet, outage.from_s)
        end = print_recorded(fleet, outage.to_s, absent="Unknown")
        yield ["forewarn", name, begin, end, outage.state, outage.reason, outage.user]
