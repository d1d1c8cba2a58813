"""The board as a program: the API's application with the pages mounted on it.

Pages are in `pipelines.board.routes`; the server itself is `pipelines.api.serve`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fastapi import FastAPI

from pipelines.api.access import Access, open_access
from pipelines.api.application import build_application
from pipelines.api.serve import run
from pipelines.api.sources import Sources, open_sources
from pipelines.board.desk import Desk
from pipelines.board.form_routes import form_router
from pipelines.board.routes import page_router
from pipelines.board.session import Sessions
from pipelines.settings import Settings

OPEN: Final = ("/login", "/logout", "/zone", "/static/", "/favicon.ico")
"""Paths that say nothing of the fleet."""


def build_board(sources: Sources, access: Access) -> FastAPI:
    """The application with API and pages.

    Args:
        sources: What both read.
        access: Who may ask for what.
    """
    sessions = Sessions(seconds=sources.settings.board.login_hours * 3600)
    access = replace(
        access,
        session=sessions.caller_of,
        login_path="/login",
        open_paths=(*access.open_paths, *OPEN),
    )
    app = build_application(sources, access)
    desk = Desk(sources=sources, access=access, sessions=sessions)
    app.include_router(page_router(desk))
    app.include_router(form_router(desk))
    return app


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
    say(f"Board at http://{shown}:{access.address.port}/ ({who}); API below /api/v1")
    run(app, access)
