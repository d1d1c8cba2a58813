"""`forewarn benchmark`: reads a record by its mapping, runs the protocol, keeps the result.

What is computed is in `models.benchmark.run`, the files' grammar in
`pipelines.studies.benchmark.settings`, the text in `pipelines.studies.benchmark.text`, the page in
`pipelines.studies.benchmark.page`.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from features.core_build import build_node_states
from features.core_tables import CoreTables
from features.errors import ForewarnError, SettingsError, SourceError
from models.benchmark.protocol import BenchmarkProtocol
from models.benchmark.result import BenchmarkResult
from models.benchmark.rows import benchmark_rows
from models.benchmark.run import run_protocol
from pipelines.sources.history.files import read_history
from pipelines.studies.benchmark.page import render_page
from pipelines.studies.benchmark.settings import (
    ProtocolSettings,
    load_protocol,
    load_shared,
    protocol_path,
)

_PATTERN_SIGNS: Final = frozenset("*?[")


def read_benchmark_tables(
    settings: ProtocolSettings, data_dir: Path, *, folder: Path
) -> CoreTables:
    """Reads a benchmark's files.

    Args:
        settings: Which files, by which mapping.
        data_dir: Folder that holds them, or the one file to read.
        folder: Folder of the protocol, in which the mapping is.

    Returns:
        The tables.

    Raises:
        SettingsError: The mapping is not valid.
        SourceError: A file is absent or not as the mapping says, or a pattern stands for several
            versions of the record.
    """
    if data_dir.is_file():
        paths = [data_dir]
    else:
        paths = [path for name in settings.files for path in _matching(data_dir, name, settings)]
    read = read_history(paths, folder / settings.mapping, ingested_at=datetime.now(UTC))
    tables = CoreTables(
        inventory=read.table("core/inventory"),
        topology=read.table("core/topology"),
        incidents=read.table("core/incidents"),
        maintenance=read.table("core/maintenance"),
        node_states=build_node_states(read.table("raw/node_states")).frame,
    )
    counters = read.tables.get("core/counters")
    return tables if counters is None else replace(tables, counters=counters)


def _matching(data_dir: Path, name: str, settings: ProtocolSettings) -> list[Path]:
    """The files a name or pattern stands for."""
    if not _PATTERN_SIGNS & set(name):
        return [data_dir / name]
    found = sorted(data_dir.glob(name))
    if not found:
        raise SourceError(
            f"{data_dir} holds no file {name}. Give --data the folder with the data set, or "
            f"correct `files` in the protocol."
        )
    if len(found) > 1 and not settings.has_parts:
        raise SourceError(
            f"{data_dir} holds {len(found)} files {name}: "
            f"{', '.join(path.name for path in found)}. Each is the whole record: give --data the "
            f"one to read."
        )
    return found


def read_benchmark(
    protocol_file: Path, *, data_dir: Path, origins: Sequence[datetime] | None = None
) -> tuple[CoreTables, BenchmarkProtocol]:
    """Reads a protocol and its record.

    Args:
        protocol_file: The protocol.
        data_dir: Folder with the data, or its file.
        origins: Times S; default: those of the protocol. Without a zone they are UTC.

    Returns:
        The tables, and the protocol for them.

    Raises:
        SettingsError: A file of settings is not valid.
        SourceError: The data is absent or of another form.
    """
    settings = load_protocol(protocol_file)
    tables = read_benchmark_tables(settings, data_dir, folder=protocol_file.parent)
    name = protocol_file.stem.removesuffix("_protocol")
    protocol = settings.protocol(name, shared=load_shared(), tables=tables)
    if origins:
        protocol = replace(protocol, origins=tuple(map(_as_utc, origins)))
    return tables, protocol


def run_benchmark(
    name: str | None,
    *,
    data_dir: Path | None = None,
    history: Path | None = None,
    origins: Sequence[datetime] | None = None,
    json_path: Path | None = None,
    page_path: Path | None = None,
) -> BenchmarkResult:
    """Runs a benchmark.

    Args:
        name: One that comes with the product; None where `history` is given.
        data_dir: Folder with the data, or its file; default: the folder of `history`.
        history: Protocol file of one's own.
        origins: Times S; default: those of the protocol. Without a zone they are UTC.
        json_path: Where to write the result as JSON, if anywhere.
        page_path: Where to write it as an HTML page, if anywhere.

    Returns:
        The result.

    Raises:
        SettingsError: The benchmark is not known, or it is not said which.
        SourceError: Its data is absent or of another form.
        DataError: An origin has no training incident before it or no row after it.
        ForewarnError: A result cannot be written; a folder that is not there is found out first.
    """
    started = time.monotonic()
    for path in (json_path, page_path):
        if path is not None and not path.parent.is_dir():
            raise ForewarnError(
                f"{path}: there is no folder {path.parent}. Make it, or name another place."
            )
    protocol_file, folder = _chosen(name, history=history, data_dir=data_dir)
    tables, protocol = read_benchmark(protocol_file, data_dir=folder, origins=origins)
    rows, features = benchmark_rows(tables, protocol)
    result = run_protocol(rows, features, protocol=protocol)
    result = replace(result, seconds=time.monotonic() - started)
    if json_path is not None:
        _write(json.dumps(result.to_dict(), indent=1, default=_plain) + "\n", json_path)
    if page_path is not None:
        _write(render_page(result), page_path)
    return result


def _chosen(name: str | None, *, history: Path | None, data_dir: Path | None) -> tuple[Path, Path]:
    """The protocol file and the folder of the data."""
    if (name is None) == (history is None):
        raise SettingsError(
            "benchmark: give the name of a data set, or --history with a protocol of your own."
        )
    if history is not None:
        return history, data_dir or history.parent
    path = protocol_path(name or "")
    if data_dir is None:
        raise SettingsError(
            f"benchmark {name}: say with --data which folder or file holds the data set."
        )
    return path, data_dir


def _as_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _write(text: str, path: Path) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise ForewarnError(
            f"{path}: the result cannot be written: {error}. Name a place that can be."
        ) from error


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
