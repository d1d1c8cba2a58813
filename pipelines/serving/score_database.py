"""Writes scores, alerts, outcomes and live quality to the score database, a tick per transaction.

The published folder is the truth; the database is made from it and can be made again. Its tables
are in `score_schema`, what of a tick is kept in `score_history`, reading in `score_reader`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import polars as pl
import sqlalchemy as sa

from features.errors import DataError
from features.vocabulary import FAULT_TYPES
from models.policies.warnings import WarningPolicy
from pipelines.serving.score_history import HistoryRule, changed, loud
from pipelines.serving.score_schema import (
    ALERTS,
    GPU_HISTORY,
    GPU_LATEST,
    LIVE_QUALITY,
    NODE_HISTORY,
    NODE_LATEST,
    OUTCOMES,
    TICKS,
    writing,
)
from pipelines.storage.store import Span

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class Tick:
    """What is said of a published tick; the same for folder and database.

    Attributes:
        as_of: Moment of the scores.
        published_at: When they were published.
        expires_at: From then on they say nothing about the present.
        coverage: Share of GPU rows with a score.
        model_versions: Model by horizon, hours.
        trained_on: synthetic or real.
        policies: Warning policy for nodes by horizon.
        digest: SHA-256 of the two published files' own: equal for equal scores.
        n_node_rows: Rows of the tick.
        n_gpu_rows: Rows of the tick.
        n_gpu_rows_kept: GPU rows that the database holds of it.
    """

    as_of: datetime
    published_at: datetime
    expires_at: datetime
    coverage: float
    model_versions: Mapping[int, str]
    trained_on: str
    digest: str
    policies: Mapping[int, WarningPolicy] = field(default_factory=dict)
    n_node_rows: int = 0
    n_gpu_rows: int = 0
    n_gpu_rows_kept: int = 0

    def to_row(self) -> dict[str, Any]:
        """The tick as a row of the table `ticks`."""
        policies = {str(h): one.to_dict() for h, one in sorted(self.policies.items())}
        return {
            "as_of": to_us(self.as_of),
            "published_at": to_us(self.published_at),
            "expires_at": to_us(self.expires_at),
            "coverage": self.coverage,
            "model_versions": json.dumps({str(h): v for h, v in self.model_versions.items()}),
            "trained_on": self.trained_on,
            "policies": json.dumps(policies),
            "digest": self.digest,
            "n_node_rows": self.n_node_rows,
            "n_gpu_rows": self.n_gpu_rows,
            "n_gpu_rows_kept": self.n_gpu_rows_kept,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The tick from a row of the table `ticks`."""
        models, policies = json.loads(row["model_versions"]), json.loads(row["policies"])
        times = {name: from_us(row[name]) for name in ("as_of", "published_at", "expires_at")}
        return cls(
            **{
                **row,
                **times,
                "model_versions": {int(h): version for h, version in models.items()},
                "policies": {int(h): WarningPolicy.from_dict(p) for h, p in policies.items()},
            }
        )


