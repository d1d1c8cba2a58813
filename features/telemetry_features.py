"""Features of GPU telemetry: gauges, counters, states and gaps.

How statistics over windows are computed is in `features.engine`, how a GPU is compared with its
neighbours in `features.peer_features`.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.contracts import UTC_TIME
from features.engine.plan import (
    N_KNOWN,
    RESETS,
    Derived,
    EnginePlan,
    Statistic,
    Wanted,
    plan_engine,
)
from features.engine.ring import BucketStore
from features.engine.rows import codes_of, tick_rows, window_rows
from features.engine.samples import SampleSource
from features.errors import DataError
from features.peer_contrasts import Contrast, node_contrasts, with_contrasts
from features.peer_features import (
    peer_features,
    peer_group,
    peer_statistics,
    with_peer_scores,
)
from features.registry import Family, Feature, window_suffix
from features.telemetry_metrics import METRIC_BY_COLUMN, METRICS
from features.telemetry_spec import TelemetrySpec

_MIN_BUCKET: Final = timedelta(minutes=1)

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
    "sum": "sum",
}
_KNOWN: Final[dict[Statistic, str]] = {
    "std": "null below two known values in the window",
    "slope": "null below two known values in the window, a second apart",
    "delta": "null unless the window and the one before hold a known value",
}
_WITH_SAMPLE: Final = "null without a sample in the window"
_USUALLY_KNOWN: Final = "null without a known value in the window"


@dataclass(frozen=True)
class _Planned:
    """A feature with the result of the engine that gives it."""

    feature: Feature
    wanted: Wanted


def telemetry_features(spec: TelemetrySpec) -> tuple[Feature, ...]:
    """The features that `build_telemetry` gives, in order."""
    planned = tuple(plan.feature for plan in _plan(spec))
    peers = (
        peer_features(_peers(spec), window=spec.peer_window, by=by) for by in peer_groups(spec)
    )
    contrasts = tuple(one.feature for one in _contrasts(spec))
    return (*planned, *itertools.chain.from_iterable(peers), *contrasts)


def peer_groups(spec: TelemetrySpec) -> tuple[str, ...]:
    """What the GPUs that are compared share: the node, then each level."""
    return ("node", *spec.peer_levels)


def telemetry_plan(spec: TelemetrySpec, *, bucket: timedelta) -> EnginePlan:
    """What the engine computes for a spec: its features, then the means that peers share.

    Args:
        spec: Which features.
        bucket: Length of a bucket; results do not depend on it.

    Raises:
        DataError: A window is not a whole number of buckets.
    """
    wanted = [plan.wanted for plan in _plan(spec)]
    derived = [Derived(name, "clock_event_reasons", bits) for name, bits in _REASON_BITS.items()]
    counters = [counter for counter in spec.counters if counter in spec.known_metrics]
    compared = [*_compared(spec, wanted).values(), *_contrasted(spec)]
    more = [one for one in dict.fromkeys(compared) if one not in wanted]
    return plan_engine([*wanted, *more], bucket=bucket, derived=derived, counters=counters)


@dataclass(frozen=True)
class Memory:
    """What is remembered from tick to tick.

    Attributes:
        store: Where.
        stale_from: The earliest moment whose samples have changed since the last tick; None: none.
    """

    store: BucketStore
    stale_from: datetime | None = None


def telemetry_reach(spec: TelemetrySpec) -> timedelta:
    """How far before its moment a row's features may rest on samples."""
    bucket = _bucket(spec, pl.Series([], dtype=UTC_TIME))
    return telemetry_plan(spec, bucket=bucket).reach * bucket


