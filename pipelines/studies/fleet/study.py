"""Learns from synthetic fleets, tunes on others, judges on fleets never seen, beside the ceiling.

The steps are the product's own; how a fleet becomes features is in
`pipelines.studies.fleet.shards`, how results are told in `pipelines.studies.fleet.words`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from features.labels import LabelSpec
from features.matrix import MatrixSpec
from models.calibration import fit_calibration, incidents_behind
from models.evaluation.event_metrics import evaluate_events
from models.evaluation.fleet_judgement import judge_scores, recall_by_class
from models.failure_model import FailureModel
from models.policies.rows import PolicyRows, dispersion, policy_rows
from models.policies.thresholds import ThresholdChoice
from models.policies.tuning import PolicyGrid, halves_by_node, tune_for_budget, tune_for_precision
from models.policies.warnings import raise_alerts
from models.specs import Task
from pipelines.flow.feature_set import full_telemetry
from pipelines.sources.catalogue import load_catalogue
from pipelines.studies.fleet.cache import Asked, ToldShard, tell_fleet
from pipelines.studies.fleet.learning import host_counts, learn, node_labels
from pipelines.studies.fleet.plan import HORIZONS_H, LEAD, Judged, Learned, StudyPlan, Trained
from pipelines.studies.fleet.shards import TICK, Stretch
from simulation.fleet.ceiling import Reader, recall_ceiling
from simulation.fleet.generate import Fleet
from simulation.fleet.record_ceiling import recall_by_record
from simulation.regimes.load import load_regime
from simulation.writers.truth_tables import truth_tables

_SCRAPE_S: Final = 300


@dataclass(frozen=True)
class Scored:
    """Fleets with the scores of their nodes.

    Attributes:
        rows: Scored rows of nodes with labels, by horizon.
        incidents: core/incidents.
        ceilings: Recall ceiling of each shard.
    """

    rows: Mapping[int, pl.DataFrame]
    incidents: pl.DataFrame
    ceilings: pl.DataFrame


def run_study(
    plan: StudyPlan, *, say: Callable[[str], None], cache: Path | None = None
) -> tuple[Judged, ...]:
    """Runs the study.

    Args:
        plan: What and how.
        say: Where progress lines go.
        cache: Folder that keeps the features of fleets from run to run; None: they are not kept.

    Returns:
        One judgement per regime, horizon and policy.
    """
    spec = study_matrix(plan.feature_set)
    fleets = partial(shards_of, plan, spec, cache=cache)
    learned = learn(plan, fleets(regime=plan.regime, seeds=plan.train_seeds), say=say)
    tuned_on = fleets(regime=plan.regime, seeds=plan.valid_seeds)
    trained = tune(plan, tuned_on, learned, say=say)
    judged: list[Judged] = []
    for regime, seeds in plan.test:
        say(f"judging on {regime}, seeds {', '.join(map(str, seeds))}")
        told = score_fleets(plan, fleets(regime=regime, seeds=seeds), trained)
        judged += judge(plan, trained, told, regime=regime)
    return tuple(judged)


def study_matrix(feature_set: str) -> MatrixSpec:
    """The features of the study, those of an installation with that setting."""
    catalogue = load_catalogue()
    if feature_set == "full":
        return MatrixSpec(catalogue=catalogue, telemetry=full_telemetry("rack"))
    return MatrixSpec(catalogue=catalogue)


def shards_of(
    plan: StudyPlan, spec: MatrixSpec, *, regime: str, seeds: Sequence[int], cache: Path | None
) -> Iterator[ToldShard]:
    """The shards of fleets of a regime; those of seeds to learn from fail more often."""
    named = load_regime(regime)
    asked = Asked(
        nodes=plan.nodes,
        days=plan.days,
        matrix=spec,
        labels=LabelSpec(
            lead=LEAD, horizons_h=tuple(dict.fromkeys((*HORIZONS_H, *plan.horizons_h)))
        ),
        cache=cache,
    )
    for seed in seeds:
        factor = plan.density if seed in plan.train_seeds else plan.hazards
        rates = named.hazard_multiplier * factor
        chosen = named.model_copy(update={"scrape_s": _SCRAPE_S, "hazard_multiplier": rates})
        yield from tell_fleet(asked, chosen, seed=seed)


def tune(
    plan: StudyPlan,
    shards: Iterator[ToldShard],
    learned: Mapping[int, Learned],
    *,
    say: Callable[[str], None],
) -> dict[int, Trained]:
    """Calibrates on the validation fleets and chooses policies on them."""
    raw: dict[int, list[pl.DataFrame]] = {h: [] for h in learned}
    labels: dict[int, list[pl.DataFrame]] = {h: [] for h in learned}
    incidents: list[pl.DataFrame] = []
    for shard in shards:
        incidents.append(shard.incidents)
        for stretch in shard.stretches:
            for horizon_h, one in learned.items():
                raw[horizon_h].append(_raw_rows(stretch, one.model))
                labels[horizon_h].append(node_labels(stretch.labels, horizon_h=horizon_h))
        say(f"tuning: shard {shard.name} with {shard.incidents.height} incidents scored")
    found = pl.concat(incidents)
    tuned = {}
    for horizon_h, one in learned.items():
        rows, told = pl.concat(raw.pop(horizon_h)), pl.concat(labels.pop(horizon_h))
        known = rows.drop_nulls("label")
        fitted = fit_calibration(
            known["raw"].cast(pl.Float64).to_numpy(),
            known["label"].to_numpy(),
            n_incidents=incidents_behind(known),
        )
        scores = fitted.apply(rows["raw"].cast(pl.Float64).to_numpy())
        scored = rows.drop("raw", "label", "incident_id").with_columns(score=pl.Series(scores))
        nodes = one.nodes.calibrated_on(scored, told)
        on_nodes = _node_rows(nodes.combine(scored), told)
        budget, strict = _policies(plan, on_nodes, incidents=found, task=plan.task(horizon_h))
        say(f"{horizon_h} h: {budget.explanation}")
        say(f"{horizon_h} h: {strict.explanation}")
        calibrated = replace(one.model, calibration=fitted)
        tuned[horizon_h] = Trained(calibrated, nodes, budget, strict)
    return tuned


def _policies(
    plan: StudyPlan, rows: pl.DataFrame, *, incidents: pl.DataFrame, task: Task
) -> tuple[ThresholdChoice, ThresholdChoice]:
    grid = PolicyGrid(tick=TICK)

    def prepared(part: pl.DataFrame) -> PolicyRows:
        return policy_rows(part, incidents=incidents, task=task, tick=TICK)

    budget = tune_for_budget(prepared(rows), grid, alerts_per_1000_nodes_per_day=plan.budget)
    first, second = halves_by_node(rows)
    strict = tune_for_precision(prepared(first), prepared(second), grid, precision=plan.precision)
    return budget, strict


def score_fleets(
    plan: StudyPlan, shards: Iterator[ToldShard], trained: Mapping[int, Trained]
) -> Scored:
    """Scores every node of fleets at every tick.

    Args:
        plan: Horizons and budget.
        shards: Of the fleets.
        trained: Models by horizon.

    Returns:
        What was scored, with the recall ceilings.
    """
    rows: dict[int, list[pl.DataFrame]] = {h: [] for h in trained}
    incidents: list[pl.DataFrame] = []
    ceilings: list[pl.DataFrame] = []
    for shard in shards:
        incidents.append(shard.incidents)
        ceilings.append(_ceilings(plan, shard.truth))
        for stretch in shard.stretches:
            for horizon_h, one in trained.items():
                scores = one.model.scores(stretch.matrix)
                scored = host_counts(stretch.matrix).with_columns(score=pl.Series(scores))
                told = node_labels(stretch.labels, horizon_h=horizon_h)
                rows[horizon_h].append(_node_rows(one.nodes.combine(scored), told))
    return Scored(
        {h: pl.concat(parts) for h, parts in rows.items()},
        pl.concat(incidents),
        pl.concat(ceilings),
    )


def judge(
    plan: StudyPlan, trained: Mapping[int, Trained], told: Scored, *, regime: str
) -> list[Judged]:
    """Judges every horizon and policy on scored rows of nodes; see `score_fleets`."""
    judged = []
    for horizon_h, one in trained.items():
        task, scored = plan.task(horizon_h), told.rows[horizon_h]
        for name, choice in (("budget", one.budget), ("strict", one.strict)):
            if choice.policy is None:
                judged.append(Judged(regime, horizon_h, name, choice, None, (), None))
                continue
            alerts = raise_alerts(scored, choice.policy)
            events = evaluate_events(
                alerts,
                scored,
                incidents=told.incidents,
                task=task,
                tick=TICK,
                bootstrap=plan.bootstrap,
            )
            at_budget, by_signs, by_record = (
                _mean_ceilings(told.ceilings, horizon_h=horizon_h, bound=bound)
                for bound in ("ceiling_at_budget", "ceiling_by_signs", "ceiling_by_record")
            )
            classes = recall_by_class(
                alerts,
                scored,
                incidents=told.incidents,
                task=task,
                ceilings=at_budget,
                by_signs=by_signs,
                by_record=by_record,
            )
            truth = judge_scores(
                scored, threshold=choice.policy.threshold, bootstrap=plan.bootstrap
            )
            clustering = _clustering(alerts, scored)
            judged.append(
                Judged(regime, horizon_h, name, choice, events, classes, truth, clustering)
            )
    return judged


def _clustering(alerts: pl.DataFrame, scored: pl.DataFrame) -> float:
    """How alerts cluster by node; in the simulation nodes fail independently of each other."""
    node = alerts["entity_id"].rank("dense").cast(pl.Int64).to_numpy() - 1
    return dispersion(node, n_units=scored["entity_id"].n_unique())


def _raw_rows(stretch: Stretch, model: FailureModel) -> pl.DataFrame:
    """Raw scores of GPUs beside their labels."""
    raw = pl.Series(model.raw_scores(stretch.matrix), dtype=pl.Float32)
    chosen = (pl.col("entity_kind") == "gpu") & (pl.col("horizon_h") == model.horizon_h)
    told = stretch.labels.filter(chosen).select("entity_id", "as_of", "label", "incident_id")
    rows = host_counts(stretch.matrix).with_columns(stretch.matrix["entity_id"], raw=raw)
    joined = rows.join(told, on=["entity_id", "as_of"], how="left", maintain_order="left")
    return joined.drop("entity_id")


def _node_rows(scores: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Labelled rows of nodes with their scores; null where no GPU was scored."""
    return labels.join(
        scores.select("node", "as_of", "score"),
        on=["node", "as_of"],
        how="left",
        maintain_order="left",
    )


def _ceilings(plan: StudyPlan, truth: Fleet) -> pl.DataFrame:
    """All ceilings of a shard, by class and horizon."""
    reader = Reader(budget=plan.reader_budget)
    found = recall_ceiling(truth_tables(truth), horizons_h=plan.horizons_h, reader=reader)
    by_record = [
        (name, float(horizon_h), share)
        for horizon_h in plan.horizons_h
        for name, share in recall_by_record(truth, horizon_h=horizon_h, reader=reader).items()
    ]
    schema = {
        "fault_type": pl.String(),
        "horizon_h": pl.Float64(),
        "ceiling_by_record": pl.Float64(),
    }
    told = pl.DataFrame(by_record, schema=schema, orient="row")
    return found.join(told, on=["fault_type", "horizon_h"], how="left")


def _mean_ceilings(ceilings: pl.DataFrame, *, horizon_h: int, bound: str) -> dict[str, float]:
    """A recall ceiling by class, over shards by their incidents."""
    weight = pl.col("incidents").cast(pl.Float64)
    caught = (pl.col(bound) * weight).sum() / weight.sum()
    at = ceilings.filter(pl.col("horizon_h") == horizon_h)
    return dict(at.group_by("fault_type").agg(caught).iter_rows())
