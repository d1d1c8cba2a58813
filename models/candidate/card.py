"""The model card: what a version was trained on, how good it is, and what it is not good for.

Plain values only; rendering is done where cards are shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from features.registry import Feature
from models.drift.inputs import DriftReference
from models.evaluation.calibration_metrics import CalibrationCheck
from models.evaluation.event_metrics import EventMetrics
from models.evaluation.gate import LEAST_INCIDENTS
from models.evaluation.row_metrics import Estimate, Evaluation
from models.failure_model import FailureModel
from models.faults.classes import FaultClass
from models.faults.types import FaultTypeMetrics
from models.policies.thresholds import ThresholdChoice

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


@dataclass(frozen=True, kw_only=True)
class CardCompany:
    """What belongs on a card beside what the test rows said.

    Attributes:
        features: Registered features of the model.
        reference: Their distributions in training, for shares of nulls.
        seen_until: End of all rows it was trained, calibrated or tuned on.
        ceilings: Largest recall any model can reach, by fault type, where known.
        tuning: How settings were searched: by what, on which rows, what was tried.
        calibration: How true the probabilities are in the test.
    """

    features: Sequence[Feature] = ()
    reference: DriftReference | None = None
    seen_until: datetime | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)
    tuning: Mapping[str, Any] | None = None
    calibration: CalibrationCheck | None = None


def build_card(  # noqa: PLR0913  one argument per part of a card
    model: FailureModel,
    *,
    evaluation: Evaluation,
    baselines: Mapping[str, Evaluation],
    gains: Mapping[str, Estimate] | None = None,
    nodes: Evaluation | None = None,
    events: Mapping[str, EventMetrics] | None = None,
    fault_types: FaultTypeMetrics | None = None,
    fault_classes: Sequence[FaultClass] = (),
    thresholds: Mapping[str, ThresholdChoice] | None = None,
    limits: Sequence[str] = (),
    company: CardCompany | None = None,
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
        fault_classes: Each fault type by itself; the card says of each whether it is foreseen
            and whether it beats its baselines.
        thresholds: How each threshold was chosen, by entity kind.
        limits: What else must be known.
        company: What belongs on the card and is not learned from rows.

    Returns:
        The card as plain values, for JSON.
    """
    return {
        **_training(model, company or CardCompany()),
        "thresholds": {kind: choice.to_dict() for kind, choice in (thresholds or {}).items()},
        "test": evaluation.to_dict(),
        "test_nodes": nodes.to_dict() if nodes is not None else None,
        "baselines": {name: one.all_rows.to_dict() for name, one in baselines.items()},
        "gains": {name: asdict(one) for name, one in (gains or {}).items()},
        "events": {kind: one.to_dict() for kind, one in (events or {}).items()},
        "fault_types": fault_types.to_dict() if fault_types is not None else None,
        "fault_classes": [one.to_dict() for one in fault_classes],
        "limits": _limits(model, limits, events or {}),
    }


def _training(model: FailureModel, company: CardCompany) -> dict[str, Any]:
    """What the card says of how the model came about."""
    first, last = model.data_span
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
            "seen_until": company.seen_until.isoformat() if company.seen_until else None,
        },
        "versions": {
            "contract": model.contract_version,
            "catalogue": model.task.catalogue_version,
        },
        "n_features": len(model.feature_names),
        "features": _families(company.features, company.reference),
        "spec": asdict(model.spec),
        "tuning": dict(company.tuning) if company.tuning else None,
        "ceilings": dict(company.ceilings),
        "calibration": {
            "method": model.calibration.method,
            "n_rows": model.calibration.n_rows,
            "n_positive": model.calibration.n_positive,
            "check": asdict(company.calibration) if company.calibration else None,
        },
    }


def _limits(
    model: FailureModel, further: Sequence[str], events: Mapping[str, EventMetrics]
) -> list[str]:
    """What must be known: of every model, of this one, and of how much it rests on."""
    said = [*further, *STANDING_LIMITS]
    if model.trained_on == "synthetic":
        said.insert(0, SYNTHETIC_LIMIT)
    if model.n_incidents < FEW_INCIDENTS:
        said.append(f"Learned from {model.n_incidents} incidents; intervals are wide.")
    return said + _few_in_test(events, model.entity_kind)


def _few_in_test(events: Mapping[str, EventMetrics], kind: str) -> list[str]:
    """An interval from few incidents is narrow by chance: resamples hold the same ones."""
    if kind not in events or events[kind].n_incidents >= FEW_INCIDENTS:
        return []
    n = events[kind].n_incidents
    if n < LEAST_INCIDENTS:
        return [f"Judged on {n} incidents of the test: its numbers and intervals prove nothing."]
    return [f"Judged on {n} incidents of the test; intervals are wide."]


def seen_until(card: Mapping[str, Any], *, trained_until: datetime) -> datetime:
    """The end of what a model has seen, for a fair comparison.

    Args:
        card: Its card.
        trained_until: End of its training rows and their outcomes: what is known without a card.

    Returns:
        The later of the two.
    """
    noted = card.get("data", {}).get("seen_until")
    return max(trained_until, datetime.fromisoformat(noted)) if noted else trained_until


def _families(
    features: Sequence[Feature], reference: DriftReference | None
) -> dict[str, dict[str, float | int | None]]:
    """Per family: features, those never known in training, mean share of nulls."""
    found: dict[str, dict[str, float | int | None]] = {}
    for family in dict.fromkeys(feature.family for feature in features):
        names = [feature.name for feature in features if feature.family == family]
        nulls = [reference.features[name].null_share for name in names] if reference else []
        found[family] = {
            "n_features": len(names),
            "n_never_known": sum(share == 1.0 for share in nulls) if reference else None,
            "null_share": sum(nulls) / len(nulls) if nulls else None,
        }
    return found
