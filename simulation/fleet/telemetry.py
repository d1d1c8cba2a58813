"""What a node's exporter reports: DCGM fields of each GPU, sampled stretch by stretch of time.

The loop over samples is in `.sampling`; file formats are in `simulation.writers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulation.fleet.climate import Air
from simulation.fleet.events import NodeEvents
from simulation.fleet.fields import FIELDS, FLOAT_FIELDS, INT_FIELDS
from simulation.fleet.gpu_life import gather_lives
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.presence import node_presence
from simulation.fleet.regime import Regime
from simulation.fleet.sampling import sample_gpu
from simulation.fleet.schedule import Attempt
from simulation.fleet.seeds import Layer, random_stream


@dataclass(frozen=True)
class NodeTelemetry:
    """Samples of one node, by GPU and time.

    Attributes:
        gpu_uuid: One per row.
        slot: One per row.
        at_s: Sample time, seconds since the fleet's start, one per row.
        fields: DCGM field name -> values, int64 or float64, one per row; blanks are DCGM's.
    """

    gpu_uuid: np.ndarray
    slot: np.ndarray
    at_s: np.ndarray
    fields: Mapping[str, np.ndarray]

    def rows(self, chosen: np.ndarray) -> "NodeTelemetry":
        """The chosen rows, by mask or index."""
        fields = {name: values[chosen] for name, values in self.fields.items()}
        return NodeTelemetry(self.gpu_uuid[chosen], self.slot[chosen], self.at_s[chosen], fields)


def joined(parts: Sequence[NodeTelemetry]) -> NodeTelemetry:
    """Samples of stretches that follow each other."""
    return NodeTelemetry(
        np.concatenate([part.gpu_uuid for part in parts]),
        np.concatenate([part.slot for part in parts]),
        np.concatenate([part.at_s for part in parts]),
        {name: np.concatenate([part.fields[name] for part in parts]) for name in FIELDS},
    )


@dataclass(frozen=True)
class Block:
    """Room for samples of many GPUs, filled from the front and used again.

    Attributes:
        ints: Fields of `INT_FIELDS`, int64 (fields, rows).
        floats: Fields of `FLOAT_FIELDS`, float64 (fields, rows).
        at_s: Sample times, int64 (rows,).
        gpu: Number of the row's GPU in whoever fills the block, int32 (rows,).
    """

    ints: np.ndarray
    floats: np.ndarray
    at_s: np.ndarray
    gpu: np.ndarray

    @classmethod
    def with_room(cls, rows: int) -> "Block":
        """An empty block."""
        return cls(
            np.empty((len(INT_FIELDS), rows), dtype=np.int64),
            np.empty((len(FLOAT_FIELDS), rows), dtype=np.float64),
            np.empty(rows, dtype=np.int64),
            np.empty(rows, dtype=np.int32),
        )

    def field(self, name: str, rows: slice | np.ndarray) -> np.ndarray:
        """A field's values; of a slice of rows without a copy."""
        if name in FLOAT_FIELDS:
            return self.floats[FLOAT_FIELDS.index(name), rows]
        return self.ints[INT_FIELDS.index(name), rows]


def sample_times(regime: Regime, from_s: int, to_s: int, *, offset_s: int) -> np.ndarray:
    """Times of a node's scrapes in `[from_s, to_s)`, seconds since the fleet's start."""
    first = -(-(from_s - offset_s) // regime.scrape_s)
    last = -(-(to_s - offset_s) // regime.scrape_s)
    return np.arange(max(0, first), last, dtype=np.int64) * regime.scrape_s + offset_s


class NodeSampler:
    """Samples a node from its record's start on, stretch by stretch.

    However the record is cut into stretches, the samples are the same.

    Args:
        regime: The fleet's parameters.
        truth: The node's truth.
        attempts: Runs of jobs on it.
        events: What happened on it.
        air: The fleet's inlet air.
        seed: The fleet's seed.
    """

    def __init__(
        self,
        regime: Regime,
        truth: NodeTruth,
        attempts: Sequence[Attempt],
        events: NodeEvents,
        *,
        air: Air,
        seed: int,
    ) -> None:
        index = truth.node.index
        self.truth = truth
        self._regime, self._air = regime, air
        self._presence = node_presence(regime, truth, events, seed=seed)
        signs = random_stream(seed, Layer.SIGNS, index)
        past = random_stream(seed, Layer.PAST, index)
        self._lives = gather_lives(regime, truth, attempts, events, rng=signs, past=past)
        self._carried = [life.first.copy() for life in self._lives]
        self._heat = [np.full(1, np.nan) for _ in self._lives]
        self._streams = [
            random_stream(seed, Layer.TELEMETRY, index, part) for part in range(len(self._lives))
        ]

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """Its GPUs over time, by slot and time."""
        return tuple(life.stay.gpu.gpu_uuid for life in self._lives)

    @property
    def slots(self) -> tuple[int, ...]:
        """The slot of each."""
        return tuple(life.stay.gpu.slot for life in self._lives)

    def sample(self, from_s: int, to_s: int, block: Block, *, row: int, first_gpu: int) -> int:
        """Samples the next stretch.

        Args:
            from_s: Where the last stretch ended, seconds since the fleet's start.
            to_s: End, exclusive.
            block: Where to put the samples that arrived.
            row: First row to fill.
            first_gpu: Number of the node's first GPU in the block.

        Returns:
            The row after the last one filled.
        """
        times = sample_times(self._regime, from_s, to_s, offset_s=self.truth.node.scrape_offset_s)
        inlet = self._air.at(times) + self.truth.node.inlet_offset_c
        is_scraped = self._presence.is_scraped(times)
        out = (block.ints, block.floats, block.at_s)
        for number, life in enumerate(self._lives):
            stay = life.stay
            first = 0 if stay.from_s is None else int(np.searchsorted(times, stay.from_s))
            last = times.size if stay.to_s is None else int(np.searchsorted(times, stay.to_s))
            if first >= last:
                continue
            node = (times[first:last], inlet[first:last], is_scraped[first:last])
            before = row
            row = sample_gpu(
                self._streams[number],
                life.constants,
                life.tables,
                node,
                self._carried[number],
                self._heat[number],
                out,
                row,
            )
            block.gpu[before:row] = first_gpu + number
        return row


def sample_node(
    regime: Regime,
    truth: NodeTruth,
    attempts: Sequence[Attempt],
    events: NodeEvents,
    *,
    seed: int,
) -> NodeTelemetry:
    """Samples a node's GPUs over the whole record.

    Args:
        regime: The fleet's parameters.
        truth: The node's truth.
        attempts: Runs of jobs on this node.
        events: What happened on it.
        seed: The fleet's seed.

    Returns:
        The samples that arrived.
    """
    air = Air(regime, seed=seed)
    sampler = NodeSampler(regime, truth, attempts, events, air=air, seed=seed)
    end_s = int(regime.days * 86400)
    block = Block.with_room(regime.gpus_per_node * (end_s // regime.scrape_s + 1))
    rows = slice(0, sampler.sample(0, end_s, block, row=0, first_gpu=0))
    uuids = np.array(sampler.gpu_uuids, dtype=object)
    slots = np.array(sampler.slots)
    return NodeTelemetry(
        uuids[block.gpu[rows]],
        slots[block.gpu[rows]],
        block.at_s[rows].copy(),
        {name: block.field(name, rows).copy() for name in FIELDS},
    )
