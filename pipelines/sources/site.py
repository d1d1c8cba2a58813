"""A site's list of inputs (YAML): which files there are, of which kind, and how each is read.

No format is understood here, and settings of the installation are in `pipelines.settings`.

The list, with paths relative to it::

    site: demo
    time_zone: Europe/Berlin        # of clocks that print no offset; an input may have its own
    inputs:
      - {kind: history, path: inventory.csv, mapping: mappings/inventory.yaml}
      - {kind: dcgm_text, path: "dcgm/*.prom"}          # <node>__2026-01-05T00-05-00Z.prom
      - {kind: nvidia_smi_csv, path: "nvidia_smi/*.csv"}                       # <node>.csv
      - {kind: kernel_log, path: "kernel/*.log", time_zone: UTC}               # <node>.log
      - {kind: sacct, path: "sacct/*.txt"}
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl
import yaml
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from features.errors import SettingsError, SourceError
from features.raw_tables import RAW_GPU_TELEMETRY, RAW_JOB_LOG, RAW_KERNEL_LOG
from pipelines.sources.dcgm_text import NodeFrom, read_dcgm_text
from pipelines.sources.history import read_history
from pipelines.sources.kernel_log import read_kernel_log
from pipelines.sources.mapping import load_mapping
from pipelines.sources.nvidia_smi_csv import read_nvidia_smi_csv
from pipelines.sources.result import SourceResult, merge
from pipelines.sources.sacct import read_sacct
from remediation.strict_yaml import parse_yaml

_UNFINISHED: Final = (".", "_temporary")  # hidden files, and what a crashed writer leaves behind


def _as_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone; write UTC or Europe/Berlin") from error
    return name


TimeZone = Annotated[str, AfterValidator(_as_zone)]


class _Section(BaseModel):
    """A part of the list: unknown keys are errors, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Input(_Section):
    """What all inputs have.

    Attributes:
        path: File or pattern, relative to the list.
        time_zone: Zone of clocks that print no offset; None: the site's.
    """

    path: str = Field(min_length=1)
    time_zone: TimeZone | None = None


class HistoryInput(_Input):
    """Any CSV or Parquet file, described by a mapping (`pipelines.sources.mapping`)."""

    kind: Literal["history"]
    mapping: str = Field(min_length=1)
    time_zone: None = None  # the mapping's business


class DcgmInput(_Input):
    """Saved scrapes of dcgm-exporter."""

    kind: Literal["dcgm_text"]
    node_from: NodeFrom = "label"
    time_zone: None = None  # everything in it is UTC


class NvidiaSmiInput(_Input):
    """Output of `nvidia-smi --query-gpu`."""

    kind: Literal["nvidia_smi_csv"]


class KernelLogInput(_Input):
    """Kernel logs as text.

    Attributes:
        boot_time: When the machine booted, where lines only have seconds since boot.
        read_until: When the log ended, to find the year of lines without one.
    """

    kind: Literal["kernel_log"]
    boot_time: AwareDatetime | None = None
    read_until: AwareDatetime | None = None


class SacctInput(_Input):
    """Output of `sacct --parsable2`.

    Attributes:
        delimiter: What stands between fields; None: as the header tells.
        columns: Column names of output without a header.
    """

    kind: Literal["sacct"]
    delimiter: str | None = Field(None, min_length=1)
    columns: tuple[str, ...] | None = None


InputSpec = Annotated[
    HistoryInput | DcgmInput | NvidiaSmiInput | KernelLogInput | SacctInput,
    Field(discriminator="kind"),
]

_LOCAL_CLOCKS: Final = (NvidiaSmiInput, KernelLogInput, SacctInput)


