"""The newest scores of the score database as text for a terminal.

What is read is in `score_reader`; the board and the API show the published folder instead.
"""

from datetime import datetime
from typing import Any

from pipelines.serving.score_reader import Page
from remediation.plan import plain

_NOTHING = "No tick is in the score database yet: run `forewarn score`."


def ranking_in_words(page: Page, *, horizon_h: int, now: datetime) -> str:
    """The highest scores of one horizon, unknown ones last, a line each.

    Args:
        page: From `score_reader.latest_scores`.
        horizon_h: Its horizon, hours.
        now: UTC.
    """
    if page.tick is None:
        return _NOTHING
    lines = [_age(page, now), f"Within {horizon_h} h:"]
    for row in page.rows.iter_rows(named=True):
        place = row["entity_id"] if row["node"] in (None, row["entity_id"]) else row["node"]
        name = row["entity_id"] if place == row["entity_id"] else f"{place} {row['entity_id']}"
        lines.append(f"  {_score(row):>8}  {name}  {_cause(row)}")
    if page.rows.is_empty():
        lines.append("  none that are not quiet")
    if page.after is not None:
        lines.append(f"The first {page.rows.height}; --limit shows more.")
    return "\n".join(map(plain, lines))


def entity_in_words(page: Page, *, entity_id: str, now: datetime) -> str:
    """The scores of one entity, with the reasons, a horizon each.

    Args:
        page: From `score_reader.score_of`.
        entity_id: The entity.
        now: UTC.
    """
    if page.tick is None:
        return _NOTHING
    lines = [_age(page, now), f"{entity_id}:"]
    for row in page.rows.iter_rows(named=True):
        lines.append(f"  within {row['horizon_h']} h: {_score(row)}  {_cause(row)}")
        lines += [f"    {reason}" for reason in row["reasons"]]
    if page.rows.is_empty():
        lines.append("  no score: not watched, or a GPU so quiet that only the folder has it")
    return "\n".join(map(plain, lines))


def _age(page: Page, now: datetime) -> str:
    tick = page.tick
    if tick is None:
        return _NOTHING
    words = f"Scores of {tick.as_of:%Y-%m-%d %H:%M} UTC"
    until = f"{tick.expires_at:%Y-%m-%d %H:%M} UTC"
    if now >= tick.expires_at:
        return f"{words}, EXPIRED {until}: nothing acts on them"
    return f"{words}, hold until {until}, trained on {tick.trained_on} data"


def _score(row: dict[str, Any]) -> str:
    return "unknown" if row["score"] is None else f"{row['score']:.1%}"


def _cause(row: dict[str, Any]) -> str:
    if row["score"] is None:
        return str(row["status_reason"] or "no reason given")
    fault = (row["fault_type"] or "fault type unknown").replace("_", " ")
    return fault if row["status"] == "ok" else f"{fault} ({row['status']})"
