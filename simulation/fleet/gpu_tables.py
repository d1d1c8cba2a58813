"""The tables of a GPU's life as a compiled loop reads them: columns, places, what holds when.

They are filled in `.gpu_life`; what becomes of it in samples is in `.sampling`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from features.compiled import inlined, jit

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
def load_at(
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
def failure_at(fails: Floats, carried: Ints, at_s: float) -> tuple[float, bool]:
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
def signs_at(
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
def take_steps(steps: Floats, carried: Ints, at_s: float) -> None:
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
def next_event(fails: Floats, signs: Floats, steps: Floats, carried: Ints) -> float:
    """When the next failure, sign or step begins; what still lasts began before now."""
    at_s = np.inf
    if carried[NEXT_FAIL] < fails.shape[0]:
        at_s = min(at_s, fails[carried[NEXT_FAIL], FAIL_START])
    if carried[NEXT_SIGN] < signs.shape[0]:
        at_s = min(at_s, signs[carried[NEXT_SIGN], SIGN_START])
    if carried[NEXT_STEP] < steps.shape[0]:
        at_s = min(at_s, steps[carried[NEXT_STEP], 0])
    return at_s
