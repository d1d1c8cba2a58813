"""A GPU against the other GPUs of its node, or of its rack, at the same moment.

What is compared (window means of gauges) is computed in `features.engine`. The
comparison takes out what neighbours share: a workload that ramps up, warm air, the weather.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from features.compiled import jit
from features.engine.plan import Wanted
from features.event_index import Floats, Ints
from features.history_rows import place_column
from features.registry import Feature, window_suffix
from features.telemetry_metrics import METRIC_BY_COLUMN

_FLOOR: Final = {
    "gpu_temp_c": 1.0,
    "memory_temp_c": 1.0,
    "power_w": 10.0,
    "sm_clock_mhz": 15.0,
    "memory_clock_mhz": 15.0,
    "gpu_util_pct": 2.0,
}
"""Smallest spread among neighbours that counts, in the metric's unit: below it is sensor noise."""

_LEAST: Final = 1e-6  # for metrics without a floor: keeps equal neighbours from dividing by zero
_MAD_TO_SIGMA: Final = 1.4826  # of a normal distribution
_FEWEST_PEERS: Final = 2
_FEW: Final = 32  # up to so many values an insertion sort is faster than a general one


def peer_features(
    gauges: Sequence[str], *, window: timedelta, by: str = "node"
) -> tuple[Feature, ...]:
    """The features that `with_peer_scores` adds, in order."""
    suffix = window_suffix(window)
    source, unless = "inventory.node", ""
    if by != "node":
        source, unless = "topology.place", f"; null where the {by} is not known"
    return tuple(
        Feature(
            _name(gauge, window, by),
            "peer",
            "sigma",
            window,
            f"{METRIC_BY_COLUMN[gauge].meaning}, mean over {suffix}: distance from the {by}'s "
            "other GPUs",
            (f"gpu_telemetry.{gauge}", source),
            f"null with fewer than {_FEWEST_PEERS} others that have a sample in the window{unless}",
        )
        for gauge in gauges
    )


def peer_statistics(gauges: Sequence[str], *, window: timedelta) -> list[Wanted]:
    """The window statistics that `with_peer_scores` compares."""
    return [Wanted(name=_mean(gauge), column=gauge, window=window) for gauge in gauges]


def with_peer_scores(
    table: pl.DataFrame, gauges: Sequence[str], *, window: timedelta, by: str = "node"
) -> pl.DataFrame:
    """Adds how far each GPU is from the median of its group's other GPUs, in robust sigmas.

    A sigma is 1.4826 times the median absolute deviation of the others, not less than the
    gauge's floor.

    Args:
        table: `entity_id`, `as_of`, the column of groups and those of `peer_statistics`; each
            pair of entity and moment once.
        gauges: Gauges to compare.
        window: Window of the means.
        by: What names the group: the column `node`, or a level of the topology such as `rack`,
            whose places are in the column that `features.history_rows.with_places` adds.

    Returns:
        The same rows in order with one Float64 column per gauge; null with fewer than two others
        that have a value, and where the group is not known.
    """
    if not gauges:
        return table
    group = peer_group(by)
    groups = (
        table.select("as_of", group)
        .with_row_index("row")
        .drop_nulls()
        .group_by("as_of", group)
        .agg("row")
    )
    ends = np.cumsum(groups["row"].list.len().to_numpy(), dtype=np.int64)
    rows = groups["row"].explode(empty_as_null=True, keep_nulls=True).to_numpy()
    scores = {}
    for gauge in gauges:
        score = np.full(table.height, np.nan)
        values = table[_mean(gauge)].to_numpy()[rows]
        score[rows] = peer_scores(values, ends, floor=peer_floor(gauge))
        scores[_name(gauge, window, by)] = score
    return table.with_columns(
        pl.Series(name, score, nan_to_null=True) for name, score in scores.items()
    )


def peer_group(by: str) -> str:
    """The column that names the groups of `with_peer_scores`."""
    return by if by == "node" else place_column(by)


def peer_floor(gauge: str) -> float:
    """Smallest spread of a gauge that counts, in its unit."""
    return _FLOOR.get(gauge, _LEAST)


@jit
def peer_scores(values: Floats, ends: Ints, floor: float) -> Floats:
    """Distance of each value from the median of its group's others, in robust sigmas.

    A group is sorted once. The median of the others has three values at most as the one left out
    goes through the group; for each of them the distances of all are put in order by a merge from
    the middle outwards, and the median distance of the others is again one look-up.

    Args:
        values: Values with those of a group adjacent, shape (n,); NaN: unknown.
        ends: Where each group ends, shape (groups,).
        floor: Smallest sigma.

    Returns:
        Shape (n,); NaN where the value is unknown or fewer than two others are known.
    """
    scores = np.full(values.size, np.nan)
    start = 0
    for end in ends:
        known = start + np.flatnonzero(~np.isnan(values[start:end]))
        start = end
        size = known.size
        if size <= _FEWEST_PEERS:
            continue
        order = known[_sorting(values[known])]
        ordered = values[order]
        distances = np.empty(size)
        places = np.empty(size, dtype=np.int64)
        middle = np.nan
        for out in range(size):
            others = _median_without(ordered, out)
            if others != middle:
                middle = others
                _merge_distances(ordered, middle, distances, places)
            spread = _median_without(distances, places[out]) * _MAD_TO_SIGMA
            scores[order[out]] = (ordered[out] - middle) / max(spread, floor)
    return scores


@jit
def _sorting(values: Floats) -> Ints:
    """The order that sorts values."""
    if values.size > _FEW:
        return np.argsort(values)
    order = np.arange(values.size)
    for i in range(1, values.size):
        place = i
        while place > 0 and values[order[place - 1]] > values[i]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
    return order


@jit
def _median_without(ordered: Floats, out: int) -> float:
    """Median of sorted values without the one at a position."""
    low = (ordered.size - 2) // 2
    high = (ordered.size - 1) // 2
    below = float(ordered[low + (low >= out)])
    if low == high:
        return below
    return (below + float(ordered[high + (high >= out)])) / 2.0


@jit
def _merge_distances(ordered: Floats, middle: float, distances: Floats, places: Ints) -> None:
    """Fills the sorted distances of sorted values from a point, and where each value's is."""
    right = np.searchsorted(ordered, middle)
    left = right - 1
    for place in range(ordered.size):
        is_left = right == ordered.size or (
            left >= 0 and middle - ordered[left] <= ordered[right] - middle
        )
        taken = left if is_left else right
        distances[place] = abs(ordered[taken] - middle)
        places[taken] = place
        if is_left:
            left -= 1
        else:
            right += 1


def _name(gauge: str, window: timedelta, by: str) -> str:
    peers = "peer" if by == "node" else f"{by}_peer"
    return f"{gauge}_{peers}_z_{window_suffix(window)}"


def _mean(gauge: str) -> str:
    return f"{gauge}:peer"
