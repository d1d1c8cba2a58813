"""Features of GPU telemetry: gauges, counters, states and gaps.

How statistics over windows are computed is in `features.telemetry_windows`, how a GPU is compared
with its neighbours in `features.peer_features`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import polars as pl

from features.errors import DataError
from features.peer_features import peer_features, peer_statistics, with_peer_scores
from features.registry import Family, Feature, window_suffix
from features.telemetry_metrics import METRIC_BY_COLUMN, METRICS
from features.telemetry_windows import Statistic, WindowStatistic, window_statistics

_H: Final = timedelta(hours=1)
_MEMORY: Final = timedelta(hours=24)

# Bits of clock_event_reasons (nvml.h, nvmlClocksEventReason*). Idle clocks and the power cap are
# everyday life and left out.
_REASON_BITS: Final = {"thermal_throttle": 0x20 | 0x40, "power_brake": 0x80}
_REASON_WORDS: Final = {
    "thermal_throttle": "Share of samples slowed down by heat",
    "power_brake": "Share of samples slowed down by the power brake",
}

_STATISTIC_WORDS: Final[dict[Statistic, str]] = {
    "mean": "mean",
    "std": "standard deviation",
    "min": "minimum",
    "max": "maximum",
    "last": "last value",
    "slope": "trend",
    "delta": "change since the window before",
}


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
        known_metrics: Metrics the site has at all; features of others are left out.

    Raises:
        DataError: A metric is not known, or of another kind.
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


@dataclass(frozen=True)
class _Planned:
    """A feature with the window statistic that gives it; `scale` turns it into its unit."""

    feature: Feature
    statistic: WindowStatistic
    scale: float = 1.0


def telemetry_features(spec: TelemetrySpec) -> tuple[Feature, ...]:
    """The features that `build_telemetry` gives, in order."""
    planned = tuple(plan.feature for plan in _plan(spec))
    return planned + peer_features(_peers(spec), window=spec.peer_window)


def build_telemetry(
    rows: pl.DataFrame, gpu_telemetry: pl.DataFrame, *, spec: TelemetrySpec
) -> pl.DataFrame:
    """Computes the telemetry features of GPUs.

    Args:
        rows: `entity_id`, `node`, `as_of`, each pair of entity and moment once; a row is compared
            with the other rows of its node and moment.
        gpu_telemetry: core/gpu_telemetry, sorted by (gpu_uuid, ts).
        spec: Which features.

    Returns:
        `entity_id`, `as_of` and one Float64 column per feature of `telemetry_features`, in the
        order of `rows`. Null: nothing is known in the window; a count of samples is then 0.
    """
    plans = _plan(spec)
    wanted = [plan.statistic for plan in plans]
    compared = peer_statistics(_peers(spec), window=spec.peer_window)
    table = window_statistics(_samples(gpu_telemetry, spec), rows, [*wanted, *compared])
    scaled = table.with_columns(
        pl.col(plan.feature.name) * plan.scale for plan in plans if plan.scale != 1.0
    )
    located = scaled.with_columns(rows["node"])
    return with_peer_scores(located, _peers(spec), window=spec.peer_window).select(
        "entity_id", "as_of", *(feature.name for feature in telemetry_features(spec))
    )


def known_metrics(gpu_telemetry: pl.DataFrame) -> tuple[str, ...]:
    """The metrics that have a value anywhere in a table."""
    counts = gpu_telemetry.select(pl.col(m.column for m in METRICS).count()).row(0, named=True)
    return tuple(name for name, count in counts.items() if count)


def _peers(spec: TelemetrySpec) -> tuple[str, ...]:
    return tuple(gauge for gauge in spec.peer_gauges if gauge in spec.known_metrics)


def _plan(spec: TelemetrySpec) -> list[_Planned]:
    known = set(spec.known_metrics)
    plans = [
        _gauge(gauge, window, statistic)
        for gauge in spec.gauges
        if gauge in known
        for window, statistics in spec.gauge_statistics
        for statistic in statistics
    ]
    counters = [counter for counter in spec.counters if counter in known]
    plans += [_counter(c, window) for c in counters for window in spec.counter_windows]
    if counters:
        plans += [_resets(counters, window) for window in spec.counter_windows]
    plans += [_flag(flag, spec.flag_window) for flag in spec.flags if flag in known]
    if "clock_event_reasons" in known:
        plans += [_reason(r, window) for r in _REASON_BITS for window in spec.reason_windows]
    for window in spec.gap_windows:
        plans += [_coverage(window, spec.sample_every), _unknown_share(window)]
    plans.append(_sample_age(max(spec.gap_windows)))
    return plans


def _planned(
    name: str,
    family: Family,
    *,
    unit: str,
    meaning: str,
    inputs: Sequence[str],
    column: str,
    window: timedelta,
    statistic: Statistic,
    scale: float = 1.0,
) -> _Planned:
    named = tuple(f"gpu_telemetry.{column}" for column in inputs)
    feature = Feature(name, family, unit, window, meaning, named)
    return _Planned(feature, WindowStatistic(name, column, window, statistic), scale)


def _gauge(gauge: str, window: timedelta, statistic: Statistic) -> _Planned:
    metric = METRIC_BY_COLUMN[gauge]
    suffix = window_suffix(window)
    return _planned(
        f"{gauge}_{statistic}_{suffix}",
        "telemetry_gauge",
        unit=f"{metric.unit}/h" if statistic == "slope" else metric.unit,
        meaning=f"{metric.meaning}: {_STATISTIC_WORDS[statistic]} over {suffix}",
        inputs=[gauge],
        column=gauge,
        window=window,
        statistic=statistic,
    )


def _counter(counter: str, window: timedelta) -> _Planned:
    metric = METRIC_BY_COLUMN[counter]
    suffix = window_suffix(window)
    return _planned(
        f"{counter}_increase_{suffix}",
        "telemetry_counter",
        unit=metric.unit,
        meaning=f"{metric.meaning}: increase over {suffix}",
        inputs=[counter],
        column=f"{counter}:increase",
        window=window,
        statistic="sum",
    )


def _resets(counters: Sequence[str], window: timedelta) -> _Planned:
    suffix = window_suffix(window)
    return _planned(
        f"counter_resets_{suffix}",
        "telemetry_counter",
        unit="1",
        meaning=f"Samples in {suffix} at which a counter had fallen: driver reload or reboot",
        inputs=counters,
        column="resets",
        window=window,
        statistic="sum",
    )


def _flag(flag: str, window: timedelta) -> _Planned:
    return _planned(
        f"{flag}_last_{window_suffix(window)}",
        "telemetry_state",
        unit="flag",
        meaning=f"{METRIC_BY_COLUMN[flag].meaning}: last known",
        inputs=[flag],
        column=flag,
        window=window,
        statistic="last",
    )


def _reason(reason: str, window: timedelta) -> _Planned:
    suffix = window_suffix(window)
    return _planned(
        f"{reason}_share_{suffix}",
        "telemetry_state",
        unit="1",
        meaning=f"{_REASON_WORDS[reason]} over {suffix}",
        inputs=["clock_event_reasons"],
        column=reason,
        window=window,
        statistic="mean",
    )


def _coverage(window: timedelta, sample_every: timedelta) -> _Planned:
    suffix = window_suffix(window)
    return _planned(
        f"sample_coverage_{suffix}",
        "structural",
        unit="1",
        meaning=f"Samples received over {suffix} as a share of those expected",
        inputs=["ts"],
        column="unknown_share",
        window=window,
        statistic="count",
        scale=sample_every / window,
    )


def _unknown_share(window: timedelta) -> _Planned:
    suffix = window_suffix(window)
    return _planned(
        f"unknown_field_share_{suffix}",
        "structural",
        unit="1",
        meaning=f"Share of metrics without a value in the samples over {suffix}",
        inputs=["*"],
        column="unknown_share",
        window=window,
        statistic="mean",
    )


def _sample_age(window: timedelta) -> _Planned:
    return _planned(
        "hours_since_sample",
        "structural",
        unit="h",
        meaning="Time since the last sample",
        inputs=["ts"],
        column="unknown_share",
        window=window,
        statistic="age",
    )


def _samples(gpu_telemetry: pl.DataFrame, spec: TelemetrySpec) -> pl.DataFrame:
    """Samples with the columns that statistics are taken of, sorted by (entity_id, ts).

    The increase of a counter is the value less the last known one, or the value itself where it
    has fallen: it was reset in between. A value without a known one in the 24 h before it has no
    increase, so that a row needs no more history than its longest window twice.
    """
    known = set(spec.known_metrics)
    ordered = gpu_telemetry.sort("gpu_uuid", "ts")
    increases, falls = [], []
    for counter in (c for c in spec.counters if c in known):
        now, ts = pl.col(counter), pl.col("ts")
        known_at = pl.when(now.is_not_null()).then(ts)
        is_recent = ts - known_at.forward_fill().shift(1).over("gpu_uuid") <= _MEMORY
        before = pl.when(is_recent).then(now.forward_fill().shift(1).over("gpu_uuid"))
        increase = pl.when(now >= before).then(now - before).when(now < before).then(now)
        increases.append(increase.cast(pl.Float64).alias(f"{counter}:increase"))
        falls.append((now < before).fill_null(value=False))
    reasons = pl.col("clock_event_reasons")
    has_reason = [
        ((reasons & bits) != 0).cast(pl.Float64).alias(reason)
        for reason, bits in _REASON_BITS.items()
        if "clock_event_reasons" in known
    ]
    metrics = [pl.col(name).is_null().cast(pl.Float64) for name in spec.known_metrics]
    values = sorted({*spec.gauges, *spec.flags, *spec.peer_gauges} & known)
    return ordered.select(
        pl.col("gpu_uuid").alias("entity_id"),
        "ts",
        *(pl.col(name).cast(pl.Float64) for name in values),
        *increases,
        *([pl.any_horizontal(falls).cast(pl.Float64).alias("resets")] if falls else []),
        *has_reason,
        pl.mean_horizontal(metrics or pl.lit(0.0)).alias("unknown_share"),
    )
