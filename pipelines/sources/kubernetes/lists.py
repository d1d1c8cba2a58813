"""Lists of a Kubernetes API, page by page: tries again within limits, and survives expiry.

What the objects mean is in `kubernetes.reader`.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

import orjson

from features.clock import Clock, utc_now
from pipelines.sources.http.errors import AnswerError, HttpError
from pipelines.sources.kubernetes.client import ApiAnswer, KubernetesApi
from pipelines.sources.kubernetes.objects import Json, cut, mapping, text

_TRY_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_WORDS: Final = 300


@dataclass(frozen=True)
class ListLimits:
    """How much and how often.

    Attributes:
        page_size: Objects asked for at a time.
        attempts: Tries of one page, the first included.
        restarts: How often a list may expire and be started anew.
        first_wait_s: Wait before the second try; it doubles, with jitter.
        longest_wait_s: Longest wait; a server that asks for more is an error.
    """

    page_size: int = 500
    attempts: int = 5
    restarts: int = 3
    first_wait_s: float = 0.5
    longest_wait_s: float = 60.0


@dataclass(frozen=True)
class Page:
    """Some objects of a list.

    Attributes:
        kind: Kind of the objects, as the list names it; None: it does not.
        objects: The objects, any JSON.
    """

    kind: str | None
    objects: list[Any]


@dataclass(frozen=True)
class Waits:
    """Clock and chance, injected in tests.

    Attributes:
        sleep: Waits.
        jitter: Number in [0, 1) that spreads tries.
        now: Wall clock, for `Retry-After` dates.
    """

    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    now: Clock = utc_now


def list_pages(
    api: KubernetesApi,
    path: str,
    *,
    params: Mapping[str, str] | None = None,
    limits: ListLimits | None = None,
    waits: Waits | None = None,
) -> Iterator[Page]:
    """Lists objects.

    A list whose place in time has expired (410) goes on with the token that the server offers
    instead, and is started anew where it offers none: objects may then come twice.

    Args:
        api: The server.
        path: The list, `/api/v1/nodes`.
        params: Selectors.
        limits: See `ListLimits`.
        waits: Clock and chance.

    Yields:
        Pages in order.

    Raises:
        HttpError: The server refused, could not be reached, or the list kept expiring.
    """
    limits, waits = limits or ListLimits(), waits or Waits()
    token, restarts = "", 0
    while True:
        query = {**(params or {}), "limit": str(limits.page_size)}
        if token:
            query["continue"] = token
        try:
            found = get_json(api, path, query, limits=limits, waits=waits)
        except HttpError as error:
            if error.status != 410 or restarts >= limits.restarts:
                raise
            restarts += 1
            token = _other_token(error)
            continue
        kind = text(found, "kind") or ""
        yield Page(kind.removesuffix("List") or None, _items(found, f"{api.address}{path}"))
        before, token = token, text(mapping(found, "metadata"), "continue") or ""
        if not token:
            return
        if token == before:
            raise _unusable(f"{api.address}{path}", "the list goes on where it was, without end")


def get_json(
    api: KubernetesApi,
    path: str,
    params: Mapping[str, str],
    *,
    limits: ListLimits | None = None,
    waits: Waits | None = None,
) -> Json:
    """Asks for one object, again where that may help.

    Args:
        api: The server.
        path: What is asked for.
        params: Query.
        limits: See `ListLimits`.
        waits: Clock and chance.

    Raises:
        HttpError: The server refused, could not be reached, or its answers stayed unusable.
    """
    limits, waits = limits or ListLimits(), waits or Waits()
    attempt = 1
    while True:
        found, wait = _attempt(api, path, params, waits)
        if not isinstance(found, HttpError):
            return found
        if not found.may_pass or attempt >= limits.attempts:
            raise _advised(found, attempt)
        pause = limits.first_wait_s * 2 ** (attempt - 1) * (1 + waits.jitter())
        pause = min(pause, limits.longest_wait_s)
        if wait is not None and wait > limits.longest_wait_s:
            raise _advised(found, attempt, asked_wait=wait)
        waits.sleep(max(pause, wait or 0.0))
        attempt += 1


def _attempt(
    api: KubernetesApi, path: str, params: Mapping[str, str], waits: Waits
) -> tuple[Json | HttpError, float | None]:
    """One try: the object, or the error and the wait the server asks for."""
    what = f"{api.address}{path}"
    try:
        answer = api.get(path, params)
    except AnswerError as error:
        failed = HttpError(
            f"{what} failed: {error}",
            status=None,
            may_pass=error.may_pass,
            is_too_much=error.is_too_much,
        )
        return failed, None
    if 200 <= answer.status <= 299:
        found = _object(answer.body)
        if found is not None:
            return found, None
        words = "the answer is no JSON object"
        return HttpError(f"{what} failed: {words}", status=None, may_pass=True), None
    status = _object(answer.body) or {}
    words = cut(text(status, "message") or answer.body[:_WORDS].decode(errors="replace"))
    refusal = HttpError(
        f"{what} failed: HTTP {answer.status} {words[:_WORDS]}".rstrip(),
        status=answer.status,
        may_pass=answer.status in _TRY_AGAIN,
        words=text(mapping(status, "metadata"), "continue") or "",
    )
    return refusal, _asked_wait(answer, waits)


def _items(found: Json, what: str) -> list[Any]:
    """The objects of a list; null is how some servers write that there are none."""
    objects = found.get("items", 0)
    if objects is None:
        return []
    if not isinstance(objects, list):
        raise _unusable(what, "the answer is no list of objects")
    return objects


def _unusable(what: str, why: str) -> HttpError:
    return HttpError(
        f"{what} failed: {why}. Check that the address is that of a Kubernetes API server, and "
        f"what stands between.",
        status=None,
        may_pass=False,
    )


def _other_token(error: HttpError) -> str:
    """The token that an expired list may go on with; empty: it must be started anew."""
    return error.words if error.status == 410 else ""


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _asked_wait(answer: ApiAnswer, waits: Waits) -> float | None:
    """Seconds that `Retry-After` asks for: a number or a date."""
    words = answer.retry_after.strip()
    if words.isascii() and words.isdecimal():
        return float(words[:9])
    try:
        moment = parsedate_to_datetime(words)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - waits.now()).total_seconds(), 0.0)


def _advised(error: HttpError, attempts: int, *, asked_wait: float | None = None) -> HttpError:
    """The error with what was tried and what to do next."""
    tried = "" if attempts == 1 else f" ({attempts} tries)"
    if asked_wait is not None:
        advice = f"The server asks to wait {asked_wait:g} s; run again later"
    elif error.is_too_much:
        advice = "Ask for smaller pages (page_size)"
    elif error.status == 401:
        advice = "Log in anew, or check the user of the kubeconfig or the service account"
    elif error.status == 403:
        advice = "Give this user a role that may list the resource"
    elif error.status == 404:
        advice = "Check that the address is that of a Kubernetes API server"
    else:
        advice = "Check that the API server is up and not overloaded, then run again"
    return HttpError(
        f"{str(error).rstrip('.')}{tried}. {advice}.",
        status=error.status,
        may_pass=error.may_pass,
        words=error.words,
    )
