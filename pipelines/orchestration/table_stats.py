"""Counts of stored parts, from the footers of their files: no row is read.

What is odd about them is judged in `pipelines.orchestration.table_checks`.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from features.contracts import TableContract
from features.tables import CORE_GPU_TELEMETRY
from features.telemetry_metrics import METRIC_BY_COLUMN
from pipelines.orchestration.table_checks import PartStats
from pipelines.storage.day_files import hours_in
from pipelines.storage.object_paths import Place
from pipelines.storage.store import Span, TableStore
from pipelines.storage.telemetry.layout import day_folder, part_path, read_manifest

TRAILING_DAYS: Final = 7
_STEP: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1)}


def newest_parts(
    store: TableStore, table: TableContract
) -> tuple[PartStats | None, list[PartStats]]:
    """The newest part of a table, and the same hour of the days before; days for a daily table.

    Args:
        store: The store.
        table: A table that is cut by hours or days.

    Returns:
        Both; None and none where nothing is stored.
    """
    until = store.covered_until(table)
    if until is None:
        return None, []
    step = _STEP[table.partition]
    newest = until - step
    before = [newest - timedelta(days=i) for i in range(TRAILING_DAYS, 0, -1)]
    found = [part for at in before if (part := part_stats(store, table, at)) is not None]
    return part_stats(store, table, newest), found


def filled_until(store: TableStore, table: TableContract, *, reach: timedelta) -> datetime | None:
    """End of the newest part that has rows: hours are stored also where a source fell silent.

    Args:
        store: The store.
        table: A table that is cut by hours or days.
        reach: How far before the newest part rows are looked for.

    Returns:
        The moment; None where no part within reach has any.
    """
    until, step = store.covered_until(table), _STEP[table.partition]
    if until is None:
        return None
    for back in range(reach // step + 1):
        end = until - back * step
        part = part_stats(store, table, end - step)
        if part is not None and part.rows:
            return end
    return None


def part_stats(store: TableStore, table: TableContract, start: datetime) -> PartStats | None:
    """What the part of a table holds that begins at `start`; None: it is not stored.

    Args:
        store: The store.
        table: A table that is cut by hours or days.
        start: Start of an hour or day.
    """
    if table is CORE_GPU_TELEMETRY:
        files, n_parts = _telemetry_files(store, start)
    else:
        files = store.files(table, span=Span(start, start + _STEP[table.partition]))
        is_hourly = table.partition == "hour"
        n_parts = sum(len(hours_in(path.name)) for path in files) if is_hourly else len(files)
    if not n_parts:
        return None
    footers = [_footer(path) for path in files]
    rows = sum(footer.num_rows for footer in footers)
    return PartStats(
        start=start, rows=rows / n_parts, null_shares=dict(_nulls(footers, table)) if rows else {}
    )


def rows_of(store: TableStore, table: TableContract) -> int | None:
    """Rows of a table that is kept whole; None: it was never stored."""
    files = store.files(table)
    return sum(_footer(path).num_rows for path in files) if files else None


def _telemetry_files(store: TableStore, hour: datetime) -> tuple[list[Place], int]:
    """Files that hold an hour of telemetry, and how many hours they hold."""
    at = hour.astimezone(UTC)
    folder = day_folder(store.telemetry.folder, at.date())
    manifest = read_manifest(folder)
    entry = manifest.hours.get(at.hour)
    if entry is None:
        return [], 0
    n_hours = sum(other.part == entry.part for other in manifest.hours.values())
    shards = manifest.shards.get(entry.part, ())
    return [part_path(folder, entry.part, shard) for shard in shards], n_hours


def _nulls(footers: Sequence[Any], table: TableContract) -> Iterator[tuple[str, float]]:
    """Share of nulls by column; telemetry leaves out the columns of metrics that have no value."""
    rows = sum(footer.num_rows for footer in footers)
    nulls: dict[str, int] = {}
    present: dict[str, int] = {}
    for footer in footers:
        names = footer.schema.names
        for name in names:
            present[name] = present.get(name, 0) + footer.num_rows
        for group in range(footer.num_row_groups):
            for at in range(footer.num_columns):
                column = footer.row_group(group).column(at)
                known = column.statistics
                if known is not None and known.has_null_count and "." not in column.path_in_schema:
                    name = column.path_in_schema
                    nulls[name] = nulls.get(name, 0) + known.null_count
    if table is CORE_GPU_TELEMETRY:
        yield from ((name, 1 - present.get(name, 0) / rows) for name in METRIC_BY_COLUMN)
        return
    yield from ((name, count / rows) for name, count in nulls.items())


def _footer(path: Place) -> Any:
    return pq.read_metadata(path if isinstance(path, Path) else pa.BufferReader(path.read_bytes()))
