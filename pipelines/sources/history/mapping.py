r"""The grammar of a history mapping: how one CSV or Parquet file becomes tables of the project.

No data is read here (see `pipelines.sources.history.files`); only the YAML text is understood.

A mapping names the file's format, which rows to leave out, and the tables drawn from it::

    file:
      format: csv                 # or parquet
      delimiter: ","
      quote: '"'                  # null where the writer never quotes (Slurm's --parsable2)
      time_zone: Europe/Berlin    # needed where times carry no offset
      time_format: null           # null: ISO 8601; a strptime format; epoch_s, epoch_ms, epoch_us
      null_values: ["", "NA"]     # after blanks around a field are cut
    exclude:                      # rows that any of these matches are skipped, and counted
      - {column: location, values_from: service_nodes.txt, pattern: 'c\d+-\d+c\d+s\d+n\d+'}
      - {column: state, values: [PLANNED]}
      - {column: location, pattern: "^test-"}
    tables:
      core/inventory:
        columns: {gpu_uuid: serial, node: location, valid_from: insert, valid_to: remove}
        constants: {slot: "0"}
        extract: {batch: {column: serial, pattern: '^(\d{6})'}}
        only_if: [insert]         # rows where these are blank give no row of this table
      core/topology:
        node: location
        levels:
          pattern: '^c(?P<column>\d+)-(?P<row>\d+)'     # optional, on the node's name
          places: {cabinet: "{column}-{row}", pool: "{Pool}"}  # {group} or {column of the file}
      core/incidents:
        entity: {kind: gpu, column: serial}
        node: location
        start: remove
        end: remove               # optional; absent: open for ever
        event: event
        fault_types: {DBE: hbm_uncorrectable, OTB: off_bus}
        ignore: [""]              # events that are none; "" is a blank field
      raw/node_states:
        columns: {node: NodeName, state: State, valid_from: TimeStart, valid_to: TimeEnd}
        values: {state: {DOWN*: DOWN}}          # other values stay as they are
        open_if: {column: TimeEnd, values: [Unknown]}    # such an end is null: still so
      raw/gpu_telemetry:
        columns: {gpu_uuid: UUID, ts: timestamp, energy_j: DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION}
        scale: {energy_j: 0.001}  # from the file's unit to the table's

In `columns`, `constants`, `extract`, `values` and `scale` the key is a column of the table
(`features.tables`); what it points to is a column of the file.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from features.errors import SettingsError
from features.tables import TABLE_BY_KEY
from features.vocabulary import FAULT_TYPES
from remediation.strict_yaml import parse_yaml

_FILLED_BY_READER: Final = frozenset({"source", "ingested_at"})
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


class _Section(BaseModel):
    """A part of a mapping: unknown keys are errors, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FileFormat(_Section):
    """How the file is written."""

    format: Literal["csv", "parquet"]
    delimiter: str = Field(",", min_length=1, max_length=1)
    quote: str | None = Field('"', min_length=1, max_length=1)
    time_zone: str | None = None
    time_format: str | None = None
    null_values: tuple[str, ...] = ("",)

    @field_validator("time_zone")
    @classmethod
    def _is_known_zone(cls, zone: str | None) -> str | None:
        try:
            return None if zone is None else ZoneInfo(zone).key
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # "Europe" is a folder
            raise ValueError(f"{zone!r} is no time zone; write UTC or Europe/Berlin") from error


class Exclude(_Section):
    """Rows to leave out: those whose column holds a listed value or matches a pattern.

    With `values_from` the values are read from a text file beside the data file: every match
    of `pattern` in it, or every line where no pattern is given.
    """

    column: str
    values: tuple[str, ...] | None = None
    values_from: str | None = None
    pattern: Pattern | None = None

    @model_validator(mode="after")
    def _has_one_rule(self) -> "Exclude":
        if self.values is not None and (self.values_from or self.pattern):
            raise ValueError("give either values, or values_from (with pattern), or pattern")
        if self.values is None and self.values_from is None and self.pattern is None:
            raise ValueError("give values, values_from or pattern")
        return self


class Extract(_Section):
    """A part of a column: the pattern's first group. A value without a match gives null."""

    column: str
    pattern: Pattern

    @field_validator("pattern")
    @classmethod
    def _has_group(cls, pattern: str) -> str:
        if re.compile(pattern).groups < 1:
            raise ValueError(f"{pattern!r} has no group; put the wanted part in brackets")
        return pattern


