"""The page of live quality: did alerts come true, week by week and model by model?

The figures are made in `monitoring/live_quality`; here they are put into words.
"""

from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY
from models.evaluation.intervals import wilson
from pipelines.board.desk import Desk
from pipelines.board.words import OUTCOME_WORDS
from pipelines.report.words import UNKNOWN, counted, fault_words, hours, number, percent
from pipelines.serving.score_reader import live_quality, outcomes
from pipelines.storage.store import TableStore

MOST_WEEKS: Final = 26
MOST_OUTCOMES: Final = 200
_WEEK: Final = timedelta(days=7)


def quality_values(desk: Desk, *, now: datetime) -> dict[str, Any]:
    """What the page shows.

    Args:
        desk: What pages are made from.
        now: The present.

    Raises:
        ScoreDatabaseError: The database cannot be read.
        DataError: The store cannot be read.
    """
    quality = live_quality(desk.sources.engine)
    became = outcomes(desk.sources.engine, limit=MOST_OUTCOMES)
    if quality.is_empty() and became.is_empty():
        # Small installations judge by Dagster, which writes to the store alone.
        quality, became = desk.reads.read("quality", lambda: _judged(desk.store))
    became = became.sort("as_of", descending=True).head(MOST_OUTCOMES)
    weeks = quality.sort("week", descending=True).head(MOST_WEEKS)
    return {
        "answer": answer(quality, now=now),
        "weeks": [_week(row) for row in weeks.iter_rows(named=True)],
        "outcomes": [_outcome(row) for row in became.iter_rows(named=True)],
        "most": MOST_OUTCOMES,
    }


def _judged(store: TableStore) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Weeks and outcomes as stored."""
    weeks, became = (
        store.read(one) if store.has(one) else one.empty() for one in (LIVE_QUALITY, LIVE_OUTCOMES)
    )
    return weeks, became


def answer(quality: pl.DataFrame, *, now: datetime) -> str:
    """Whether the alerts of the last judged week came true, in one sentence.

    Args:
        quality: monitoring/live_quality.
        now: The present.
    """
    if quality.is_empty():
        return "Nothing is known yet: no alert's horizon has passed and been judged."
    newest: datetime = quality.select(pl.col("week").max()).item()
    rows = quality.filter(pl.col("week") == newest)
    hits, judged = int(rows["n_hits"].sum()), int(rows["n_alerts"].sum())
    misses, hidden = int(rows["n_misses"].sum()), int(rows["n_censored"].sum())
    when = "last week" if now - newest < 2 * _WEEK else f"the week from {newest:%Y-%m-%d}"
    said = (
        f"Of {counted(judged, 'alert')} of {when}, {hits} came true"
        if judged
        else f"No alert of {when} could be judged"
    )
    said += f"; {counted(misses, 'incident')} came without an alert in time"
    if hidden:
        said += f"; of {counted(hidden, 'alert')} it cannot be told, often because a drain hid it"
    return said + "."


def _week(row: dict[str, Any]) -> dict[str, Any]:
    found = row["n_hits"] + row["n_misses"]
    return {
        **row,
        "horizon": hours(row["horizon_h"]),
        "precision": percent(row["precision"]),
        "precision_within": _within(row["n_hits"], row["n_alerts"]),
        "recall": percent(row["recall"]),
        "recall_within": _within(row["n_hits"], found),
        "calibration": _calibration(row),
        "brier": number(row["brier"]),
        "lead": UNKNOWN if row["median_lead_h"] is None else hours(row["median_lead_h"]),
    }


def _within(hits: int, n: int) -> str:
    """The 95 % interval of a share; nothing where there is no share."""
    if not n:
        return ""
    low, high = wilson(hits, n)
    return f"{percent(low)} to {percent(high)} of {n}"


def _calibration(row: dict[str, Any]) -> str:
    if row["mean_score"] is None or row["observed_rate"] is None:
        return UNKNOWN
    return f"said {percent(row['mean_score'])}, came {percent(row['observed_rate'])}"


def _outcome(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "words": OUTCOME_WORDS.get(row["outcome"], row["outcome"]),
        "horizon": hours(row["horizon_h"]),
        "probability": percent(row["score"]),
        "lead": "" if row["lead_h"] is None else hours(row["lead_h"]),
        "fault": "" if row["fault_type"] is None else fault_words(row["fault_type"]),
        "why": (row["censored_by"] or "").replace("_", " "),
    }
