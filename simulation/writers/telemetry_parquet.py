"""Writes telemetry as a monitoring system's drop folder: Parquet files by day and group of nodes.

Which samples go here, and which into other formats, is decided in `simulation.writers.shards`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from simulation.fleet.fields import FIELDS
from simulation.fleet.telemetry import Block

_DELTA: Final = ("timestamp", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
"""Columns that grow with every sample; all others repeat few values and suit a dictionary."""

_COLUMNS: Final = ("UUID", "timestamp", "Hostname", "gpu", *FIELDS)

WRITE_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": [name for name in _COLUMNS if name not in _DELTA],
    "column_encoding": dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
    "write_statistics": ["timestamp"],
    "store_schema": False,
}
"""How the files are written; the readers' peer in the benchmark uses the same."""


@dataclass(frozen=True)
class Devices:
    """The GPUs whose samples a block holds, by their number in it.

    Attributes:
        uuids: UUID of each.
        hosts: Name of each one's node.
        slots: Slot of each.
    """

    uuids: Sequence[str]
    hosts: Sequence[str]
    slots: Sequence[int]


def block_table(block: Block, n_rows: int, devices: Devices, *, start: datetime) -> pa.Table:
    """A block's samples as a table, without copying the fields.

    Args:
        block: The samples.
        n_rows: How many of its rows are filled.
        devices: Its GPUs.
        start: The record's first moment.

    Returns:
        The table; it shares the block's memory and is good until the block is filled anew.
    """
    rows = slice(0, n_rows)
    gpu = block.gpu[rows]
    names, host_of = np.unique(np.array(devices.hosts, dtype=object), return_inverse=True)
    columns = {
        "UUID": _labels(gpu, devices.uuids),
        "timestamp": pa.array(
            block.at_s[rows] * 1000 + round(start.timestamp() * 1000), pa.timestamp("ms", "UTC")
        ),
        "Hostname": _labels(host_of.astype(np.int32)[gpu], names.tolist()),
        "gpu": pa.array(np.array(devices.slots, dtype=np.int64)[gpu]),
    }
    columns |= {name: pa.array(block.field(name, rows)) for name in FIELDS}
    return pa.table(columns)


def _labels(codes: np.ndarray, words: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(words, pa.string()))


def write_table(table: pa.Table, path: Path, *, n_bad: int) -> int:
    """Writes a table, with a few rows that have lost their UUID if there are rows enough.

    Args:
        table: The samples.
        path: File to write.
        n_bad: Rows without a UUID to add.

    Returns:
        The number of bad rows in the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    bad = n_bad if table.num_rows > n_bad else 0
    if bad:
        nameless = table.slice(0, bad)
        empty = pa.nulls(bad, table.schema.field("UUID").type)
        table = pa.concat_tables([table, nameless.set_column(0, "UUID", empty)])
        table = table.unify_dictionaries()
    pq.write_table(table, path, **WRITE_OPTIONS)
    return bad
