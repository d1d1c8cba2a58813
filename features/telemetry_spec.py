"""Which telemetry features are built.

What they are is in `features.telemetry_features`.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from features.engine.plan import STATISTICS, Statistic
from features.errors import DataError
from features.telemetry_metrics import METRIC_BY_COLUMN, METRICS

_H: Final = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class TelemetrySpec:
    """Which telemetry features are built.

    Attributes:
        gauges: Gauges that get window statistics.
        gauge_statistics: Statistics per window.
        counters: Counters that get their reset-aware increase.
        counter_windows: Windows of the increases.
        flags: States that get their last value.
        flag_window: How far back the last value of a flag is looked for.
        reason_windows: Windows of the shares of throttled samples.
        gap_windows: Windows of the coverage and the share of unknown fields.
        sample_every: Time between samples when none is lost.
        peer_gauges: Gauges compared with the node's other GPUs.
        peer_window: Window of the means that are compared.
        contrast_windows: Windows of heat beyond power and of swings of power, compared with the
            node's other GPUs; shortest first.
        peer_levels: Levels of the topology, such as rack, whose places' GPUs are compared too. A
            place should hold a few hundred GPUs at most: a row needs the samples of all of them.
        known_metrics: Metrics the site has at all; features of others are left out.

    Raises:
        DataError: A metric is not known, or of another kind; a level is named twice.
    """

    gauges: tuple[str, ...] = (
        "gpu_temp_c",
        "memory_temp_c",
        "power_w",
        "sm_clock_mhz",
        "gpu_util_pct",
    )
    gauge_statistics: tuple[tuple[timedelta, tuple[Statistic, ...]], ...] = (
        (_H, ("mean", "max", "last")),
        (6 * _H, ("mean", "std", "slope")),
        (24 * _H, ("mean", "std", "min", "max", "delta")),
    )
    counters: tuple[str, ...] = (
        "ecc_sbe_volatile",
        "ecc_dbe_volatile",
        "remapped_rows_uncorrectable",
        "remapped_rows_correctable",
        "pcie_replay_count",
        "nvlink_crc_count",
        "nvlink_replay_count",
        "power_violation_us",
        "thermal_violation_us",
    )
    counter_windows: tuple[timedelta, ...] = (_H, 6 * _H, 24 * _H)
    flags: tuple[str, ...] = ("row_remap_pending", "row_remap_failure")
    flag_window: timedelta = 24 * _H
    reason_windows: tuple[timedelta, ...] = (_H, 24 * _H)
    gap_windows: tuple[timedelta, ...] = (_H, 6 * _H, 24 * _H)
    sample_every: timedelta = timedelta(minutes=5)
    peer_gauges: tuple[str, ...] = ("gpu_temp_c", "memory_temp_c", "power_w", "sm_clock_mhz")
    peer_window: timedelta = _H
    contrast_windows: tuple[timedelta, ...] = (_H, 6 * _H, 24 * _H)
    peer_levels: tuple[str, ...] = ()
    known_metrics: tuple[str, ...] = tuple(metric.column for metric in METRICS)

    def __post_init__(self) -> None:
        kinds = (
            ("gauges", self.gauges, "gauge"),
            ("peer_gauges", self.peer_gauges, "gauge"),
            ("counters", self.counters, "counter"),
            ("flags", self.flags, "state"),
        )
        for field, names, kind in kinds:
            wrong = [n for n in names if getattr(METRIC_BY_COLUMN.get(n), "kind", None) != kind]
            if wrong:
                allowed = ", ".join(m.column for m in METRICS if m.kind == kind)
                raise DataError(
                    f"telemetry spec: {field} must be of kind {kind}, got {', '.join(wrong)}. "
                    f"Choose from {allowed}."
                )
        if len({"node", *self.peer_levels}) <= len(self.peer_levels):
            raise DataError(
                f"telemetry spec: peer_levels must be different levels of the topology, got "
                f"{', '.join(self.peer_levels)}. The GPUs of a node are compared in any case."
            )


FULL_TELEMETRY: Final = TelemetrySpec(
    gauges=(
        "gpu_util_pct",
        "memory_util_pct",
        "fb_used_mib",
        "gpu_temp_c",
        "memory_temp_c",
        "power_w",
        "sm_clock_mhz",
        "memory_clock_mhz",
    ),
    gauge_statistics=tuple(
        (hours * _H, tuple(one for one in STATISTICS if one != "sum"))
        for hours in (0.25, 1, 6, 24, 168)
    ),
    counters=(
        "ecc_sbe_volatile",
        "ecc_dbe_volatile",
        "ecc_sbe_aggregate",
        "ecc_dbe_aggregate",
        "remapped_rows_correctable",
        "remapped_rows_uncorrectable",
        "pcie_replay_count",
        "nvlink_crc_count",
    ),
    counter_windows=tuple(hours * _H for hours in (0.25, 1, 6, 24, 168)),
)
"""Every statistic of eight gauges over five windows and eight counters: 320 features, and more."""
