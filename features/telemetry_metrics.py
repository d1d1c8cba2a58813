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
