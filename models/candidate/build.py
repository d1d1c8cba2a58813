"""From a feature matrix and labels to a candidate: split, train, calibrate, choose, judge, bundle.

One order for every horizon. Where the inputs come from and where the candidate goes is not known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import polars as pl

from features.registry import Feature, feature_names
from models.bundle import ModelBundle
from models.candidate.card import CardCompany, build_card, seen_until
from models.candidate.judgement import Judge, available
from models.candidate.scores import ScoredRows, score_rows
from models.drift.inputs import fit_reference
from models.ensembles.site import choice_on_card, chosen_length, last_of, with_ensemble
from models.evaluation.calibration_metrics import CalibrationCheck
from models.evaluation.event_metrics import EventMetrics
from models.evaluation.gate import GateDecision, decide, features_not_built, without_champion
from models.evaluation.leaks import LeakCheck, held_back, look_for_leaks, unseen_area
from models.evaluation.row_metrics import Bootstrap, Estimate, Evaluation, evaluate
from models.failure_model import FailureModel
from models.faults.classes import FaultClass, judge_fault_classes
from models.faults.types import (
    FaultTypeMetrics,
    FaultTypeModel,
    evaluate_fault_types,
    train_fault_types,
)
from models.host_part import fit_host
from models.node_scores import NodeCombination, host_probability
from models.policies.rows import PolicyRows, policy_rows
from models.policies.thresholds import ThresholdChoice
from models.policies.tuning import (
    COOLDOWNS,
    PERSISTENCE,
    PolicyGrid,
    halves_by_node,
    tune_for_budget,
    tune_for_precision,
)
from models.policies.warnings import WarningPolicy
from models.reasons import usual_values
from models.specs import SiteChoice, Task, TrainSpec
from models.training.boosters import train, training_rows
from models.training.monotone import with_rising
from models.training.splits import Origin, TimeSplit, split_by_time
from models.training.uncertain import with_uncertain

HIGH_PRECISION = "node_high_precision"
"""Name of the second policy for nodes."""

NEVER_ALERT = 2.0
"""Threshold where none qualifies: no probability reaches it, not even one rounded up to 1."""


@dataclass(frozen=True, kw_only=True)
class CandidatePlan:
    """What is trained and how it is judged; fixed before the test rows are looked at.

    Attributes:
        task: GPU task: horizon, lead.
        spec: How boosters are trained.
        choice: The stretch learned from, and an ensemble.
        origin: The cuts between training, validation and test.
        tick: Time between two rows of an entity.
        alerts_per_1000_nodes_per_day: Alert budget; the policies are chosen by it on validation.
        high_precision: Precision that a second policy for nodes must have with 95 % confidence;
            None: no such policy.
        persistence: Pairs (n, k) tried: scores above the threshold that an alert needs, of the
            last k; the first is the default.
        cooldowns: Times tried in which an entity that raised an alert raises no other.
        bootstrap: How intervals are made.
        accept_leak_suspects: Whether a person has looked and lets pass what looks like a leak.
        uncertain_weight: Share of our own actions that were right; what they hid is then learned
            from in part (`models.training.uncertain`). None: it is left out.
        tuning: How the spec was searched, for the card; None: it was not.
        ceilings: Largest recall by fault type and for `all`, for the card; none: not known.
    """

    task: Task
    spec: TrainSpec
    choice: SiteChoice = field(default_factory=SiteChoice)
    origin: Origin
    tick: timedelta
    alerts_per_1000_nodes_per_day: float
    high_precision: float | None = 0.85
    persistence: tuple[tuple[int, int], ...] = PERSISTENCE
    cooldowns: tuple[timedelta, ...] = COOLDOWNS
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    accept_leak_suspects: bool = False
    uncertain_weight: float | None = None
    tuning: Mapping[str, Any] | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)

    @property
    def grid(self) -> PolicyGrid:
        """The policies tried."""
        return PolicyGrid(tick=self.tick, persistence=self.persistence, cooldowns=self.cooldowns)


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
        events: Event metrics by policy: gpu, node and, where asked for, node_high_precision.
        calibration: How true the probabilities are, by entity kind.
        fault_types: Forecast of fault types on the test rows.
        fault_classes: Each fault type by itself, on the test rows.
        leaks: What looks too good to be true.
        thresholds: How each policy was chosen, by its name as in `events`.
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
    calibration: Mapping[str, CalibrationCheck]
    fault_types: FaultTypeMetrics
    fault_classes: tuple[FaultClass, ...]
    leaks: LeakCheck
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
    maintenance: pl.DataFrame | None = None,
) -> Candidate:
    """Trains on the first part, tunes on the second, judges once on the third.

    Args:
        matrix: features/gpu_matrix.
        labels: features/labels of GPUs and of nodes.
        incidents: core/incidents.
        features: Registered features of the matrix.
        plan: What and how.
        maintenance: core/maintenance with our own actions, for `plan.uncertain_weight`.

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
    spec = with_rising(plan.spec, names)
    span, origin = plan.choice.span, plan.origin
    length = chosen_length(gpu.train, span, origin=origin, names=names, task=task, spec=spec)
    gpu, node = (last_of(part, length, until=origin.train_until) for part in (gpu, node))
    model = _trained(gpu, names, plan=plan, spec=spec, maintenance=maintenance)
    nodes = NodeCombination(
        host_probability(node.train, incidents=incidents, task=task),
        host=fit_host(gpu.train, node.train, incidents=incidents, task=task),
    )
    scored = score_rows(model, nodes, gpu=gpu, node=node)
    choices = _choices(scored, incidents=incidents, plan=plan)
    bundle = ModelBundle(
        model=model,
        features=tuple(features),
        usual=usual_values(gpu.train, names),
        fault_types=train_fault_types(gpu.train, feature_names=names, spec=plan.spec),
        nodes=scored.nodes,
        policies={name: _policy(choice, plan) for name, choice in choices.items()},
        drift=fit_reference(gpu.train, names, scored=scored.gpu_valid),
    )
    judge = Judge(task=task, incidents=incidents, tick=plan.tick, bootstrap=plan.bootstrap)
    judged = _judged(bundle, scored, gpu=gpu, node=node, judge=judge, plan=plan, choices=choices)
    card = _card(judged, plan, training=choice_on_card(plan.choice, length))
    return replace(judged, bundle=replace(bundle, card=card))


