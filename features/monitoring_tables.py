"""Tables about the system itself: what was refused, how its alerts did, whether inputs drifted.

What it measures and predicts is in `features.tables`.
"""

from typing import Final

import polars as pl

from features.contracts import UTC_TIME, Column, TableContract
from features.vocabulary import CENSORED_BY, OUTCOMES

_TEXT: Final = pl.String()
_INT: Final = pl.Int32()
_LONG: Final = pl.Int64()
_FLOAT: Final = pl.Float64()
_BOOL: Final = pl.Boolean()
_TEXTS: Final = pl.List(pl.String)

LIVE_OUTCOMES: Final = TableContract(
    "monitoring/outcomes",
    "What became of each alert of the live system, and incidents of nodes without one",
    (
        Column("node", _TEXT, "Node"),
        Column("as_of", UTC_TIME, "Moment of the alert; of a miss, when one was last possible"),
        Column("horizon_h", _INT, "Horizon", unit="h", minimum=1),
        Column("model_version", _TEXT, "Model that scored"),
        Column("outcome", _TEXT, "hit, false_alarm, miss or censored", values=OUTCOMES),
        Column("score", _FLOAT, "Node score then", nullable=True, minimum=0, maximum=1),
        Column("lead_h", _FLOAT, "From alert to incident", unit="h", nullable=True, minimum=0),
        Column("incident_id", _TEXT, "The incident", nullable=True),
        Column("fault_type", _TEXT, "Fault type of the incident", nullable=True),
        Column("censored_by", _TEXT, "Why it cannot be told", nullable=True, values=CENSORED_BY),
    ),
    key=("node", "as_of", "horizon_h", "model_version"),
    partition="day",
    time_column="as_of",
    is_end_stamped=True,
)

LIVE_QUALITY: Final = TableContract(
    "monitoring/live_quality",
    "Quality of the live system by week, horizon and model version",
    (
        Column("week", UTC_TIME, "Monday on which the week of as_of begins"),
        Column("horizon_h", _INT, "Horizon", unit="h", minimum=1),
        Column("model_version", _TEXT, "Model that scored"),
        Column("n_alerts", _LONG, "Alerts with a hit or false alarm", minimum=0),
        Column("n_hits", _LONG, "Alerts followed by an incident within the horizon", minimum=0),
        Column("n_false_alarms", _LONG, "Alerts followed by none", minimum=0),
        Column("n_censored", _LONG, "Alerts whose outcome cannot be told", minimum=0),
        Column("n_misses", _LONG, "Incidents without an alert in time", minimum=0),
        Column("n_rows", _LONG, "Scores with a label", minimum=0),
        Column("precision", _FLOAT, "Hits of alerts", nullable=True, minimum=0, maximum=1),
        Column("recall", _FLOAT, "Incidents with an alert", nullable=True, minimum=0, maximum=1),
        Column("mean_score", _FLOAT, "Mean score", nullable=True, minimum=0, maximum=1),
        Column("observed_rate", _FLOAT, "Share of positives", nullable=True, minimum=0, maximum=1),
        Column("brier", _FLOAT, "Brier score", nullable=True, minimum=0, maximum=1),
        Column("median_lead_h", _FLOAT, "Alert to incident", unit="h", nullable=True, minimum=0),
    ),
    key=("week", "horizon_h", "model_version"),
)

DRIFT: Final = TableContract(
    "monitoring/drift",
    "Per champion and week: each input and the score against training, and what scores promised",
    (
        Column("model_version", _TEXT, "The champion"),
        Column("horizon_h", _INT, "Horizon", unit="h", minimum=1),
        Column("week", UTC_TIME, "Monday on which the week begins"),
        Column("kind", _TEXT, "What is compared", values=("feature", "score", "calibration")),
        Column("name", _TEXT, "Feature; score; or calibration"),
        Column("group", _TEXT, "Inputs it is made from: what fails together"),
        Column("is_alarm", _BOOL, "Whether someone should look"),
        Column("psi", _FLOAT, "Population stability index", nullable=True, minimum=0),
        Column("psi_limit", _FLOAT, "What it must reach", nullable=True, minimum=0),
        Column("n_rows", _LONG, "Rows: one per GPU; calibration: one per horizon", minimum=0),
        Column("null_share", _FLOAT, "Nulls", nullable=True, minimum=0, maximum=1),
        Column(
            "training_null_share", _FLOAT, "Nulls in training", nullable=True, minimum=0, maximum=1
        ),
        Column("median", _FLOAT, "Median", nullable=True),
        Column("training_median", _FLOAT, "Median in training", nullable=True),
        Column("expected", _FLOAT, "Incidents the scores expected", nullable=True, minimum=0),
        Column("observed", _LONG, "Incidents that came", nullable=True, minimum=0),
        Column("ratio_low", _FLOAT, "Observed / expected, low end", nullable=True, minimum=0),
        Column("ratio_high", _FLOAT, "Observed / expected, high end", nullable=True, minimum=0),
        Column("sentence", _TEXT, "The comparison in words"),
    ),
    key=("model_version", "week", "kind", "name"),
)

QUARANTINE: Final = TableContract(
    "monitoring/quarantine",
    "Rows and lines that were refused: rule, count and an example",
    (
        Column("table", _TEXT, "Table the row was meant for"),
        Column("source", _TEXT, "Kind of source"),
        Column("origin", _TEXT, "File or address"),
        Column("rule", _TEXT, "Rule broken"),
        Column("count", _LONG, "How many", minimum=1),
        Column("example", _TEXT, "One of them"),
    ),
    key=("table", "source", "origin", "rule"),
)

READS: Final = TableContract(
    "monitoring/reads",
    "What became of every record read: read = parsed + skipped + quarantined",
    (
        Column("source", _TEXT, "Kind of source"),
        Column("origin", _TEXT, "File or address"),
        Column("n_read", _LONG, "Records seen", minimum=0),
        Column("n_parsed", _LONG, "Records that gave at least one row", minimum=0),
        Column("n_skipped", _LONG, "Comments, blanks, lines about something else", minimum=0),
        Column("n_quarantined", _LONG, "Records refused", minimum=0),
    ),
    key=("source", "origin"),
)
