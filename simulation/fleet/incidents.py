"""The truth about one node: incidents, their precursors, decoys, replacements and planned work.

How any of it looks to monitoring is in `simulation.fleet.events` and `.telemetry`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from simulation.fleet.hardware import Gpu, Node, build_gpu
from simulation.fleet.regime import Regime
from simulation.fleet.regime_faults import NODE_PRECURSORS, FaultClass, PrecursorKind
from simulation.fleet.regime_sections import HOURS_PER_YEAR
from simulation.fleet.seeds import Layer, log_uniform, random_stream

HOUR_S = 3600
SWAP_BEFORE_END_S = 1800
"""A GPU is swapped this long before the node is back; the boot comes after."""
CALM_AFTER_DECOY_S = 48 * HOUR_S
"""A decoy with a failure of the same unit during it or this soon after would be no decoy."""


@dataclass(frozen=True)
class Episode:
    """Signs of trouble on one GPU or node: a true precursor, or a decoy.

    Times are seconds since the fleet's start; `slot` is null for a node's episode.
    """

    kind: PrecursorKind
    node: int
    slot: int | None
    start_s: int
    end_s: int
    strength: float
    is_decoy: bool


@dataclass(frozen=True)
class Incident:
    """One failure. Times are seconds since the fleet's start.

    Attributes:
        fault: Its class.
        node: Index of the node.
        slot: Slot of the failed GPU; null where the node itself failed.
        gpu_uuid: The failed GPU.
        onset_s: When it failed.
        detected_s: When the scheduler's state of the node changed.
        grace_s: When the remaining jobs of the node were ended for the repair.
        end_s: When the node was back in service.
        precursor: Its signs; null where there were none.
        is_replaced: Whether the slot holds another GPU afterwards.
    """

    fault: FaultClass
    node: int
    slot: int | None
    gpu_uuid: str | None
    onset_s: int
    detected_s: int
    grace_s: int
    end_s: int
    precursor: Episode | None
    is_replaced: bool


@dataclass(frozen=True)
class Stay:
    """A GPU in its slot. Null ends: since before the fleet's start, until after its end."""

    gpu: Gpu
    from_s: int | None
    to_s: int | None

    def holds_at(self, second: float) -> bool:
        """Whether the GPU sits in its slot at a second."""
        is_in = self.from_s is None or self.from_s <= second
        return is_in and (self.to_s is None or second < self.to_s)


@dataclass(frozen=True)
class PlannedWork:
    """A node taken out by its operators: drained, worked on, back.

    Times are seconds since the fleet's start.

    Attributes:
        what: A driver update, a reboot, or a hold: kept out for no hardware's sake, not rebooted.
        drain_s: From when it takes no new jobs.
        work_s: When what still runs is ended and the work begins.
        end_s: When it is back in service.
    """

    what: Literal["driver", "reboot", "hold"]
    drain_s: int
    work_s: int
    end_s: int


@dataclass(frozen=True)
class NodeTruth:
    """Everything that happened to a node.

    Attributes:
        node: The node as it stood at the start.
        incidents: By onset.
        decoys: By start.
        stays: By slot and time.
        planned: Planned work, by start.
        exposure_s: Seconds in which the node was in service and could fail.
        expected: Failures to be expected of it over that time, given the GPUs it held.
    """

    node: Node
    incidents: tuple[Incident, ...]
    decoys: tuple[Episode, ...]
    stays: tuple[Stay, ...]
    planned: tuple[PlannedWork, ...]
    exposure_s: float
    expected: float

    @property
    def new_driver_s(self) -> float:
        """When the new driver was installed, seconds; infinite where it was not."""
        updates = [work.work_s for work in self.planned if work.what == "driver"]
        return min(updates, default=math.inf)


def planned_work(regime: Regime, *, index: int, end_s: int) -> tuple[PlannedWork, ...]:
    """The driver update of a node; nodes follow each other, so that few are out at a time.

    Args:
        regime: The fleet's parameters.
        index: Number of the node.
        end_s: The fleet's last second.

    Returns:
        The update; none where not all of it falls into the record.
    """
    plan = regime.disturbances
    work = int(plan.driver_day * 86400 + index * plan.driver_stagger_h * HOUR_S)
    drain = work - int(plan.driver_drain_h * HOUR_S)
    done = work + int(plan.driver_work_min * 60)
    is_within = drain > 0 and done < end_s
    return (PlannedWork("driver", drain, work, done),) if is_within else ()