def _trained(
    gpu: TimeSplit,
    names: Sequence[str],
    *,
    plan: CandidatePlan,
    spec: TrainSpec,
    maintenance: pl.DataFrame | None,
) -> FailureModel:
    """The failure score, with its ensemble where one is asked for, calibrated on validation."""
    learned, task = gpu.train, plan.task
    if maintenance is not None and plan.uncertain_weight is not None:
        learned = with_uncertain(
            learned, maintenance, horizon=task.embargo, uncertain_weight=plan.uncertain_weight
        )
    model = train(learned, feature_names=names, task=task, spec=spec, valid=gpu.valid)
    model = with_ensemble(model, gpu, ensemble=plan.choice.ensemble, spec=spec)
    return model.calibrated_on(gpu.valid)


def _choices(
    scored: ScoredRows, *, incidents: pl.DataFrame, plan: CandidatePlan
) -> dict[str, ThresholdChoice]:
    """The policies, chosen on validation rows alone."""

    def prepared(rows: pl.DataFrame, kind: str) -> PolicyRows:
        task = replace(plan.task, entity_kind=kind)
        return policy_rows(rows, incidents=incidents, task=task, tick=plan.tick)

    budget = plan.alerts_per_1000_nodes_per_day
    choices = {
        kind: tune_for_budget(prepared(rows, kind), plan.grid, alerts_per_1000_nodes_per_day=budget)
        for kind, rows in (("gpu", scored.gpu_valid), ("node", scored.node_valid))
    }
    if plan.high_precision is not None:
        tune, test = (prepared(half, "node") for half in halves_by_node(scored.node_valid))
        choices[HIGH_PRECISION] = tune_for_precision(
            tune, test, plan.grid, precision=plan.high_precision
        )
    return choices


def _policy(choice: ThresholdChoice, plan: CandidatePlan) -> WarningPolicy:
    if choice.policy is not None:
        return choice.policy
    return replace(plan.grid.policies()[0], threshold=NEVER_ALERT)


