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
        join_stays: false         # true: rows of one GPU in one place that touch are one stay
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
      core/counters:              # slow counters and the time in which each row of them held
        {gpu_uuid: serial, valid_from: start, valid_to: stop, counters: {smart_5: smart_5_raw}}
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

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from features.errors import SettingsError
from features.tables import TABLE_BY_KEY
from pipelines.sources.history.mapping_sections import (
    ColumnTable,
    CounterTable,
    IncidentTable,
    Pattern,
    Section,
    TopologyTable,
)
from remediation.given_text import given_text
from remediation.strict_yaml import parse_yaml

_FILLED_BY_READER: Final = frozenset({"source", "ingested_at"})


class FileFormat(Section):
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


class Exclude(Section):
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


TableSection = ColumnTable | TopologyTable | IncidentTable | CounterTable


class Tables(Section):
    """The tables drawn from the file; every section is optional, one at least is given."""

    inventory: ColumnTable | None = Field(None, alias="core/inventory")
    topology: TopologyTable | None = Field(None, alias="core/topology")
    incidents: IncidentTable | None = Field(None, alias="core/incidents")
    counters: CounterTable | None = Field(None, alias="core/counters")
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
    def by_key(self) -> Mapping[str, TableSection]:
        """The given sections by the table's asset key."""
        return {
            str(field.alias): getattr(self, name)
            for name, field in type(self).model_fields.items()
            if getattr(self, name) is not None
        }


class HistoryMapping(Section):
    """A whole mapping: one file, what is left out of it, and the tables it gives."""

    file: FileFormat
    exclude: tuple[Exclude, ...] = ()
    tables: Tables


def _check_columns(asset_key: str, section: ColumnTable) -> None:
    """Raises ValueError where a section names columns the table lacks or misses needed ones."""
    contract = TABLE_BY_KEY[asset_key]
    if section.join_stays and not (
        asset_key == "core/inventory" and {"valid_from", "valid_to"} <= section.given
    ):
        raise ValueError(
            f"{asset_key}: join_stays is for core/inventory with valid_from and valid_to"
        )
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
        text = given_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"mapping {path} cannot be read: {error}") from error
    return parse_mapping(text, origin=str(path))
