"""Features from times up and down: outages of a node and its places by kind, time up, weekday.

Incidents are counted in `features.history_features`; what is an outage of which kind says
`features.history_outages`. Nothing at or after `as_of` is looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from features.event_index import US_PER_DAY, EventIndex, ExposureIndex, Floats, group_codes
from features.history_outages import OutageRule, classify_outages
from features.history_rows import with_places
from features.history_scopes import (
    CountSpec,
    EventKind,
    micros,
    scope_features,
    scope_history,
    scope_keys,
    scope_words,
)
from features.registry import Feature, window_suffix

_INPUTS: Final = ("node_states.state", "node_states.valid_from", "node_states.valid_to")
_KINDS: Final = {
    "mass": EventKind(noun="mass_outage", words="Outages of many nodes at once", inputs=_INPUTS),
    "short": EventKind(noun="short_outage", words="Short outages", inputs=_INPUTS),
}


@dataclass(frozen=True, kw_only=True)
class StateSpec:
    """Which outages are counted, and how.

    Attributes:
        rule: What makes an outage solo, mass or short; None: no feature is made.
        windows: Windows of counts and of the share of time down, shortest first.
        scopes: own and fleet, or one of them.
        levels: Levels to count in beside the scopes.
        has_weekday: Whether the day of the week is a feature; for horizons of about a day.
    """

    rule: OutageRule | None = None
    windows: tuple[timedelta, ...] = (timedelta(1), timedelta(7), timedelta(30))
    scopes: tuple[str, ...] = ("own", "fleet")
    levels: tuple[str, ...] = ()
    has_weekday: bool = False

    @property
    def counting(self) -> CountSpec:
        """How the outages of a group are counted: a node is watched always, so without rates."""
        return CountSpec(windows=self.windows, has_rates=False)


def state_features(spec: StateSpec) -> tuple[Feature, ...]:
    """The features that `build_states` gives, in order; none without a rule."""
    if spec.rule is None:
        return ()
    found: list[Feature] = []
    for scope in scope_keys(spec.scopes, spec.levels):
        for kind in _KINDS.values():
            found += scope_features(scope, spec.counting, kind=kind)
        found += [_share_feature(scope, window) for window in spec.windows]
    found.append(
        Feature(
            "own_days_up",
            "history",
            "d",
            None,
            "Time since this node was last down",
            _INPUTS,
            "null where it has not come up in the record",
        )
    )
    if spec.has_weekday:
        words = "Day of the week, 1 = Monday"
        found.append(Feature("weekday", "structural", "1", None, words, (), "always known"))
    return tuple(found)


def build_states(
    grid: pl.DataFrame, *, node_states: pl.DataFrame, topology: pl.DataFrame, spec: StateSpec
) -> pl.DataFrame:
    """Computes the features of times up and down for every row of a grid.

    Args:
        grid: Rows with `entity_id`, `node`, `as_of`.
        node_states: core/node_states; what began before `as_of` counts, ends where they lie
            before it.
        topology: core/topology.
        spec: What is counted.

    Returns:
        `entity_id`, `as_of` and one Float32 column per feature of `state_features`, in the grid's
        order.
    """
    if spec.rule is None:
        return grid.select("entity_id", "as_of")
    outages = classify_outages(node_states, topology, rule=spec.rule)
    rows = _placed(grid.select("entity_id", "node", "as_of"), topology, spec, at="as_of")
    known = outages.with_columns(pl.col("start") + spec.rule.known_after)
    known = _placed(known, topology, spec, at="start")
    spans = outages.rename({"start": "valid_from", "end": "valid_to"})
    spans = _placed(spans, topology, spec, at="valid_from")
    keys = scope_keys(spec.scopes, spec.levels)
    if "own" in keys:
        keys["own"] = ("node",)
    columns: dict[str, Floats] = {}
    for scope, key in keys.items():
        for name, kind in _KINDS.items():
            past = known.filter(pl.col("kind") == name)
            counted = scope_history(
                key, rows=rows, past=past, stays=spans, spec=spec.counting, kind=kind
            )
            columns |= {f"{scope}_{feature}": values for feature, values in counted.items()}
        columns |= _down_days(scope, key, rows=rows, spans=spans, windows=spec.windows)
    columns["own_days_up"] = _days_up(rows, spans)
    columns["weekday"] = rows["as_of"].dt.weekday().cast(pl.Float64).to_numpy()
    return rows.select("entity_id", "as_of").with_columns(
        pl.Series(feature.name, columns[feature.name], nan_to_null=True).cast(pl.Float32)
        for feature in state_features(spec)
    )


def _placed(
    rows: pl.DataFrame, topology: pl.DataFrame, spec: StateSpec, *, at: str
) -> pl.DataFrame:
    placed = with_places(rows, topology, levels=spec.levels, at=at)
    return placed.with_columns(pl.lit("all").alias("fleet"))


def _share_feature(scope: str, window: timedelta) -> Feature:
    span, who = window_suffix(window), scope_words(scope).replace("GPU", "node")
    return Feature(
        f"{scope}_down_days_{span}",
        "history",
        "d",
        window,
        f"Time down of {who} in the last {span}, all nodes added",
        _INPUTS,
        "0 without outages",
    )


def _down_days(
    scope: str,
    key: Sequence[str],
    *,
    rows: pl.DataFrame,
    spans: pl.DataFrame,
    windows: Sequence[timedelta],
) -> dict[str, Floats]:
    """Node-days down of the groups of a scope per window."""
    codes, span_codes = group_codes(rows, spans, key=key)
    down = ExposureIndex(span_codes, spans)
    before = micros(rows["as_of"])
    total = down.days(codes, before)
    found = {}
    for window in windows:
        since = before - window // timedelta(microseconds=1)
        found[f"{scope}_down_days_{window_suffix(window)}"] = total - down.days(codes, since)
    return found


def _days_up(rows: pl.DataFrame, spans: pl.DataFrame) -> Floats:
    """Days since each row's node last came up."""
    ended = spans.filter(pl.col("valid_to").is_not_null())
    codes, span_codes = group_codes(rows, ended, key=("node",))
    before = micros(rows["as_of"])
    last = EventIndex(span_codes, micros(ended["valid_to"])).last_time(codes, before)
    return np.asarray((before - last) / US_PER_DAY)