def _judged(
    bundle: ModelBundle,
    scored: ScoredRows,
    *,
    gpu: TimeSplit,
    node: TimeSplit,
    judge: Judge,
    plan: CandidatePlan,
    choices: Mapping[str, ThresholdChoice],
) -> Candidate:
    """The candidate without its card: the one time that test rows are looked at."""
    test, kinds = scored.gpu_test, cast("FaultTypeModel", bundle.fault_types)
    baselines, gains = judge.baselines(gpu.train, test, features=bundle.features)
    evaluation = evaluate(test, bootstrap=plan.bootstrap)
    leaks = _leaks(gpu, evaluation, names=bundle.model.feature_names, plan=plan)
    rows = {"gpu": test, "node": scored.node_test, HIGH_PRECISION: scored.node_test}
    return Candidate(
        bundle=bundle,
        gpu_test=test,
        node_test=scored.node_test,
        gpu_evaluation=evaluation,
        node_evaluation=evaluate(scored.node_test, bootstrap=plan.bootstrap),
        baselines=baselines,
        gains=gains,
        events={
            name: judge.events(rows[name], policy, kind=name.split("_", 1)[0])
            for name, policy in bundle.policies.items()
        },
        calibration={
            kind: judge.calibration(
                rows[kind], threshold=bundle.policies[kind].threshold, split=split
            )
            for kind, split in (("gpu", gpu), ("node", node))
        },
        fault_types=evaluate_fault_types(kinds, gpu.test),
        fault_classes=judge_fault_classes(
            gpu.train, test, model=bundle.model, kinds=kinds, bootstrap=plan.bootstrap
        ),
        leaks=leaks,
        thresholds=choices,
        gate=held_back(decide(test, candidate="score", bootstrap=plan.bootstrap), leaks),
        dropped=gpu.dropped,
    )


def _card(made: Candidate, plan: CandidatePlan, *, training: Mapping[str, Any]) -> dict[str, Any]:
    card = build_card(
        made.bundle.model,
        evaluation=made.gpu_evaluation,
        baselines=available(made.baselines),
        gains=made.gains,
        nodes=made.node_evaluation,
        events=made.events,
        fault_types=made.fault_types,
        fault_classes=made.fault_classes,
        thresholds=made.thresholds,
        limits=made.leaks.in_words(),
        company=CardCompany(
            features=made.bundle.features,
            reference=made.bundle.drift,
            seen_until=plan.origin.valid_until,
            tuning=plan.tuning,
            calibration=made.calibration["gpu"],
            ceilings=plan.ceilings,
        ),
    )
    return {
        **card,
        "calibration_nodes": asdict(made.calibration["node"]),
        "leaks": made.leaks.to_dict(),
        "training": training,
    }


def gate_against(candidate: Candidate, champion: ModelBundle) -> GateDecision:
    """Whether a candidate beats the champion beyond chance, on rows that neither has seen.

    Args:
        candidate: The candidate.
        champion: The champion of the same task. One whose features are built no more cannot score
            at all: there is nothing to beat, and the decision says so.

    Returns:
        The decision.
    """
    model, rows = champion.model, candidate.gpu_test
    absent = features_not_built(model.feature_names, rows.columns)
    if absent:
        return without_champion(candidate.gate, absent)
    scored = rows.with_columns(champion=pl.Series(model.scores(rows), dtype=pl.Float64))
    trained_until = model.data_span[1] + model.task.embargo
    decision = decide(
        scored,
        candidate="score",
        champion="champion",
        champion_seen_until=seen_until(champion.card, trained_until=trained_until),
    )
    return held_back(decision, candidate.leaks)


def _leaks(
    gpu: TimeSplit, evaluation: Evaluation, *, names: Sequence[str], plan: CandidatePlan
) -> LeakCheck:
    unseen = unseen_area(
        gpu, feature_names=names, task=plan.task, spec=plan.spec, bootstrap=plan.bootstrap
    )
    return look_for_leaks(
        gpu.test,
        area=evaluation.all_rows.auc,
        unseen=unseen,
        feature_names=names,
        is_accepted=plan.accept_leak_suspects,
    )


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