def write_tick(
    engine: sa.Engine,
    tick: Tick,
    *,
    node_scores: pl.DataFrame,
    gpu_scores: pl.DataFrame,
    rule: HistoryRule | None = None,
) -> bool:
    """Writes one tick in one transaction: readers see the tick before or all of this one.

    Args:
        engine: From `open_engine`.
        tick: What is said of it.
        node_scores: Its scores/node_scores.
        gpu_scores: Its scores/gpu_scores.
        rule: What is kept.

    Returns:
        Whether it was written; False: the database has this tick with the same scores, or a
        later one.

    Raises:
        ScoreDatabaseError: It cannot be written; nothing of it was.
    """
    rule = rule or HistoryRule()
    kept = loud(gpu_scores, rule)
    counted = {
        **tick.to_row(),
        "n_node_rows": node_scores.height,
        "n_gpu_rows": gpu_scores.height,
        "n_gpu_rows_kept": kept.height,
    }
    with writing(engine) as connection:
        if not _is_due(connection, tick):
            return False
        again = TICKS.c.as_of == counted["as_of"]
        connection.execute(sa.delete(TICKS).where(again))
        connection.execute(sa.insert(TICKS).values(counted))
        for latest, history, rows, every in (
            (NODE_LATEST, NODE_HISTORY, node_scores, node_scores),
            (GPU_LATEST, GPU_HISTORY, kept, gpu_scores),
        ):
            fresh = changed(rows, _held(connection, latest), every=every, rule=rule)
            connection.execute(sa.delete(latest))
            _insert(connection, latest, _as_latest(rows))
            at = history.c.as_of == counted["as_of"]
            connection.execute(sa.delete(history).where(at))
            _insert(connection, history, _as_history(fresh))
            _forget(connection, history.c.as_of, tick.as_of, days=rule.days)
        _forget(connection, TICKS.c.as_of, tick.as_of, days=rule.days)
    return True


def write_alerts(engine: sa.Engine, alerts: pl.DataFrame) -> None:
    """Keeps alerts that were raised; one that is there stays as it is.

    Args:
        engine: From `open_engine`.
        alerts: `node`, `horizon_h`, `as_of`, `ends_at`, `score`, `threshold`, `fault_type`,
            `model_version`.

    Raises:
        ScoreDatabaseError: As in `write_tick`.
    """
    if alerts.is_empty():
        return
    plain, keys = _plain(ALERTS, alerts), _keys(ALERTS)
    with writing(engine) as connection:
        columns = [ALERTS.c[name] for name in keys]
        held = connection.execute(sa.select(*columns).where(ALERTS.c.as_of >= plain["as_of"].min()))
        there = pl.DataFrame(
            [tuple(row) for row in held], schema=plain.select(keys).schema, orient="row"
        )
        _insert(connection, ALERTS, plain.join(there, on=keys, how="anti"))


def write_outcomes(
    engine: sa.Engine, outcomes: pl.DataFrame, quality: pl.DataFrame, *, span: Span | None = None
) -> None:
    """Keeps outcomes and live quality in one transaction; rows with the same key are replaced.

    Args:
        engine: From `open_engine`.
        outcomes: monitoring/outcomes.
        quality: monitoring/live_quality.
        span: What was judged anew: rows of it that are not given again are taken out.

    Raises:
        ScoreDatabaseError: As in `write_tick`.
    """
    with writing(engine) as connection:
        if span is not None:
            start, end = to_us(span.start), to_us(span.end)
            as_of, week = OUTCOMES.c.as_of, LIVE_QUALITY.c.week
            connection.execute(sa.delete(OUTCOMES).where(as_of > start, as_of <= end))
            connection.execute(sa.delete(LIVE_QUALITY).where(week >= start, week < end))
        for table, rows in ((OUTCOMES, outcomes), (LIVE_QUALITY, quality)):
            _replace(connection, table, rows)


def forget_from(engine: sa.Engine, as_of: datetime) -> None:
    """Forgets a tick and all later ones, which were taken back; the tick is to be written anew.

    Args:
        engine: From `open_engine`.
        as_of: The tick that is the newest by now.

    Raises:
        ScoreDatabaseError: As in `write_tick`.
    """
    at = to_us(as_of)
    with writing(engine) as connection:
        connection.execute(sa.delete(TICKS).where(TICKS.c.as_of >= at))
        for table in (NODE_HISTORY, GPU_HISTORY, ALERTS):
            connection.execute(sa.delete(table).where(table.c.as_of > at))


