"""The core tables of one site, held together as the input of incidents, labels and features.

How a table is built is in the `core_*` modules; what its columns are is in `features.tables`.
"""

from dataclasses import dataclass, field

import polars as pl

from features import tables


@dataclass(frozen=True)
class CoreTables:
    """The core tables; one that a site does not have is empty.

    Attributes:
        inventory: core/inventory.
        topology: core/topology.
        incidents: core/incidents.
        maintenance: core/maintenance.
        health_events: core/health_events.
        jobs: core/jobs.
        node_states: core/node_states.
        gpu_telemetry: core/gpu_telemetry.
        counters: core/counters.
    """

    inventory: pl.DataFrame = field(default_factory=tables.CORE_INVENTORY.empty)
    topology: pl.DataFrame = field(default_factory=tables.CORE_TOPOLOGY.empty)
    incidents: pl.DataFrame = field(default_factory=tables.CORE_INCIDENTS.empty)
    maintenance: pl.DataFrame = field(default_factory=tables.CORE_MAINTENANCE.empty)
    health_events: pl.DataFrame = field(default_factory=tables.CORE_HEALTH_EVENTS.empty)
    jobs: pl.DataFrame = field(default_factory=tables.CORE_JOBS.empty)
    node_states: pl.DataFrame = field(default_factory=tables.CORE_NODE_STATES.empty)
    gpu_telemetry: pl.DataFrame = field(default_factory=tables.CORE_GPU_TELEMETRY.empty)
    counters: pl.DataFrame = field(default_factory=tables.CORE_COUNTERS.empty)