def simulate_node(regime: Regime, node: Node, *, seed: int, fleet_frailty: float) -> NodeTruth:
    """Lets a node live through the regime's days.

    Failures are a Poisson process over the time the node is in service; its rate is the
    fault table's, times the node's and the GPUs' factors.

    Args:
        regime: The fleet's parameters.
        node: The node.
        seed: The fleet's seed.
        fleet_frailty: What node frailties are divided by.

    Returns:
        The node's truth.
    """
    end_s = int(regime.days * 86400)
    life = _Life(
        regime,
        random_stream(seed, Layer.INCIDENTS, node.index),
        node.index,
        factor=regime.hazard_multiplier * node.frailty / fleet_frailty * node.position_factor,
        gpus=list(node.gpus),
        stays={gpu.slot: [Stay(gpu, None, None)] for gpu in node.gpus},
        planned=planned_work(regime, index=node.index, end_s=end_s),
    )
    while life.now < end_s:
        life.live_on(end_s)
    return NodeTruth(
        node=node,
        incidents=tuple(life.incidents),
        decoys=_draw_decoys(regime, node, life.incidents, seed=seed),
        stays=tuple(stay for slot in sorted(life.stays) for stay in life.stays[slot]),
        planned=life.planned,
        exposure_s=life.exposure_s,
        expected=life.expected,
    )


@dataclass
class _Life:
    """A node's life up to `now`, in seconds since the fleet's start."""

    regime: Regime
    rng: np.random.Generator
    node: int
    factor: float
    gpus: list[Gpu]
    stays: dict[int, list[Stay]]
    planned: tuple[PlannedWork, ...]
    incidents: list[Incident] = field(default_factory=list)
    now: float = 0.0
    exposure_s: float = 0.0
    expected: float = 0.0

    def live_on(self, end_s: int) -> None:
        """Goes on to the next failure and past its repair, past planned work, or to the end."""
        rates = _rates_per_s(self.regime, self.gpus) * self.factor
        total = float(rates.sum())
        onset = self.now + (self.rng.exponential(1 / total) if total > 0 else np.inf)
        work = next((work for work in self.planned if self.now < work.drain_s), None)
        if work and work.drain_s <= min(onset, end_s):
            self._serve(work.drain_s, rate=total)
            self.now = float(work.end_s)
            return
        self._serve(min(onset, end_s), rate=total)
        self.now = float(end_s)
        if onset < end_s:
            chosen = int(self.rng.choice(rates.size, p=rates.ravel() / total))
            fault, slot = divmod(chosen, self.regime.gpus_per_node)
            self._fail(self.regime.faults[fault], slot, onset_s=int(onset))

    def _serve(self, until_s: float, *, rate: float) -> None:
        self.exposure_s += until_s - self.now
        self.expected += rate * (until_s - self.now)

    def _fail(self, fault: FaultClass, slot: int, *, onset_s: int) -> None:
        stay = self.stays[slot][-1]
        incident = _draw_incident(fault, stay, self.rng, node=self.node, onset_s=onset_s)
        self.incidents.append(incident)
        self.planned = _without_clash(self.planned, incident)
        if incident.is_replaced:
            self.gpus[slot] = build_gpu(self.regime, self.rng, slot=slot)
            swap_s = incident.end_s - SWAP_BEFORE_END_S
            self.stays[slot][-1] = replace(stay, to_s=swap_s)
            self.stays[slot].append(Stay(self.gpus[slot], swap_s, None))
        self.now = float(incident.end_s)


def _rates_per_s(regime: Regime, gpus: Sequence[Gpu]) -> np.ndarray:
    """Failure rate per second by fault class and slot, before the node's factors."""
    per_s = np.array([fault.per_gpu_year for fault in regime.faults]) / (HOURS_PER_YEAR * HOUR_S)
    factors = np.array([gpu.hazard_factor for gpu in gpus])
    is_gpu = np.array([fault.entity_kind == "gpu" for fault in regime.faults])
    # A node's own faults do not depend on its GPUs; the slot drawn for them is not used.
    return per_s[:, None] * np.where(is_gpu[:, None], factors[None, :], 1.0)


