"""The raw tables: what sources say, as received. Columns, units, ranges, partitions.

Core and later tables are in `features.tables`; how a contract is enforced is in
`features.contracts`.
"""

from typing import Final

from features.column_groups import (
    incident_columns,
    interval_columns,
    source_columns,
    training_columns,
)
from features.contracts import BOOL, FLOAT, INT, LONG, TEXT, TEXTS, UTC_TIME, Column, TableContract
from features.telemetry_metrics import metric_columns
from features.vocabulary import EVENT_SEVERITIES, JOB_CAUSES

COVERED: Final = ("gpu", "node", "site")


RAW_GPU_TELEMETRY: Final = TableContract(
    "raw/gpu_telemetry",
    "GPU samples as received, in the project's units; duplicates and disorder included",
    (
        Column("gpu_uuid", TEXT, "GPU identity"),
        Column("ts", UTC_TIME, "When the sample was taken"),
        Column("node", TEXT, "Node name as the source gives it", nullable=True),
        Column("gpu_index", INT, "Index on the node at that time", nullable=True, minimum=0),
        *metric_columns(),
        *source_columns(),
    ),
    key=(),
    partition="hour",
    time_column="ts",
)

RAW_KERNEL_LOG: Final = TableContract(
    "raw/kernel_log",
    "Kernel log lines that report hardware or driver trouble, with what was read from them",
    (
        Column("node", TEXT, "Node the log is from", nullable=True),
        Column("ts", UTC_TIME, "Time of the line; null where the log gives none", nullable=True),
        Column("kind", TEXT, "xid, sxid, off_bus, gsp, aer, mce, edac, oom, link, ..."),
        Column("code", INT, "Xid or SXid code", nullable=True, minimum=0),
        Column("pci_bus_id", TEXT, "dddddddd:bb:dd.f, lower case", nullable=True),
        Column("pid", LONG, "Process named in the line", nullable=True, minimum=0),
        Column("process", TEXT, "Process name in the line", nullable=True),
        Column(
            "severity",
            TEXT,
            "What the line calls it; null where it does not tell",
            nullable=True,
            values=EVENT_SEVERITIES,
        ),
        Column("line", TEXT, "The line as received"),
        *source_columns(),
    ),
    key=(),
    partition="hour",
    time_column="ts",
)

RAW_JOB_LOG: Final = TableContract(
    "raw/job_log",
    "Job accounting records as received, one per job or step",
    (
        Column("job_id", TEXT, "Job id with array task or component, without step"),
        Column("step", TEXT, "batch, extern, 0, ...; null for the job itself", nullable=True),
        Column("job_name", TEXT, "Name", nullable=True),
        Column("user", TEXT, "User", nullable=True),
        Column("partition", TEXT, "Partition or queue", nullable=True),
        Column("state", TEXT, "End state, upper case, without detail: COMPLETED, NODE_FAIL, ..."),
        Column("exit_code", INT, "Exit code", nullable=True),
        Column("exit_signal", INT, "Signal", nullable=True),
        Column("filed_at", UTC_TIME, "Submitted, else started, else ended", nullable=True),
        Column("submit", UTC_TIME, "Submitted", nullable=True),
        Column("start", UTC_TIME, "Started", nullable=True),
        Column("end", UTC_TIME, "Ended", nullable=True),
        Column("nodes", TEXTS, "Nodes, expanded", nullable=True),
        Column("n_gpus", INT, "GPUs allocated in all", nullable=True, minimum=0),
        *source_columns(),
    ),
    key=(),
)

RAW_NODE_STATES: Final = TableContract(
    "raw/node_states",
    "Scheduler states of nodes as received",
    (
        Column("node", TEXT, "Node"),
        Column("state", TEXT, "State as the source gives it"),
        Column("reason", TEXT, "Reason", nullable=True),
        Column("actor", TEXT, "Who set it", nullable=True),
        *interval_columns(),
        *source_columns(),
    ),
    key=(),
)

RAW_INCIDENTS: Final = TableContract(
    "raw/incidents",
    "Incidents that a site's own records name, as received",
    incident_columns(),
    key=(),
)

RAW_INVENTORY: Final = TableContract(
    "raw/inventory",
    "Devices as a source reported them at a moment; a report says nothing of the time between",
    (
        Column("ts", UTC_TIME, "When the device was seen there"),
        Column("gpu_uuid", TEXT, "GPU identity"),
        Column("node", TEXT, "Node it was in"),
        Column("slot", TEXT, "Slot or index on the node", nullable=True),
        Column("pci_bus_id", TEXT, "dddddddd:bb:dd.f, lower case", nullable=True),
        Column("model", TEXT, "Product name", nullable=True),
        *source_columns(),
    ),
    key=(),
    time_column="ts",
)

RAW_JOB_OUTPUT: Final = TableContract(
    "raw/job_output",
    "What the end of a job's own log says about why it failed, one row per rule that matched",
    (
        Column("job_id", TEXT, "Job id", nullable=True),
        Column("node", TEXT, "Node that wrote the line", nullable=True),
        Column("rank", INT, "Rank that wrote the line", nullable=True, minimum=0),
        Column("ts", UTC_TIME, "Time of the first such line", nullable=True),
        Column("fault_class", TEXT, "collective_timeout, cuda_error, host_oom, ..."),
        Column("cause", TEXT, "What the class means for the job", values=JOB_CAUSES),
        Column("rule", TEXT, "Rule of the rule file that matched; template: none did"),
        Column("priority", INT, "Of a job's rows the lowest explains it", minimum=0),
        Column("is_collateral", BOOL, "Whether another process' end brings such a line about"),
        Column("position", LONG, "Where the first such line begins in its file", "byte", minimum=0),
        Column("template", TEXT, "Log template of the line", nullable=True),
        Column("count", LONG, "Lines it stands for", minimum=1),
        Column("line", TEXT, "The first such line"),
        *source_columns(),
    ),
    key=(),
    time_column="ts",
)

RAW_TRAINING_METRICS: Final = TableContract(
    "raw/training_metrics",
    "What a training job reported about one step",
    (
        *training_columns(),
        *source_columns(),
    ),
    key=(),
    time_column="ts",
)

RAW_COVERAGE: Final = TableContract(
    "raw/coverage",
    "Stretches of time that a reading of a source speaks of, whether or not it gave rows",
    (
        Column("entity_kind", TEXT, "gpu, node, or site where all are meant", values=COVERED),
        Column("entity_id", TEXT, "gpu_uuid, node or site"),
        Column("start", UTC_TIME, "First moment covered"),
        Column("end", UTC_TIME, "Last moment covered, inclusive"),
        Column("expected_every_s", FLOAT, "Usual time between records", unit="s", nullable=True),
        Column("origin", TEXT, "File or address"),
        *source_columns(),
    ),
    key=(),
    time_column="start",
)
