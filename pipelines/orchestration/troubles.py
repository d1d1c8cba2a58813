"""Alerts about our own work: failed checks, jobs that failed, hours that cannot be made.

What is wrong now is compared with what each receiver was told; nothing is told twice, and what
could not be told is told at the next look. Alerts about nodes are in `pipelines.serving`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import orjson

from features.errors import ForewarnError, SourceError
from pipelines.sections.secret_source import read_secret
from pipelines.serving.alertmanager import send
from pipelines.settings import Settings
from remediation.actuators.exchange import NoAnswerError
from remediation.actuators.webhook import poster
from remediation.actuators.webhook_signature import SigningKey

Severity = Literal["critical", "warning"]

ALERT_NAMES: Final[Mapping[str, str]] = {
    "check": "ForewarnCheckFailed",
    "job": "ForewarnJobFailed",
    "hours": "ForewarnHoursSetAside",
}
"""Names of the alerts by the kind of trouble."""
SEEN: Final = "seen"
"""In the book, what was wrong at the last look, whoever was told of it."""
_LASTS: Final = 4
"""An alert ends by itself when it was not sent again this many times."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Something about our own work that somebody should look at.

    Attributes:
        kind: check, job or hours.
        name: Which one.
        words: What is wrong.
        severity: critical where predictions cannot be trusted now.
        since: Since when it is known, ISO.
    """

    kind: str
    name: str
    words: str
    severity: Severity
    since: str = ""

    @property
    def key(self) -> str:
        """Its name among all."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a receiver knows.

    Attributes:
        open: Troubles it was told of and not yet that they are over, by key.
        at: When it was told last, ISO; empty: never.
    """

    open: Mapping[str, Trouble] = field(default_factory=dict)
    at: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is new since a receiver was told.

    Attributes:
        open: Every trouble now, with the time since which it is known.
        fired: Those that are new.
        resolved: Those that are over.
    """

    open: Mapping[str, Trouble]
    fired: Sequence[Trouble]
    resolved: Sequence[Trouble]


def known_since(
    before: Mapping[str, Trouble], found: Sequence[Trouble], *, now: datetime
) -> dict[str, Trouble]:
    """What is wrong now by key, each with the time since which it is known.

    Args:
        before: What was wrong at the last look.
        found: What is wrong now.
        now: The present.
    """
    return {
        one.key: replace(one, since=before[one.key].since if one.key in before else now.isoformat())
        for one in found
    }


def change_of(told: Told, known: Mapping[str, Trouble]) -> Change:
    """Compares what is wrong now with what a receiver was told.

    Args:
        told: What it was told.
        known: What is wrong now, by key.
    """
    return Change(
        open=known,
        fired=[one for key, one in known.items() if key not in told.open],
        resolved=[one for key, one in told.open.items() if key not in known],
    )


def tell_all(
    settings: Settings, book: Mapping[str, Told], found: Sequence[Trouble], *, now: datetime
) -> tuple[dict[str, Told], list[str]]:
    """Tells each receiver of the settings what is new.

    Args:
        settings: Whom to tell.
        book: What each knows.
        found: What is wrong now.
        now: The present.

    Returns:
        What each knows now, and what could not be told.
    """
    channels: dict[str, Callable[[Change], None]] = {}
    if settings.serving.alertmanager is not None:
        channels["alertmanager"] = lambda change: _to_alertmanager(settings, change, now)
    if settings.serving.webhook is not None:
        channels["webhook"] = lambda change: _to_webhook(settings, change, now)
    known = known_since(book.get(SEEN, Told()).open, found, now=now)
    after, problems = {SEEN: Told(open=known)}, []
    for name, tell in channels.items():
        told = book.get(name, Told())
        change = change_of(told, known)
        if not (change.fired or change.resolved or _is_due(settings, name, told, now)):
            after[name] = told
            continue
        try:
            tell(change)
        except (ForewarnError, OSError) as error:
            problems.append(f"{name}: {error}")
            after[name] = told
        else:
            after[name] = Told(open=change.open, at=now.isoformat())
    return after, problems


def book_to_text(book: Mapping[str, Told]) -> str:
    """The book as text, for a sensor's cursor."""
    return orjson.dumps({name: asdict(told) for name, told in book.items()}).decode()


def book_from_text(text: str | None) -> dict[str, Told]:
    """The book again; an empty one where the text is none, or of another release."""
    try:
        content = orjson.loads(text or "{}")
        return {
            name: Told(
                open={key: Trouble(**one) for key, one in told["open"].items()}, at=told["at"]
            )
            for name, told in content.items()
        }
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError):
        # All that is open is told anew; what is over ends by itself.
        return {}


def alert_payload(change: Change, *, settings: Settings, now: datetime) -> list[dict[str, Any]]:
    """What Alertmanager is to know: all that is wrong, and what is over since it was told.

    Args:
        change: What is new.
        settings: Site, and how often alerts are sent again.
        now: The present.
    """
    chosen = settings.serving.alertmanager
    resend = timedelta(minutes=chosen.resend_minutes if chosen else 5.0)
    ends = now + max(_LASTS * resend, timedelta(minutes=10))
    lasting = [(one, ends) for one in change.open.values()]
    over = [(one, now) for one in change.resolved]
    return [
        {
            "labels": {
                "alertname": ALERT_NAMES[one.kind],
                "site": settings.site,
                one.kind: one.name,
                "severity": one.severity,
            },
            "annotations": {"summary": one.words},
            "startsAt": one.since,
            "endsAt": at.isoformat(),
        }
        for one, at in (*lasting, *over)
    ]


def _to_alertmanager(settings: Settings, change: Change, now: datetime) -> None:
    chosen = settings.serving.alertmanager
    if chosen is None:
        return
    send(
        chosen.url,
        alert_payload(change, settings=settings, now=now),
        token=read_secret(chosen.token, what="serving.alertmanager.token"),
        ca_file=str(chosen.ca_file) if chosen.ca_file else None,
    )


def _to_webhook(settings: Settings, change: Change, now: datetime) -> None:
    chosen = settings.serving.webhook
    if chosen is None:
        return
    secret = read_secret(chosen.key, what="serving.webhook.key") or ""
    key = SigningKey(secret.encode())
    post = poster(chosen.url, ca_file=str(chosen.ca_file) if chosen.ca_file else None)
    events = [("trouble_fired", one) for one in change.fired]
    events += [("trouble_resolved", one) for one in change.resolved]
    for event, one in events:
        # The same when it is sent again, so that the receiver can drop it.
        name = f"{event}:{one.key}:{one.since}"
        content = {"id": name, "event": event, "site": settings.site, "at": now.isoformat()}
        body = orjson.dumps(content | {"trouble": asdict(one)}, option=orjson.OPT_SORT_KEYS)
        headers = {"Content-Type": "application/json", "User-Agent": "forewarn"}
        try:
            answer = post({**headers, **key.sign(body, key=name, at=now)}, body)
        except NoAnswerError as error:
            raise SourceError(str(error)) from error
        if not answer.is_fine:
            raise SourceError(f"HTTP {answer.status}")


def _is_due(settings: Settings, channel: str, told: Told, now: datetime) -> bool:
    """Whether open alerts must be sent again so that they do not end by themselves."""
    chosen = settings.serving.alertmanager
    if channel != "alertmanager" or chosen is None or not told.open or not told.at:
        return False
    wait = timedelta(minutes=chosen.resend_minutes)
    return not timedelta(0) <= now - datetime.fromisoformat(told.at) < wait
