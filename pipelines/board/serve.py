"""The board as a program: the API's application with the pages mounted on it.

Pages are in `pipelines.board.routes`; the server itself is `pipelines.api.serve`.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from pipelines.api.access import Access, open_access
from pipelines.api.application import build_application
from pipelines.api.gate import API
from pipelines.api.serve import run
from pipelines.api.sources import Sources, open_sources
from pipelines.board.desk import Desk, Kept
from pipelines.board.form_routes import form_router
from pipelines.board.page import problem_page
from pipelines.board.routes import page_router
from pipelines.board.session import Sessions
from pipelines.settings import Settings

OPEN: Final = ("/login", "/logout", "/zone", "/act", "/static/", "/favicon.ico")
"""Paths that say nothing of the fleet without a login, and ask for one in words of their own."""


def build_board(
    sources: Sources, access: Access, *, clock: Callable[[], float] = time.monotonic
) -> FastAPI:
    """The application with API and pages.

    Args:
        sources: What both read.
        access: Who may ask for what.
        clock: Seconds that only go forward.
    """
    sessions = Sessions(seconds=sources.settings.board.login_hours * 3600, clock=clock)
    access = replace(
        access,
        session=sessions.caller_of,
        login_path="/login",
        open_paths=(*access.open_paths, *OPEN),
    )
    app = build_application(sources, access)
    desk = Desk(sources=sources, access=access, sessions=sessions, kept=Kept(clock))
    app.include_router(page_router(desk))
    app.include_router(form_router(desk))
    _answer_in_pages(app, desk)
    return app


def _answer_in_pages(app: FastAPI, desk: Desk) -> None:
    """An address that is none is answered by a page to a browser, as ever to a program."""
    for kind, status, words in (
        (RequestValidationError, 422, "A part of this address has another form than it should."),
        (HTTPException, 404, "This board has no such page."),
    ):
        app.add_exception_handler(kind, _paged(app.exception_handlers[kind], desk, status, words))


def _paged(usual: Any, desk: Desk, status: int, words: str) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        is_other = getattr(error, "status_code", status) != status
        if is_other or request.url.path.startswith(API):
            found: Response = await usual(request, error)
            return found
        return problem_page(desk, request, status=status, title="Not found", words=words)

    return answer


def serve_board(settings: Settings, *, listen: str | None, say: Callable[[str], None]) -> None:
    """Serves board and API until told to stop.

    Args:
        settings: The installation.
        listen: Address and port; None: those of the settings.
        say: Told where.

    Raises:
        SettingsError: Others could reach it and there is no token, or a setting cannot be used.
    """
    access = open_access(settings, listen=listen or settings.board.listen)
    sources = open_sources(settings)
    sources.fleet.current()
    app = build_board(sources, access)
    host = access.address.host
    shown = f"[{host}]" if ":" in host else host
    who = "reading needs no login" if access.is_open else "log in with a token"
    where = f"Board at http://{shown}:{access.address.port}/ ({who}); API below /api/v1"
    run(app, access, say=lambda: say(where))
