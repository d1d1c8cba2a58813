"""The compiled loop that turns a GPU's life into samples: load, power, heat, clocks, counters.

What goes in is gathered in `.gpu_life`; nothing here knows a fleet, a file or a regime.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from features.compiled import inlined, jit
from simulation.fleet.fields import BLANK_FLOAT, BLANK_INT, FLOAT_FIELDS, INT_FIELDS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Places in a GPU's constants.
TEMP_OFFSET_C, POWER_OFFSET_W, SBE_PER_S, PCIE_PER_S, CRC_PER_S = range(5)
BLANK_SHARE, SCRAPE_S, IDLE_W, MAX_W = range(5, 9)
IDLE_MHZ, MAX_MHZ, MEMORY_MHZ, USABLE_MIB, IS_MIG, START_OF_DAY_S = range(9, 15)
N_CONSTANTS: Final = 15

# Columns of loads (one row per job on the GPU), by start.
LOAD_START, LOAD_END, LOAD_KIND, LOAD_UTIL, LOAD_POWER, LOAD_TENSOR, LOAD_MIB, RAMP_PER_S = range(8)
SAVES_PER_S, SAVE_SHARE, SAVE_LEVEL = range(8, 11)
N_LOAD_COLUMNS: Final = 11
TRAINING, INFERENCE, DEBUG = 0.0, 1.0, 2.0

# Columns of outages of the GPU itself, by start.
FAIL_START, FAIL_END, FAIL_MODE, FAIL_HOT_UNTIL = range(4)
IDLE, BLANK, GONE = 0.0, 1.0, 2.0

# Columns of episodes of signs, by start.
SIGN_START, SIGN_END, SIGN_KIND, SIGN_STRENGTH, SIGN_COURSE = range(5)
HBM, REMAP, PCIE, NVLINK, HOT, POWER = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0
LEVEL_COURSE, TENT_COURSE = -1.0, -2.0

# Codes of steps; above XID_BASE: that Xid.
DBE, UNCORRECTABLE, CORRECTABLE, REMAP_FAILURE, BOOT, XID_BASE = 0, 1, 2, 3, 4, 1000

# Places in what is carried from sample to sample: next rows of the tables, then counters.
NEXT_LOAD, NEXT_FAIL, NEXT_SIGN, NEXT_STEP = range(4)
SBE_VOL, DBE_VOL, SBE_LIFE, DBE_LIFE, UNC_LIFE, COR_LIFE = range(4, 10)
FAILED, PENDING, PCIE_VOL, CRC_VOL, REPLAY_VOL, LAST_XID = range(10, 16)
ENERGY_MJ, CAPPED_US, HEATED_US = range(16, 19)
N_CARRIED: Final = 19
_LIFELONG: Final = (SBE_LIFE, DBE_LIFE, UNC_LIFE, COR_LIFE, FAILED)
_VOLATILE: Final = np.array([i for i in range(SBE_VOL, N_CARRIED) if i not in _LIFELONG])
"""Counters that a reboot sets back; a failed remap is written in the GPU for good."""

IDLE_BIT, POWER_CAP_BIT, SW_THERMAL_BIT, HW_THERMAL_BIT = 0x1, 0x4, 0x20, 0x40
HOT_C: Final = 83
THROTTLE_C: Final = 88
FAILED_HEAT_C: Final = 26.0
"""How much hotter a GPU runs whose cooling has failed, until throttling and its job's end."""
HEAT_S: Final = 60.0
"""Time constant of a GPU's temperature: most of a change of power shows within a minute."""
BLIP_SHARE: Final = 0.004
"""Samples in which the power cap is reported although power is far from it: benign."""

