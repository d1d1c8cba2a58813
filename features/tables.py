"""Core, feature, score and decision tables: columns, units, ranges, keys, a line of meaning each.

Raw tables are in `features.raw_tables`, those about the system itself in
`features.monitoring_tables`; how a contract is enforced is in `features.contracts`.
"""

from typing import Final

import polars as pl

from features.column_groups import (
    entity_columns,
    incident_columns,
    interval_columns,
    score_columns,
    training_columns,
)
from features.contracts import UTC_TIME, Column, TableContract
from features.monitoring_tables import DRIFT, LIVE_OUTCOMES, LIVE_QUALITY, QUARANTINE, READS
from features.raw_tables import (
    COVERED,
    RAW_COVERAGE,
    RAW_GPU_TELEMETRY,
    RAW_INCIDENTS,
    RAW_INVENTORY,
    RAW_JOB_LOG,
    RAW_JOB_OUTPUT,
    RAW_KERNEL_LOG,
    RAW_NODE_STATES,
    RAW_TRAINING_METRICS,
)
from features.telemetry_metrics import metric_columns
from features.vocabulary import (
    ACTIONS,
    CENSORED_BY,
    EVENT_SEVERITIES,
    JOB_CAUSES,
)

_TEXT: Final = pl.String()
_INT: Final = pl.Int32()
_LONG: Final = pl.Int64()
_FLOAT: Final = pl.Float64()
_BOOL: Final = pl.Boolean()
_TEXTS: Final = pl.List(pl.String)


CORE_GPU_TELEMETRY: Final = TableContract(
    "core/gpu_telemetry",
    "One row per GPU and sample: deduplicated, sorted by (gpu_uuid, ts)",
    (
        Column("gpu_uuid", _TEXT, "GPU identity"),
        Column("ts", UTC_TIME, "When the sample was taken"),
        Column("node", _TEXT, "Node the GPU was in", nullable=True),
        *metric_columns(),
    ),
    key=("gpu_uuid", "ts"),
    partition="hour",
    time_column="ts",
)

CORE_HEALTH_EVENTS: Final = TableContract(
    "core/health_events",
    "Health events of GPUs and nodes, deduplicated; repeats within 5 s are one event with a count",
    (
        Column("event_id", _TEXT, "Stable id made from node, device, kind, code and first time"),
        Column("ts", UTC_TIME, "First time seen"),
        Column("node", _TEXT, "Node"),
        Column("gpu_uuid", _TEXT, "GPU, where the device is known in the inventory", nullable=True),
        Column("pci_bus_id", _TEXT, "Device address", nullable=True),
        Column(
            "kind", _TEXT, "xid, sxid, off_bus, gsp, aer, mce, edac, oom, link, node_state, ..."
        ),
        Column("code", _INT, "Xid or SXid code", nullable=True, minimum=0),
        Column("severity", _TEXT, "What the line calls it", nullable=True, values=EVENT_SEVERITIES),
        Column("count", _LONG, "How many lines the event stands for", minimum=1),
        Column("message", _TEXT, "The first line as received", nullable=True),
    ),
    key=("event_id",),
    partition="hour",
    time_column="ts",
)

CORE_JOBS: Final = TableContract(
    "core/jobs",
    "One row per attempt of a job",
    (
        Column("job_id", _TEXT, "Job id"),
        Column("attempt", _INT, "0 for the first, counted by start time", minimum=0),
        Column("user", _TEXT, "User, hashed by setting", nullable=True),
        Column("partition", _TEXT, "Partition or queue", nullable=True),
        Column("nodes", _TEXTS, "Nodes", nullable=True),
        Column("n_gpus", _INT, "GPUs in all", nullable=True, minimum=0),
        Column("submit", UTC_TIME, "Submitted", nullable=True),
        Column("start", UTC_TIME, "Started", nullable=True),
        Column("end", UTC_TIME, "Ended; null: still running", nullable=True),
        Column("end_state", _TEXT, "End state", nullable=True),
        Column("exit_code", _INT, "Exit code", nullable=True),
        Column("cause", _TEXT, "Why it ended badly", nullable=True, values=JOB_CAUSES),
    ),
    key=("job_id", "attempt"),
)

NODE_STATES: Final = ("up", "drain", "down", "unknown")

