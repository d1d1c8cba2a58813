"""Judges alerts against incidents: caught or missed, how early, how many false alarms.

Which scores become alerts is decided in `models.policies.warnings`, rows are judged in
`models.evaluation.row_metrics`.
"""

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl

from features.errors import DataError
from models.evaluation.ranking_metrics import FloatArray
from models.evaluation.row_metrics import (
    NOT_DEFINED,
    Bootstrap,
    Estimate,
    estimate,
    resample_groups,
    top_unit,
)
from models.specs import Task

LEAD_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class EventMetrics:
    """What the operator would have seen.

    Attributes:
        n_alerts: Alerts raised.
        n_true: Alerts that caught an incident.
        n_false: Alerts on a row known to be followed by none.
        n_unjudged: Alerts whose outcome is unknown (censored), neither true nor false.
        precision: n_true / (n_true + n_false).
        n_incidents: Incidents that a row could have caught.
        n_caught: Those that an alert did catch.
        recall: n_caught / n_incidents.
        lead_h: Lead of the first alert that caught each incident, hours, rising.
        lead_quantiles_h: Its 10, 25, 50, 75 and 90 % points.
        alerts_per_1000_nodes_per_day: Alerts against nodes watched.
        node_days: Watched time.
        top_unit: The entity with the most positive rows; None without any.
        precision_without_top_unit: Precision of the others' alerts.
        recall_without_top_unit: Recall of the others' incidents.
    """

    n_alerts: int
    n_true: int
    n_false: int
    n_unjudged: int
    precision: Estimate
    n_incidents: int
    n_caught: int
    recall: Estimate
    lead_h: tuple[float, ...]
    lead_quantiles_h: tuple[float, ...]
    alerts_per_1000_nodes_per_day: float | None
    node_days: float
    top_unit: str | None = None
    precision_without_top_unit: Estimate = NOT_DEFINED
    recall_without_top_unit: Estimate = NOT_DEFINED

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)


def evaluate_events(
    alerts: pl.DataFrame,
    rows: pl.DataFrame,
    *,
    incidents: pl.DataFrame,
    task: Task,
    tick: timedelta,
    bootstrap: Bootstrap | None = None,
) -> EventMetrics:
    """Judges alerts: one catches an incident when `L <= start - as_of < L + H`.

    Args:
        alerts: `entity_id`, `as_of`, from `models.policies.warnings.raise_alerts` over `rows`.
        rows: Every row that was scored: `entity_id`, `as_of`, `node`, `label` (null: censored).
        incidents: core/incidents.
        task: Lead, horizon and entity kind.
        tick: Time between two rows of an entity.
        bootstrap: How intervals are made; groups are entities.

    Returns:
        The metrics. Only incidents that some row could have caught count as missed.

    Raises:
        DataError: A column is missing.
    """
    judged = judge_alerts(alerts, rows, incidents=incidents, task=task)
    catchable = caught_pairs(_known(rows), incidents, task=task)
    caught = caught_pairs(_known(rows, alerts), incidents, task=task)
    in_scope = catchable.select("entity_id", "incident_id").unique()
    first = caught.group_by("incident_id").agg(pl.col("lead_h").max()).sort("lead_h")
    leads = first["lead_h"].to_numpy()
    nodes = pl.coalesce("node", "entity_id").alias("place")
    node_days = rows.select(nodes, "as_of").unique().height * (tick / timedelta(days=1))
    counts = _counts(rows, judged, in_scope, caught)
    drawn = resample_groups(counts.height, bootstrap or Bootstrap())
    unit = top_unit(rows)
    precision, recall = _shares(counts, drawn)
    rest_precision, rest_recall = _shares(counts, drawn, without=unit)
    outcome = judged["outcome"]
    return EventMetrics(
        n_alerts=alerts.height,
        n_true=int((outcome == "true").sum()),
        n_false=int((outcome == "false").sum()),
        n_unjudged=int((outcome == "unjudged").sum()),
        precision=precision,
        n_incidents=in_scope["incident_id"].n_unique(),
        n_caught=first.height,
        recall=recall,
        lead_h=tuple(leads.tolist()),
        lead_quantiles_h=tuple(np.quantile(leads, LEAD_QUANTILES).tolist()) if leads.size else (),
        alerts_per_1000_nodes_per_day=1000.0 * alerts.height / node_days if node_days else None,
        node_days=node_days,
        top_unit=unit,
        precision_without_top_unit=rest_precision,
        recall_without_top_unit=rest_recall,
    )


