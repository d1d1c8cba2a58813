"""Stays, incidents and grid rows brought to one form: who, where, in which batch, and when.

What is counted over them is in `features.history_features`. A row's place and batch are those
known strictly before the row's own time.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import polars as pl

from features.contracts import UTC_TIME

ENTITY: Final = ("entity_kind", "entity_id")
_ALWAYS: Final = datetime(1, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9000, 1, 1, tzinfo=UTC)


def known_stays(
    inventory: pl.DataFrame, *, entity_kind: Literal["gpu", "node"] = "gpu"
) -> pl.DataFrame:
    """Stays of GPUs, or nodes, with a known beginning, in order of GPU and time.

    Args:
        inventory: core/inventory.
        entity_kind: A node's stays are the times in which any GPU was in it.

    Returns:
        entity_kind, entity_id, node, slot, batch, model, fleet, valid_from, valid_to; of the stay
        before it `previous_from` and `previous_to`; how many were `earlier`, and `first_seen`.
    """
    entity = "entity_id"
    begun = inventory.filter(pl.col("valid_from").is_not_null())
    if entity_kind == "node":
        slot = pl.lit(None, pl.String).alias("slot")
        begun = joined_stays(begun.with_columns(pl.col("node").alias("gpu_uuid"), slot))
    return (
        begun.select(
            pl.lit(entity_kind).alias("entity_kind"),
            pl.col("gpu_uuid").alias(entity),
            *("node", "slot", "batch", "model", "valid_from", "valid_to"),
            pl.lit("all").alias("fleet"),
        )
        .sort(entity, "valid_from", "node", "slot", "valid_to")
        .with_columns(
            pl.col("valid_from").min().over(entity).alias("first_seen"),
            pl.int_range(pl.len()).over(entity).alias("earlier"),
            pl.col("valid_from").shift(1).over(entity).alias("previous_from"),
            pl.col("valid_to").shift(1).over(entity).alias("previous_to"),
        )
    )


def joined_stays(stays: pl.DataFrame) -> pl.DataFrame:
    """Stays of one GPU in one node and slot that touch or overlap, as one.

    Args:
        stays: core/inventory, with every beginning known.

    Returns:
        core/inventory, sorted by GPU and time; what else is known of a stay is that of its first.
    """
    place = ["gpu_uuid", "node", "slot"]
    until = pl.col("valid_to").fill_null(pl.lit(_NEVER, UTC_TIME))
    seen = pl.col("until").cum_max().shift(1).over(place)
    run = (pl.col("valid_from") > seen).fill_null(value=True).cum_sum().over(place)
    end = pl.col("until").max()
    return (
        stays.sort("gpu_uuid", "valid_from", maintain_order=True)
        .with_columns(until.alias("until"))
        .with_columns(run.alias("run"))
        .group_by(*place, "run", maintain_order=True)
        .agg(
            pl.exclude("valid_to", "until").first(),
            pl.when(end < pl.lit(_NEVER, UTC_TIME)).then(end).alias("valid_to"),
        )
        .select(stays.columns)
    )


def current_stay(rows: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """For each row the entity's last stay begun before `as_of`; nulls where there is none."""
    names = ("valid_from", "first_seen", "earlier", "previous_from", "previous_to")
    return join_last(
        rows.select(*ENTITY, "as_of"),
        stays.select(*ENTITY, *names),
        on=("as_of", "valid_from"),
        by=ENTITY,
    )


