"""The compiled loop that turns a GPU's life into samples: load, power, heat, clocks, counters.

What goes in is gathered in `.gpu_life` and read by `.gpu_tables`; nothing here knows a fleet, a
file or a regime.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from features.compiled import inlined, jit
from simulation.fleet.fields import BLANK_FLOAT, BLANK_INT, FLOAT_FIELDS, INT_FIELDS
from simulation.fleet.gpu_tables import (
    BLANK,
    BLANK_SHARE,
    CAPPED_US,
    CRC_PER_S,
    CRC_VOL,
    ENERGY_MJ,
    GONE,
    HEATED_US,
    IDLE_MHZ,
    IDLE_W,
    IS_MIG,
    MAX_MHZ,
    MAX_W,
    MEMORY_MHZ,
    N_CARRIED,
    PCIE_PER_S,
    PCIE_VOL,
    POWER_OFFSET_W,
    SBE_LIFE,
    SBE_PER_S,
    SBE_VOL,
    SCRAPE_S,
    START_OF_DAY_S,
    TEMP_OFFSET_C,
    USABLE_MIB,
    Floats,
    Ints,
    failure_at,
    load_at,
    next_event,
    signs_at,
    take_steps,
)

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
def _write_heat(
    rng: np.random.Generator,
    unit: Floats,
    heat: Floats,
    ints: Ints,
    row: int,
    power: float,
    air_c: float,
    warmth_c: float,
    failed_c: float,
    follow: float,
) -> None:
    """Temperatures: what power, air, signs and failed cooling lead to is reached by and by."""
    settled = air_c + 7 + 0.054 * power + unit[TEMP_OFFSET_C] + warmth_c + failed_c
    before = settled if np.isnan(heat[0]) else heat[0]
    heat[0] = before + follow * (settled - before)
    temp = np.rint(heat[0] + 0.4 * rng.standard_normal())
    memory_temp = np.rint(heat[0] + 5 + 0.01 * power + 0.4 * rng.standard_normal())
    ints[_GPU_TEMP, row], ints[_MEM_TEMP, row] = int(temp), int(memory_temp)


@inlined
def _write_load(
    unit: Floats,
    carried: Ints,
    ints: Ints,
    floats: Floats,
    row: int,
    power: float,
    util: float,
    used: int,
    tensor: float,
    noise: float,
) -> None:
    """What the jobs use of the GPU, and the counters."""
    ints[_UTIL, row], ints[_MEM_UTIL, row] = int(util), int(np.rint(0.45 * util))
    ints[_FB_USED, row], ints[_FB_FREE, row] = used, int(unit[USABLE_MIB]) - used
    floats[_POWER_USAGE, row] = power
    floats[_TENSOR, row] = np.rint(100 * tensor * noise) / 100 if util > 0 else 0.0
    for i in range(_N_COUNTERS):
        ints[_FIRST_COUNTER + i, row] = carried[SBE_VOL + i]


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
    quiet_until, follow = -np.inf, 1.0 - np.exp(-unit[SCRAPE_S] / HEAT_S)
    for k in range(times.size):
        at_s = float(times[k])
        util, share, tensor, memory = load_at(loads, keys, carried, at_s, unit[START_OF_DAY_S])
        mode, is_hot, warmth, sigma_w, is_lost = -1.0, False, 0.0, 0.0, False
        if at_s >= quiet_until:
            take_steps(steps, carried, at_s)
            mode, is_hot = failure_at(fails, carried, at_s)
            warmth, sigma_w, is_lost = signs_at(rng, signs, carried, at_s, unit[SCRAPE_S] / 300)
            quiet_until = next_event(fails, signs, steps, carried)
        which = _rare_event(rng, unit, carried)
        noise = max(0.0, 1.0 - 0.015 * rng.standard_exponential()) if util > 0 else 1.0
        is_alive = mode < 0 or is_hot
        util = np.rint(min(100.0, util * noise)) if is_alive else 0.0
        power = _power_w(rng, unit, min(1.0, share * noise), sigma_w, util)
        failed_c = FAILED_HEAT_C if is_hot else 0.0
        _write_heat(rng, unit, heat, ints, row, power, inlet[k], warmth, failed_c, follow)
        carried[ENERGY_MJ] += int(power * unit[SCRAPE_S] * 1000)
        _write_clocks(rng, unit, carried, ints, row, power, util, which)
        if mode == GONE or is_lost or not is_scraped[k]:
            continue
        used = int(min(memory, unit[USABLE_MIB])) if is_alive and memory > 100 else 4
        _write_load(unit, carried, ints, floats, row, power, util, used, tensor, noise)
        _write_blanks(unit, ints, floats, row, mode, which)
        at_row[row] = times[k]
        row += 1
    return row
