"""Reads the score database: frames, in pages that never mix two ticks.

Writing is in `score_database`. A page of a ranking says where the next one begins; a page asked
for after another tick came is refused rather than joined to the old one.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import polars as pl
import sqlalchemy as sa

from features.contracts import UTC_TIME
from features.errors import DataError
from pipelines.serving.score_database import Tick, from_us, to_us
from pipelines.serving.score_schema import (
    ALERTS,
    GPU_HISTORY,
    GPU_LATEST,
    LIVE_QUALITY,
    NODE_HISTORY,
    NODE_LATEST,
    OUTCOMES,
    TICKS,
    UNKNOWN_RANK,
    reading,
)

EntityKind = Literal["node", "gpu"]
_LATEST: Final[dict[str, sa.Table]] = {"node": NODE_LATEST, "gpu": GPU_LATEST}
_HISTORY: Final[dict[str, sa.Table]] = {"node": NODE_HISTORY, "gpu": GPU_HISTORY}
_TYPES: Final[dict[type, Any]] = {
    sa.Text: pl.String(),
    sa.Double: pl.Float64(),
    sa.Integer: pl.Int32(),
    sa.BigInteger: pl.Int64(),
}
_TIMES: Final = ("as_of", "ends_at", "week", "published_at", "expires_at")
MOST: Final = 10_000
"""Rows of a page at most."""


class PageError(DataError):
    """The page that was asked for is not there: its cursor is not one, or of an earlier tick."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Rows of one tick, or of a stretch of history.

    Attributes:
        rows: The rows, in order.
        tick: The tick they are of; None: nothing is published. For history, the newest tick.
        after: Names the last row, to ask for the next page with; None: there is no more.
    """

    rows: pl.DataFrame
    tick: Tick | None
    after: str | None


def latest_tick(engine: sa.Engine) -> Tick | None:
    """The newest tick; None: nothing is published.

    Raises:
        ScoreDatabaseError: The database cannot be read.
    """
    with reading(engine) as connection:
        return None if connection is None else _newest(connection)


def ticks(engine: sa.Engine, *, before: datetime | None = None, limit: int = 100) -> Sequence[Tick]:
    """Ticks, newest first.

    Args:
        engine: From `open_engine`.
        before: Only those with an earlier `as_of`: that of the last of a page gives the next.
        limit: How many at most.

    Raises:
        ScoreDatabaseError: The database cannot be read.
    """
    query = sa.select(TICKS).order_by(TICKS.c.as_of.desc()).limit(_within(limit))
    if before is not None:
        query = query.where(TICKS.c.as_of < to_us(before))
    with reading(engine) as connection:
        rows = [] if connection is None else connection.execute(query).mappings().all()
        return [Tick.from_row(dict(row)) for row in rows]


def latest_scores(
    engine: sa.Engine,
    *,
    kind: EntityKind,
    horizon_h: int,
    after: str | None = None,
    limit: int = 100,
    status: str | None = None,
    node: str | None = None,
    text: str | None = None,
) -> Page:
    """The ranking of the newest tick: highest scores first, unknown ones last.

    Args:
        engine: From `open_engine`.
        kind: Nodes or GPUs; of GPUs only those that are not quiet (`score_history.loud`).
        horizon_h: Horizon, hours.
        after: `after` of the page before.
        limit: Rows at most.
        status: Only rows of this status.
        node: Only rows of this node.
        text: Only entities whose name holds this text.

    Returns:
        `entity_id`, `horizon_h`, `node`, `score`, `status`, `status_reason`, `fault_type`,
        `fault_probability`, `model_version`, `fault_probabilities` (JSON: type to share; null),
        `reasons` (list of texts), `missing_share`.

    Raises:
        PageError: Another tick came since the page before; begin again.
        ScoreDatabaseError: The database cannot be read.
    """
    table, size = _LATEST[kind], _within(limit)
    rank = sa.func.coalesce(table.c.score, UNKNOWN_RANK)
    query = (
        sa.select(table)
        .where(table.c.horizon_h == horizon_h)
        .order_by(rank.desc(), table.c.entity_id)
        .limit(size + 1)
    )
    for column, wanted in ((table.c.status, status), (table.c.node, node)):
        query = query if wanted is None else query.where(column == wanted)
    if text:
        query = query.where(table.c.entity_id.contains(text, autoescape=True))
    with reading(engine) as connection:
        tick = None if connection is None else _newest(connection)
        if connection is None or tick is None:
            return Page(rows=_frame([], table), tick=None, after=None)
        if after is not None:
            score, entity = _place(after, tick)
            query = query.where(
                sa.or_(rank < score, sa.and_(rank == score, table.c.entity_id > entity))
            )
        rows = _frame(connection.execute(query).fetchall(), table)
    return _page(rows, tick, size)


def score_of(engine: sa.Engine, *, kind: EntityKind, entity_id: str) -> Page:
    """The newest scores of one entity, a row per horizon; see `latest_scores`."""
    table = _LATEST[kind]
    query = sa.select(table).where(table.c.entity_id == entity_id).order_by(table.c.horizon_h)
    with reading(engine) as connection:
        tick = None if connection is None else _newest(connection)
        rows = [] if connection is None else connection.execute(query).fetchall()
    return Page(rows=_frame(rows, table), tick=tick, after=None)


def score_history(
    engine: sa.Engine,
    *,
    kind: EntityKind,
    entity_id: str,
    horizon_h: int,
    since: datetime | None = None,
    before: datetime | None = None,
    limit: int = 1000,
) -> pl.DataFrame:
    """How the score of an entity went: the ticks at which it changed, newest first.

    Between two of them it stayed within a factor (`score_history.HistoryRule.step`).

    Args:
        engine: From `open_engine`.
        kind: Node or GPU.
        entity_id: The entity.
        horizon_h: Horizon, hours.
        since: Only ticks from then on.
        before: Only earlier ticks: the last `as_of` of a page gives the next.
        limit: Rows at most.

    Returns:
        `entity_id`, `horizon_h`, `as_of`, `node`, `score`, `status`, `status_reason`,
        `fault_type`, `fault_probability`, `model_version`.

    Raises:
        ScoreDatabaseError: The database cannot be read.
    """
    table = _HISTORY[kind]
    query = sa.select(table).where(table.c.entity_id == entity_id, table.c.horizon_h == horizon_h)
    return _stretch(engine, table, query, since=since, before=before, limit=limit)


def alerts(
    engine: sa.Engine,
    *,
    since: datetime | None = None,
    before: datetime | None = None,
    node: str | None = None,
    limit: int = 1000,
) -> pl.DataFrame:
    """Alerts raised, newest first; arguments as in `score_history`.

    Returns:
        `node`, `horizon_h`, `as_of`, `ends_at`, `score`, `threshold`, `fault_type`,
        `model_version`.
    """
    query = sa.select(ALERTS)
    query = query if node is None else query.where(ALERTS.c.node == node)
    return _stretch(engine, ALERTS, query, since=since, before=before, limit=limit)


def alerts_within(engine: sa.Engine, *, start: datetime, end: datetime) -> pl.DataFrame:
    """Every alert raised from `start` until before `end`, in no order; as `alerts`."""
    query = sa.select(ALERTS).where(ALERTS.c.as_of >= to_us(start), ALERTS.c.as_of < to_us(end))
    with reading(engine) as connection:
        rows = [] if connection is None else connection.execute(query).fetchall()
    return _frame(rows, ALERTS)


def outcomes(
    engine: sa.Engine,
    *,
    since: datetime | None = None,
    before: datetime | None = None,
    node: str | None = None,
    limit: int = 1000,
) -> pl.DataFrame:
    """What became of alerts, and incidents without one; as `alerts`.

    Returns:
        monitoring/outcomes.
    """
    query = sa.select(OUTCOMES)
    query = query if node is None else query.where(OUTCOMES.c.node == node)
    return _stretch(engine, OUTCOMES, query, since=since, before=before, limit=limit)


def live_quality(engine: sa.Engine) -> pl.DataFrame:
    """Quality of the live system by week, horizon and model version, newest week first.

    Returns:
        monitoring/live_quality.
    """
    query = sa.select(LIVE_QUALITY).order_by(
        LIVE_QUALITY.c.week.desc(), LIVE_QUALITY.c.horizon_h, LIVE_QUALITY.c.model_version
    )
    with reading(engine) as connection:
        rows = [] if connection is None else connection.execute(query).fetchall()
    return _frame(rows, LIVE_QUALITY)


def _newest(connection: sa.Connection) -> Tick | None:
    query = sa.select(TICKS).order_by(TICKS.c.as_of.desc()).limit(1)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else Tick.from_row(dict(row))


def _stretch(
    engine: sa.Engine,
    table: sa.Table,
    query: sa.Select[Any],
    *,
    since: datetime | None,
    before: datetime | None,
    limit: int,
) -> pl.DataFrame:
    """Rows by falling time."""
    as_of = table.c.as_of
    if since is not None:
        query = query.where(as_of >= to_us(since))
    if before is not None:
        query = query.where(as_of < to_us(before))
    keys = [column for column in table.primary_key if column.name != "as_of"]
    query = query.order_by(as_of.desc(), *keys).limit(_within(limit))
    with reading(engine) as connection:
        rows = [] if connection is None else connection.execute(query).fetchall()
    return _frame(rows, table)


def _frame(rows: Sequence[Any], table: sa.Table) -> pl.DataFrame:
    schema = {column.name: _TYPES[type(column.type)] for column in table.columns}
    frame = pl.DataFrame([tuple(row) for row in rows], schema=schema, orient="row")
    times = [name for name in _TIMES if name in schema]
    frame = frame.with_columns(pl.col(times).cast(pl.Datetime("us")).cast(UTC_TIME))
    if "reasons" not in schema:
        return frame
    return frame.with_columns(pl.col("reasons").str.json_decode(pl.List(pl.String)))


def _page(rows: pl.DataFrame, tick: Tick, size: int) -> Page:
    shown = rows.head(size)
    after = None
    if rows.height > size:
        last = shown.row(-1, named=True)
        values = [to_us(tick.as_of), tick.digest, last["score"], last["entity_id"]]
        after = base64.urlsafe_b64encode(json.dumps(values).encode()).decode()
    return Page(rows=shown, tick=tick, after=after)


def _place(after: str, tick: Tick) -> tuple[float, str]:
    """Rank and entity that a cursor names."""
    try:
        as_of, digest, score, entity = json.loads(base64.urlsafe_b64decode(after.encode()))
        rank, moment = -1.0 if score is None else float(score), from_us(int(as_of))
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise PageError("the page cannot be found: `after` is not one that was given") from error
    if moment != tick.as_of or digest != tick.digest:
        raise PageError(
            f"the page cannot be found: it is of {moment}, the scores are of {tick.as_of} by now. "
            f"Begin again with the first page."
        )
    return rank, str(entity)


def _within(limit: int) -> int:
    if not 1 <= limit <= MOST:
        raise PageError(f"a page has 1 to {MOST} rows, asked for {limit}")
    return limit
