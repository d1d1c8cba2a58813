"""What a person sees of a version in the MLflow UI: parameters, metrics, tags, text, artifacts.

Plain values; they are put there by `models.registry.model_registry` alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from models.bundle import ModelBundle


@dataclass(frozen=True, kw_only=True)
class VersionPage:
    """The page of a version.

    Attributes:
        metrics: Numbers; an interval is three of them: value, `_low`, `_high`.
        params: How it was trained.
        tags: Facts to search versions by.
        description: The model card as markdown.
        artifacts: Files by path below the run: pages and figures, as text.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a version stands in the registry: all that the card, fixed at training, cannot know.

    Attributes:
        label: Name and version.
        registered_at: When.
        aliases: Those that point at it.
        gate: The gate's word; None where it was not asked.
        is_gate_passed: Whether the gate accepted it; None where it was not asked.
        promoted_by: Who made it champion last; None: nobody.
        promoted_at: When.
        promoted_reason: Why.
    """

    label: str
    registered_at: datetime
    aliases: tuple[str, ...] = ()
    gate: str | None = None
    is_gate_passed: bool | None = None
    promoted_by: str | None = None
    promoted_at: str | None = None
    promoted_reason: str | None = None


def page_metrics(card: Mapping[str, Any]) -> dict[str, float]:
    """The card's numbers with their intervals, under names that sort well.

    >>> page_metrics({"test": {"all_rows": {"auc": {"value": 0.8, "low": 0.7, "high": None}}}})
    {'gpu.auc': 0.8, 'gpu.auc_low': 0.7}
    """
    values: dict[str, float | None] = {}
    for kind, key in (("gpu", "test"), ("node", "test_nodes")):
        rows = (card.get(key) or {}).get("all_rows", {})
        for name in ("auc", "average_precision", "precision_top_1pct", "recall_top_1pct"):
            values |= dict(_with_interval(f"{kind}.{name}", rows.get(name)))
        for name in ("prevalence", "brier", "log_loss", "n_rows", "n_positive"):
            values[f"{kind}.{name}"] = rows.get(name)
    for kind, events in card.get("events", {}).items():
        for name in ("precision", "recall"):
            values |= dict(_with_interval(f"{kind}.alert_{name}", events[name]))
        for name in ("n_alerts", "n_incidents", "n_caught", "alerts_per_1000_nodes_per_day"):
            values[f"{kind}.{name}"] = events[name]
    for name, gain in card.get("gains", {}).items():
        key = f"gain_over.{name.replace(' ', '_')}"
        values |= dict(_with_interval(key, gain))
    return {name: float(value) for name, value in values.items() if value is not None}


def page_params(bundle: ModelBundle) -> dict[str, str]:
    """How the version was trained: task, data span, spec."""
    model = bundle.model
    first, last = model.data_span
    spec = {f"train.{name}": str(value) for name, value in asdict(model.spec).items()}
    return {
        "horizon_h": str(model.horizon_h),
        "lead_min": f"{model.lead.total_seconds() / 60:g}",
        "trained_on": model.trained_on,
        "data.first_as_of": first.isoformat(),
        "data.last_as_of": last.isoformat(),
        "data.n_rows": str(model.n_rows),
        "data.n_positive": str(model.n_positive),
        "data.n_incidents": str(model.n_incidents),
        "n_features": str(len(model.feature_names)),
        "calibration": model.calibration.method,
        "ensemble": bundle.card.get("training", {}).get("ensemble", "none"),
        **{f"alerts.{kind}.threshold": f"{p.threshold:g}" for kind, p in bundle.policies.items()},
        **{f"alerts.{kind}.rule": f"{p.n} of {p.k} ticks" for kind, p in bundle.policies.items()},
        **spec,
    }


def _with_interval(
    name: str, found: Mapping[str, float | None] | None
) -> Iterator[tuple[str, float | None]]:
    found = found or {}
    for suffix, key in (("", "value"), ("_low", "low"), ("_high", "high")):
        yield name + suffix, found.get(key)
