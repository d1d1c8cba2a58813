"""A small HTTP client for sources: secrets by reference, limits on time, size, retries and load.

What a server's answers mean is not known here; a caller hands in the function that reads them.
"""

import http.client
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.cookiejar import DefaultCookiePolicy
from typing import Final, Generic, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from features.clock import Clock, utc_now
from pipelines.sources.http.auth import safe_url
from pipelines.sources.http.errors import AnswerError, HttpError
from pipelines.sources.http.reply import HttpReply, deadline
from pipelines.sources.http.settings import HttpSettings, checked_address

T = TypeVar("T")

_WORDS: Final = 300  # characters of a server's own error text that are shown
_WORDS_READ: Final = 1 << 16
_MOST_REDIRECTS: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TRY_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Call:
    """One request.

    Attributes:
        method: GET or POST.
        path: Below the base address.
        params: Query of a GET, form of a POST.
        body: Body of a POST instead of a form.
        headers: Headers of this request.
        what: What it asks for, in words, for errors.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    what: str = "a request"


class HttpClient:
    """Speaks to one server; safe to share between threads.

    Args:
        settings: The server.
        sleep: Waits; injected in tests.
        clock: Monotonic seconds; injected in tests.
        now: Wall clock, for `Retry-After` dates; injected in tests.
        jitter: Number in [0, 1) that spreads retries; injected in tests.

    Raises:
        SettingsError: The address is none, carries credentials, or the limits allow nothing.
    """

    def __init__(
        self,
        settings: HttpSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Clock = utc_now,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self.address = checked_address(settings)
        self._sleep, self._clock, self._now, self._jitter = sleep, clock, now, jitter
        self._gate = threading.Lock()
        self._not_before = float("-inf")
        self._session = requests.Session()
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        adapter = HTTPAdapter(pool_maxsize=max(settings.limits.concurrent, 1))
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()

    def fetch(
        self,
        call: Call,
        consume: Callable[[HttpReply], T],
        *,
        is_final: Callable[[HttpError], bool] | None = None,
    ) -> T:
        """Makes a request, again where that may help, and reads the answer.

        A server that answers 429 or 503 with `Retry-After` holds back every thread's next
        request, not only this one.

        Args:
            call: The request.
            consume: Reads the answer; called anew for each try, so it must keep nothing.
            is_final: Tells refusals that no further try would change.

        Returns:
            What `consume` returned.

        Raises:
            HttpError: The server refused, could not be reached, or its answers stayed damaged.
        """
        limits = self.settings.limits
        attempt = 1
        while True:
            self._wait_for_turn()
            error, asked_wait = self._attempt(call, consume)
            if not isinstance(error, HttpError):
                return error.value
            if not error.may_pass or (is_final and is_final(error)) or attempt >= limits.attempts:
                raise error.after(attempt)
            wait = limits.first_wait_s * 2 ** (attempt - 1) * (1 + self._jitter())
            wait = min(wait, limits.longest_wait_s)
            if asked_wait is not None:
                if asked_wait > limits.longest_wait_s:
                    raise error.after(attempt, asked_wait=asked_wait)
                wait = max(wait, asked_wait)
                with self._gate:
                    self._not_before = max(self._not_before, self._clock() + asked_wait)
            self._sleep(wait)
            attempt += 1

    def _wait_for_turn(self) -> None:
        with self._gate:
            wait = self._not_before - self._clock()
        if wait > 0:
            self._sleep(wait)

    def _attempt(
        self, call: Call, consume: Callable[[HttpReply], T]
    ) -> tuple["_Taken[T] | HttpError", float | None]:
        """One try: what was read, or the error and the wait the server asks for."""
        limits = self.settings.limits
        try:
            with closing(self._send(call)) as response:
                if not response.ok:
                    words = self._words(response)
                    error = self._error(call, words, status=response.status_code)
                    return error, self._asked_wait(response)
                late = threading.Event()
                reply = HttpReply(response, max_bytes=limits.max_bytes, is_late=late.is_set)
                with deadline(response, limits.total_s, late):
                    return _Taken(consume(reply)), None
        except AnswerError as error:
            return self._error(call, str(error), answer=error), None
        except requests.RequestException as error:
            return self._error(call, self._scrub(_cause(error)), transport=error), None

    def _send(self, call: Call) -> requests.Response:
        """Sends the request; follows redirects only within the same host."""
        url = self.address + call.path
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._session.request(
                call.method,
                url,
                params=list(call.params) if call.method == "GET" else None,
                data=call.body if call.body is not None else self._form(call),
                headers={"Accept-Encoding": "identity", **self.settings.headers, **call.headers},
                # Always set: without it requests would look for a password in a .netrc file.
                auth=self._sign,
                timeout=(self.settings.limits.connect_s, self.settings.limits.read_s),
                verify=True if self.settings.ca_file is None else str(self.settings.ca_file),
                allow_redirects=False,
                stream=True,
            )
            if response.status_code not in _REDIRECTS:
                return response
            response.close()
            url = self._redirected(call, url, response.headers.get("Location", ""))
        raise AnswerError(f"more than {_MOST_REDIRECTS} redirects")

    @staticmethod
    def _form(call: Call) -> list[tuple[str, str]] | None:
        return list(call.params) if call.method == "POST" else None

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.settings.auth is not None:
            request.headers["Authorization"] = self.settings.auth.header()
        return request

    def _redirected(self, call: Call, url: str, location: str) -> str:
        target = urljoin(url, location)
        old, new = urlsplit(url), urlsplit(target)
        is_downgrade = old.scheme == "https" and new.scheme != "https"
        if new.hostname != old.hostname or is_downgrade or call.method != "GET":
            raise HttpError(
                f"{self.address}: the server sends {call.what} on to {safe_url(target)}. It is "
                f"not followed: credentials could leave the host, and a POST would lose its body. "
                f"Set url to the address that answers itself.",
                status=None,
                may_pass=False,
            )
        return target.split("?")[0]

    def _error(
        self,
        call: Call,
        words: str,
        *,
        status: int | None = None,
        answer: AnswerError | None = None,
        transport: requests.RequestException | None = None,
    ) -> HttpError:
        may_pass = status in _TRY_AGAIN if status is not None else True
        if answer is not None:
            may_pass = answer.may_pass
        if isinstance(transport, (requests.exceptions.SSLError, ValueError)):
            may_pass = False  # a certificate or an address does not mend itself
        # A connection that is never made is no sign of too large a question.
        is_timeout = isinstance(transport, requests.ReadTimeout) or (
            transport is not None and "Read timed out" in words
        )
        said = words if status is None else f"HTTP {status} {words}".rstrip()
        error = HttpError(
            f"{self.address}: {call.what} failed: {said}",
            status=status,
            may_pass=may_pass,
            words=words,
            is_timeout=is_timeout,
            is_too_much=status == 413 or (answer is not None and answer.is_too_much),
            is_foreign=answer is not None and answer.is_foreign,
        )
        error.__cause__ = answer or transport
        return error

    def _words(self, response: requests.Response) -> str:
        """The beginning of an error's body, without our secret in it."""
        try:
            raw: bytes = response.raw.read(_WORDS_READ, decode_content=True)
        except (HTTPError, OSError, http.client.HTTPException):
            raw = b""
        text = " ".join(raw.decode("utf-8", errors="replace").split())
        return self._scrub(text)[:_WORDS]

    def _scrub(self, text: str) -> str:
        return text if self.settings.auth is None else self.settings.auth.scrub(text)

    def _asked_wait(self, response: requests.Response) -> float | None:
        """Seconds that `Retry-After` asks for: a number or a date."""
        text = str(response.headers.get("Retry-After", "")).strip()
        if text.isascii() and text.isdecimal():
            return float(text[:9])
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max((moment - self._now()).total_seconds(), 0.0)


@dataclass(frozen=True)
class _Taken(Generic[T]):
    value: T


def _cause(error: requests.RequestException) -> str:
    """A transport error in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"
