"""From a feature matrix and labels to a candidate: split, train, calibrate, choose, judge, bundle.

One order for every horizon. Where the inputs come from and where the candidate goes is not known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import polars as pl

from features.registry import Feature, feature_names
from models.baselines import all_baselines
from models.bundle import ModelBundle
from models.card import build_card
from models.evaluation import Bootstrap, Estimate, Evaluation, compare, evaluate
from models.event_metrics import EventMetrics, evaluate_events
from models.failure_model import FailureModel
from models.fault_types import (
    FaultTypeMetrics,
    FaultTypeModel,
    evaluate_fault_types,
    train_fault_types,
)
from models.gate import GateDecision, decide
from models.node_scores import NodeCombination, host_probability
from models.reasons import usual_values
from models.specs import Task, TrainSpec
from models.splits import Origin, TimeSplit, split_by_time
from models.thresholds import ThresholdChoice, threshold_for_budget
from models.training import train, training_rows
from models.warnings import WarningPolicy, raise_alerts

NEVER_ALERT = 2.0
"""Threshold where none qualifies: no probability reaches it, not even one rounded up to 1."""


@dataclass(frozen=True, kw_only=True)
class CandidatePlan:
    """What is trained and how it is judged; fixed before the test rows are looked at.

    Attributes:
        task: GPU task: horizon, lead.
        spec: How boosters are trained.
        origin: The cuts between training, validation and test.
        tick: Time between two rows of an entity.
        alerts_per_1000_nodes_per_day: Alert budget; the threshold is chosen by it on validation.
        n: Scores above the threshold that an alert needs, of the last `k`.
        k: Ticks looked back on.
        cooldown: Time in which an entity that raised an alert raises no other.
        bootstrap: How intervals are made.
    """

    task: Task
    spec: TrainSpec
    origin: Origin
    tick: timedelta
    alerts_per_1000_nodes_per_day: float
    n: int = 2
    k: int = 3
    cooldown: timedelta = timedelta(hours=24)
    bootstrap: Bootstrap = field(default_factory=Bootstrap)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A candidate with what the test rows said of it.

    Attributes:
        bundle: The model and its company, card included.
        gpu_test: Test rows of GPUs with features, label, incident and score.
        node_test: Test rows of nodes, likewise.
        gpu_evaluation: Row metrics of GPU scores.
        node_evaluation: Row metrics of node scores.
        baselines: Row metrics of the baselines on the same GPU rows; None: not available.
        gains: Average precision of the GPU scores minus a baseline's, on the same resamples;
            those available.
        events: Event metrics by entity kind.
        fault_types: Forecast of fault types on the test rows.
        thresholds: How the threshold was chosen, by entity kind.
        gate: Whether it may become champion, with no champion to hold it against.
        dropped: Rows in no part, by reason.
    """

    bundle: ModelBundle
    gpu_test: pl.DataFrame
    node_test: pl.DataFrame
    gpu_evaluation: Evaluation
    node_evaluation: Evaluation
    baselines: Mapping[str, Evaluation | None]
    gains: Mapping[str, Estimate]
    events: Mapping[str, EventMetrics]
    fault_types: FaultTypeMetrics
    thresholds: Mapping[str, ThresholdChoice]
    gate: GateDecision
    dropped: Mapping[str, int]


def build_candidate(
    matrix: pl.DataFrame,
    *,
    labels: pl.DataFrame,
    incidents: pl.DataFrame,
    features: Sequence[Feature],
    plan: CandidatePlan,
) -> Candidate:
    """Trains on the first part, tunes on the second, judges once on the third.

    Args:
        matrix: features/gpu_matrix.
        labels: features/labels of GPUs and of nodes.
        incidents: core/incidents.
        features: Registered features of the matrix.
        plan: What and how.

    Returns:
        The candidate.

    Raises:
        TooFewIncidentsError: Fewer incidents in training than the spec asks for.
        DataError: A part has no rows, or validation too few positives to calibrate on.
    """
    task, names = plan.task, feature_names(features)
    # In one order, so that float sums, and with them the bundle, do not depend on the given one.
    matrix, labels = matrix.sort("entity_id", "as_of"), labels.sort("entity_id", "as_of")
    gpu = _split(training_rows(matrix, labels, horizon_h=task.horizon_h), plan)
    node = _split(_node_rows(labels, task), plan)
    model = train(gpu.train, feature_names=names, task=task, spec=plan.spec, valid=gpu.valid)
    model = model.calibrated_on(gpu.valid)
    valid, test = (
        part.with_columns(score=pl.Series(model.scores(part), dtype=pl.Float64))
        for part in (gpu.valid, gpu.test)
    )
    host = host_probability(node.train, incidents=incidents, task=task)
    nodes = NodeCombination(host).calibrated_on(valid, node.valid)
    node_valid, node_test = (
        _node_scored(part, nodes.combine(scored))
        for part, scored in ((node.valid, valid), (node.test, test))
    )
    choices = {"gpu": _threshold(valid, plan), "node": _threshold(node_valid, plan)}
    policies = {kind: _policy(plan, choice.threshold) for kind, choice in choices.items()}
    events = {
        kind: _events(rows, policies[kind], kind=kind, incidents=incidents, plan=plan)
        for kind, rows in (("gpu", test), ("node", node_test))
    }
    kinds = train_fault_types(gpu.train, feature_names=names, spec=plan.spec)
    judged = evaluate_fault_types(kinds, gpu.test)
    baselines, gains = _baselines(gpu.train, test, features=features, plan=plan)
    evaluation = evaluate(test, bootstrap=plan.bootstrap)
    node_evaluation = evaluate(node_test, bootstrap=plan.bootstrap)
    bundle = _bundle(
        model, gpu.train, features=features, kinds=kinds, nodes=nodes, policies=policies
    )
    card = build_card(
        model,
        evaluation=evaluation,
        baselines={name: one for name, one in baselines.items() if one},
        gains=gains,
        nodes=node_evaluation,
        events=events,
        fault_types=judged,
        thresholds=choices,
    )
    return Candidate(
        bundle=replace(bundle, card=card),
        gpu_test=test,
        node_test=node_test,
        gpu_evaluation=evaluation,
        node_evaluation=node_evaluation,
        baselines=baselines,
        gains=gains,
        events=events,
        fault_types=judged,
        thresholds=choices,
        gate=decide(test, candidate="score", bootstrap=plan.bootstrap),
        dropped=gpu.dropped,
    )


