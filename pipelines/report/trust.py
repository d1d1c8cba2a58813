"""What a report says on trust: metrics, the verdict against baselines, recall by fault type.

Nothing is computed but what a sentence needs; text is not escaped here.
"""

from dataclasses import dataclass, replace

from models.evaluation.row_metrics import Estimate, RowMetrics
from pipelines.report.input import (
    MIN_CLASS_INCIDENTS,
    EvaluationResult,
    FaultClass,
    Method,
    Missing,
    ReportInput,
)
from pipelines.report.plan import Row
from pipelines.report.words import (
    counted,
    fault_words,
    interval,
    minus,
    number,
    percent,
    percent_interval,
    plain,
)


@dataclass(frozen=True)
class Tile:
    """One number a reader looks for first.

    Attributes:
        value: The number.
        label: What it is.
        note: Its interval, or what it is held against.
    """

    value: str
    label: str
    note: str


def tiles(evaluation: EvaluationResult) -> tuple[Tile, ...]:
    """The numbers that say whether to believe an alert."""
    model = evaluation.model
    if model is None:
        return ()
    found = []
    events = model.events
    if events is not None:
        found += [
            _share_tile(events.precision, "of alerts were right", f"{events.n_true:,} right, "
                        f"{events.n_false:,} false, {events.n_unjudged:,} not judged"),
            _share_tile(events.recall, "of incidents were caught",
                        f"{events.n_caught:,} of {events.n_incidents:,}"),
            Tile(
                number(events.alerts_per_1000_nodes_per_day, 0),
                "alerts per 1,000 nodes and day",
                f"{counted(events.n_alerts, 'alert')} in {events.node_days:,.0f} node-days",
            ),
        ]  # fmt: skip
    ap = model.rows.average_precision
    base = f"no skill {number(model.rows.prevalence)}"
    found.append(
        Tile(number(ap.value), "average precision", "; ".join(filter(None, (base, interval(ap)))))
    )
    return tuple(found)


def _share_tile(estimate: Estimate, label: str, count: str) -> Tile:
    within = percent_interval(estimate)
    return Tile(percent(estimate.value), label, "; ".join(filter(None, (count, within))))


def metric_rows(evaluation: EvaluationResult) -> tuple[Row, ...]:
    """One row per method; the model without its top unit comes right after the model."""
    rows = []
    for method in evaluation.methods:
        rows.append(_metric_row(method))
        if method.role == "model" and evaluation.without_top_unit is not None:
            name = f"{method.name}, top unit left out"
            rest = replace(method, name=name, rows=evaluation.without_top_unit, events=None)
            rows.append({**_metric_row(rest), "is_model": False, "kind": "check"})
    return tuple(rows)


def _metric_row(method: Method) -> Row:
    rows, events = method.rows, method.events
    return {
        "name": plain(method.name),
        "kind": method.role,
        "is_model": method.role == "model",
        "cells": [
            _cell(rows.average_precision),
            _cell(rows.auc),
            _share_cell(rows.precision_top_1pct),
            _share_cell(rows.recall_top_1pct),
            (number(rows.brier, 4) if rows.brier is not None else "not a probability", ""),
            _share_cell(events.precision) if events else ("not judged", ""),
            _share_cell(events.recall) if events else ("not judged", ""),
        ],
        "gain": _gain(method),
    }


def _cell(estimate: Estimate) -> tuple[str, str]:
    value = "not defined" if estimate.value is None else number(estimate.value)
    return value, interval(estimate)


def _share_cell(estimate: Estimate) -> tuple[str, str]:
    value = "not defined" if estimate.value is None else percent(estimate.value)
    return value, percent_interval(estimate)


def _gain(method: Method) -> tuple[str, str]:
    gain = method.gain
    if gain is None or gain.value is None:
        return "", ""
    return minus(f"{gain.value:+.3f}"), interval(gain)


