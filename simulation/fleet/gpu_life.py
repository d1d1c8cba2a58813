"""Gathers what the sampling loop needs of a GPU: its constants, jobs, failures, signs and steps.

The loop itself is in `.sampling`; what happened is in the truth, the schedule and the events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulation.fleet import gpu_tables as to
from simulation.fleet.events import NodeEvents
from simulation.fleet.hardware import Gpu
from simulation.fleet.incidents import Episode, NodeTruth, Stay
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt

DRIVER_MIB: Final = 4
"""Frame buffer that the driver itself takes."""
RESERVED_MIB: Final = 551
"""Frame buffer that no job may use."""
PCIE_PER_DAY, CRC_PER_DAY = 0.15, 0.3
"""Replays and CRC errors of a healthy GPU."""
PAST_POWER, PAST_CAPPED = (0.55, 0.9), (0.0, 0.01)
"""Before the record, while jobs ran: share of the range of power, and of time held back by it."""
UNSEEN_SHARE: Final = 0.15
"""Of failing memories, the share whose single-bit errors do not rise before the failure."""

_KINDS: Final = {"training": to.TRAINING, "inference": to.INFERENCE, "debug": to.DEBUG}
_MODES: Final = {"idle": to.IDLE, "blank": to.BLANK, "gone": to.GONE}
_SIGNS: Final = {
    "hbm_errors": to.HBM,
    "remap_growth": to.REMAP,
    "pcie_replays": to.PCIE,
    "nvlink_errors": to.NVLINK,
    "hot": to.HOT,
    "power_swings": to.POWER,
}
_MARKS: Final = {
    "dbe": to.DBE,
    "remap_uncorrectable": to.UNCORRECTABLE,
    "remap_correctable": to.CORRECTABLE,
    "remap_failure": to.REMAP_FAILURE,
}


@dataclass(frozen=True)
class GpuLife:
    """One GPU in its slot, as arrays for `sampling.sample_gpu`.

    Attributes:
        stay: The GPU and its time in the slot.
        constants: Its peculiarities, (N_CONSTANTS,).
        tables: Loads, keys, failures, signs, steps.
        first: Counters as they stand when its record begins, (N_CARRIED,).
    """

    stay: Stay
    constants: np.ndarray
    tables: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    first: np.ndarray


def gather_lives(
    regime: Regime,
    truth: NodeTruth,
    attempts: Sequence[Attempt],
    events: NodeEvents,
    *,
    rng: np.random.Generator,
    past: np.random.Generator,
) -> tuple[GpuLife, ...]:
    """Gathers the life of every GPU that was in a node.

    Args:
        regime: The fleet's parameters.
        truth: The node's truth.
        attempts: Runs of jobs on it.
        events: What happened on it.
        rng: Stream to draw the course of signs from.
        past: Stream to draw from what was counted before the record.

    Returns:
        One per stay of a GPU, by slot and time.
    """
    per_slot = [
        (
            *_loads(regime, attempts, node=truth.node.index, slot=slot, is_mig=truth.node.is_mig),
            _failures(truth, slot),
        )
        for slot in range(regime.gpus_per_node)
    ]
    signs = _signs(truth, rng)
    lives = []
    for stay in truth.stays:
        slot = stay.gpu.slot
        loads, keys, fails = per_slot[slot]
        own = _table([row for at_slot, row in signs if at_slot == slot and _is_in(row[0], stay)], 5)
        steps = _steps(events, stay)
        up_s = truth.node.up_before_s if stay.from_s is None else 0
        first = _counted(regime, stay.gpu, past, up_s=up_s)
        constants = _constants(regime, stay, is_mig=truth.node.is_mig)
        lives.append(GpuLife(stay, constants, (loads, keys, fails, own, steps), first))
    return tuple(lives)


def _table(rows: Sequence[list[float]], width: int) -> np.ndarray:
    return np.array(sorted(rows), dtype=np.float64).reshape(len(rows), width)


def _is_in(at_s: float, stay: Stay) -> bool:
    """Whether a GPU was in its slot; what began before the record counts for the first one."""
    return stay.holds_at(at_s) or (at_s < 0 and stay.from_s is None)


def _constants(regime: Regime, stay: Stay, *, is_mig: bool) -> np.ndarray:
    hardware, gpu = regime.hardware, stay.gpu
    values = np.zeros(to.N_CONSTANTS)
    values[to.TEMP_OFFSET_C], values[to.POWER_OFFSET_W] = gpu.temp_offset_c, gpu.power_offset_w
    values[to.SBE_PER_S] = gpu.sbe_per_day / 86400
    values[to.PCIE_PER_S], values[to.CRC_PER_S] = PCIE_PER_DAY / 86400, CRC_PER_DAY / 86400
    values[to.BLANK_SHARE] = regime.disturbances.blank_share
    values[to.SCRAPE_S] = regime.scrape_s
    values[to.IDLE_W], values[to.MAX_W] = hardware.idle_w, hardware.max_w
    values[to.IDLE_MHZ], values[to.MAX_MHZ] = hardware.idle_clock_mhz, hardware.max_clock_mhz
    values[to.MEMORY_MHZ] = hardware.memory_clock_mhz
    values[to.USABLE_MIB] = hardware.frame_buffer_mib - RESERVED_MIB
    values[to.IS_MIG] = is_mig
    values[to.START_OF_DAY_S] = regime.start_of_day_s
    return values


def _counted(regime: Regime, gpu: Gpu, rng: np.random.Generator, *, up_s: int) -> np.ndarray:
    """Counters of a GPU whose node has been up for so long and worked as fleets do."""
    first = np.zeros(to.N_CARRIED, dtype=np.int64)
    days, work, hardware = up_s / 86400, regime.workload.gpu_hours_share, regime.hardware
    first[to.SBE_VOL] = rng.poisson(gpu.sbe_per_day * days)
    first[to.PCIE_VOL] = rng.poisson(PCIE_PER_DAY * days)
    first[to.CRC_VOL] = rng.poisson(CRC_PER_DAY * days)
    first[to.SBE_LIFE], first[to.COR_LIFE] = gpu.history
    first[to.SBE_LIFE] += first[to.SBE_VOL]
    busy = work * rng.uniform(*PAST_POWER)
    mean_w = hardware.idle_w + (hardware.max_w - hardware.idle_w) * busy
    first[to.ENERGY_MJ] = int(mean_w * up_s * 1000)
    first[to.CAPPED_US] = int(up_s * 1e6 * work * rng.uniform(*PAST_CAPPED))
    return first


def _loads(
    regime: Regime, attempts: Sequence[Attempt], *, node: int, slot: int, is_mig: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Jobs on one GPU by start, with a key that all GPUs of a job share."""
    mig = regime.hardware.mig
    part = 1 / mig.instances if is_mig and mig else 1.0
    rows = []
    for attempt in attempts:
        if attempt.start_s is None:
            continue
        if any(place == node and slot in slots for place, slots in attempt.placement):
            load = attempt.job.load
            end_s = np.inf if attempt.end_s is None else attempt.end_s
            kind, ramp_per_s = _KINDS[load.kind], 1 / max(1.0, load.ramp_min * 60)
            shares = [load.util_pct, load.power_share, load.tensor_ratio, load.memory_mib]
            row = [attempt.start_s, end_s, kind, *(part * share for share in shares), ramp_per_s]
            rows.append((row, attempt.job.job_id))
    rows.sort()
    keys = [key for _, key in rows]
    table = _table([[*row, *_checkpoints(key)] for row, key in rows], to.N_LOAD_COLUMNS)
    return table, np.array(keys, dtype=np.int64)


