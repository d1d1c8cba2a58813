"""Draws the tables of a mapping from a file's records; what does not hold is refused by a rule.

No file is read here (see `pipelines.sources.history.records`).
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Final

import polars as pl

from features.contracts import Column, TableContract
from features.tables import CORE_COUNTERS, CORE_INCIDENTS, CORE_TOPOLOGY, TABLE_BY_KEY
from pipelines.sources.history.mapping import FileFormat
from pipelines.sources.history.mapping_sections import (
    ColumnTable,
    CounterTable,
    IncidentTable,
    TopologyTable,
)
from pipelines.sources.history.records import Refusals
from pipelines.sources.history.times import to_utc
from pipelines.sources.pci_address import canonical_pci

SOURCE: Final = "history"
_RECORD: Final = Column("record", pl.Int64(), "Position in the file")
_MOST_EVENT_RULES: Final = 20


@dataclass(frozen=True)
class Drawing:
    """What a table is drawn from.

    Attributes:
        records: `record` and the file's columns.
        file: How the file is written.
        origin: File name, for messages.
        ingested_at: When the file was read.
        refusals: Where refused records are counted.
    """

    records: pl.DataFrame
    file: FileFormat
    origin: str
    ingested_at: datetime
    refusals: Refusals


def draw_columns(asset_key: str, section: ColumnTable, drawing: Drawing) -> pl.DataFrame:
    """A table drawn column by column.

    Args:
        asset_key: The table.
        section: Its mapping.
        drawing: The records.

    Returns:
        Rows of the table's contract with `record`.
    """
    contract = TABLE_BY_KEY[asset_key]
    records = drawing.records
    if section.only_if:
        records = records.filter(pl.all_horizontal(pl.col(*section.only_if).is_not_null()))
    if section.open_if is not None:
        name, words = section.open_if.column, list(section.open_if.values)
        is_open = pl.col(name).cast(pl.String).is_in(words).fill_null(value=False)
        records = records.with_columns(pl.when(~is_open).then(name).alias(name))
    cells = _Cells(asset_key, replace(drawing, records=records))
    for column in contract.columns:
        cells.fill(column, section)
    return cells.table(contract)


def draw_topology(section: TopologyTable, drawing: Drawing) -> pl.DataFrame:
    """`core/topology` from nodes' names and columns.

    Args:
        section: Its mapping.
        drawing: The records.

    Returns:
        Rows of the contract with `record`; a node and place given by many records is one row,
        of the first. A level whose parts are not all known gives no row.
    """
    key = CORE_TOPOLOGY.asset_key
    cells = _Cells(key, drawing)
    cells.add("node", section.node, CORE_TOPOLOGY.columns[0])
    for column in CORE_TOPOLOGY.columns:
        source = {"valid_from": section.valid_from, "valid_to": section.valid_to}.get(column.name)
        if column.name in ("valid_from", "valid_to"):
            cells.add(column.name, source, column)
    parts = cells.frame.with_columns(
        drawing.records[name].cast(pl.String).alias(f"part_{name}")
        for name in section.levels.file_columns
    )
    if section.levels.pattern is not None:
        groups = pl.col("node").str.extract_groups(section.levels.pattern)
        parts = parts.with_columns(
            groups.struct.field(name).alias(f"part_{name}") for name in section.levels.groups
        )
        is_odd = ~pl.col("node").str.contains(section.levels.pattern)
        odd = parts.filter(is_odd & ~pl.col("is_bad"))
        rule = f"node does not match {section.levels.pattern}"
        drawing.refusals.add(key, rule, rows=odd.select("record", "node"))
        parts = parts.filter(~is_odd.fill_null(value=False))
    rows = pl.concat(
        parts.with_columns(pl.lit(level).alias("level"), _place(text).alias("place"))
        for level, text in section.levels.places.items()
    ).filter(pl.col("place").is_not_null(), ~pl.col("is_bad"))
    rows = rows.unique([*CORE_TOPOLOGY.schema], keep="first", maintain_order=True)
    return _enforced(CORE_TOPOLOGY, rows, drawing.refusals)


def draw_counters(section: CounterTable, drawing: Drawing) -> pl.DataFrame:
    """`core/counters`: the counters of each record, and when they held.

    Args:
        section: Its mapping.
        drawing: The records.

    Returns:
        Rows of the contract with a column per counter, and `record`.
    """
    counted = [Column(name, pl.Float64(), "Counter", nullable=True) for name in section.counters]
    contract = replace(CORE_COUNTERS, columns=(*CORE_COUNTERS.columns, *counted))
    source = {
        "gpu_uuid": section.gpu_uuid,
        "valid_from": section.valid_from,
        "valid_to": section.valid_to,
        **section.counters,
    }
    cells = _Cells(CORE_COUNTERS.asset_key, drawing)
    for column in contract.columns:
        cells.add(column.name, source[column.name], column)
    return cells.table(contract)


def draw_incidents(section: IncidentTable, drawing: Drawing) -> pl.DataFrame:
    """`core/incidents`: one row per record whose event is a failure.

    Args:
        section: Its mapping.
        drawing: The records.

    Returns:
        Rows of the contract with `record`.
    """
    key = CORE_INCIDENTS.asset_key
    event = pl.col(section.event).cast(pl.String)
    is_ignored = event.fill_null("").is_in(list(section.ignore))
    records = drawing.records.filter(~is_ignored)
    is_known = event.is_in(list(section.fault_types)).fill_null(value=False)
    _refuse_events(records.filter(~is_known), section, drawing.refusals)
    cells = _Cells(key, replace(drawing, records=records.filter(is_known)))
    by_name = {column.name: column for column in CORE_INCIDENTS.columns}
    cells.add("entity_id", section.entity.column, by_name["entity_id"])
    default_node = section.entity.column if section.entity.kind == "node" else None
    cells.add("node", section.node or default_node, by_name["node"])
    cells.add("start", section.start, by_name["start"])
    cells.add("end", section.end, by_name["end"])
    cells.add("event", section.event, by_name["fault_type"])
    kind, version = section.entity.kind, section.catalogue_version
    cells.frame = cells.frame.with_columns(
        pl.lit(kind).alias("entity_kind"),
        pl.col("event").replace_strict(section.fault_types, default=None).alias("fault_type"),
        pl.format("{} = {}", pl.lit(section.event), "event").alias("evidence"),
        pl.lit(SOURCE).alias("detected_by"),
        pl.lit(version).alias("catalogue_version"),
        pl.lit(None, pl.String).alias("needs"),
        _incident_id(kind),
    )
    return cells.table(CORE_INCIDENTS)


def _incident_id(kind: str) -> pl.Expr:
    parts = pl.concat_str(
        pl.lit(kind), "entity_id", pl.col("start").dt.epoch("us"), "event", separator="|"
    )
    return parts.map_elements(
        lambda text: sha256(text.encode()).hexdigest()[:16], return_dtype=pl.String
    ).alias("incident_id")


def _refuse_events(unknown: pl.DataFrame, section: IncidentTable, refusals: Refusals) -> None:
    """Counts records by the name of their event, the most frequent first; a tail is one rule."""
    key = CORE_INCIDENTS.asset_key
    event = unknown.with_columns(pl.col(section.event).cast(pl.String).fill_null("").alias("name"))
    names = event["name"].value_counts(sort=True)["name"].to_list()
    for name in names[:_MOST_EVENT_RULES]:
        rows = event.filter(pl.col("name") == name).drop("name")
        refusals.add(key, f"unknown event {name!r}", rows=rows)
    rest = event.filter(pl.col("name").is_in(names[_MOST_EVENT_RULES:])).drop("name")
    refusals.add(key, "unknown event, of a rarer name", rows=rest)


def _place(text: str) -> pl.Expr:
    """The text with its `{parts}` filled; null where any part is null."""
    names = re.findall(r"\{([^{}]+)\}", text)
    return pl.format(re.sub(r"\{[^{}]+\}", "{}", text), *(f"part_{name}" for name in names))


class _Cells:
    """A table under construction: each cell converted, each failure with its rule."""

    def __init__(self, asset_key: str, drawing: Drawing) -> None:
        self._key = asset_key
        self._drawing = drawing
        records = drawing.records
        self.frame = records.select("record", pl.lit(value=False).alias("is_bad"))

    def fill(self, column: Column, section: ColumnTable) -> None:
        """Fills a column of the contract from wherever the mapping takes it."""
        name = column.name
        if name in section.extract:
            part = section.extract[name]
            text = self._drawing.records[part.column].cast(pl.String)
            self._put(column, text.str.extract(part.pattern), where=part.column)
        elif name in section.columns:
            source = section.columns[name]
            values = self._drawing.records[source]
            if name in section.values:
                values = values.cast(pl.String).replace(section.values[name])
            self._put(column, values, where=source, scale=section.scale.get(name))
        elif name in section.constants:
            constant = pl.lit(section.constants[name]).cast(column.dtype)
            self.frame = self.frame.with_columns(constant.alias(name))
        else:
            fixed = {"source": SOURCE, "ingested_at": self._drawing.ingested_at}.get(name)
            self.frame = self.frame.with_columns(pl.lit(fixed, column.dtype).alias(name))

    def add(self, name: str, source: str | None, column: Column) -> None:
        """Adds a column from one of the file's, or null where the mapping names none."""
        if source is None:
            self.frame = self.frame.with_columns(pl.lit(None, column.dtype).alias(name))
        else:
            self._put(replace(column, name=name), self._drawing.records[source], where=source)

    def _put(
        self, column: Column, values: pl.Series, *, where: str, scale: float | None = None
    ) -> None:
        if isinstance(column.dtype, pl.Datetime):
            place = f"{self._drawing.origin}, column {where!r}"
            times = to_utc(values, self._drawing.file, where=place)
            converted, rules = times.utc, times.refused
        elif column.name == "pci_bus_id":
            converted, rules = _addresses(values)
        else:
            converted, rules = _converted(values, column.dtype, scale=scale)
        if rules.null_count() < rules.len():
            self._refuse(column.name, values, rules)
        self.frame = self.frame.with_columns(converted.alias(column.name))

    def _refuse(self, name: str, values: pl.Series, rules: pl.Series) -> None:
        # A record counts once, under the first column that refuses it.
        is_new = rules.is_not_null() & ~self.frame["is_bad"]
        shown = pl.DataFrame({"record": self.frame["record"], name: values, "rule": rules})
        for rule, rows in shown.filter(is_new).group_by("rule", maintain_order=True):
            self._drawing.refusals.add(self._key, f"{name} {rule[0]}", rows=rows.drop("rule"))
        self.frame = self.frame.with_columns(pl.col("is_bad") | rules.is_not_null())

    def table(self, contract: TableContract) -> pl.DataFrame:
        """The rows that hold the contract."""
        rows = self.frame.filter(~pl.col("is_bad"))
        return _enforced(contract, rows, self._drawing.refusals)