def judge_alerts(
    alerts: pl.DataFrame, rows: pl.DataFrame, *, incidents: pl.DataFrame, task: Task
) -> pl.DataFrame:
    """The outcome of each alert.

    Args:
        alerts: `entity_id`, `as_of`.
        rows: Rows the alerts are among, with `label`.
        incidents: core/incidents.
        task: Lead, horizon and entity kind.

    Returns:
        The alerts with `outcome`: true, false, or unjudged where the label is null.
    """
    _require(rows, ("entity_id", "as_of", "node", "label"), what="rows")
    _require(alerts, ("entity_id", "as_of"), what="alerts")
    known = _known(rows, alerts)
    true = caught_pairs(known, incidents, task=task).select("entity_id", "as_of").unique()
    return (
        alerts.select("entity_id", "as_of")
        .join(rows.select("entity_id", "as_of", "label"), on=["entity_id", "as_of"], how="left")
        .join(true.with_columns(is_true=True), on=["entity_id", "as_of"], how="left")
        .select(
            "entity_id",
            "as_of",
            outcome=pl.when(pl.col("is_true"))
            .then(pl.lit("true"))
            .when(pl.col("label") == 0)
            .then(pl.lit("false"))
            .otherwise(pl.lit("unjudged")),
        )
    )


def incidents_by_entity(incidents: pl.DataFrame, *, entity_kind: str) -> pl.DataFrame:
    """Incidents an entity answers for; a node answers for those of its GPUs too.

    Args:
        incidents: core/incidents.
        entity_kind: gpu or node.

    Returns:
        `entity_id`, `incident_id`, `start`.
    """
    if entity_kind == "node":
        named = incidents.with_columns(
            entity_id=pl.when(pl.col("entity_kind") == "node")
            .then(pl.col("entity_id"))
            .otherwise(pl.col("node"))
        )
    else:
        named = incidents.filter(pl.col("entity_kind") == entity_kind)
    return named.select("entity_id", "incident_id", "start").drop_nulls("entity_id")


def _known(rows: pl.DataFrame, alerts: pl.DataFrame | None = None) -> pl.DataFrame:
    """Rows, or alerts among them, whose outcome is known; a censored one is never true either."""
    known = rows.filter(pl.col("label").is_not_null()).select("entity_id", "as_of")
    return known if alerts is None else alerts.join(known, on=["entity_id", "as_of"], how="semi")


def caught_pairs(rows: pl.DataFrame, incidents: pl.DataFrame, *, task: Task) -> pl.DataFrame:
    """Each row with each incident that an alert there would catch.

    Args:
        rows: `entity_id`, `as_of`.
        incidents: core/incidents.
        task: Lead, horizon and entity kind.

    Returns:
        `entity_id`, `as_of`, `incident_id`, `lead_h` (hours).
    """
    lead = pl.col("start") - pl.col("as_of")
    return (
        rows.select("entity_id", "as_of")
        .join(incidents_by_entity(incidents, entity_kind=task.entity_kind), on="entity_id")
        .filter(lead >= task.lead, lead < task.embargo)
        .select(
            "entity_id",
            "as_of",
            "incident_id",
            lead_h=lead.dt.total_seconds(fractional=True) / 3600.0,
        )
    )


def _counts(
    rows: pl.DataFrame, judged: pl.DataFrame, in_scope: pl.DataFrame, caught: pl.DataFrame
) -> pl.DataFrame:
    """Of each entity: true alerts, judged ones, incidents caught, incidents in scope."""

    def count(frame: pl.DataFrame, name: str) -> pl.DataFrame:
        return frame.group_by("entity_id").agg(pl.len().cast(pl.Float64).alias(name))

    # Sorted, so that the resamples do not depend on the order of the rows.
    entities = rows.select(pl.col("entity_id").unique().sort())
    parts = (
        count(judged.filter(pl.col("outcome") == "true"), "true"),
        count(judged.filter(pl.col("outcome") != "unjudged"), "judged"),
        count(caught.select("entity_id", "incident_id").unique(), "caught"),
        count(in_scope, "in_scope"),
    )
    for part in parts:
        entities = entities.join(part, on="entity_id", how="left", maintain_order="left")
    return entities.with_columns(pl.exclude("entity_id").fill_null(0.0))


def _shares(
    counts: pl.DataFrame, drawn: FloatArray, *, without: str | None = None
) -> tuple[Estimate, Estimate]:
    """Precision and recall with intervals over entities, one of them left out."""
    kept = (counts["entity_id"] != without).to_numpy() if without is not None else 1.0
    values = counts.drop("entity_id").to_numpy() * np.reshape(kept, (-1, 1))
    resampled, total = drawn @ values, values.sum(axis=0)

    def share(above: int, below: int) -> Estimate:
        if not total[below]:
            return NOT_DEFINED
        parts = resampled[:, below]
        ratio = resampled[:, above] / np.where(parts > 0, parts, np.nan)
        return estimate(float(total[above] / total[below]), ratio)

    return share(0, 1), share(2, 3)


def _require(frame: pl.DataFrame, names: tuple[str, ...], *, what: str) -> None:
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise DataError(
            f"event metrics: {what} lack {', '.join(absent)}, found {', '.join(frame.columns)}."
        )
