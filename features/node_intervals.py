"""Intervals of node states from what was recorded and what was seen; times nobody saw are unknown.

What a scheduler's words mean is in `features.scheduler_states`; the table itself is built in
`features.core_build`.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import polars as pl

MOST_MISSED: Final = 3
"""Looks at the nodes that may fail in a row before the time between is unknown."""

_ALWAYS: Final = datetime(1, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9000, 1, 1, tzinfo=UTC)
_RANK: Final = {"unknown": 0, "up": 1, "drain": 2, "down": 3}
_SAID: Final = ["node", "state", "reason", "actor"]
_BOUNDS: Final = ["valid_from", "valid_to"]


def node_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Intervals of each node, none overlapping another.

    Rows of two kinds go in. A *record* has bounds, or an open end that lasts until the node's
    next row. A *sighting* has the same moment as start and end: it says what was seen then. A
    state seen lasts until the next sighting of the node, if that comes within `MOST_MISSED`
    times the usual time between sightings of the source; else for one usual time, and what
    follows is unknown. Where rows contradict each other the worst known state holds, so that the
    order in which they are read does not matter.

    Args:
        rows: raw/node_states with `state` one of up, drain, down, unknown.

    Returns:
        node, state, reason, actor, valid_from, valid_to, sorted by (node, valid_from).
    """
    is_sighting = (pl.col("valid_from") == pl.col("valid_to")).fill_null(value=False)
    seen = rows.filter(is_sighting)
    records = _closed(rows.filter(~is_sighting), seen)
    pieces = pl.concat([records, _ended_as_recorded(_seen_intervals(seen), records)]).with_columns(
        pl.col("valid_from").fill_null(_ALWAYS), pl.col("valid_to").fill_null(_NEVER)
    )
    joined = _joined(pieces.filter(pl.col("valid_from") < pl.col("valid_to")))
    before = pl.col("valid_to").cum_max().shift(1).over("node")
    ordered = joined.sort("node", "valid_from", "valid_to").with_columns(before.alias("before"))
    torn = ordered.filter(pl.col("before") > pl.col("valid_from"))["node"].unique()
    is_torn = pl.col("node").is_in(torn.implode())
    swept = [
        piece
        for _, group in ordered.filter(is_torn).group_by("node", maintain_order=True)
        for piece in _swept(group.select(_SAID + _BOUNDS).rows(named=True))
    ]
    schema = {name: ordered.schema[name] for name in _SAID + _BOUNDS}
    whole = ordered.filter(~is_torn).select(list(schema))
    both = pl.concat([whole, pl.DataFrame(swept, schema=schema)])
    return both.sort("node", "valid_from", "state").with_columns(
        pl.when(pl.col("valid_from") > _ALWAYS).then("valid_from"),
        pl.when(pl.col("valid_to") < _NEVER).then("valid_to"),
    )


def usual_interval(seen: pl.DataFrame) -> timedelta | None:
    """The usual time between two looks at the nodes.

    Args:
        seen: Sightings: source, valid_from.

    Returns:
        The median of the source that looks most rarely; None: none looked twice.
    """
    looks = seen.select("source", "valid_from").unique().sort("source", "valid_from")
    pauses = looks.select("source", pl.col("valid_from").diff().over("source").alias("pause"))
    usual = pauses.drop_nulls().group_by("source").agg(pl.col("pause").median())["pause"].max()
    return usual if isinstance(usual, timedelta) else None


