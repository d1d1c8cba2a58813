"""`forewarn simulate study`: learn on synthetic fleets and be judged on others, beside the ceiling.

The steps are in `pipelines.studies.fleet.study`, the words in `pipelines.studies.fleet.words`.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from pipelines.studies.fleet.plan import StudyPlan

RegimeOption = Annotated[str, typer.Option(help="Regime of the fleets learned from.")]
TrainSeedOption = Annotated[
    list[int] | None, typer.Option(help="Fleet to learn from; may be repeated. Default: 1.")
]
ValidSeedOption = Annotated[
    list[int] | None, typer.Option(help="Fleet to tune on; may be repeated. Default: 11, 12.")
]
TestSeedOption = Annotated[
    list[int] | None, typer.Option(help="Fleet to judge; may be repeated. Default: 21, 22.")
]
TestRegimeOption = Annotated[
    list[str] | None,
    typer.Option(help="Regime to judge; may be repeated. Default: that learned from."),
]
NodesOption = Annotated[int, typer.Option(min=4, max=25_000, help="Nodes of each fleet.")]
DaysOption = Annotated[int, typer.Option(min=9, max=3660, help="Days of each fleet.")]
DensityOption = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=100,
        help="Factor on the failure rates of fleets to learn from; quiet hours weigh as much.",
    ),
]
HazardsOption = Annotated[
    float, typer.Option(min=0.01, max=100, help="Factor on the failure rates of the others.")
]
HorizonOption = Annotated[
    list[int] | None, typer.Option(help="Horizon; may be repeated. Default: 24, 1, 168.")
]
BudgetOption = Annotated[
    float, typer.Option(min=0.01, help="Alerts per 1,000 nodes per day, at most.")
]
PrecisionOption = Annotated[
    float, typer.Option(min=0.01, max=0.99, help="Precision of the strict policy.")
]
FeatureSetOption = Annotated[Literal["standard", "full"], typer.Option(help="Features.")]
CacheOption = Annotated[
    Path | None,
    typer.Option(help="Folder that keeps the features of fleets for the next run.", metavar="DIR"),
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Also write everything here.", metavar="FILE")
]


def study(  # noqa: PLR0913, PLR0917 - options of a command, each by its name
    regime: RegimeOption = "h100",
    train_seed: TrainSeedOption = None,
    valid_seed: ValidSeedOption = None,
    test_seed: TestSeedOption = None,
    test_regime: TestRegimeOption = None,
    nodes: NodesOption = 512,
    days: DaysOption = 60,
    density: DensityOption = 12.0,
    hazards: HazardsOption = 1.0,
    horizon_h: HorizonOption = None,
    budget: BudgetOption = 10.0,
    precision: PrecisionOption = 0.85,
    feature_set: FeatureSetOption = "standard",
    cache: CacheOption = None,
    json_file: JsonOption = None,
) -> None:
    """Judge the product's own learning on fleets whose failures are known. Takes hours of CPU."""
    from pipelines.studies.fleet.plan import StudyPlan
    from pipelines.studies.given_files import check_places

    check_places(json_file)
    seeds = tuple(test_seed or (21, 22))
    plan = StudyPlan(
        regime=regime,
        train_seeds=tuple(train_seed or (1,)),
        valid_seeds=tuple(valid_seed or (11, 12)),
        test=tuple((name, seeds) for name in test_regime or (regime,)),
        nodes=nodes,
        days=days,
        density=density,
        hazards=hazards,
        horizons_h=tuple(horizon_h or (24, 1, 168)),
        budget=budget,
        precision=precision,
        feature_set=feature_set,
    )
    _judge(plan, cache=cache, json_file=json_file)


def _judge(plan: "StudyPlan", *, cache: Path | None, json_file: Path | None) -> None:
    """Runs the plan, prints what was found, and writes it where asked for."""
    from pipelines.storage.atomic_files import replace_file
    from pipelines.studies.fleet.study import run_study
    from pipelines.studies.fleet.words import study_in_words

    judged = run_study(plan, say=lambda line: typer.echo(line, err=True), cache=cache)
    typer.echo(study_in_words(plan, judged))
    if json_file is not None:
        document = {"plan": plan.to_dict(), "results": [one.to_dict() for one in judged]}
        replace_file(json_file, json.dumps(document, indent=1).encode())
