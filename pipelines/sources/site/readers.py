"""How each kind of input is read: which module reads it, which tables it gives, what names it.

No format is understood here; each source has its own module. Servers are asked in
`pipelines.sources.site.server_readers`.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Final

import polars as pl

from features.errors import SourceError
from pipelines.sources.files import read_bytes, time_in_name
from pipelines.sources.history.files import read_history
from pipelines.sources.history.mapping import load_mapping
from pipelines.sources.jobs.output import stream_job_output
from pipelines.sources.jobs.rules import JobRules, load_job_rules
from pipelines.sources.jobs.tensorboard_events import stream_tensorboard
from pipelines.sources.jobs.training_jsonl import stream_training_jsonl
from pipelines.sources.jobs.training_values import MetricKeys
from pipelines.sources.kernel.log import stream_kernel_log
from pipelines.sources.kubernetes.json_files import stream_kubernetes_json
from pipelines.sources.kubernetes.nodes import LEVELS
from pipelines.sources.private_names import hash_names
from pipelines.sources.result import SourceResult, merge
from pipelines.sources.site.input_base import FileInput, Input, PullInput
from pipelines.sources.site.inputs import (
    ExpositionInput,
    HistoryInput,
    JobOutputInput,
    KernelLogInput,
    KubernetesJsonInput,
    NvidiaSmiInput,
    SacctInput,
    SlurmJsonInput,
    SlurmTextInput,
    TrainingInput,
)
from pipelines.sources.site.listing import SiteInputs
from pipelines.sources.site.reading_names import check_name, hiding_key
from pipelines.sources.site.server_readers import Asking, ask_server
from pipelines.sources.slurm.events import parse_events
from pipelines.sources.slurm.json_documents import stream_slurm_json
from pipelines.sources.slurm.nodes import parse_scontrol_nodes, parse_sinfo
from pipelines.sources.slurm.places import parse_reservations, parse_topology
from pipelines.sources.slurm.queue import parse_show_jobs, parse_squeue, stream_jobcomp
from pipelines.sources.slurm.sacct import stream_sacct
from pipelines.sources.telemetry.dcgm_text import stream_dcgm_text
from pipelines.sources.telemetry.nvidia_gpu_exporter import stream_nvidia_gpu_exporter
from pipelines.sources.telemetry.nvidia_smi_csv import stream_nvidia_smi_csv
from pipelines.sources.telemetry.nvidia_smi_xml import stream_nvidia_smi_xml
from pipelines.storage.store import Span

_NAMES: Final = ("user", "job_name", "actor")
"""Columns with names of people and of what they work on."""


@dataclass(frozen=True)
class OneFile:
    """What a reader needs beside its own options.

    Attributes:
        path: The file.
        folder: Folder of the list of inputs.
        site: Name of the site.
        zone: Zone of clocks that print no offset; empty: the input needs none.
        ingested_at: When it is read, UTC.
    """

    path: Path
    folder: Path
    site: str
    zone: str
    ingested_at: datetime


def tables_of(inputs: SiteInputs, spec: Input) -> tuple[str, ...]:
    """Asset keys of the tables that an input may give; the first carries its account.

    Args:
        inputs: The list.
        spec: One of its inputs.
    """
    if isinstance(spec, HistoryInput):
        return tuple(load_mapping(inputs.path.parent / spec.mapping).tables.by_key)
    if isinstance(spec, SlurmTextInput):
        return _SLURM_TABLES[spec.holds]
    return _TABLES[spec.kind]


def stream_file(
    inputs: SiteInputs, spec: FileInput, path: Path, *, ingested_at: datetime
) -> Iterator[SourceResult]:
    """Reads one file of an input, in chunks.

    Args:
        inputs: The list.
        spec: One of its inputs.
        path: The file.
        ingested_at: When it is read, UTC.

    Raises:
        SettingsError: A mapping or a rule file does not hold its grammar.
        SourceError: The file is not of its kind, or cannot be read.
    """
    check_name(path)
    zone = spec.time_zone or inputs.spec.time_zone or ""
    what = OneFile(path, inputs.path.parent, inputs.spec.site, zone, ingested_at)
    return _hidden(inputs, _READERS[spec.kind](spec, what))


def pull_window(
    inputs: SiteInputs, spec: PullInput, window: Span, *, ingested_at: datetime
) -> Iterator[SourceResult]:
    """Asks a server for one window of time.

    Args:
        inputs: The list.
        spec: One of its inputs.
        window: The time asked for, half-open.
        ingested_at: When it is asked, UTC.

    Raises:
        SourceError: The server does not answer, or not in full.
    """
    asking = Asking(window, inputs.path.parent, inputs.spec.site, ingested_at)
    return _hidden(inputs, ask_server(spec, asking))


def read_inputs(
    inputs: SiteInputs,
    *,
    ingested_at: datetime,
    tables: Collection[str] | None = None,
    kinds: Collection[str] | None = None,
) -> SourceResult:
    """Reads the files of a site whole; servers are left.

    Args:
        inputs: The list.
        ingested_at: When they are read, UTC.
        tables: Asset keys wanted; inputs that give none of them are not read. None: all.
        kinds: Kinds of input wanted; None: all.

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
        if not isinstance(spec, FileInput) or (kinds is not None and spec.kind not in kinds):
            continue
        given = tables_of(inputs, spec)
        if tables is not None and not set(given) & set(tables):
            continue
        chunks = (
            chunk
            for path in inputs.files(spec)
            for chunk in stream_file(inputs, spec, path, ingested_at=ingested_at)
        )
        result = merge(chunks)
        results.append(result if tables is None else _only(result, given, tables))
    return merge(results)


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


