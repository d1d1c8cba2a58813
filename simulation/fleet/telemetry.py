"""What a node's exporter reports: DCGM fields of each GPU, in DCGM's names and units.

File formats are in `simulation.writers`; what the metrics mean is in features.telemetry_metrics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulation.fleet.climate import inlet_temperature
from simulation.fleet.events import NodeEvents
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.load import GpuLoad, node_load
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt
from simulation.fleet.seeds import Layer, random_stream
from simulation.fleet.signs import Signs, draw_signs, running_count, stay_range

BLANK_INT: Final = 9223372036854775794
"""DCGM's "no value" in 64-bit fields (dcgm_structs.h: DCGM_INT64_NOT_FOUND and its kin)."""
BLANK_FLOAT: Final = 140737488355328.0
"""The same in floating-point fields."""

IDLE_BIT, POWER_CAP_BIT, SW_THERMAL_BIT, HW_THERMAL_BIT = 0x1, 0x4, 0x20, 0x40
HOT_C: Final = 83
THROTTLE_C: Final = 88
FAILED_HEAT_C: Final = 26
"""How much hotter a GPU runs whose cooling has failed, until throttling and its job's end."""

FLOAT_FIELDS: Final = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
_MAY_BE_BLANK: Final = (
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
)


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
    rng = random_stream(seed, Layer.TELEMETRY, truth.node.index)
    at_s = np.arange(0, int(regime.days * 86400), regime.scrape_s) + truth.node.scrape_offset_s
    signs = draw_signs(regime, truth, at_s, rng=rng)
    load = node_load(regime, attempts, at_s, node=truth.node.index, rng=rng)
    fields = _gauges(regime, truth, load, signs, at_s=at_s, seed=seed, rng=rng)
    fields |= _counters(truth, events, signs, at_s=at_s)
    fields |= _energy(regime, fields, events, at_s=at_s)
    _apply_blanks(regime, truth, fields, at_s=at_s, rng=rng)
    arrives = _arrivals(regime, truth, events, signs, at_s=at_s, rng=rng)
    uuids = np.empty((regime.gpus_per_node, at_s.size), dtype=object)
    for stay in truth.stays:
        first, last = stay_range(at_s, stay.from_s, stay.to_s)
        uuids[stay.gpu.slot, first:last] = stay.gpu.gpu_uuid
    slots = np.broadcast_to(np.arange(regime.gpus_per_node)[:, None], uuids.shape)
    times = np.broadcast_to(at_s[None, :], uuids.shape)
    kept = {name: values[arrives] for name, values in fields.items()}
    return NodeTelemetry(uuids[arrives], slots[arrives], times[arrives], kept)


def _per_stay(
    truth: NodeTruth, at_s: np.ndarray, *, shape: tuple[int, int], name: str
) -> np.ndarray:
    """A constant of the GPU in each slot at each sample."""
    values = np.zeros(shape)
    for stay in truth.stays:
        first, last = stay_range(at_s, stay.from_s, stay.to_s)
        values[stay.gpu.slot, first:last] = getattr(stay.gpu, name)
    return values


def _failed_samples(truth: NodeTruth, at_s: np.ndarray, *, how: str | None = None) -> np.ndarray:
    """Where a slot's GPU has failed and is not yet repaired, optionally of one telemetry mode."""
    failed = np.zeros((len(truth.node.gpus), at_s.size), dtype=bool)
    for incident in truth.incidents:
        if incident.slot is not None and how in (None, incident.fault.telemetry):
            first, last = stay_range(at_s, incident.onset_s, incident.end_s)
            failed[incident.slot, first:last] = True
    return failed


