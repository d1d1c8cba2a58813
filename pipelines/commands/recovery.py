"""The commands about lost training time: `ettr`, `checkpoint-advice`, `localize`, the simulation.

No logic: each command's work is in the module it names.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from models.localization.layout import MEGATRON_ORDER

_YEAR_MIN: Final = 366 * 24 * 60

SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"),
]
AsOfOption = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"], help="Moment, UTC; default: where the record ends."
    ),
]
CheckpointOption = Annotated[
    float,
    typer.Option(min=0.01, max=_YEAR_MIN, help="Minutes between two checkpoints (assumed)."),
]
RestartOption = Annotated[
    float, typer.Option(min=0, max=_YEAR_MIN, help="Minutes to start again (assumed).")
]
JobOption = Annotated[
    list[str] | None,
    typer.Option(help="Also this job by itself, with its worst hour; may be repeated."),
]
NodesOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=1_000_000, help="Also say what to expect of a long job of so many nodes."
    ),
]
RateOption = Annotated[
    float,
    typer.Option(min=0, max=24, help="Failures per node and day where no score says more."),
]
WaitOption = Annotated[
    float,
    typer.Option(min=0, max=_YEAR_MIN, help="For --nodes: minutes in the queue before a restart."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


def localize(
    folder: Annotated[
        Path,
        typer.Argument(
            help="One dump per rank, its rank in the name: py-spy JSON or text, NCCL flight "
            "recorder JSON. For a slow job: a subfolder per round, 5 rounds 10 s apart.",
            metavar="DIR",
        ),
    ],
    *,
    tp: Annotated[int, typer.Option(min=1, help="Tensor parallel size.")] = 1,
    pp: Annotated[int, typer.Option(min=1, help="Pipeline parallel size.")] = 1,
    dp: Annotated[
        int | None, typer.Option(min=1, help="Data parallel size; default: from the ranks.")
    ] = None,
    ranks_per_machine: Annotated[int, typer.Option(min=1, help="Ranks on a machine.")] = 8,
    order: Annotated[
        str, typer.Option(help="How ranks are numbered, fastest axis first.")
    ] = MEGATRON_ORDER,
    hosts: Annotated[
        Path | None,
        typer.Option(help="Host names, one a line, in the order of ranks.", metavar="FILE"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which machines to evict from a hung or slow job. Exit code 1: no clear answer."""
    from pipelines.studies import localize as work

    asked = work.Asked(tp=tp, pp=pp, dp=dp, per_machine=ranks_per_machine, order=order, hosts=hosts)
    found = work.localize(folder, asked)
    typer.echo(work.as_json(found) if as_json else work.render(found))
    raise typer.Exit(0 if found.verdict.is_clear else 1)


def ettr(
    *,
    settings: SettingsOption = None,
    jobs: Annotated[
        Path | None,
        typer.Option(help="Parquet with the columns of core/jobs, instead.", metavar="FILE"),
    ] = None,
    checkpoint_min: CheckpointOption = 60.0,
    restart_min: RestartOption = 5.0,
    as_of: AsOfOption = None,
    job: JobOption = None,
    nodes: NodesOption = None,
    failures_per_node_day: RateOption = 0.0065,
    wait_min: WaitOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Say what share of the jobs' time moved training forward, and where the rest went."""
    from models.recovery.job_time import TimeBasis
    from pipelines.settings import load_settings
    from pipelines.studies import ettr as work

    installation = None if jobs is not None else load_settings(settings)
    table = work.read_jobs(installation, jobs)
    until = work.moment_within(_utc(as_of), work.record_end(table, installation, _now()))
    basis = TimeBasis(as_of=until, interval_s=checkpoint_min * 60, restart_s=restart_min * 60)
    found = work.lost_time(table, basis=basis)
    typer.echo(work.as_json(found) if as_json else work.render(found))
    for job_id in job or ():
        typer.echo(work.job_line(found, job_id), err=as_json)
    if nodes is not None:
        said = work.expected_line(
            n_nodes=nodes,
            per_node_day=failures_per_node_day,
            restart_min=restart_min,
            interval_min=checkpoint_min,
            wait_min=wait_min,
        )
        typer.echo(said, err=as_json)


def checkpoint_advice(
    *,
    settings: SettingsOption = None,
    save_min: Annotated[
        float,
        typer.Option(
            min=0.001, max=_YEAR_MIN, help="Minutes that training stands still per checkpoint."
        ),
    ] = 1.0,
    failures_per_node_day: RateOption = 0.0065,
    as_of: AsOfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how often each running job should save, from the scores of its nodes."""
    from models.recovery.checkpoint import AdviceBasis
    from pipelines.settings import load_settings
    from pipelines.studies import ettr as work

    installation = load_settings(settings)
    basis = AdviceBasis(
        as_of=work.moment_within(_utc(as_of), installation.data_end(_now())),
        save_min=save_min,
        usual_per_node_day=failures_per_node_day,
        horizon_h=installation.horizons_h[0],
    )
    advice = work.checkpoint_advice(installation, basis=basis)
    typer.echo(advice.write_json() if as_json else work.render_advice(advice, basis=basis))


def simulate_recovery(
    *,
    days: Annotated[float, typer.Option(min=1, max=366, help="Days of each run.")] = 90.0,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs of each regime.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    sensitivity: Annotated[bool, typer.Option(help="Also halve and double each parameter.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Simulate how a job of 9,600 GPUs recovers, and what foretelling failures would add."""
    from pipelines.studies import recovery as work

    study = work.run_study(seed=seed, n_seeds=seeds, days=days, with_sensitivity=sensitivity)
    typer.echo(work.as_json(study) if as_json else work.render(study))


def _now() -> datetime:
    return datetime.now(UTC)


def _utc(at: datetime | None) -> datetime | None:
    return at and at.replace(tzinfo=UTC)