def _hidden(inputs: SiteInputs, chunks: Iterator[SourceResult]) -> Iterator[SourceResult]:
    """Chunks with the names of users and jobs replaced, where the site wants that.

    The examples of refused records are cut out too: they hold the names as they came.
    """
    key = hiding_key(inputs)
    if key is None:
        return chunks
    example = pl.lit("(hidden with the names)").alias("example")
    return (
        SourceResult(
            {
                table: hash_names(frame, columns=_NAMES, key=key)
                for table, frame in chunk.tables.items()
            },
            chunk.quarantine.with_columns(example),
            chunk.reads,
        )
        for chunk in chunks
    )


def _history(spec: HistoryInput, what: OneFile) -> Iterator[SourceResult]:
    yield read_history(what.path, what.folder / spec.mapping, ingested_at=what.ingested_at)


def _exposition(spec: ExpositionInput, what: OneFile) -> Iterator[SourceResult]:
    stream = stream_dcgm_text if spec.kind == "dcgm_text" else stream_nvidia_gpu_exporter
    return stream(
        what.path,
        ingested_at=what.ingested_at,
        node_from=spec.node_from,
        site=what.site,
        every_s=spec.every_s,
    )


def _nvidia_smi(spec: NvidiaSmiInput, what: OneFile) -> Iterator[SourceResult]:
    stream = stream_nvidia_smi_csv if spec.kind == "nvidia_smi_csv" else stream_nvidia_smi_xml
    return stream(what.path, time_zone=what.zone, ingested_at=what.ingested_at)


def _kernel_log(spec: KernelLogInput, what: OneFile) -> Iterator[SourceResult]:
    return stream_kernel_log(
        what.path,
        time_zone=what.zone,
        ingested_at=what.ingested_at,
        node=spec.node,
        boot_time=spec.boot_time,
        read_until=spec.read_until,
        site=what.site,
    )


def _sacct(spec: SacctInput, what: OneFile) -> Iterator[SourceResult]:
    return stream_sacct(
        what.path,
        time_zone=what.zone,
        ingested_at=what.ingested_at,
        delimiter=spec.delimiter,
        columns=spec.columns,
    )


def _slurm_text(spec: SlurmTextInput, what: OneFile) -> Iterator[SourceResult]:
    if spec.holds == "jobcomp":
        yield from stream_jobcomp(what.path, time_zone=what.zone, ingested_at=what.ingested_at)
        return
    data = read_bytes(what.path)
    given: dict[str, Any] = {"origin": str(what.path), "ingested_at": what.ingested_at}
    if spec.holds == "topology":
        yield parse_topology(data, **given)
        return
    given["time_zone"] = what.zone
    if spec.holds in ("sinfo", "squeue"):
        given["columns"] = spec.columns
    if spec.holds in ("sinfo", "nodes"):
        given |= {"seen_at": _seen_at(what.path), "site": what.site}
    yield _SLURM_PARSERS[spec.holds](data, **given)


def _seen_at(path: Path) -> datetime:
    found = time_in_name(path)
    if found is None:
        raise SourceError(
            f"{path}: nothing tells when the command ran, and its output does not. Let the name "
            f"end with the time in UTC: {path.stem}__2026-01-05T00-05-00Z{path.suffix}"
        )
    return found


