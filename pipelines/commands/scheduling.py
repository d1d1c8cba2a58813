"""`forewarn simulate scheduling`: policies side by side on a trace of real jobs, as a table.

Running them is in `simulation.scheduling`, the words in `pipelines.studies.scheduling_words`.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer


def scheduling(  # noqa: PLR0913, PLR0917 - options of a command, each by its name
    jobs: Annotated[
        Path,
        typer.Option(help="CSV of jobs: timestamp, duration (seconds), num_gpus.", metavar="FILE"),
    ],
    load: Annotated[
        list[float] | None,
        typer.Option(min=0.01, max=10, help="Offered load; may be repeated. Default: 0.7 to 1.1."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Seeds, from 0 on.")] = 5,
    days: Annotated[int, typer.Option(min=1, max=366, help="Days over which jobs arrive.")] = 15,
    n_jobs: Annotated[
        int | None,
        typer.Option(
            "--n-jobs",
            min=1,
            max=10_000_000,
            help="Jobs; default: as the load asks, durations kept.",
        ),
    ] = None,
    mapping: Annotated[
        Literal["squeezed", "days"],
        typer.Option(help="Squeeze the trace's time, or lay its days over one another."),
    ] = "squeezed",
    elastic_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of GPU time of elastic jobs.")
    ] = 0.36,
    scaling: Annotated[
        int, typer.Option(min=1, max=16, help="Most workers of an elastic job over its base.")
    ] = 2,
    fungible_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of other jobs that run on inference GPUs.")
    ] = 0.21,
    lent_per_gpu: Annotated[
        int, typer.Option(min=1, max=64, help="Inference GPUs that do the work of a training GPU.")
    ] = 3,
    preemption_s: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds of work that a preemption costs.")
    ] = 63.0,
    out: Annotated[
        Path | None, typer.Option(help="Also write every run here, as CSV.", metavar="FILE")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw the curves here, as SVG.", metavar="FILE")
    ] = None,
) -> None:
    """Compare Lyra's scheduling with its parts and the usual ways on real jobs."""
    from pipelines.storage.atomic_files import replace_file
    from pipelines.studies.given_files import check_places, read_job_trace
    from pipelines.studies.scheduling_words import render
    from simulation.scheduling.comparison import Setting, compare
    from simulation.scheduling.engine import Timing
    from simulation.scheduling.policies import POLICIES
    from simulation.scheduling.servers import Shape
    from simulation.scheduling.workload import Mix

    check_places(out, figure)
    mix = Mix(
        days=days,
        mapping=mapping,
        n_jobs=n_jobs,
        elastic_share=elastic_share,
        scaling=scaling,
        fungible_share=fungible_share,
    )
    setting = Setting(
        mix=mix,
        shape=Shape(lent_per_gpu=lent_per_gpu),
        timing=Timing(preemption_s=preemption_s),
    )
    runs = compare(
        read_job_trace(jobs),
        setting,
        policies=POLICIES,
        loads=dict.fromkeys(load or (0.7, 0.8, 0.9, 1.0, 1.1)),
        seeds=range(seeds),
        say=lambda line: typer.echo(line, err=True),
    )
    typer.echo(render(runs))
    if out is not None:
        replace_file(out, runs.write_csv().encode())
    if figure is not None:
        from pipelines.studies.scheduling_figure import render_figure

        replace_file(figure, render_figure(runs).encode())