def verdict(evaluation: EvaluationResult) -> str:
    """The model against the best baseline, said no better than it is."""
    model = evaluation.model
    rivals = [
        method
        for method in evaluation.methods
        if method.role == "baseline" and method.rows.average_precision.value is not None
    ]
    if model is None or model.rows.average_precision.value is None or not rivals:
        return "No baseline to hold the model against."
    best = max(rivals, key=lambda method: method.rows.average_precision.value or 0.0)
    ours, theirs = model.rows.average_precision, best.rows.average_precision
    said = (
        f"Average precision {number(ours.value)} against {number(theirs.value)} of the best "
        f"baseline, {plain(best.name)}"
    )
    gain = best.gain
    if gain is None or gain.low is None or gain.high is None:
        return f"{said}; whether the difference is beyond chance was not tested."
    between = minus(
        f"difference {gain.value:+.3f}, 95\u00a0% interval {gain.low:+.3f} to {gain.high:+.3f}"
    )
    if gain.low > 0:
        return f"{said}: better beyond chance ({between})."
    if gain.high < 0:
        return f"{said}: worse beyond chance ({between})."
    return f"{said}: not to be told apart from chance ({between})."


def cautions(report: ReportInput, evaluation: EvaluationResult) -> tuple[str, ...]:
    """What limits the numbers, as far as the numbers themselves tell."""
    found = []
    if any(card.trained_on == "synthetic" for card in report.models):
        found.append(
            "The model learned from synthetic data. The numbers say that the flow works, "
            "not how it would do on your machines."
        )
    model = evaluation.model
    if model is not None and model.events and model.events.n_incidents < MIN_CLASS_INCIDENTS:
        found.append(
            f"The test time holds only {counted(model.events.n_incidents, 'incident')}: "
            f"read the intervals, not the numbers."
        )
    if evaluation.recall_ceiling is not None:
        found.append(
            f"No model can catch more than {percent(evaluation.recall_ceiling)} of these "
            f"incidents: the rest show no sign beforehand."
        )
    if evaluation.top_unit is not None:
        found.append(
            f"Top unit, left out in one row of the table: {plain(evaluation.top_unit)}, the entity "
            f"with the most positive rows. A result that falls without it was that unit's."
        )
    if evaluation.threshold_note:
        found.append(plain(evaluation.threshold_note))
    if model is not None and _unjudged(model.rows):
        found.append(_unjudged(model.rows))
    return tuple(found)


def _unjudged(rows: RowMetrics) -> str:
    if not rows.n_unlabelled + rows.n_unscored:
        return ""
    return (
        f"Judged: {rows.n_rows:,} rows of {counted(rows.n_entities, 'entity', 'entities')}, "
        f"{rows.n_positive:,} positive. Left out: {rows.n_unlabelled:,} with an unknown outcome, "
        f"{rows.n_unscored:,} without a score."
    )


def class_rows(classes: tuple[FaultClass, ...]) -> tuple[Row, ...]:
    """Recall by fault type beside its ceiling; a rate only where there are enough incidents."""
    ordered = sorted(classes, key=lambda found: (-found.n_incidents, found.fault_type))
    return tuple(
        {
            "fault": fault_words(found.fault_type),
            "caught": f"{found.n_caught:,} of {found.n_incidents:,}",
            "recall": percent(found.n_caught / found.n_incidents)
            if found.n_incidents >= MIN_CLASS_INCIDENTS
            else "too few",
            "ceiling": percent(found.ceiling),
        }
        for found in ordered
    )


def fault_type_rows(evaluation: EvaluationResult) -> tuple[Row, ...] | Missing:
    """How often the forecast fault type was right, beside its baselines."""
    found = evaluation.fault_types
    if isinstance(found, Missing):
        return found
    if not found.n_incidents:
        return Missing("no incident with a forecast in the test time")
    last_xid = "not judged" if found.last_xid_top1 is None else percent(found.last_xid_top1)
    return (
        {"name": "Forewarn", "top1": percent(found.top1), "top2": percent(found.top2)},
        {
            "name": "Class prior",
            "top1": percent(found.prior_top1),
            "top2": percent(found.prior_top2),
        },
        {"name": "Last Xid", "top1": last_xid, "top2": "one guess only"},
    )
