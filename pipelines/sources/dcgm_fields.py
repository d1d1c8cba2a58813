"""DCGM field ids under all the names that exporters have given them, and how to scale each.

What the fields mean is in `features.telemetry_metrics`; no text is parsed here.
"""

from dataclasses import dataclass
from typing import Final

from features.telemetry_metrics import METRIC_BY_DCGM_ID, Metric

_BYTES_PER_MIB: Final = 2**20

_NAMES: Final[dict[int, tuple[tuple[str, float], ...]]] = {
    100: (
        ("DCGM_FI_DEV_SM_CLOCK", 1),
        ("dcgm_sm_clock", 1),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e-6),
    ),
    101: (
        ("DCGM_FI_DEV_MEM_CLOCK", 1),
        ("dcgm_memory_clock", 1),
        ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 1e-6),
    ),
    112: (
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 1),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 1),
        ("dcgm_clock_throttle_reasons", 1),
    ),
    140: (
        ("DCGM_FI_DEV_MEMORY_TEMP", 1),
        ("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", 1),
        ("dcgm_memory_temp", 1),
    ),
    150: (
        ("DCGM_FI_DEV_GPU_TEMP", 1),
        ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1),
        ("dcgm_gpu_temp", 1),
    ),
    155: (
        ("DCGM_FI_DEV_POWER_USAGE", 1),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", 1),
        ("dcgm_power_usage", 1),
    ),
    156: (
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e-3),
        ("dcgm_total_energy_consumption", 1e-3),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1),
    ),
    202: (
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 1),
        ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", 1),
        ("dcgm_pcie_replay_counter", 1),
    ),
    203: (("DCGM_FI_DEV_GPU_UTIL", 1), ("dcgm_gpu_utilization", 1)),
    204: (
        ("DCGM_FI_DEV_MEM_COPY_UTIL", 1),
        ("dcgm_mem_copy_utilization", 1),
        ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", 100),
    ),
    230: (
        ("DCGM_FI_DEV_XID_ERRORS", 1),
        ("DCGM_FI_DEV_XID_ERROR", 1),
        ("dcgm_xid_errors", 1),
    ),
    240: (("DCGM_FI_DEV_POWER_VIOLATION", 1), ("dcgm_power_violation", 1)),
    241: (("DCGM_FI_DEV_THERMAL_VIOLATION", 1), ("dcgm_thermal_violation", 1)),
    251: (
        ("DCGM_FI_DEV_FB_FREE", 1),
        ("dcgm_fb_free", 1),
        ("DCGM_FI_DEV_FB_FREE_BYTES", 1 / _BYTES_PER_MIB),
    ),
    252: (
        ("DCGM_FI_DEV_FB_USED", 1),
        ("dcgm_fb_used", 1),
        ("DCGM_FI_DEV_FB_USED_BYTES", 1 / _BYTES_PER_MIB),
    ),
    310: (("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1), ("dcgm_ecc_sbe_volatile_total", 1)),
    311: (("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1), ("dcgm_ecc_dbe_volatile_total", 1)),
    312: (("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 1), ("dcgm_ecc_sbe_aggregate_total", 1)),
    313: (("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 1), ("dcgm_ecc_dbe_aggregate_total", 1)),
    393: (
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1),
        ("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", 1),
        ("dcgm_uncorrectable_remapped_rows", 1),
    ),
    394: (
        ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 1),
        ("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", 1),
        ("dcgm_correctable_remapped_rows", 1),
    ),
    395: (
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1),
        ("DCGM_FI_DEV_ROW_REMAP_FAILED", 1),
        ("dcgm_row_remap_failure", 1),
    ),
    396: (("DCGM_FI_DEV_ROW_REMAP_PENDING", 1), ("dcgm_row_remap_pending", 1)),
    409: (
        ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 1),
        ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", 1),
        ("dcgm_nvlink_flit_crc_error_count_total", 1),
    ),
    429: (
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 1),
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", 1),
        ("dcgm_nvlink_replay_error_count_total", 1),
    ),
    1004: (
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1),
        ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", 1),
    ),
}
"""Names by field id with the factor to the metric's unit.

Names come from dcgm-exporter's counter lists (1.x compatible, 2.x to 4.x) and from the aliases
of DCGM 4.6 and the base-unit fields of DCGM 4.7. Violations are read in microseconds, as the
exporter's help text says.
"""

AMBIGUOUS_NAMES: Final = {
    "dcgm_fi_dev_gpu_util_ratio": (
        "a percentage in DCGM 4.6 and a ratio in 4.7: export DCGM_FI_DEV_GPU_UTIL instead"
    ),
}
"""Names that stand for different units in different releases; they are refused, not guessed."""

PER_INSTANCE: Final = frozenset({"fb_used_mib", "fb_free_mib", "tensor_active_ratio"})
"""Metrics that DCGM gives per MIG instance: no instance's value says anything of the GPU."""


@dataclass(frozen=True)
class ExporterName:
    """What one exporter name stands for.

    Attributes:
        metric: The metric.
        scale: Factor from the exporter's unit to the metric's.
    """

    metric: Metric
    scale: float


_BY_NAME: Final = {
    name.lower(): ExporterName(METRIC_BY_DCGM_ID[dcgm_id], scale)
    for dcgm_id, names in _NAMES.items()
    for name, scale in names
}

_OTHER_UNITS: Final = {
    "W": {"mw": 1e-3, "w": 1.0},
    "J": {"mj": 1e-3, "j": 1.0, "kj": 1e3},
    "us": {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6},
}
"""Units that a help text may state, with the factor to ours: power, energy and durations are
the ones that changed between releases. Ratios are left out: help texts call them percentages."""


def exporter_name(name: str) -> ExporterName | None:
    """Looks a metric name up, in any case.

    Args:
        name: Name in the exposition.

    Returns:
        What it stands for, or None for a field the project does not use.
    """
    return _BY_NAME.get(name.lower())


def stated_scale(metric: Metric, unit: str) -> float | None:
    """The factor from a unit that the exporter states itself.

    Args:
        metric: The metric.
        unit: Unit as the help text writes it.

    Returns:
        Factor to the metric's unit, or None where the unit is not one we know to vary.
    """
    return _OTHER_UNITS.get(metric.unit, {}).get(unit.lower())


def is_blank(value: float) -> bool:
    """Whether a number is one of DCGM's and NVML's stand-ins for "no value".

    Args:
        value: The number as exported, before scaling.

    Returns:
        True for the 32-bit, 64-bit and floating-point blanks of dcgm_structs.h (a base value
        and the 15 above it, for the reasons), all ones in 32 or 64 bits, and NaN.
    """
    if value != value:  # noqa: PLR0124 - NaN
        return True
    return (
        2**31 - 16 <= value <= 2**31 - 1
        or value == 2**32 - 1
        or 2**47 <= value <= 2**47 + 15
        or 2**63 - 1024 <= value <= 2**64
    )