def _converted(
    values: pl.Series, dtype: pl.DataType, *, scale: float | None
) -> tuple[pl.Series, pl.Series]:
    """Values in the wanted type, and per row the rule it broke."""
    if dtype == pl.String:
        return values.cast(pl.String), pl.repeat(None, values.len(), dtype=pl.String, eager=True)
    if (
        scale is None
        and values.dtype.is_numeric()
        and (dtype.is_float() or values.dtype.is_integer())
    ):
        converted = values.cast(dtype, strict=False)
        rule = "does not fit its type"
    else:
        numbers = values.cast(pl.Float64, strict=False).fill_nan(None)
        is_nan = values.cast(pl.String).str.to_lowercase() == "nan"
        values = values.set(is_nan.fill_null(value=False), None)
        numbers = numbers * scale if scale is not None else numbers
        rule = "is no number"
        if dtype.is_integer():
            whole = numbers.round()
            # A factor may leave fractions of the table's unit; a plain fraction is a mistake.
            numbers = whole if scale is not None else numbers.set(numbers != whole, None)
            rule = "is no whole number"
        converted = numbers.cast(dtype, strict=False)
    is_bad = values.is_not_null() & converted.is_null()
    return converted, pl.select(pl.when(is_bad).then(pl.lit(rule))).to_series()


