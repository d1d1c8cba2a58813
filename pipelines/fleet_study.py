"""Learns from synthetic fleets, tunes on others, judges on fleets never seen, beside the ceiling.

The steps are the product's own; how a fleet becomes features is in `pipelines.fleet_shards`, how
results are told in `pipelines.fleet_study_words`.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from features.catalogue import FaultCatalogue
from features.labels import LabelSpec
from features.matrix import MatrixSpec
from models.calibration import fit_calibration
from models.event_metrics import evaluate_events
from models.failure_model import FailureModel
from models.fleet_judgement import judge_scores, recall_by_class
from models.host_part import HOST_FEATURES, fit_host
from models.monotone import with_rising
from models.node_scores import NodeCombination, host_probability
from models.policy_rows import PolicyRows, policy_rows
from models.policy_tuning import PolicyGrid, halves_by_node, tune_for_budget, tune_for_precision
from models.specs import Task
from models.thresholds import ThresholdChoice
from models.training import train, training_rows
from models.warnings import raise_alerts
from pipelines.feature_set import full_telemetry
from pipelines.fleet_shards import SHARD_NODES, TICK, FleetShard, Stretch, read_shard
from pipelines.fleet_study_plan import LEAD, Judged, StudyPlan, Trained
from pipelines.sources.catalogue import load_catalogue
from simulation.fleet.ceiling import Reader, recall_ceiling
from simulation.fleet.generate import Fleet, simulate_fleet
from simulation.regimes.load import load_regime
from simulation.writers.truth_tables import truth_tables

_SCRAPE_S: Final = 300
_NO_FEATURE: Final = (
    "entity_id",
    "as_of",
    "node",
    "label",
    "fault_type",
    "incident_id",
    "censored_by",
)
_SHARD_SEEDS: Final = 1000
"""Seeds of a fleet's shards lie between its own and the next fleet's."""


def run_study(plan: StudyPlan, *, say: Callable[[str], None]) -> tuple[Judged, ...]:
    """Runs the study.

    Args:
        plan: What and how.
        say: Where progress lines go.

    Returns:
        One judgement per regime, horizon and policy.
    """
    spec = study_matrix(plan.feature_set)
    models = _learn(plan, spec, say=say)
    trained = _tune(plan, spec, models, say=say)
    judged: list[Judged] = []
    for regime, seeds in plan.test:
        say(f"judging on {regime}, seeds {', '.join(map(str, seeds))}")
        rows, incidents, ceilings = score_fleets(plan, spec, trained, regime=regime, seeds=seeds)
        judged += judge(plan, trained, rows, incidents=incidents, ceilings=ceilings, regime=regime)
    return tuple(judged)


def study_matrix(feature_set: str) -> MatrixSpec:
    """The features of the study, those of an installation with that setting."""
    catalogue = load_catalogue()
    if feature_set == "full":
        return MatrixSpec(catalogue=catalogue, telemetry=full_telemetry("rack"))
    return MatrixSpec(catalogue=catalogue)


def shards_of(
    plan: StudyPlan, *, regime: str, seed: int, catalogue: FaultCatalogue
) -> Iterator[tuple[Fleet, FleetShard]]:
    """The shards of a fleet, each simulated and written when it is its turn, then removed."""
    named = load_regime(regime)
    rates = named.hazard_multiplier * plan.hazards
    chosen = named.model_copy(update={"scrape_s": _SCRAPE_S, "hazard_multiplier": rates})
    for number, first in enumerate(range(0, plan.nodes, SHARD_NODES)):
        nodes = min(SHARD_NODES, plan.nodes - first)
        # Nodes fail independently: a fleet of shards is a fleet, but for jobs across them.
        own = seed * _SHARD_SEEDS + number
        fleet = simulate_fleet(chosen, seed=own, nodes=nodes, days=plan.days)
        folder = Path(tempfile.mkdtemp(prefix="forewarn-fleet-"))
        try:
            yield fleet, read_shard(fleet, folder, name=f"{seed}.{number}", catalogue=catalogue)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _stretches(
    plan: StudyPlan,
    spec: MatrixSpec,
    *,
    seeds: Sequence[int],
    regime: str | None = None,
    ceilings: dict[str, pl.DataFrame] | None = None,
) -> Iterator[tuple[FleetShard, Stretch]]:
    """Every stretch of fleets in turn; each shard's recall ceiling is noted where asked for."""
    catalogue = load_catalogue()
    labels = LabelSpec(lead=LEAD, horizons_h=plan.horizons_h)
    for seed in seeds:
        fleets = shards_of(plan, regime=regime or plan.regime, seed=seed, catalogue=catalogue)
        for fleet, shard in fleets:
            if ceilings is not None:
                ceilings[shard.name] = recall_ceiling(
                    truth_tables(fleet),
                    horizons_h=plan.horizons_h,
                    reader=Reader(budget=plan.reader_budget),
                )
            for stretch in shard.stretches(spec, labels=labels):
                yield shard, stretch


