"""The command `forewarn backfill`.

No logic: the work is in `pipelines.end_to_end.backfill`.
"""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

_DAY = ["%Y-%m-%d"]


def backfill(
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(formats=_DAY, help="First day, UTC; default: the record's.", metavar="DAY"),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(formats=_DAY, help="Day it stops before; default: now.", metavar="DAY"),
    ] = None,
) -> None:
    """Make all tables of past days, train, and score: inputs to published scores in one go."""
    from datetime import UTC

    from pipelines.end_to_end.backfill import run_backfill
    from pipelines.settings import settings_path

    run_backfill(
        settings_path(settings),
        now=datetime.now(UTC),
        since=since and since.replace(tzinfo=UTC),
        until=until and until.replace(tzinfo=UTC),
        say=lambda line: typer.echo(line, err=True),
    )
