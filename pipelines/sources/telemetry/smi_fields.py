"""Fields of nvidia-smi's queries by our columns, and the words it prints instead of values.

The CSV around them is read in `nvidia_smi_csv`, the XML report in `nvidia_smi_xml`.
"""

import re
from typing import Final

from features.telemetry_metrics import METRIC_BY_COLUMN, Metric
from pipelines.sources.telemetry.dcgm_fields import is_value

_REASONS: Final = ("clocks_event_reasons", "clocks_throttle_reasons")

QUERY_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "gpu_temp_c": ("temperature.gpu",),
    "memory_temp_c": ("temperature.memory",),
    "gpu_temp_margin_c": ("temperature.gpu.tlimit",),
    "power_w": ("power.draw", "power.draw.average", "power.draw.instant"),
    "power_limit_w": ("enforced.power.limit", "power.limit"),
    "sm_clock_mhz": ("clocks.current.sm", "clocks.sm"),
    "memory_clock_mhz": ("clocks.current.memory", "clocks.mem", "clocks.current.mem"),
    "gpu_util_pct": ("utilization.gpu",),
    "memory_util_pct": ("utilization.memory",),
    "fb_used_mib": ("memory.used",),
    "fb_free_mib": ("memory.free",),
    "fan_speed_pct": ("fan.speed",),
    "performance_state": ("pstate",),
    "pcie_link_gen": ("pcie.link.gen.gpucurrent", "pcie.link.gen.current"),
    "pcie_max_link_gen": ("pcie.link.gen.max",),
    "pcie_link_width": ("pcie.link.width.current",),
    "pcie_max_link_width": ("pcie.link.width.max",),
    "ecc_sbe_volatile": ("ecc.errors.corrected.volatile.total",),
    "ecc_dbe_volatile": ("ecc.errors.uncorrected.volatile.total",),
    "ecc_sbe_aggregate": ("ecc.errors.corrected.aggregate.total",),
    "ecc_dbe_aggregate": ("ecc.errors.uncorrected.aggregate.total",),
    "sram_ecc_exceeded": ("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
                          "ecc.errors.uncorrected.aggregate.sram.threshold_exceeded"),
    "retired_pages_sbe": ("retired_pages.single_bit_ecc.count", "retired_pages.sbe"),
    "retired_pages_dbe": ("retired_pages.double_bit.count", "retired_pages.double_bit_ecc.count",
                          "retired_pages.dbe"),
    "retired_pages_pending": ("retired_pages.pending",),
    "remapped_rows_correctable": ("remapped_rows.correctable",),
    "remapped_rows_uncorrectable": ("remapped_rows.uncorrectable",),
    "row_remap_failure": ("remapped_rows.failure",),
    "row_remap_pending": ("remapped_rows.pending",),
    "remap_banks_low": ("remapped_rows.histogram.low",),
    "remap_banks_none": ("remapped_rows.histogram.none",),
    "clock_event_reasons": tuple(f"{stem}.active" for stem in _REASONS),
    "sw_power_cap_us": ("clocks_event_reasons_counters.sw_power_cap",),
    "sw_thermal_slowdown_us": ("clocks_event_reasons_counters.sw_thermal_slowdown",),
    "hw_thermal_slowdown_us": ("clocks_event_reasons_counters.hw_thermal_slowdown",),
    "hw_power_brake_us": ("clocks_event_reasons_counters.hw_power_brake_slowdown",),
    "recovery_action": ("gpu_recovery_action",),
}  # fmt: skip
"""Query fields of `nvidia-smi --help-query-gpu` and `--help-query-remapped-rows` by column, in
the names of all releases; of several in one output the first counts."""

UNKNOWN: Final = re.compile(
    r"\[?(?:n/?a|not supported|unknown error|unknown|gpu is lost|insufficient permissions|"
    r"not found|not available|gpu access blocked.*|gpu requires reset|"
    r"requested functionality has been deprecated|error|function not found)\]?|err!|",
    re.IGNORECASE,
)
"""What stands where there is no value."""

