"""Gathers what the report shows from the store, the registry and the latest plan.

How it is drawn is in `pipelines.report.page`; nothing is judged anew: test results come from the
model card, as they were when the model was registered.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl
from pydantic import TypeAdapter

from features.monitoring_tables import QUARANTINE, READS
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    GPU_SCORES,
    NODE_SCORES,
)
from models.bundle import ModelBundle
from models.evaluation.event_metrics import EventMetrics, incidents_by_entity
from models.evaluation.row_metrics import Estimate, Evaluation, RowMetrics
from models.faults.types import FaultTypeMetrics
from models.policies.warnings import raise_alerts
from models.registry.model_registry import CANDIDATE, CHAMPION, ModelRegistry
from models.registry.registered import RegisteredVersion, RegistryError
from models.specs import Task
from pipelines.flow.recall_ceilings import recall_ceilings
from pipelines.flow.remediate import PlanRun
from pipelines.flow.split_cuts import origin_of, split_of
from pipelines.flow.steps import registered_name, registry_of
from pipelines.report.input import (
    EvaluationResult,
    FaultClass,
    GpuTimeline,
    Method,
    Missing,
    ModelCard,
    ReportInput,
)
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

BEFORE: Final = timedelta(days=3)
AFTER: Final = timedelta(hours=6)

_REFERENCES: Final = ("always", "never", "oracle")
_ESTIMATE: Final = TypeAdapter(Estimate)
_EVALUATION: Final = TypeAdapter(Evaluation)
_ROWS: Final = TypeAdapter(RowMetrics)
_EVENTS: Final = TypeAdapter(EventMetrics)
_FAULT_TYPES: Final = TypeAdapter(FaultTypeMetrics)


def assemble_report(settings: Settings, run: PlanRun) -> ReportInput:
    """Gathers one report.

    Args:
        settings: The installation.
        run: The latest plan.

    Returns:
        What the report shows; parts that are not there say why.

    Raises:
        DataError: No scores are stored.
        RegistryError: A horizon has no model.
    """
    store = TableStore(settings.store_root)
    horizon_h = settings.horizons_h[0]
    registry = registry_of(settings)
    models = [_shown(registry, registered_name(settings, h)) for h in settings.horizons_h]
    bundle = models[0].bundle
    incidents = store.read(CORE_INCIDENTS)
    gpu_scores = store.read(GPU_SCORES).filter(pl.col("horizon_h") == horizon_h)
    node_scores = store.read(NODE_SCORES)
    shown = node_scores.filter(pl.col("horizon_h") == horizon_h)
    node_policy = bundle.policies.get("node")
    return ReportInput(
        site=settings.site,
        note=settings.note,
        span=Span(settings.start, settings.data_end(run.as_of)),
        as_of=run.as_of,
        horizon_h=horizon_h,
        lead=settings.lead,
        models=tuple(_card(model) for model in models),
        node_scores=node_scores,
        node_threshold=node_policy.threshold if node_policy else None,
        coverage=run.coverage,
        decisions=run.decisions,
        evaluation=_evaluation(settings, bundle, shown, incidents),
        timeline=_timeline(store, bundle, gpu_scores, incidents),
        incidents=incidents,
        reads=store.read(READS),
        quarantine=store.read(QUARANTINE),
    )


@dataclass(frozen=True)
class _Shown:
    """A model that the report is about; the candidate where the gate let none become champion."""

    version: RegisteredVersion
    bundle: ModelBundle
    is_champion: bool


def _shown(registry: ModelRegistry, name: str) -> _Shown:
    for alias in (CHAMPION, CANDIDATE):
        version = registry.version_of(name, alias)
        if version is not None:
            return _Shown(version, registry.load(version), is_champion=alias == CHAMPION)
    raise RegistryError(f"model {name}: none is registered. Train one, then report on it.")


def _card(shown: _Shown) -> ModelCard:
    model = shown.bundle.model
    first, last = model.data_span
    return ModelCard(
        name=f"GPU failure within {model.horizon_h} h",
        version=shown.version.label,
        trained_on="real" if model.trained_on == "real" else "synthetic",
        detail=(
            f"{len(model.feature_names)} features, {model.n_incidents} incidents, "
            f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
            + ("" if shown.is_champion else "; the gate refused it, so scores are priors")
        ),
    )


def _evaluation(
    settings: Settings, bundle: ModelBundle, node_scores: pl.DataFrame, incidents: pl.DataFrame
) -> EvaluationResult | Missing:
    card: Mapping[str, Any] = bundle.card
    split = split_of(settings)
    if not card or split is None:
        return Missing("the champion has no model card, or the settings no split")
    test = _EVALUATION.validate_python(card["test"])
    events = {kind: _EVENTS.validate_python(one) for kind, one in card["events"].items()}
    gains = {name: _ESTIMATE.validate_python(one) for name, one in card.get("gains", {}).items()}
    baselines = [
        Method(
            name=name,
            role="reference" if name in _REFERENCES else "baseline",
            rows=_ROWS.validate_python(values),
            gain=gains.get(name),
        )
        for name, values in card["baselines"].items()
    ]
    model = Method(name="Forewarn", role="model", rows=test.all_rows, events=events.get("node"))
    choice = card["thresholds"].get("gpu", {})
    return EvaluationResult(
        test=Span(split.valid_until, origin_of(settings).test_until),
        unit="GPU and hour",
        methods=(model, *baselines),
        threshold=choice.get("threshold"),
        threshold_note=" ".join(
            f"{_policy_name(kind)} alerts: {one['explanation']}"
            for kind, one in sorted(card["thresholds"].items())
        ),
        top_unit=test.top_unit,
        without_top_unit=test.without_top_unit if test.top_unit else None,
        classes=_classes(
            bundle,
            node_scores.filter(pl.col("as_of") >= split.valid_until),
            incidents,
            ceilings=recall_ceilings(settings),
        ),
        fault_types=(
            _FAULT_TYPES.validate_python(card["fault_types"])
            if card["fault_types"]
            else Missing("fault types were not judged")
        ),
    )


def _policy_name(kind: str) -> str:
    return "GPU" if kind == "gpu" else kind.replace("_", " ").capitalize()


def _classes(
    bundle: ModelBundle,
    node_scores: pl.DataFrame,
    incidents: pl.DataFrame,
    *,
    ceilings: Mapping[str, float],
) -> tuple[FaultClass, ...]:
    """Incidents by fault type that node alerts could have caught, and those they did."""
    policy, task = bundle.policies.get("node"), bundle.model.task
    scored = node_scores.select("entity_id", "as_of", "node", "score")
    if policy is None or scored.is_empty():
        return ()
    owners = incidents_by_entity(incidents, entity_kind="node")

    def followed_by(rows: pl.DataFrame) -> pl.Series:
        lead = pl.col("start") - pl.col("as_of")
        within = rows.select("entity_id", "as_of").join(owners, on="entity_id")
        return within.filter(lead >= task.lead, lead < task.embargo)["incident_id"].unique()

    catchable, caught = followed_by(scored), followed_by(raise_alerts(scored, policy))
    counts = (
        incidents.filter(pl.col("incident_id").is_in(catchable.implode()))
        .group_by("fault_type")
        .agg(
            n=pl.len(),
            caught=pl.col("incident_id").is_in(caught.implode()).sum(),
        )
        .sort("n", "fault_type", descending=[True, False])
    )
    return tuple(
        FaultClass(
            fault_type=row["fault_type"],
            n_incidents=row["n"],
            n_caught=row["caught"],
            ceiling=ceilings.get(row["fault_type"]),
        )
        for row in counts.iter_rows(named=True)
    )


def _rises(gpu_scores: pl.DataFrame, incidents: pl.DataFrame, *, task: Task) -> pl.DataFrame:
    """Incidents of GPUs by how far the score rose before them, against the days before that."""
    lead = pl.col("start") - pl.col("as_of")
    is_in_time = lead.is_between(task.lead, task.embargo, closed="left")
    is_earlier = lead.is_between(task.embargo, task.embargo + BEFORE, closed="left")
    return (
        gpu_scores.select("entity_id", "as_of", "score")
        .join(incidents.filter(pl.col("entity_kind") == "gpu"), on="entity_id")
        .group_by("incident_id", "entity_id", "node", "start", "fault_type")
        .agg(
            rise=pl.col("score").filter(is_in_time).max()
            - pl.col("score").filter(is_earlier).median()
        )
        .filter(pl.col("rise").is_not_null())
        .sort("rise", "incident_id", descending=[True, False])
    )


def _timeline(
    store: TableStore, bundle: ModelBundle, gpu_scores: pl.DataFrame, incidents: pl.DataFrame
) -> GpuTimeline | Missing:
    """The GPU whose score rose most before its incident, against the days before that."""
    before = _rises(gpu_scores, incidents, task=bundle.model.task)
    if before.is_empty():
        return Missing("no incident of a GPU with scores before it in the test time")
    top = before.row(0, named=True)
    start: datetime = top["start"]
    hours = Span(_hour(start - BEFORE), _hour(start + AFTER) + timedelta(hours=1))
    gpu, node = top["entity_id"], top["node"]
    policy = bundle.policies.get("gpu")
    telemetry = store.read(CORE_GPU_TELEMETRY, span=hours).filter(pl.col("gpu_uuid") == gpu)
    events = store.read(CORE_HEALTH_EVENTS, span=hours)
    near = (pl.col("as_of") >= hours.start) & (pl.col("as_of") < hours.end)
    return GpuTimeline(
        gpu_uuid=gpu,
        node=node or "unknown",
        slot=None,
        fault_type=top["fault_type"],
        start=start,
        telemetry=telemetry,
        scores=gpu_scores.filter(near, pl.col("entity_id") == gpu).select("as_of", "score"),
        threshold=policy.threshold if policy else None,
        chosen_because=(
            "its score rose most before an incident in the test time: the best case, not the "
            "typical one"
        ),
        health_events=events.filter(
            (pl.col("gpu_uuid") == gpu)
            | (pl.col("gpu_uuid").is_null() & (pl.col("node") == (node or "")))
        ),
    )


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
