"""Outages: unbroken times in which a node was down or drained, and the planned ones among them.

Which outage is an incident decides `features.incidents`.
"""

from datetime import UTC, datetime
from typing import Final

import polars as pl

from features.catalogue import FaultCatalogue
from features.tables import CORE_MAINTENANCE

_ALWAYS: Final = datetime(1, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9000, 1, 1, tzinfo=UTC)


def outage_states(node_states: pl.DataFrame, catalogue: FaultCatalogue) -> pl.DataFrame:
    """The down and drain intervals of each node, each with the outage it is part of.

    Intervals of one node that touch or overlap are one outage: a node goes from drained to down
    to draining and comes back once.

    Args:
        node_states: core/node_states.
        catalogue: Says what the reasons mean.

    Returns:
        The down and drain rows of core/node_states, sorted by (node, valid_from), with `role`,
        `fault_type` and `rank` of the reason, `outage_start` (null: before the record),
        `outage_end` (null: goes on) and `is_planned`: the outage began as planned work.
    """
    out = node_states.filter(pl.col("state").is_in(["down", "drain"]))
    spans = catalogue.classify_reasons(out).with_columns(
        pl.col("valid_from").fill_null(_ALWAYS).alias("from"),
        pl.col("valid_to").fill_null(_NEVER).alias("to"),
    )
    spans = spans.sort("node", "from", "to")
    seen_until = pl.col("to").cum_max().shift(1).over("node")
    is_new = (pl.col("from") > seen_until).fill_null(value=True)
    outage = ["node", "outage"]
    start = pl.col("from").min().over(outage)
    end = pl.col("to").max().over(outage)
    return (
        spans.with_columns(is_new.cum_sum().over("node").alias("outage"))
        .with_columns(
            pl.when(start > _ALWAYS).then(start).alias("outage_start"),
            pl.when(end < _NEVER).then(end).alias("outage_end"),
            (pl.col("role").first().over(outage) == "maintenance")
            .fill_null(value=False)
            .alias("is_planned"),
        )
        .drop("from", "to", "outage", "group")
    )


def build_maintenance(node_states: pl.DataFrame, *, catalogue: FaultCatalogue) -> pl.DataFrame:
    """Planned work and our own actions, as the reasons of node states tell.

    Args:
        node_states: core/node_states.
        catalogue: Says which reasons are planned work or ours.

    Returns:
        core/maintenance, sorted by (node, start). Intervals without a known start are left out.
    """
    states = outage_states(node_states, catalogue)
    planned = states.filter(
        pl.col("role").is_in(["maintenance", "own_action"]) & pl.col("valid_from").is_not_null()
    )
    rows = planned.select(
        "node",
        pl.col("valid_from").alias("start"),
        pl.col("valid_to").alias("end"),
        pl.col("role").alias("kind"),
        "reason",
    )
    by_key = rows.sort("node", "start", "kind", "end", nulls_last=True)
    return CORE_MAINTENANCE.conform(
        by_key.unique(list(CORE_MAINTENANCE.key), keep="last", maintain_order=True)
    )
