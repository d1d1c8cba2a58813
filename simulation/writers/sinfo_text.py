"""Writes looks at the nodes as `sinfo --format '%N|%T|%H|%U|%E'` prints them, one every shift.

Nodes that are alike share a line. When states changed is in `simulation.writers.node_log`.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from simulation.fleet.generate import Fleet
from simulation.writers.node_log import Outage
from simulation.writers.sacct_text import hostlist
from simulation.writers.site_clock import print_time

EVERY_S: Final = 8 * 3600
FIRST_S: Final = 300
HEADER: Final = "NODELIST|STATE|TIMESTAMP|USER|REASON"
_NO_REASON: Final = ("Unknown", "Unknown", "none")

Line = tuple[str, str, str, str]
"""State, and since when, by whom and why a node is out of service."""


def write_sinfo(
    fleet: Fleet, outages: Sequence[Outage], folder: Path, *, n_bad: int
) -> dict[Path, int]:
    """Writes a file for each look, named after its time.

    Args:
        fleet: The fleet.
        outages: When its nodes were out, from `list_outages`.
        folder: Folder to write to.
        n_bad: Lines cut short to put into the first.

    Returns:
        The files with the number of bad lines in each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    usage = _usage(fleet)
    for at_s in range(FIRST_S, fleet.end_s, EVERY_S):
        path = folder / f"nodes__{fleet.moment(at_s):%Y-%m-%dT%H-%M-%SZ}.txt"
        bad = ["gpu001|idle"] * (n_bad if at_s == FIRST_S else 0)
        lines = _look(fleet, usage.at(at_s), outages, at_s=at_s)
        path.write_text("\n".join([HEADER, *lines, *bad]) + "\n", encoding="utf-8", newline="\n")
        written[path] = len(bad)
    return written


@dataclass(frozen=True)
class _Usage:
    """Which run of a job has how many places of a node, and when; arrays, one row per node."""

    nodes: int
    node: np.ndarray
    places: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray

    def at(self, second: int) -> np.ndarray:
        """Places in use on each node."""
        is_on = (self.start_s <= second) & (second < self.end_s)
        return np.bincount(self.node[is_on], self.places[is_on], minlength=self.nodes)


def _usage(fleet: Fleet) -> _Usage:
    rows = [
        (node, len(slots), a.start_s, fleet.end_s if a.end_s is None else a.end_s)
        for a in fleet.attempts
        if a.start_s is not None
        for node, slots in a.placement
    ]
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 4).T
    return _Usage(len(fleet.nodes), *columns)


def _look(fleet: Fleet, used: np.ndarray, outages: Sequence[Outage], *, at_s: int) -> Iterator[str]:
    """Lines of one look, the nodes of each by name."""
    lines: dict[int, Line] = {}
    for outage in outages:
        if outage.from_s <= at_s < outage.to_s:
            lines[outage.node] = _out_of_service(fleet, outage, is_used=used[outage.node] > 0)
    mig = fleet.regime.hardware.mig
    per_node = fleet.regime.gpus_per_node
    groups: dict[Line, list[str]] = defaultdict(list)
    for truth, in_use in zip(fleet.nodes, used.tolist(), strict=True):
        node = truth.node
        places = per_node * (mig.instances if mig and node.is_mig else 1)
        state = "allocated" if in_use == places else "mixed" if in_use else "idle"
        groups[lines.get(node.index, (state, *_NO_REASON))].append(node.name)
    for (state, since, user, reason), names in sorted(groups.items()):
        yield f"{hostlist(names)}|{state}|{since}|{user}|{reason}"


def _out_of_service(fleet: Fleet, outage: Outage, *, is_used: bool) -> Line:
    state = outage.state.lower()
    if state == "drain":
        state = "draining" if is_used else "drained"
    return state, print_time(fleet, outage.from_s), outage.user, outage.reason
