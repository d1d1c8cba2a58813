"""The alerts that published ticks gave rise to, found again from the published folder.

A score database that is new knows none of them, and live quality would take what came true for
missed. How alerts are raised is in `alert_book`.
"""

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from pipelines.serving.alert_book import AlertBook, advance, alerts_frame
from pipelines.serving.published import node_scores_or_none, read_ticks
from pipelines.settings import Settings

_MOMENT = timedelta(microseconds=1)


def replayed_alerts(folder: Path, *, until: datetime, settings: Settings) -> pl.DataFrame:
    """Alerts of all ticks that are still published.

    Cooldowns of alerts before the first of them are not known: near it, one more may be raised.

    Args:
        folder: The published folder.
        until: The last tick.
        settings: The lead.

    Returns:
        As `score_database.write_alerts` takes them.
    """
    book = AlertBook()
    recent: list[pl.DataFrame] = []
    for one in read_ticks(folder, before=until + _MOMENT):
        scores = node_scores_or_none(one)
        if scores is None:
            continue
        back = max((policy.k for policy in one.tick.policies.values()), default=1)
        recent = recent[-back:]
        earlier = pl.concat([scores.clear(), *recent])
        book = advance(book, one.tick, scores, earlier=earlier, lead=settings.lead)
        recent.append(scores)
    return alerts_frame(book.unstored)