_F = {name.removeprefix("DCGM_FI_DEV_"): i for i, name in enumerate(INT_FIELDS)}
_GPU_TEMP, _MEM_TEMP, _SM_CLOCK, _MEM_CLOCK = (
    _F[name] for name in ("GPU_TEMP", "MEMORY_TEMP", "SM_CLOCK", "MEM_CLOCK")
)
_UTIL, _MEM_UTIL, _FB_USED, _FB_FREE, _REASONS = (
    _F[name]
    for name in ("GPU_UTIL", "MEM_COPY_UTIL", "FB_USED", "FB_FREE", "CLOCK_THROTTLE_REASONS")
)
_CRC = _F["NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"]
_REPLAY = _F["PCIE_REPLAY_COUNTER"]
_FIRST_COUNTER = _F["ECC_SBE_VOL_TOTAL"]
_N_COUNTERS: Final = N_CARRIED - SBE_VOL
"""The fields from the first counter on are those of `carried`, in the same order."""
_POWER_USAGE = FLOAT_FIELDS.index("DCGM_FI_DEV_POWER_USAGE")
_TENSOR = FLOAT_FIELDS.index("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
_N_BLANKABLE: Final = 5
BLIP: Final = _N_BLANKABLE


@jit
def share_of(key: int, number: int) -> float:
    """A number in [0, 1) that all GPUs of a job agree on: SplitMix64 of the job and a number."""
    x = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return np.float64(x >> np.uint64(11)) / 9007199254740992.0


@inlined
def _job_level(loads: Floats, i: int, key: int, at_s: float, start_of_day_s: float) -> float:
    """How hard a job works at a moment, 0 to 1, the same on all its GPUs."""
    since = at_s - loads[i, LOAD_START]
    ramp = min(1.0, max(0.05, since * loads[i, RAMP_PER_S]))
    if loads[i, LOAD_KIND] == TRAINING:  # steady, but for the minutes of a checkpoint
        done = since * loads[i, SAVES_PER_S]
        if done > 1.0 and done - np.floor(done) < loads[i, SAVE_SHARE]:
            return float(ramp * loads[i, SAVE_LEVEL])
        return float(ramp)
    if loads[i, LOAD_KIND] == INFERENCE:  # requests follow the day, from 42 to 95 % (Lyra)
        day = (at_s + start_of_day_s) / 86400
        by_day = (0.685 + 0.265 * np.cos(2 * np.pi * (day - 15 / 24))) / 0.95
        return float(ramp * by_day * (0.92 + 0.08 * share_of(key, int(at_s) // 600 + 10_000_000)))
    return ramp if share_of(key, int(at_s) // 300 + 10_000_000) < 0.35 else 0.0


@inlined
def _load_at(
    loads: Floats, keys: Ints, carried: Ints, at_s: float, start_of_day_s: float
) -> tuple[float, float, float, float]:
    """Utilisation in %, shares of power and tensor activity, and MiB in use, of all jobs."""
    util, power, tensor, memory = 0.0, 0.0, 0.0, 0.0
    first = carried[NEXT_LOAD]
    while first < loads.shape[0] and loads[first, LOAD_END] <= at_s:
        first += 1
    carried[NEXT_LOAD] = first
    for i in range(first, loads.shape[0]):
        if loads[i, LOAD_START] > at_s:
            break
        if loads[i, LOAD_END] > at_s:
            level = _job_level(loads, i, keys[i], at_s, start_of_day_s)
            util += loads[i, LOAD_UTIL] * level
            power += loads[i, LOAD_POWER] * level
            tensor += loads[i, LOAD_TENSOR] * level
            memory += loads[i, LOAD_MIB]
    return util, power, tensor, memory


@inlined
def _failure_at(fails: Floats, carried: Ints, at_s: float) -> tuple[float, bool]:
    """What a failed GPU's telemetry does (-1: it has not failed), and whether it runs hot."""
    first = carried[NEXT_FAIL]
    while first < fails.shape[0] and fails[first, FAIL_END] <= at_s:
        first += 1
    carried[NEXT_FAIL] = first
    if first == fails.shape[0] or fails[first, FAIL_START] > at_s:
        return -1.0, False
    return fails[first, FAIL_MODE], at_s < fails[first, FAIL_HOT_UNTIL]


@inlined
def _sign_level(signs: Floats, i: int, at_s: float) -> float:
    """How strong signs are: failures grow towards their end, decoys level off, fade or stop."""
    done = (at_s - signs[i, SIGN_START]) / max(1.0, signs[i, SIGN_END] - signs[i, SIGN_START])
    course = signs[i, SIGN_COURSE]
    if course == LEVEL_COURSE:
        return float(0.5 * signs[i, SIGN_STRENGTH])
    if course == TENT_COURSE:
        return float((1.0 - abs(2.0 * done - 1.0)) * signs[i, SIGN_STRENGTH])
    return float((0.15 + 0.85 * done**course) * signs[i, SIGN_STRENGTH])


@inlined
def _signs_at(
    rng: np.random.Generator,
    signs: Floats,
    carried: Ints,
    at_s: float,
    per_5_min: float,
) -> tuple[float, float, bool]:
    """Counts what episodes add; gives extra heat, extra spread of power, and a lost sample."""
    heat, sigma, is_lost = 0.0, 0.0, False
    first = carried[NEXT_SIGN]
    while first < signs.shape[0] and signs[first, SIGN_END] <= at_s:
        first += 1
    carried[NEXT_SIGN] = first
    for i in range(first, signs.shape[0]):
        if signs[i, SIGN_START] > at_s:
            break
        if signs[i, SIGN_END] <= at_s:
            continue
        level, kind = _sign_level(signs, i, at_s), signs[i, SIGN_KIND]
        if kind in (HBM, REMAP):
            new = rng.poisson((0.25 if kind == HBM else 0.05) * level * per_5_min)
            carried[SBE_VOL] += new
            carried[SBE_LIFE] += new
        elif kind == PCIE:
            carried[PCIE_VOL] += rng.poisson(6.0 * level * per_5_min)
            is_lost |= rng.random() < 0.4 * min(1.0, level)
        elif kind == NVLINK:
            new = rng.poisson(0.6 * level * per_5_min)
            carried[CRC_VOL] += new
            carried[REPLAY_VOL] += new // 2
        elif kind == HOT:
            heat += 6.0 * level
        elif kind == POWER:
            sigma += 45.0 * level
    return heat, sigma, is_lost


@inlined
def _take_steps(steps: Floats, carried: Ints, at_s: float) -> None:
    """Counts what happened up to a moment: errors, remapped rows, Xids, reboots."""
    while carried[NEXT_STEP] < steps.shape[0] and steps[carried[NEXT_STEP], 0] <= at_s:
        code = int(steps[carried[NEXT_STEP], 1])
        if code >= XID_BASE:
            carried[LAST_XID] = code - XID_BASE
        elif code == DBE:
            carried[DBE_VOL] += 1
            carried[DBE_LIFE] += 1
        elif code in (UNCORRECTABLE, CORRECTABLE):
            carried[UNC_LIFE if code == UNCORRECTABLE else COR_LIFE] += 1
            carried[PENDING] = 1
        elif code == REMAP_FAILURE:
            carried[FAILED] = 1
        else:
            for place in _VOLATILE:
                carried[place] = 0
        carried[NEXT_STEP] += 1


@inlined
def _next_event(fails: Floats, signs: Floats, steps: Floats, carried: Ints) -> float:
    """When the next failure, sign or step begins; what still lasts began before now."""
    at_s = np.inf
    if carried[NEXT_FAIL] < fails.shape[0]:
        at_s = min(at_s, fails[carried[NEXT_FAIL], FAIL_START])
    if carried[NEXT_SIGN] < signs.shape[0]:
        at_s = min(at_s, signs[carried[NEXT_SIGN], SIGN_START])
    if carried[NEXT_STEP] < steps.shape[0]:
        at_s = min(at_s, steps[carried[NEXT_STEP], 0])
    return at_s


@inlined
def _rare_event(rng: np.random.Generator, unit: Floats, carried: Ints) -> int:
    """One draw for all that seldom happens: an error that means nothing, or a blank.

    Gives the number of the field that is blank in this sample, BLIP for a benign report of the
    power cap, -1 for none.
    """
    draw = rng.random()
    bound = unit[SBE_PER_S] * unit[SCRAPE_S]
    if draw < bound:
        carried[SBE_VOL] += 1
        carried[SBE_LIFE] += 1
        return -1
    if draw < bound + unit[PCIE_PER_S] * unit[SCRAPE_S]:
        carried[PCIE_VOL] += 1
        return -1
    bound += unit[PCIE_PER_S] * unit[SCRAPE_S]
    if draw < bound + unit[CRC_PER_S] * unit[SCRAPE_S]:
        carried[CRC_VOL] += 1
        return -1
    bound += unit[CRC_PER_S] * unit[SCRAPE_S]
    if draw < bound + _N_BLANKABLE * unit[BLANK_SHARE]:
        return int((draw - bound) / unit[BLANK_SHARE])
    return BLIP if draw > 1.0 - BLIP_SHARE else -1


@inlined
def _power_w(
    rng: np.random.Generator, unit: Floats, share: float, sigma_w: float, util: float
) -> float:
    """Power: idle, the load's share of the range above it, and what swings."""
    power, spread = unit[IDLE_W] + 0.3 * unit[POWER_OFFSET_W], 0.6
    if util > 0:
        power += (unit[MAX_W] - unit[IDLE_W]) * share + unit[POWER_OFFSET_W]
        spread = np.sqrt(25.0 + sigma_w * sigma_w)
    power += spread * rng.standard_normal()
    return float(np.rint(min(unit[MAX_W] + 1.0, max(0.6 * unit[IDLE_W], power))))


@inlined
def _write_clocks(
    rng: np.random.Generator,
    unit: Floats,
    carried: Ints,
    ints: Ints,
    row: int,
    power: float,
    util: float,
    which: int,
) -> None:
    """Clocks, the reasons for reduced ones as DCGM's bit mask, and time spent so."""
    temp = ints[_GPU_TEMP, row]
    ints[_MEM_CLOCK, row] = int(unit[MEMORY_MHZ])
    if util <= 0:
        ints[_SM_CLOCK, row], ints[_REASONS, row] = int(unit[IDLE_MHZ]), IDLE_BIT
        return
    reasons, clock = 0, int(unit[MAX_MHZ])
    if power > 0.95 * unit[MAX_W] or temp >= HOT_C:
        clock -= 15 * int(1 + 11 * rng.random())
    if temp >= THROTTLE_C:
        clock -= 60 * int(1 + 11 * rng.random())
        reasons |= HW_THERMAL_BIT
    if temp >= HOT_C:
        reasons |= SW_THERMAL_BIT
    if power > 0.95 * unit[MAX_W] or which == BLIP:
        reasons |= POWER_CAP_BIT
        carried[CAPPED_US] += int(unit[SCRAPE_S] * 100_000)
    if reasons & (SW_THERMAL_BIT | HW_THERMAL_BIT):
        carried[HEATED_US] += int(unit[SCRAPE_S] * 1_000_000)
    ints[_SM_CLOCK, row], ints[_REASONS, row] = clock, reasons


@inlined
def _write_blanks(
    unit: Floats, ints: Ints, floats: Floats, row: int, mode: float, which: int
) -> None:
    """DCGM's blanks: a hung GSP gives nothing, MIG no utilisation, any field now and then."""
    if mode == BLANK:
        ints[:, row] = BLANK_INT
        floats[:, row] = BLANK_FLOAT
    if unit[IS_MIG] > 0:
        ints[_UTIL, row] = BLANK_INT
        ints[_MEM_UTIL, row] = BLANK_INT
    if which == 0:
        ints[_MEM_TEMP, row] = BLANK_INT
    elif which == 1:
        ints[_CRC, row] = BLANK_INT
    elif which == 2:
        ints[_REPLAY, row] = BLANK_INT
    elif which == 3:
        floats[_POWER_USAGE, row] = BLANK_FLOAT
    elif which == 4:
        floats[_TENSOR, row] = BLANK_FLOAT


@jit
def sample_gpu(
    rng: np.random.Generator,
    unit: Floats,
    tables: tuple[Floats, Ints, Floats, Floats, Floats],
    node: tuple[Ints, Floats, npt.NDArray[np.bool_]],
    carried: Ints,
    heat: Floats,
    out: tuple[Ints, Floats, Ints],
    row: int,
) -> int:
    """Samples one GPU over a stretch of time; a stretch in parts gives the same samples.

    Args:
        rng: The GPU's own stream; it goes on from stretch to stretch.
        unit: Constants, (N_CONSTANTS,).
        tables: Loads (jobs, N_LOAD_COLUMNS), their keys (jobs,), failures (n, 4), signs (n, 5)
            and steps (n, 2), each by start.
        node: Sample times in seconds, inlet air in degC, and whether the node was scraped then.
        carried: Counters and places, (N_CARRIED,); goes on from stretch to stretch.
        heat: The settled temperature in degC, (1,), NaN before the first sample; goes on.
        out: Integer fields (fields, rows), float fields (fields, rows), and times (rows,).
        row: First row to write.

    Returns:
        The row after the last one written.
    """
    loads, keys, fails, signs, steps = tables
    times, inlet, is_scraped = node
    ints, floats, at_row = out
    quiet_until = -np.inf
    follow = 1.0 - np.exp(-unit[SCRAPE_S] / HEAT_S)
    for k in range(times.size):
        at_s = float(times[k])
        util, share, tensor, memory = _load_at(loads, keys, carried, at_s, unit[START_OF_DAY_S])
        mode, is_hot, warmth, sigma_w, is_lost = -1.0, False, 0.0, 0.0, False
        if at_s >= quiet_until:
            _take_steps(steps, carried, at_s)
            mode, is_hot = _failure_at(fails, carried, at_s)
            warmth, sigma_w, is_lost = _signs_at(rng, signs, carried, at_s, unit[SCRAPE_S] / 300)
            quiet_until = _next_event(fails, signs, steps, carried)
        which = _rare_event(rng, unit, carried)
        noise = max(0.0, 1.0 - 0.015 * rng.standard_exponential()) if util > 0 else 1.0
        is_alive = mode < 0 or is_hot
        util = np.rint(min(100.0, util * noise)) if is_alive else 0.0
        power = _power_w(rng, unit, min(1.0, share * noise), sigma_w, util)
        settled = inlet[k] + 7 + 0.054 * power + unit[TEMP_OFFSET_C] + warmth
        if is_hot:
            settled += FAILED_HEAT_C
        before = settled if np.isnan(heat[0]) else heat[0]
        heat[0] = before + follow * (settled - before)
        carried[ENERGY_MJ] += int(power * unit[SCRAPE_S] * 1000)
        temp = np.rint(heat[0] + 0.4 * rng.standard_normal())
        memory_temp = np.rint(heat[0] + 5 + 0.01 * power + 0.4 * rng.standard_normal())
        ints[_GPU_TEMP, row], ints[_MEM_TEMP, row] = int(temp), int(memory_temp)
        _write_clocks(rng, unit, carried, ints, row, power, util, which)
        if mode == GONE or is_lost or not is_scraped[k]:
            continue
        used = int(min(memory, unit[USABLE_MIB])) if is_alive and memory > 100 else 4
        ints[_UTIL, row], ints[_MEM_UTIL, row] = int(util), int(np.rint(0.45 * util))
        ints[_FB_USED, row], ints[_FB_FREE, row] = used, int(unit[USABLE_MIB]) - used
        floats[_POWER_USAGE, row] = power
        floats[_TENSOR, row] = np.rint(100 * tensor * noise) / 100 if util > 0 else 0.0
        for i in range(_N_COUNTERS):
            ints[_FIRST_COUNTER + i, row] = carried[SBE_VOL + i]
        _write_blanks(unit, ints, floats, row, mode, which)
        at_row[row] = times[k]
        row += 1
    return row
