"""The command `forewarn dagster-home`: writes dagster.yaml for Dagster's own processes.

No logic: what the file says is in `pipelines.orchestration.dagster_home`; `forewarn dev` writes its
own.
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
    """Write dagster.yaml as the settings say; run it before Dagster's processes start."""
    from pipelines.orchestration.dagster_home import dagster_yaml
    from pipelines.settings import load_settings
    from pipelines.storage.atomic_files import replace_file

    chosen = load_settings(settings)
    folder = home or chosen.data_root / "dagster"
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "dagster.yaml", dagster_yaml(chosen).encode())
    typer.echo(f"{folder / 'dagster.yaml'} is written")