def _learn(
    plan: StudyPlan, matrix: MatrixSpec, *, say: Callable[[str], None]
) -> dict[int, tuple[FailureModel, NodeCombination]]:
    """An uncalibrated model and combination by horizon."""
    kept: dict[int, list[pl.DataFrame]] = {h: [] for h in plan.horizons_h}
    hosts: dict[int, list[pl.DataFrame]] = {h: [] for h in plan.horizons_h}
    counts: list[pl.DataFrame] = []
    incidents: dict[str, pl.DataFrame] = {}
    rng = np.random.default_rng(plan.spec.seeds[0])
    for shard, stretch in _stretches(plan, matrix, seeds=plan.train_seeds):
        incidents[shard.name] = shard.incidents
        counts.append(_host_counts(stretch.matrix).unique(["node", "as_of"], keep="any"))
        for horizon_h in plan.horizons_h:
            rows = training_rows(stretch.matrix, stretch.labels, horizon_h=horizon_h)
            kept[horizon_h].append(sampled(rows, share=plan.negative_share, rng=rng))
            hosts[horizon_h].append(node_labels(stretch.labels, horizon_h=horizon_h))
    found, counted = pl.concat(incidents.values()), pl.concat(counts)
    names = [name for name in kept[plan.horizons_h[0]][0].columns if name not in _NO_FEATURE]
    models = {}
    for horizon_h in plan.horizons_h:
        rows = pl.concat(kept.pop(horizon_h))
        task = plan.task(horizon_h, "gpu")
        spec = with_rising(plan.spec, names)
        model = train(rows, feature_names=names, task=task, spec=spec)
        nodes, of_nodes = pl.concat(hosts.pop(horizon_h)), plan.task(horizon_h)
        combination = NodeCombination(
            host_probability(nodes, incidents=found, task=of_nodes),
            host=fit_host(counted, nodes, incidents=found, task=of_nodes),
        )
        say(f"{horizon_h} h: {model.n_incidents} incidents in {rows.height} rows to learn from")
        models[horizon_h] = (model, combination)
    return models


def _tune(
    plan: StudyPlan,
    spec: MatrixSpec,
    models: Mapping[int, tuple[FailureModel, NodeCombination]],
    *,
    say: Callable[[str], None],
) -> dict[int, Trained]:
    """Calibrates on the validation fleets and chooses policies on them."""
    raw: dict[int, list[pl.DataFrame]] = {h: [] for h in models}
    labels: dict[int, list[pl.DataFrame]] = {h: [] for h in models}
    incidents: dict[str, pl.DataFrame] = {}
    for shard, stretch in _stretches(plan, spec, seeds=plan.valid_seeds):
        incidents[shard.name] = shard.incidents
        for horizon_h, (model, _) in models.items():
            raw[horizon_h].append(_raw_rows(stretch, model))
            labels[horizon_h].append(node_labels(stretch.labels, horizon_h=horizon_h))
    found = pl.concat(incidents.values())
    tuned = {}
    for horizon_h, (model, combination) in models.items():
        rows, told = pl.concat(raw.pop(horizon_h)), pl.concat(labels.pop(horizon_h))
        known = rows.drop_nulls("label")
        fitted = fit_calibration(
            known["raw"].cast(pl.Float64).to_numpy(), known["label"].to_numpy()
        )
        scores = fitted.apply(rows["raw"].cast(pl.Float64).to_numpy())
        scored = rows.drop("raw", "label").with_columns(score=pl.Series(scores))
        nodes = combination.calibrated_on(scored, told)
        on_nodes = _node_rows(nodes.combine(scored), told)
        task = plan.task(horizon_h)
        budget, strict = _policies(plan, on_nodes, incidents=found, task=task)
        say(f"{horizon_h} h: {budget.explanation}")
        say(f"{horizon_h} h: {strict.explanation}")
        calibrated = replace(model, calibration=fitted)
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
    plan: StudyPlan,
    spec: MatrixSpec,
    trained: Mapping[int, Trained],
    *,
    regime: str,
    seeds: Sequence[int],
) -> tuple[dict[int, pl.DataFrame], pl.DataFrame, pl.DataFrame]:
    """Scores every node of fleets at every tick.

    Args:
        plan: Size of the fleets.
        spec: Which features.
        trained: Models by horizon.
        regime: Regime of the fleets.
        seeds: Their seeds.

    Returns:
        Scored rows of nodes with labels by horizon, core/incidents, and the recall ceiling of
        each shard.
    """
    rows: dict[int, list[pl.DataFrame]] = {h: [] for h in trained}
    incidents: dict[str, pl.DataFrame] = {}
    ceilings: dict[str, pl.DataFrame] = {}
    for shard, stretch in _stretches(plan, spec, seeds=seeds, regime=regime, ceilings=ceilings):
        incidents[shard.name] = shard.incidents
        for horizon_h, one in trained.items():
            scores = one.model.scores(stretch.matrix)
            scored = _host_counts(stretch.matrix).with_columns(score=pl.Series(scores))
            told = node_labels(stretch.labels, horizon_h=horizon_h)
            rows[horizon_h].append(_node_rows(one.nodes.combine(scored), told))
    return (
        {h: pl.concat(parts) for h, parts in rows.items()},
        pl.concat(incidents.values()),
        pl.concat(ceilings.values()),
    )