def _checkpoints(key: int) -> tuple[float, float, float]:
    """Checkpoints per second, the share of time they take, and the load meanwhile."""
    every, takes, level = (to.share_of(key, number) for number in (1, 2, 3))
    every_s = 1200 + 2400 * every
    return 1 / every_s, (40 + 110 * takes) / every_s, 0.05 + 0.45 * level


def _failures(truth: NodeTruth, slot: int) -> np.ndarray:
    """Times in which the slot's GPU has failed and is not yet repaired.

    One that failed by heat still works, throttled, until its job is ended; one that failed in
    silence works as ever.
    """
    rows = []
    for incident in truth.incidents:
        if incident.slot == slot and not incident.is_silent:
            is_heat = incident.fault.fault_type == "thermal"
            hot_until = incident.grace_s if is_heat else -np.inf
            mode = _MODES[incident.fault.telemetry]
            rows.append([incident.onset_s, incident.end_s, mode, hot_until])
    return _table(rows, 4)


def _signs(truth: NodeTruth, rng: np.random.Generator) -> list[tuple[int, list[float]]]:
    """Episodes that show in telemetry, with the slot of each."""
    true = [incident.precursor for incident in truth.incidents if incident.precursor]
    rows = []
    for episode in (*true, *truth.decoys):
        course = _course(episode, rng)
        is_unseen = episode.kind == "hbm_errors" and rng.random() < UNSEEN_SHARE
        kind = _SIGNS.get(episode.kind)
        if kind is not None and episode.slot is not None and not is_unseen:
            row = [episode.start_s, episode.end_s, kind, episode.strength, course]
            rows.append((episode.slot, [float(value) for value in row]))
    return rows


def _course(episode: Episode, rng: np.random.Generator) -> float:
    """Failures grow by some power of time; decoys level off, fade, or grow and then just stop."""
    if not episode.is_decoy:
        return float(rng.uniform(0.5, 2.0))
    return (to.LEVEL_COURSE, to.TENT_COURSE, 1.0)[int(rng.integers(3))]


def _steps(events: NodeEvents, stay: Stay) -> np.ndarray:
    """Counter steps, Xids and reboots of one GPU's time in its slot."""
    slot = stay.gpu.slot
    rows = [[mark.at_s, _MARKS[mark.counter]] for mark in events.marks if mark.slot == slot]
    rows += [
        [line.at_s, to.XID_BASE + line.code]
        for line in events.lines
        if line.slot == slot and line.code is not None
    ]
    rows += [[float(boot.up_s), to.BOOT] for boot in events.boots]
    return _table([row for row in rows if _is_in(row[0], stay)], 2)
