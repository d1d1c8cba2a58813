"""Sentences of the board: ages, statuses, outcomes, what a request does.

Numbers and names are put into words in `pipelines.report.words`; no page is laid out here.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.report.words import counted, hours, percent

STATUS_WORDS: Final[Mapping[str, str]] = {
    "ok": "scored",
    "prior": "prior only: too few incidents seen to learn from",
    "unknown": "unknown",
}
STATE_WORDS: Final[Mapping[str, str]] = {
    "up": "up",
    "drain": "draining or drained",
    "down": "down",
    "unknown": "state unknown",
}
OUTCOME_WORDS: Final[Mapping[str, str]] = {
    "hit": "came true",
    "false_alarm": "did not come true",
    "miss": "missed: no alert in time",
    "censored": "cannot be told",
}
KIND_WORDS: Final[Mapping[str, str]] = {
    "observed": "nodes above the threshold",
    "decision": "decided",
    "intent": "about to act",
    "result": "what came of it",
    "released": "let go",
    "escalation": "asks for a person",
    "acknowledged": "a person has looked",
    "request": "a person's request",
    "checked": "checked",
}
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
_DIGITS: Final = re.compile(r"(\d+)")


def age(since: datetime, now: datetime) -> str:
    """How long ago, in the unit a person would use.

    >>> age(datetime(2026, 1, 1, 0), datetime(2026, 1, 1, 2, 10)).replace(chr(160), " ")
    '2.2 h'
    """
    passed = now - since
    if abs(passed) < timedelta(minutes=1):
        return "less than a minute"
    return hours(abs(passed) / timedelta(hours=1))


def ago(since: datetime, now: datetime) -> str:
    """How long ago, or, where a clock is wrong, that it is yet to come.

    >>> ago(datetime(2026, 1, 1, 3), datetime(2026, 1, 1, 0)).replace(chr(160), " ")
    '3 h from now (a clock is wrong)'
    """
    passed = age(since, now)
    return f"{passed} from now (a clock is wrong)" if is_ahead(since, now) else f"{passed} ago"


def is_ahead(at: datetime, now: datetime) -> bool:
    """Whether a record is of a moment to come by more than clocks usually differ."""
    return at > now + _CLOCKS_DIFFER


def scores_age(as_of: datetime, expires_at: datetime, now: datetime) -> tuple[bool, str, str]:
    """Whether scores may still be acted on, their age in short, and what that means.

    Args:
        as_of: Their moment.
        expires_at: From then on they say nothing about the present.
        now: The present.
    """
    if is_ahead(as_of, now):
        ahead = age(as_of, now)
        words = f"Scores are of a moment {ahead} from now: a clock is wrong. Do not trust them."
        return False, f"Of a moment {ahead} from now: a clock is wrong.", words
    old = age(as_of, now)
    if now >= expires_at:
        words = (
            f"Scores are {old} old and have expired: the hook acts on none of them. "
            "What is shown is the last that was known."
        )
        return False, f"Expired: they are {old} old.", words
    left = age(expires_at, now)
    return True, f"They are {old} old and hold for another {left}.", ""


def probability(score: float | None, horizon_h: int) -> str:
    """A score in words, never as if unknown were zero.

    >>> probability(0.4213, 24).replace(chr(160), " "), probability(None, 24)
    ('42 % within 24 h', 'unknown')
    """
    return "unknown" if score is None else f"{percent(score)} within {hours(horizon_h)}"


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts names with numbers as people count.

    >>> sorted(["r10", "r9", "r1"], key=natural)
    ['r1', 'r9', 'r10']
    """
    parts = (part for part in _DIGITS.split(name) if part)
    return tuple((int(p), "") if p.isascii() and p.isdigit() else (-1, p) for p in parts)


def told(body: Mapping[str, Any], kind: str) -> str:
    """A ledger entry's body in one sentence.

    Args:
        body: The body; an older version may lack any part of it.
        kind: One of `remediation.ledger.entries.KINDS`.
    """
    if kind == "observed":
        return f"{counted(len(body.get('nodes') or ()), 'node')} at or above the threshold"
    if kind == "request":
        return _request(body)
    if kind == "result":
        said = str(body.get("status", "")).replace("_", " ")
        return ": ".join(part for part in (said, str(body.get("detail") or "")) if part)
    if kind == "intent":
        return str(body.get("step") or body.get("action") or "").replace("_", " ")
    parts = [body.get(name) for name in ("sentence", "text", "how", "detail", "reason", "why")]
    return next((str(part) for part in parts if part), "")


def _request(body: Mapping[str, Any]) -> str:
    said = f"{str(body.get('what', 'request')).replace('_', ' ')}: {body.get('status', 'unknown')}"
    return f"{said}, {body['reason']}" if body.get("reason") else said