def judge(
    plan: StudyPlan,
    trained: Mapping[int, Trained],
    rows: Mapping[int, pl.DataFrame],
    *,
    incidents: pl.DataFrame,
    ceilings: pl.DataFrame,
    regime: str,
) -> list[Judged]:
    """Judges every horizon and policy on scored rows of nodes; see `score_fleets`."""
    judged = []
    for horizon_h, one in trained.items():
        task, scored = plan.task(horizon_h), rows[horizon_h]
        for name, choice in (("budget", one.budget), ("strict", one.strict)):
            if choice.policy is None:
                judged.append(Judged(regime, horizon_h, name, choice, None, (), None))
                continue
            alerts = raise_alerts(scored, choice.policy)
            events = evaluate_events(
                alerts,
                scored,
                incidents=incidents,
                task=task,
                tick=TICK,
                bootstrap=plan.bootstrap,
            )
            at_budget, by_signs = (
                _mean_ceilings(ceilings, horizon_h=horizon_h, bound=bound)
                for bound in ("ceiling_at_budget", "ceiling_by_signs")
            )
            classes = recall_by_class(
                alerts,
                scored,
                incidents=incidents,
                task=task,
                ceilings=at_budget,
                by_signs=by_signs,
            )
            truth = judge_scores(
                scored, threshold=choice.policy.threshold, bootstrap=plan.bootstrap
            )
            judged.append(Judged(regime, horizon_h, name, choice, events, classes, truth))
    return judged


def sampled(rows: pl.DataFrame, *, share: float, rng: np.random.Generator) -> pl.DataFrame:
    """Every positive row, and a share of the negatives drawn at random."""
    is_drawn = pl.Series(rng.random(rows.height) < share)
    return rows.filter((pl.col("label") == 1) | ((pl.col("label") == 0) & is_drawn))


def node_labels(labels: pl.DataFrame, *, horizon_h: int) -> pl.DataFrame:
    """Labels of nodes for a horizon."""
    chosen = (pl.col("entity_kind") == "node") & (pl.col("horizon_h") == horizon_h)
    return labels.filter(chosen).select(
        "entity_id", "as_of", "label", "incident_id", node="entity_id"
    )


def _raw_rows(stretch: Stretch, model: FailureModel) -> pl.DataFrame:
    """Raw scores of GPUs beside their labels."""
    raw = pl.Series(model.raw_scores(stretch.matrix), dtype=pl.Float32)
    chosen = (pl.col("entity_kind") == "gpu") & (pl.col("horizon_h") == model.horizon_h)
    told = stretch.labels.filter(chosen).select("entity_id", "as_of", "label")
    rows = _host_counts(stretch.matrix).with_columns(stretch.matrix["entity_id"], raw=raw)
    joined = rows.join(told, on=["entity_id", "as_of"], how="left", maintain_order="left")
    return joined.drop("entity_id")


def _host_counts(matrix: pl.DataFrame) -> pl.DataFrame:
    """What of a matrix the host part reads, small: all rows of the validation are in memory."""
    counts = [name for name in HOST_FEATURES if name in matrix.columns]
    return matrix.select("node", "as_of", pl.col(counts).fill_null(0).cast(pl.UInt16))


def _node_rows(scores: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Labelled rows of nodes with their scores; null where no GPU was scored."""
    return labels.join(
        scores.select("node", "as_of", "score"),
        on=["node", "as_of"],
        how="left",
        maintain_order="left",
    )


def _mean_ceilings(ceilings: pl.DataFrame, *, horizon_h: int, bound: str) -> dict[str, float]:
    """A recall ceiling by class, over shards by their incidents."""
    weight = pl.col("incidents").cast(pl.Float64)
    caught = (pl.col(bound) * weight).sum() / weight.sum()
    at = ceilings.filter(pl.col("horizon_h") == horizon_h)
    return dict(at.group_by("fault_type").agg(caught).iter_rows())
