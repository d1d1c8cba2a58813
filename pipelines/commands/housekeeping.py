"""The commands that remove data, and `take-over`, which says whose a bucket's tables are.

No logic: the work is in `pipelines.retention.chores`, `pipelines.retention.forget` and
`pipelines.storage.bucket_owner`.
"""

from pathlib import Path
from typing import Annotated

import typer

SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"),
]


def retain(
    *,
    settings: SettingsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed and merged.")
    ] = False,
) -> None:
    """Remove what is over by the retention settings, and compact small files; run it daily.

    Exit code 1: an area could not be done; the next call does it.
    """
    from datetime import UTC, datetime

    from pipelines.defs.dagster_history import dagster_areas
    from pipelines.retention import chores as retention
    from pipelines.retention.areas import areas_of
    from pipelines.settings import load_settings

    chosen, now = load_settings(settings), datetime.now(UTC)
    with dagster_areas(chosen, now=now) as history:
        areas = [*areas_of(chosen, now=now), *history]
        if dry_run:
            done = retention.planned(chosen, areas, now=now)
        else:
            done = retention.retain(chosen, areas, now=now)
    typer.echo(retention.in_words(done, is_plan=dry_run))
    raise typer.Exit(1 if done.problems else 0)


def forget(
    *,
    settings: SettingsOption = None,
    user: Annotated[
        str, typer.Option(help="The user's name, or the token that stands for it.", metavar="NAME")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would be removed.")
    ] = False,
) -> None:
    """Remove what is kept of a person: job records, job output, training metrics, examples."""
    from datetime import UTC, datetime

    from pipelines.retention.forget import receipt_in_words, traces_of
    from pipelines.settings import load_settings

    traces = traces_of(load_settings(settings), user, now=datetime.now(UTC))
    typer.echo(receipt_in_words(traces.count() if dry_run else traces.remove()))


def take_over(
    *,
    settings: SettingsOption = None,
    former: Annotated[
        str,
        typer.Option("--from", help="Machine that the present owner names.", metavar="HOST"),
    ],
) -> None:
    """Have this installation write the bucket's tables in place of one that never will again."""
    from pipelines.settings import load_settings
    from pipelines.storage.bucket_owner import take_over_tables

    typer.echo(take_over_tables(load_settings(settings).store_root, former=former))
