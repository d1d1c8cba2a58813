"""The commands that set a site up and look after it: `config`, `doctor`, `init`, `versions`.

No logic: each command's work is in the module it names.
"""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"),
]
HookOption = Annotated[
    Path | None,
    typer.Option(
        "--hook",
        help="Also the hook's settings; default: $FOREWARN_HOOK.",
        metavar="FILE",
        envvar="FOREWARN_HOOK",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]

config = typer.Typer(no_args_is_help=True, help="The settings: check them, show what is in force.")


@config.command()
def check(
    *, settings: SettingsOption = None, hook: HookOption = None, as_json: JsonOption = False
) -> None:
    """Name everything that is wrong with the settings; exit code 1: warnings only, 2: errors."""
    from pipelines.config.check import check_config
    from pipelines.settings import settings_path

    report = check_config(
        settings_path(settings), hook=hook, environment=os.environ, now=datetime.now(UTC)
    )
    typer.echo(report.json() if as_json else report.words())
    raise typer.Exit(report.exit_code)


@config.command()
def show(*, settings: SettingsOption = None, as_json: JsonOption = False) -> None:
    """Show the settings in force, and where each value came from; secrets only by reference."""
    import json

    from pipelines.config.show import in_lines, settings_in_force
    from pipelines.settings import settings_path

    path = settings_path(settings)
    found = settings_in_force(path)
    plain = [{"key": one.key, "value": one.value, "from": one.origin} for one in found]
    typer.echo(json.dumps(plain, indent=2) if as_json else in_lines(found, path=path))


def doctor(
    *,
    settings: SettingsOption = None,
    hook: HookOption = None,
    timeout: Annotated[float, typer.Option(min=1, max=600, help="Seconds for each probe.")] = 30.0,
    send_test: Annotated[
        bool, typer.Option("--send-test", help="Also send Alertmanager an alert, a minute long.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look at all that the settings name and say what to do; exit code 1: something cannot work."""
    from pipelines.doctor.examination import examine
    from pipelines.settings import load_settings

    found = examine(
        load_settings(settings),
        hook=hook,
        now=datetime.now(UTC),
        timeout_s=timeout,
        sends_test=send_test,
    )
    typer.echo(found.json() if as_json else found.words())
    _end(found.exit_code, is_hung=found.is_hung)


def versions(*, settings: SettingsOption = None, hook: HookOption = None) -> None:
    """Show the version of each store beside this release's; exit code 2: one is of a later."""
    from pipelines.doctor.schema_versions import stored_versions
    from pipelines.settings import load_settings
    from remediation.hook_settings import load_hook_settings

    found = stored_versions(
        load_settings(settings), None if hook is None else load_hook_settings(hook)
    )
    for one in found:
        typer.echo(f"{one.state:<10}  {one.words()}")
    raise typer.Exit(2 if any(one.state == "newer" for one in found) else 0)


def init(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the site's files.", metavar="DIR")],
    slurm: Annotated[bool, typer.Option("--slurm", help="The cluster is a Slurm.")] = False,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="The cluster is a Kubernetes.")
    ] = False,
    prometheus: Annotated[
        str | None, typer.Option(help="Prometheus that scrapes the GPUs.", metavar="URL")
    ] = None,
    via: Annotated[
        str, typer.Option(help="What stands before Slurm's commands: 'ssh login1'.")
    ] = "",
    kubeconfig: Annotated[
        Path | None, typer.Option(help="File with cluster and credentials.", metavar="FILE")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context in it.")] = None,
    site: Annotated[str | None, typer.Option(help="Name of the site; default: its own.")] = None,
) -> None:
    """Write the files of a site from its live cluster, and check them; nothing is overwritten."""
    from features.errors import SettingsError
    from pipelines.site_init.site import Asked, init_site

    if slurm and kubernetes:
        raise SettingsError("--slurm and --kubernetes: name one")
    asked = Asked(
        out=out,
        scheduler="slurm" if slurm else "kubernetes" if kubernetes else None,
        prometheus=prometheus,
        prefix=_words(via),
        kubeconfig=kubeconfig,
        context=context,
        site=site,
    )
    made = init_site(asked, now=datetime.now(UTC), say=lambda line: typer.echo(line, err=True))
    typer.echo(made.words())
    _end(made.exit_code, is_hung=made.examination.is_hung)


def _words(via: str) -> tuple[str, ...]:
    """The words of `--via`, as a shell takes them."""
    import shlex

    from features.errors import SettingsError

    try:
        return tuple(shlex.split(via))
    except ValueError as error:
        raise SettingsError(f"--via {via!r}: {error}; write it as in a shell") from error


def _end(code: int, *, is_hung: bool) -> None:
    """Ends the command; a probe that hangs may have threads that Python would wait for."""
    if is_hung:
        sys.stdout.flush()
        os._exit(code)
    raise typer.Exit(code)
