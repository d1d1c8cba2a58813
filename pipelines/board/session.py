"""Logins of people at the board: a token once, then a cookie that says nothing by itself.

Tokens and roles are in `pipelines.api.access`; nothing is kept on disk, so a restart ends all.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final

from pipelines.api.access import Caller

COOKIE: Final = "forewarn_session"
MOST_SESSIONS: Final = 1000


@dataclass(frozen=True)
class Session:
    """A login.

    Attributes:
        caller: Who.
        csrf: What a form of theirs must hold.
        ends_at: When it ends, by the board's clock.
    """

    caller: Caller
    csrf: str = field(repr=False)
    ends_at: float


class Sessions:
    """The logins that hold at present.

    Args:
        seconds: How long one lasts.
        clock: Seconds that only go forward.
    """

    def __init__(self, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._by_digest: dict[bytes, Session] = {}
        self._lock = threading.Lock()

    def begin(self, caller: Caller) -> str:
        """Begins a login.

        Returns:
            The cookie's value; only its hash is kept.
        """
        value = secrets.token_urlsafe(32)
        session = Session(caller, secrets.token_urlsafe(32), self._clock() + self.seconds)
        with self._lock:
            self._forget_ended()
            while len(self._by_digest) >= MOST_SESSIONS:
                self._by_digest.pop(next(iter(self._by_digest)))
            self._by_digest[_digest(value)] = session
        return value

    def end(self, value: str) -> None:
        """Ends a login."""
        with self._lock:
            self._by_digest.pop(_digest(value), None)

    def find(self, value: str | None) -> Session | None:
        """The login of a cookie; None: there is none, or it has ended."""
        if not value:
            return None
        with self._lock:
            found = self._by_digest.get(_digest(value))
        return found if found is not None and self._clock() < found.ends_at else None

    def caller_of(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        """Who asks, by the headers of a request."""
        found = self.find(cookie_of(headers.get(b"cookie", b"").decode("latin-1"), COOKIE))
        return None if found is None else found.caller

    def _forget_ended(self) -> None:
        now = self._clock()
        for digest in [d for d, one in self._by_digest.items() if now >= one.ends_at]:
            del self._by_digest[digest]


def is_own_form(session: Session | None, given: str) -> bool:
    """Whether a form was made by this board for this login."""
    return session is not None and hmac.compare_digest(
        session.csrf.encode(), given.encode("utf-8", "surrogateescape")
    )


def cookie_of(header: str, name: str) -> str | None:
    """A cookie's value out of a Cookie header; None: it is not there."""
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()
