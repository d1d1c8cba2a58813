"""The command `forewarn tune`.

No logic: the work is in `pipelines.studies.tune`.
"""

from pathlib import Path
from typing import Annotated

import typer


def tune(
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, max=10_000, help="Training values tried.")] = 40,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Horizon in hours; default: the first.")
    ] = None,
    out: Annotated[Path, typer.Option(help="YAML file to write.", metavar="FILE")] = Path(
        "training.yaml"
    ),
) -> None:
    """Search how models are trained, on this site's record before split.train_until alone."""
    from pipelines.settings import load_settings
    from pipelines.studies.tune import tune_site

    typer.echo(
        tune_site(
            load_settings(settings),
            out=out,
            trials=trials,
            horizon_h=horizon,
            say=lambda line: typer.echo(line, err=True),
        )
    )
