"""Tells alerts to a site's own address as signed requests, each at least once, under one key.

Signatures are those of the hook's webhook (`remediation.actuators.webhook_signature`), so that one
receiver can check both. A receiver remembers `Idempotency-Key`: a request whose answer was lost
comes again with the same key.
"""

import logging
from dataclasses import replace
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
_MOST: Final = 200
"""Events told at a time: an address that hangs must not hold up the next tick for long."""


def tell(
    events: tuple[Event, ...], *, post: Post, key: SigningKey, site: str, now: datetime
) -> tuple[Event, ...]:
    """Sends the events that are due, in order; one that fails stays, and later ones with it.

    Args:
        events: What is to be told, oldest first.
        post: Sends one request.
        key: Signs it.
        site: The site.
        now: The present.

    Returns:
        What is still to be told.
    """
    fresh = [one for one in events if now - one.at < GIVE_UP]
    if len(fresh) < len(events):
        _LOG.error("webhook: %d events given up after %s", len(events) - len(fresh), GIVE_UP)
    for position, event in enumerate(fresh[:_MOST]):
        if event.next_try is not None and event.next_try > now:
            return tuple(fresh[position:])
        problem = _try(event, post=post, key=key, site=site, now=now)
        if problem is not None:
            wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2**event.attempts)
            _LOG.warning("webhook: %s; again in %s", problem, wait)
            later = replace(event, attempts=event.attempts + 1, next_try=now + wait)
            # Later ones wait: a node that is told to be well before it was told to be ill.
            return (later, *fresh[position + 1 :])
    return tuple(fresh[_MOST:])


def body_of(event: Event, *, site: str) -> bytes:
    """The request's body: JSON with `id`, `event`, `site`, `at` and the alert."""
    alert = event.alert.to_dict()
    said = {"id": event.key, "event": event.kind, "site": site, "at": event.at.isoformat()}
    return orjson.dumps({**said, "alert": alert}, option=orjson.OPT_SORT_KEYS)


def _try(event: Event, *, post: Post, key: SigningKey, site: str, now: datetime) -> str | None:
    """What went wrong; None: it was taken."""
    body = body_of(event, site=site)
    plain = {"Content-Type": "application/json", "User-Agent": "forewarn"}
    try:
        answer = post({**plain, **key.sign(body, key=event.key, at=now)}, body)
    except NoAnswerError as error:
        return str(error)
    return None if answer.is_fine else f"HTTP {answer.status}"