CORE_NODE_STATES: Final = TableContract(
    "core/node_states",
    "Intervals in which a node was up, draining or drained, or down; unknown is its own state",
    (
        Column("node", _TEXT, "Node"),
        Column("state", _TEXT, "up, drain, down or unknown", values=NODE_STATES),
        Column("reason", _TEXT, "Reason", nullable=True),
        Column("actor", _TEXT, "Who set it", nullable=True),
        *interval_columns(),
    ),
    key=("node", "valid_from", "state"),
)

CORE_INVENTORY: Final = TableContract(
    "core/inventory",
    "Stays: which GPU was in which node and slot, and when",
    (
        Column("gpu_uuid", _TEXT, "GPU identity (UUID or serial)"),
        Column("node", _TEXT, "Node"),
        Column("slot", _TEXT, "Slot or index on the node", nullable=True),
        Column("pci_bus_id", _TEXT, "Device address", nullable=True),
        Column("model", _TEXT, "Product name", nullable=True),
        Column("batch", _TEXT, "Hardware batch, as far as serials or orders tell", nullable=True),
        *interval_columns(),
    ),
    key=("gpu_uuid", "node", "slot", "valid_from", "valid_to"),
)

CORE_COUNTERS: Final = TableContract(
    "core/counters",
    "Slow counters in force: one row per GPU and time in which none of them changed, one Float64 "
    "column per counter",
    (Column("gpu_uuid", _TEXT, "GPU identity (UUID or serial)"), *interval_columns()),
    key=("gpu_uuid", "valid_from"),
    extra_dtype=_FLOAT,
)

CORE_TOPOLOGY: Final = TableContract(
    "core/topology",
    "Where a node stands, one row per level (rack, row, cage, switch, pool, ...)",
    (
        Column("node", _TEXT, "Node"),
        Column("level", _TEXT, "Name of the level, as the site calls it"),
        Column("place", _TEXT, "The place at that level"),
        *interval_columns(),
    ),
    key=("node", "level", "valid_from"),
)

CORE_MAINTENANCE: Final = TableContract(
    "core/maintenance",
    "Planned work and our own actions: times in which an outcome says nothing about health",
    (
        Column("node", _TEXT, "Node"),
        Column("start", UTC_TIME, "Start, inclusive"),
        Column("end", UTC_TIME, "End, exclusive; null: still open", nullable=True),
        Column("kind", _TEXT, "maintenance or own_action", values=("maintenance", "own_action")),
        Column("reason", _TEXT, "Reason", nullable=True),
    ),
    key=("node", "start", "kind"),
)


CORE_INCIDENTS: Final = TableContract(
    "core/incidents",
    "Failures of GPUs and nodes: one per entity and repair, with a fault type and its evidence",
    incident_columns(),
    key=("incident_id",),
)

LABELS: Final = TableContract(
    "features/labels",
    "Per entity, moment and horizon: did an incident start in [as_of + L, as_of + L + H)?",
    (
        *entity_columns(),
        Column("as_of", UTC_TIME, "Moment of prediction"),
        Column("horizon_h", _INT, "Horizon H", unit="h", minimum=1),
        Column(
            "label", pl.Int8(), "1, 0, or null where unknown", nullable=True, minimum=0, maximum=1
        ),
        Column("fault_type", _TEXT, "Fault type of the first such incident", nullable=True),
        Column("incident_id", _TEXT, "The first such incident", nullable=True),
        Column("censored_by", _TEXT, "Why the label is null", nullable=True, values=CENSORED_BY),
        Column(
            "catalogue_version",
            _TEXT,
            "Fault catalogue by which it was labelled",
            nullable=True,
            is_optional=True,
        ),
    ),
    key=("entity_kind", "entity_id", "as_of", "horizon_h"),
    partition="day",
    time_column="as_of",
    is_end_stamped=True,
)

GPU_MATRIX: Final = TableContract(
    "features/gpu_matrix",
    "One row per GPU and as_of, one Float32 column per registered feature",
    (
        Column("entity_id", _TEXT, "gpu_uuid"),
        Column("as_of", UTC_TIME, "Moment of prediction; features end before it"),
        Column("node", _TEXT, "Node the GPU was in", nullable=True),
    ),
    key=("entity_id", "as_of"),
    partition="hour",
    time_column="as_of",
    is_end_stamped=True,
    extra_dtype=pl.Float32(),
)