def to_us(at: datetime) -> int:
    """A time as microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def from_us(value: int) -> datetime:
    """The time of `to_us`."""
    return _EPOCH + timedelta(microseconds=value)


def _is_due(connection: sa.Connection, tick: Tick) -> bool:
    newest = connection.execute(
        sa.select(TICKS.c.as_of, TICKS.c.digest).order_by(TICKS.c.as_of.desc()).limit(1)
    ).one_or_none()
    if newest is None or newest.as_of < to_us(tick.as_of):
        return True
    return bool(newest.as_of == to_us(tick.as_of) and newest.digest != tick.digest)


def _held(connection: sa.Connection, latest: sa.Table) -> pl.DataFrame:
    """What the latest table holds, as far as it decides what enters the history."""
    columns = (
        latest.c.entity_id,
        latest.c.horizon_h,
        latest.c.score,
        latest.c.status,
        latest.c.model_version,
    )
    rows = connection.execute(sa.select(*columns)).fetchall()
    schema = {
        "entity_id": pl.String,
        "horizon_h": pl.Int32,
        "score": pl.Float64,
        "status": pl.String,
        "model_version": pl.String,
    }
    return pl.DataFrame([tuple(row) for row in rows], schema=schema, orient="row")


def _as_latest(rows: pl.DataFrame) -> pl.DataFrame:
    reasons = [json.dumps(one) for one in rows["reasons"].to_list()]
    return rows.select(
        *_HISTORY_COLUMNS,
        pl.Series("reasons", reasons, dtype=pl.String),
        pl.Series("fault_probabilities", _shares_as_json(rows), dtype=pl.String),
        "missing_share",
    )


def _shares_as_json(rows: pl.DataFrame) -> list[str | None]:
    """Fault types with their shares, those of note; None where there is no vector."""
    vectors = rows["fault_probabilities"].to_list()
    return [
        None
        if vector is None
        else json.dumps(
            {
                name: round(share, 3)
                for name, share in zip(FAULT_TYPES, vector, strict=True)
                if share >= 0.005
            }
        )
        for vector in vectors
    ]


_HISTORY_COLUMNS: Final = (
    "entity_id",
    "horizon_h",
    "node",
    "score",
    "status",
    "status_reason",
    "fault_type",
    "fault_probability",
    "model_version",
)


def _as_history(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(*_HISTORY_COLUMNS, pl.col("as_of").dt.epoch("us"))


def _insert(connection: sa.Connection, table: sa.Table, rows: pl.DataFrame) -> None:
    texts = [name for name, dtype in rows.schema.items() if dtype == pl.String]
    # PostgreSQL has no NUL in texts, and a node's name comes from outside.
    clean = rows.with_columns(pl.col(texts).str.replace_all("\0", "\ufffd", literal=True))
    for part in clean.iter_slices(_BATCH):
        connection.execute(sa.insert(table), part.to_dicts())


def _plain(table: sa.Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows as the table has them; of each key one."""
    times = [name for name, dtype in rows.schema.items() if dtype.is_temporal()]
    plain = rows.with_columns(pl.col(times).dt.epoch("us")).select(table.c.keys())
    keys = _keys(table)
    if plain.select(pl.struct(keys).is_duplicated().any()).item():
        raise DataError(f"{table.name}: two rows share {', '.join(keys)}; give one of each")
    return plain


def _keys(table: sa.Table) -> list[str]:
    return [column.name for column in table.primary_key]


def _replace(connection: sa.Connection, table: sa.Table, rows: pl.DataFrame) -> None:
    if rows.is_empty():
        return
    plain, keys = _plain(table, rows), _keys(table)
    known = sa.and_(*(table.c[name] == sa.bindparam(f"key_{name}") for name in keys))
    named = plain.select(pl.col(keys).name.prefix("key_")).to_dicts()
    connection.execute(sa.delete(table).where(known), named)
    _insert(connection, table, plain)


def _forget(connection: sa.Connection, as_of: sa.Column[Any], now: datetime, *, days: int) -> None:
    oldest = to_us(now - timedelta(days=days))
    connection.execute(sa.delete(as_of.table).where(as_of < oldest))
