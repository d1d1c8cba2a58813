"""A GPU against the other GPUs of its node at the same moment.

What is compared (window means of gauges) is computed in `features.telemetry_windows`. The
comparison takes out what neighbours share: a workload that ramps up, warm air, the weather.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import polars as pl

from features.registry import Feature, window_suffix
from features.telemetry_metrics import METRIC_BY_COLUMN
from features.telemetry_windows import WindowStatistic

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


def peer_features(gauges: Sequence[str], *, window: timedelta) -> tuple[Feature, ...]:
    """The features that `with_peer_scores` adds, in order."""
    suffix = window_suffix(window)
    return tuple(
        Feature(
            _name(gauge, window),
            "peer",
            "sigma",
            window,
            f"{METRIC_BY_COLUMN[gauge].meaning}, mean over {suffix}: distance from the node's "
            "other GPUs",
            (f"gpu_telemetry.{gauge}", "inventory.node"),
        )
        for gauge in gauges
    )


def peer_statistics(gauges: Sequence[str], *, window: timedelta) -> list[WindowStatistic]:
    """The window statistics that `with_peer_scores` compares."""
    return [WindowStatistic(_mean(gauge), gauge, window, "mean") for gauge in gauges]


def with_peer_scores(
    table: pl.DataFrame, gauges: Sequence[str], *, window: timedelta
) -> pl.DataFrame:
    """Adds how far each GPU is from the median of the node's other GPUs, in robust sigmas.

    A sigma is 1.4826 times the median absolute deviation of the others, not less than the
    gauge's floor.

    Args:
        table: `entity_id`, `node`, `as_of` and the columns of `peer_statistics`.
        gauges: Gauges to compare.
        window: Window of the means.

    Returns:
        The same rows in order with one column per gauge; null with fewer than two others that
        have a value.
    """
    if not gauges:
        return table
    mine = table.select("entity_id", "node", "as_of", *map(_mean, gauges))
    pairs = mine.join(mine, on=["node", "as_of"], suffix=":other").filter(
        pl.col("entity_id") != pl.col("entity_id:other")
    )
    scores = pairs.group_by("entity_id", "as_of").agg(
        _score(gauge).alias(_name(gauge, window)) for gauge in gauges
    )
    return table.join(scores, on=["entity_id", "as_of"], how="left", maintain_order="left")


def _score(gauge: str) -> pl.Expr:
    other = pl.col(f"{_mean(gauge)}:other")
    spread = (other - other.median()).abs().median() * _MAD_TO_SIGMA
    distance = pl.col(_mean(gauge)).first() - other.median()
    is_enough = other.count() >= _FEWEST_PEERS
    return pl.when(is_enough).then(distance / spread.clip(_FLOOR.get(gauge, _LEAST)))


def _name(gauge: str, window: timedelta) -> str:
    return f"{gauge}_peer_z_{window_suffix(window)}"


def _mean(gauge: str) -> str:
    return f"{gauge}:peer"
