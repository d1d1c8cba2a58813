"""Looks up what an exporter's metric name stands for, its unit, and whether a value is a blank.

The names themselves are in `dcgm_names`, what the metrics mean in `features.telemetry_metrics`;
no text is parsed here.
"""

from dataclasses import dataclass
from typing import Final

from features.telemetry_metrics import METRIC_BY_DCGM_ID, Metric
from pipelines.sources.telemetry.dcgm_names import LANE_STEMS, N_LANES, NAMES

PER_INSTANCE: Final = frozenset(
    {
        "fb_used_mib",
        "fb_free_mib",
        "gr_engine_active_ratio",
        "sm_active_ratio",
        "sm_occupancy_ratio",
        "tensor_active_ratio",
        "dram_active_ratio",
    }
)
"""Metrics that DCGM gives per MIG instance: no instance's value says anything of the GPU."""

BLANK_WORDS: Final = frozenset(
    {
        "n/a",
        "[n/a]",
        "error",
        "err!",
        "none",
        "null",
        "nil",
        "<nil>",
        "-",
        "insufficient",
        "unknown",
        "[unknown",
        "[not",
        "not",
    }
)
"""First words of what stands where a number should, where a field has no value."""

_PSTATE_UNKNOWN: Final = 32.0  # NVML_PSTATE_UNKNOWN


@dataclass(frozen=True)
class ExporterName:
    """What one exporter name stands for.

    Attributes:
        metric: The metric.
        scale: Factor from the exporter's unit to the metric's.
        part: Part of the metric that it counts (a single NVLink), which adds up with the others
            to the metric where no name gives the whole; empty: the metric itself.
        rank: Place among the names of the metric: of several in one scrape the lowest counts.
    """

    metric: Metric
    scale: float
    part: str = ""
    rank: int = 0


_OTHER_UNITS: Final = {
    "W": {"mw": 1e-3, "w": 1.0, "kw": 1e3, "watts": 1.0, "milliwatts": 1e-3},
    "J": {"mj": 1e-3, "j": 1.0, "kj": 1e3, "joules": 1.0, "millijoules": 1e-3},
    "us": {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6},
    "MiB": {"b": 2.0**-20, "bytes": 2.0**-20, "kib": 2.0**-10, "mib": 1.0, "gib": 1024.0},
}
"""Units that a help text may state, with the factor to ours: those of power, energy, durations
and memory changed between releases. Ratios are left out: help texts call them percentages. `kB`
and `MB` are left out: some releases write them for KiB and MiB."""


def exporter_name(name: str) -> ExporterName | None:
    """Looks a metric name up, in any case.

    Args:
        name: Name in the exposition; OpenMetrics writes `_total` behind that of a counter.

    Returns:
        What it stands for, or None for a field the project does not use.

    Example:
        >>> exporter_name("DCGM_FI_DEV_PCIE_REPLAY_COUNTER_total").metric.column
        'pcie_replay_count'
    """
    key = name.lower()
    return _BY_NAME.get(key) or _BY_NAME.get(key.removesuffix("_total"))


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


def blank_of(metric: Metric) -> float:
    """The further number that stands for "no value" in one metric.

    Args:
        metric: The metric.

    Returns:
        -1 where nothing negative can be, as NVML writes what it does not know; the P-state
        "unknown"; NaN where there is none.
    """
    if metric.column == "performance_state":
        return _PSTATE_UNKNOWN
    return -1.0 if metric.minimum >= 0 else float("nan")


def is_value(metric: Metric, value: float) -> bool:
    """Whether a number is a reading rather than a stand-in for none.

    Args:
        metric: The metric it is of.
        value: The number as exported, before scaling.

    Returns:
        False for every blank.
    """
    is_negative_code = value == -1 and metric.minimum >= 0
    return not (is_blank(value) or is_negative_code or value == blank_of(metric))


def is_blank_text(text: str) -> bool:
    """Whether words stand where a number should because there is none.

    Args:
        text: What stands there: `N/A`, `ERROR - FAILED TO CONVERT TO STRING`.

    Returns:
        True for the words exporters and NVML use.
    """
    return text.strip().partition(" ")[0].lower() in BLANK_WORDS


def _by_name() -> dict[str, ExporterName]:
    table = {
        name.lower(): ExporterName(METRIC_BY_DCGM_ID[dcgm_id], scale, rank=rank)
        for dcgm_id, names in NAMES.items()
        for rank, (name, scale) in enumerate(names)
    }
    for dcgm_id, stems in LANE_STEMS.items():
        for rank, (before, after) in enumerate(stems):
            for lane in range(N_LANES):
                name = f"DCGM_FI_DEV_{before}{lane}{after}".lower()
                table[name] = ExporterName(
                    METRIC_BY_DCGM_ID[dcgm_id], 1.0, part=f"L{lane}", rank=rank
                )
    return table


_BY_NAME: Final = _by_name()
