"""Joins outcomes back to the live system's alerts and scores, once their horizon has passed.

How they are judged is in `models.outcomes`. Judged is what was published, never a score that was
computed later: of each tick its published file, of each alert what the score database keeps.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl
import sqlalchemy as sa

from features.catalogue import FaultCatalogue
from features.tables import CORE_HEALTH_EVENTS, LIVE_OUTCOMES, LIVE_QUALITY, NODE_SCORES
from models.outcomes import calibration_sums, judge_alerts, live_quality, with_labels
from pipelines.flow import labels_of
from pipelines.publish import published_ticks
from pipelines.serving.published import read_tick
from pipelines.serving.score_database import write_outcomes
from pipelines.serving.score_reader import MOST, alerts
from pipelines.serving.stored_tables import tables_for_labels
from pipelines.settings import Settings
from pipelines.store import Span, TableStore

_DAY: Final = timedelta(days=1)
_ROW: Final = ("node", "as_of", "horizon_h")
_SCORES: Final = ("node", "as_of", "horizon_h", "model_version", "score")


@dataclass(frozen=True)
class Judged:
    """What was judged.

    Attributes:
        span: Whole weeks.
        outcomes: monitoring/outcomes of the span.
        quality: monitoring/live_quality of the span.
    """

    span: Span
    outcomes: pl.DataFrame
    quality: pl.DataFrame


def judge_live(
    settings: Settings, *, engine: sa.Engine, catalogue: FaultCatalogue, now: datetime
) -> Judged | None:
    """Judges the weeks whose outcomes may have become known, and keeps what was found.

    Args:
        settings: The installation.
        engine: The score database; alerts are read from it, outcomes written to it.
        catalogue: Says which node states are planned work or our own.
        now: The present.

    Returns:
        What was judged; None: nothing was published in that time.

    Raises:
        ForewarnError: Tables or database cannot be used; nothing was kept.
    """
    span = weeks_to_judge(settings, now=now)
    store = TableStore(settings.store_root)
    tables = tables_for_labels(store)
    seen = store.covered_until(CORE_HEALTH_EVENTS)
    data_end = min(settings.data_end(now), seen or settings.start)
    # An alert of the week before may have caught what happened in these.
    reach = Span(span.start - _whole_days(_longest(settings)), span.end)
    raised = all_alerts(engine, reach)
    kept, sums = [], []
    for day in reach.steps(_DAY):
        scores = _published(settings, day)
        if scores.is_empty():
            continue
        labels = labels_of(
            tables, settings, catalogue=catalogue, span=day, data_end=data_end, kinds=("node",)
        )
        rows = with_labels(scores, labels)
        sums.append(calibration_sums(rows))
        # Of the rest, millions of quiet rows, only the sums are needed.
        is_alert = pl.struct(_ROW).is_in(raised.select(pl.struct(_ROW)).to_series().implode())
        kept.append(rows.filter((pl.col("label") == 1) | is_alert))
    if not kept:
        return None
    outcomes = judge_alerts(raised, pl.concat(kept), incidents=tables.incidents)
    outcomes = outcomes.filter((pl.col("as_of") > span.start) & (pl.col("as_of") <= span.end))
    in_span = pl.concat(sums).filter(pl.col("week") >= span.start)
    judged = Judged(span, outcomes, live_quality(outcomes, in_span))
    _keep(store, engine, judged)
    return judged


def _keep(store: TableStore, engine: sa.Engine, judged: Judged) -> None:
    span = judged.span
    store.write(LIVE_OUTCOMES, judged.outcomes, span=span)
    earlier = store.read(LIVE_QUALITY) if store.has(LIVE_QUALITY) else LIVE_QUALITY.empty()
    older = earlier.filter((pl.col("week") < span.start) | (pl.col("week") >= span.end))
    store.write(LIVE_QUALITY, pl.concat([older, judged.quality]))
    write_outcomes(engine, judged.outcomes, judged.quality)


def weeks_to_judge(settings: Settings, *, now: datetime) -> Span:
    """The weeks in which something may still become known, this one included.

    The oldest is that of the moments whose longest horizon ended a week ago: later news
    (an incident's record that came late) is taken in for a week.
    """
    monday = _monday(settings.data_end(now) - _longest(settings) - timedelta(days=7))
    first = max(monday, _monday(settings.start))
    return Span(first, max(_monday(settings.data_end(now)), first) + timedelta(days=7))


def all_alerts(engine: sa.Engine, span: Span) -> pl.DataFrame:
    """Every alert raised in a span, read day by day.

    Args:
        engine: The score database.
        span: Whole days.

    Returns:
        As `score_reader.alerts`.
    """
    return pl.concat(
        alerts(engine, since=day.start, before=day.end, limit=MOST) for day in span.steps(_DAY)
    )


def _published(settings: Settings, day: Span) -> pl.DataFrame:
    """Published node scores of a day; of a moment published twice, what was published last."""
    found: dict[datetime, tuple[datetime, pl.DataFrame]] = {}
    folder = settings.scores_dir
    for path in published_ticks(folder, since=day.start):
        one = read_tick(path, folder)
        if one.tick.as_of > day.end:
            break
        before = found.get(one.tick.as_of)
        if before is None or before[0] < one.tick.published_at:
            frame = one.node_scores().select(_SCORES)
            found[one.tick.as_of] = (one.tick.published_at, frame)
    return pl.concat([NODE_SCORES.empty().select(_SCORES), *(frame for _, frame in found.values())])


def _longest(settings: Settings) -> timedelta:
    return settings.lead + timedelta(hours=max(settings.horizons_h))


def _whole_days(length: timedelta) -> timedelta:
    return -(-length // _DAY) * _DAY


def _monday(at: datetime) -> datetime:
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=midnight.weekday())