def build_telemetry(
    rows: pl.DataFrame,
    samples: SampleSource,
    *,
    spec: TelemetrySpec,
    threads: int = 1,
    memory: Memory | None = None,
) -> pl.DataFrame:
    """Computes the telemetry features of GPUs.

    Args:
        rows: `entity_id`, `as_of`, `node` and the place at each of the spec's levels
            (`features.history_rows.with_places`), each pair of entity and moment once; a row is
            compared with the other rows of its node, or place, and moment.
        samples: The telemetry.
        spec: Which features.
        threads: Groups of GPUs computed at once.
        memory: What earlier ticks have left: only the samples since are read. For rows of one
            moment; the result is the same.

    Returns:
        `entity_id`, `as_of` and one Float32 column per feature of `telemetry_features`, in the
        order of `rows`. Null: nothing is known in the window; a count of samples is then 0.

    Raises:
        DataError: The moments are not whole minutes, or a window is not.
    """
    plan = telemetry_plan(spec, bucket=_bucket(spec, rows["as_of"]))
    codes = codes_of(samples, rows["entity_id"].to_list())
    moments = rows["as_of"].dt.epoch("ms").to_numpy() // plan.bucket_ms
    if memory is None or rows["as_of"].n_unique() != 1:
        values = window_rows(samples, plan, codes, moments, threads=threads)
        return with_telemetry_names(rows, plan, values, spec=spec)
    stale = memory.stale_from
    values = tick_rows(
        samples,
        memory.store,
        plan,
        codes,
        moment=int(moments[0]),
        stale_from=None if stale is None else int(stale.timestamp() * 1000) // plan.bucket_ms,
    )
    return with_telemetry_names(rows, plan, values, spec=spec)


def with_telemetry_names(
    rows: pl.DataFrame, plan: EnginePlan, values: npt.NDArray[np.float32], *, spec: TelemetrySpec
) -> pl.DataFrame:
    """The engine's results as features, with those that compare a row with its neighbours.

    Args:
        rows: As for `build_telemetry`.
        plan: What was computed (`telemetry_plan`).
        values: Results, NaN where unknown, shape (F, rows).
        spec: Which features.

    Returns:
        As `build_telemetry`.
    """
    groups = peer_groups(spec)
    table = rows.select("entity_id", "as_of", *map(peer_group, groups)).with_columns(
        pl.Series(name, result, nan_to_null=True)
        for name, result in zip(plan.names, values, strict=True)
    )
    means = _compared(spec, [one.wanted for one in _plan(spec)])
    compared = table.with_columns(
        pl.col(mean.name).cast(pl.Float64).alias(name) for name, mean in means.items()
    )
    for by in groups:
        compared = with_peer_scores(compared, _peers(spec), window=spec.peer_window, by=by)
    compared = with_contrasts(compared, _contrasts(spec))
    return compared.select(
        "entity_id",
        "as_of",
        *(pl.col(f.name).cast(pl.Float32) for f in telemetry_features(spec)),
    )