LOST: Final = re.compile(
    r"gpu is lost|unable to determine the device handle|fallen off the bus", re.IGNORECASE
)
"""What says that a GPU cannot be reached."""

FAILED: Final = re.compile(
    r"nvidia-smi has failed|failed to initialize nvml|no devices were found|"
    r"driver/library version mismatch|unable to initialize|command not found|"
    r"couldn't communicate with the nvidia driver",
    re.IGNORECASE,
)
"""What says that nvidia-smi itself could not work: nothing is known of any GPU."""

FIRST_YEAR: Final = 2000
"""Earlier times are those of a clock that was never set."""

_NUMBER: Final = re.compile(
    r"(?P<number>[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?: ?(?P<unit>[^\d\s].*))?",
    re.ASCII | re.IGNORECASE,
)
_HEX: Final = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII | re.IGNORECASE)
_PSTATE: Final = re.compile(r"P(\d{1,2})", re.ASCII)
_WORDS: Final = {"yes": 1.0, "no": 0.0, "active": 1.0, "not active": 0.0}
_RECOVERY: Final = {
    "none": 0.0, "reset": 1.0, "gpu reset": 1.0, "reboot": 2.0, "node reboot": 2.0,
    "drain p2p": 3.0, "drain and reset": 4.0,
}  # fmt: skip
"""nvmlDeviceGpuRecoveryAction_t."""

_SCALES: Final = {
    "W": {"mw": 1e-3, "w": 1.0, "kw": 1e3},
    "MHz": {"khz": 1e-3, "mhz": 1.0, "ghz": 1e3, "hz": 1e-6},
    # Drivers before 319 write MB for MiB.
    "MiB": {"b": 2.0**-20, "kib": 2.0**-10, "mib": 1.0, "mb": 1.0, "gib": 1024.0, "tib": 1024.0**2},
    "us": {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6},
    "degC": {"c": 1.0, "\N{DEGREE SIGN}c": 1.0},
    "%": {"%": 1.0},
    "lanes": {"x": 1.0},
    "banks": {"bank(s)": 1.0},
}
"""Factors by unit; what follows a number and is none of these (`F`, the `,5 %` of a decimal comma)
makes it unreadable."""


def smi_value(text: str, metric: Metric, *, stated_unit: str = "") -> float | str | None:
    """Reads a value as nvidia-smi prints it: `35 W`, `97 %`, `16x`, `0x4`, `P8`, `Yes`.

    Args:
        text: The text.
        metric: What it is of.
        stated_unit: Unit that a header states; the value's own goes before it.

    Returns:
        The value in the metric's unit; None where there is none; else what is wrong, in words.
    """
    bare = text.strip()
    word = _word_value(bare, metric)
    if word is not None:
        return word if is_value(metric, word) else None
    if UNKNOWN.fullmatch(bare):
        return None
    found = _NUMBER.fullmatch(bare)
    if found is None:
        return "is not a number"
    number = float(found["number"])
    if not is_value(metric, number):
        return None
    unit = (found["unit"] or stated_unit).strip().lower()
    scale = _SCALES.get(metric.unit, {}).get(unit) if unit else 1.0
    return "is in a unit that is not known" if scale is None else number * scale


def _word_value(text: str, metric: Metric) -> float | None:
    """The value of what is no decimal number: an action, `Yes`, `P8`, `0x4`."""
    key = text.lower()
    if metric.column == "recovery_action":
        return _RECOVERY.get(key)
    if metric.unit in ("flag", "pages"):
        return _WORDS.get(key)
    if metric.unit == "P-state":
        state = _PSTATE.fullmatch(text)
        return float(state[1]) if state else None
    is_mask = metric.unit == "bit mask" and _HEX.fullmatch(text)
    return float(int(text, 16)) if is_mask else None


METRIC_BY_FIELD: Final = {
    field.lower(): METRIC_BY_COLUMN[column]
    for column, fields in QUERY_FIELDS.items()
    for field in fields
}
"""Metric by query field, in lower case."""