class InputList(_Section):
    """The whole document.

    Attributes:
        site: Name of the site.
        time_zone: Zone of clocks that print no offset.
        inputs: The inputs, in order.
    """

    site: str
    time_zone: TimeZone | None = None
    inputs: tuple[InputSpec, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _clocks_are_known(self) -> "InputList":
        for at, spec in enumerate(self.inputs):
            if isinstance(spec, _LOCAL_CLOCKS) and not (spec.time_zone or self.time_zone):
                raise ValueError(
                    f"inputs[{at}].time_zone is needed: kind {spec.kind} prints times without an "
                    f"offset. Give the input or the site the zone of the clock, such as UTC"
                )
        return self


@dataclass(frozen=True)
class SiteInputs:
    """A list of inputs and where it lies.

    Attributes:
        spec: What the list says.
        path: The list's file; its folder is where relative paths start.
    """

    spec: InputList
    path: Path

    def files(self, spec: InputSpec) -> tuple[Path, ...]:
        """The files of one input, sorted.

        Args:
            spec: One of the inputs.

        Raises:
            SourceError: There is none.
        """
        pattern = Path(spec.path)
        base = Path(pattern.anchor) if pattern.is_absolute() else self.path.parent
        relative = pattern.relative_to(base) if pattern.is_absolute() else pattern
        try:
            found = sorted(path for path in base.glob(str(relative)) if _is_input(path, base))
        except (ValueError, IndexError, NotImplementedError) as error:
            raise SettingsError(
                f"{self.path}: {spec.path!r} (kind {spec.kind}) is no file name or pattern: "
                f"{error}. Write one such as logs/*.log."
            ) from error
        if not found:
            raise SourceError(
                f"{self.path}: no file matches {spec.path!r} (kind {spec.kind}) in {base}. "
                f"Correct the pattern, or take the input out of the list."
            )
        return tuple(found)

    def tables(self, spec: InputSpec) -> tuple[str, ...]:
        """Asset keys of the tables that an input gives; the first carries its account."""
        if isinstance(spec, HistoryInput):
            return tuple(load_mapping(self.path.parent / spec.mapping).tables.by_key)
        if isinstance(spec, DcgmInput):
            return (RAW_GPU_TELEMETRY.asset_key,)
        if isinstance(spec, NvidiaSmiInput):
            return (RAW_GPU_TELEMETRY.asset_key, RAW_KERNEL_LOG.asset_key)
        if isinstance(spec, KernelLogInput):
            return (RAW_KERNEL_LOG.asset_key,)
        return (RAW_JOB_LOG.asset_key,)


def load_inputs(path: Path) -> SiteInputs:
    """Reads a list of inputs.

    Args:
        path: YAML file, in the form of this module's docstring.

    Returns:
        The inputs; that their files exist is checked when they are read.

    Raises:
        SettingsError: The file cannot be read, is no YAML, or says something else.
    """
    try:
        document: Any = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(
            f"list of inputs {path} cannot be read: {error}. Give a UTF-8 YAML file with site, "
            f"time_zone and inputs."
        ) from error
    if not isinstance(document, dict):
        raise SettingsError(
            f"list of inputs {path}: expected the keys site, time_zone and inputs, got "
            f"{type(document).__name__}. See pipelines/sources/site.py for an example."
        )
    try:
        return SiteInputs(InputList.model_validate(document), path)
    except ValidationError as error:
        mistakes = "; ".join(
            _mistake(part["loc"], part["msg"], part["input"]) for part in error.errors()
        )
        raise SettingsError(
            f"list of inputs {path}: {mistakes}. Correct it; pipelines/sources/site.py has an "
            f"example."
        ) from error


def read_inputs(
    inputs: SiteInputs,
    *,
    ingested_at: datetime,
    tables: Collection[str] | None = None,
) -> SourceResult:
    """Reads the files of a site.

    Args:
        inputs: The list.
        ingested_at: When they are read, UTC.
        tables: Asset keys wanted; inputs that give none of them are not read. None: all.

    Returns:
        The wanted tables. The account (reads, quarantine) is of whole files; that of a file
        which gives several tables comes with the first of them, so that reading the tables one
        by one counts no record twice.

    Raises:
        SettingsError: A mapping does not hold its grammar.
        SourceError: A pattern matches no file, or a file is not of its kind.
    """
    results = []
    for spec in inputs.spec.inputs:
        given = inputs.tables(spec)
        if tables is not None and not set(given) & set(tables):
            continue
        result = _read(inputs, spec, inputs.files(spec), ingested_at=ingested_at)
        results.append(result if tables is None else _only(result, given, tables))
    return merge(results)


def _read(
    inputs: SiteInputs, spec: InputSpec, files: Sequence[Path], *, ingested_at: datetime
) -> SourceResult:
    zone = spec.time_zone or inputs.spec.time_zone or ""
    if isinstance(spec, HistoryInput):
        mapping = inputs.path.parent / spec.mapping
        return read_history(files, mapping, ingested_at=ingested_at)
    if isinstance(spec, DcgmInput):
        return read_dcgm_text(files, ingested_at=ingested_at, node_from=spec.node_from)
    if isinstance(spec, NvidiaSmiInput):
        return read_nvidia_smi_csv(files, time_zone=zone, ingested_at=ingested_at)
    if isinstance(spec, KernelLogInput):
        return read_kernel_log(
            files,
            time_zone=zone,
            ingested_at=ingested_at,
            boot_time=spec.boot_time,
            read_until=spec.read_until,
        )
    return read_sacct(
        files,
        time_zone=zone,
        ingested_at=ingested_at,
        delimiter=spec.delimiter,
        columns=spec.columns,
    )


def _only(result: SourceResult, given: Sequence[str], wanted: Collection[str]) -> SourceResult:
    """Leaves the wanted tables, with the account where it belongs to one of them."""
    tables = {key: frame for key, frame in result.tables.items() if key in wanted}
    is_account_here = given[0] in wanted
    table = pl.col("table")
    keep = table.is_in(list(wanted)) | (~table.is_in(list(given)) & is_account_here)
    return SourceResult(
        tables,
        result.quarantine.filter(keep),
        result.reads if is_account_here else result.reads.clear(),
    )


def _is_input(path: Path, base: Path) -> bool:
    parts = path.relative_to(base).parts
    return path.is_file() and not any(part.startswith(_UNFINISHED) for part in parts)


def _mistake(place: Sequence[int | str], expected: str, got: object) -> str:
    """One mistake: its key path, what was expected and what is there."""
    kinds = {"history", "dcgm_text", "nvidia_smi_csv", "kernel_log", "sacct"}
    steps = [step for at, step in enumerate(place) if not (at == 2 and step in kinds)]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    shown = "" if isinstance(got, dict) else f", got {got!r}"
    reason = expected.removeprefix("Value error, ")
    return f"{path.lstrip('.')}: {reason}{shown}" if path else reason
