"""The gate in front of every route: host, size, rate, token, and headers of every answer.

Roles and tokens are in `access`. Written as plain ASGI: it runs before anything is parsed.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.api.access import ANONYMOUS, PROXY_HEADERS, Access, Caller, is_loopback
from pipelines.api.answers import PROBLEM, problem_bytes
from pipelines.api.rate_limit import RateLimit, network_of

MOST_BODY: Final = 16_384
MOST_BODY_S: Final = 10.0
MOST_QUERY: Final = 4_096
MOST_PATH: Final = 2_048
API: Final = "/api/"
CALLER: Final = "caller"
ANSWER_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
}
"""Of every answer that has not set its own."""
_HEADERS: Final = [(name.encode(), value.encode()) for name, value in ANSWER_HEADERS.items()]
_AGAIN: Final = {b"www-authenticate": b'Bearer realm="forewarn"'}
_AUTHENTICATE: Final = "send a token: Authorization: Bearer TOKEN"


class _RefusedError(Exception):
    def __init__(
        self, status: int, detail: str, headers: Mapping[bytes, bytes] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}


class Gate:
    """ASGI middleware; leaves the caller in `scope["state"]["caller"]`.

    Args:
        app: What is behind it.
        access: Who may pass.
        clock: Seconds that only go forward.
    """

    def __init__(
        self, app: ASGIApp, *, access: Access, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._access = access
        self._clock = clock
        self._limit = RateLimit(access.rate_per_s, access.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        try:
            headers = _single(scope["headers"])
            self._check_form(scope, headers)
            caller = self._caller(scope, headers)
            self._check_rate(scope, caller)
            self._check_caller(scope, headers, caller)
        except _RefusedError as refused:
            await _refuse(send, refused)
            return
        scope.setdefault("state", {})[CALLER] = caller
        await self._app(scope, _limited(receive, MOST_BODY_S), send)

    def _check_form(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        hosts = self._access.hosts
        if hosts and _host_of(headers.get(b"host", b"")) not in hosts:
            raise _RefusedError(421, "this server does not answer to that Host; see api.hosts")
        if len(scope["query_string"]) > MOST_QUERY or len(scope["path"]) > MOST_PATH:
            raise _RefusedError(413, f"path or query is longer than {MOST_PATH:,} characters")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > MOST_BODY:
            raise _RefusedError(413, f"a request has at most {MOST_BODY:,} bytes")

    def _caller(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Caller | None:
        """Who asks; None: nobody known."""
        access, given = self._access, headers.get(b"authorization")
        if given is not None:
            scheme, _, token = given.decode("latin-1").partition(" ")
            found = access.caller_of(token.strip()) if scheme.lower() == "bearer" else None
            if found is None:
                self._check_rate(scope, None)  # guesses are counted by address
                raise _RefusedError(401, f"the token is not valid here; {_AUTHENTICATE}", _AGAIN)
            return found
        if access.session is not None and not scope["path"].startswith(API):
            session = access.session(headers)
            if session is not None:
                return session
        client = scope.get("client")
        is_near = client is not None and is_loopback(client[0])
        is_direct = not any(name in headers for name in PROXY_HEADERS)
        if access.is_open and is_near and is_direct:
            return Caller(ANONYMOUS, "read")
        return None

    def _check_rate(self, scope: Scope, caller: Caller | None) -> None:
        client = scope.get("client")
        who = f"address:{network_of(client[0]) if client else ''}"
        if caller is not None and caller.name != ANONYMOUS:
            who = f"token:{caller.name}"
        wait = self._limit.wait_s(who, now_s=self._clock())
        if wait > 0:
            seconds = str(max(1, round(wait + 0.5))).encode()
            raise _RefusedError(429, "too many requests; slow down", {b"retry-after": seconds})

    def _check_caller(
        self, scope: Scope, headers: Mapping[bytes, bytes], caller: Caller | None
    ) -> None:
        path = scope["path"]
        if caller is not None or _is_open(path, self._access.open_paths):
            return
        login = self._access.login_path
        if login is not None and not path.startswith(API) and scope["method"] in ("GET", "HEAD"):
            here = quote(path) + ("?" + scope["query_string"].decode("latin-1")).rstrip("?")
            location = f"{login}?next={quote(here, safe='')}"
            raise _RefusedError(303, "log in first", {b"location": location.encode()})
        if any(name in headers for name in PROXY_HEADERS):
            raise _RefusedError(401, f"through a proxy, {_AUTHENTICATE}", _AGAIN)
        raise _RefusedError(401, _AUTHENTICATE, _AGAIN)


def _is_open(path: str, open_paths: tuple[str, ...]) -> bool:
    """Whether a path is one of them, or below one that ends in a slash."""
    return any(path.startswith(one) if one.endswith("/") else path == one for one in open_paths)


def _single(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name; where one that decides comes twice, nobody could say which counts."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in found and name in (b"host", b"authorization", b"content-length"):
            raise _RefusedError(400, f"header {name.decode('latin-1')} is there twice")
        found[name] = found[name] + b"; " + value if name in found else value
    return found


def _host_of(header: bytes) -> str:
    """The host of a Host header, without port and brackets."""
    text = header.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _limited(receive: Receive, seconds: float) -> Receive:
    """Ends a body that is longer than it said it would be, or that takes for ever."""
    seen, is_whole, ends_at = 0, False, asyncio.get_running_loop().time() + seconds

    async def limited() -> Message:
        nonlocal seen, is_whole
        try:
            async with asyncio.timeout_at(None if is_whole else ends_at):
                message = await receive()
        except TimeoutError:
            message = {"type": "http.disconnect"}
        seen += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        # As if the client had gone: what was read is thrown away with it.
        return message if seen <= MOST_BODY else {"type": "http.disconnect"}

    return limited


def _with_headers(send: Send) -> Send:
    """Adds the headers of every answer, where a route has not set its own."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            more = [(name, value) for name, value in _HEADERS if name not in present]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return sending


async def _refuse(send: Send, refused: _RefusedError) -> None:
    body = problem_bytes(refused.status, refused.detail)
    headers = [
        (b"content-type", PROBLEM.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *refused.headers.items(),
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
