"""The hardware of a fleet: nodes in racks, GPUs in slots, and how frail each is.

What happens to them over time is in `simulation.fleet.incidents`.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulation.fleet.regime import Regime
from simulation.fleet.regime_faults import Batch
from simulation.fleet.seeds import Layer, log_uniform, random_stream

UP_BEFORE_D: Final = (3.0, 120.0)
"""How long nodes had been up when the record begins, in days."""


@dataclass(frozen=True)
class Gpu:
    """One GPU and its constant peculiarities.

    Attributes:
        gpu_uuid: Identity.
        slot: Slot it sits in.
        batch: Hardware batch.
        hazard_factor: Factor on the failure rate: own frailty x batch x slot, mean 1.
        temp_offset_c: Against the product's mean at equal power.
        power_offset_w: Against the product's mean at equal load.
        sbe_per_day: Single-bit errors that mean nothing.
        history: Lifetime counters before its node's last boot: single-bit errors, remapped rows.
    """

    gpu_uuid: str
    slot: int
    batch: Batch
    hazard_factor: float
    temp_offset_c: float
    power_offset_w: float
    sbe_per_day: float
    history: tuple[int, int]


@dataclass(frozen=True)
class Node:
    """One node as it stands at the fleet's start.

    Attributes:
        index: Number in the fleet; names its random streams.
        name: Host name.
        rack: Rack.
        leaf_switch: Leaf switch, shared by two racks.
        frailty: Gamma frailty, before division by the fleet's mean.
        position_factor: Hazard factor of its place in the rack.
        inlet_offset_c: Inlet air against the fleet's mean.
        scrape_offset_s: When within the scrape interval it is scraped.
        is_mig: Whether its GPUs are partitioned.
        gpus: One per slot.
        up_before_s: How long it had been up at the fleet's start.
    """

    index: int
    name: str
    rack: str
    leaf_switch: str
    frailty: float
    position_factor: float
    inlet_offset_c: float
    scrape_offset_s: int
    is_mig: bool
    gpus: tuple[Gpu, ...]
    up_before_s: int


def build_gpus(
    regime: Regime, rng: np.random.Generator, *, slots: Sequence[int]
) -> tuple[Gpu, ...]:
    """Draws GPUs for slots.

    Args:
        regime: The fleet's parameters.
        rng: Stream to draw from.
        slots: Slots.

    Returns:
        One GPU per slot; hazard factors have mean 1 over batches, slots and frailty.
    """
    batches, frailty, hardware = regime.batches, regime.frailty, regime.hardware
    n = len(slots)
    edges = np.cumsum([batch.share for batch in batches[:-1]])
    chosen = np.searchsorted(edges, rng.random(n), side="right")
    mean = sum(batch.share * batch.factor for batch in batches)
    mean *= sum(frailty.slot_factors) / len(frailty.slot_factors)
    own = rng.gamma(frailty.gpu_shape, 1 / frailty.gpu_shape, n)
    is_leaky = rng.random(n) < hardware.leaky_share
    leaky_sbe = hardware.leaky_sbe_per_day * rng.gamma(2, 0.5, n)
    sbe_per_day = np.where(is_leaky, leaky_sbe, 0.02).tolist()
    warmth, power = rng.normal(0, 1.5, n).tolist(), rng.normal(0, 8, n).tolist()
    errors, rows = rng.poisson(1.5, n).tolist(), rng.poisson(0.15, n).tolist()
    identity = rng.bytes(16 * n)
    gpus = []
    for i, slot in enumerate(slots):
        batch = batches[int(chosen[i])]
        unique = uuid.UUID(bytes=identity[16 * i : 16 * i + 16], version=4)
        gpus.append(
            Gpu(
                gpu_uuid=f"GPU-{unique}",
                slot=slot,
                batch=batch,
                hazard_factor=float(own[i]) * batch.factor * frailty.slot_factors[slot] / mean,
                temp_offset_c=0.5 * slot - 1.75 + warmth[i],
                power_offset_w=power[i],
                sbe_per_day=sbe_per_day[i],
                history=(errors[i], rows[i]),
            )
        )
    return tuple(gpus)


def build_node(regime: Regime, *, seed: int, index: int) -> Node:
    """Draws one node; it depends on nothing but the regime, the seed and its index.

    Args:
        regime: The fleet's parameters.
        seed: The fleet's seed.
        index: Number of the node in the fleet.

    Returns:
        The node with its GPUs.
    """
    rng = random_stream(seed, Layer.HARDWARE, index)
    per_rack = regime.hardware.nodes_per_rack
    rack = index // per_rack
    top = regime.frailty.top_of_rack_factor
    digits = max(3, len(str(regime.nodes)))  # equally long names, as Slurm's host lists want
    mig = regime.hardware.mig
    n_mig = round(mig.node_share * regime.nodes) if mig else 0
    is_top = index % per_rack == per_rack - 1
    frailty = float(rng.gamma(regime.frailty.node_shape, 1 / regime.frailty.node_shape))
    inlet_offset_c = float(rng.normal(0, 0.8) + 0.4 * (index % per_rack))
    scrape_offset_s = int(rng.integers(0, min(regime.scrape_s, 60)))
    gpus = build_gpus(regime, rng, slots=range(regime.gpus_per_node))
    return Node(
        index=index,
        name=f"gpu{index + 1:0{digits}d}",
        rack=f"r{rack + 1:02d}",
        leaf_switch=f"leaf{rack // 2 + 1:02d}",
        frailty=frailty,
        position_factor=(top if is_top else 1.0) * per_rack / (per_rack - 1 + top),
        inlet_offset_c=inlet_offset_c,
        scrape_offset_s=scrape_offset_s,
        is_mig=index >= regime.nodes - n_mig,
        gpus=gpus,
        up_before_s=_draw_uptime_s(regime, gpus, rng),
    )


def _draw_uptime_s(regime: Regime, gpus: Sequence[Gpu], rng: np.random.Generator) -> int:
    """Days to months, but not since before its newest GPU was installed."""
    drawn_s = int(log_uniform(rng, UP_BEFORE_D) * 86400)
    newest = max(gpu.batch.installed for gpu in gpus)
    return min(drawn_s, max(3600, int((regime.start - newest).total_seconds())))
