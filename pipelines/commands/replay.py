"""The command `forewarn replay`: arguments in, one call, words out.

No logic: the report is made in `pipelines.studies.replay.report`.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.shadow import ActingLevel

NO_BREAK = "\u00a0"
_DATES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M"]


Policy = Annotated[
    Path, typer.Option(help="The hook's settings file, or a site file alone.", metavar="FILE")
]
Folder = Annotated[
    Path | None,
    typer.Option(help="Folder of an installation, with forewarn.yaml.", metavar="DIR"),
]
Grid5000 = Annotated[
    Path | None, typer.Option(help="Instead: node states of Grid'5000 (Parquet).", metavar="FILE")
]
Philly = Annotated[
    Path | None,
    typer.Option(help="With --grid5000: jobs of Philly (CSV), placed on them.", metavar="FILE"),
]
Page = Annotated[Path | None, typer.Option(help="HTML page to write.", metavar="FILE")]
Json = Annotated[
    Path | None, typer.Option("--json", help="Also write all figures here.", metavar="FILE")
]
Since = Annotated[
    datetime | None,
    typer.Option(formats=_DATES, help="Start, UTC; default: the first stored score."),
]
Until = Annotated[
    datetime | None,
    typer.Option(formats=_DATES, help="End, UTC, exclusive; default: the end of the record."),
]
Level = Annotated[
    ActingLevel | None,
    typer.Option(help="How far automation may go; default: the policy file's levels."),
]
Sweeps = Annotated[
    bool, typer.Option(help="Also vary drain costs, checkpoints, standby and precision.")
]


def replay(
    *,
    policy: Policy,
    history: Folder = None,
    grid5000: Grid5000 = None,
    philly: Philly = None,
    out: Page = None,
    json_file: Json = None,
    since: Since = None,
    until: Until = None,
    level: Level = None,
    sweeps: Sweeps = True,
) -> None:
    """Replay the drain policy on past scores, failures and jobs: what would it have saved?"""
    from pipelines.studies.given_files import check_places
    from pipelines.studies.replay.input import in_utc, read_history
    from pipelines.studies.replay.report import write_replay
    from remediation.plan import plain

    check_places(out, json_file)
    span = {"since": in_utc(since), "until": in_utc(until)}
    chosen = None if level is None else level.value
    if history is not None and grid5000 is None and philly is None:
        given = read_history(history, policy, level=chosen, now=datetime.now(UTC), **span)
    elif history is None and grid5000 is not None and philly is not None:
        from pipelines.studies.replay.grid5000 import read_grid5000

        given = read_grid5000(grid5000, philly, policy, level=chosen, **span)
    else:
        raise typer.BadParameter("give either --history, or --grid5000 with --philly")
    said = write_replay(given, out=out, json_out=json_file, has_sweeps=sweeps)
    for line in said.splitlines():
        typer.echo(plain(line.replace(NO_BREAK, " ")))
