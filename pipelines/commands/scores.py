"""The commands that make, judge and show scores: `score`, `scores`, `outcomes`, `metrics`.

No logic: each command's work is in `pipelines.serving`.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings file; default: $FOREWARN_SETTINGS.", metavar="FILE"),
]
LoopOption = Annotated[
    bool, typer.Option("--loop", help="Go on with tick after tick until SIGTERM.")
]
DiscardOption = Annotated[
    bool,
    typer.Option(
        "--discard-future",
        help="First take back ticks later than now, left by a clock that was ahead.",
    ),
]


class Kind(StrEnum):
    """Whose scores are shown."""

    node = "node"
    gpu = "gpu"


_LOOPBACK: Final = "127.0.0.1:9184"


def score(
    *,
    settings: SettingsOption = None,
    loop: LoopOption = False,
    discard_future: DiscardOption = False,
) -> None:
    """Score the last full hour by the champions and publish it; nothing due: says so."""
    from pipelines.serving import score_loop as work
    from pipelines.settings import load_settings

    chosen = load_settings(settings)
    if discard_future:
        typer.echo(work.discard_future(chosen), err=True)
    scorer = work.scorer_of(chosen, say=lambda line: typer.echo(line, err=True))
    if chosen.serving.report_to_dagster:
        from pipelines.defs.external import reporter

        scorer.report = reporter(chosen)
    with work.stopped_by_signals(scorer.stop):
        if loop:
            scorer.run()
            return
        made = scorer.once()
    typer.echo(made.words() if made else f"nothing is scored: {scorer.status.why}")
    for part, problem in scorer.status.problems.items():
        typer.echo(f"{part}: {problem}", err=True)
    raise typer.Exit(1 if scorer.status.problems else 0)


def scores(
    entity: Annotated[
        str | None, typer.Argument(help="A node, or a GPU with --kind gpu; default: the ranking.")
    ] = None,
    settings: SettingsOption = None,
    kind: Annotated[Kind, typer.Option(help="Nodes or GPUs.")] = Kind.node,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Horizon, hours; default: the settings' first.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Rows at most.")] = 20,
) -> None:
    """Show the newest scores, highest first; of one node or GPU with the reasons."""
    from datetime import UTC, datetime

    from pipelines.serving import score_reader, score_words
    from pipelines.serving.place import open_scores
    from pipelines.settings import load_settings

    chosen, now = load_settings(settings), datetime.now(UTC)
    with open_scores(chosen) as engine:
        if entity is not None:
            found = score_reader.score_of(engine, kind=kind.value, entity_id=entity)
            typer.echo(score_words.entity_in_words(found, entity_id=entity, now=now))
            return
        horizon_h = horizon or chosen.horizons_h[0]
        page = score_reader.latest_scores(engine, kind=kind.value, horizon_h=horizon_h, limit=limit)
    typer.echo(score_words.ranking_in_words(page, horizon_h=horizon_h, now=now))


def outcomes(settings: SettingsOption = None) -> None:
    """Join outcomes back to live alerts and scores of the last weeks; run it daily."""
    from datetime import UTC, datetime

    from pipelines.serving.live_outcomes import judge_live
    from pipelines.serving.outcome_words import words_of
    from pipelines.serving.place import open_scores
    from pipelines.settings import load_settings
    from pipelines.sources.catalogue import load_catalogue

    chosen = load_settings(settings)
    catalogue = load_catalogue(chosen.fault_catalogue)
    with open_scores(chosen) as engine:
        judged = judge_live(chosen, engine=engine, catalogue=catalogue, now=datetime.now(UTC))
    typer.echo(words_of(judged))


def metrics(
    settings: SettingsOption = None,
    listen: Annotated[
        str, typer.Option(help="Address and port to serve on.", metavar="HOST:PORT")
    ] = _LOOPBACK,
) -> None:
    """Serve scores and pipeline health to Prometheus at /metrics until Ctrl-C."""
    from pipelines.serving.metrics_server import serve_metrics
    from pipelines.serving.open_metrics import metrics_registry
    from pipelines.settings import load_settings

    registry = metrics_registry(load_settings(settings))
    serve_metrics(registry, listen=listen, say=lambda s: typer.echo(s, err=True))
