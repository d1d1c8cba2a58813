"""The truth about one node: incidents, their precursors, decoys, replacements, time in service.

How any of it looks to monitoring is in `simulation.fleet.events` and `.telemetry`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from simulation.fleet.hardware import Gpu, Node, build_gpus
from simulation.fleet.hazards import Hazards
from simulation.fleet.planned import PlannedWork, around_repair, plan_work
from simulation.fleet.regime import Regime
from simulation.fleet.regime_faults import NODE_PRECURSORS, Decoy, FaultClass, PrecursorKind
from simulation.fleet.regime_sections import DAYS_PER_YEAR
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
        is_noticed: Whether the site noticed. Where it did not, nothing was done: the node stayed
            in service, and all times are the onset's.
        is_silent: Whether nothing shows of it before it is detected, other than its precursor.
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
    is_noticed: bool = True
    is_silent: bool = False


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
class Service:
    """A stretch of time in which a node was in service and could fail, in seconds."""

    from_s: float
    to_s: float
    has_new_driver: bool


@dataclass(frozen=True)
class NodeTruth:
    """Everything that happened to a node.

    Attributes:
        node: The node as it stood at the start.
        hazard_factor: Factor on all its failure rates: frailty, place and the multiplier.
        incidents: By onset.
        decoys: By start.
        stays: By slot and time.
        planned: Planned work, by start.
        new_driver_s: When the new driver was installed, seconds; infinite where it was not.
        services: When it was in service, by time.
        expected_by_fault: Failures to be expected of it by class in the regime's order, given
            the GPUs it held: the integral of its rates over its time in service.
    """

    node: Node
    hazard_factor: float
    incidents: tuple[Incident, ...]
    decoys: tuple[Episode, ...]
    stays: tuple[Stay, ...]
    planned: tuple[PlannedWork, ...]
    new_driver_s: float
    services: tuple[Service, ...]
    expected_by_fault: tuple[float, ...]

    @property
    def exposure_s(self) -> float:
        """Seconds in which the node was in service and could fail."""
        return sum(service.to_s - service.from_s for service in self.services)

    @property
    def expected(self) -> float:
        """Failures to be expected of it, of all classes."""
        return sum(self.expected_by_fault)


def simulate_node(hazards: Hazards, node: Node, *, seed: int, fleet_frailty: float) -> NodeTruth:
    """Lets a node live through the regime's days.

    Failures are a Poisson process over the time the node is in service; its rate is the
    fault table's, times the node's and the GPUs' factors, the new driver's and the air's.

    Args:
        hazards: The fleet's rates.
        node: The node.
        seed: The fleet's seed.
        fleet_frailty: What node frailties are divided by.

    Returns:
        The node's truth.
    """
    regime = hazards.regime
    end_s = int(regime.days * 86400)
    life = _Life(
        hazards,
        random_stream(seed, Layer.INCIDENTS, node.index),
        node,
        factor=regime.hazard_multiplier * node.frailty / fleet_frailty * node.position_factor,
        gpus=list(node.gpus),
        stays={gpu.slot: [Stay(gpu, None, None)] for gpu in node.gpus},
        planned=plan_work(regime, seed=seed, index=node.index),
        expected=np.zeros(len(regime.faults)),
        silence=random_stream(seed, Layer.SILENCE, node.index),
    )
    while life.now < end_s:
        life.live_on(end_s)
    return NodeTruth(
        node=node,
        hazard_factor=life.factor,
        incidents=tuple(life.incidents),
        decoys=_draw_decoys(regime, node, life.incidents, seed=seed),
        stays=tuple(stay for slot in sorted(life.stays) for stay in life.stays[slot]),
        planned=life.planned,
        new_driver_s=life.new_driver_s,
        services=tuple(life.services),
        expected_by_fault=tuple(life.expected.tolist()),
    )


@dataclass
class _Life:
    """A node's life up to `now`, in seconds since the fleet's start."""

    hazards: Hazards
    rng: np.random.Generator
    node: Node
    factor: float
    gpus: list[Gpu]
    stays: dict[int, list[Stay]]
    planned: tuple[PlannedWork, ...]
    expected: np.ndarray
    silence: np.random.Generator
    incidents: list[Incident] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    now: float = 0.0
    new_driver_s: float = math.inf

    def live_on(self, end_s: int) -> None:
        """Goes on to the next failure and past its repair, past planned work, or to the end."""
        gpu_factors = np.array([gpu.hazard_factor for gpu in self.gpus])
        rates = self.hazards.unit_rates(self.node, gpu_factors) * self.factor
        if self.new_driver_s <= self.now:
            rates = rates * self.hazards.driver_factor[:, None]
        by_fault = rates.sum(axis=1)
        work = next((work for work in self.planned if self.now < work.drain_s), None)
        until_s = min(work.drain_s, end_s) if work else end_s
        onset = self._next_onset(by_fault, until_s=until_s)
        self._serve(min(onset, until_s), by_fault=by_fault)
        if onset < until_s:
            now = rates * self.hazards.heat(onset)[:, None]
            chosen = int(self.rng.choice(now.size, p=now.ravel() / now.sum()))
            fault, slot = divmod(chosen, now.shape[1])
            self._fail(self.hazards.regime.faults[fault], slot, onset=onset, end_s=end_s)
        elif work and work.drain_s < end_s:
            self.now = float(work.end_s)
            if work.what == "driver":
                self.new_driver_s = float(work.work_s)
        else:
            self.now = float(end_s)

    def _next_onset(self, by_fault: np.ndarray, *, until_s: float) -> float:
        """The next failure by thinning: candidates at the peak rate, kept in proportion."""
        hazards, at_s = self.hazards, self.now
        peak = float(by_fault.sum() if hazards.is_even else by_fault @ hazards.peak)
        while peak > 0 and at_s < until_s:
            at_s += self.rng.exponential(1 / peak)
            if hazards.is_even:
                return at_s
            if at_s < until_s and self.rng.random() * peak < by_fault @ hazards.heat(at_s):
                return at_s
        return math.inf

    def _serve(self, until_s: float, *, by_fault: np.ndarray) -> None:
        from_s = self.now
        if self.services and self.services[-1].to_s == from_s:
            from_s = self.services.pop().from_s  # nobody noticed the failure that lay between
        self.services.append(Service(from_s, until_s, self.new_driver_s <= self.now))
        self.expected += by_fault * self.hazards.heat_seconds(self.now, until_s)

    def _fail(self, fault: FaultClass, slot: int, *, onset: float, end_s: int) -> None:
        stay = self.stays[slot][-1]
        drawn = _draw_incident(fault, stay, self.rng, node=self.node.index, onset_s=int(onset))
        is_silent = bool(self.silence.random() < fault.silent_share)
        incident = replace(_found_by(drawn, self.planned), is_silent=is_silent)
        self.incidents.append(incident)
        if not incident.is_noticed:
            self.now = onset
            return
        self.planned = around_repair(
            self.planned, onset_s=incident.onset_s, end_s=incident.end_s, last_s=end_s
        )
        if incident.is_replaced:
            (self.gpus[slot],) = build_gpus(self.hazards.regime, self.rng, slots=[slot])
            swap_s = max(incident.detected_s, incident.end_s - SWAP_BEFORE_END_S)
            self.stays[slot][-1] = replace(stay, to_s=swap_s)
            self.stays[slot].append(Stay(self.gpus[slot], swap_s, None))
        self.now = float(incident.end_s)


def _found_by(incident: Incident, planned: Sequence[PlannedWork]) -> Incident:
    """The incident, found at the latest when its node is drained for planned work.

    Were the work left out before anybody knows why, that would tell of the failure.
    """
    drains = [work.drain_s for work in planned if incident.onset_s < work.drain_s]
    found_s = min([incident.detected_s, *drains])
    if found_s == incident.detected_s:
        return incident
    is_down = incident.grace_s == incident.detected_s
    return replace(incident, detected_s=found_s, grace_s=found_s if is_down else incident.grace_s)


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
    check = fault.health_check
    if check and onset_s < check.day * 86400 and rng.random() < check.missed_before:
        precursor = _draw_precursor(fault, stay, rng, node=node, onset_s=onset_s)
        uuid = stay.gpu.gpu_uuid if is_gpu else None
        times = (onset_s, onset_s, onset_s, onset_s)
        return Incident(fault, node, slot, uuid, *times, precursor, False, False)  # noqa: FBT003
    downtime = _draw_downtime_s(fault, rng, is_replaced=is_replaced)
    detection = min(int(log_uniform(rng, fault.detection_min) * 60), downtime // 2)
    grace = detection if fault.node_state == "DOWN" else max(detection, min(downtime // 4, 14400))
    return Incident(
        fault=fault,
        node=node,
        slot=slot,
        gpu_uuid=stay.gpu.gpu_uuid if is_gpu else None,
        onset_s=onset_s,
        detected_s=onset_s + detection,
        grace_s=onset_s + grace,
        end_s=onset_s + downtime,
        precursor=_draw_precursor(fault, stay, rng, node=node, onset_s=onset_s),
        is_replaced=is_replaced,
    )


def _draw_precursor(
    fault: FaultClass, stay: Stay, rng: np.random.Generator, *, node: int, onset_s: int
) -> Episode | None:
    """The signs before a failure; they do not begin before the GPU came, or the record."""
    if fault.precursor is None or rng.random() < fault.precursor.share_without:
        return None
    is_gpu = fault.entity_kind == "gpu"
    lead_s = int(log_uniform(rng, fault.precursor.lead_h) * HOUR_S)
    return Episode(
        kind=fault.precursor.kind,
        node=node,
        slot=stay.gpu.slot if is_gpu else None,
        start_s=max(onset_s - lead_s, (stay.from_s or 0) if is_gpu else 0),
        end_s=onset_s,
        strength=float(rng.lognormal(0, 0.6)),
        is_decoy=False,
    )


def _draw_decoys(
    regime: Regime, node: Node, incidents: Sequence[Incident], *, seed: int
) -> tuple[Episode, ...]:
    """Signs without a failure, spread evenly over units: healthy ones show them too."""
    rng = random_stream(seed, Layer.DECOYS, node.index)
    counts = rng.poisson(_decoys_per_node(regime))
    decoys = []
    for i, j in np.argwhere(counts):
        for _ in range(int(counts[i, j])):
            episode = _draw_decoy(regime, regime.decoys[j], rng, node=node.index)
            is_independent = i == 1
            if is_independent or not any(_follows(incident, episode) for incident in incidents):
                decoys.append(episode)
    return tuple(sorted(decoys, key=lambda episode: (episode.start_s, episode.kind)))


def _draw_decoy(regime: Regime, decoy: Decoy, rng: np.random.Generator, *, node: int) -> Episode:
    end_s = int(regime.days * 86400)
    start_s = int(rng.uniform(0, end_s))
    slot = None if decoy.kind in NODE_PRECURSORS else int(rng.integers(regime.gpus_per_node))
    return Episode(
        kind=decoy.kind,
        node=node,
        slot=slot,
        start_s=start_s,
        end_s=min(end_s, start_s + int(log_uniform(rng, decoy.duration_h) * HOUR_S)),
        strength=float(decoy.strength * rng.lognormal(0, 0.6)),
        is_decoy=True,
    )


def _decoys_per_node(regime: Regime) -> np.ndarray:
    """Decoys to be expected of a mean node: those that no failure follows, independent ones."""
    gpu_years = regime.gpus_per_node * regime.days / DAYS_PER_YEAR * regime.hazard_multiplier
    precursors: dict[str, float] = defaultdict(float)
    for fault in regime.faults:
        if fault.precursor:
            share_with = 1 - fault.precursor.share_without
            precursors[fault.precursor.kind] += fault.per_gpu_year * share_with
    unfollowed = [decoy.per_precursor * precursors[decoy.kind] for decoy in regime.decoys]
    independent = [decoy.per_gpu_year for decoy in regime.decoys]
    return np.array([unfollowed, independent]) * gpu_years


def _follows(incident: Incident, episode: Episode) -> bool:
    """Whether the incident hits the episode's unit while it lasts or soon after."""
    is_soon = episode.start_s < incident.end_s and (
        incident.onset_s < episode.end_s + CALM_AFTER_DECOY_S
    )
    return is_soon and episode.slot == incident.slot
