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
from features.contracts import BOOL, FLOAT, INT, LONG, TEXT, TEXTS, UTC_TIME, Column, TableContract
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

CORE_GPU_TELEMETRY: Final = TableContract(
    "core/gpu_telemetry",
    "One row per GPU and sample: deduplicated, sorted by (gpu_uuid, ts)",
    (
        Column("gpu_uuid", TEXT, "GPU identity"),
        Column("ts", UTC_TIME, "When the sample was taken"),
        Column("node", TEXT, "Node the GPU was in", nullable=True),
        *metric_columns(),
    ),
    key=("gpu_uuid", "ts"),
    partition="hour",
    time_column="ts",
)

CORE_HEALTH_EVENTS: Final = TableContract(
    "core/health_events",
    "Health events of GPUs and nodes, deduplicated; repeats within 5 s of one hour are one event "
    "with a count",
    (
        Column("event_id", TEXT, "Stable id made from node, device, kind, code and first time"),
        Column("ts", UTC_TIME, "First time seen"),
        Column("node", TEXT, "Node"),
        Column("gpu_uuid", TEXT, "GPU, where the device is known in the inventory", nullable=True),
        Column("pci_bus_id", TEXT, "Device address", nullable=True),
        Column("kind", TEXT, "xid, sxid, off_bus, gsp, aer, mce, edac, oom, link, node_state, ..."),
        Column("code", INT, "Xid or SXid code", nullable=True, minimum=0),
        Column("severity", TEXT, "What the line calls it", nullable=True, values=EVENT_SEVERITIES),
        Column("count", LONG, "How many lines the event stands for", minimum=1),
        Column("message", TEXT, "The first line as received", nullable=True),
    ),
    key=("event_id",),
    partition="hour",
    time_column="ts",
)

CORE_JOBS: Final = TableContract(
    "core/jobs",
    "One row per attempt of a job",
    (
        Column("job_id", TEXT, "Job id"),
        Column("attempt", INT, "0 for the first, counted by start time", minimum=0),
        Column("user", TEXT, "User, hashed by setting", nullable=True),
        Column("partition", TEXT, "Partition or queue", nullable=True),
        Column("nodes", TEXTS, "Nodes", nullable=True),
        Column("n_gpus", INT, "GPUs in all", nullable=True, minimum=0),
        Column("submit", UTC_TIME, "Submitted", nullable=True),
        Column("start", UTC_TIME, "Started", nullable=True),
        Column("end", UTC_TIME, "Ended; null: still running", nullable=True),
        Column("end_state", TEXT, "End state", nullable=True),
        Column("exit_code", INT, "Exit code", nullable=True),
        Column("cause", TEXT, "Why it ended badly", nullable=True, values=JOB_CAUSES),
    ),
    key=("job_id", "attempt"),
)

NODE_STATES: Final = ("up", "drain", "down", "unknown")

CORE_NODE_STATES: Final = TableContract(
    "core/node_states",
    "Intervals in which a node was up, draining or drained, or down; unknown is its own state",
    (
        Column("node", TEXT, "Node"),
        Column("state", TEXT, "up, drain, down or unknown", values=NODE_STATES),
        Column("reason", TEXT, "Reason", nullable=True),
        Column("actor", TEXT, "Who set it", nullable=True),
        *interval_columns(),
    ),
    key=("node", "valid_from", "state"),
)

CORE_INVENTORY: Final = TableContract(
    "core/inventory",
    "Stays: which GPU was in which node and slot, and when",
    (
        Column("gpu_uuid", TEXT, "GPU identity (UUID or serial)"),
        Column("node", TEXT, "Node"),
        Column("slot", TEXT, "Slot or index on the node", nullable=True),
        Column("pci_bus_id", TEXT, "Device address", nullable=True),
        Column("model", TEXT, "Product name", nullable=True),
        Column("batch", TEXT, "Hardware batch, as far as serials or orders tell", nullable=True),
        *interval_columns(),
    ),
    key=("gpu_uuid", "node", "slot", "valid_from", "valid_to"),
)

