"""What happened on a node as its kernel log tells it, and the counters that moved with it.

The texts are in `simulation.fleet.kernel_lines`; sampled telemetry is in `.telemetry`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from simulation.fleet.incidents import SWAP_BEFORE_END_S, Episode, Incident, NodeTruth
from simulation.fleet.kernel_lines import (
    KernelLine,
    aer_line,
    boot_lines,
    chatter_lines,
    draw_xid,
    link_lines,
    off_bus_banner,
    oom_line,
)
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt
from simulation.fleet.seeds import Layer, random_stream

RARE_ROUTE: Final = 0.15
"""Share of off-bus failures that the driver reports by its banner alone, without an Xid."""

_APPLICATION_XIDS: Final = ((13, 0.15), (31, 0.75), (43, 0.10))
"""Shares as on Summit, of those three: page faults are by far the commonest."""


@dataclass(frozen=True)
class Mark:
    """A step of a GPU's counter: double-bit errors, remapped rows, remap failures."""

    at_s: float
    slot: int
    counter: Literal["dbe", "remap_uncorrectable", "remap_correctable", "remap_failure"]


@dataclass(frozen=True)
class Boot:
    """A reboot: no telemetry from `down_s` to `up_s`, volatile counters from zero after it."""

    down_s: int
    up_s: int


@dataclass(frozen=True)
class NodeEvents:
    """A node's kernel messages by time, counter steps and reboots."""

    lines: tuple[KernelLine, ...]
    marks: tuple[Mark, ...]
    boots: tuple[Boot, ...]


@dataclass
class _Story:
    """Lines and marks as they are collected."""

    rng: np.random.Generator
    lines: list[KernelLine] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def xid(self, code: int, *, at_s: float, slot: int) -> None:
        self.lines.append(draw_xid(self.rng, code, at_s=at_s, slot=slot))
        if code == 63:
            self.marks.append(Mark(at_s, slot, "remap_correctable"))
        if code == 64:
            self.marks.append(Mark(at_s, slot, "remap_failure"))
        if code in (48, 95):
            self.marks.append(Mark(at_s, slot, "dbe"))
            self.marks.append(Mark(at_s, slot, "remap_uncorrectable"))

    def chain(self, codes: Iterable[int], *, at_s: float, slot: int) -> None:
        """Xids that follow each other within milliseconds to seconds."""
        for code in codes:
            self.xid(code, at_s=at_s, slot=slot)
            at_s += float(self.rng.lognormal(-3, 1.5))


def tell_node(
    regime: Regime, truth: NodeTruth, attempts: Sequence[Attempt], *, seed: int
) -> NodeEvents:
    """Everything a node's kernel log says, given what happened on it.

    Args:
        regime: The fleet's parameters.
        truth: The node's truth.
        attempts: Runs of jobs on this node.
        seed: The fleet's seed.

    Returns:
        Lines, counter steps and reboots, by time.
    """
    index = truth.node.index
    story = _Story(random_stream(seed, Layer.EVENTS, index))
    for incident in truth.incidents:
        if incident.precursor:
            _tell_episode(story, incident.precursor, regime)
        if not incident.is_silent:
            _tell_onset(story, incident, regime)
    for decoy in truth.decoys:
        _tell_episode(story, decoy, regime)
    # By their ends, so that what is drawn for one depends on nothing that happens later.
    for attempt in sorted(attempts, key=_ended_s):
        _tell_end_of_job(story, attempt, node=index)
    boots = _boots(regime, truth)
    end_s = int(regime.days * 86400)
    plan = regime.disturbances
    for boot in boots:
        driver = plan.driver_after if boot.up_s >= truth.new_driver_s else plan.driver_before
        story.lines.extend(boot_lines(boot.up_s - 60, driver=driver))
    chatter = random_stream(seed, Layer.CHATTER, index)
    count = int(chatter.poisson(plan.chatter_per_day * regime.days))
    for at in chatter.uniform(0, end_s, count).tolist():
        said = chatter_lines(chatter, at, clock_s=regime.start.timestamp() + at)
        story.lines.extend(said if _is_alive(said[0], boots) else ())
    lines = [line for line in story.lines if 0 <= line.at_s < end_s and _is_alive(line, boots)]
    return NodeEvents(
        lines=tuple(sorted(lines, key=lambda line: line.at_s)),
        marks=tuple(sorted(story.marks, key=lambda mark: mark.at_s)),
        boots=boots,
    )


def _ended_s(attempt: Attempt) -> float:
    return math.inf if attempt.end_s is None else attempt.end_s


def _is_alive(line: KernelLine, boots: Sequence[Boot]) -> bool:
    """A node that is off says nothing; the last minute before `up_s` is the boot itself."""
    return not any(boot.down_s <= line.at_s < boot.up_s - 60 for boot in boots)


