"""The commands that serve over HTTP: `api` and `board`.

No logic: the API is in `pipelines.api`, the pages are in `pipelines.board`.
"""

from pathlib import Path
from typing import Annotated

import typer

SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"),
]
ListenOption = Annotated[
    str | None,
    typer.Option(
        help="Address and port; default: api.listen, 127.0.0.1:8080.", metavar="HOST:PORT"
    ),
]


def api(settings: SettingsOption = None, listen: ListenOption = None) -> None:
    """Serve scores, decisions and data health over HTTP until Ctrl-C."""
    from pipelines.api.serve import serve_api
    from pipelines.settings import load_settings

    serve_api(load_settings(settings), listen=listen, say=lambda s: typer.echo(s, err=True))


def board(
    settings: SettingsOption = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="Address and port; default: board.listen, 127.0.0.1:8081.", metavar="HOST:PORT"
        ),
    ] = None,
) -> None:
    """Serve the board: pages for people, and the API beside them, until Ctrl-C."""
    from pipelines.board.serve import serve_board
    from pipelines.settings import load_settings

    serve_board(load_settings(settings), listen=listen, say=lambda s: typer.echo(s, err=True))