def _addresses(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """PCI addresses in the one spelling by which kernel events find their GPU."""
    text = values.cast(pl.String)
    spelling = {address: canonical_pci(address) for address in text.drop_nulls().unique()}
    converted = text.replace_strict(spelling, default=None, return_dtype=pl.String)
    is_bad = text.is_not_null() & converted.is_null()
    return converted, pl.select(pl.when(is_bad).then(pl.lit("is no PCI address"))).to_series()


def _enforced(contract: TableContract, rows: pl.DataFrame, refusals: Refusals) -> pl.DataFrame:
    """Rows that hold the contract, with `record`; the others are refused under its rules."""
    rows = rows.select(*contract.schema, "record")
    start, end = ("valid_from", "valid_to") if "valid_to" in rows.columns else ("start", "end")
    if end in rows.columns:
        is_reversed = (pl.col(end) < pl.col(start)).fill_null(value=False)
        refusals.add(contract.asset_key, f"{end} is before {start}", rows=rows.filter(is_reversed))
        rows = rows.filter(~is_reversed)
    held = replace(contract, columns=(*contract.columns, _RECORD)).enforce(rows)
    if not held.rejects.is_empty():
        lost = rows.filter(~pl.col("record").is_in(held.frame["record"].implode()))
        refusals.is_refused[lost["record"].to_numpy()] = True
        for rule, count, example in held.rejects.rows():
            key = (contract.asset_key, rule)
            refusals.counts[key] = refusals.counts.get(key, 0) + count
            refusals.examples.setdefault(key, example)
    return held.frame
