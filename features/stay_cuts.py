"""Declared stays against reported ones: the declared win where the two overlap.

How reported stays are made of sights is in `features.inventory`.
"""

from dataclasses import dataclass
from typing import Final

import polars as pl

from features.contracts import UTC_TIME

_NEVER: Final = 2**62
_ATTRIBUTES: Final = ("slot", "pci_bus_id", "model")


@dataclass(frozen=True)
class Cut:
    """Both kinds of stays, without overlap.

    Attributes:
        declared: Declared stays, what they leave open filled from sights.
        stays: What is left of the reported ones.
    """

    declared: pl.DataFrame
    stays: pl.DataFrame


def cut_by_declared(stays: pl.DataFrame, declared: pl.DataFrame, *, told: pl.DataFrame) -> Cut:
    """Cuts declared times out of reported stays.

    A declared stay of the same GPU, or of another one at the same address, is cut out. A part
    that is left counts only where a sight lies in it: that nobody contradicts it is no evidence
    once the site has said where the GPU was before or after.

    Args:
        stays: core/inventory made of sights.
        declared: core/inventory as the site gives it.
        told: The sights: gpu_uuid, node, slot, pci_bus_id, model, ts.

    Returns:
        Both, without overlap.
    """
    columns = stays.columns
    if declared.is_empty():
        return Cut(declared.select(columns), stays)
    numbered = stays.with_row_index("stay").with_columns(*_micros())
    ours = _completed(declared, told)
    cuts = pl.concat(
        [
            _overlaps(numbered, ours, on=["gpu_uuid"]),
            _overlaps(numbered, ours, on=["node", "pci_bus_id"]),
        ]
    )
    is_whole = ~pl.col("stay").is_in(cuts["stay"].unique().implode())
    parts = _rest(numbered.filter(~is_whole), cuts)
    parts = _with_a_sight(parts, told)
    whole = numbered.filter(is_whole).select(columns)
    return Cut(
        _completed(declared, told).select(columns), pl.concat([whole, parts.select(columns)])
    )


def _micros() -> tuple[pl.Expr, pl.Expr]:
    """Bounds as numbers, open ones far away."""
    return (
        pl.col("valid_from").dt.epoch("us").fill_null(-_NEVER).alias("from_us"),
        pl.col("valid_to").dt.epoch("us").fill_null(_NEVER).alias("to_us"),
    )


def _overlaps(stays: pl.DataFrame, declared: pl.DataFrame, *, on: list[str]) -> pl.DataFrame:
    """stay, cut_from, cut_to of declared times within a stay."""
    others = declared.select(
        *on, pl.col("from_us").alias("cut_from"), pl.col("to_us").alias("cut_to")
    )
    does_overlap = (pl.col("cut_from") < pl.col("to_us")) & (pl.col("from_us") < pl.col("cut_to"))
    return (
        stays.join(others.drop_nulls(on), on=on)
        .filter(does_overlap)
        .select("stay", "cut_from", "cut_to")
    )


def _rest(stays: pl.DataFrame, cuts: pl.DataFrame) -> pl.DataFrame:
    """The parts of stays before, between and after their cuts."""
    in_order = cuts.sort("stay", "cut_from", "cut_to")
    reached = pl.col("cut_to").cum_max().over("stay")
    ends = in_order.group_by("stay").agg(pl.col("cut_to").max().alias("part_from"))
    before = in_order.select(
        "stay",
        reached.shift(1).over("stay").alias("part_from"),
        pl.col("cut_from").alias("part_to"),
    )
    after = ends.with_columns(pl.lit(_NEVER, pl.Int64).alias("part_to"))
    parts = stays.join(pl.concat([before, after]), on="stay").with_columns(
        pl.max_horizontal("from_us", "part_from").alias("from_us"),
        pl.min_horizontal("to_us", "part_to").alias("to_us"),
    )
    moment = [
        pl.when(pl.col(name).abs() < _NEVER)
        .then(pl.col(name))
        .cast(pl.Datetime("us"))
        .dt.replace_time_zone("UTC")
        .cast(UTC_TIME)
        .alias(column)
        for name, column in (("from_us", "valid_from"), ("to_us", "valid_to"))
    ]
    return parts.filter(pl.col("from_us") < pl.col("to_us")).with_columns(moment)


def _with_a_sight(parts: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Parts in which the GPU was seen on that node."""
    numbered = parts.drop("stay").with_row_index("part")
    ts = pl.col("ts").dt.epoch("us")
    seen = (
        numbered.select("part", "gpu_uuid", "node", "from_us", "to_us")
        .join(told.select("gpu_uuid", "node", "ts"), on=["gpu_uuid", "node"])
        .filter((pl.col("from_us") <= ts) & (ts < pl.col("to_us")))
    )
    return numbered.filter(pl.col("part").is_in(seen["part"].unique().implode()))


def _completed(declared: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Declared stays; slot, address and model that they leave out where sights agree on one."""
    numbered = declared.with_row_index("row").with_columns(*_micros())
    ts = pl.col("ts").dt.epoch("us")
    within = (
        numbered.select("row", "gpu_uuid", "node", "from_us", "to_us")
        .join(told, on=["gpu_uuid", "node"])
        .filter((pl.col("from_us") <= ts) & (ts < pl.col("to_us")))
    )
    agreed = within.group_by("row").agg(
        pl.when(pl.col(name).drop_nulls().n_unique() == 1)
        .then(pl.col(name).drop_nulls().first())
        .alias(f"seen_{name}")
        for name in _ATTRIBUTES
    )
    return numbered.join(agreed, on="row", how="left", maintain_order="left").with_columns(
        pl.coalesce(name, f"seen_{name}").alias(name) for name in _ATTRIBUTES
    )