def gate_against(candidate: Candidate, champion: FailureModel) -> GateDecision:
    """Whether a candidate beats the champion beyond chance, on the candidate's test rows.

    Args:
        candidate: The candidate.
        champion: The champion of the same task.

    Returns:
        The decision.

    Raises:
        DataError: The test rows lack a feature of the champion.
    """
    rows = candidate.gpu_test.with_columns(
        champion=pl.Series(champion.scores(candidate.gpu_test), dtype=pl.Float64)
    )
    return decide(rows, candidate="score", champion="champion")


def _split(rows: pl.DataFrame, plan: CandidatePlan) -> TimeSplit:
    origin = plan.origin
    return split_by_time(
        rows,
        train_until=origin.train_until,
        valid_until=origin.valid_until,
        test_until=origin.test_until,
        embargo=plan.task.embargo,
    )


def _node_rows(labels: pl.DataFrame, task: Task) -> pl.DataFrame:
    return labels.filter(
        pl.col("entity_kind") == "node", pl.col("horizon_h") == task.horizon_h
    ).with_columns(node=pl.col("entity_id"))


def _node_scored(rows: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """Every labelled row of a node with its score; null, and counted, where no GPU was scored."""
    known = ("entity_id", "as_of", "node", "label", "fault_type", "incident_id")
    return rows.select(known).join(
        scores.select("node", "as_of", "score"),
        on=["node", "as_of"],
        how="left",
        maintain_order="left",
    )


def _policy(plan: CandidatePlan, threshold: float | None) -> WarningPolicy:
    return WarningPolicy(
        threshold=NEVER_ALERT if threshold is None else threshold,
        n=plan.n,
        k=plan.k,
        tick=plan.tick,
        cooldown=plan.cooldown,
    )


def _threshold(valid: pl.DataFrame, plan: CandidatePlan) -> ThresholdChoice:
    budget = plan.alerts_per_1000_nodes_per_day
    return threshold_for_budget(
        valid, policy=_policy(plan, None), alerts_per_1000_nodes_per_day=budget
    )


def _events(
    rows: pl.DataFrame,
    policy: WarningPolicy,
    *,
    kind: str,
    incidents: pl.DataFrame,
    plan: CandidatePlan,
) -> EventMetrics:
    return evaluate_events(
        raise_alerts(rows, policy),
        rows,
        incidents=incidents,
        task=replace(plan.task, entity_kind=kind),
        tick=plan.tick,
        bootstrap=plan.bootstrap,
    )


def _baselines(
    train_rows: pl.DataFrame,
    test: pl.DataFrame,
    *,
    features: Sequence[Feature],
    plan: CandidatePlan,
) -> tuple[dict[str, Evaluation | None], dict[str, Estimate]]:
    """Judges each baseline on the scored test rows, and the model against it."""
    judged: dict[str, Evaluation | None] = {}
    gains: dict[str, Estimate] = {}
    scored = test.select("entity_id", "label", "score")
    for baseline in all_baselines(train_rows, test, features=features):
        if baseline.scores is None:
            judged[baseline.name] = None
            continue
        rows = scored.with_columns(baseline=baseline.scores)
        judged[baseline.name] = evaluate(
            rows, score="baseline", kind=baseline.kind, bootstrap=plan.bootstrap
        )
        gains[baseline.name] = compare(
            rows, score="score", other="baseline", bootstrap=plan.bootstrap
        )
    return judged, gains


def _bundle(
    model: FailureModel,
    train_rows: pl.DataFrame,
    *,
    features: Sequence[Feature],
    kinds: FaultTypeModel,
    nodes: NodeCombination,
    policies: Mapping[str, WarningPolicy],
) -> ModelBundle:
    return ModelBundle(
        model=model,
        features=tuple(features),
        usual=usual_values(train_rows, model.feature_names),
        fault_types=kinds,
        nodes=nodes,
        policies=policies,
    )
