"""The command `forewarn dagster-home`: readies the home of Dagster's own processes.

No logic: the work is in `pipelines.defs.dagster_instance`; `forewarn dev` readies its own.
"""

from pathlib import Path
from typing import Annotated

import typer


def dagster_home(
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"
        ),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(
            help="Folder; default: $DAGSTER_HOME, else dagster under data_root.",
            metavar="DIR",
            envvar="DAGSTER_HOME",
        ),
    ] = None,
) -> None:
    """Write dagster.yaml as the settings say, and make its databases, before Dagster starts."""
    from pipelines.defs.dagster_instance import prepare_home
    from pipelines.settings import load_settings

    chosen = load_settings(settings)
    folder = home or chosen.data_root / "dagster"
    is_ours = prepare_home(chosen, folder)
    done = "is written" if is_ours else "was written by another and is kept as it is"
    typer.echo(f"{folder / 'dagster.yaml'} {done}; its databases are there")