def _boots(regime: Regime, truth: NodeTruth) -> tuple[Boot, ...]:
    """A repair of a GPU ends with a reboot; one of the network does not.

    A node whose GPU is swapped is off from the swap on.
    """
    length = int(regime.disturbances.reboot_min * 60)
    boots = [
        Boot(
            max(
                incident.detected_s,
                incident.end_s - (SWAP_BEFORE_END_S if incident.is_replaced else length),
            ),
            incident.end_s,
        )
        for incident in truth.incidents
        if incident.slot is not None and incident.is_noticed
    ]
    boots += [Boot(work.work_s, work.end_s) for work in truth.planned if work.what != "hold"]
    return tuple(sorted(boots, key=lambda boot: boot.up_s))


def _times_in(rng: np.random.Generator, episode: Episode, count: int) -> list[float]:
    """Times within an episode; those of a true precursor crowd towards its end."""
    place = rng.random(count) if episode.is_decoy else rng.random(count) ** 0.6
    length = episode.end_s - episode.start_s
    return sorted(float(episode.start_s + length * x) for x in place)


def _tell_episode(story: _Story, episode: Episode, regime: Regime) -> None:
    """The log lines of signs; some signs show in telemetry alone."""
    rng, strength, slot = story.rng, episode.strength, episode.slot
    if episode.kind == "link_flaps":
        for at in _times_in(rng, episode, 1 + int(rng.poisson(3 * strength))):
            story.lines.extend(link_lines(at, is_up=False))
            story.lines.extend(link_lines(at + float(rng.uniform(1, 20)), is_up=True))
    if slot is None:
        return
    if episode.kind == "pcie_replays":
        for at in _times_in(rng, episode, int(rng.poisson(1.5 * strength))):
            story.lines.append(aer_line(at, bus=regime.hardware.pci_buses[slot]))
    elif episode.kind == "repeated_xids":
        for at in _times_in(rng, episode, 2 + int(rng.poisson(4 * strength))):
            story.xid(_application_xid(rng), at_s=at, slot=slot)
    elif episode.kind in ("hbm_errors", "remap_growth"):
        _tell_memory_signs(story, episode, slot=slot)


def _tell_memory_signs(story: _Story, episode: Episode, *, slot: int) -> None:
    """Xid 92 and 63. Not every failing memory says the same: each is shown by a part of them."""
    rng, strength = story.rng, episode.strength
    is_growth = episode.kind == "remap_growth"
    n_92 = int(rng.poisson(1.5 * strength)) if rng.random() < 0.35 and not is_growth else 0
    n_63 = 1 + int(rng.poisson((2 if is_growth else 0.4) * strength))
    if not is_growth and rng.random() >= 0.4 * strength:
        n_63 = 0
    for code, count in ((92, n_92), (63, n_63)):
        for at in _times_in(rng, episode, count):
            story.xid(code, at_s=at, slot=slot)
            if is_growth:
                story.marks.append(Mark(at, slot, "remap_uncorrectable"))


def _tell_onset(story: _Story, incident: Incident, regime: Regime) -> None:
    """The messages of the failure itself; some failures have none."""
    rng, at, slot = story.rng, float(incident.onset_s), incident.slot
    at += float(rng.random())
    if slot is None:
        story.lines.extend(link_lines(at, is_up=False))
        story.lines.extend(link_lines(max(at + 1, incident.end_s - 5.0), is_up=True))
        return
    fault = incident.fault.fault_type
    victims = [45] * int(rng.integers(0, 4))
    if fault == "off_bus" and rng.random() < RARE_ROUTE:
        story.lines.extend(off_bus_banner(at, bus=regime.hardware.pci_buses[slot]))
        return
    if fault == "power" and rng.random() < 0.4:
        return  # the board is dark before the driver can say a word
    chains: dict[str, tuple[tuple[int, ...], ...]] = {
        "hbm_uncorrectable": ((48, 63, 94), (48, 95), (48, 63), (95,)),
        "row_remap_failure": ((64,), (48, 64)),
        "off_bus": ((79,), (79, 154)),
        "gsp": ((119, 119), (119, 154), (120,), (119,)),
        "nvlink": ((74,), (74, 74)),
        "power": ((54,), (54, 79)),
        "other_gpu": ((62,), (109,)),
    }
    if fault in chains:
        options = chains[fault]
        chosen = options[int(rng.integers(len(options)))]
        story.chain([*chosen, *victims], at_s=at, slot=slot)


def _tell_end_of_job(story: _Story, attempt: Attempt, *, node: int) -> None:
    """Application Xids of a crash, and the kernel's word on an out-of-memory end."""
    rng = story.rng
    if attempt.end_s is None:
        return
    at = float(attempt.end_s - rng.uniform(1, 20))
    if attempt.state == "OUT_OF_MEMORY" and attempt.placement[0][0] == node:
        story.lines.append(oom_line(rng, at))
    if not attempt.is_own_crash:
        return
    code = _application_xid(rng)
    place, slots = attempt.placement[0]
    # A crash shows where it began: on one GPU, or on all that the job has in that node.
    for slot in slots if attempt.job.is_crash_on_all else slots[:1]:
        if place == node:
            codes = [code] * int(rng.integers(1, 3)) + [45] * int(rng.random() < 0.3)
            story.chain(codes, at_s=at + float(rng.random()), slot=slot)


def _application_xid(rng: np.random.Generator) -> int:
    codes, shares = zip(*_APPLICATION_XIDS, strict=True)
    return int(rng.choice(codes, p=shares))
