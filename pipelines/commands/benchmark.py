"""The command `forewarn benchmark`.

No logic: the work is in `pipelines.studies.benchmark.run`.
"""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

NameArgument = Annotated[
    str | None,
    typer.Argument(
        help="Which benchmark: titan, backblaze or grid5000; none with --history.",
        show_default=False,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the data set, or its file; default: the folder of --history.",
        metavar="PATH",
    ),
]
HistoryOption = Annotated[
    Path | None,
    typer.Option(
        help="Protocol of your own record (docs/benchmarks/own_history.md).", metavar="FILE"
    ),
]
OriginOption = Annotated[
    list[datetime] | None,
    typer.Option(
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"],
        help="End of training, UTC; may be repeated. Default: those of the protocol.",
    ),
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Also write the result here.", metavar="FILE")
]
PageOption = Annotated[
    Path | None, typer.Option("--out", help="Also write an HTML page here.", metavar="FILE")
]


def benchmark(
    name: NameArgument = None,
    data: DataOption = None,
    history: HistoryOption = None,
    origin: OriginOption = None,
    json_file: JsonOption = None,
    out: PageOption = None,
) -> None:
    """Train and test on a public data set by its protocol, or on a record of your own."""
    from pipelines.studies.benchmark.run import run_benchmark
    from pipelines.studies.benchmark.text import render

    result = run_benchmark(
        name, data_dir=data, history=history, origins=origin, json_path=json_file, page_path=out
    )
    typer.echo(render(result))
