"""Routes that take a form: login, logout, time zone, and what operators ask of the hook.

A form must come from this board: by its origin, and past the login by the token of the session.
Nothing is acted on; a request is signed and put into the hook's inbox.
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.requests import ClientDisconnect

from pipelines.api.answers import ApiError
from pipelines.board.act_page import TITLES, plan_of, values_of, wish_of
from pipelines.board.desk import Desk
from pipelines.board.page import (
    SECURITY,
    ZONE_COOKIE,
    address_of,
    frame_of,
    problem_page,
    respond,
    safe_back,
    session_of,
)
from pipelines.board.routes import guarded
from pipelines.board.session import COOKIE, Session, is_own_form
from pipelines.board.zone import zone_named

_LOG: Final = logging.getLogger(__name__)
_FORM: Final = "application/x-www-form-urlencoded"
_YEAR_S: Final = 365 * 24 * 3600
_WRONG: Final = "This token is not valid here."
_MOST_FIELDS: Final = 10
Short = Annotated[str, Query(max_length=300)]


async def _posted(request: Request) -> Mapping[str, str]:
    """The fields of a form, each once; the gate has bounded its size."""
    if not request.headers.get("content-type", "").startswith(_FORM):
        return {}
    try:
        body = (await request.body()).decode("ascii")
        fields = parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except (ValueError, ClientDisconnect):
        return {}
    return dict(fields)


Posted = Annotated[Mapping[str, str], Depends(_posted)]


def form_router(desk: Desk) -> APIRouter:
    """The routes.

    Args:
        desk: What pages are made from.
    """
    router = APIRouter(include_in_schema=False)
    _add_login(router, desk)
    _add_logout(router, desk)
    _add_zone(router, desk)
    _add_acts(router, desk)
    return router


def _add_login(router: APIRouter, desk: Desk) -> None:
    def login_page(request: Request, *, back: str, words: str = "", status: int = 200) -> Response:
        values = {"next": safe_back(back), "words": words, "n_tokens": len(desk.access.tokens)}
        return respond(desk, request, "login.html.j2", values, status=status, refresh_s=0)

    @router.get("/login")
    def ask(request: Request, next: Annotated[str, Query(max_length=2000)] = "/") -> Response:  # noqa: A002
        """Asks for a token."""
        return login_page(request, back=next)

    @router.post("/login")
    def login(request: Request, form: Posted) -> Response:
        """Begins a session."""
        back = form.get("next", "/")
        if not is_same_origin(request):
            return _foreign(desk, request)
        caller = desk.access.caller_of(form.get("token", "").strip())
        if caller is None:
            _LOG.warning("a login from %s was refused", request.client and request.client.host)
            return login_page(request, back=back, words=_WRONG, status=401)
        before = request.cookies.get(COOKIE)
        if before:
            desk.sessions.end(before)
        answer = _see(safe_back(back))
        answer.set_cookie(
            COOKIE,
            desk.sessions.begin(caller),
            max_age=int(desk.sessions.seconds),
            httponly=True,
            samesite="strict",
            # Behind a proxy that speaks TLS only the browser knows how the page came to it.
            secure=request.headers.get("origin", request.url.scheme).startswith("https"),
        )
        return answer


def _add_logout(router: APIRouter, desk: Desk) -> None:
    @router.post("/logout")
    def logout(request: Request, form: Posted) -> Response:
        """Ends a session."""
        session = session_of(desk, request)
        if not is_same_origin(request) or not is_own_form(session, form.get("csrf", "")):
            return _foreign(desk, request)
        desk.sessions.end(request.cookies.get(COOKIE, ""))
        answer = _see("/")
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer


def _add_zone(router: APIRouter, desk: Desk) -> None:
    @router.post("/zone")
    def zone(request: Request, form: Posted) -> Response:
        """Remembers on whose clocks a browser wants its times."""
        if not is_same_origin(request):
            return _foreign(desk, request)
        answer = _see(safe_back(form.get("back", "/")))
        name = zone_named(form.get("zone")).name
        answer.set_cookie(ZONE_COOKIE, name, max_age=_YEAR_S, httponly=True, samesite="strict")
        return answer


def _add_acts(router: APIRouter, desk: Desk) -> None:
    def confirm(request: Request, what: str, node: str) -> Response:
        frame, session = frame_of(desk, request), session_of(desk, request)
        _check_operator(desk, session)
        plan = plan_of(what, node, desk.hook(frame.now), now=frame.now, zone=frame.zone)
        return respond(desk, request, "act.html.j2", values_of(plan), refresh_s=0)

    @router.get("/act")
    def show(request: Request, what: Short = "", node: Short = "") -> Response:
        """Says what would happen, and asks whether it shall."""
        if session_of(desk, request) is None and what in TITLES:
            return login_first(request)
        return guarded(desk, request, partial(confirm, request, what, node))

    def carry_out(request: Request, form: Mapping[str, str]) -> Response:
        frame, session = frame_of(desk, request), session_of(desk, request)
        caller = _check_operator(desk, session).caller
        plan = plan_of(
            form.get("what", ""),
            form.get("node", ""),
            desk.hook(frame.now),
            now=frame.now,
            zone=frame.zone,
        )
        wish = wish_of(
            plan,
            confirm=form.get("confirm", ""),
            seen=form.get("decision", ""),
            hours=form.get("hours", ""),
            now=frame.now,
        )
        desk.asked.add(desk.sources.desk.ask(wish, caller).request)
        return respond(desk, request, "asked.html.j2", {"plan": plan}, status=202, refresh_s=0)

    @router.post("/act")
    def act(request: Request, form: Posted) -> Response:
        """Puts a signed request into the hook's inbox."""
        session = session_of(desk, request)
        if not is_same_origin(request) or not is_own_form(session, form.get("csrf", "")):
            return _foreign(desk, request)
        return guarded(desk, request, partial(carry_out, request, form))


def is_same_origin(request: Request) -> bool:
    """Whether a form was sent from a page of this board, as far as the browser says."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def login_first(request: Request) -> Response:
    """Sends a browser to the login, and back here after it."""
    return _see(f"/login?next={quote(address_of(request), safe='')}")


def _check_operator(desk: Desk, session: Session | None) -> Session:
    if session is None or not session.caller.is_operator:
        raise ApiError(403, "This needs a login with a token of the role operator.")
    if not desk.sources.desk.is_open:
        raise ApiError(
            409,
            "The hook takes no requests from here: api.inbox is not set. Ask at a terminal, with "
            "forewarn remediate.",
        )
    return session


def _see(address: str) -> RedirectResponse:
    return RedirectResponse(address, status_code=303, headers=dict(SECURITY))


def _foreign(desk: Desk, request: Request) -> Response:
    words = "This form was not made by this board for your login. Nothing was done. Try it again."
    return problem_page(desk, request, status=403, title="Not accepted", words=words)
