"""Rows whose outcome our own action hid, as uncertain positives with a weight.

Which rows are censored decides `features.labels`; how weights are learned from,
`models.training.boosters`.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from features.errors import DataError

WEIGHT = "weight"
"""Column of a row's weight in training."""


_NEVER: Final = datetime(9000, 1, 1, tzinfo=UTC)


def with_uncertain(
    rows: pl.DataFrame, maintenance: pl.DataFrame, *, horizon: timedelta, uncertain_weight: float
) -> pl.DataFrame:
    """Adds what our own drains hid, each row as a positive and a negative in part.

    A node that we drained and that then looks healthy was perhaps saved, perhaps never sick: its
    rows before the drain are no negatives, and left out they take the clearest signs along. Each
    counts as a positive with the weight, and as a negative with the rest, which is the expected
    loss when that share of drains was right. The precision of alerts on the hold-out
    (`remediation.cluster.hold_out`) is such a share, for there nobody acts. UPTAKE reports that its
    accuracy falls by 9 % without such weights.

    Args:
        rows: Training rows with `node`, `as_of`, `label` and `censored_by`.
        maintenance: core/maintenance with our own actions.
        horizon: L + H: an action counts for the rows up to so long before it.
        uncertain_weight: Share of own actions that are taken to have been right, 0 to 1.

    Returns:
        The rows with `weight`, 1 but for those added. Rows during an action stay unknown: a
        drained node shows nothing of what it would have shown.

    Raises:
        DataError: The weight is out of range.
    """
    if not 0.0 <= uncertain_weight <= 1.0:
        raise DataError(
            f"uncertain positives: uncertain_weight must lie in 0 to 1, got {uncertain_weight}. "
            "Give the share of drains that were right, as far as it is known."
        )
    hidden = _hidden_by_an_action_to_come(rows, maintenance, horizon=horizon)
    parts = [rows.with_columns(pl.lit(1.0).alias(WEIGHT))]
    for label, weight in ((1, uncertain_weight), (0, 1.0 - uncertain_weight)):
        if weight > 0.0:
            parts.append(
                hidden.with_columns(
                    pl.lit(label, rows.schema["label"]).alias("label"),
                    pl.lit(weight).alias(WEIGHT),
                )
            )
    return pl.concat(parts)


def _hidden_by_an_action_to_come(
    rows: pl.DataFrame, maintenance: pl.DataFrame, *, horizon: timedelta
) -> pl.DataFrame:
    """Rows before one of our own actions on their node, and not during another."""
    own = maintenance.filter(pl.col("kind") == "own_action").sort("start")
    hidden = rows.filter(pl.col("label").is_null(), pl.col("censored_by") == "own_action")
    key = ["node", "as_of"]
    moments = hidden.select(key).unique().sort("as_of")
    upcoming = moments.join_asof(
        own.select("node", pl.col("start").alias("next_start")),
        left_on="as_of",
        right_on="next_start",
        by="node",
        strategy="forward",
        allow_exact_matches=False,
        coalesce=False,
        check_sortedness=False,
    )
    # Of actions that overlap, the one that ends last: an open one never does.
    begun = own.select(
        "node", "start", pl.col("end").fill_null(_NEVER).cum_max().over("node").alias("held_until")
    ).unique(["node", "start"], keep="last", maintain_order=True)
    before = upcoming.join_asof(
        begun, left_on="as_of", right_on="start", by="node", check_sortedness=False
    )
    is_held = (pl.col("held_until") > pl.col("as_of")).fill_null(value=False)
    is_near = pl.col("next_start") < pl.col("as_of") + horizon
    told = before.filter(is_near & ~is_held).select(key)
    return hidden.join(told, on=key, how="semi", maintain_order="left")
