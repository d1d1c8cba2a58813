"""Reads a site's history: any CSV or Parquet file that a mapping turns into the project's tables.

The mapping's grammar is in `pipelines.sources.history.mapping`; what a row must hold is in
`features.tables`.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

from features.errors import SourceError
from features.history_rows import joined_stays
from features.monitoring_tables import QUARANTINE, READS
from features.tables import TABLE_BY_KEY
from pipelines.sources.history.mapping import (
    Exclude,
    HistoryMapping,
    TableSection,
    load_mapping,
)
from pipelines.sources.history.mapping_sections import (
    CounterTable,
    IncidentTable,
    TopologyTable,
)
from pipelines.sources.history.records import read_records
from pipelines.sources.history.tables import (
    SOURCE,
    Drawing,
    draw_columns,
    draw_counters,
    draw_incidents,
    draw_topology,
)
from pipelines.sources.result import SourceResult
from remediation.given_text import given_text


def read_history(
    paths: Path | Sequence[Path], mapping_path: Path, *, ingested_at: datetime
) -> SourceResult:
    """Reads one or more files of one kind.

    Args:
        paths: Files that the mapping describes.
        mapping_path: The mapping, YAML.
        ingested_at: When the files are read.

    Returns:
        The mapping's tables, what was refused and why, and the count of every file:
        read = parsed + skipped + quarantined. A record that gives a row of any table is
        parsed; refused by one table and taken by another it is parsed too, and the refusal is
        in the quarantine all the same.

    Raises:
        SettingsError: The mapping does not hold the grammar.
        SourceError: A file is absent, unreadable or empty, lacks a column, or has times that
            say no moment.
    """
    mapping = load_mapping(mapping_path)
    files = [paths] if isinstance(paths, Path) else list(paths)
    read = [
        _read_file(path, mapping, mapping_name=mapping_path.name, ingested_at=ingested_at)
        for path in files
    ]
    tables = {
        # Counters are columns beyond the contract's.
        key: pl.concat(
            [TABLE_BY_KEY[key].empty(), *(part.tables[key] for part in read)], how="diagonal"
        )
        for key in mapping.tables.by_key
    }
    inventory = mapping.tables.inventory
    if inventory is not None and inventory.join_stays:
        known = pl.col("valid_from").is_not_null()
        stays = tables["core/inventory"]
        tables["core/inventory"] = pl.concat(
            [stays.filter(~known), joined_stays(stays.filter(known))]
        )
    return SourceResult(
        tables=tables,
        quarantine=pl.concat([QUARANTINE.empty(), *(part.quarantine for part in read)]),
        reads=pl.concat([READS.empty(), *(part.reads for part in read)]),
    )


def _read_file(
    path: Path, mapping: HistoryMapping, *, mapping_name: str, ingested_at: datetime
) -> SourceResult:
    sections = mapping.tables.by_key
    wanted: dict[str, str] = {rule.column: "exclude" for rule in mapping.exclude}
    for key, section in sections.items():
        wanted |= {name: f"{key}, {use}" for name, use in section.file_columns.items()}
    records = read_records(
        path, mapping.file, wanted=wanted, mapping=mapping_name, tables=", ".join(sections)
    )
    refusals = records.refusals
    frame = records.frame
    for rule in mapping.exclude:
        frame = frame.filter(~_is_excluded(rule, path))
    drawing = Drawing(frame, mapping.file, str(path), ingested_at, refusals)
    is_parsed = np.zeros(refusals.n_records, dtype=bool)
    tables = {}
    for key, section in sections.items():
        drawn = _draw(key, section, drawing)
        is_parsed[drawn["record"].to_numpy()] = True
        tables[key] = drawn.drop("record")
    n_parsed = int(is_parsed.sum())
    n_quarantined = int((refusals.is_refused & ~is_parsed).sum())
    n_read = refusals.n_records + records.n_skipped
    counts = (SOURCE, str(path), n_read, n_parsed, n_read - n_parsed - n_quarantined, n_quarantined)
    quarantine = [
        (table, SOURCE, str(path), rule, count, refusals.examples[table, rule])
        for (table, rule), count in refusals.counts.items()
    ]
    return SourceResult(
        tables=tables,
        quarantine=pl.DataFrame(quarantine, schema=QUARANTINE.schema, orient="row"),
        reads=pl.DataFrame([counts], schema=READS.schema, orient="row"),
    )


def _draw(key: str, section: TableSection, drawing: Drawing) -> pl.DataFrame:
    if isinstance(section, TopologyTable):
        return draw_topology(section, drawing)
    if isinstance(section, IncidentTable):
        return draw_incidents(section, drawing)
    if isinstance(section, CounterTable):
        return draw_counters(section, drawing)
    return draw_columns(key, section, drawing)


def _is_excluded(rule: Exclude, path: Path) -> pl.Expr:
    """True where a record is to be left out."""
    value = pl.col(rule.column).cast(pl.String)
    if rule.values_from is not None:
        is_out = value.is_in(_listed(rule, path.parent / rule.values_from, asked_by=path))
    elif rule.values is not None:
        is_out = value.is_in(list(rule.values))
    else:
        is_out = value.str.contains(str(rule.pattern))
    return is_out.fill_null(value=False)


def _listed(rule: Exclude, listing: Path, *, asked_by: Path) -> list[str]:
    try:
        text = given_text(listing)
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{listing}, the list of {rule.column} to leave out, cannot be read: {error}. "
            f"Put it beside {asked_by.name}, or take the rule out of the mapping."
        ) from error
    if rule.pattern is None:
        return [line.strip() for line in text.splitlines() if line.strip()]
    return [found.group(0) for found in re.finditer(rule.pattern, text)]
