"""How answers are written: JSON bytes, one shape of errors, entity tags.

What answers hold is in `shapes`; who may have one is in `gate`.
"""

import gzip
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import orjson
from fastapi import Request
from fastapi.responses import Response

from features.errors import ForewarnError
from pipelines.api.fleet_view import Snapshot

PROBLEM: Final = "application/problem+json"
JSON: Final = "application/json"
GZIP_FROM: Final = 1500
"""Below it an answer fits one packet, compressed or not."""
MOST_KEPT: Final = 4096
"""Answers kept of one tick; a page of 100 rows is about 50 kB, and few are that long."""
MOST_KEPT_BYTES: Final = 100_000_000
_TITLES: Final = {
    400: "Bad request", 401: "Not authenticated", 403: "Not allowed", 404: "Not found",
    405: "Method not allowed", 409: "Conflict", 410: "Gone", 413: "Too large",
    421: "Misdirected request", 422: "Not acceptable input", 429: "Too many requests",
    500: "Internal error", 503: "Not available at present",
}  # fmt: skip


class ApiError(ForewarnError):
    """An answer that is an error.

    Args:
        status: HTTP status.
        detail: What is wrong and what to do, without anything of this machine.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def problem_bytes(status: int, detail: str, *, errors: list[dict[str, str]] | None = None) -> bytes:
    """The body of an error (RFC 9457).

    Args:
        status: HTTP status.
        detail: In words.
        errors: Where in the request, and what.
    """
    said: dict[str, Any] = {
        "type": "about:blank",
        "title": _TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
    }
    return orjson.dumps(said if errors is None else said | {"errors": errors})


def problem(
    status: int,
    detail: str,
    *,
    errors: list[dict[str, str]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error as an answer; arguments as in `problem_bytes`."""
    return Response(
        problem_bytes(status, detail, errors=errors),
        status_code=status,
        media_type=PROBLEM,
        headers=dict(headers or {}),
    )


def json_bytes(value: object) -> bytes:
    """Values as JSON; times in UTC end in Z, and what is not a number is null."""
    return orjson.dumps(value, option=orjson.OPT_UTC_Z | orjson.OPT_SERIALIZE_NUMPY)


def json_answer(request: Request, value: object) -> Response:
    """Values as an answer, compressed where that pays."""
    return _sized(request, json_bytes(value), {"cache-control": "no-store"})


def tick_answer(
    request: Request,
    snapshot: Snapshot,
    *,
    now: datetime,
    make: Callable[[Snapshot], Mapping[str, Any]],
) -> Response:
    """An answer that depends on the tick and the request's address alone: made once, then kept.

    Args:
        request: The request.
        snapshot: The tick.
        now: The present: an answer from an expired tick is another answer.
        make: Makes its values, beside those of the tick itself.
    """
    is_expired = snapshot.is_expired(now)
    tag = f'W/"{snapshot.etag}{"-expired" if is_expired else ""}"'
    headers = {"etag": tag, "cache-control": "private, no-cache", "vary": "accept-encoding"}
    if _matches(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    key = (request.url.path, request.url.query, is_expired)
    body = snapshot.kept.get(key)
    if body is None:
        body = json_bytes({**about_tick(snapshot, is_expired=is_expired), **make(snapshot)})
        _keep(snapshot, key, body)
    if len(body) < GZIP_FROM or not _takes_gzip(request):
        return Response(body, media_type=JSON, headers=headers)
    packed = snapshot.kept.get((*key, "gzip"))
    if packed is None:
        packed = gzip.compress(body, compresslevel=4, mtime=0)
        _keep(snapshot, (*key, "gzip"), packed)
    return Response(packed, media_type=JSON, headers=headers | {"content-encoding": "gzip"})


def about_tick(snapshot: Snapshot, *, is_expired: bool) -> dict[str, Any]:
    """What every answer from a tick says of it, as `shapes.TickHead`."""
    tick = snapshot.tick
    return {
        "as_of": tick.as_of,
        "published_at": tick.published_at,
        "expires_at": tick.expires_at,
        "is_expired": is_expired,
        "trained_on": tick.trained_on,
    }


def _keep(snapshot: Snapshot, key: tuple[object, ...], body: bytes) -> None:
    """Keeps an answer while there is room: what comes with the tick goes with it."""
    kept = snapshot.kept
    size = kept.get("bytes", 0) + len(body)
    if len(kept) < MOST_KEPT and size <= MOST_KEPT_BYTES:
        kept[key] = body
        kept["bytes"] = size


def _sized(request: Request, body: bytes, headers: dict[str, str]) -> Response:
    headers["vary"] = "accept-encoding"
    if len(body) >= GZIP_FROM and _takes_gzip(request):
        body = gzip.compress(body, compresslevel=4, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, media_type=JSON, headers=headers)


def _takes_gzip(request: Request) -> bool:
    offered = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
    return "gzip" in offered


def _matches(header: str | None, tag: str) -> bool:
    if header is None:
        return False
    weak = tag.removeprefix("W/")
    return any(
        one.strip() == "*" or one.strip().removeprefix("W/") == weak for one in header.split(",")
    )
