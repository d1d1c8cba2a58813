"""Features of health events: how many of each group lately, how long since, how many kinds.

Which group an event is in says `features.catalogue`; incidents are in `features.history_features`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.catalogue import EVENT_GROUPS, FaultCatalogue
from features.event_index import EventIndex, Floats, Ints, group_codes
from features.registry import Feature, window_suffix

Flags = npt.NDArray[np.bool_]

_US: Final = timedelta(microseconds=1)
_US_PER_HOUR: Final = 3_600_000_000.0
_COUNTED: Final = "0 without such an event in the window"
_BURST: Final = timedelta(minutes=10)
"""Application Xids closer than this tell of one crash, on however many GPUs."""
_GROUP_WORDS: Final = {
    "hbm": "memory events",
    "precursor": "warning events",
    "off_bus": "off-bus events",
    "nvlink": "NVLink events",
    "app": "application Xids",
    "other": "other health events",
}


_BURSTS: Final = (
    ("app_burst_count", "gpu_uuid", "Number of bursts of application Xids of this GPU"),
    ("node_app_burst_count", "node", "Number of bursts of application Xids of the node's GPUs"),
)
"""Feature, what the bursts are of, meaning."""
_NODE_COUNTS: Final = {
    "node_event_count": "Number of events of the node that name no GPU: links, memory, PCIe",
    "node_link_event_count": "Number of times a network link of the node changed",
}
_INPUTS: Final = ("health_events.kind", "health_events.code", "health_events.ts")


@dataclass(frozen=True, kw_only=True)
class EventSpec:
    """Which event features are built.

    Attributes:
        windows: Windows in which events are counted.
        lookback: How far back the last event is looked for; a longer time is unknown.
        kinds_window: Window in which distinct Xids are counted.
        burst_windows: Windows in which bursts of application Xids are counted: one crash is the
            job's doing, crashes that come again on one GPU alone may be the GPU's, and the month
            tells where people try things out.
        echo_within: A secondary event this soon after a primary one of the same GPU is its echo
            and left out (one memory error gives Xids 48, 45 and 94 within seconds). None: every
            event counts.
    """

    windows: tuple[timedelta, ...] = (timedelta(hours=1), timedelta(hours=24), timedelta(days=7))
    lookback: timedelta = timedelta(days=30)
    kinds_window: timedelta = timedelta(hours=24)
    burst_windows: tuple[timedelta, ...] = (
        timedelta(hours=24),
        timedelta(days=7),
        timedelta(days=30),
    )
    echo_within: timedelta | None = None


def event_features(spec: EventSpec) -> tuple[Feature, ...]:
    """The features that `build_events` gives, in order."""
    echoes = "" if spec.echo_within is None else ", echoes of others left out"
    features = []
    for group in EVENT_GROUPS:
        words = f"{_GROUP_WORDS[group]} of this GPU{echoes}"
        features += _counts(f"{group}_event_count", f"Number of {words}", spec.windows)
        features.append(
            _since(f"hours_since_{group}_event", f"Time since the last of the {words}", spec)
        )
    kinds = f"Number of different Xids of this GPU{echoes}"
    features += _counts("distinct_xid_count", kinds, (spec.kinds_window,))
    for name, _, words in _BURSTS:
        features += _counts(name, words, spec.burst_windows)
    for name, words in _NODE_COUNTS.items():
        features += _counts(name, words, spec.windows)
    links = "Time since a network link of the node last changed"
    features.append(_since("hours_since_node_link_event", links, spec))
    return tuple(features)


def _counts(name: str, words: str, windows: Sequence[timedelta]) -> list[Feature]:
    """A count of events in each window."""
    return [
        Feature(f"{name}_{window_suffix(window)}", "event", "1", window, words, _INPUTS, _COUNTED)
        for window in windows
    ]


def _since(name: str, words: str, spec: EventSpec) -> Feature:
    without = "null without such an event in the window"
    return Feature(name, "event", "h", spec.lookback, words, _INPUTS, without)


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
    events = catalogue.classify(health_events)
    codes, event_codes = group_codes(asked, events, key=("gpu_uuid",))
    if spec.echo_within is not None:
        echo = _is_echo(events["role"], event_codes, _micros(events["ts"]), within=spec.echo_within)
        events, event_codes = events.filter(~echo), event_codes[~echo]
    columns = _of_gpus(events, event_codes, codes, as_of=_micros(asked["as_of"]), spec=spec)
    columns |= _of_nodes(asked, events, spec)
    for name, key, _ in _BURSTS:
        columns |= _of_bursts(asked, events.filter(pl.col("group") == "app"), name, key, spec)
    return rows.select("entity_id", "as_of").with_columns(
        pl.Series(feature.name, columns[feature.name], nan_to_null=True).cast(pl.Float32)
        for feature in event_features(spec)
    )


def _of_gpus(
    events: pl.DataFrame, event_codes: Ints, codes: Ints, *, as_of: Ints, spec: EventSpec
) -> dict[str, Floats]:
    """Counts and times of a GPU's own events by group, and how many kinds of Xids there were."""
    columns: dict[str, Floats] = {}
    ts = _micros(events["ts"])
    for group in EVENT_GROUPS:
        chosen = _where(events["group"] == group)
        index = EventIndex(event_codes[chosen], ts[chosen])
        for window in spec.windows:
            name = f"{group}_event_count_{window_suffix(window)}"
            columns[name] = _count(index, codes, as_of, window)
        columns[f"hours_since_{group}_event"] = _hours_since(index, codes, as_of, spec.lookback)
    kinds = np.zeros(as_of.size)
    for is_kind in _kinds_of_xid(events):
        index = EventIndex(event_codes[is_kind], ts[is_kind])
        kinds += _count(index, codes, as_of, spec.kinds_window) > 0
    columns[f"distinct_xid_count_{window_suffix(spec.kinds_window)}"] = kinds
    return columns


