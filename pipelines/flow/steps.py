"""The steps of the main flow as functions of frames and settings, one per asset.

What each step computes is in the rooms below; Dagster only calls these in order.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import polars as pl

from features.catalogue import FaultCatalogue
from features.core_tables import CoreTables
from features.errors import DataError
from features.grid import as_of_times, watched_grid
from features.labels import LabelSpec, build_labels
from features.matrix import build_gpu_matrix, matrix_features
from features.outages import build_maintenance
from features.tables import GPU_MATRIX, GPU_SCORES, NODE_SCORES
from features.telemetry_features import Memory, telemetry_reach
from models.bundle import model_name
from models.candidate.build import Candidate, CandidatePlan, build_candidate, gate_against
from models.evaluation.gate import GateDecision, beside_unreadable
from models.policies.warnings import WarningPolicy
from models.registry.model_registry import CHAMPION, ModelRegistry
from models.registry.registered import RegisteredVersion, RegistryError
from models.scoring import ScoreLimits
from models.specs import Task
from models.training.splits import Origin
from pipelines.flow.careful_samples import CarefulSamples, CarefulStore
from pipelines.flow.champions import Champions, scores_of
from pipelines.flow.feature_memory import FeatureMemory
from pipelines.flow.feature_set import SAMPLE_AGE, check_feature_set, matrix_spec
from pipelines.flow.publish import publish_scores, published_as_of
from pipelines.flow.recall_ceilings import recall_ceilings
from pipelines.flow.registry_storage import registry_place
from pipelines.flow.scale_out import is_worth, write_matrix, write_scores
from pipelines.flow.split_cuts import origin_of
from pipelines.report.model_page import model_page
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore
from pipelines.storage.telemetry.store import TelemetryStore

_LOG: Final = logging.getLogger(__name__)

TICK: Final = timedelta(hours=1)
"""Time between two rows of an entity: one per hourly partition, at its end."""

THREADS: Final = min(4, os.cpu_count() or 1)
"""Groups of a thousand GPUs whose features are computed at once, half a gigabyte each."""

LIMITS: Final = ScoreLimits(sample_age=SAMPLE_AGE)


def registry_of(settings: Settings) -> ModelRegistry:
    """The model registry of an installation."""
    return ModelRegistry(registry_place(settings))


def node_policy(settings: Settings, *, horizon_h: int) -> WarningPolicy | None:
    """The champion's warning policy for nodes; None while a horizon has no champion."""
    registry = registry_of(settings)
    champion = registry.version_of(registered_name(settings, horizon_h), CHAMPION)
    return registry.load(champion).policies.get("node") if champion else None


def registered_name(settings: Settings, horizon_h: int) -> str:
    """The registry's name of the model of a horizon."""
    return model_name(Task(horizon_h=horizon_h, lead=settings.lead, trained_on=settings.trained_on))


def gpu_matrix_of(
    tables: CoreTables,
    settings: Settings,
    *,
    catalogue: FaultCatalogue,
    span: Span,
    samples: CarefulSamples | None = None,
) -> pl.DataFrame:
    """Features of every watched GPU at the end of each hour of a span.

    The newest hour is computed from what earlier ones have left; any other stretch from the stored
    samples, by other processes where the settings name them. All give the same rows.

    Args:
        tables: Core tables but telemetry, from far enough before the span.
        settings: Where telemetry is stored.
        catalogue: Fault catalogue.
        span: Whole hours.
        samples: The stored telemetry, where what cannot be read of it is to be noted rather than
            to fail.

    Returns:
        features/gpu_matrix.
    """
    spec = matrix_spec(settings, catalogue)
    if samples is None and is_worth(settings, span):
        write_matrix(tables, settings, span=span, spec=spec)
        return TableStore(settings.store_root).read(GPU_MATRIX, span=span)
    # In the inventory an unknown start means: in place since before the record began.
    grid = watched_grid(tables.inventory, _as_ofs(span), unknown_start="watched")
    telemetry = TableStore(settings.store_root).telemetry

    def build(memory: Memory | None = None) -> pl.DataFrame:
        return build_gpu_matrix(
            tables, grid, spec=spec, samples=samples or telemetry, threads=THREADS, memory=memory
        )

    since = span.end - telemetry_reach(spec.telemetry) - TICK
    if span.end - span.start == TICK:
        memory = FeatureMemory(settings.memory_dir)
        newest = _newest_hour(
            build, memory, telemetry=telemetry, span=span, since=since, samples=samples
        )
        if newest is not None:
            return newest
    return build()


