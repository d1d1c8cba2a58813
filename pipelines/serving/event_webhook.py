"""Tells alerts to a site's own address as signed requests, each at least once, under one key.

Signatures are those of the hook's webhook (`remediation.actuators.webhook_signature`), so that one
receiver can check both. A receiver remembers `Idempotency-Key`: a request whose answer was lost
comes again with the same key.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import orjson

from pipelines.serving.alert_book import Event
from remediation.actuators.exchange import NoAnswerError
from remediation.actuators.webhook import Post
from remediation.actuators.webhook_signature import SigningKey

_LOG: Final = logging.getLogger(__name__)
_FIRST_WAIT: Final = timedelta(seconds=30)
_LONGEST_WAIT: Final = timedelta(hours=1)
GIVE_UP: Final = timedelta(hours=24)
"""An event older than this is news to nobody."""
MOST_S: Final = 60.0
"""Longest time of telling: an address that is slow must not hold up the next tick for long."""
_ITS_OWN_FAULT: Final = frozenset({400, 409, 413, 422})
"""Answers that may be about one event: those of other nodes are told all the same."""


@dataclass(frozen=True)
class Refused:
    """What an event met with.

    Attributes:
        words: What went wrong.
        is_for_all: Whether others would meet with the same.
    """

    words: str
    is_for_all: bool


def tell(
    events: tuple[Event, ...],
    *,
    post: Post,
    key: SigningKey,
    site: str,
    now: datetime,
    elapsed: Callable[[], float] | None = None,
) -> tuple[Event, ...]:
    """Sends the events that are due, in order; one that fails stays, and later ones with it.

    Where the receiver refuses that one, only events of the same node wait for it.

    Args:
        events: What is to be told, oldest first.
        post: Sends one request.
        key: Signs it.
        site: The site.
        now: The present.
        elapsed: Seconds since then; None: by the clock of this machine.

    Returns:
        What is still to be told.
    """
    elapsed = elapsed or _since_now()
    fresh = [one for one in events if now - one.at < GIVE_UP]
    if len(fresh) < len(events):
        _LOG.error("webhook: %d events given up after %s", len(events) - len(fresh), GIVE_UP)
    left: list[Event] = []
    held_up: set[str] = set()
    for position, event in enumerate(fresh):
        if elapsed() > MOST_S:
            return (*left, *fresh[position:])
        if event.alert.node in held_up:
            left.append(event)
            continue
        # When it is sent, not when telling began: a receiver refuses a signature of long ago.
        at = now + timedelta(seconds=elapsed())
        later = event
        if not _waits(event, at):
            refused = _try(event, post=post, key=key, site=site, now=at)
            if refused is None:
                continue
            later = _again(event, refused, at=at)
        if later.is_held_for_all:
            return (*left, later, *fresh[position + 1 :])
        # A node that is told to be well before it was told to be ill.
        held_up.add(event.alert.node)
        left.append(later)
    return tuple(left)


def body_of(event: Event, *, site: str) -> bytes:
    """The request's body: JSON with `id`, `event`, `site`, `at` and the alert."""
    alert = event.alert.to_dict()
    said = {"id": event.key, "event": event.kind, "site": site, "at": event.at.isoformat()}
    return orjson.dumps({**said, "alert": alert}, option=orjson.OPT_SORT_KEYS)


def _since_now() -> Callable[[], float]:
    began = time.monotonic()
    return lambda: time.monotonic() - began


def _again(event: Event, refused: Refused, *, at: datetime) -> Event:
    """The event as it is tried again, later each time."""
    wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(event.attempts, 20))
    _LOG.warning("webhook: %s; again in %s", refused.words, wait)
    return replace(
        event,
        attempts=event.attempts + 1,
        next_try=at + wait,
        is_held_for_all=refused.is_for_all,
    )


def _waits(event: Event, at: datetime) -> bool:
    """Whether it is not yet to be tried; a time further off is of a clock that was wrong."""
    return event.next_try is not None and timedelta(0) < event.next_try - at <= _LONGEST_WAIT


def _try(event: Event, *, post: Post, key: SigningKey, site: str, now: datetime) -> Refused | None:
    """What went wrong; None: it was taken."""
    body = body_of(event, site=site)
    plain = {"Content-Type": "application/json", "User-Agent": "forewarn"}
    try:
        answer = post({**plain, **key.sign(body, key=event.key, at=now)}, body)
    except NoAnswerError as error:
        return Refused(str(error), is_for_all=True)
    if answer.is_fine:
        return None
    return Refused(f"HTTP {answer.status}", is_for_all=answer.status not in _ITS_OWN_FAULT)