GPU_SCORES: Final = TableContract(
    "scores/gpu_scores",
    "Failure scores per GPU, moment and horizon",
    score_columns(),
    key=("entity_id", "as_of", "horizon_h", "model_version"),
    partition="hour",
    time_column="as_of",
    is_end_stamped=True,
)

NODE_SCORES: Final = TableContract(
    "scores/node_scores",
    "Failure scores per node, moment and horizon",
    score_columns(),
    key=("entity_id", "as_of", "horizon_h", "model_version"),
    partition="hour",
    time_column="as_of",
    is_end_stamped=True,
)

DECISIONS: Final = TableContract(
    "remediation/decisions",
    "What the hook decided for each node in its latest run; the ledger keeps every run",
    (
        Column("decision_id", _TEXT, "Stable id"),
        Column("node", _TEXT, "Node"),
        Column("as_of", UTC_TIME, "as_of of the scores it rests on"),
        Column("decided_at", UTC_TIME, "When it was decided"),
        Column("wanted", _TEXT, "What the policy wants", values=ACTIONS),
        Column("action", _TEXT, "What the guards leave of it", values=ACTIONS),
        Column("score", _FLOAT, "Node score", nullable=True, minimum=0, maximum=1),
        Column("horizon_h", _INT, "Horizon of the score", minimum=1),
        Column("fault_type", _TEXT, "Most probable fault type", nullable=True),
        Column("cost_of_acting", _FLOAT, "Expected", unit="GPU-hours", nullable=True),
        Column("cost_of_waiting", _FLOAT, "Expected", unit="GPU-hours", nullable=True),
        Column("sentence", _TEXT, "The decision in one sentence"),
        Column("blocked_by", _TEXTS, "Guards that said no, each with its reason"),
        Column("model_version", _TEXT, "Model the score came from"),
        Column("is_dry_run", _BOOL, "Whether nothing was really done"),
    ),
    key=("decision_id",),
)

CORE_TRAINING_METRICS: Final = TableContract(
    "core/training_metrics",
    "One row per job and step: loss, gradient norm, step time, last checkpoint",
    (*training_columns(),),
    key=("job_id", "step"),
)

CORE_COVERAGE: Final = TableContract(
    "core/coverage",
    "Per source, entity and hour: what was to be expected and what came; no data is data too",
    (
        Column("source", _TEXT, "Kind of source"),
        Column("entity_kind", _TEXT, "gpu, node, or site where all are meant", values=COVERED),
        Column("entity_id", _TEXT, "gpu_uuid, node or site"),
        Column("hour", UTC_TIME, "Start of the hour"),
        Column("n_received", _LONG, "Records received", minimum=0),
        Column("n_expected", _LONG, "Records to be expected", nullable=True, minimum=0),
        Column("covered_s", _FLOAT, "Time covered", unit="s", minimum=0, maximum=3600),
        Column("longest_gap_s", _FLOAT, "Longest stretch without", unit="s", minimum=0),
        Column("watermark", UTC_TIME, "Last moment covered up to this hour", nullable=True),
    ),
    key=("source", "entity_kind", "entity_id", "hour"),
    partition="day",
    time_column="hour",
)

TABLES: Final[tuple[TableContract, ...]] = (
    RAW_GPU_TELEMETRY,
    RAW_KERNEL_LOG,
    RAW_JOB_LOG,
    RAW_NODE_STATES,
    RAW_INCIDENTS,
    RAW_INVENTORY,
    RAW_JOB_OUTPUT,
    RAW_TRAINING_METRICS,
    RAW_COVERAGE,
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_JOBS,
    CORE_NODE_STATES,
    CORE_INVENTORY,
    CORE_COUNTERS,
    CORE_TOPOLOGY,
    CORE_MAINTENANCE,
    CORE_INCIDENTS,
    CORE_TRAINING_METRICS,
    CORE_COVERAGE,
    LABELS,
    GPU_MATRIX,
    GPU_SCORES,
    NODE_SCORES,
    DECISIONS,
    LIVE_OUTCOMES,
    LIVE_QUALITY,
    DRIFT,
    QUARANTINE,
    READS,
)

TABLE_BY_KEY: Final = {table.asset_key: table for table in TABLES}