def _gauges(
    regime: Regime,
    truth: NodeTruth,
    load: GpuLoad,
    signs: Signs,
    *,
    at_s: np.ndarray,
    seed: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Utilisation, power, temperatures, clocks and memory."""
    hardware, shape = regime.hardware, load.util_pct.shape
    is_failed = _failed_samples(truth, at_s)
    is_running_hot = _thermal_failures(truth, at_s)
    is_busy = (load.util_pct > 0) & (~is_failed | is_running_hot)
    offset_w = _per_stay(truth, at_s, shape=shape, name="power_offset_w")
    power = _power(regime, load, signs, offset_w=offset_w, is_busy=is_busy, rng=rng)
    inlet = inlet_temperature(regime, at_s, seed=seed) + truth.node.inlet_offset_c
    settled = inlet + 7 + 0.054 * power + _per_stay(truth, at_s, shape=shape, name="temp_offset_c")
    settled = settled + signs.heat_c + np.where(is_running_hot, FAILED_HEAT_C, 0)
    before = np.concatenate([settled[:, :1], settled[:, :-1]], axis=1)
    temp = np.round(0.8 * settled + 0.2 * before + rng.normal(0, 0.4, shape))
    memory_temp = np.round(settled + 5 + 0.01 * power + rng.normal(0, 0.4, shape))
    reasons, clock = _clocks(regime, power=power, temp=temp, is_busy=is_busy, rng=rng)
    used = np.where(is_busy | (load.memory_mib > 100) & ~is_failed, load.memory_mib, 4)
    util = np.where(is_busy, load.util_pct, 0)
    values = {
        "DCGM_FI_DEV_GPU_TEMP": temp,
        "DCGM_FI_DEV_MEMORY_TEMP": memory_temp,
        "DCGM_FI_DEV_POWER_USAGE": np.round(power),
        "DCGM_FI_DEV_SM_CLOCK": clock,
        "DCGM_FI_DEV_MEM_CLOCK": np.full(shape, hardware.memory_clock_mhz),
        "DCGM_FI_DEV_GPU_UTIL": util,
        "DCGM_FI_DEV_MEM_COPY_UTIL": np.round(0.45 * util),
        "DCGM_FI_DEV_FB_USED": used,
        "DCGM_FI_DEV_FB_FREE": hardware.frame_buffer_mib - 551 - used,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": np.where(is_busy, load.tensor_ratio, 0),
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": reasons,
    }
    return {name: _typed(name, array) for name, array in values.items()}


def _power(
    regime: Regime,
    load: GpuLoad,
    signs: Signs,
    *,
    offset_w: np.ndarray,
    is_busy: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Power in W: idle, the load's share of the range above it, and what swings."""
    hardware, shape = regime.hardware, is_busy.shape
    idle = hardware.idle_w + 0.3 * offset_w + rng.normal(0, 0.6, shape)
    span = hardware.max_w - hardware.idle_w
    work = span * load.power_share + offset_w + rng.normal(0, 5, shape)
    swing = signs.power_sigma_w * rng.normal(0, 1, shape)
    power = idle + np.where(is_busy, work + swing, 0)
    return np.asarray(np.clip(power, 0.6 * hardware.idle_w, hardware.max_w + 1))


def _typed(name: str, values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64 if name in FLOAT_FIELDS else np.int64)


def _thermal_failures(truth: NodeTruth, at_s: np.ndarray) -> np.ndarray:
    """Where a GPU that failed by heat still works, throttled, until its job is ended."""
    hot = np.zeros((len(truth.node.gpus), at_s.size), dtype=bool)
    for incident in truth.incidents:
        if incident.slot is not None and incident.fault.fault_type == "thermal":
            first, last = stay_range(at_s, incident.onset_s, incident.grace_s)
            hot[incident.slot, first:last] = True
    return hot


def _clocks(
    regime: Regime,
    *,
    power: np.ndarray,
    temp: np.ndarray,
    is_busy: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Reasons for reduced clocks, as DCGM's bit mask, and the clock that follows."""
    hardware = regime.hardware
    is_capped = is_busy & (power > 0.95 * hardware.max_w)
    is_warm, is_hot = is_busy & (temp >= HOT_C), is_busy & (temp >= THROTTLE_C)
    # Benign: for a moment the cap is reported although power is far from it.
    is_blip = is_busy & (rng.random(power.shape) < 0.004)
    reasons = (
        IDLE_BIT * ~is_busy
        + POWER_CAP_BIT * (is_capped | is_blip)
        + SW_THERMAL_BIT * is_warm
        + HW_THERMAL_BIT * is_hot
    )
    step = 15 * rng.integers(1, 12, power.shape)
    clock = np.where(is_busy, hardware.max_clock_mhz, hardware.idle_clock_mhz)
    clock = clock - step * (is_capped | is_warm) - 4 * step * is_hot
    return reasons, clock


def _counters(
    truth: NodeTruth, events: NodeEvents, signs: Signs, *, at_s: np.ndarray
) -> dict[str, np.ndarray]:
    """Error counters, row remapping and the last Xid."""
    shape = signs.sbe.shape
    boots = [int(np.searchsorted(at_s, boot.up_s)) for boot in events.boots]
    dbe, unc, cor, failed = (
        _marked(events, name, at_s, shape=shape)
        for name in ("dbe", "remap_uncorrectable", "remap_correctable", "remap_failure")
    )
    sbe_life, unc_life, cor_life = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    dbe_life, failure, pending = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for stay in truth.stays:
        first, last = stay_range(at_s, stay.from_s, stay.to_s)
        part = (stay.gpu.slot, slice(first, last))
        resets = [boot - first for boot in boots if first < boot < last]
        sbe_life[part] = np.cumsum(signs.sbe[part]) + stay.gpu.history[0]
        dbe_life[part] = np.cumsum(dbe[part])
        unc_life[part] = np.cumsum(unc[part])
        cor_life[part] = np.cumsum(cor[part]) + stay.gpu.history[1]
        failure[part] = np.minimum(1, running_count(failed[part], resets))
        pending[part] = np.minimum(1, running_count(unc[part] + cor[part], resets))
    replays = signs.crc // 2
    return {
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _since_boot(signs.sbe, boots),
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _since_boot(dbe, boots),
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": sbe_life,
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": dbe_life,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": unc_life,
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": cor_life,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": failure,
        "DCGM_FI_DEV_ROW_REMAP_PENDING": pending,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _since_boot(signs.pcie, boots),
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _since_boot(signs.crc, boots),
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _since_boot(replays, boots),
        "DCGM_FI_DEV_XID_ERRORS": _last_xid(events, at_s, boots=boots, shape=shape),
    }


def _since_boot(new: np.ndarray, boots: Sequence[int]) -> np.ndarray:
    return np.stack([running_count(row, boots) for row in new]).astype(np.int64)


def _marked(
    events: NodeEvents, counter: str, at_s: np.ndarray, *, shape: tuple[int, ...]
) -> np.ndarray:
    """Steps of a counter at the first sample after each mark."""
    steps = np.zeros(shape, dtype=np.int64)
    for mark in events.marks:
        index = int(np.searchsorted(at_s, mark.at_s))
        if mark.counter == counter and index < at_s.size:
            steps[mark.slot, index] += 1
    return steps


def _last_xid(
    events: NodeEvents, at_s: np.ndarray, *, boots: Sequence[int], shape: tuple[int, ...]
) -> np.ndarray:
    """The last Xid of each GPU; it sticks until the driver is loaded anew."""
    last = np.zeros(shape, dtype=np.int64)
    steps = [(int(np.searchsorted(at_s, line.at_s)), line.slot, line.code) for line in events.lines]
    known = [(index, slot, code) for index, slot, code in steps if slot is not None and code]
    resets = [(index, slot, 0) for index in boots for slot in range(shape[0])]
    for index, slot, code in sorted([*known, *resets], key=lambda step: step[0]):
        last[slot, index:] = code
    return last


def _energy(
    regime: Regime, fields: Mapping[str, np.ndarray], events: NodeEvents, *, at_s: np.ndarray
) -> dict[str, np.ndarray]:
    """Energy in mJ since driver load, and time throttled in us, from the gauges."""
    power = fields["DCGM_FI_DEV_POWER_USAGE"].astype(np.int64)
    reasons = fields["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"]
    boots = [int(np.searchsorted(at_s, boot.up_s)) for boot in events.boots]
    second = 1_000_000
    capped_us = np.where(reasons & POWER_CAP_BIT, regime.scrape_s * second // 10, 0)
    heated_us = np.where(reasons & (SW_THERMAL_BIT | HW_THERMAL_BIT), regime.scrape_s * second, 0)
    return {
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _since_boot(power * regime.scrape_s * 1000, boots),
        "DCGM_FI_DEV_POWER_VIOLATION": _since_boot(capped_us, boots),
        "DCGM_FI_DEV_THERMAL_VIOLATION": _since_boot(heated_us, boots),
    }


def _apply_blanks(
    regime: Regime,
    truth: NodeTruth,
    fields: dict[str, np.ndarray],
    *,
    at_s: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Puts DCGM's blanks where a field gave no value: now and then, or a hung GSP."""
    is_hung = _failed_samples(truth, at_s, how="blank")
    for name, values in fields.items():
        is_blank = is_hung
        if name in _MAY_BE_BLANK:
            is_blank = is_hung | (rng.random(values.shape) < regime.disturbances.blank_share)
        fields[name] = np.where(
            is_blank, BLANK_FLOAT if name in FLOAT_FIELDS else BLANK_INT, values
        )


def _arrivals(
    regime: Regime,
    truth: NodeTruth,
    events: NodeEvents,
    signs: Signs,
    *,
    at_s: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Which samples arrive: not while a node is off or cut off, a GPU gone, or a scrape missed."""
    plan = regime.disturbances
    arrives = ~signs.is_lost & ~_failed_samples(truth, at_s, how="gone")
    is_node_there = rng.random(at_s.size) >= plan.missed_scrape_share
    for outage in plan.outages:
        since_s = at_s - outage.day * 86400
        is_node_there &= ~((since_s >= 0) & (since_s < outage.minutes * 60))
    for boot in events.boots:
        is_node_there &= ~((at_s >= boot.down_s) & (at_s < boot.up_s))
    for incident in truth.incidents:
        # Half of the nodes are scraped over the network that failed.
        if incident.slot is None and rng.random() < 0.5:
            is_node_there &= ~((at_s >= incident.onset_s) & (at_s < incident.end_s))
    return np.asarray(arrives & is_node_there)