def with_batch(rows: pl.DataFrame, stays: pl.DataFrame, *, at: str) -> pl.DataFrame:
    """Adds batch, model, fleet, and fills node and slot, from the stay begun before a row's time.

    Args:
        rows: entity_kind, entity_id, node, the time, and perhaps slot.
        stays: See `known_stays`.
        at: Name of the rows' time.

    Returns:
        The rows in their order; a slot is filled only where the stay is in the row's own node.
    """
    known = stays.select(
        *ENTITY,
        "valid_from",
        *(pl.col(name).alias(f"stay_{name}") for name in ("node", "slot", "batch", "model")),
    )
    found = join_last(rows, known, on=(at, "valid_from"), by=ENTITY)
    node = pl.coalesce("node", "stay_node")
    slot = pl.col("slot") if "slot" in rows.columns else pl.lit(None, pl.String)
    stay_slot = pl.when(pl.col("stay_node") == node).then("stay_slot")
    return found.select(
        *(name for name in rows.columns if name not in ("node", "slot")),
        node.alias("node"),
        pl.coalesce(slot, stay_slot).alias("slot"),
        *(pl.col(f"stay_{name}").alias(name) for name in ("batch", "model")),
        pl.lit("all").alias("fleet"),
    )


def past_incidents(
    incidents: pl.DataFrame,
    stays: pl.DataFrame,
    *,
    repeat_gap: timedelta,
    known_after: timedelta = timedelta(0),
) -> pl.DataFrame:
    """The incidents that count, in order of time, each with the node and batch known by then.

    Args:
        incidents: core/incidents.
        stays: See `known_stays`.
        repeat_gap: An incident closer than this to the entity's one before is left out.
        known_after: How long after its start an incident is known.

    Returns:
        entity_kind, entity_id, node, slot, batch, model, fleet, start: when it was known.
    """
    gap = pl.col("start") - pl.col("start").shift(1).over(ENTITY)
    is_node = pl.col("entity_kind") == "node"
    counted = (
        incidents.select(
            *ENTITY, pl.when(is_node).then("entity_id").otherwise("node").alias("node"), "start"
        )
        .sort("start", *ENTITY)
        .filter((gap >= repeat_gap).fill_null(value=True))
        .with_columns(pl.col("start") + known_after)
    )
    return with_batch(counted, stays, at="start")


def place_column(level: str) -> str:
    """Name of a level's column, which no other column has whatever sites call their levels."""
    return f"place at {level}"


def with_places(
    rows: pl.DataFrame, topology: pl.DataFrame, *, levels: Iterable[str], at: str
) -> pl.DataFrame:
    """Adds one column per level with the place of each row's node at that level.

    Args:
        rows: Rows with `node` and a time.
        topology: core/topology.
        levels: Levels to add.
        at: Name of the rows' time.

    Returns:
        The rows in their order; null where the place is not known.
    """
    for level in levels:
        known = topology.filter(pl.col("level") == level).select(
            "node",
            "place",
            pl.col("valid_from").fill_null(pl.lit(_ALWAYS, UTC_TIME)).alias("place_from"),
            pl.col("valid_to").alias("place_to"),
        )
        has_left = (pl.col("place_to") < pl.col(at)).fill_null(value=False)
        rows = (
            join_last(rows, known, on=(at, "place_from"), by=("node",))
            .with_columns(pl.when(~has_left).then("place").alias(place_column(level)))
            .drop("place", "place_from", "place_to")
        )
    return rows


def join_last(
    rows: pl.DataFrame, other: pl.DataFrame, *, on: tuple[str, str], by: tuple[str, ...]
) -> pl.DataFrame:
    """Joins to each row the last row of `other` strictly before its time.

    Args:
        rows: Left rows; their order is kept.
        other: Right rows, in any order.
        on: Name of the time in `rows` and in `other`.
        by: Columns that must be equal.

    Returns:
        The rows with the columns of `other` but `by`.
    """
    position = "join_position"
    joined = (
        rows.with_row_index(position)
        .sort(on[0])
        .join_asof(
            other.sort(on[1], maintain_order=True),
            left_on=on[0],
            right_on=on[1],
            by=list(by),
            allow_exact_matches=False,
            check_sortedness=False,
            coalesce=False,
        )
        .sort(position)
    )
    return joined.select(*rows.columns, *(n for n in other.columns if n not in by))
