"""Columns that several tables share: source, entity, interval, incident, score, training.

No table is defined here (see `features.tables`).
"""

import polars as pl

from features.contracts import FLOAT, INT, LONG, TEXT, TEXTS, UTC_TIME, Column
from features.vocabulary import ENTITY_KINDS, FAULT_TYPES, SCORE_STATUSES, TRAINED_ON


def source_columns() -> tuple[Column, ...]:
    """Where a row came from."""
    return (
        Column("source", TEXT, "Kind of source that gave the row: dcgm_text, kernel_log, ..."),
        Column("ingested_at", UTC_TIME, "When the row was read"),
    )


def entity_columns() -> tuple[Column, ...]:
    """Whom a row is about."""
    return (
        Column("entity_kind", TEXT, "gpu or node", values=ENTITY_KINDS),
        Column("entity_id", TEXT, "gpu_uuid or node name"),
    )


def interval_columns() -> tuple[Column, ...]:
    """When a row held."""
    return (
        Column(
            "valid_from", UTC_TIME, "Start, inclusive; null: before the record began", nullable=True
        ),
        Column(
            "valid_to",
            UTC_TIME,
            "End, exclusive; null: still so when the record ends",
            nullable=True,
        ),
    )


def incident_columns() -> tuple[Column, ...]:
    """The columns of incidents, as received and as built."""
    return (
        Column("incident_id", TEXT, "Stable id"),
        *entity_columns(),
        Column("node", TEXT, "Node it happened on", nullable=True),
        Column("start", UTC_TIME, "Onset"),
        Column("end", UTC_TIME, "Repaired or back in service; null: open", nullable=True),
        Column("fault_type", TEXT, "Fault type", values=FAULT_TYPES),
        Column("evidence", TEXT, "What it was concluded from, in words"),
        Column("detected_by", TEXT, "Source of the evidence: xid, node_state, history, ..."),
        Column("catalogue_version", TEXT, "Version of the fault catalogue that typed it"),
        Column("needs", TEXT, "What the fault needs", nullable=True, is_optional=True),
    )


def score_columns() -> tuple[Column, ...]:
    """The columns of scores, of GPUs and of nodes."""
    return (
        *entity_columns(),
        Column("node", TEXT, "Node", nullable=True),
        Column("as_of", UTC_TIME, "Moment of prediction"),
        Column("horizon_h", INT, "Horizon", unit="h", minimum=1),
        Column("score", FLOAT, "Calibrated probability", nullable=True, minimum=0, maximum=1),
        Column("status", TEXT, "ok, prior or unknown", values=SCORE_STATUSES),
        Column("status_reason", TEXT, "Why it is not ok", nullable=True),
        Column("fault_type", TEXT, "Most probable fault type", nullable=True),
        Column("fault_probability", FLOAT, "Its share among fault types", nullable=True),
        Column(
            "fault_probabilities",
            pl.List(pl.Float32),
            "Shares of all fault types, in the order of features.vocabulary.FAULT_TYPES",
            nullable=True,
            is_optional=True,
        ),
        Column("reasons", TEXTS, "Top reasons in words"),
        Column("missing_share", FLOAT, "Share of features that are null", minimum=0, maximum=1),
        Column("model_version", TEXT, "Registry version that scored"),
        Column("trained_on", TEXT, "synthetic or real", values=TRAINED_ON),
    )


def training_columns() -> tuple[Column, ...]:
    """What a training job says about a step, as received and as built."""
    return (
        Column("job_id", TEXT, "Job or run"),
        Column("step", LONG, "Training step", minimum=0),
        Column("ts", UTC_TIME, "When it was reported", nullable=True),
        Column(
            "loss",
            FLOAT,
            "Training loss; infinite and NaN are kept",
            nullable=True,
            must_be_finite=False,
        ),
        Column(
            "grad_norm",
            FLOAT,
            "Gradient norm; infinite and NaN are kept",
            nullable=True,
            must_be_finite=False,
        ),
        Column("step_time_s", FLOAT, "Time of one step", unit="s", nullable=True, minimum=0),
        Column("checkpoint_step", LONG, "Step of the last checkpoint", nullable=True, minimum=0),
    )