def _newest_hour(
    build: Callable[[Memory], pl.DataFrame],
    memory: FeatureMemory,
    *,
    telemetry: TelemetryStore,
    span: Span,
    since: datetime,
    samples: CarefulSamples | None,
) -> pl.DataFrame | None:
    """The rows of an hour from what earlier ones have left.

    Args:
        build: Builds them.
        memory: What earlier hours have left.
        telemetry: The samples.
        span: The hour.
        since: Hours before this one do not matter any more.
        samples: As in `gpu_matrix_of`.

    Returns:
        None where the hour is not the newest, another process is at it, or there is no room.
    """
    try:
        with memory.held() as is_held:
            if not is_held or span.end <= max(memory.seen(), default=span.start):
                return None
            # Before the samples are read: what is written meanwhile then counts as changed.
            hours = telemetry.origins(start=since)
            store = CarefulStore(memory, samples) if samples else memory
            matrix = build(Memory(store, memory.stale_from(hours, since=since)))
            memory.remember(
                {hour: origin for hour, origin in hours.items() if since <= hour < span.end}
            )
            return matrix
    except OSError as error:
        _LOG.warning(
            "feature memory %s cannot be used: %s. The hour to %s is computed from the stored "
            "samples, which takes longer. Make room, or move data_root.",
            memory.folder,
            error,
            span.end,
        )
        return None


def labels_of(
    tables: CoreTables,
    settings: Settings,
    *,
    catalogue: FaultCatalogue,
    span: Span,
    data_end: datetime,
    kinds: Sequence[Literal["gpu", "node"]] = ("gpu", "node"),
) -> pl.DataFrame:
    """Labels of GPUs and nodes at the end of each hour of a span, for every horizon.

    Args:
        tables: Core tables; incidents, inventory, maintenance and node states are used.
        settings: Lead and horizons.
        catalogue: Says which reasons of node states are planned work or our own.
        span: Whole days.
        data_end: Where the record ends.
        kinds: Whose labels.

    Returns:
        features/labels.
    """
    spec = LabelSpec(lead=settings.lead, horizons_h=settings.horizons_h)
    maintenance = planned_work(tables.maintenance, tables.node_states, catalogue=catalogue)
    return pl.concat(
        build_labels(
            watched_grid(
                tables.inventory, _as_ofs(span), entity_kind=kind, unknown_start="watched"
            ),
            incidents=tables.incidents,
            inventory=tables.inventory,
            maintenance=maintenance,
            data_end=data_end,
            spec=spec,
            catalogue_version=catalogue.version,
        )
        for kind in kinds
    )


def planned_work(
    maintenance: pl.DataFrame, node_states: pl.DataFrame, *, catalogue: FaultCatalogue
) -> pl.DataFrame:
    """Planned work and our own actions: those declared, and those that node states tell of."""
    return pl.concat([maintenance, build_maintenance(node_states, catalogue=catalogue)])


def train_candidates(
    matrix: pl.DataFrame,
    *,
    labels: pl.DataFrame,
    incidents: pl.DataFrame,
    topology: pl.DataFrame,
    settings: Settings,
    catalogue: FaultCatalogue,
    maintenance: pl.DataFrame | None = None,
    show: Callable[[Candidate], None] | None = None,
) -> dict[str, str]:
    """Trains, registers and gates one model per horizon.

    Args:
        matrix: features/gpu_matrix of the whole record.
        labels: features/labels of the same.
        incidents: core/incidents.
        topology: core/topology; its levels give history features.
        settings: Split, lead, horizons, budget.
        catalogue: Fault catalogue that typed the incidents.
        maintenance: core/maintenance with our own actions (`planned_work`), for what they hid.
        show: Called with each candidate that was trained.

    Returns:
        One line per model: its version and the gate's word, or why it could not be trained.

    Raises:
        SettingsError: The settings name no split.
        DataError: Hours of the matrix were built with a smaller feature set.
    """
    origin = origin_of(settings, data_end=matrix["as_of"].max())  # type: ignore[arg-type]
    check_feature_set(matrix, settings)
    features = matrix_features(matrix_spec(settings, catalogue), topology)
    registry = registry_of(settings)
    outcome = {}
    for horizon_h in settings.horizons_h:
        plan = _candidate_plan(settings, horizon_h, origin=origin, catalogue=catalogue)
        try:
            made = build_candidate(
                matrix,
                labels=labels,
                incidents=incidents,
                features=features,
                plan=plan,
                maintenance=maintenance,
            )
        except DataError as error:
            # One horizon without enough data does not stop the others.
            outcome[model_name(plan.task)] = f"not trained, scored by prior: {error}"
            continue
        outcome[made.bundle.name] = _register(registry, made)
        if show is not None:
            show(made)
    return outcome


