"""The score history of an entity as a row per tick, from the database or, without one, the store.

The database keeps the ticks at which a score changed (`pipelines.serving.score_history`); what is
drawn of it is in `pipelines.board.entity_chart`.
"""

from collections.abc import Hashable
from datetime import datetime
from typing import Final

import polars as pl

from features.contracts import UTC_TIME
from features.tables import GPU_SCORES, NODE_SCORES
from pipelines.board.desk import Desk
from pipelines.serving.score_reader import MOST, EntityKind, latest_tick, score_history, ticks
from pipelines.storage.store import Span, scan_files

_EMPTY: Final = pl.DataFrame(schema={"as_of": UTC_TIME, "score": pl.Float64})


def score_line(
    desk: Desk, *, kind: EntityKind, entity_id: str, horizon_h: int, span: Span
) -> pl.DataFrame:
    """`as_of`, `score` by rising time, a row per tick; null where it was unknown.

    Args:
        desk: What pages are made from.
        kind: Node or GPU.
        entity_id: The entity.
        horizon_h: Horizon, hours.
        span: The time.

    Raises:
        ScoreDatabaseError: The database cannot be read.
        DataError: The store cannot be read.
    """
    engine = desk.sources.engine
    # Not by its ends: at the next look they have moved, and what came late is still wanted.
    key = ("scores", kind, entity_id, horizon_h, span.end - span.start)
    if latest_tick(engine) is None:
        return _stored(desk, key, kind=kind, entity_id=entity_id, horizon_h=horizon_h, span=span)
    known = sorted(one.as_of for one in ticks(engine, limit=MOST))
    changes = score_history(engine, kind=kind, entity_id=entity_id, horizon_h=horizon_h, limit=MOST)
    line = at_every_tick(changes, [at for at in known if at >= span.start])
    if known[0] <= span.start:
        return line
    # The database is younger than what is shown: the store has what came before it.
    before = Span(span.start, min(span.end, known[0]))
    stored = _stored(desk, key, kind=kind, entity_id=entity_id, horizon_h=horizon_h, span=before)
    return pl.concat([stored.filter(pl.col("as_of") < known[0]), line])


def at_every_tick(changes: pl.DataFrame, moments: list[datetime]) -> pl.DataFrame:
    """Changes as a row per tick: between two of them a score stayed as it was.

    Args:
        changes: `as_of`, `score`, `status`; a row for each change.
        moments: The ticks, rising. Before the first change nothing is known.
    """
    frame = pl.DataFrame({"as_of": moments}, schema={"as_of": UTC_TIME})
    known = changes.select("as_of", "score").sort("as_of")
    return frame.join_asof(known, on="as_of", strategy="backward")


def _stored(
    desk: Desk, key: Hashable, *, kind: EntityKind, entity_id: str, horizon_h: int, span: Span
) -> pl.DataFrame:
    contract = NODE_SCORES if kind == "node" else GPU_SCORES
    is_ours = (pl.col("entity_id") == entity_id) & (pl.col("horizon_h") == horizon_h)

    def read() -> pl.DataFrame:
        files = desk.store.files(contract, span=span)
        return scan_files(files).filter(is_ours).collect() if files else contract.empty()

    rows = desk.reads.read(key, read).select("as_of", "score")
    return rows.sort("as_of").unique("as_of", keep="last", maintain_order=True).cast(_EMPTY.schema)
