"""The reference page of tables: every contract with its columns, units, ranges and key.

The contracts themselves are in `features.tables`.
"""

from typing import Final

import polars as pl

from features.contracts import Column, TableContract
from features.tables import TABLES
from pipelines.reference_docs.markdown import markdown_table

_HEAD: Final = """# Tables

Every table has a contract, and this page is made from them (`python -m pipelines.reference_docs`).
A row that breaks one goes to `monitoring/quarantine` with the rule, a count and an example; a frame
with other columns is refused whole. All times are UTC. *Null* says whether a value may be unknown:
unknown is never written as zero. A column that may be absent is null in files from before it
existed.
"""
_CUT: Final = {
    "hour": "one file an hour",
    "day": "one file a day",
    "none": "whole",
}


def tables_page() -> str:
    """The page in Markdown: one section per table, by room."""
    return "\n".join([_HEAD, *(_section(table) for table in TABLES)])


def _section(table: TableContract) -> str:
    cut = _CUT[table.partition]
    if table.time_column is not None and table.partition != "none":
        of = "ends at" if table.is_end_stamped else "holds"
        cut += f"; a row is in the {table.partition} that {of} its `{table.time_column}`"
    key = ", ".join(f"`{name}`" for name in table.key) or "none"
    rows = [_cells(column) for column in table.columns]
    said = [
        f"## {table.asset_key}",
        "",
        f"{table.meaning.rstrip('.')}.",
        "",
        f"Key: {key}. Stored: {cut}.",
        "",
        markdown_table(["column", "type", "unit", "null", "valid", "meaning"], rows),
        "",
    ]
    if table.extra_dtype is not None:
        extra = _type_words(table.extra_dtype)
        said += [f"Beside these, one {extra} column per [feature](../features.md).", ""]
    return "\n".join(said)


def _cells(column: Column) -> list[str]:
    null = "yes" if column.nullable else "no"
    return [
        f"`{column.name}`",
        _type_words(column.dtype),
        column.unit or "",
        f"{null}, may be absent" if column.is_optional else null,
        _valid(column),
        column.meaning,
    ]


def _valid(column: Column) -> str:
    if column.values is not None:
        return ", ".join(f"`{value}`" for value in column.values)
    low, high = column.minimum, column.maximum
    if low is not None and high is not None:
        return f"{_number(low)} to {_number(high)}"
    if low is not None:
        return f"at least {_number(low)}"
    if high is not None:
        return f"at most {_number(high)}"
    return "" if column.must_be_finite else "any, also NaN and infinity"


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _type_words(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.Datetime):
        return "time"
    if isinstance(dtype, pl.List):
        inner = dtype.inner
        return f"list of {_type_words(inner if isinstance(inner, pl.DataType) else inner())}"
    return {"String": "text", "Boolean": "yes or no"}.get(str(dtype), str(dtype).lower())
