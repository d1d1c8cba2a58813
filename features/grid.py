"""The grid of entities and moments for which labels and features are built.

No label and no feature is computed here.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

import polars as pl

from features.contracts import UTC_TIME
from features.errors import DataError

GRID_SCHEMA: Final = pl.Schema(
    {
        "entity_kind": pl.String(),
        "entity_id": pl.String(),
        "node": pl.String(),
        "slot": pl.String(),
        "as_of": UTC_TIME,
    }
)


def as_of_times(start: datetime, end: datetime, *, every: timedelta) -> tuple[datetime, ...]:
    """The moments start, start + every, ... before `end`.

    Args:
        start: First moment, inclusive.
        end: End, exclusive.
        every: Step, positive.

    Raises:
        DataError: `every` is not positive, or a time has no zone.

    >>> from datetime import UTC
    >>> day = datetime(2026, 1, 5, tzinfo=UTC)
    >>> [t.hour for t in as_of_times(day, day + timedelta(hours=5), every=timedelta(hours=2))]
    [0, 2, 4]
    """
    if every <= timedelta(0):
        raise DataError(f"as_of grid: every must be positive, got {every}. Give a longer step.")
    if start.tzinfo is None or end.tzinfo is None:
        raise DataError(
            f"as_of grid: start and end must carry a time zone, got {start} and {end}. "
            "Use datetimes in UTC."
        )
    n_steps = max(0, -((start - end) // every))
    return tuple(start + i * every for i in range(n_steps))


def watched_grid(
    inventory: pl.DataFrame,
    as_ofs: Iterable[datetime],
    *,
    entity_kind: Literal["gpu", "node"] = "gpu",
    unknown_start: Literal["skip", "watched"] = "skip",
) -> pl.DataFrame:
    """Every entity in a stay at each moment: valid_from <= as_of < valid_to.

    Args:
        inventory: core/inventory.
        as_ofs: Moments of prediction, with a time zone.
        entity_kind: Whether a row is a GPU or a node; a node is there while any GPU stays in it.
        unknown_start: What a null `valid_from` means: `skip` leaves such a stay out, because
            nobody knows whether the GPU was there; `watched` takes it as there from the first.

    Returns:
        Columns entity_kind, entity_id, node, slot, as_of; one row per entity and moment, sorted
        by (as_of, entity_id). `slot` is null for nodes. A GPU that the inventory shows in two
        places at once counts in the one it came to last.
    """
    entity = "gpu_uuid" if entity_kind == "gpu" else "node"
    slot = pl.col("slot") if entity_kind == "gpu" else pl.lit(None, pl.String)
    parts = [pl.DataFrame(schema=GRID_SCHEMA)]
    for as_of in as_ofs:
        moment = pl.lit(as_of, UTC_TIME)
        is_started = pl.col("valid_from") <= moment
        is_started = is_started.fill_null(value=unknown_start == "watched")
        is_there = is_started & (pl.col("valid_to").is_null() | (moment < pl.col("valid_to")))
        parts.append(
            inventory.filter(is_there)
            .sort(entity, "valid_from", "node", "slot", nulls_last=False)
            .unique(entity, keep="last", maintain_order=True)
            .select(
                pl.lit(entity_kind).alias("entity_kind"),
                pl.col(entity).alias("entity_id"),
                pl.col("node"),
                slot.alias("slot"),
                moment.alias("as_of"),
            )
        )
    return pl.concat(parts).unique(["as_of", "entity_id"], keep="first", maintain_order=True)
