"""Saved Kubernetes objects: output of `kubectl get ... -o json`, lists of any kinds, JSON lines.

What an object says is read in `kubernetes.reader`; a server is asked in `kubernetes.pull`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

from features.errors import SourceError
from pipelines.sources.files import time_in_name
from pipelines.sources.kubernetes.gpus import claim_gpus
from pipelines.sources.kubernetes.nodes import DOWN_AFTER, LEVELS
from pipelines.sources.kubernetes.objects import (
    SOURCE,
    TEXT_LENGTH,
    Json,
    mapping,
    parse_moment,
    text,
)
from pipelines.sources.kubernetes.pods import USER_LABELS
from pipelines.sources.kubernetes.reader import (
    TABLES,
    KubernetesOptions,
    KubernetesReader,
    coverage,
)
from pipelines.sources.kubernetes.split import (
    ListStart,
    MalformedPiece,
    Piece,
    Split,
    split_objects,
    utf8_blocks,
)
from pipelines.sources.result import ReadTally, SourceResult, merge

CHUNK_OBJECTS: Final = 5_000
CHUNK_BYTES: Final = 32 << 20

_BLOCK: Final = 1 << 20
_HEARTBEAT: Final = re.compile(rb'"lastHeartbeatTime"\s*:\s*"([^"]{1,40})"')
_CLAIM: Final = b'"ResourceClaim'
_OVERLAP: Final = 200  # bytes kept of a block, so that nothing looked for is cut in two


@dataclass(frozen=True)
class _Overview:
    """What a whole file tells before its objects are read.

    Attributes:
        written_at: When it was written; None: not told.
        claims: GPUs of the DRA claims in it.
    """

    written_at: datetime | None
    claims: Mapping[tuple[str, str], int | None]


def stream_kubernetes_json(
    path: Path,
    *,
    ingested_at: datetime,
    site: str = SOURCE,
    levels: Mapping[str, Sequence[str]] = LEVELS,
    user_labels: Sequence[str] = USER_LABELS,
    down_after: timedelta = DOWN_AFTER,
    chunk_objects: int = CHUNK_OBJECTS,
) -> Iterator[SourceResult]:
    """Reads one file of objects.

    The file is gone through more than once: the moment at which it was written is that in its
    name, else the latest heartbeat of a node in it, and claims must be known before the pods that
    use them.

    Args:
        path: Output of `kubectl get nodes,pods,events -o json` or the like: a list of objects of
            any kinds, a single object, several one after the other, or events of a watch.
        ingested_at: When it is read, UTC.
        site: Name of the cluster, for coverage.
        levels: Labels by level of place.
        user_labels: Labels that may name a pod's user.
        down_after: How long a kubelet may be silent before its node is down.
        chunk_objects: Objects in one result.

    Yields:
        Results with raw/node_states, raw/job_log, raw/kernel_log, raw/inventory, core/topology
        and raw/coverage. Objects that are no JSON are in the quarantine.

    Raises:
        SourceError: The file cannot be read, or holds no JSON object at all.
    """
    yield from _stream(
        lambda: _blocks(path),
        named_at=time_in_name(path),
        origin=str(path),
        options=KubernetesOptions(
            ingested_at=ingested_at,
            site=site,
            user_labels=user_labels,
            down_after=down_after,
            levels=levels,
        ),
        chunk_objects=chunk_objects,
    )


def parse_kubernetes_json(
    data: bytes,
    *,
    origin: str,
    ingested_at: datetime,
    chunk_objects: int = CHUNK_OBJECTS,
) -> SourceResult:
    """Reads objects held in memory, as `stream_kubernetes_json` does.

    Args:
        data: The objects.
        origin: Where they are from.
        ingested_at: When they are read, UTC.
        chunk_objects: Objects read at a time.

    Returns:
        All rows.

    Raises:
        SourceError: There is no JSON object in it.
    """
    options = KubernetesOptions(ingested_at=ingested_at)
    return merge(
        _stream(
            lambda: [data],
            named_at=None,
            origin=origin,
            options=options,
            chunk_objects=chunk_objects,
        )
    )


def _stream(
    blocks: Callable[[], Iterable[bytes]],
    *,
    named_at: datetime | None,
    origin: str,
    options: KubernetesOptions,
    chunk_objects: int,
) -> Iterator[SourceResult]:
    overview = _overview(blocks, before=options.ingested_at + options.down_after)
    seen_at = named_at or overview.written_at
    options = replace(options, seen_at=seen_at)
    reader = KubernetesReader(options, claims=overview.claims)
    is_ours = False
    for pieces in _batches(split_objects(blocks()), chunk_objects):
        is_ours = is_ours or any(not isinstance(piece, MalformedPiece) for piece in pieces)
        yield _read(reader, pieces, origin=origin)
    if not is_ours:
        raise SourceError(
            f"{origin}: no Kubernetes object was found in it. Expected the output of "
            f"`kubectl get nodes,pods,events --all-namespaces -o json`. Check what wrote the file."
        )
    yield reader.finish(origin=origin)
    if seen_at is not None:
        yield coverage(options, origin=origin, start=seen_at, every_s=None)


def _read(reader: KubernetesReader, pieces: Sequence[Split], *, origin: str) -> SourceResult:
    """Rows and account of some pieces."""
    tally = ReadTally(table=TABLES[0].asset_key, source=SOURCE, origin=origin)
    by_kind: dict[str | None, list[Any]] = {}
    for piece in pieces:
        if isinstance(piece, ListStart):
            continue
        found = _loaded(piece)
        if isinstance(found, MalformedPiece):
            tally.read()
            tally.quarantined(found.rule, found.raw.decode("utf-8", errors="replace"))
        elif isinstance(piece, Piece):
            by_kind.setdefault(piece.kind, []).append(found)
    results = [reader.read(found, origin=origin, kind=kind) for kind, found in by_kind.items()]
    return merge([*results, tally.result({})])


def _loaded(piece: Split) -> Any:
    """The object of a piece; that of a watch event is the object within."""
    if not isinstance(piece, Piece):
        return piece
    try:
        found = orjson.loads(piece.raw)
    except ValueError:
        return MalformedPiece("not JSON", piece.raw[:TEXT_LENGTH])
    if isinstance(found, dict) and "kind" not in found and isinstance(found.get("object"), dict):
        return found["object"]
    return found


def _overview(blocks: Callable[[], Iterable[bytes]], *, before: datetime) -> _Overview:
    """Goes through a file for its latest heartbeat and its claims.

    Args:
        blocks: Opens the file anew.
        before: Later heartbeats are from a clock that is wrong.
    """
    latest, tail, has_claims = b"", b"", False
    limit = before.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    for block in utf8_blocks(blocks()):
        window = tail + block
        # Texts of one form, in UTC: they sort as the times do.
        beats = (beat for beat in _HEARTBEAT.findall(window) if latest < beat <= limit)
        latest = max(beats, default=latest)
        has_claims = has_claims or _CLAIM in window
        tail = window[-_OVERLAP:]
    claims: dict[tuple[str, str], int | None] = {}
    for piece in split_objects(blocks()) if has_claims else ():
        is_claim = isinstance(piece, Piece) and (
            piece.kind == "ResourceClaim" or _CLAIM in piece.raw
        )
        found = _loaded(piece) if is_claim else None
        if isinstance(found, dict):
            claims.update(_claim(found, piece.kind if isinstance(piece, Piece) else None))
    return _Overview(parse_moment(latest.decode("ascii", errors="replace")), claims)


def _claim(found: Json, kind: str | None) -> dict[tuple[str, str], int | None]:
    metadata = mapping(found, "metadata")
    name = text(metadata, "name")
    if (text(found, "kind") or kind) != "ResourceClaim" or name is None:
        return {}
    return {(text(metadata, "namespace") or "default", name): claim_gpus(found)}


def _batches(pieces: Iterable[Split], most: int) -> Iterator[list[Split]]:
    batch: list[Split] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.raw)
        if len(batch) >= most or size >= CHUNK_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}. Check that it exists, is a file, "
            f"and that this user may read it."
        ) from error