class OpenIf(_Section):
    """Words that stand for "still so" in the column of an interval's end."""

    column: str
    values: tuple[str, ...]


class ColumnTable(_Section):
    """A table drawn column by column.

    Attributes:
        columns: Table column -> file column.
        constants: Table column -> the same value in every row.
        extract: Table column -> part of a file column.
        values: Table column -> file value -> table value; values not listed stay.
        scale: Table column -> factor from the file's unit to the table's.
        only_if: File columns that must be filled for the row to belong to this table.
        open_if: Words for an interval's open end.
    """

    columns: dict[str, str]
    constants: dict[str, str | int | float] = Field(default_factory=dict)
    extract: dict[str, Extract] = Field(default_factory=dict)
    values: dict[str, dict[str, str]] = Field(default_factory=dict)
    scale: dict[str, float] = Field(default_factory=dict)
    only_if: tuple[str, ...] = ()
    open_if: OpenIf | None = None

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


class Levels(_Section):
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


class TopologyTable(_Section):
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


class Entity(_Section):
    """What failed: its kind and the column that names it."""

    kind: Literal["gpu", "node"]
    column: str


class IncidentTable(_Section):
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


class Tables(_Section):
    """The tables drawn from the file; every section is optional, one at least is given."""

    inventory: ColumnTable | None = Field(None, alias="core/inventory")
    topology: TopologyTable | None = Field(None, alias="core/topology")
    incidents: IncidentTable | None = Field(None, alias="core/incidents")
    maintenance: ColumnTable | None = Field(None, alias="core/maintenance")
    node_states: ColumnTable | None = Field(None, alias="raw/node_states")
    gpu_telemetry: ColumnTable | None = Field(None, alias="raw/gpu_telemetry")

    @model_validator(mode="after")
    def _are_complete(self) -> "Tables":
        if not self.by_key:
            raise ValueError("no table is given")
        for key, section in self.by_key.items():
            if isinstance(section, ColumnTable):
                _check_columns(key, section)
        return self

    @property
    def by_key(self) -> Mapping[str, ColumnTable | TopologyTable | IncidentTable]:
        """The given sections by the table's asset key."""
        return {
            str(field.alias): getattr(self, name)
            for name, field in type(self).model_fields.items()
            if getattr(self, name) is not None
        }


class HistoryMapping(_Section):
    """A whole mapping: one file, what is left out of it, and the tables it gives."""

    file: FileFormat
    exclude: tuple[Exclude, ...] = ()
    tables: Tables


def _check_columns(asset_key: str, section: ColumnTable) -> None:
    """Raises ValueError where a section names columns the table lacks or misses needed ones."""
    contract = TABLE_BY_KEY[asset_key]
    known = [name for name in contract.schema if name not in _FILLED_BY_READER]
    unknown = sorted(section.given - set(known))
    if unknown:
        raise ValueError(
            f"{asset_key} has no column {', '.join(unknown)}; it has {', '.join(known)}"
        )
    needed = {c.name for c in contract.columns if not c.nullable} - _FILLED_BY_READER
    missing = sorted(needed - section.given)
    if missing:
        raise ValueError(f"{asset_key} needs {', '.join(missing)}: add to columns or constants")


def parse_mapping(text: str, *, origin: str) -> HistoryMapping:
    """Understands a mapping's YAML text.

    Args:
        text: The YAML document.
        origin: File name for messages.

    Returns:
        The mapping.

    Raises:
        SettingsError: It is no YAML, or says something the grammar has no place for.
    """
    try:
        document: Any = parse_yaml(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"mapping {origin} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise SettingsError(
            f"mapping {origin} must have the sections file and tables, got "
            f"{type(document).__name__}. See pipelines/sources/history/mapping.py for the grammar."
        )
    try:
        return HistoryMapping.model_validate(document)
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(str, part['loc'])) or 'document'}: {part['msg']}"
            for part in error.errors()
        )
        raise SettingsError(
            f"mapping {origin} has {error.error_count()} mistake(s): {found}. "
            f"Correct them there; the grammar is in pipelines/sources/history/mapping.py."
        ) from error


def load_mapping(path: Path) -> HistoryMapping:
    """Reads a mapping file.

    Args:
        path: A YAML file.

    Returns:
        The mapping.

    Raises:
        SettingsError: The file is absent, is no YAML, or does not hold the grammar.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"mapping {path} cannot be read: {error}") from error
    return parse_mapping(text, origin=str(path))
