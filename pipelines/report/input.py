"""The values a report is made of, and how a missing part says why it is missing.

Nothing is computed or drawn here; `pipelines.report.page` renders.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

import polars as pl

from features.monitoring_tables import QUARANTINE, READS
from features.tables import CORE_HEALTH_EVENTS, CORE_INCIDENTS
from models.evaluation.event_metrics import EventMetrics
from models.evaluation.row_metrics import Estimate, RowMetrics
from models.faults.types import FaultTypeMetrics
from pipelines.storage.store import Span

MIN_CLASS_INCIDENTS = 50
"""Below this many incidents of a class, its recall is not shown as a rate."""


@dataclass(frozen=True)
class Missing:
    """A part that cannot be shown.

    Attributes:
        reason: Why, as the end of "Not available: ...".
    """

    reason: str


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """One model that gave scores of this report.

    Attributes:
        name: What it does, in words.
        version: Registry version.
        trained_on: synthetic or real.
        detail: Anything else worth one line: training time, incidents, features.
    """

    name: str
    version: str
    trained_on: Literal["synthetic", "real"]
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way of scoring, judged on the test rows.

    Attributes:
        name: Name in words: "Forewarn", "history count", ...
        role: model; baseline: what the model must beat; reference: what no one could (the oracle)
            or would want to (always, never), shown in the table alone.
        rows: Row by row; curve and reliability are drawn where present.
        events: Alerts against incidents, where the method gives alerts.
        gain: Average precision of the model minus this one's, on the same resamples.
    """

    name: str
    role: Literal["model", "baseline", "reference"]
    rows: RowMetrics
    events: EventMetrics | None = None
    gain: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class FaultClass:
    """Incidents of one fault type in the test time.

    Attributes:
        fault_type: The fault type.
        n_incidents: Incidents that an alert could have caught.
        n_caught: Those caught.
        ceiling: Largest recall any model can reach, where known: the share of failures of the
            class that announce themselves.
    """

    fault_type: str
    n_incidents: int
    n_caught: int
    ceiling: float | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """How far the scores can be trusted, measured on time after training.

    Attributes:
        test: The test time.
        unit: What one judged row is: "GPU and hour", ...
        methods: The model first, then baselines.
        threshold: Score from which on the model raises an alert, in the units of its curve.
        threshold_note: How it was chosen, or why there is none.
        top_unit: The entity with the most positive rows.
        without_top_unit: The model's metrics without it.
        classes: Incidents by fault type; empty: not known.
        recall_ceiling: Largest recall any model can reach over all classes, where known.
        fault_types: How often the forecast fault type was right.
    """

    test: Span
    unit: str
    methods: tuple[Method, ...]
    threshold: float | None = None
    threshold_note: str = ""
    top_unit: str | None = None
    without_top_unit: RowMetrics | None = None
    classes: tuple[FaultClass, ...] = ()
    recall_ceiling: float | None = None
    fault_types: FaultTypeMetrics | Missing = Missing("fault types were not judged")

    @property
    def model(self) -> Method | None:
        """The model's own results."""
        return next((method for method in self.methods if method.role == "model"), None)


@dataclass(frozen=True, kw_only=True)
class GpuTimeline:
    """What was seen of one GPU around one incident.

    Attributes:
        gpu_uuid: The GPU.
        node: Its node.
        slot: Its slot, where known.
        fault_type: Fault type of the incident.
        start: Onset of the incident.
        telemetry: core/gpu_telemetry rows of the GPU around the onset.
        scores: `as_of`, `score` of the GPU at the report's horizon; null is unknown.
        threshold: Score from which on it is an alert, in the units of `scores`.
        chosen_because: Why this GPU is shown, so that nobody takes it for typical.
        health_events: core/health_events rows of the GPU or its node.
    """

    gpu_uuid: str
    node: str
    slot: str | None
    fault_type: str
    start: datetime
    telemetry: pl.DataFrame
    scores: pl.DataFrame
    threshold: float | None
    chosen_because: str
    health_events: pl.DataFrame = field(default_factory=CORE_HEALTH_EVENTS.empty)


@dataclass(frozen=True, kw_only=True)
class ReportInput:
    """All that one report shows.

    Attributes:
        site: Name of the site.
        note: What a reader must know before anything else, at the top of every report.
        span: Time the data covers.
        as_of: Moment of the latest scores, and of the plan.
        horizon_h: Horizon shown, hours.
        lead: Minimum lead L.
        models: The models that scored.
        node_scores: scores/node_scores rows of several as_of; the last is `as_of`.
        node_threshold: Node score from which on it is an alert, where one was chosen.
        coverage: Share of watched GPUs that have a score at `as_of`.
        decisions: remediation/decisions rows of this plan.
        evaluation: How far to trust the scores.
        timeline: One GPU before its incident.
        incidents: core/incidents rows, marked on the heat map.
        reads: monitoring/reads rows.
        quarantine: monitoring/quarantine rows.
    """

    site: str
    note: str = ""
    span: Span
    as_of: datetime
    horizon_h: int
    lead: timedelta
    models: tuple[ModelCard, ...]
    node_scores: pl.DataFrame
    node_threshold: float | None = None
    coverage: float | None = None
    decisions: pl.DataFrame | Missing = Missing("no plan was made")
    evaluation: EvaluationResult | Missing = Missing("the model was not evaluated")
    timeline: GpuTimeline | Missing = Missing("no incident with telemetry before it")
    incidents: pl.DataFrame = field(default_factory=CORE_INCIDENTS.empty)
    reads: pl.DataFrame = field(default_factory=READS.empty)
    quarantine: pl.DataFrame = field(default_factory=QUARANTINE.empty)
