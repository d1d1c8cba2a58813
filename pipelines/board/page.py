"""From values to an answer: what every page has around its content, and its headers.

What a page says is in the module of its own.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit

from fastapi import Request
from fastapi.responses import Response

from pipelines.api.access import ANONYMOUS, Caller
from pipelines.api.gate import CALLER
from pipelines.board.desk import Desk
from pipelines.board.look import environment, version
from pipelines.board.session import COOKIE, Session
from pipelines.board.zone import UTC_ZONE, Zone, zone_named

ZONE_COOKIE: Final = "forewarn_zone"
REFRESH_S: Final = 30
SOON_S: Final = 5
"""Seconds after which a page is looked for anew that did not wait for all it shows."""
LINKS: Final = (
    ("/", "Fleet"),
    ("/quality", "Live quality"),
    ("/data", "Data health"),
    ("/models", "Models"),
    ("/audit", "Audit trail"),
)
SECURITY: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What a page shows around its content.

    Attributes:
        site: Name of the installation.
        note: Its note.
        here: The page's own link.
        back: This page's address, to come back to.
        now: The present.
        zone: Whose clocks times are shown on.
        zones: Zones to choose from, each with its label.
        caller_name: Who is logged in; empty: nobody.
        role: What they may do; empty: nobody is logged in.
        csrf: What a form of theirs holds.
        refresh_s: Seconds after which a page is looked for anew; 0: never.
        version: Of style sheet and script.
    """

    site: str
    note: str
    here: str
    back: str
    now: datetime
    zone: Zone
    zones: tuple[tuple[str, str], ...]
    caller_name: str
    role: str
    csrf: str
    refresh_s: int
    version: str
    links: tuple[tuple[str, str], ...] = LINKS

    @property
    def can_act(self) -> bool:
        """Whether this login may ask the hook for something; others are shown no way to."""
        return self.role == "operator"


def session_of(desk: Desk, request: Request) -> Session | None:
    """The login of a request."""
    return desk.sessions.find(request.cookies.get(COOKIE))


def caller_of(request: Request) -> Caller:
    """Who asks, as the gate in front found."""
    found: Caller | None = getattr(request.state, CALLER, None)
    return found or Caller(ANONYMOUS, "read")


def frame_of(desk: Desk, request: Request, *, refresh_s: int = REFRESH_S) -> Frame:
    """What stands around the content of an answer to a request."""
    settings = desk.sources.settings
    site_zone = zone_named(settings.board.time_zone)
    zone = zone_named(request.cookies.get(ZONE_COOKIE) or site_zone.name)
    zones = {UTC_ZONE.name: "UTC", site_zone.name: site_zone.name}
    zones = {**zones, UTC_ZONE.name: "UTC", zone.name: zones.get(zone.name, zone.name)}
    session = session_of(desk, request)
    return Frame(
        site=settings.site,
        note=settings.note,
        here=request.url.path,
        back=address_of(request),
        now=desk.sources.now(),
        zone=zone,
        zones=tuple(zones.items()),
        caller_name="" if session is None else session.caller.name,
        role="" if session is None else session.caller.role,
        csrf="" if session is None else session.csrf,
        refresh_s=refresh_s,
        version=version(),
    )


def address_of(request: Request) -> str:
    """A request's path and query, as a link back to it."""
    query = request.url.query
    return quote(request.url.path) + (f"?{query}" if query else "")


def safe_back(address: str) -> str:
    r"""An address within this board; the fleet page for any other.

    >>> [safe_back(a) for a in ("/node?name=a", "//evil.example/", "https://evil", "/\\evil")]
    ['/node?name=a', '/', '/', '/']
    """
    parts = urlsplit(address)
    is_own = address.startswith("/") and not address.startswith(("//", "/\\"))
    if not is_own or parts.scheme or parts.netloc or not address.isascii():
        return "/"
    return address if address.isprintable() and "\\" not in address else "/"


def respond(
    desk: Desk,
    request: Request,
    template: str,
    values: Mapping[str, Any],
    *,
    status: int = 200,
    refresh_s: int = REFRESH_S,
) -> Response:
    """A page as an answer; none of its content where the browser has the same already.

    Args:
        desk: What pages are made from.
        request: The request.
        template: Name of the template.
        values: What it shows.
        status: HTTP status.
        refresh_s: As in `Frame`.
    """
    if refresh_s and desk.reads.is_late:
        refresh_s = SOON_S  # what was not waited for is looked for again
    page = frame_of(desk, request, refresh_s=refresh_s)
    body = environment().get_template(template).render(page=page, **values).encode()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {
        **SECURITY,
        "etag": etag,
        # A page holds the token of a login: no cache may keep it.
        "cache-control": "no-store",
        "vary": "cookie",
    }
    if status == 200 and request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(body, status_code=status, media_type="text/html", headers=headers)


def problem_page(desk: Desk, request: Request, *, status: int, title: str, words: str) -> Response:
    """A page that says what is wrong and where to go on."""
    values = {"title": title, "words": words}
    return respond(desk, request, "problem.html.j2", values, status=status, refresh_s=0)


def pages(count: int, size: int) -> int:
    """How many pages a count fills; at least one."""
    return max(1, math.ceil(count / size))
