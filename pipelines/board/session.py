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
from typing import Final

from starlette.requests import cookie_parser

from pipelines.api.access import Caller

COOKIE: Final = "forewarn_session"
MOST_SESSIONS: Final = 1000
MOST_OF_ONE: Final = 20
"""Logins of one token: whoever begins more ends their own oldest, and nobody else's."""


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
            own = [d for d, one in self._by_digest.items() if one.caller == caller]
            for digest in own[: max(0, len(own) + 1 - MOST_OF_ONE)]:
                del self._by_digest[digest]
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
        # As requests read it: a cookie of a neighbour that is none must not end our login.
        cookies = cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))
        found = self.find(cookies.get(COOKIE))
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


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()
