"""Runs the server: one process, one event loop, until it is told to stop.

What it serves is in `application`; the board runs the same server with its pages mounted.
"""

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import uvicorn
from fastapi import FastAPI

from pipelines.api.access import Access, open_access
from pipelines.api.application import build_application
from pipelines.api.sources import open_sources
from pipelines.serving.listening import listening
from pipelines.settings import Settings

_TURN_S: Final = 0.0005


def serve_api(settings: Settings, *, listen: str | None, say: Callable[[str], None]) -> None:
    """Serves the API.

    Args:
        settings: The installation.
        listen: Address and port; None: those of the settings.
        say: Told where.

    Raises:
        SettingsError: Others could reach it and there is no token, or a setting cannot be used.
    """
    access = open_access(settings, listen=listen)
    sources = open_sources(settings)
    sources.fleet.current()
    run(build_application(sources, access), access, say=lambda: say(_words(access)))


def run(app: FastAPI, access: Access, *, say: Callable[[], None]) -> None:
    """Serves an application until SIGINT or SIGTERM; requests at hand are finished.

    Args:
        app: The application.
        access: Where to listen.
        say: Called once the address is ours.

    Raises:
        SettingsError: The address cannot be listened on.
    """
    # While a new tick is read beside, a request gets its turn after 0.5 ms rather than 5.
    sys.setswitchinterval(_TURN_S)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        # The other parser that may be installed has no limit for what stands before a body.
        http="h11",
        # The gate judges by the real peer: a forged X-Forwarded-For must not make one near.
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=10,
        limit_concurrency=1000,
        h11_max_incomplete_event_size=32_768,
    )
    host, port = access.address.host, access.address.port
    with listening(f"{host}:{port}"):
        families = {found[0] for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        family = socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
        own = socket.create_server((host, port), family=family)
    with own:
        say()
        # The server lets a signal take its effect once more when it has ended by it.
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[own])


def _words(access: Access) -> str:
    address = access.address
    who = "reading needs no token" if access.is_open else f"{len(access.tokens)} tokens"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"API at http://{host}:{address.port}/api/v1 ({who})"
