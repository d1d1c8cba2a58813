"""Names that exporters have given DCGM's fields, by field id: data only.

How a name is looked up, and which values stand for "unknown", is in `dcgm_fields`.

Sources: dcgm-exporter's counter lists (1.x compatible names, 2.x to 4.x), the renamed fields of
DCGM 4.6 and the base-unit fields of DCGM 4.7 (dcgm_fields.h). Of several names in one scrape the
first in the list counts.
"""

from typing import Final

Names = tuple[tuple[str, float], ...]
"""Name with the factor from its unit to the metric's."""

_BYTES_PER_MIB: Final = 2**20
_MB_S: Final = 1e-6


def _dev(*names: str) -> Names:
    """Names of `DCGM_FI_DEV_...` fields that need no scaling; one in lower case is whole."""
    return tuple((n if n.islower() else f"DCGM_FI_DEV_{n}", 1.0) for n in names)


def _prof(*names: str) -> Names:
    return tuple((f"DCGM_FI_PROF_{name}", 1.0) for name in names)


NAMES: Final[dict[int, Names]] = {
    100: (*_dev("SM_CLOCK", "dcgm_sm_clock"), ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e-6)),
    101: (*_dev("MEM_CLOCK", "dcgm_memory_clock"), ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 1e-6)),
    112: _dev("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS", "dcgm_clock_throttle_reasons"),
    140: _dev("MEMORY_TEMP", "MEMORY_TEMP_CELSIUS", "dcgm_memory_temp"),
    150: _dev("GPU_TEMP", "GPU_TEMP_CELSIUS", "dcgm_gpu_temp"),
    153: _dev("GPU_TEMP_LIMIT", "GPU_TEMP_MARGIN_CELSIUS"),
    155: _dev("POWER_USAGE", "BOARD_POWER_WATTS", "dcgm_power_usage"),
    156: (
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e-3),
        ("dcgm_total_energy_consumption", 1e-3),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1.0),
    ),
    158: _dev("SLOWDOWN_TEMP", "GPU_TEMP_SLOWDOWN_CELSIUS", "dcgm_slowdown_temp"),
    164: _dev(
        "ENFORCED_POWER_LIMIT",
        "BOARD_POWER_LIMIT_ENFORCED_WATTS",
        "POWER_MGMT_LIMIT",
        "BOARD_POWER_LIMIT_REQUESTED_WATTS",
        "dcgm_enforced_power_limit",
    ),
    190: _dev("PSTATE", "GPU_PSTATE", "dcgm_pstate"),
    191: (*_dev("FAN_SPEED", "dcgm_fan_speed"), ("DCGM_FI_DEV_FAN_SPEED_RATIO", 100.0)),
    202: _dev("PCIE_REPLAY_COUNTER", "PCIE_REPLAY_TOTAL", "dcgm_pcie_replay_counter"),
    203: _dev("GPU_UTIL", "dcgm_gpu_utilization"),
    204: (
        *_dev("MEM_COPY_UTIL", "dcgm_mem_copy_utilization"),
        ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", 100.0),
    ),
    230: _dev("XID_ERRORS", "XID_ERROR", "dcgm_xid_errors"),
    235: _dev("PCIE_MAX_LINK_GEN", "dcgm_pcie_max_link_gen"),
    236: _dev("PCIE_MAX_LINK_WIDTH", "dcgm_pcie_max_link_width"),
    237: _dev("PCIE_LINK_GEN", "dcgm_pcie_link_gen"),
    238: _dev("PCIE_LINK_WIDTH", "dcgm_pcie_link_width"),
    240: (
        *_dev("POWER_VIOLATION", "dcgm_power_violation"),
        ("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", 1e6),
    ),
    241: (
        *_dev("THERMAL_VIOLATION", "dcgm_thermal_violation"),
        ("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", 1e6),
    ),
    242: (
        *_dev("SYNC_BOOST_VIOLATION", "dcgm_sync_boost_violation"),
        ("DCGM_FI_DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL", 1e6),
    ),
    243: (
        *_dev("BOARD_LIMIT_VIOLATION", "dcgm_board_limit_violation"),
        ("DCGM_FI_DEV_GPU_LIMIT_THROTTLE_SECONDS_TOTAL", 1e6),
    ),
    245: (
        *_dev("RELIABILITY_VIOLATION", "dcgm_reliability_violation"),
        ("DCGM_FI_DEV_GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL", 1e6),
    ),
    251: (
        *_dev("FB_FREE", "dcgm_fb_free"),
        ("DCGM_FI_DEV_FB_FREE_BYTES", 1 / _BYTES_PER_MIB),
    ),
    252: (
        *_dev("FB_USED", "dcgm_fb_used"),
        ("DCGM_FI_DEV_FB_USED_BYTES", 1 / _BYTES_PER_MIB),
    ),
    286: _dev("C2C_LINK_STATUS"),
    310: _dev("ECC_SBE_VOL_TOTAL", "dcgm_ecc_sbe_volatile_total"),
    311: _dev("ECC_DBE_VOL_TOTAL", "dcgm_ecc_dbe_volatile_total"),
    312: _dev("ECC_SBE_AGG_TOTAL", "dcgm_ecc_sbe_aggregate_total"),
    313: _dev("ECC_DBE_AGG_TOTAL", "dcgm_ecc_dbe_aggregate_total"),
    346: _dev("THRESHOLD_SRM", "SRAM_EXCEEDED"),
    388: _dev("BANKS_REMAP_ROWS_AVAIL_LOW", "BANK_REMAP_AVAIL_LOW"),
    389: _dev("BANKS_REMAP_ROWS_AVAIL_NONE", "BANK_REMAP_AVAIL_NONE"),
    390: _dev("RETIRED_SBE", "PAGE_RETIRED_SBE_TOTAL", "dcgm_retired_pages_sbe"),
    391: _dev("RETIRED_DBE", "PAGE_RETIRED_DBE_TOTAL", "dcgm_retired_pages_dbe"),
    392: _dev("RETIRED_PENDING", "PAGE_RETIRED_PENDING", "dcgm_retired_pages_pending"),
    393: _dev(
        "UNCORRECTABLE_REMAPPED_ROWS",
        "ROW_REMAP_UNCORRECTABLE_TOTAL",
        "dcgm_uncorrectable_remapped_rows",
    ),
    394: _dev(
        "CORRECTABLE_REMAPPED_ROWS",
        "ROW_REMAP_CORRECTABLE_TOTAL",
        "dcgm_correctable_remapped_rows",
    ),
    395: _dev("ROW_REMAP_FAILURE", "ROW_REMAP_FAILED", "dcgm_row_remap_failure"),
    396: _dev("ROW_REMAP_PENDING", "dcgm_row_remap_pending"),
    409: _dev(
        "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "NVLINK_CRC_FLIT_ERROR_TOTAL",
        "dcgm_nvlink_flit_crc_error_count_total",
    ),
    419: _dev(
        "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        "NVLINK_CRC_DATA_ERROR_TOTAL",
        "dcgm_nvlink_data_crc_error_count_total",
    ),
    429: _dev(
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "NVLINK_REPLAY_ERROR_TOTAL",
        "dcgm_nvlink_replay_error_count_total",
    ),
    439: _dev(
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "NVLINK_RECOVERY_ERROR_TOTAL",
        "dcgm_nvlink_recovery_error_count_total",
    ),
    449: (
        *_dev("NVLINK_BANDWIDTH_TOTAL", "NVLINK_THROUGHPUT_TOTAL", "dcgm_nvlink_bandwidth_total"),
        ("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", _MB_S),
    ),
    497: _dev("NVLINK_ERROR_DL_CRC", "NVLINK_CRC_ERROR_TOTAL"),
    498: _dev("NVLINK_ERROR_DL_RECOVERY", "NVLINK_RECOVERY_TOTAL"),
    499: _dev("NVLINK_ERROR_DL_REPLAY", "NVLINK_REPLAY_TOTAL"),
    1001: _prof("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO"),
    1002: _prof("SM_ACTIVE", "SM_UTIL_RATIO"),
    1003: _prof("SM_OCCUPANCY", "SM_OCCUPANCY_RATIO"),
    1004: _prof("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO"),
    1005: _prof("DRAM_ACTIVE", "DRAM_UTIL_RATIO"),
    1009: _prof("PCIE_TX_BYTES"),
    1010: _prof("PCIE_RX_BYTES"),
    1011: _prof("NVLINK_TX_BYTES"),
    1012: _prof("NVLINK_RX_BYTES"),
    1206: _dev("NVLINK_COUNT_RX_ERRORS", "NVLINK_RX_ERROR_TOTAL"),
    1209: _dev("NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS", "NVLINK_INTEGRITY_ERROR_TOTAL"),
    1212: _dev("NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "NVLINK_RECOVERY_FAILED_TOTAL"),
    1214: _dev("NVLINK_COUNT_RX_SYMBOL_ERRORS", "NVLINK_RX_SYMBOL_ERROR_TOTAL"),
    1220: _dev("NVLINK_ECC_DATA_ERROR_COUNT_TOTAL", "NVLINK_ECC_ERROR_TOTAL"),
    1400: _dev("C2C_LINK_ERROR_INTR"),
    1401: _dev("C2C_LINK_ERROR_REPLAY"),
    1420: (("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", 1e-3),),
    1422: (("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", 1e-3),),
    1423: (("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", 1e-3),),
    1424: (("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", 1e-3),),
    1501: _dev("PCIE_COUNT_CORRECTABLE_ERRORS", "PCIE_CORRECTABLE_ERROR_TOTAL"),
    1507: _dev("MEMORY_UNREPAIRABLE_FLAG", "MEMORY_UNREPAIRABLE"),
    1523: _dev("GET_GPU_RECOVERY_ACTION", "GPU_RECOVERY_ACTION"),
}

LANE_STEMS: Final[dict[int, tuple[tuple[str, str], ...]]] = {
    409: (("NVLINK_CRC_FLIT_ERROR_COUNT_L", ""), ("NVLINK_CRC_FLIT_ERROR_L", "_TOTAL")),
    419: (("NVLINK_CRC_DATA_ERROR_COUNT_L", ""), ("NVLINK_CRC_DATA_ERROR_L", "_TOTAL")),
    429: (("NVLINK_REPLAY_ERROR_COUNT_L", ""), ("NVLINK_REPLAY_ERROR_L", "_TOTAL")),
    439: (("NVLINK_RECOVERY_ERROR_COUNT_L", ""), ("NVLINK_RECOVERY_ERROR_L", "_TOTAL")),
}
"""Counters of single NVLinks by the total they add up to: name before and after the number."""

N_LANES: Final = 18
"""NVLinks of a GPU, at most (Hopper, Blackwell)."""

AMBIGUOUS_NAMES: Final = {
    "dcgm_fi_dev_gpu_util_ratio": (
        "a percentage in DCGM 4.6 and a ratio in 4.7: export DCGM_FI_DEV_GPU_UTIL instead"
    ),
}
"""Names that stand for different units in different releases; they are refused, not guessed."""
