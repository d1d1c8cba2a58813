"""The model card: what a version was trained on, how good it is, and what it is not good for.

Plain values only; rendering is done where cards are shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from models.evaluation import Estimate, Evaluation
from models.event_metrics import EventMetrics
from models.failure_model import FailureModel
from models.fault_types import FaultTypeMetrics
from models.thresholds import ThresholdChoice

SYNTHETIC_LIMIT = (
    "Trained on a synthetic fleet: its numbers say that the machinery works, not that it predicts "
    "failures of real GPUs."
)
STANDING_LIMITS = (
    "A score is the probability of an incident as the fault catalogue defines it.",
    "Failures without a precursor in the inputs cannot be forecast; their share bounds recall.",
    "Reasons name what raised the score; they are not causes.",
)
FEW_INCIDENTS = 100


def build_card(
    model: FailureModel,
    *,
    evaluation: Evaluation,
    baselines: Mapping[str, Evaluation],
    gains: Mapping[str, Estimate] | None = None,
    nodes: Evaluation | None = None,
    events: Mapping[str, EventMetrics] | None = None,
    fault_types: FaultTypeMetrics | None = None,
    thresholds: Mapping[str, ThresholdChoice] | None = None,
    limits: Sequence[str] = (),
) -> dict[str, Any]:
    """Puts a card together; equal inputs give equal cards, so it holds no time of day.

    Args:
        model: The model.
        evaluation: On test rows.
        baselines: On the same rows, by name.
        gains: Average precision of the model minus a baseline's, by its name.
        nodes: Node scores on the same time.
        events: Alerts and incidents in the same time, by entity kind.
        fault_types: Forecast of fault types.
        thresholds: How each threshold was chosen, by entity kind.
        limits: What else must be known.

    Returns:
        The card as plain values, for JSON.
    """
    first, last = model.data_span
    said = list(limits) + list(STANDING_LIMITS)
    if model.trained_on == "synthetic":
        said.insert(0, SYNTHETIC_LIMIT)
    if model.n_incidents < FEW_INCIDENTS:
        said.append(f"Learned from {model.n_incidents} incidents; intervals are wide.")
    return {
        "task": {
            "entity_kind": model.entity_kind,
            "horizon_h": model.horizon_h,
            "lead_h": model.lead.total_seconds() / 3600.0,
        },
        "trained_on": model.trained_on,
        "data": {
            "first_as_of": first.isoformat(),
            "last_as_of": last.isoformat(),
            "n_rows": model.n_rows,
            "n_positive": model.n_positive,
            "n_incidents": model.n_incidents,
            "data_hash": model.data_hash,
        },
        "versions": {
            "contract": model.contract_version,
            "catalogue": model.task.catalogue_version,
        },
        "n_features": len(model.feature_names),
        "calibration": {
            "method": model.calibration.method,
            "n_rows": model.calibration.n_rows,
            "n_positive": model.calibration.n_positive,
        },
        "thresholds": {kind: choice.to_dict() for kind, choice in (thresholds or {}).items()},
        "test": evaluation.to_dict(),
        "test_nodes": nodes.to_dict() if nodes is not None else None,
        "baselines": {name: one.all_rows.to_dict() for name, one in baselines.items()},
        "gains": {name: asdict(one) for name, one in (gains or {}).items()},
        "events": {kind: one.to_dict() for kind, one in (events or {}).items()},
        "fault_types": fault_types.to_dict() if fault_types is not None else None,
        "limits": said,
    }
