"""The GPU telemetry metrics the core tables know, keyed by DCGM field id.

Names that exporters give these fields are not here: `pipelines.sources` maps them.
"""

from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from features.contracts import Column


@dataclass(frozen=True)
class Metric:
    """One telemetry metric of a GPU, in the project's unit.

    Attributes:
        column: Column name with unit.
        dcgm_id: DCGM field id (dcgm_fields.h).
        kind: `gauge` moves freely; `counter` only grows until it is reset; `state` is a
            number that stands for a condition (a bit mask, the last Xid).
        dtype: Stored type.
        unit: Unit of measure.
        minimum: Smallest valid value.
        maximum: Largest valid value.
        meaning: One line.
    """

    column: str
    dcgm_id: int
    kind: Literal["gauge", "counter", "state"]
    dtype: pl.DataType
    unit: str
    minimum: float
    maximum: float
    meaning: str

    @property
    def resolution(self) -> float | None:
        """Step of the values kept, in `unit`; None: a gauge kept as the number it came as."""
        return 1.0 if self.kind != "gauge" else _RESOLUTIONS[self.unit]

    @property
    def packed_dtype(self) -> pl.DataType:
        """Smallest type that holds every valid value as a whole number of resolutions.

        The type's own smallest number is left free: it stands for null in arrays.
        """
        if self.resolution is None:
            return self.dtype
        largest = round(max(abs(self.minimum), abs(self.maximum)) / self.resolution)
        return next(dtype for bits, dtype in _SIGNED if largest < 2 ** (bits - 1))


_RESOLUTIONS: Final[dict[str, float | None]] = {
    "degC": 0.1,
    "W": 0.1,
    "%": 0.1,
    "MHz": 1.0,
    "MiB": 1.0,
    "ratio": 1e-4,
    # The range of a throughput is too wide for exact sums of squares.
    "MB/s": None,
    "B/s": None,
}
_SIGNED: Final = ((8, pl.Int8()), (16, pl.Int16()), (32, pl.Int32()), (64, pl.Int64()))

_F32: Final = pl.Float32()
_I64: Final = pl.Int64()
_I32: Final = pl.Int32()
_BIG: Final = 2**53

