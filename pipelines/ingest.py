"""Reading a site's inputs for some tables and a span of time, with the account of every record.

How a format is parsed is in `pipelines.sources`; where tables are stored is in `pipelines.store`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from features.tables import QUARANTINE, READS, TABLE_BY_KEY
from pipelines.settings import Settings
from pipelines.sources.site import load_inputs, read_inputs
from pipelines.store import Span, TableStore

STATIC_TABLES: Final = (
    "raw/job_log",
    "raw/node_states",
    "raw/incidents",
    "core/inventory",
    "core/topology",
    "core/maintenance",
)
"""Tables that are read whole: their records change after the fact (a running job ends)."""


@dataclass(frozen=True)
class RawTables:
    """Frames read from a site's inputs, and the account of every record read.

    Attributes:
        frames: Table name to frame; a table that no input gives is empty.
        quarantine: `monitoring/quarantine` rows.
        reads: `monitoring/reads` rows.
    """

    frames: Mapping[str, pl.DataFrame]
    quarantine: pl.DataFrame
    reads: pl.DataFrame

    def keep_accounts(self, store: TableStore, *, name: str) -> None:
        """Stores what became of the records, under the name of the asset that read them."""
        store.keep_part(QUARANTINE, name, self.quarantine)
        store.keep_part(READS, name, self.reads)


def read_raw(
    settings: Settings, tables: Sequence[str], *, span: Span | None, now: datetime
) -> RawTables:
    """Reads the inputs that give the named tables.

    Args:
        settings: The installation.
        tables: Names of the wanted tables.
        span: Keep rows whose partition time lies in it; None keeps all.
        now: Recorded as the time of ingestion.

    Returns:
        One frame per wanted table. Rows without a time are kept, for the store to refuse and
        count them.
    """
    inputs = load_inputs(settings.inputs)
    result = read_inputs(inputs, ingested_at=now, tables=tables)
    frames, outside = {}, []
    for name in tables:
        contract = TABLE_BY_KEY[name]
        frame = contract.conform(result.tables.get(name, contract.empty()))
        if span and contract.time_column:
            time = pl.col(contract.time_column)
            outside += _outside_record(frame, time, settings, table=name)
            frame = frame.filter(time.is_null() | ((time >= span.start) & (time < span.end)))
        frames[name] = frame
    kept = pl.concat([result.quarantine, pl.DataFrame(outside, schema=QUARANTINE.schema)])
    return RawTables(frames, kept, result.reads)


def _outside_record(
    frame: pl.DataFrame, time: pl.Expr, settings: Settings, *, table: str
) -> list[dict[str, object]]:
    """Rows before the record starts or after it ends belong to no partition: say how many."""
    rules = {f"before the start of the record, {settings.start}": time < settings.start}
    if settings.end:
        rules[f"at or after the end of the record, {settings.end}"] = time >= settings.end
    found = [(rule, frame.filter(is_out)) for rule, is_out in rules.items()]
    return [
        {
            "table": table,
            "source": "settings",
            "origin": str(settings.inputs),
            "rule": rule,
            "count": rows.height,
            "example": str(rows.row(0, named=True)),
        }
        for rule, rows in found
        if rows.height
    ]