def _closed(records: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """Records, each once, open ones ended by the node's next record or sighting."""
    # Who looks at nodes knows since when they are out, but of the end only that it was later.
    is_told = ~pl.col("source").is_in(seen["source"].unique().implode())
    has_end = pl.col("valid_to").is_not_null()
    latest = records.sort(is_told, has_end, "ingested_at", maintain_order=True).unique(
        ["node", "valid_from", "state"], keep="last", maintain_order=True
    )
    starts = pl.concat([latest.select("node", "valid_from"), seen.select("node", "valid_from")])
    starts = starts.drop_nulls().unique().select("node", "valid_from", next="valid_from")
    ordered = latest.with_columns(pl.col("valid_from").fill_null(_ALWAYS)).sort("valid_from")
    followed = ordered.join_asof(
        starts.sort("valid_from"), on="valid_from", by="node", strategy="forward",
        allow_exact_matches=False, check_sortedness=False,
    )  # fmt: skip
    return followed.with_columns(pl.col("valid_to").fill_null(pl.col("next"))).select(
        _SAID + _BOUNDS
    )


def _seen_intervals(seen: pl.DataFrame) -> pl.DataFrame:
    """How long each state seen is known to have lasted, and the times unknown between."""
    worst = (
        seen.sort(
            pl.col("state").replace_strict(_RANK, return_dtype=pl.Int8), "reason", "actor",
            descending=[True, False, False], nulls_last=True,
        )
        .unique(["node", "valid_from"], keep="first", maintain_order=True)
        .sort("node", "valid_from")
    )  # fmt: skip
    following = worst.select(
        *_SAID, "valid_from", pl.col("valid_from").shift(-1).over("node").alias("valid_to")
    )
    usual = usual_interval(seen)
    if usual is None:
        return following
    last_look = pl.col("valid_from").max()
    pause = pl.coalesce("valid_to", last_look) - pl.col("valid_from")
    is_watched = pause <= MOST_MISSED * usual
    vouched_to = pl.col("valid_from") + pl.lit(usual)
    known = following.with_columns(pl.when(is_watched).then("valid_to").otherwise(vouched_to))
    unseen = following.filter(~is_watched).select(
        "node",
        pl.lit("unknown").alias("state"),
        pl.lit("not observed").alias("reason"),
        pl.lit(None, pl.String).alias("actor"),
        vouched_to,
        "valid_to",
    )
    return pl.concat([known.select(_SAID + _BOUNDS), unseen])


def _ended_as_recorded(pieces: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """States seen while a record held end with it: records have exact ends."""
    ends = records.select("node", pl.col("valid_from").fill_null(_ALWAYS), told="valid_to")
    during = pieces.sort("valid_from").join_asof(
        ends.sort("valid_from"), on="valid_from", by="node", strategy="backward",
        check_sortedness=False,
    )  # fmt: skip
    is_longer = pl.col("valid_to").is_null() | (pl.col("told") < pl.col("valid_to"))
    is_ended = (pl.col("told") > pl.col("valid_from")) & is_longer
    ended = pl.when(is_ended).then("told").otherwise("valid_to").alias("valid_to")
    return during.with_columns(ended).select(pieces.columns)


def _joined(pieces: pl.DataFrame) -> pl.DataFrame:
    """Pieces that say the same and touch or overlap become one."""
    ordered = pieces.sort(*_SAID, *_BOUNDS)
    reached = pl.col("valid_to").cum_max().shift(1).over(_SAID)
    is_new = (pl.col("valid_from") > reached).fill_null(value=True)
    return (
        ordered.with_columns(is_new.cum_sum().over(_SAID).alias("run"))
        .group_by(*_SAID, "run", maintain_order=True)
        .agg(pl.col("valid_from").min(), pl.col("valid_to").max())
        .drop("run")
    )


def _swept(pieces: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Cuts overlapping pieces of one node so that at each time the worst state holds.

    Of equally bad ones the piece that began last holds: it is the newest statement.
    """
    cuts = sorted({piece[bound] for piece in pieces for bound in _BOUNDS})
    held: dict[str, Any] = {}
    active: list[dict[str, Any]] = []
    waiting = sorted(pieces, key=lambda piece: piece["valid_from"], reverse=True)
    for low, high in pairwise(cuts):
        while waiting and waiting[-1]["valid_from"] <= low:
            active.append(waiting.pop())
        active = [piece for piece in active if piece["valid_to"] > low]
        best = max(active, key=_weight, default={})
        is_same = bool(held) and bool(best) and all(held[name] == best[name] for name in _SAID)
        if is_same and held["valid_to"] == low:
            held["valid_to"] = high
            continue
        if held:
            yield held
        held = best | {"valid_from": low, "valid_to": high} if best else {}
    if held:
        yield held


def _weight(piece: dict[str, Any]) -> tuple[int, datetime, str, str]:
    rank = _RANK[piece["state"]]
    return rank, piece["valid_from"], piece["reason"] or "", piece["actor"] or ""
