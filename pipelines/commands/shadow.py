"""The command `forewarn remediate shadow`: arguments in, one call, words out.

No logic: the report is made in `pipelines.report.shadow.page`.
"""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

NO_BREAK = "\u00a0"
_DATES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M"]


class ActingLevel(StrEnum):
    """Levels at which the hook acts by itself."""

    CORDON = "cordon"
    DRAIN_AFTER_JOBS = "drain_after_jobs"
    NOTIFY_THEN_DRAIN = "notify_then_drain"


def shadow(
    *,
    out: Annotated[Path, typer.Option(help="HTML file to write.", metavar="FILE")],
    since: Annotated[
        datetime | None,
        typer.Option(formats=_DATES, help="Start, UTC; default: the ledger's first entry."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(formats=_DATES, help="End, UTC, exclusive; default: the end of the record."),
    ] = None,
    level: Annotated[
        ActingLevel, typer.Option(help="How far automation would have been allowed to go.")
    ] = ActingLevel.DRAIN_AFTER_JOBS,
    settings: Annotated[
        Path | None, typer.Option(help="Settings; default: $FOREWARN_SETTINGS.", metavar="FILE")
    ] = None,
    hook: Annotated[
        Path | None,
        typer.Option(
            help="The hook's settings; default: $FOREWARN_HOOK, else ledger and site file of the "
            "installation.",
            metavar="FILE",
            envvar="FOREWARN_HOOK",
        ),
    ] = None,
) -> None:
    """Say what observe mode would have done, how often right, and what it would have saved."""
    from pipelines.report.shadow.page import write_shadow_report
    from pipelines.settings import load_settings
    from remediation.plan import plain

    said = write_shadow_report(
        out,
        load_settings(settings),
        hook=hook,
        since=since and since.replace(tzinfo=UTC),
        until=until and until.replace(tzinfo=UTC),
        level=level.value,
        now=datetime.now(UTC),
    )
    for line in said.splitlines():
        typer.echo(plain(line.replace(NO_BREAK, " ")))