CORE_COUNTERS: Final = TableContract(
    "core/counters",
    "Slow counters in force: one row per GPU and time in which none of them changed, one Float64 "
    "column per counter",
    (Column("gpu_uuid", TEXT, "GPU identity (UUID or serial)"), *interval_columns()),
    key=("gpu_uuid", "valid_from"),
    extra_dtype=FLOAT,
)

CORE_TOPOLOGY: Final = TableContract(
    "core/topology",
    "Where a node stands, one row per level (rack, row, cage, switch, pool, ...)",
    (
        Column("node", TEXT, "Node"),
        Column("level", TEXT, "Name of the level, as the site calls it"),
        Column("place", TEXT, "The place at that level"),
        *interval_columns(),
    ),
    key=("node", "level", "valid_from"),
)

CORE_MAINTENANCE: Final = TableContract(
    "core/maintenance",
    "Planned work and our own actions: times in which an outcome says nothing about health",
    (
        Column("node", TEXT, "Node"),
        Column("start", UTC_TIME, "Start, inclusive"),
        Column("end", UTC_TIME, "End, exclusive; null: still open", nullable=True),
        Column("kind", TEXT, "maintenance or own_action", values=("maintenance", "own_action")),
        Column("reason", TEXT, "Reason", nullable=True),
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
        Column("horizon_h", INT, "Horizon H", unit="h", minimum=1),
        Column(
            "label", pl.Int8(), "1, 0, or null where unknown", nullable=True, minimum=0, maximum=1
        ),
        Column("fault_type", TEXT, "Fault type of the first such incident", nullable=True),
        Column("incident_id", TEXT, "The first such incident", nullable=True),
        Column("censored_by", TEXT, "Why the label is null", nullable=True, values=CENSORED_BY),
        Column(
            "catalogue_version",
            TEXT,
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
        Column("entity_id", TEXT, "gpu_uuid"),
        Column("as_of", UTC_TIME, "Moment of prediction; features end before it"),
        Column("node", TEXT, "Node the GPU was in", nullable=True),
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
        Column("decision_id", TEXT, "Stable id"),
        Column("node", TEXT, "Node"),
        Column("as_of", UTC_TIME, "as_of of the scores it rests on"),
        Column("decided_at", UTC_TIME, "When it was decided"),
        Column("wanted", TEXT, "What the policy wants", values=ACTIONS),
        Column("action", TEXT, "What the guards leave of it", values=ACTIONS),
        Column("score", FLOAT, "Node score", nullable=True, minimum=0, maximum=1),
        Column("horizon_h", INT, "Horizon of the score", minimum=1),
        Column("fault_type", TEXT, "Most probable fault type", nullable=True),
        Column("cost_of_acting", FLOAT, "Expected", unit="GPU-hours", nullable=True),
        Column("cost_of_waiting", FLOAT, "Expected", unit="GPU-hours", nullable=True),
        Column("sentence", TEXT, "The decision in one sentence"),
        Column("blocked_by", TEXTS, "Guards that said no, each with its reason"),
        Column("model_version", TEXT, "Model the score came from"),
        Column("is_dry_run", BOOL, "Whether nothing was really done"),
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
        Column("source", TEXT, "Kind of source"),
        Column("entity_kind", TEXT, "gpu, node, or site where all are meant", values=COVERED),
        Column("entity_id", TEXT, "gpu_uuid, node or site"),
        Column("hour", UTC_TIME, "Start of the hour"),
        Column("n_received", LONG, "Records received", minimum=0),
        Column("n_expected", LONG, "Records to be expected", nullable=True, minimum=0),
        Column("covered_s", FLOAT, "Time covered", unit="s", minimum=0, maximum=3600),
        Column("longest_gap_s", FLOAT, "Longest stretch without", unit="s", minimum=0),
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