def _slurm_json(_: SlurmJsonInput, what: OneFile) -> Iterator[SourceResult]:
    return stream_slurm_json(what.path, ingested_at=what.ingested_at, site=what.site)


def _kubernetes_json(spec: KubernetesJsonInput, what: OneFile) -> Iterator[SourceResult]:
    levels = spec.levels or LEVELS
    return stream_kubernetes_json(
        what.path, ingested_at=what.ingested_at, site=what.site, levels=levels
    )


def _job_output(spec: JobOutputInput, what: OneFile) -> Iterator[SourceResult]:
    return stream_job_output(
        what.path,
        rules=_rules(what.folder / spec.rules) if spec.rules else _shipped_rules(),
        time_zone=what.zone,
        ingested_at=what.ingested_at,
        tail_mb=spec.tail_mb,
        patterns=spec.names,
    )


def _rules(path: Path) -> JobRules:
    return _rules_of(path, hashlib.sha256(read_bytes(path)).hexdigest())


@lru_cache(maxsize=4)
def _rules_of(path: Path, _: str) -> JobRules:
    """Rules of one content are read once: it takes 0.3 s, and job outputs come by the thousand."""
    return load_job_rules(path)


@cache
def _shipped_rules() -> JobRules:
    return load_job_rules()


def _training(spec: TrainingInput, what: OneFile) -> Iterator[SourceResult]:
    keys = MetricKeys(spec.keys)
    if spec.kind == "tensorboard":
        return stream_tensorboard(
            what.path, ingested_at=what.ingested_at, tags=keys, job_from=spec.names
        )
    stream = partial(stream_training_jsonl, what.path, time_zone=what.zone)
    return stream(ingested_at=what.ingested_at, keys=keys, job_from=spec.names)


_READERS: Final[Mapping[str, Callable[[Any, OneFile], Iterator[SourceResult]]]] = {
    "history": _history,
    "dcgm_text": _exposition,
    "nvidia_gpu_exporter": _exposition,
    "nvidia_smi_csv": _nvidia_smi,
    "nvidia_smi_xml": _nvidia_smi,
    "kernel_log": _kernel_log,
    "sacct": _sacct,
    "slurm_text": _slurm_text,
    "slurm_json": _slurm_json,
    "kubernetes_json": _kubernetes_json,
    "job_output": _job_output,
    "training_jsonl": _training,
    "tensorboard": _training,
}

_SLURM_PARSERS: Final[Mapping[str, Callable[..., SourceResult]]] = {
    "nodes": parse_scontrol_nodes,
    "sinfo": parse_sinfo,
    "squeue": parse_squeue,
    "jobs": parse_show_jobs,
    "events": parse_events,
    "reservations": parse_reservations,
}

_SAMPLES: Final = ("raw/gpu_telemetry", "raw/inventory", "raw/coverage")
_CLUSTER: Final = ("raw/node_states", "raw/job_log", "raw/coverage", "core/topology")
_TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "dcgm_text": _SAMPLES,
    "nvidia_gpu_exporter": _SAMPLES,
    "nvidia_smi_csv": (*_SAMPLES, "raw/kernel_log"),
    "nvidia_smi_xml": (*_SAMPLES, "raw/kernel_log"),
    "kernel_log": ("raw/kernel_log", "raw/coverage"),
    "sacct": ("raw/job_log",),
    "slurm_json": (*_CLUSTER, "core/maintenance"),
    "kubernetes_json": (*_CLUSTER, "raw/kernel_log", "raw/inventory"),
    "job_output": ("raw/job_output",),
    "training_jsonl": ("raw/training_metrics",),
    "tensorboard": ("raw/training_metrics",),
    "prometheus": _SAMPLES,
    "scrape": _SAMPLES,
    "slurm": (*_CLUSTER, "core/maintenance"),
    "kubernetes": (*_CLUSTER, "raw/kernel_log", "raw/inventory"),
}
_SLURM_TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "nodes": ("raw/node_states", "raw/coverage"),
    "sinfo": ("raw/node_states", "raw/coverage"),
    "events": ("raw/node_states",),
    "squeue": ("raw/job_log",),
    "jobs": ("raw/job_log",),
    "jobcomp": ("raw/job_log",),
    "reservations": ("core/maintenance",),
    "topology": ("core/topology",),
}
