"""A GPU against the other GPUs of its node, in units: heat beyond its power, swings of power.

How window statistics are computed is in `features.engine`; distances in robust sigmas are in
`features.peer_features`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from features.compiled import jit
from features.engine.plan import Statistic, Wanted
from features.event_index import Floats, Ints
from features.registry import Feature, window_suffix

HEAT_C_PER_W: Final = 0.05
"""How much a watt warms a GPU: an air-cooled module of 700 W runs some 35 degC above its inlet.

Of a node's GPUs only differences count, and they mostly do the same work: an error of a fifth in
this number moves the result by 1 degC where they differ by 100 W.
"""

_FEWEST_PEERS: Final = 2


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of window statistics, less the median of the node's other GPUs.

    Attributes:
        feature: What it is called and means.
        parts: Statistics with their weights.
    """

    feature: Feature
    parts: tuple[tuple[Wanted, float], ...]


def node_contrasts(windows: Sequence[timedelta], known: frozenset[str]) -> tuple[Contrast, ...]:
    """The contrasts that a site's metrics allow, in order.

    Args:
        windows: Windows of the statistics, shortest first.
        known: Metrics the site has.
    """
    found = []
    if windows and {"gpu_temp_c", "power_w"} <= known:
        found += [_heat(window) for window in windows]
        found += [_heat_rise(windows[i], windows[-1]) for i in range(1, len(windows) - 1)]
    if "power_w" in known:
        found += [_swing(window) for window in windows[:-1]]
    return tuple(found)


def with_contrasts(table: pl.DataFrame, contrasts: Sequence[Contrast]) -> pl.DataFrame:
    """Adds a column per contrast.

    Args:
        table: `node`, `as_of` and the statistics by name; each pair of entity and moment once.
        contrasts: Of `node_contrasts`.

    Returns:
        The same rows in order with one Float64 column each; null where a statistic is unknown,
        the node is not known, or fewer than two others have a value.
    """
    if not contrasts:
        return table
    groups = (
        table.select("as_of", "node")
        .with_row_index("row")
        .drop_nulls()
        .group_by("as_of", "node")
        .agg("row")
    )
    ends = np.cumsum(groups["row"].list.len().to_numpy(), dtype=np.int64)
    rows = groups["row"].explode(empty_as_null=True, keep_nulls=True).to_numpy()
    added = []
    for one in contrasts:
        total = pl.sum_horizontal(
            *(weight * pl.col(part.name).cast(pl.Float64) for part, weight in one.parts),
            ignore_nulls=False,
        )
        values = table.select(total.alias("total"))["total"].to_numpy()
        difference = np.full(table.height, np.nan)
        difference[rows] = peer_differences(values[rows], ends)
        added.append(pl.Series(one.feature.name, difference, nan_to_null=True))
    return table.with_columns(added)


@jit
def peer_differences(values: Floats, ends: Ints) -> Floats:
    """Each value less the median of its group's others.

    Args:
        values: Values with those of a group adjacent, shape (n,); NaN: unknown.
        ends: Where each group ends, shape (groups,).

    Returns:
        Shape (n,); NaN where the value is unknown or fewer than two others are known.
    """
    found = np.full(values.size, np.nan)
    start = 0
    for end in ends:
        known = start + np.flatnonzero(~np.isnan(values[start:end]))
        start = end
        if known.size <= _FEWEST_PEERS:
            continue
        for at in range(known.size):
            others = np.delete(values[known], at)
            found[known[at]] = values[known[at]] - np.median(others)
    return found


def _contrast(
    name: str,
    unit: str,
    meaning: str,
    *,
    window: timedelta,
    parts: tuple[tuple[Wanted, float], ...],
) -> Contrast:
    inputs = dict.fromkeys(f"gpu_telemetry.{part.column}" for part, _ in parts)
    feature = Feature(
        name,
        "peer",
        unit,
        window,
        f"{meaning}, above the median of the node's other GPUs",
        (*inputs, "inventory.node"),
        f"null with fewer than {_FEWEST_PEERS} others that have a sample in the window",
    )
    return Contrast(feature, parts)


def _heat(window: timedelta) -> Contrast:
    suffix = window_suffix(window)
    return _contrast(
        f"excess_heat_c_peer_{suffix}",
        "degC",
        f"Temperature beyond {HEAT_C_PER_W:g} degC a watt, mean over {suffix}",
        window=window,
        parts=_residual(window, 1.0),
    )


def _heat_rise(window: timedelta, longer: timedelta) -> Contrast:
    short, long = window_suffix(window), window_suffix(longer)
    return _contrast(
        f"excess_heat_rise_c_peer_{short}",
        "degC",
        f"Rise of the temperature beyond {HEAT_C_PER_W:g} degC a watt, {short} against {long}",
        window=longer,
        parts=(*_residual(window, 1.0), *_residual(longer, -1.0)),
    )


def _residual(window: timedelta, sign: float) -> tuple[tuple[Wanted, float], ...]:
    return (
        (_statistic("gpu_temp_c", "mean", window), sign),
        (_statistic("power_w", "mean", window), -sign * HEAT_C_PER_W),
    )


def _swing(window: timedelta) -> Contrast:
    suffix = window_suffix(window)
    return _contrast(
        f"power_swing_w_peer_{suffix}",
        "W",
        f"Swing (standard deviation) of power over {suffix}",
        window=window,
        parts=((_statistic("power_w", "std", window), 1.0),),
    )


def _statistic(column: str, statistic: Statistic, window: timedelta) -> Wanted:
    name = f"{column}_{statistic}_{window_suffix(window)}"
    return Wanted(name=name, column=column, window=window, statistic=statistic)