def _candidate_plan(
    settings: Settings, horizon_h: int, *, origin: Origin, catalogue: FaultCatalogue
) -> CandidatePlan:
    return CandidatePlan(
        task=Task(
            horizon_h=horizon_h,
            lead=settings.lead,
            trained_on=settings.trained_on,
            catalogue_version=catalogue.version,
        ),
        spec=settings.training.spec(settings.seed),
        choice=settings.training.choice,
        tuning=settings.training.tuned,
        ceilings=recall_ceilings(settings),
        origin=origin,
        tick=TICK,
        alerts_per_1000_nodes_per_day=settings.alert_budget_per_1000_node_days,
        high_precision=settings.policy.high_precision,
        accept_leak_suspects=settings.accept_leak_suspects,
        uncertain_weight=settings.uncertain_weight,
    )


def score_matrix(
    matrix: pl.DataFrame,
    settings: Settings,
    *,
    span: Span | None = None,
    champions: Champions | None = None,
    failed: Mapping[str, str] | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Scores of GPUs and nodes by the champion of each horizon, or by prior where there is none.

    Args:
        matrix: features/gpu_matrix.
        settings: Horizons and where the registry is.
        span: The hours of the matrix, which is stored, too; other processes may then score it.
        champions: Models at hand; None: they are loaded.
        failed: GPUs whose inputs could not be read, with the cause.

    Returns:
        scores/gpu_scores and scores/node_scores.
    """
    champions = champions or Champions(registry_of(settings), settings)
    served = champions.current(matrix)
    if span is not None and is_worth(settings, span):
        write_scores(settings, span=span, served=served, limits=LIMITS)
        store = TableStore(settings.store_root)
        return store.read(GPU_SCORES, span=span), store.read(NODE_SCORES, span=span)
    return scores_of(matrix, served, limits=LIMITS, failed=failed)


def publish_latest(
    gpu_scores: pl.DataFrame,
    node_scores: pl.DataFrame,
    *,
    settings: Settings,
    as_of: datetime,
    now: datetime,
    champions: Champions | None = None,
) -> bool:
    """Publishes the scores of one moment, unless newer ones are published already (a backfill).

    Args:
        gpu_scores: scores/gpu_scores.
        node_scores: scores/node_scores.
        settings: Where to, and how long they stay valid.
        as_of: The moment.
        now: When they are published.
        champions: Models at hand, for their policies; None: they are loaded.

    Returns:
        Whether these are the published scores now.
    """
    at = pl.col("as_of") == as_of
    published = published_as_of(settings.scores_dir)
    if gpu_scores.filter(at).is_empty() or (published and published > as_of):
        return False
    champions = champions or Champions(registry_of(settings), settings)
    publish_scores(
        settings.scores_dir,
        gpu_scores=gpu_scores.filter(at),
        node_scores=node_scores.filter(at),
        published_at=now,
        ttl=timedelta(minutes=settings.score_ttl_minutes),
        policies=champions.policies(node_scores.filter(at)),
    )
    return True


def _as_ofs(span: Span) -> tuple[datetime, ...]:
    return as_of_times(span.start + TICK, span.end + TICK, every=TICK)


def _register(registry: ModelRegistry, made: Candidate) -> str:
    """Registers a candidate and promotes it where it is better than the champion, or than none."""
    version = registry.register(made.bundle, page=model_page(made))
    champion = registry.version_of(version.name, CHAMPION)
    if champion is not None and champion.version == version.version:
        return f"{version.label}: unchanged, is champion"
    decision = _decision(registry, made, champion=champion)
    if decision.is_accepted:
        registry.promote(version, decision=decision, against=champion)
    else:
        registry.note_gate(version, decision)
    return f"{version.label}: {decision.reason}"


def _decision(
    registry: ModelRegistry, made: Candidate, *, champion: RegisteredVersion | None
) -> GateDecision:
    """The gate's word on a candidate; a champion that cannot be read does not stop training."""
    if champion is None:
        return made.gate
    try:
        bundle = registry.load(champion)
    except (DataError, RegistryError) as error:
        is_lost = isinstance(error, DataError)
        return beside_unreadable(made.gate, str(error), is_lost=is_lost)
    return gate_against(made, bundle)
