"""The command `forewarn hazard`.

No logic: the work is in `pipelines.studies.hazard`.
"""

from pathlib import Path
from typing import Annotated

import typer


def hazard(
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"
        ),
    ] = None,
    days: Annotated[
        str, typer.Option(help="Horizons in days, separated by commas.", metavar="DAYS")
    ] = "7,30,90,365",
    out: Annotated[Path, typer.Option(help="CSV file to write.", metavar="FILE")] = Path(
        "survival.csv"
    ),
) -> None:
    """Say how long each GPU may last, from failures and stays alone; needs no telemetry."""
    from datetime import UTC, datetime

    from pipelines.settings import load_settings
    from pipelines.studies.hazard import days_of, hazard_site

    typer.echo(
        hazard_site(
            load_settings(settings),
            days=days_of(days),
            out=out,
            now=datetime.now(UTC),
            say=lambda line: typer.echo(line, err=True),
        )
    )
