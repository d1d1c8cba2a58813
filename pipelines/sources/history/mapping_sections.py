"""The sections of a history mapping, one class per way in which a table is drawn from a file.

The mapping as a whole, and its grammar by example, is in `pipelines.sources.history.mapping`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import polars as pl
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from features.tables import CORE_COUNTERS
from features.vocabulary import FAULT_TYPES

_PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")


def _as_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
        # Polars' expressions know no look-around: what Python takes may still not run.
        pl.Series([""]).str.contains(pattern)
    except (re.error, pl.exceptions.ComputeError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_as_pattern)]


class Section(BaseModel):
    """A part of a mapping: unknown keys are errors, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Extract(Section):
    """A part of a column: the pattern's first group. A value without a match gives null."""

    column: str
    pattern: Pattern

    @field_validator("pattern")
    @classmethod
    def _has_group(cls, pattern: str) -> str:
        if re.compile(pattern).groups < 1:
            raise ValueError(f"{pattern!r} has no group; put the wanted part in brackets")
        return pattern


class OpenIf(Section):
    """Words that stand for "still so" in the column of an interval's end."""

    column: str
    values: tuple[str, ...]


class ColumnTable(Section):
    """A table drawn column by column.

    Attributes:
        columns: Table column -> file column.
        constants: Table column -> the same value in every row.
        extract: Table column -> part of a file column.
        values: Table column -> file value -> table value; values not listed stay.
        scale: Table column -> factor from the file's unit to the table's.
        only_if: File columns that must be filled for the row to belong to this table.
        open_if: Words for an interval's open end.
        join_stays: In core/inventory: rows of one GPU in one place that touch are one stay.
    """

    columns: dict[str, str]
    constants: dict[str, str | int | float] = Field(default_factory=dict)
    extract: dict[str, Extract] = Field(default_factory=dict)
    values: dict[str, dict[str, str]] = Field(default_factory=dict)
    scale: dict[str, float] = Field(default_factory=dict)
    only_if: tuple[str, ...] = ()
    open_if: OpenIf | None = None
    join_stays: bool = False

    @model_validator(mode="after")
    def _gives_each_column_once(self) -> "ColumnTable":
        given = [*self.columns, *self.constants, *self.extract]
        twice = sorted({name for name in given if given.count(name) > 1})
        if twice:
            raise ValueError(f"given more than once: {', '.join(twice)}")
        for part, names in (("values", self.values), ("scale", self.scale)):
            unknown = sorted(set(names) - {*self.columns, *self.extract})
            if unknown:
                raise ValueError(f"{part} names {', '.join(unknown)}, which no column gives")
        return self

    @property
    def given(self) -> frozenset[str]:
        """The table columns this section fills."""
        return frozenset((*self.columns, *self.constants, *self.extract))

    @property
    def file_columns(self) -> Mapping[str, str]:
        """Each file column that is read, with what it is wanted for."""
        wanted = {column: target for target, column in self.columns.items()}
        wanted |= {part.column: target for target, part in self.extract.items()}
        wanted |= {column: "only_if" for column in self.only_if if column not in wanted}
        if self.open_if is not None:
            wanted.setdefault(self.open_if.column, "open_if")
        return wanted


class Levels(Section):
    """The places a node stands in, by level.

    Attributes:
        pattern: Optional expression on the node's name; its named groups can be used in places.
        places: Level -> text with `{group}` or `{column of the file}` in it.
    """

    pattern: Pattern | None = None
    places: dict[str, str] = Field(min_length=1)

    @property
    def groups(self) -> tuple[str, ...]:
        """The named groups of the pattern."""
        return () if self.pattern is None else tuple(re.compile(self.pattern).groupindex)

    @property
    def file_columns(self) -> Mapping[str, str]:
        """File columns that places name, with the level that wants them."""
        return {
            name: f"level {level}"
            for level, text in self.places.items()
            for name in _PLACEHOLDER.findall(text)
            if name not in self.groups
        }


class TopologyTable(Section):
    """`core/topology`: the node's column, its places, and when they hold (default: always)."""

    node: str
    levels: Levels
    valid_from: str | None = None
    valid_to: str | None = None

    @property
    def file_columns(self) -> Mapping[str, str]:
        """Each file column that is read, with what it is wanted for."""
        wanted = {self.node: "node", **self.levels.file_columns}
        wanted |= {self.valid_from: "valid_from"} if self.valid_from else {}
        return wanted | ({self.valid_to: "valid_to"} if self.valid_to else {})


class Entity(Section):
    """What failed: its kind and the column that names it."""

    kind: Literal["gpu", "node"]
    column: str


class IncidentTable(Section):
    """`core/incidents`: one incident per row whose event is a failure.

    Attributes:
        entity: What failed.
        node: Column with the node it was in; absent for node incidents named by the entity.
        start: Column with the onset.
        end: Column with the repair; absent: open. The onset's own column: over at once.
        event: Column with the event's name.
        fault_types: Event -> fault type. An event neither here nor in `ignore` is quarantined.
        ignore: Events that are no failure; "" stands for a blank field.
        catalogue_version: Version of these assignments, kept with every incident.
    """

    entity: Entity
    node: str | None = None
    start: str
    end: str | None = None
    event: str
    fault_types: dict[str, str] = Field(min_length=1)
    ignore: tuple[str, ...] = ("",)
    catalogue_version: str = "mapping-1"

    @field_validator("fault_types")
    @classmethod
    def _are_known(cls, fault_types: dict[str, str]) -> dict[str, str]:
        unknown = sorted(set(fault_types.values()) - set(FAULT_TYPES))
        if unknown:
            raise ValueError(
                f"{', '.join(unknown)} is no fault type; choose from {', '.join(FAULT_TYPES)}"
            )
        return fault_types

    @property
    def file_columns(self) -> Mapping[str, str]:
        """Each file column that is read, with what it is wanted for."""
        wanted = {self.entity.column: "entity", self.start: "start", self.event: "event"}
        wanted |= {self.node: "node"} if self.node else {}
        return wanted | ({self.end: "end"} if self.end else {})


class CounterTable(Section):
    """`core/counters`: which counters held from when to when.

    Attributes:
        gpu_uuid: Column that names the GPU, or the disk.
        valid_from: Column with the start.
        valid_to: Column with the end; absent: open.
        counters: Counter -> file column. A counter's name becomes part of feature names.
    """

    gpu_uuid: str
    valid_from: str
    valid_to: str | None = None
    counters: dict[str, str] = Field(min_length=1)

    @field_validator("counters")
    @classmethod
    def _are_free_names(cls, counters: dict[str, str]) -> dict[str, str]:
        taken = sorted(set(counters) & set(CORE_COUNTERS.schema))
        odd = [name for name in counters if not re.fullmatch(r"[a-z][a-z0-9_]*", name)]
        if taken or odd:
            raise ValueError(
                f"{', '.join(taken + odd)} cannot name a counter: write a word of small letters, "
                f"digits and _ other than {', '.join(CORE_COUNTERS.schema)}"
            )
        return counters

    @property
    def file_columns(self) -> Mapping[str, str]:
        """Each file column that is read, with what it is wanted for."""
        wanted = {column: f"counter {name}" for name, column in self.counters.items()}
        wanted |= {self.gpu_uuid: "gpu_uuid", self.valid_from: "valid_from"}
        return wanted | ({self.valid_to: "valid_to"} if self.valid_to else {})
