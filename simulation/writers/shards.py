"""Writes what is seen of a group of nodes: kernel logs and telemetry, stretch by stretch of time.

Groups can be written in any order and by any number of processes. What belongs to the fleet as a
whole, such as its accounting, is written by `simulation.writers.raw`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from simulation.fleet.climate import Air
from simulation.fleet.events import NodeEvents, tell_node
from simulation.fleet.fields import FIELDS
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt
from simulation.fleet.telemetry import Block, NodeSampler, NodeTelemetry, joined
from simulation.writers.forms import Form
from simulation.writers.kernel_text import write_collected_log, write_node_log
from simulation.writers.telemetry_parquet import Devices, block_table, write_table
from simulation.writers.telemetry_text import Host, write_query_csv, write_scrapes

SHARD_NODES: Final = 128
"""Nodes of a group, whole racks: about 1,000 GPUs."""
STRETCH_ROWS: Final = 2**20
"""Samples that a group holds in memory at once, at most: about 230 MB."""
PADDING_ROWS: Final = 1064
"""Columns whose addresses differ by whole pages would evict each other from the cache."""
BAD_ROWS: Final = 3
OVERLAP_S: Final = 3600
QUERY_CSV_S: Final = 24 * 3600
"""One node's last day comes as nvidia-smi CSV only."""
SCRAPES_S: Final = 2 * 3600
"""One node's last two hours come as saved scrapes; the first of them is in the Parquet too."""


@dataclass(frozen=True)
class Shard:
    """A group of nodes to write, with all that it takes.

    Attributes:
        number: Number of the group.
        regime: The fleet's parameters.
        seed: The fleet's seed.
        truths: The nodes.
        attempts: Runs of jobs on each.
        form: How telemetry is delivered.
        csv_node: Index of the node whose last day comes as CSV.
        scrape_node: Index of the node whose last hours come as scrapes.
    """

    number: int
    regime: Regime
    seed: int
    truths: Sequence[NodeTruth]
    attempts: Sequence[Sequence[Attempt]]
    form: Form
    csv_node: int
    scrape_node: int

    @property
    def end_s(self) -> int:
        """The fleet's last second, exclusive."""
        return int(self.regime.days * 86400)


@dataclass
class Written:
    """What was written: bad lines of each file, and counts of what the files hold."""

    bad_lines: dict[Path, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, files: Mapping[Path, int]) -> None:
        """Notes files; a file written in parts keeps the sum."""
        for path, bad in files.items():
            self.bad_lines[path] = self.bad_lines.get(path, 0) + bad


