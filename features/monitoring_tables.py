"""Tables about the system itself: what was refused, how its alerts did, whether inputs drifted.

What it measures and predicts is in `features.tables`.
"""

from typing import Final

from features.contracts import BOOL, FLOAT, INT, LONG, TEXT, UTC_TIME, Column, TableContract
from features.vocabulary import CENSORED_BY, OUTCOMES

LIVE_OUTCOMES: Final = TableContract(
    "monitoring/outcomes",
    "What became of each alert of the live system, and incidents of nodes without one",
    (
        Column("node", TEXT, "Node"),
        Column("as_of", UTC_TIME, "Moment of the alert; of a miss, when one was last possible"),
        Column("horizon_h", INT, "Horizon", unit="h", minimum=1),
        Column("model_version", TEXT, "Model that scored"),
        Column("outcome", TEXT, "hit, false_alarm, miss or censored", values=OUTCOMES),
        Column("score", FLOAT, "Node score then", nullable=True, minimum=0, maximum=1),
        Column("lead_h", FLOAT, "From alert to incident", unit="h", nullable=True, minimum=0),
        Column("incident_id", TEXT, "The incident", nullable=True),
        Column("fault_type", TEXT, "Fault type of the incident", nullable=True),
        Column("censored_by", TEXT, "Why it cannot be told", nullable=True, values=CENSORED_BY),
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
        Column("horizon_h", INT, "Horizon", unit="h", minimum=1),
        Column("model_version", TEXT, "Model that scored"),
        Column("n_alerts", LONG, "Alerts with a hit or false alarm", minimum=0),
        Column("n_hits", LONG, "Alerts followed by an incident within the horizon", minimum=0),
        Column("n_false_alarms", LONG, "Alerts followed by none", minimum=0),
        Column("n_censored", LONG, "Alerts whose outcome cannot be told", minimum=0),
        Column("n_misses", LONG, "Incidents without an alert in time", minimum=0),
        Column("n_rows", LONG, "Scores with a label", minimum=0),
        Column("precision", FLOAT, "Hits of alerts", nullable=True, minimum=0, maximum=1),
        Column("recall", FLOAT, "Incidents with an alert", nullable=True, minimum=0, maximum=1),
        Column("mean_score", FLOAT, "Mean score", nullable=True, minimum=0, maximum=1),
        Column("observed_rate", FLOAT, "Share of positives", nullable=True, minimum=0, maximum=1),
        Column("brier", FLOAT, "Brier score", nullable=True, minimum=0, maximum=1),
        Column("median_lead_h", FLOAT, "Alert to incident", unit="h", nullable=True, minimum=0),
    ),
    key=("week", "horizon_h", "model_version"),
)

DRIFT: Final = TableContract(
    "monitoring/drift",
    "Per champion and week: each input and the score against training, and what scores promised",
    (
        Column("model_version", TEXT, "The champion"),
        Column("horizon_h", INT, "Horizon", unit="h", minimum=1),
        Column("week", UTC_TIME, "Monday on which the week begins"),
        Column("kind", TEXT, "What is compared", values=("feature", "score", "calibration")),
        Column("name", TEXT, "Feature; score; or calibration"),
        Column("group", TEXT, "Inputs it is made from: what fails together"),
        Column("is_alarm", BOOL, "Whether someone should look"),
        Column("psi", FLOAT, "Population stability index", nullable=True, minimum=0),
        Column("psi_limit", FLOAT, "What it must reach", nullable=True, minimum=0),
        Column("n_rows", LONG, "Rows: one per GPU; calibration: one per horizon", minimum=0),
        Column("null_share", FLOAT, "Nulls", nullable=True, minimum=0, maximum=1),
        Column(
            "training_null_share", FLOAT, "Nulls in training", nullable=True, minimum=0, maximum=1
        ),
        Column("median", FLOAT, "Median", nullable=True),
        Column("training_median", FLOAT, "Median in training", nullable=True),
        Column("expected", FLOAT, "Incidents the scores expected", nullable=True, minimum=0),
        Column("observed", LONG, "Incidents that came", nullable=True, minimum=0),
        Column("ratio_low", FLOAT, "Observed / expected, low end", nullable=True, minimum=0),
        Column("ratio_high", FLOAT, "Observed / expected, high end", nullable=True, minimum=0),
        Column("sentence", TEXT, "The comparison in words"),
    ),
    key=("model_version", "week", "kind", "name"),
)

QUARANTINE: Final = TableContract(
    "monitoring/quarantine",
    "Rows and lines that were refused: rule, count and an example",
    (
        Column("table", TEXT, "Table the row was meant for"),
        Column("source", TEXT, "Kind of source"),
        Column("origin", TEXT, "File or address"),
        Column("rule", TEXT, "Rule broken"),
        Column("count", LONG, "How many", minimum=1),
        Column("example", TEXT, "One of them"),
    ),
    key=("table", "source", "origin", "rule"),
)

READS: Final = TableContract(
    "monitoring/reads",
    "What became of every record read: read = parsed + skipped + quarantined",
    (
        Column("source", TEXT, "Kind of source"),
        Column("origin", TEXT, "File or address"),
        Column("n_read", LONG, "Records seen", minimum=0),
        Column("n_parsed", LONG, "Records that gave at least one row", minimum=0),
        Column("n_skipped", LONG, "Comments, blanks, lines about something else", minimum=0),
        Column("n_quarantined", LONG, "Records refused", minimum=0),
    ),
    key=("source", "origin"),
)
