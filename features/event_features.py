"""Features of health events: how many of each group lately, how long since, how many kinds.

Which group an event is in says `features.catalogue`; incidents are in `features.history_features`.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from features.catalogue import EVENT_GROUPS, FaultCatalogue
from features.event_index import EventIndex, Floats, Ints, group_codes
from features.registry import Feature, window_suffix

_US: Final = timedelta(microseconds=1)
_US_PER_HOUR: Final = 3_600_000_000.0
_GROUP_WORDS: Final = {
    "hbm": "memory events",
    "precursor": "warning events",
    "off_bus": "off-bus events",
    "nvlink": "NVLink events",
    "app": "application Xids",
    "other": "other health events",
}


@dataclass(frozen=True, kw_only=True)
class EventSpec:
    """Which event features are built.

    Attributes:
        windows: Windows in which events are counted.
        lookback: How far back the last event is looked for; a longer time is unknown.
        kinds_window: Window in which distinct Xids are counted.
    """

    windows: tuple[timedelta, ...] = (timedelta(hours=1), timedelta(hours=24), timedelta(days=7))
    lookback: timedelta = timedelta(days=30)
    kinds_window: timedelta = timedelta(hours=24)


def event_features(spec: EventSpec) -> tuple[Feature, ...]:
    """The features that `build_events` gives, in order."""
    inputs = ("health_events.kind", "health_events.code", "health_events.ts")
    features = []
    for group in EVENT_GROUPS:
        words = _GROUP_WORDS[group]
        features += [
            Feature(
                _count_name(group, window),
                "event",
                "1",
                window,
                f"Number of {words} of this GPU",
                inputs,
            )
            for window in spec.windows
        ]
        features.append(
            Feature(
                f"hours_since_{group}_event",
                "event",
                "h",
                spec.lookback,
                f"Time since the last of the {words} of this GPU",
                inputs,
            )
        )
    suffix = window_suffix(spec.kinds_window)
    features.append(
        Feature(
            f"distinct_xid_count_{suffix}",
            "event",
            "1",
            spec.kinds_window,
            "Number of different Xids of this GPU",
            inputs,
        )
    )
    features += [
        Feature(
            f"node_event_count_{window_suffix(window)}",
            "event",
            "1",
            window,
            "Number of events of the node that name no GPU: links, memory, PCIe",
            inputs,
        )
        for window in spec.windows
    ]
    return tuple(features)


def build_events(
    rows: pl.DataFrame,
    health_events: pl.DataFrame,
    *,
    catalogue: FaultCatalogue,
    spec: EventSpec,
) -> pl.DataFrame:
    """Computes event features.

    Args:
        rows: `entity_id` (GPU), `node`, `as_of`.
        health_events: core/health_events; those with `ts < as_of` count. How many lines an event
            stands for is not looked at: later lines may still raise it.
        catalogue: Gives each event its group.
        spec: Which features.

    Returns:
        `entity_id`, `as_of` and one Float32 column per feature of `event_features`, in the order
        of `rows`. A count without events is 0; the time since the last is then null.
    """
    asked = rows.select(gpu_uuid="entity_id", node="node", as_of="as_of")
    as_of = _micros(asked["as_of"])
    events = catalogue.classify(health_events)
    columns: dict[str, Floats] = {}
    for group in EVENT_GROUPS:
        index, codes = _index(asked, events.filter(pl.col("group") == group), key="gpu_uuid")
        for window in spec.windows:
            columns[_count_name(group, window)] = _count(index, codes, as_of, window)
        since = as_of - index.last_time(codes, as_of)
        too_old = since > spec.lookback // _US
        columns[f"hours_since_{group}_event"] = np.where(too_old, np.nan, since) / _US_PER_HOUR
    xids = events.filter(pl.col("kind") == "xid")
    kinds = np.zeros(as_of.size)
    for (_code,), of_code in xids.group_by("code", maintain_order=True):
        index, codes = _index(asked, of_code, key="gpu_uuid")
        kinds += _count(index, codes, as_of, spec.kinds_window) > 0
    columns[f"distinct_xid_count_{window_suffix(spec.kinds_window)}"] = kinds
    index, codes = _index(asked, events.filter(pl.col("gpu_uuid").is_null()), key="node")
    for window in spec.windows:
        name = f"node_event_count_{window_suffix(window)}"
        columns[name] = _count(index, codes, as_of, window)
    return rows.select("entity_id", "as_of").with_columns(
        pl.Series(feature.name, columns[feature.name], nan_to_null=True).cast(pl.Float32)
        for feature in event_features(spec)
    )


def _index(asked: pl.DataFrame, events: pl.DataFrame, *, key: str) -> tuple[EventIndex, Ints]:
    codes, event_codes = group_codes(asked, events, key=(key,))
    return EventIndex(event_codes, _micros(events["ts"])), codes


def _count(index: EventIndex, codes: Ints, as_of: Ints, window: timedelta) -> Floats:
    """Events in [as_of - window, as_of)."""
    within = index.count(codes, as_of) - index.count(codes, as_of - window // _US)
    return within.astype(np.float64)


def _count_name(group: str, window: timedelta) -> str:
    return f"{group}_event_count_{window_suffix(window)}"


def _micros(times: pl.Series) -> Ints:
    return times.dt.epoch("us").to_numpy().astype(np.int64)