def shard_nodes(regime: Regime) -> int:
    """Nodes of a group, so that racks stay whole."""
    per_rack = regime.hardware.nodes_per_rack
    return max(1, SHARD_NODES // per_rack) * per_rack


def stretch_hours(regime: Regime, nodes: int) -> int:
    """Hours that a group of nodes is sampled for at once: a day, or an even part of it."""
    per_hour = nodes * regime.gpus_per_node * (3600 // regime.scrape_s + 1)
    return next((h for h in (24, 12, 8, 6, 4, 3, 2) if h * per_hour <= STRETCH_ROWS), 1)


def write_shard(shard: Shard, folder: Path) -> Written:
    """Writes a group's kernel logs and telemetry.

    Args:
        shard: The group.
        folder: Folder of the fleet's raw files.

    Returns:
        What was written.
    """
    events = tell_shard(shard)
    written = Written()
    _write_logs(shard, events, folder / "kernel", written)
    written.add(write_telemetry(shard, events, folder, counts=written.counts))
    return written


def tell_shard(shard: Shard) -> tuple[NodeEvents, ...]:
    """What happened on each node of a group, as its kernel log tells it."""
    return tuple(
        tell_node(shard.regime, truth, attempts, seed=shard.seed)
        for truth, attempts in zip(shard.truths, shard.attempts, strict=True)
    )


def _write_logs(shard: Shard, events: Sequence[NodeEvents], folder: Path, written: Written) -> None:
    for told in events:
        written.counts["kernel_lines"] += len(told.lines)
        written.counts.update(f"xid_{line.code}" for line in told.lines if line.code is not None)
    nodes = [(truth.node, told) for truth, told in zip(shard.truths, events, strict=True)]
    if shard.regime.nodes > shard.regime.logs.collected_above_nodes:
        path = folder / f"nodes-{shard.number:04d}.log"
        written.add(write_collected_log(nodes, path, regime=shard.regime, n_bad=BAD_ROWS))
        return
    for node, told in nodes:
        n_bad = BAD_ROWS if node.index % 4 == 0 else 0
        written.add(write_node_log(node, told, folder, regime=shard.regime, n_bad=n_bad))


def write_telemetry(
    shard: Shard, events: Sequence[NodeEvents], folder: Path, *, counts: Counter[str]
) -> dict[Path, int]:
    """Samples the nodes of a group and writes what arrived.

    Args:
        shard: The group.
        events: What happened on each of its nodes.
        folder: Folder of the fleet's raw files.
        counts: Gets the number of samples added.

    Returns:
        The files with the number of bad lines in each.
    """
    air = Air(shard.regime, seed=shard.seed)
    samplers = [
        NodeSampler(shard.regime, truth, attempts, told, air=air, seed=shard.seed)
        for truth, attempts, told in zip(shard.truths, shard.attempts, events, strict=True)
    ]
    writer = _TelemetryWriter(shard, samplers, folder)
    writer.write()
    counts["gpu_samples"] += writer.n_samples
    return writer.written.bad_lines


class _TelemetryWriter:
    """Samples all nodes of a group for a stretch, writes it, and goes on."""

    def __init__(self, shard: Shard, samplers: Sequence[NodeSampler], folder: Path) -> None:
        self.shard, self.samplers, self.folder = shard, samplers, folder
        self.written = Written()
        self.n_samples = 0
        self.devices = _devices(samplers)
        self.stretch_s = 3600 * stretch_hours(shard.regime, len(samplers))
        per_gpu = self.stretch_s // shard.regime.scrape_s + 1
        rows = len(samplers) * shard.regime.gpus_per_node * per_gpu
        self.block = _room(rows + PADDING_ROWS)
        self.text: dict[int, list[NodeTelemetry]] = {}

    def write(self) -> None:
        """Writes the whole record."""
        for number, from_s in enumerate(range(0, self.shard.end_s, self.stretch_s)):
            self._write_stretch(number, from_s)
        for sampler in self.samplers:
            parts = self.text.get(sampler.truth.node.index)
            if parts:
                self._write_text(sampler.truth, joined(parts), n_bad=BAD_ROWS)

    def _write_stretch(self, number: int, from_s: int) -> None:
        shard, row, gpu = self.shard, 0, 0
        to_s = min(shard.end_s, from_s + self.stretch_s)
        in_table = []
        for sampler in self.samplers:
            first = row
            row = sampler.sample(from_s, to_s, self.block, row=row, first_gpu=gpu)
            gpu += len(sampler.gpu_uuids)
            index = sampler.truth.node.index
            is_text, is_table = _split(shard, index, self.block.at_s[first:row])
            in_table.append(is_table)
            if is_text.any():
                self._take_text(
                    sampler.truth, first + np.flatnonzero(is_text), is_first=number == 0
                )
        self.n_samples += row
        chosen = np.concatenate(in_table)
        if chosen.any():
            table = block_table(self.block, row, self.devices, start=shard.regime.start)
            table = table if chosen.all() else table.filter(pa.array(chosen))
            at = shard.regime.start + timedelta(seconds=from_s)
            name = f"{shard.number:04d}-{at:%H}.parquet"
            path = self.folder / "telemetry" / f"{at:%Y-%m-%d}" / name
            n_bad = BAD_ROWS if number % 7 == 3 and shard.number == 0 else 0
            self.written.add({path: write_table(table, path, n_bad=n_bad)})

    def _take_text(self, truth: NodeTruth, rows: np.ndarray, *, is_first: bool) -> None:
        """Keeps the few hours of the text nodes; where all is text, writes it at once."""
        gpu = self.block.gpu[rows]
        seen = NodeTelemetry(
            np.array(self.devices.uuids, dtype=object)[gpu],
            np.array(self.devices.slots)[gpu],
            self.block.at_s[rows],
            {name: self.block.field(name, rows) for name in FIELDS},
        )
        index = truth.node.index
        if self.shard.form == "parquet":
            self.text.setdefault(index, []).append(seen)
        else:
            self._write_text(truth, seen, n_bad=BAD_ROWS if is_first and index == 0 else 0)

    def _write_text(self, truth: NodeTruth, seen: NodeTelemetry, *, n_bad: int) -> None:
        node = truth.node
        host = Host(node.name, self.shard.regime, truth.new_driver_s, is_mig=node.is_mig)
        is_csv = self.shard.form == "parquet" and node.index == self.shard.csv_node
        write = write_query_csv if is_csv else write_scrapes
        folder = self.folder / ("nvidia_smi" if is_csv else "dcgm")
        self.written.add(write(host, seen, folder, n_bad=n_bad))


@lru_cache(maxsize=1)
def _room(rows: int) -> Block:
    """Room for samples, kept from group to group: fresh memory costs as much as a tenth of all."""
    return Block.with_room(rows)


def _devices(samplers: Sequence[NodeSampler]) -> Devices:
    uuids = [uuid for sampler in samplers for uuid in sampler.gpu_uuids]
    slots = [slot for sampler in samplers for slot in sampler.slots]
    hosts = [sampler.truth.node.name for sampler in samplers for _ in sampler.slots]
    return Devices(uuids, hosts, slots)


def _split(shard: Shard, index: int, at_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of a node's samples go into text files, and which into Parquet."""
    end_s = shard.end_s
    everything, nothing = np.ones(at_s.size, dtype=bool), np.zeros(at_s.size, dtype=bool)
    if shard.form == "exposition":
        return everything, nothing
    if index == shard.csv_node:
        is_text = at_s >= end_s - QUERY_CSV_S
        return is_text, ~is_text
    if index == shard.scrape_node:
        return at_s >= end_s - SCRAPES_S, at_s < end_s - SCRAPES_S + OVERLAP_S
    return nothing, everything
