"""JSON of Slurm's commands and of slurmrestd: which list a document holds, and its records.

How single values are written in the many versions is in `slurm.json_values`; jobs of the
accounting are in `slurm.json_jobs`. A document is read whole: allow about ten times its size in
memory, and take long spans of accounting in pieces, or as text (`sacct`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson

from features.errors import SourceError
from features.raw_tables import RAW_JOB_LOG, RAW_NODE_STATES
from features.tables import CORE_MAINTENANCE
from pipelines.sources.files import read_bytes, time_in_name
from pipelines.sources.result import SourceResult
from pipelines.sources.slurm.fields import RefusedError, node_names
from pipelines.sources.slurm.json_jobs import accounted_rows, queued_rows
from pipelines.sources.slurm.json_values import as_moment, as_text, as_words
from pipelines.sources.slurm.places import maintenance_rows
from pipelines.sources.slurm.sightings import SlurmRows, sighting_rows

MOST_BYTES: Final = 2 * 1024**3
"""A larger document is refused: it would need some 20 GB of memory."""

_TABLES: Final = {
    "jobs": RAW_JOB_LOG.asset_key,
    "nodes": RAW_NODE_STATES.asset_key,
    "sinfo": RAW_NODE_STATES.asset_key,
    "reservations": CORE_MAINTENANCE.asset_key,
}


def parse_slurm_json(
    data: bytes,
    *,
    origin: str,
    seen_at: datetime | None,
    ingested_at: datetime,
    site: str = "site",
) -> SourceResult:
    """Reads what Slurm's commands print with `--json`, and answers of slurmrestd.

    Args:
        data: The document; a single node or job is read too.
        origin: File or address.
        seen_at: When it was asked for; needed for nodes, whose states are of that moment.
        ingested_at: When it is read, UTC.
        site: Name of the site, for its coverage.

    Returns:
        `raw/job_log` of jobs and their steps, `raw/node_states` and `raw/coverage` of nodes, or
        `core/maintenance` of reservations. Times are UTC in every version.

    Raises:
        SourceError: It is no JSON, holds none of these, or only Slurm's own errors; or it holds
            nodes and the time it is of is not known.
    """
    kind, records = _records(_document(data, origin), origin)
    rows = SlurmRows("slurm_json", origin, ingested_at, _TABLES[kind])
    if kind in ("nodes", "sinfo"):
        if seen_at is None:
            raise SourceError(
                f"{origin}: states of nodes are of the moment they were asked for, and that is not "
                f"known. Name the file after it (nodes__2026-01-05T00-05-00Z.json)."
            )
        rows.sees(site, seen_at)
    for record in records:
        rows.tally.read()
        try:
            if not isinstance(record, Mapping):
                raise RefusedError("a record that is no object")  # noqa: TRY301 - counted below
            _take(rows, kind, record, seen_at)
        except RefusedError as refused:
            rows.tally.quarantined(str(refused), _shown(record))
    return rows.result()


def stream_slurm_json(
    path: Path, *, ingested_at: datetime, seen_at: datetime | None = None, site: str = "site"
) -> Iterator[SourceResult]:
    """Reads a saved document; see `parse_slurm_json`.

    Args:
        path: The file.
        ingested_at: When it is read, UTC.
        seen_at: When it was asked for; None: the time its name ends with.
        site: Name of the site.

    Yields:
        One result.

    Raises:
        SourceError: See `parse_slurm_json`, or the file is too large.
    """
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise SourceError(
            f"{path} has more than {MOST_BYTES} bytes, and JSON is read whole. Save shorter spans, "
            f"or save text: sacct --parsable2."
        )
    yield parse_slurm_json(
        read_bytes(path),
        origin=str(path),
        seen_at=seen_at or time_in_name(path),
        ingested_at=ingested_at,
        site=site,
    )


def _document(data: bytes, origin: str) -> Mapping[str, Any]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        # Slurm copies bytes that are not UTF-8 from job names and reasons into its JSON.
        try:
            document = orjson.loads(data.decode("utf-8", errors="replace").removeprefix("\ufeff"))
        except orjson.JSONDecodeError as error:
            raise SourceError(
                f"{origin}: this is no JSON: {error}. Save the whole output of a Slurm command "
                f"with --json, and its error messages elsewhere."
            ) from error
    if not isinstance(document, Mapping):
        raise SourceError(
            f"{origin}: expected a JSON object with jobs, nodes or reservations, got "
            f"{type(document).__name__}. Save the whole output of a Slurm command with --json."
        )
    return document


def _records(document: Mapping[str, Any], origin: str) -> tuple[str, Sequence[Any]]:
    for kind in _TABLES:
        found = document.get(kind)
        if isinstance(found, list):
            errors = document.get("errors")
            if not found and isinstance(errors, list) and errors:
                raise SourceError(
                    f"{origin}: Slurm answered with an error and no records: "
                    f"{_shown(errors[0])[:200]}. Ask again."
                )
            return kind, found
    if "job_id" in document and ("job_state" in document or "state" in document):
        return "jobs", [document]
    if "name" in document and "state" in document:
        return "nodes", [document]
    raise SourceError(
        f"{origin}: neither jobs, nodes, sinfo nor reservations is in this JSON. Found: "
        f"{', '.join(map(str, list(document)[:10]))[:200] or '(nothing)'}. Save the output of "
        f"sacct, squeue, sinfo or scontrol show node with --json."
    )


def _take(rows: SlurmRows, kind: str, record: Mapping[str, Any], seen_at: datetime | None) -> None:
    """Adds the rows of one record and counts it; each step of a job counts as one too."""
    if kind == "reservations":
        found = maintenance_rows(
            as_text(record.get("name")) or "",
            flags=as_words(record.get("flags")),
            nodes=node_names(as_text(record.get("node_list")) or ""),
            span=(as_moment(record.get("start_time")), as_moment(record.get("end_time"))),
        )
        rows.maintenance += found
        rows.tally.parsed(bool(found))
        rows.tally.skipped(not found)
    elif kind == "jobs":
        read: Callable[[Mapping[str, Any]], Iterator[Mapping[str, Any] | RefusedError]]
        read = accounted_rows if isinstance(record.get("time"), Mapping) else queued_rows
        for at, row in enumerate(read(record)):
            rows.tally.read(bool(at))  # the job itself has been counted
            if isinstance(row, RefusedError):
                rows.tally.quarantined(str(row), _shown(record))
            else:
                rows.jobs.append(dict(row))
                rows.tally.parsed()
    elif seen_at is not None:
        rows.states += _node_rows(record, seen_at)
        rows.tally.parsed()


def _node_rows(record: Mapping[str, Any], seen_at: datetime) -> list[dict[str, Any]]:
    """A node of `nodes`, or one or several of an entry of `sinfo` (since 23.11)."""
    inner = record.get("node")
    if isinstance(inner, Mapping):
        about, named = inner, record.get("nodes")
        listed = named.get("nodes") if isinstance(named, Mapping) else None
        names = [name for text in as_words(listed) for name in node_names(text) or []]
    else:
        about, names = record, [as_text(record.get("name")) or ""]
    told = [*as_words(about.get("state")), *as_words(about.get("state_flags"))]
    words = dict.fromkeys(word.upper() for word in told)
    reason = record.get("reason")
    since, actor = record.get("reason_changed_at"), record.get("reason_set_by_user")
    if isinstance(reason, Mapping):
        since, actor = reason.get("time"), reason.get("user")
        reason = reason.get("description")
    rows = []
    for name in names or [""]:
        rows += sighting_rows(
            name,
            "+".join(words),
            reason=as_text(reason),
            actor=as_text(actor),
            since=as_moment(since),
            seen_at=seen_at,
        )
    return rows


def _shown(record: object) -> str:
    return orjson.dumps(record, default=str).decode()