def _bucket(spec: TelemetrySpec, as_of: pl.Series) -> timedelta:
    """The longest bucket that every window and every moment is a whole number of."""
    us = timedelta(microseconds=1)
    windows = [plan.wanted.window // us for plan in _plan(spec)] + [spec.peer_window // us]
    windows += [window // us for window in spec.contrast_windows]
    length = math.gcd(*windows, *as_of.dt.epoch("us").unique().to_list()) * us
    if length % _MIN_BUCKET:
        raise DataError(
            f"telemetry features: windows and moments must be whole minutes, got a common step of "
            f"{length}. Choose moments on the minute."
        )
    return length


def _peers(spec: TelemetrySpec) -> tuple[str, ...]:
    return tuple(gauge for gauge in spec.peer_gauges if gauge in spec.known_metrics)


def _contrasts(spec: TelemetrySpec) -> tuple[Contrast, ...]:
    """The contrasts, their parts under the names that other uses of the same statistics have."""
    wanted = [plan.wanted for plan in _plan(spec)]
    pool = [*wanted, *_compared(spec, wanted).values()]

    def shared(part: Wanted) -> Wanted:
        return next((one for one in pool if replace(one, name=part.name) == part), part)

    found = node_contrasts(spec.contrast_windows, frozenset(spec.known_metrics))
    return tuple(
        replace(one, parts=tuple((shared(part), weight) for part, weight in one.parts))
        for one in found
    )


def _contrasted(spec: TelemetrySpec) -> list[Wanted]:
    """The statistics that contrasts are made of."""
    return [part for one in _contrasts(spec) for part, _ in one.parts]


def _compared(spec: TelemetrySpec, wanted: Sequence[Wanted]) -> dict[str, Wanted]:
    """The column that peers are compared by to the mean it is: a feature where there is one."""
    found = {}
    for statistic in peer_statistics(_peers(spec), window=spec.peer_window):
        same = [one for one in wanted if replace(one, name=statistic.name) == statistic]
        found[statistic.name] = same[0] if same else statistic
    return found


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
        plans += [_coverage(window, spec.sample_every)]
        plans += [_unknown_share(window)]
    plans.append(_sample_age(max(spec.gap_windows)))
    return plans


def _planned(
    wanted: Wanted,
    family: Family,
    *,
    unit: str,
    meaning: str,
    inputs: Sequence[str],
    known: str = _USUALLY_KNOWN,
) -> _Planned:
    named = tuple(f"gpu_telemetry.{column}" for column in inputs)
    feature = Feature(wanted.name, family, unit, wanted.window, meaning, named, known)
    return _Planned(feature, wanted)


def _gauge(gauge: str, window: timedelta, statistic: Statistic) -> _Planned:
    metric = METRIC_BY_COLUMN[gauge]
    suffix = window_suffix(window)
    name = f"{gauge}_{statistic}_{suffix}"
    return _planned(
        Wanted(name=name, column=gauge, window=window, statistic=statistic),
        "telemetry_gauge",
        unit=f"{metric.unit}/h" if statistic == "slope" else metric.unit,
        meaning=f"{metric.meaning}: {_STATISTIC_WORDS[statistic]} over {suffix}",
        inputs=[gauge],
        known=_KNOWN.get(statistic, _USUALLY_KNOWN),
    )


def _counter(counter: str, window: timedelta) -> _Planned:
    metric = METRIC_BY_COLUMN[counter]
    suffix = window_suffix(window)
    name = f"{counter}_increase_{suffix}"
    return _planned(
        Wanted(name=name, kind="increase", column=counter, window=window),
        "telemetry_counter",
        unit=metric.unit,
        meaning=f"{metric.meaning}: increase over {suffix}",
        inputs=[counter],
        known="null unless two known values lie at most 24 h apart",
    )


def _resets(counters: Sequence[str], window: timedelta) -> _Planned:
    suffix = window_suffix(window)
    name = f"counter_resets_{suffix}"
    return _planned(
        Wanted(name=name, column=RESETS, statistic="sum", window=window),
        "telemetry_counter",
        unit="1",
        meaning=f"Samples in {suffix} at which a counter had fallen: driver reload or reboot",
        inputs=counters,
        known=_WITH_SAMPLE,
    )


def _flag(flag: str, window: timedelta) -> _Planned:
    name = f"{flag}_last_{window_suffix(window)}"
    return _planned(
        Wanted(name=name, column=flag, statistic="last", window=window),
        "telemetry_state",
        unit="flag",
        meaning=f"{METRIC_BY_COLUMN[flag].meaning}: last known",
        inputs=[flag],
    )


def _reason(reason: str, window: timedelta) -> _Planned:
    suffix = window_suffix(window)
    return _planned(
        Wanted(name=f"{reason}_share_{suffix}", column=reason, window=window),
        "telemetry_state",
        unit="1",
        meaning=f"{_REASON_WORDS[reason]} over {suffix}",
        inputs=["clock_event_reasons"],
    )


def _coverage(window: timedelta, sample_every: timedelta) -> _Planned:
    suffix = window_suffix(window)
    name = f"sample_coverage_{suffix}"
    return _planned(
        Wanted(name=name, kind="count", window=window, scale=sample_every / window),
        "structural",
        unit="1",
        meaning=f"Samples received over {suffix} as a share of those expected",
        inputs=["ts"],
        known="0 without a sample in the window",
    )


def _unknown_share(window: timedelta) -> _Planned:
    suffix = window_suffix(window)
    name = f"unknown_field_share_{suffix}"
    scale = -1.0 / len(METRICS)
    return _planned(
        Wanted(name=name, column=N_KNOWN, window=window, scale=scale, offset=1.0),
        "structural",
        unit="1",
        meaning=f"Share of metrics without a value in the samples over {suffix}",
        inputs=["*"],
        known=_WITH_SAMPLE,
    )


def _sample_age(window: timedelta) -> _Planned:
    return _planned(
        Wanted(name="hours_since_sample", kind="age", window=window),
        "structural",
        unit="h",
        meaning="Time since the last sample",
        inputs=["ts"],
        known=_WITH_SAMPLE,
    )
