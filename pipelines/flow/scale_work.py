"""What one part of a scaled-out run computes, and the file it leaves in the spool.

Nothing is known here of Dask: who hands the parts out is in `pipelines.flow.scale_out`. A part
depends on what its name says alone, so it is the same wherever, whenever and however often it is
computed.
"""

import hashlib
import importlib.metadata
import io
import json
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

import polars as pl

import features
import models
import pipelines
from features.contracts import TableContract
from features.core_tables import CoreTables
from features.engine.samples import SHARD_SIZE
from features.errors import DataError
from features.grid import as_of_times, watched_grid
from features.matrix import MatrixSpec, build_gpu_matrix
from features.tables import GPU_MATRIX, GPU_SCORES, NODE_SCORES
from features.telemetry_features import telemetry_reach
from models.bundle import ModelBundle, bundle_from_documents
from models.host_part import HOST_FEATURES
from models.prior import PriorModel
from models.scoring import ScoreLimits, ServedModel, score_gpus, score_nodes
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.object_paths import Place, version_word
from pipelines.storage.store import Span, TableStore, scan_files

HOUR: Final = timedelta(hours=1)
_ROWS_READ_AT_ONCE: Final = 2 * SHARD_SIZE
"""Rows per row group of a part: reading an hour of it unpacks little else."""
_NUMERIC: Final = ("polars", "numpy", "numba", "lightgbm")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A stretch of time and the GPUs of a shard: what one task computes.

    Attributes:
        span: A day, or the hours of it that are wanted.
        gpus: UUIDs, sorted.
        fingerprint: Of all that the part's rows depend on, but the GPUs.
        path: The part.
    """

    span: Span
    gpus: tuple[str, ...]
    fingerprint: str
    path: Place


class Work(Protocol):
    """A table that is computed part by part; sent to each worker, so it is small."""

    @property
    def store_root(self) -> Place:
        """The Parquet store."""
        ...

    @property
    def contracts(self) -> tuple[TableContract, ...]:
        """The tables that are stored; parts hold rows of the first."""
        ...

    def fingerprint(self, span: Span) -> str:
        """Of all that the rows of a span depend on."""
        ...

    def gpus(self, span: Span) -> pl.Series:
        """The GPUs that may have rows in a span, each once."""
        ...

    def compute(self, unit: Unit) -> pl.DataFrame:
        """The unit's rows."""
        ...

    def finish(self, hour: Span, rows: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
        """The rows of each stored table for an hour, from the whole fleet's parts."""
        ...


@dataclass(frozen=True, kw_only=True)
class MatrixWork:
    """features/gpu_matrix.

    Attributes:
        store_root: The Parquet store; telemetry is read from it.
        tables: Core tables but telemetry, as `keep_tables` has kept them.
        spec: Which features.
    """

    store_root: Place
    tables: Place
    spec: MatrixSpec

    @property
    def contracts(self) -> tuple[TableContract, ...]:
        """The matrix."""
        return (GPU_MATRIX,)

    def fingerprint(self, span: Span) -> str:
        """Of the samples in reach, the tables and the spec; a file's name holds its hash."""
        telemetry = TableStore(self.store_root).telemetry
        since = span.start - telemetry_reach(self.spec.telemetry)
        samples = [
            "/".join((path.parent.parent.name, path.parent.name, path.name))
            for path in telemetry.files(start=since, end=span.end)
        ]
        catalogue = self.spec.catalogue.version if self.spec.catalogue else ""
        named = [field.name for field in fields(self.spec) if field.name != "catalogue"]
        spec = [f"{name} {getattr(self.spec, name)!r}" for name in named]
        return _digest(code_version(), *spec, catalogue, self.tables.name, *samples)

    def gpus(self, span: Span) -> pl.Series:  # noqa: ARG002 - the inventory has those of any span
        """Every GPU of the inventory."""
        content = (self.tables / "inventory.parquet").read_bytes()
        inventory = pl.read_parquet(content, columns=["gpu_uuid"])
        return inventory["gpu_uuid"].unique()

    def compute(self, unit: Unit) -> pl.DataFrame:
        """Features of the unit's GPUs at the end of each hour."""
        events = self.spec.events
        reach = max(events.lookback, events.kinds_window, *events.windows)
        tables = _tables(self.tables, Span(unit.span.start - reach, unit.span.end))
        mine = tables.inventory.filter(pl.col("gpu_uuid").is_in(unit.gpus))
        as_ofs = as_of_times(unit.span.start + HOUR, unit.span.end + HOUR, every=HOUR)
        return build_gpu_matrix(
            tables,
            watched_grid(mine, as_ofs, unknown_start="watched"),
            spec=self.spec,
            samples=TableStore(self.store_root).telemetry,
        )

    def finish(self, hour: Span, rows: pl.DataFrame) -> tuple[pl.DataFrame, ...]:  # noqa: ARG002
        """The rows as they are."""
        return (rows,)


@dataclass(frozen=True, kw_only=True)
class ScoreWork:
    """scores/gpu_scores and scores/node_scores, from the stored matrix.

    Attributes:
        store_root: The Parquet store.
        models: Version of each model and what it is: a prior, or the file of a bundle's documents
            (`keep_model`).
        limits: When a score is unknown, and how many are explained.
        newest: The run's last hour with rows: its highest scores are explained.
    """

    store_root: Place
    models: tuple[tuple[str, Place | PriorModel], ...]
    limits: ScoreLimits
    newest: Span | None

    @property
    def contracts(self) -> tuple[TableContract, ...]:
        """Scores of GPUs and of nodes."""
        return (GPU_SCORES, NODE_SCORES)

    def fingerprint(self, span: Span) -> str:
        """Of the matrix' files and the models."""
        files = [f"{path.name} {version_word(path)}" for path in self._files(span)]
        explained = self.newest if self.newest and self.newest.end <= span.end else None
        return _digest(
            code_version(), repr(self.models), repr(self.limits), repr(explained), *files
        )

    def gpus(self, span: Span) -> pl.Series:
        """Every GPU that the matrix has in a span."""
        ids = scan_files(self._files(span)).select(pl.col("entity_id").unique())
        return ids.collect()["entity_id"]

    def compute(self, unit: Unit) -> pl.DataFrame:
        """Scores of the unit's rows; none is explained, as the fleet's highest are not known."""
        mine = scan_files(self._files(unit.span)).filter(pl.col("entity_id").is_in(unit.gpus))
        return self._scores(mine.collect(), limits=replace(self.limits, n_explained=0))

    def finish(self, hour: Span, rows: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
        """The rows and those of their nodes; of the newest hour, scored again with reasons."""
        if hour == self.newest:
            matrix = TableStore(self.store_root).read(GPU_MATRIX, span=hour)
            rows = self._scores(matrix, limits=self.limits)
        hosts = scan_files(self._files(hour)).select("entity_id", "as_of", *self._counts(hour))
        return rows, score_nodes(rows, self._served(), matrix=hosts.collect(), limits=self.limits)

    def _counts(self, span: Span) -> list[str]:
        """What of the matrix is the node's own."""
        stored = scan_files(self._files(span)).collect_schema().names()
        return [name for name in HOST_FEATURES if name in stored]

    def _scores(self, matrix: pl.DataFrame, *, limits: ScoreLimits) -> pl.DataFrame:
        return score_gpus(matrix, self._served(), limits=limits)

    def _served(self) -> list[ServedModel]:
        return [
            ServedModel(
                version=version,
                model=model if isinstance(model, PriorModel) else _bundle(model),
            )
            for version, model in self.models
        ]

    def _files(self, span: Span) -> list[Place]:
        files = TableStore(self.store_root).files(GPU_MATRIX, span=span)
        if not files:
            raise DataError(
                f"table {GPU_MATRIX.asset_key}: nothing is stored between {span.start} and "
                f"{span.end}. Materialise it for that time first."
            )
        return files


def units_of(work: Work, span: Span, *, folder: Place) -> list[Unit]:
    """The units of a day, one per shard; GPUs without any sample follow the others.

    Args:
        work: What is computed.
        span: The day, or a part of it.
        folder: Where the parts go.

    Returns:
        At least one, so that an hour without rows is stored as such.
    """
    fingerprint = work.fingerprint(span)
    wanted = work.gpus(span)
    known = pl.Series("gpu_uuid", TableStore(work.store_root).telemetry.uuids(), pl.String)
    others = wanted.filter(~wanted.is_in(known.implode())).sort()
    codes = pl.DataFrame({"gpu": pl.concat([known, others.alias("gpu_uuid")])}).with_row_index()
    shards = (
        codes.filter(pl.col("gpu").is_in(wanted.implode()))
        .group_by(pl.col("index") // SHARD_SIZE)
        .agg(pl.col("gpu").sort())
        .sort("index")
    )
    units = []
    for gpus in shards["gpu"].to_list() or [[]]:
        name = f"{_digest(fingerprint, *gpus)}.parquet"
        units.append(Unit(span=span, gpus=tuple(gpus), fingerprint=fingerprint, path=folder / name))
    return units


def compute_part(work: Work, unit: Unit, *, code: str) -> None:
    """Computes a unit and leaves its part in the spool; one that is there is left alone.

    Args:
        work: What is computed.
        unit: Which rows of it.
        code: `code_version` of the process that asks.

    Raises:
        DataError: This process has other code, or the inputs are not those of the fingerprint.
    """
    if code != code_version():
        raise DataError(
            f"a worker has code {code_version()}, and {code} is asked for: features could differ. "
            "Install the same release and the same requirements.lock everywhere, and start the "
            "workers anew."
        )
    if unit.path.exists():
        return
    rows = work.compute(unit)
    # Looked at after the rows were computed: a part never holds what its name does not say.
    if work.fingerprint(unit.span) != unit.fingerprint:
        raise DataError(
            f"inputs of {work.contracts[0].asset_key} between {unit.span.start} and "
            f"{unit.span.end} changed while it was computed. Run again: finished parts are kept."
        )
    buffer = io.BytesIO()
    rows.sort("as_of").write_parquet(
        buffer, compression="zstd", row_group_size=_ROWS_READ_AT_ONCE, statistics=True
    )
    replace_file(unit.path, buffer.getvalue(), sync=True)


def keep_tables(tables: CoreTables, folder: Place) -> Place:
    """Keeps core tables but telemetry where workers read them: what all of a run's parts rest on.

    The store's own may be written anew while a long run goes on.

    Args:
        tables: The tables.
        folder: The spool.

    Returns:
        A folder, named by content.
    """
    contents = {}
    for field in fields(tables):
        if field.name != "gpu_telemetry":
            buffer = io.BytesIO()
            getattr(tables, field.name).rechunk().write_parquet(buffer, compression="zstd")
            contents[field.name] = buffer.getvalue()
    digests = [hashlib.sha256(content).hexdigest() for content in contents.values()]
    kept = folder / f"tables-{_digest(*digests)}"
    for name, content in contents.items():
        replace_file(kept / f"{name}.parquet", content, sync=True)
    return kept


def keep_model(model: ModelBundle | PriorModel, folder: Place) -> Place | PriorModel:
    """Keeps a bundle where workers read it, by a name that holds its hash; a prior is small."""
    if isinstance(model, PriorModel):
        return model
    path = folder / "models" / f"{model.fingerprint}.json"
    replace_file(path, json.dumps(model.to_documents()).encode(), sync=True)
    return path


@lru_cache(maxsize=1)
def code_version() -> str:
    """Changes with the code that rows depend on, and with the libraries that compute them."""
    digest = hashlib.sha256()
    for package in (features, models, pipelines):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{path.relative_to(root)} ".encode() + path.read_bytes())
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _NUMERIC]
    return _digest(digest.hexdigest(), *versions)


@lru_cache(maxsize=1)
def _tables(folder: Place, span: Span) -> CoreTables:
    """Kept tables; of health events, by far the most rows, those of a span alone."""
    kept = {field.name: folder / f"{field.name}.parquet" for field in fields(CoreTables)}
    del kept["gpu_telemetry"]
    ts = pl.col("ts")
    events = scan_files([kept.pop("health_events")]).filter(ts >= span.start, ts < span.end)
    return CoreTables(
        health_events=events.collect(),
        **{name: pl.read_parquet(kept[name].read_bytes()) for name in kept},
    )


@lru_cache(maxsize=8)
def _bundle(path: Place) -> ModelBundle:
    return bundle_from_documents(json.loads(path.read_bytes()))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
