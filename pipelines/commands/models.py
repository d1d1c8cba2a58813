"""The `forewarn models` commands: list, show, card, compare, promote, rollback, drift.

No logic: words are in `pipelines.report.model_words`, the registry is
`models.registry.model_registry`.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Model versions: look, compare, promote, roll back.")

SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"),
]
VersionArgument = Annotated[
    str,
    typer.Argument(
        help="NAME/VERSION, NAME@ALIAS, or NAME for its champion.", metavar="NAME[/VERSION]"
    ),
]


def _said(text: str) -> str:
    """One line that says something: the log is read by whoever asks why, months later."""
    words = " ".join(text.split())
    if not words:
        raise typer.BadParameter("say it in words; it goes into the log of promotions")
    return words


ByOption = Annotated[
    str, typer.Option("--by", help="Who decides this.", metavar="WHO", callback=_said)
]
ReasonOption = Annotated[
    str,
    typer.Option(
        "--reason", help="Why, for whoever reads it next.", metavar="TEXT", callback=_said
    ),
]


@app.command("list")
def list_(*, settings: SettingsOption = None) -> None:
    """List the versions of each model, who is champion, and what was moved last."""
    from pipelines.flow.steps import registry_of
    from pipelines.report.model_words import list_models
    from pipelines.settings import load_settings

    _say(list_models(registry_of(load_settings(settings))))


@app.command()
def show(version: VersionArgument, *, settings: SettingsOption = None) -> None:
    """Show the card of a version: what it is, where it stands, how good, what it cannot do."""
    from pipelines.flow.steps import registry_of
    from pipelines.report.model_words import show_version, version_named
    from pipelines.settings import load_settings

    registry = registry_of(load_settings(settings))
    _say(show_version(registry, version_named(registry, version)))


@app.command()
def card(
    version: VersionArgument,
    out: Annotated[Path, typer.Argument(help="HTML or markdown file to write.", metavar="FILE")],
    *,
    settings: SettingsOption = None,
) -> None:
    """Write the card of a version as a page: FILE.html, or FILE.md."""
    from pipelines.flow.steps import registry_of
    from pipelines.report.model_page import write_card
    from pipelines.report.model_words import version_named
    from pipelines.settings import load_settings

    registry = registry_of(load_settings(settings))
    _say(write_card(registry, version_named(registry, version), out))


@app.command()
def compare(
    first: VersionArgument, second: VersionArgument, *, settings: SettingsOption = None
) -> None:
    """Compare two versions: their test results, and the settings that differ."""
    from pipelines.flow.steps import registry_of
    from pipelines.report.model_words import compare_versions, version_named
    from pipelines.settings import load_settings

    registry = registry_of(load_settings(settings))
    wanted = [version_named(registry, text) for text in (first, second)]
    _say(compare_versions(registry, *wanted))


@app.command()
def promote(
    version: VersionArgument,
    *,
    by: ByOption,
    reason: ReasonOption,
    overrule_gate: Annotated[
        bool, typer.Option("--overrule-gate", help="Although the gate refused it.")
    ] = False,
    settings: SettingsOption = None,
) -> None:
    """Make a version champion; the champion so far becomes `previous`."""
    from pipelines.flow.steps import registry_of
    from pipelines.report.model_words import version_named
    from pipelines.settings import load_settings

    registry = registry_of(load_settings(settings))
    wanted = version_named(registry, version)
    registry.promote_by_hand(wanted, by=by, reason=reason, overrules_gate=overrule_gate)
    _say(f"{wanted.label} is champion. The next scores are its own.")


@app.command()
def rollback(
    name: Annotated[str, typer.Argument(help="Model, such as gpu-failure-24h.")],
    *,
    by: ByOption,
    reason: ReasonOption,
    settings: SettingsOption = None,
) -> None:
    """Make the version that was champion before champion again."""
    from pipelines.flow.steps import registry_of
    from pipelines.report.model_words import check_name
    from pipelines.settings import load_settings

    registry = registry_of(load_settings(settings))
    check_name(registry, name)
    champion = registry.rollback(name, by=by, reason=reason)
    _say(f"{champion.label} is champion again. The next scores are its own.")


@app.command()
def drift(
    *,
    settings: SettingsOption = None,
    weeks: Annotated[int, typer.Option(min=1, max=52, help="Weeks to look at.")] = 4,
) -> None:
    """Hold the last weeks against training, without storing it. Exit code 1: something drifted."""
    from pipelines.flow.drift import drift_in_words, drift_of
    from pipelines.settings import load_settings

    found = drift_of(load_settings(settings), now=datetime.now(UTC), n_weeks=weeks)
    text, code = drift_in_words(found)
    _say(text)
    raise typer.Exit(code)


def _say(text: str) -> None:
    from pipelines.report.words import plain

    # Names and reasons come from people: a control character must not reach the terminal.
    for line in text.split("\n"):
        typer.echo(plain(line))
