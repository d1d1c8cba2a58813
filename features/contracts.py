"""Table contracts: what a table's columns are, and how a frame is held against them.

No table is defined here (see `features.tables`), and nothing is read or written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import polars as pl

from features.errors import StructureError

UTC_TIME = pl.Datetime("us", "UTC")
TEXT: Final = pl.String()
INT: Final = pl.Int32()
LONG: Final = pl.Int64()
FLOAT: Final = pl.Float64()
BOOL: Final = pl.Boolean()
TEXTS: Final = pl.List(pl.String)

Partition = Literal["hour", "day", "none"]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: Column name; a quantity carries its unit (`power_w`).
        dtype: Polars type.
        meaning: One line, for the docs.
        unit: Unit of measure, where there is one.
        nullable: Whether null ("unknown") is allowed.
        minimum: Smallest valid value, inclusive.
        maximum: Largest valid value, inclusive.
        values: The only valid values, where they are few.
        must_be_finite: Whether NaN and infinity break the contract; a diverged loss is a finding.
        is_optional: Whether a frame may lack it, as files do that were written before there was
            such a column; it is then null throughout.
    """

    name: str
    dtype: pl.DataType
    meaning: str
    unit: str | None = None
    nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None
    values: tuple[str, ...] | None = None
    must_be_finite: bool = True
    is_optional: bool = False


@dataclass(frozen=True)
class Enforced:
    """A frame held against its contract: what passed, and why the rest did not.

    Attributes:
        frame: The rows that hold the contract.
        rejects: One row per rule broken: `rule` (str), `count` (i64), `example` (str).
    """

    frame: pl.DataFrame
    rejects: pl.DataFrame


REJECT_SCHEMA = pl.Schema({"rule": pl.String, "count": pl.Int64, "example": pl.String})


