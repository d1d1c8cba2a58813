"""`forewarn simulate scheduling`: policies side by side on a trace of real jobs, as a table.

Running them is in `simulation.scheduling`, the words in `pipelines.studies.scheduling_words`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

if TYPE_CHECKING:
    import polars as pl

    from simulation.scheduling.comparison import Setting

JobsOption = Annotated[
    Path,
    typer.Option(help="CSV of jobs: timestamp, duration (seconds), num_gpus.", metavar="FILE"),
]
LoadOption = Annotated[
    list[float] | None,
    typer.Option(min=0.01, max=10, help="Offered load; may be repeated. Default: 0.7 to 1.1."),
]
SeedsOption = Annotated[int, typer.Option(min=1, max=1000, help="Seeds, from 0 on.")]
DaysOption = Annotated[int, typer.Option(min=1, max=366, help="Days over which jobs arrive.")]
JobCountOption = Annotated[
    int | None,
    typer.Option(
        "--n-jobs",
        min=1,
        max=10_000_000,
        help="Jobs; default: as the load asks, durations kept.",
    ),
]
MappingOption = Annotated[
    Literal["squeezed", "days"],
    typer.Option(help="Squeeze the trace's time, or lay its days over one another."),
]
ElasticShareOption = Annotated[
    float, typer.Option(min=0, max=1, help="Share of GPU time of elastic jobs.")
]
ScalingOption = Annotated[
    int, typer.Option(min=1, max=16, help="Most workers of an elastic job over its base.")
]
FungibleShareOption = Annotated[
    float, typer.Option(min=0, max=1, help="Share of other jobs that run on inference GPUs.")
]
LentPerGpuOption = Annotated[
    int, typer.Option(min=1, max=64, help="Inference GPUs that do the work of a training GPU.")
]
PreemptionOption = Annotated[
    float, typer.Option(min=0, max=86_400, help="Seconds of work that a preemption costs.")
]
RunsOption = Annotated[
    Path | None, typer.Option(help="Also write every run here, as CSV.", metavar="FILE")
]
FigureOption = Annotated[
    Path | None, typer.Option(help="Also draw the curves here, as SVG.", metavar="FILE")
]

_LOADS: Final = (0.7, 0.8, 0.9, 1.0, 1.1)


def scheduling(  # noqa: PLR0913, PLR0917 - options of a command, each by its name
    jobs: JobsOption,
    load: LoadOption = None,
    seeds: SeedsOption = 5,
    days: DaysOption = 15,
    n_jobs: JobCountOption = None,
    mapping: MappingOption = "squeezed",
    elastic_share: ElasticShareOption = 0.36,
    scaling: ScalingOption = 2,
    fungible_share: FungibleShareOption = 0.21,
    lent_per_gpu: LentPerGpuOption = 3,
    preemption_s: PreemptionOption = 63.0,
    out: RunsOption = None,
    figure: FigureOption = None,
) -> None:
    """Compare Lyra's scheduling with its parts and the usual ways on real jobs."""
    from pipelines.studies.given_files import check_places
    from simulation.scheduling.comparison import Setting
    from simulation.scheduling.engine import Timing
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
    runs = _compared(jobs, setting, loads=load or _LOADS, n_seeds=seeds)
    _tell(runs, out=out, figure=figure)


def _compared(
    jobs: Path, setting: "Setting", *, loads: Iterable[float], n_seeds: int
) -> "pl.DataFrame":
    """Every policy at every load, with the seeds from 0 on; progress goes to standard error."""
    from pipelines.studies.given_files import read_job_trace
    from simulation.scheduling.comparison import compare
    from simulation.scheduling.policies import POLICIES

    return compare(
        read_job_trace(jobs),
        setting,
        policies=POLICIES,
        loads=dict.fromkeys(loads),
        seeds=range(n_seeds),
        say=lambda line: typer.echo(line, err=True),
    )


def _tell(runs: "pl.DataFrame", *, out: Path | None, figure: Path | None) -> None:
    """Prints the table, and writes the runs and the curves where asked for."""
    from pipelines.storage.atomic_files import replace_file
    from pipelines.studies.scheduling_words import render

    typer.echo(render(runs))
    if out is not None:
        replace_file(out, runs.write_csv().encode())
    if figure is not None:
        from pipelines.studies.scheduling_figure import render_figure

        replace_file(figure, render_figure(runs).encode())
