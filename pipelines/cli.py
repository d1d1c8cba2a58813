"""The `forewarn` command: reads arguments, calls one function, prints what a person needs.

No logic: each command's work is in the module it names.
"""

import importlib.metadata
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from features.errors import ForewarnError
from pipelines.commands import (
    backfill,
    benchmark,
    dagster_home,
    fleet_study,
    hazard,
    hook_metrics,
    housekeeping,
    models,
    recovery,
    remediate,
    replay,
    scheduling,
    scores,
    serve,
    site,
    tune,
)
from remediation.plan import plain
from simulation.writers.forms import Form

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
simulate = typer.Typer(no_args_is_help=True, help="Synthetic data with known truth.")
app.add_typer(simulate, name="simulate")
remediate.app.command("metrics")(hook_metrics.metrics)
app.add_typer(remediate.app, name="remediate")
app.add_typer(models.app, name="models")
app.add_typer(site.config, name="config")
app.command()(site.doctor)
app.command()(site.init)
app.command()(site.versions)
app.command()(backfill.backfill)
app.command()(benchmark.benchmark)
app.command()(replay.replay)
app.command()(recovery.ettr)
app.command("checkpoint-advice")(recovery.checkpoint_advice)
app.command()(recovery.localize)
app.command()(tune.tune)
app.command()(hazard.hazard)
app.command()(housekeeping.retain)
app.command()(housekeeping.forget)
app.command("take-over")(housekeeping.take_over)
app.command()(scores.score)
app.command()(scores.scores)
app.command()(scores.outcomes)
app.command()(scores.metrics)
app.command()(serve.api)
app.command()(serve.board)
app.command("dagster-home")(dagster_home.dagster_home)
simulate.command("recovery")(recovery.simulate_recovery)
simulate.command()(scheduling.scheduling)
simulate.command()(fleet_study.study)

_STOPPED: Final = 130
"""Exit code after Ctrl-C."""

SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"),
]


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"forewarn {importlib.metadata.version('forewarn')}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say it, and end."),
    ] = False,
) -> None:
    """Predicts GPU and node failures hours ahead and drains the nodes before a job is hurt."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path(
        "build/demo"
    ),
) -> None:
    """Run the whole flow on data_samples/: ingest, train, score, plan (dry run), report."""
    from pipelines.end_to_end.demo import run_demo

    typer.echo(run_demo(out, say=lambda line: typer.echo(line, err=True)))


@app.command("check-inputs")
def check_inputs(
    inputs: Annotated[Path, typer.Argument(help="YAML file that lists the inputs.")],
) -> None:
    """Read every file of a list of inputs once, store nothing, say what became of each record."""
    from pipelines.landing.input_check import check_inputs as check

    text, code = check(inputs)
    typer.echo(text)
    raise typer.Exit(code)


@app.command()
def ingest(
    settings: SettingsOption = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", help="Only the input of this name or kind; may be repeated.", metavar="NAME"
        ),
    ] = None,
) -> None:
    """Land what is new in the inputs. Known content is left; exit code 1: an input failed."""
    from pipelines.landing.ingest_report import run_ingest
    from pipelines.settings import load_settings

    text, code = run_ingest(load_settings(settings), only=source or ())
    typer.echo(text)
    raise typer.Exit(code)


@app.command()
def quarantine(
    settings: SettingsOption = None,
    source: Annotated[
        str | None, typer.Option(help="Only this kind of source.", metavar="KIND")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="Only rules that hold this text.", metavar="TEXT")
    ] = None,
    origin: Annotated[
        str | None, typer.Option(help="Only files or addresses with this text.", metavar="TEXT")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most entries shown.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per entry.")] = False,
) -> None:
    """Show what was refused: where, by which rule, how often, with an example."""
    from pipelines.landing.quarantine import render_quarantine
    from pipelines.settings import load_settings

    typer.echo(
        render_quarantine(
            load_settings(settings),
            source=source,
            rule=rule,
            origin=origin,
            limit=limit,
            as_json=as_json,
        )
    )


@app.command()
def dev(
    settings: SettingsOption = None,
    schedules: Annotated[
        bool,
        typer.Option(
            "--schedules", help="Run schedules and sensors; else they are there, and off."
        ),
    ] = False,
) -> None:
    """Start the board, Dagster and MLflow pages on loopback; Ctrl-C stops them all."""
    from pipelines.dev_servers import serve
    from pipelines.settings import load_settings, settings_path

    path = settings_path(settings)
    serve(load_settings(path), settings_file=path, say=typer.echo, has_schedules=schedules)


@simulate.command()
def fleet(
    out: Annotated[Path, typer.Option(help="Folder for the raw files.", metavar="DIR")],
    truth: Annotated[Path, typer.Option(help="Folder for the truth.", metavar="DIR")],
    regime: Annotated[str, typer.Option(help="Named regime or a YAML file.")] = "demo",
    nodes: Annotated[int | None, typer.Option(help="Nodes; default: the regime's.")] = None,
    days: Annotated[float | None, typer.Option(help="Days; default: the regime's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed; default: the regime's.")] = None,
    scrape_s: Annotated[
        int | None, typer.Option(min=1, help="Seconds between samples; default: the regime's.")
    ] = None,
    telemetry: Annotated[
        Form, typer.Option(help="Telemetry as Parquet, or every scrape as text.")
    ] = "parquet",
    workers: Annotated[
        int, typer.Option(min=1, help="Processes; the files are the same for any number.")
    ] = 1,
) -> None:
    """Write a synthetic fleet in the raw formats of real sources."""
    from simulation.writers.raw import simulate_to

    said = simulate_to(
        out,
        truth_dir=truth,
        regime=regime,
        nodes=nodes,
        days=days,
        scrape_s=scrape_s,
        seed=seed,
        workers=workers,
        telemetry=telemetry,
    )
    typer.echo(plain(said))


@simulate.command("report")
def fleet_report(
    out: Annotated[Path, typer.Option(help="HTML page to write.", metavar="FILE")],
    regime: Annotated[str, typer.Option(help="Named regime or a YAML file.")] = "h100",
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes; default: 2,500.")] = None,
    days: Annotated[float | None, typer.Option(help="Days; default: a year.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed; default: the regime's.")] = None,
    summit: Annotated[
        Path | None, typer.Option(help="Counts of Xids on Summit, to compare.", metavar="FILE")
    ] = None,
) -> None:
    """Write a page that holds a synthetic fleet against its own numbers and published laws."""
    from pipelines.studies.fleet_report.report import write_fleet_report

    typer.echo(
        write_fleet_report(out, regime=regime, nodes=nodes, days=days, seed=seed, summit=summit)
    )


@simulate.command()
def ceiling(
    truth: Annotated[Path, typer.Option(help="Folder of a fleet's truth.", metavar="DIR")],
    lead_min: Annotated[float, typer.Option(min=0, help="Minutes a drain needs.")] = 30,
    tick_min: Annotated[float, typer.Option(min=1, help="Minutes between two scores.")] = 60,
    budget: Annotated[
        float, typer.Option(min=0, max=1, help="Share of GPU-ticks that may be alerts.")
    ] = 0.0005,
) -> None:
    """Print what a perfect reader could catch of a synthetic fleet's failures."""
    from simulation.fleet.ceiling import Reader
    from simulation.writers.truth_tables import describe_ceiling

    reader = Reader(lead_h=lead_min / 60, tick_h=tick_min / 60, budget=budget)
    typer.echo(describe_ceiling(truth, reader=reader))


def main() -> None:
    """Runs the command; an error that a user can act on is one line and exit code 2."""
    try:
        app()
    except (ForewarnError, OSError) as error:
        # Paths and examples come from outside: a control character must not reach the terminal.
        typer.echo(f"forewarn: {plain(str(error))}", err=True)
        sys.exit(2)
    except SystemExit as error:
        if error.code == _STOPPED:
            typer.echo(
                "forewarn: stopped. What was committed stays; run it again to go on.", err=True
            )
        raise