@dataclass(frozen=True)
class TableContract:
    """What a table holds: columns, key and partition.

    Attributes:
        asset_key: The table's name, `room/table`.
        meaning: One line, for the docs.
        columns: Every column, in order.
        key: Columns that name a row; two rows never share a key.
        partition: How the table is cut by time when stored.
        time_column: The column that decides a row's partition.
        extra_dtype: Type of the columns a table may have beyond `columns` (feature matrices).
        is_end_stamped: Whether a row belongs to the partition that *ends* at its time (`as_of`:
            a row of 07:00 is made of the hour before) rather than to the one that begins there.
    """

    asset_key: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    partition: Partition = "none"
    time_column: str | None = None
    extra_dtype: pl.DataType | None = None
    is_end_stamped: bool = False

    @cached_property
    def schema(self) -> pl.Schema:
        """The table's schema, without extra columns."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    def empty(self) -> pl.DataFrame:
        """A frame of no rows with the table's columns."""
        return pl.DataFrame(schema=self.schema)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Orders the columns and checks names and types.

        Args:
            frame: The candidate table.

        Returns:
            The same rows with the contract's columns first, in order, then any extra ones; an
            optional column that it lacks is null.

        Raises:
            StructureError: A column is missing, unexpected, or of another type.
        """
        problems, found = [], frame.schema
        for column in self.columns:
            dtype = found.get(column.name)
            if dtype is None and column.is_optional:
                frame = frame.with_columns(pl.lit(None, dtype=column.dtype).alias(column.name))
            elif dtype is None:
                problems.append(f"column {column.name!r} ({column.dtype}) is missing")
            elif dtype != column.dtype:
                problems.append(f"column {column.name!r} must be {column.dtype}, got {dtype}")
        extra = [name for name in found if name not in self.schema]
        for name in extra:
            if self.extra_dtype is None:
                problems.append(f"column {name!r} is not part of the table")
            elif found[name] != self.extra_dtype:
                problems.append(f"column {name!r} must be {self.extra_dtype}, got {found[name]}")
        if problems:
            raise StructureError(
                f"table {self.asset_key}: {'; '.join(problems)}. "
                f"Found columns: {', '.join(frame.columns) or '(none)'}. "
                f"Give the frame the columns of features.tables and write it again."
            )
        return frame.select([*self.schema.names(), *extra])

    def enforce(self, frame: pl.DataFrame) -> Enforced:
        """Splits a frame into rows that hold the contract and counted rejects.

        Args:
            frame: The candidate table.

        Returns:
            Rows that hold every rule, in their given order, and the rules the rest broke.
            A row that breaks several rules counts once, under the first. Of rows that share
            a key, the first is kept.

        Raises:
            StructureError: The frame's columns or types are not the table's.
        """
        frame = self.conform(frame)
        rejects: list[dict[str, object]] = []
        # A table may have many columns that a source does not fill: null breaks but one rule.
        has_values = {s.name for s in frame if s.null_count() < frame.height}
        rules = [rule for rule in self._rules if rule.is_about_null or rule.column in has_values]
        # One pass tells which rules are broken at all: nearly always none is.
        is_broken = frame.select(rule.is_any_bad.alias(str(i)) for i, rule in enumerate(rules)).row(
            0
        )
        for rule, broken in zip(rules, is_broken, strict=True):
            if not broken:
                continue
            is_bad = rule.is_bad.fill_null(value=False)
            bad = frame.filter(is_bad)
            if bad.is_empty():
                continue
            rejects.append(
                {"rule": rule.words, "count": bad.height, "example": str(bad.row(0, named=True))}
            )
            frame = frame.filter(~is_bad)
        if self.key and not _is_ascending(frame, self.key):
            is_repeat = ~pl.struct(self.key).is_first_distinct()
            repeats = frame.filter(is_repeat)
            if not repeats.is_empty():
                example = str(repeats.select(self.key).row(0, named=True))
                words = f"duplicate key ({', '.join(self.key)})"
                rejects.append({"rule": words, "count": repeats.height, "example": example})
                frame = frame.filter(~is_repeat)
        return Enforced(frame, pl.DataFrame(rejects, schema=REJECT_SCHEMA))

    @cached_property
    def _rules(self) -> tuple["_Rule", ...]:
        return tuple(rule for column in self.columns for rule in _rules_of(column))


@dataclass(frozen=True, eq=False)
class _Rule:
    """What a column must hold.

    Attributes:
        column: Its name.
        words: The rule as it is broken.
        is_bad: True in rows that break it; null: not broken.
        is_any_bad: Whether any row does, without telling which: cheaper than `is_bad.any()`.
        is_about_null: Whether null breaks it.
    """

    column: str
    words: str
    is_bad: pl.Expr
    is_any_bad: pl.Expr
    is_about_null: bool = False


def _rules_of(column: Column) -> Iterator[_Rule]:
    name, value, is_float = column.name, pl.col(column.name), column.dtype.is_float()
    if not column.nullable:
        has_null = value.null_count() > 0
        yield _Rule(name, f"{name} is null", value.is_null(), has_null, is_about_null=True)
    if is_float and column.must_be_finite:
        is_bad = ~value.is_finite()
        yield _Rule(name, f"{name} is not finite", is_bad, is_bad.any())
    if column.minimum is not None:
        is_any = value.min() < column.minimum
        yield _Rule(name, f"{name} < {column.minimum:g}", value < column.minimum, is_any)
    if column.maximum is not None:
        # In comparisons NaN is greater than every number; `max` alone would pass it over.
        is_any = (value.nan_max() if is_float else value.max()) > column.maximum
        yield _Rule(name, f"{name} > {column.maximum:g}", value > column.maximum, is_any)
    if column.values is not None:
        is_bad = ~value.is_in(column.values)
        yield _Rule(name, f"{name} not in {'|'.join(column.values)}", is_bad, is_bad.any())


def _is_ascending(frame: pl.DataFrame, key: tuple[str, ...]) -> bool:
    """Whether every row's key is greater than the one before: then no two are the same."""
    is_greater = pl.lit(value=False)
    for name in reversed(key):
        value, before = pl.col(name), pl.col(name).shift()
        is_greater = (value > before) | ((value == before) & is_greater)
    return bool(frame.select(is_greater.slice(1).fill_null(value=False).all()).item())
