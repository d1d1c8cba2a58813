"""Writes telemetry as a monitoring system's drop folder: one Parquet file a day.

Which samples go here, and which into other formats, is decided in `simulation.writers.raw`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from simulation.fleet.telemetry import NodeTelemetry

DAY_S: Final = 86400
_DELTA: Final = ("timestamp", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
"""Columns that grow with every sample; all others repeat few values and suit a dictionary."""


def write_days(
    nodes: Sequence[tuple[str, NodeTelemetry]],
    folder: Path,
    *,
    start: datetime,
    bad_rows: int,
) -> dict[Path, int]:
    """Writes one file per day of the record.

    Args:
        nodes: Name and samples of each node.
        folder: Folder to write to.
        start: The record's first moment.
        bad_rows: Rows without a UUID to put into every seventh file.

    Returns:
        The files with the number of bad rows in each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    days = max((int(part.at_s.max()) for _, part in nodes if part.at_s.size), default=0) // DAY_S
    written = {}
    for day in range(days + 1):
        table = _day_table(nodes, day, start=start)
        n_bad = bad_rows if day % 7 == 3 and table.num_rows > bad_rows else 0
        if n_bad:
            nameless = table.slice(0, n_bad)
            index = nameless.schema.get_field_index("UUID")
            empty = pa.array([None] * n_bad, nameless.schema.field(index).type)
            nameless = nameless.set_column(index, nameless.schema.field(index), empty)
            table = pa.concat_tables([table, nameless])
        path = folder / f"{start + timedelta(days=day):%Y-%m-%d}.parquet"
        _write(table, path)
        written[path] = n_bad
    return written


def _day_table(
    nodes: Sequence[tuple[str, NodeTelemetry]], day: int, *, start: datetime
) -> pa.Table:
    """One day's samples of all nodes, sorted by GPU and time."""
    epoch_ms = round(start.timestamp() * 1000)
    tables = []
    for name, telemetry in nodes:
        part = telemetry.rows(
            (telemetry.at_s >= day * DAY_S) & (telemetry.at_s < (day + 1) * DAY_S)
        )
        columns: dict[str, pa.Array] = {
            "UUID": pa.array(part.gpu_uuid.tolist(), pa.string()),
            "timestamp": pa.array(part.at_s * 1000 + epoch_ms, pa.timestamp("ms", "UTC")),
            "Hostname": pa.array([name] * part.at_s.size, pa.string()),
            "gpu": pa.array(part.slot.astype(np.int64)),
        }
        columns |= {field: pa.array(values) for field, values in part.fields.items()}
        tables.append(pa.table(columns))
    return pa.concat_tables(tables).sort_by([("UUID", "ascending"), ("timestamp", "ascending")])


def _write(table: pa.Table, path: Path) -> None:
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=12,
        use_dictionary=[name for name in table.column_names if name not in _DELTA],
        column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
        write_statistics=["timestamp"],
        store_schema=False,
    )