METRICS: Final[tuple[Metric, ...]] = (
    Metric("gpu_temp_c", 150, "gauge", _F32, "degC", -40, 150, "GPU core temperature"),
    Metric("memory_temp_c", 140, "gauge", _F32, "degC", -40, 150, "HBM temperature"),
    Metric("power_w", 155, "gauge", _F32, "W", 0, 3000, "Power draw of the board"),
    Metric("sm_clock_mhz", 100, "gauge", _F32, "MHz", 0, 5000, "SM clock"),
    Metric("memory_clock_mhz", 101, "gauge", _F32, "MHz", 0, 10000, "Memory clock"),
    Metric("gpu_util_pct", 203, "gauge", _F32, "%", 0, 100, "Share of time a kernel ran"),
    Metric("memory_util_pct", 204, "gauge", _F32, "%", 0, 100, "Share of time memory was accessed"),
    Metric("fb_used_mib", 252, "gauge", _F32, "MiB", 0, 4_000_000, "Frame buffer in use"),
    Metric("fb_free_mib", 251, "gauge", _F32, "MiB", 0, 4_000_000, "Frame buffer free"),
    Metric("tensor_active_ratio", 1004, "gauge", _F32, "ratio", 0, 1, "Tensor pipe activity"),
    Metric("energy_j", 156, "counter", _I64, "J", 0, _BIG, "Energy since driver load"),
    Metric(
        "ecc_sbe_volatile", 310, "counter", _I64, "count", 0, _BIG, "Single-bit errors since reset"
    ),
    Metric(
        "ecc_dbe_volatile", 311, "counter", _I64, "count", 0, _BIG, "Double-bit errors since reset"
    ),
    Metric(
        "ecc_sbe_aggregate", 312, "counter", _I64, "count", 0, _BIG, "Single-bit errors, lifetime"
    ),
    Metric(
        "ecc_dbe_aggregate", 313, "counter", _I64, "count", 0, _BIG, "Double-bit errors, lifetime"
    ),
    Metric(
        "remapped_rows_uncorrectable",
        393,
        "counter",
        _I64,
        "rows",
        0,
        65536,
        "Rows remapped after uncorrectable errors",
    ),
    Metric(
        "remapped_rows_correctable",
        394,
        "counter",
        _I64,
        "rows",
        0,
        65536,
        "Rows remapped after correctable errors",
    ),
    Metric("row_remap_failure", 395, "state", _I32, "flag", 0, 1, "A row could not be remapped"),
    Metric("row_remap_pending", 396, "state", _I32, "flag", 0, 1, "A remap waits for a reset"),
    Metric("pcie_replay_count", 202, "counter", _I64, "count", 0, _BIG, "PCIe replays"),
    Metric("nvlink_crc_count", 409, "counter", _I64, "count", 0, _BIG, "NVLink flit CRC errors"),
    Metric("nvlink_replay_count", 429, "counter", _I64, "count", 0, _BIG, "NVLink replays"),
    Metric("power_violation_us", 240, "counter", _I64, "us", 0, _BIG, "Time throttled by power"),
    Metric("thermal_violation_us", 241, "counter", _I64, "us", 0, _BIG, "Time throttled by heat"),
    Metric(
        "clock_event_reasons", 112, "state", _I64, "bit mask", 0, _BIG, "Why clocks are reduced"
    ),
    Metric("last_xid", 230, "state", _I32, "Xid", 0, 1023, "Last Xid seen; it sticks, so no event"),
    # What only some sites export. Every one may be null everywhere.
    Metric(
        "gpu_temp_margin_c", 153, "gauge", _F32, "degC", -150, 150, "Room to the slowdown limit"
    ),
    Metric("slowdown_temp_c", 158, "gauge", _F32, "degC", 0, 150, "Core temperature of slowdown"),
    Metric("power_limit_w", 164, "gauge", _F32, "W", 0, 3000, "Power limit in force"),
    Metric("performance_state", 190, "state", _I32, "P-state", 0, 15, "P-state; 0 is the fastest"),
    Metric("fan_speed_pct", 191, "gauge", _F32, "%", 0, 200, "Fan speed, of the rated one"),
    Metric(
        "pcie_max_link_gen", 235, "state", _I32, "generation", 0, 15, "PCIe generation possible"
    ),
    Metric("pcie_max_link_width", 236, "state", _I32, "lanes", 0, 32, "PCIe lanes possible"),
    Metric("pcie_link_gen", 237, "state", _I32, "generation", 0, 15, "PCIe generation in use"),
    Metric("pcie_link_width", 238, "state", _I32, "lanes", 0, 32, "PCIe lanes in use"),
    Metric("sync_boost_violation_us", 242, "counter", _I64, "us", 0, _BIG, "Slowed by sync boost"),
    Metric("board_limit_violation_us", 243, "counter", _I64, "us", 0, _BIG, "Slowed by the board"),
    Metric(
        "reliability_violation_us", 245, "counter", _I64, "us", 0, _BIG, "Slowed for reliability"
    ),
    Metric(
        "c2c_link_status", 286, "state", _I64, "bit mask", 0, _BIG, "State of the links to the CPU"
    ),
    Metric(
        "sram_ecc_exceeded", 346, "state", _I32, "flag", 0, 1, "SRAM errors beyond the threshold"
    ),
    Metric(
        "remap_banks_low", 388, "state", _I32, "banks", 0, 65536, "Banks with few spare rows left"
    ),
    Metric("remap_banks_none", 389, "state", _I32, "banks", 0, 65536, "Banks without spare rows"),
    Metric(
        "retired_pages_sbe", 390, "counter", _I64, "pages", 0, 65536, "Retired by single-bit errors"
    ),
    Metric(
        "retired_pages_dbe", 391, "counter", _I64, "pages", 0, 65536, "Retired by double-bit errors"
    ),
    Metric("retired_pages_pending", 392, "state", _I32, "pages", 0, 65536, "Wait for retirement"),
    Metric(
        "nvlink_data_crc_count", 419, "counter", _I64, "count", 0, _BIG, "NVLink data CRC errors"
    ),
    Metric("nvlink_recovery_count", 439, "counter", _I64, "count", 0, _BIG, "NVLink recoveries"),
    Metric(
        "nvlink_bandwidth_mb_s", 449, "gauge", _F32, "MB/s", 0, 100_000_000, "NVLink throughput"
    ),
    Metric(
        "nvlink_dl_crc_count", 497, "counter", _I64, "count", 0, _BIG, "NVLink data-link CRC errors"
    ),
    Metric(
        "nvlink_dl_recovery_count", 498, "counter", _I64, "count", 0, _BIG, "Data-link recoveries"
    ),
    Metric("nvlink_dl_replay_count", 499, "counter", _I64, "count", 0, _BIG, "Data-link replays"),
    Metric("gr_engine_active_ratio", 1001, "gauge", _F32, "ratio", 0, 1, "Any engine at work"),
    Metric("sm_active_ratio", 1002, "gauge", _F32, "ratio", 0, 1, "SMs with a warp, averaged"),
    Metric("sm_occupancy_ratio", 1003, "gauge", _F32, "ratio", 0, 1, "Resident warps, of the most"),
    Metric("dram_active_ratio", 1005, "gauge", _F32, "ratio", 0, 1, "Memory interface at work"),
    Metric("pcie_tx_bytes_s", 1009, "gauge", _F32, "B/s", 0, 1e13, "Sent over PCIe"),
    Metric("pcie_rx_bytes_s", 1010, "gauge", _F32, "B/s", 0, 1e13, "Received over PCIe"),
    Metric("nvlink_tx_bytes_s", 1011, "gauge", _F32, "B/s", 0, 1e14, "Sent over NVLink"),
    Metric("nvlink_rx_bytes_s", 1012, "gauge", _F32, "B/s", 0, 1e14, "Received over NVLink"),
    Metric(
        "nvlink_rx_error_count", 1206, "counter", _I64, "count", 0, _BIG, "NVLink packets in error"
    ),
    Metric(
        "nvlink_integrity_count", 1209, "counter", _I64, "count", 0, _BIG, "Link integrity errors"
    ),
    Metric(
        "nvlink_recovery_failed_count",
        1212,
        "counter",
        _I64,
        "count",
        0,
        _BIG,
        "Links declared down",
    ),
    Metric(
        "nvlink_symbol_error_count", 1214, "counter", _I64, "count", 0, _BIG, "NVLink symbol errors"
    ),
    Metric("nvlink_ecc_count", 1220, "counter", _I64, "count", 0, _BIG, "NVLink data ECC errors"),
    Metric(
        "c2c_error_count", 1400, "counter", _I64, "count", 0, _BIG, "Errors of the links to the CPU"
    ),
    Metric("c2c_replay_count", 1401, "counter", _I64, "count", 0, _BIG, "Replays to the CPU"),
    Metric("sw_power_cap_us", 1420, "counter", _I64, "us", 0, _BIG, "Slowed by the power cap"),
    Metric(
        "sw_thermal_slowdown_us", 1422, "counter", _I64, "us", 0, _BIG, "Slowed by software, heat"
    ),
    Metric(
        "hw_thermal_slowdown_us", 1423, "counter", _I64, "us", 0, _BIG, "Slowed by hardware, heat"
    ),
    Metric("hw_power_brake_us", 1424, "counter", _I64, "us", 0, _BIG, "Slowed by the power brake"),
    Metric(
        "pcie_correctable_count", 1501, "counter", _I64, "count", 0, _BIG, "PCIe errors corrected"
    ),
    Metric("memory_unrepairable", 1507, "state", _I32, "flag", 0, 1, "Memory is beyond repair"),
    Metric("recovery_action", 1523, "state", _I32, "code", 0, 15, "Recovery asked for; 0: none"),
)

METRIC_BY_COLUMN: Final = {metric.column: metric for metric in METRICS}
METRIC_BY_DCGM_ID: Final = {metric.dcgm_id: metric for metric in METRICS}


def metric_columns() -> tuple[Column, ...]:
    """The metrics as nullable contract columns, in the order of `METRICS`."""
    return tuple(
        Column(
            m.column,
            m.dtype,
            f"{m.meaning} (DCGM field {m.dcgm_id}, {m.kind})",
            unit=m.unit,
            nullable=True,
            minimum=m.minimum,
            maximum=m.maximum,
        )
        for m in METRICS
    )