def _of_nodes(asked: pl.DataFrame, events: pl.DataFrame, spec: EventSpec) -> dict[str, Floats]:
    """Counts of what names no GPU; links apart, for out-of-memory kills are by far the most."""
    of_nodes = events.filter(pl.col("gpu_uuid").is_null())
    codes, event_codes = group_codes(asked, of_nodes, key=("node",))
    as_of, ts = _micros(asked["as_of"]), _micros(of_nodes["ts"])
    is_link = _where(of_nodes["kind"] == "link")
    links = EventIndex(event_codes[is_link], ts[is_link])
    columns = {
        f"{name}_{window_suffix(window)}": _count(index, codes, as_of, window)
        for name, index in zip(_NODE_COUNTS, (EventIndex(event_codes, ts), links), strict=True)
        for window in spec.windows
    }
    columns["hours_since_node_link_event"] = _hours_since(links, codes, as_of, spec.lookback)
    return columns


def _of_bursts(
    asked: pl.DataFrame, app: pl.DataFrame, name: str, key: str, spec: EventSpec
) -> dict[str, Floats]:
    """Bursts of application Xids of a GPU or node; later events do not change earlier bursts."""
    codes, event_codes = group_codes(asked, app, key=(key,))
    as_of, ts = _micros(asked["as_of"]), _micros(app["ts"])
    # Of several at one moment, as of a job on all GPUs of a node, one is enough.
    event_codes, ts = np.unique(np.stack((event_codes, ts)), axis=1)
    since = ts - EventIndex(event_codes, ts).last_time(event_codes, ts)
    first = ~(since < _BURST // _US)
    index = EventIndex(event_codes[first], ts[first])
    return {
        f"{name}_{window_suffix(window)}": _count(index, codes, as_of, window)
        for window in spec.burst_windows
    }


def _is_echo(role: pl.Series, gpu: Ints, ts: Ints, *, within: timedelta) -> Flags:
    """Whether each event follows a primary one of its GPU, or comes with it, as a consequence."""
    is_primary = _where(role == "primary")
    primaries = EventIndex(gpu[is_primary], ts[is_primary])
    since = ts - primaries.last_time(gpu, ts + 1)
    return _where(role == "secondary") & (since <= within // _US)


def _kinds_of_xid(events: pl.DataFrame) -> Iterator[Flags]:
    """For each code there is, which events are Xids of it."""
    is_xid = pl.col("kind") == "xid"
    for code in events.filter(is_xid)["code"].unique():
        yield _where(events.select(is_xid & pl.col("code").eq_missing(code)).to_series())


def _where(is_true: pl.Series) -> Flags:
    """Flags of a condition; unknown is not true."""
    return is_true.fill_null(value=False).to_numpy()


def _count(index: EventIndex, codes: Ints, as_of: Ints, window: timedelta) -> Floats:
    """Events in [as_of - window, as_of)."""
    within = index.count(codes, as_of) - index.count(codes, as_of - window // _US)
    return within.astype(np.float64)


def _hours_since(index: EventIndex, codes: Ints, as_of: Ints, lookback: timedelta) -> Floats:
    """Time since the last event before each moment; NaN without one in the lookback."""
    since = as_of - index.last_time(codes, as_of)
    too_old = since > lookback // _US
    return np.asarray(np.where(too_old, np.nan, since) / _US_PER_HOUR, dtype=np.float64)


def _micros(times: pl.Series) -> Ints:
    return times.dt.epoch("us").to_numpy().astype(np.int64)
