"""What became of the live system's alerts, and how good its scores were; frames in, frames out.

Which scores became alerts was decided when they were raised, by the policy of that time
(`models.policies.warnings`); what counts as an incident's label is in `features.labels`.
"""

from datetime import datetime

import polars as pl

from features.errors import DataError
from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY

_KEY = ("node", "as_of", "horizon_h")
_GROUP = ("week", "horizon_h", "model_version")


def with_labels(scores: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Published node scores with what came after them.

    Args:
        scores: scores/node_scores as they were published.
        labels: features/labels of nodes of the same moments; GPUs are left out.

    Returns:
        `node`, `as_of`, `horizon_h`, `model_version`, `score`, `label`, `incident_id`,
        `fault_type` (of the incident), `censored_by`; only scores that have a label row.
    """
    of_nodes = labels.filter(pl.col("entity_kind") == "node").select(
        pl.col("entity_id").alias("node"),
        "as_of",
        "horizon_h",
        "label",
        "incident_id",
        "fault_type",
        "censored_by",
    )
    own = scores.select(*_KEY, "model_version", "score")
    return own.join(of_nodes, on=_KEY, how="inner")


def not_watched(alerts: pl.DataFrame, rows: pl.DataFrame, *, data_end: datetime) -> pl.DataFrame:
    """Alerts of nodes that no record knows any more: what became of them cannot be told.

    Args:
        alerts: As in `judge_alerts`, with `ends_at`.
        rows: From `with_labels`.
        data_end: Where the record ends; alerts that end later are left for then.

    Returns:
        As `with_labels`, to be given to `judge_alerts` too.
    """
    unlabelled = alerts.filter(pl.col("ends_at") <= data_end).join(rows, on=_KEY, how="anti")
    unknown = {name: rows.schema[name] for name in ("label", "incident_id", "fault_type")}
    return unlabelled.with_columns(
        *(pl.lit(None, dtype=dtype).alias(name) for name, dtype in unknown.items()),
        censored_by=pl.lit("not_watched"),
    ).select(rows.columns)


def judge_alerts(
    alerts: pl.DataFrame, rows: pl.DataFrame, *, incidents: pl.DataFrame
) -> pl.DataFrame:
    """The outcome of each alert whose horizon has passed, and the incidents without one.

    Args:
        alerts: `node`, `as_of`, `horizon_h`, `model_version`, `score`, also of the time before
            `rows` as far as they may have caught an incident within it.
        rows: From `with_labels`. Rows of label 0 that are no alert may be left out.
        incidents: core/incidents.

    Returns:
        monitoring/outcomes. `hit`: the label is 1. `false_alarm`: it is 0. `censored`: it is
        unknown for another reason than that the record has not come so far; those have no row
        yet. `miss`: no alert of the horizon caught the incident although a score was published
        that could have; also where that score was unknown, as nobody was warned.

    Raises:
        DataError: Two alerts share node, moment and horizon.
    """
    if alerts.select(pl.struct(_KEY).is_duplicated().any()).item():
        raise DataError("outcomes: two alerts share node, as_of and horizon_h; give each once.")
    starts = incidents.select("incident_id", "start")
    known = rows.join(starts, on="incident_id", how="left").with_columns(
        lead_h=(pl.col("start") - pl.col("as_of")).dt.total_seconds(fractional=True) / 3600.0
    )
    of_alerts = (
        alerts.select(*_KEY, "model_version", "score")
        .join(known.drop("model_version", "score"), on=_KEY, how="inner")
        .filter(pl.col("label").is_not_null() | (pl.col("censored_by") != "data_end"))
        .with_columns(
            outcome=pl.when(pl.col("label") == 1)
            .then(pl.lit("hit"))
            .when(pl.col("label") == 0)
            .then(pl.lit("false_alarm"))
            .otherwise(pl.lit("censored"))
        )
    )
    caught = of_alerts.filter(pl.col("outcome") == "hit").select(*_KEY, "incident_id")
    missed = (
        known.filter(pl.col("label") == 1)
        .join(caught, on=["node", "horizon_h", "incident_id"], how="anti")
        .sort("as_of")
        .unique(["node", "horizon_h", "incident_id"], keep="last", maintain_order=True)
        .with_columns(outcome=pl.lit("miss"), lead_h=pl.lit(None, dtype=pl.Float64))
    )
    names = LIVE_OUTCOMES.schema.names()
    both = pl.concat([of_alerts.select(names), missed.select(names)])
    return LIVE_OUTCOMES.conform(both).sort(LIVE_OUTCOMES.key)


def calibration_sums(rows: pl.DataFrame) -> pl.DataFrame:
    """What mean score, observed rate and Brier score are made of; sums of days add up.

    Args:
        rows: From `with_labels`, all rows.

    Returns:
        By `week`, `horizon_h`, `model_version`: `n_rows` with score and label, and the sums
        `score_sum`, `label_sum`, `square_sum`.
    """
    known = rows.filter(pl.col("label").is_not_null(), pl.col("score").is_not_null())
    error = pl.col("score") - pl.col("label")
    return (
        known.with_columns(week=_week())
        .group_by(_GROUP)
        .agg(
            n_rows=pl.len().cast(pl.Int64),
            score_sum=pl.col("score").sum(),
            label_sum=pl.col("label").cast(pl.Float64).sum(),
            square_sum=(error * error).sum(),
        )
        .sort(_GROUP)
    )


def live_quality(outcomes: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """Quality of the live system by week, horizon and model version.

    Several alerts may catch one incident: precision counts alerts, recall incidents.

    Args:
        outcomes: monitoring/outcomes.
        sums: From `calibration_sums`, of any number of days.

    Returns:
        monitoring/live_quality, newest week first.
    """

    def count(outcome: str) -> pl.Expr:
        return (pl.col("outcome") == outcome).sum().cast(pl.Int64)

    is_hit = pl.col("outcome") == "hit"
    counted = (
        outcomes.with_columns(week=_week())
        .group_by(_GROUP)
        .agg(
            n_hits=count("hit"),
            n_false_alarms=count("false_alarm"),
            n_censored=count("censored"),
            n_misses=count("miss"),
            n_caught=pl.col("incident_id").filter(is_hit).n_unique().cast(pl.Int64),
            median_lead_h=pl.col("lead_h").filter(is_hit).median(),
        )
    )
    added = sums.group_by(_GROUP).agg(pl.exclude(_GROUP).sum())
    joined = counted.join(added, on=_GROUP, how="full", coalesce=True)
    counts = [name for name in joined.columns if name.startswith("n_")]
    joined = joined.with_columns(pl.col(counts).fill_null(0))
    n_alerts = pl.col("n_hits") + pl.col("n_false_alarms")
    n_incidents = pl.col("n_caught") + pl.col("n_misses")
    quality = joined.with_columns(
        n_alerts=n_alerts,
        precision=_share(pl.col("n_hits"), n_alerts),
        recall=_share(pl.col("n_caught"), n_incidents),
        mean_score=_share(pl.col("score_sum"), pl.col("n_rows")),
        observed_rate=_share(pl.col("label_sum"), pl.col("n_rows")),
        brier=_share(pl.col("square_sum"), pl.col("n_rows")),
    )
    names = LIVE_QUALITY.schema.names()
    return LIVE_QUALITY.conform(quality.select(names)).sort(_GROUP, descending=[True, False, False])


def _week() -> pl.Expr:
    """The Monday of the week in which the hour before a moment lies, UTC."""
    return (pl.col("as_of") - pl.duration(microseconds=1)).dt.truncate("1w")


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part / whole)
