"""One HTTP exchange: what was answered, or whether the request may have acted unanswered.

What is asked and what an answer means belongs to the actuators; nothing is tried again here.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from ssl import SSLCertVerificationError
from typing import Any, Final

from features.clock import Clock, utc_now
from features.errors import SourceError

_PIECE: Final = 1 << 20
_WORDS: Final = 300


class NoAnswerError(SourceError):
    """No whole answer came.

    Args:
        words: Why.
        may_have_acted: Whether the request may have reached the server; False: it surely did not.
    """

    def __init__(self, words: str, *, may_have_acted: bool) -> None:
        super().__init__(words)
        self.may_have_acted = may_have_acted


@dataclass(frozen=True)
class Answer:
    """What a server answered.

    Attributes:
        status: HTTP status.
        body: The body.
        retry_after: What it says of trying again; empty: nothing.
        date: Its own time, as the header says; empty: it says none.
    """

    status: int
    body: bytes = b""
    retry_after: str = ""
    date: str = ""

    @property
    def is_fine(self) -> bool:
        """Whether the request was carried out, by its status."""
        return 200 <= self.status <= 299


@dataclass(frozen=True)
class Patience:
    """How long one exchange may take.

    Attributes:
        connect_s: Longest wait for a connection.
        read_s: Longest silence.
        total_s: Longest time of one answer in all.
        max_bytes: Longest answer.
    """

    connect_s: float = 5.0
    read_s: float = 30.0
    total_s: float = 120.0
    max_bytes: int = 64 << 20


@dataclass(frozen=True)
class Waits:
    """Clock and sleep, injected in tests.

    Attributes:
        sleep: Waits some seconds.
        now: The present, with a time zone.
    """

    sleep: Callable[[float], None] = time.sleep
    now: Clock = utc_now

    def asked(self, answer: Answer) -> float | None:
        """The seconds that an answer asks to wait; None: it asks for none that can be read."""
        said = answer.retry_after.strip()
        if said.isascii() and said.isdigit() and len(said) <= 9:
            return float(said)
        try:
            at = parsedate_to_datetime(said)
        except (ValueError, IndexError, TypeError):
            return None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max(0.0, (at - self.now()).total_seconds())


def exchange(
    pool: Any,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    patience: Patience,
) -> Answer:
    """Sends one request, once; redirects are not followed.

    Args:
        pool: A pool manager of urllib3.
        method: GET, POST, PATCH.
        url: Address with query.
        headers: Headers.
        body: Body.
        patience: Time limits.

    Returns:
        The answer, whatever its status.

    Raises:
        NoAnswerError: None came, or not a whole one.
    """
    import urllib3
    from urllib3 import exceptions as faults

    try:
        response = pool.request(
            method,
            url,
            headers=dict(headers),
            body=body,
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=urllib3.Timeout(connect=patience.connect_s, read=patience.read_s),
        )
        with closing(response):
            content = _content(response, patience)
            asked = str(response.headers.get("Retry-After", ""))
            return Answer(response.status, content, asked, str(response.headers.get("Date", "")))
    except (faults.NewConnectionError, faults.ConnectTimeoutError) as error:
        raise NoAnswerError(_words(error), may_have_acted=False) from None
    except (faults.HTTPError, OSError) as error:
        is_stranger = any(isinstance(part, SSLCertVerificationError) for part in error.args)
        raise NoAnswerError(_words(error), may_have_acted=not is_stranger) from None


def _content(response: Any, patience: Patience) -> bytes:
    pieces, size = [], 0
    until = time.monotonic() + patience.total_s
    for piece in response.stream(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > patience.max_bytes:
            raise NoAnswerError(
                f"the answer is longer than {patience.max_bytes:,} bytes", may_have_acted=True
            )
        if time.monotonic() > until:
            raise NoAnswerError(
                f"the answer took longer than {patience.total_s:g} s", may_have_acted=True
            )
    return b"".join(pieces)


def _words(error: Exception) -> str:
    """The kind of a fault: its own words may quote headers, and secrets with them."""
    kind = type(error).__name__
    cause = error.args[-1] if error.args else None
    told = cause if isinstance(cause, OSError) else error if isinstance(error, OSError) else None
    said = getattr(told, "strerror", None)
    return f"{kind}: {said}"[:_WORDS] if said else kind
