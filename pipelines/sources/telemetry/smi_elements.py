"""Elements of the XML report of nvidia-smi by our columns, over the versions of the report.

The XML is read in `nvidia_smi_xml`; the words it has instead of values are in `smi_fields`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from features.telemetry_metrics import METRIC_BY_COLUMN, Metric
from pipelines.sources.telemetry.smi_fields import smi_value

_POWER: Final = ("gpu_power_readings", "power_readings", "module_power_readings")
_COUNTERS: Final = "clocks_event_reasons_counters/clocks_event_reasons_counters_"

ELEMENTS: Final[dict[str, tuple[str, ...]]] = {
    "gpu_temp_c": ("temperature/gpu_temp",),
    "memory_temp_c": ("temperature/memory_temp",),
    "gpu_temp_margin_c": ("temperature/gpu_temp_tlimit",),
    "slowdown_temp_c": ("temperature/gpu_temp_slow_threshold",),
    "power_w": tuple(
        f"{group}/{name}"
        for group in _POWER[:2]
        for name in ("power_draw", "average_power_draw", "instant_power_draw")
    ),
    "power_limit_w": tuple(
        f"{group}/{name}"
        for group in _POWER[:2]
        for name in ("enforced_power_limit", "current_power_limit", "power_limit")
    ),
    "sm_clock_mhz": ("clocks/sm_clock",),
    "memory_clock_mhz": ("clocks/mem_clock",),
    "gpu_util_pct": ("utilization/gpu_util",),
    "memory_util_pct": ("utilization/memory_util",),
    "fb_used_mib": ("fb_memory_usage/used",),
    "fb_free_mib": ("fb_memory_usage/free",),
    "fan_speed_pct": ("fan_speed",),
    "performance_state": ("performance_state",),
    "pcie_link_gen": (
        "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen",
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    ),
    "pcie_max_link_gen": ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
    "pcie_link_width": ("pci/pci_gpu_link_info/link_widths/current_link_width",),
    "pcie_max_link_width": ("pci/pci_gpu_link_info/link_widths/max_link_width",),
    "pcie_replay_count": ("pci/replay_counter",),
    "sram_ecc_exceeded": ("ecc_errors/aggregate/sram_threshold_exceeded",),
    "retired_pages_sbe": ("retired_pages/multiple_single_bit_retirement/retired_count",),
    "retired_pages_dbe": ("retired_pages/double_bit_retirement/retired_count",),
    "retired_pages_pending": (
        "retired_pages/pending_retirement",
        "retired_pages/pending_blacklist",
    ),
    "remapped_rows_correctable": ("remapped_rows/remapped_row_corr",),
    "remapped_rows_uncorrectable": ("remapped_rows/remapped_row_unc",),
    "row_remap_pending": ("remapped_rows/remapped_row_pending",),
    "row_remap_failure": ("remapped_rows/remapped_row_failure",),
    "remap_banks_low": ("remapped_rows/row_remapper_histogram/row_remapper_histogram_low",),
    "remap_banks_none": ("remapped_rows/row_remapper_histogram/row_remapper_histogram_none",),
    "sw_power_cap_us": (f"{_COUNTERS}sw_power_cap",),
    "sw_thermal_slowdown_us": (f"{_COUNTERS}sw_therm_slowdown",),
    "hw_thermal_slowdown_us": (f"{_COUNTERS}hw_therm_slowdown",),
    "hw_power_brake_us": (f"{_COUNTERS}hw_power_brake",),
    "memory_unrepairable": ("ecc_errors/unrepairable_memory",),
    "recovery_action": ("gpu_recovery_action",),
}
"""Paths by column; the first that is known counts."""

_ECC: Final[dict[str, tuple[str, ...]]] = {
    "ecc_sbe_{}": ("single_bit/total", "sram_correctable dram_correctable"),
    "ecc_dbe_{}": (
        "double_bit/total",
        "sram_uncorrectable_parity sram_uncorrectable_secded dram_uncorrectable",
        "sram_uncorrectable dram_uncorrectable",
    ),
}
"""Counts by layout of the report: a total, or parts that add up."""

JOINED_COLUMNS: Final = frozenset(
    column.format(period) for column in _ECC for period in ("volatile", "aggregate")
) | {"clock_event_reasons"}
"""Columns that are put together of several elements."""

_REASONS: Final = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
"""Bits of nvmlClocksEventReasons by the end of their element's name."""


def readings_of(gpu: Mapping[str, str]) -> Iterator[tuple[Metric, float | str]]:
    """The readings of one GPU.

    Args:
        gpu: Text by path below the `gpu` element.

    Yields:
        Metric and value in its unit, or what is wrong with it; nothing for what is unknown.
    """
    for column, paths in ELEMENTS.items():
        metric = METRIC_BY_COLUMN[column]
        values = (smi_value(gpu[path], metric) for path in paths if path in gpu)
        value = next((value for value in values if value is not None), None)
        if value is not None:
            yield metric, f"{column} {value}" if isinstance(value, str) else value
    for period in ("volatile", "aggregate"):
        for column, layouts in _ECC.items():
            metric = METRIC_BY_COLUMN[column.format(period)]
            count = _ecc_count(gpu, metric, layouts, period=period)
            if count is not None:
                yield metric, count
    reasons = _clock_reasons(gpu)
    if reasons is not None:
        yield METRIC_BY_COLUMN["clock_event_reasons"], float(reasons)


def _ecc_count(
    gpu: Mapping[str, str], metric: Metric, layouts: tuple[str, ...], *, period: str
) -> float | None:
    """A count of errors; unknown where any of its parts is."""
    for layout in layouts:
        texts = [gpu.get(f"ecc_errors/{period}/{part}") for part in layout.split()]
        if None in texts:
            continue
        values = [smi_value(text or "", metric) for text in texts]
        if all(isinstance(value, float) for value in values):
            return sum(value for value in values if isinstance(value, float))
        return None
    return None


def _clock_reasons(gpu: Mapping[str, str]) -> int | None:
    """The bit mask of what slows the clocks; None where the report does not tell."""
    mask = None
    for stem in ("clocks_event_reason", "clocks_throttle_reason"):
        for reason, bit in _REASONS.items():
            text = gpu.get(f"{stem}s/{stem}_{reason}", "").lower()
            if text in ("active", "not active"):
                mask = (mask or 0) | (bit if text == "active" else 0)
    return mask
