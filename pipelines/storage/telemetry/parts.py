"""Files of stored telemetry: written where no reader sees them, removed when none needs them.

Which files are valid is decided in `pipelines.storage.telemetry.store`.
"""

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import polars as pl

from pipelines.storage.object_paths import Place
from pipelines.storage.telemetry.layout import Manifest, part_path
from pipelines.storage.telemetry.parquet import encode

_UNFINISHED: Final = ".unfinished-"
_ABANDONED_S: Final = 24 * 3600
"""Age at which an unfinished file belongs to no living writer."""


@dataclass(frozen=True)
class Staged:
    """A part whose files are written but not yet seen.

    Attributes:
        name: Name of the part: what it holds and a hash of its content.
        hours: The hours it is for.
        files: Shard to its unfinished file.
    """

    name: str
    hours: Sequence[int]
    files: Mapping[int, Place]


def stage(
    folder: Place,
    label: str,
    hours: Sequence[int],
    rows: Iterable[tuple[int, pl.DataFrame]],
    *,
    level: int,
) -> Staged:
    """Writes a part's files under names that no reader sees."""
    digest = hashlib.sha256()
    files: dict[int, Place] = {}
    name = f"{_UNFINISHED}{secrets.token_hex(8)}-{label}"
    with ExitStack() as undo:
        for shard, part in rows:
            if part.is_empty():
                continue
            content = encode(part, level=level)
            digest.update(f"{shard} {len(content)} ".encode() + content)
            files[shard] = part_path(folder, name, shard)
            files[shard].parent.mkdir(parents=True, exist_ok=True)
            undo.callback(files[shard].unlink, missing_ok=True)
            files[shard].write_bytes(content)
        undo.pop_all()
    return Staged(f"{label}-{digest.hexdigest()[:12]}", hours, files)


def sweep(folder: Place, manifest: Manifest) -> None:
    """Removes files that no hour is read from; under the lock, so no writer is about to use them.

    Writers of other hours may be at work on unfinished files: only old ones are removed.
    """
    valid = {
        part_path(folder, part, shard)
        for part, shards in manifest.shards.items()
        for shard in shards
    }
    for path in folder.glob("shard=*/*.parquet"):
        is_unfinished = path.name.startswith(_UNFINISHED)
        if path not in valid and not (
            is_unfinished and time.time() - path.stat().st_mtime < _ABANDONED_S
        ):
            path.unlink(missing_ok=True)