def _without_clash(planned: tuple[PlannedWork, ...], incident: Incident) -> tuple[PlannedWork, ...]:
    """Planned work that falls into a repair is done during it and leaves no trace of its own."""
    return tuple(
        work for work in planned if incident.onset_s >= work.end_s or work.drain_s >= incident.end_s
    )


def _draw_downtime_s(fault: FaultClass, rng: np.random.Generator, *, is_replaced: bool) -> int:
    """Seconds from onset to return to service."""
    downtime = fault.downtime
    bounds = downtime.range_h
    if is_replaced and downtime.replaced_range_h:
        bounds = downtime.replaced_range_h
    hours = log_uniform(rng, bounds)
    if downtime.tail_h and rng.random() < downtime.tail_share:
        hours = log_uniform(rng, (bounds[1], downtime.tail_h))
    return max(int(hours * HOUR_S), SWAP_BEFORE_END_S if is_replaced else 0)


def _draw_incident(
    fault: FaultClass, stay: Stay, rng: np.random.Generator, *, node: int, onset_s: int
) -> Incident:
    """Everything about an incident whose class, place and onset are given."""
    is_gpu = fault.entity_kind == "gpu"
    slot = stay.gpu.slot if is_gpu else None
    is_replaced = bool(rng.random() < fault.replaced_share)
    downtime = _draw_downtime_s(fault, rng, is_replaced=is_replaced)
    detection = min(int(log_uniform(rng, fault.detection_min) * 60), downtime // 2)
    grace = detection if fault.node_state == "DOWN" else max(detection, min(downtime // 4, 14400))
    precursor = None
    if fault.precursor and rng.random() >= fault.precursor.share_without:
        lead = int(log_uniform(rng, fault.precursor.lead_h) * HOUR_S)
        precursor = Episode(
            kind=fault.precursor.kind,
            node=node,
            slot=slot,
            start_s=max(onset_s - lead, (stay.from_s or 0) if is_gpu else 0),
            end_s=onset_s,
            strength=float(rng.lognormal(0, 0.6)),
            is_decoy=False,
        )
    return Incident(
        fault=fault,
        node=node,
        slot=slot,
        gpu_uuid=stay.gpu.gpu_uuid if is_gpu else None,
        onset_s=onset_s,
        detected_s=onset_s + detection,
        grace_s=onset_s + grace,
        end_s=onset_s + downtime,
        precursor=precursor,
        is_replaced=is_replaced,
    )


def _draw_decoys(
    regime: Regime, node: Node, incidents: Sequence[Incident], *, seed: int
) -> tuple[Episode, ...]:
    """Signs without a failure, spread evenly over units: healthy ones show them too."""
    rng = random_stream(seed, Layer.DECOYS, node.index)
    end_s = int(regime.days * 86400)
    decoys = []
    for decoy in regime.decoys:
        is_node = decoy.kind in NODE_PRECURSORS
        expected = decoy.per_precursor * _precursors_per_node(regime, decoy.kind)
        for _ in range(int(rng.poisson(expected))):
            start = int(rng.uniform(0, end_s))
            episode = Episode(
                kind=decoy.kind,
                node=node.index,
                slot=None if is_node else int(rng.integers(regime.gpus_per_node)),
                start_s=start,
                end_s=min(end_s, start + int(log_uniform(rng, decoy.duration_h) * HOUR_S)),
                strength=float(decoy.strength * rng.lognormal(0, 0.6)),
                is_decoy=True,
            )
            if not any(_follows(incident, episode) for incident in incidents):
                decoys.append(episode)
    return tuple(sorted(decoys, key=lambda episode: (episode.start_s, episode.kind)))


def _precursors_per_node(regime: Regime, kind: PrecursorKind) -> float:
    """Expected true precursors of a kind on a mean node over the regime's days."""
    per_gpu_year = sum(
        fault.per_gpu_year * (1 - fault.precursor.share_without)
        for fault in regime.faults
        if fault.precursor and fault.precursor.kind == kind
    )
    years = regime.gpus_per_node * regime.days * 24 / HOURS_PER_YEAR
    return per_gpu_year * years * regime.hazard_multiplier


def _follows(incident: Incident, episode: Episode) -> bool:
    """Whether the incident hits the episode's unit while it lasts or soon after."""
    is_soon = episode.start_s < incident.end_s and (
        incident.onset_s < episode.end_s + CALM_AFTER_DECOY_S
    )
    return is_soon and episode.slot == incident.slot
