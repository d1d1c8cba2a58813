"""Joins outcomes back to the live system's alerts and scores, once their horizon has passed.

How they are judged is in `models.evaluation.outcomes`. Judged is what was published, never a score
that was computed later: of each tick its published file, of each alert what the score database
keeps.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl
import sqlalchemy as sa

from features.catalogue import FaultCatalogue
from features.errors import SettingsError
from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY
from features.tables import CORE_HEALTH_EVENTS, NODE_SCORES
from models.evaluation.outcomes import (
    calibration_sums,
    judge_alerts,
    live_quality,
    not_watched,
    with_labels,
)
from pipelines.flow.steps import labels_of
from pipelines.serving.published import node_scores_or_none, read_ticks
from pipelines.serving.score_database import write_outcomes
from pipelines.serving.score_reader import alerts_within
from pipelines.serving.stored_tables import tables_for_labels
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

_DAY: Final = timedelta(days=1)
_MOMENT: Final = timedelta(microseconds=1)
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
        ForewarnError: Tables or database cannot be used, or what was published is kept for less
            time than is judged; nothing was kept.
    """
    span = weeks_to_judge(settings, now=now)
    # An alert of the week before may have caught what happened in these.
    reach = Span(span.start - _whole_days(_longest(settings)), span.end)
    _check_kept(settings)
    store = TableStore(settings.store_root)
    tables = tables_for_labels(store)
    seen = store.covered_until(CORE_HEALTH_EVENTS)
    data_end = min(settings.data_end(now), seen or settings.start)
    raised = alerts_within(engine, start=reach.start, end=reach.end)
    kept, sums = [], []
    for day in reach.steps(_DAY):
        own = raised.filter((pl.col("as_of") > day.start) & (pl.col("as_of") <= day.end))
        scores = _published(settings, day)
        if scores.is_empty() and own.is_empty():
            continue
        labels = labels_of(
            tables, settings, catalogue=catalogue, span=day, data_end=data_end, kinds=("node",)
        )
        rows = with_labels(scores, labels)
        sums.append(calibration_sums(rows))
        # Of the rest, millions of quiet rows, only the sums are needed.
        is_alert = pl.struct(_ROW).is_in(own.select(pl.struct(_ROW)).to_series().implode())
        kept.append(rows.filter((pl.col("label") == 1) | is_alert))
        # An alert has its outcome, too, where the file of its tick cannot be read.
        kept.append(with_labels(own.join(scores, on=_ROW, how="anti"), labels))
    if not kept:
        return None
    rows = pl.concat(kept)
    rows = pl.concat([rows, not_watched(raised, rows, data_end=data_end)])
    outcomes = judge_alerts(raised, rows, incidents=tables.incidents)
    outcomes = outcomes.filter((pl.col("as_of") > span.start) & (pl.col("as_of") <= span.end))
    in_span = pl.concat(sums).filter(pl.col("week") >= span.start)
    judged = Judged(span, outcomes, live_quality(outcomes, in_span))
    _keep(store, engine, judged)
    return judged


def _check_kept(settings: Settings) -> None:
    """Refuses to judge time of which ticks are gone: it would be judged worse each day.

    Raises:
        SettingsError: Published ticks are kept for too short a time.
    """
    kept = settings.serving.published_days
    # Twice the horizon, a week for late news, and the rest of the week in which that lies.
    longest_reach = 2 * _whole_days(_longest(settings)) + timedelta(days=14)
    if timedelta(days=kept) < longest_reach:
        raise SettingsError(
            f"serving.published_days is {kept}: to judge a horizon of "
            f"{max(settings.horizons_h)} h, at least {longest_reach.days} are needed"
        )


def _keep(store: TableStore, engine: sa.Engine, judged: Judged) -> None:
    span = judged.span
    store.write(LIVE_OUTCOMES, judged.outcomes, span=span)
    earlier = store.read(LIVE_QUALITY) if store.has(LIVE_QUALITY) else LIVE_QUALITY.empty()
    older = earlier.filter((pl.col("week") < span.start) | (pl.col("week") >= span.end))
    store.write(LIVE_QUALITY, pl.concat([older, judged.quality]))
    write_outcomes(engine, judged.outcomes, judged.quality, span=span)


def weeks_to_judge(settings: Settings, *, now: datetime) -> Span:
    """The weeks in which something may still become known, this one included.

    The oldest is that of the moments whose longest horizon ended a week ago: later news
    (an incident's record that came late) is taken in for a week.
    """
    monday = _monday(settings.data_end(now) - _longest(settings) - timedelta(days=7))
    first = max(monday, _monday(settings.start))
    return Span(first, max(_monday(settings.data_end(now)), first) + timedelta(days=7))


def _published(settings: Settings, day: Span) -> pl.DataFrame:
    """Published node scores of a day, of those ticks that can be read."""
    folder = settings.scores_dir
    found = [
        scores.select(_SCORES)
        for one in read_ticks(folder, since=day.start, before=day.end + _MOMENT)
        if (scores := node_scores_or_none(one)) is not None
    ]
    return pl.concat([NODE_SCORES.empty().select(_SCORES), *found])


def _longest(settings: Settings) -> timedelta:
    return settings.lead + timedelta(hours=max(settings.horizons_h))


def _whole_days(length: timedelta) -> timedelta:
    return -(-length // _DAY) * _DAY


def _monday(at: datetime) -> datetime:
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=midnight.weekday())
