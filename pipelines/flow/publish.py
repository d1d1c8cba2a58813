"""Publishing scores: one immutable Parquet file per tick and table, then `LATEST.json`.

`LATEST.json` is a copy of the tick's own file under `ticks/`, which stays: from these the score
database is made. Who reads them is not known here: `remediation.score_source` is one reader.
"""

import hashlib
import io
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from features.errors import DataError
from features.tables import GPU_SCORES, NODE_SCORES
from models.policies.warnings import WarningPolicy
from pipelines.storage.atomic_files import replace_file

LATEST = "LATEST.json"
TICKS = "ticks"
SCHEMA_VERSION = 1
_NAME = "%Y%m%dT%H%M%SZ"
_ABANDONED_S = 86_400.0


def publish_scores(
    folder: Path,
    *,
    gpu_scores: pl.DataFrame,
    node_scores: pl.DataFrame,
    published_at: datetime,
    ttl: timedelta,
    policies: Mapping[int, WarningPolicy] | None = None,
) -> Path:
    """Writes one tick and points `LATEST.json` at it, each by an atomic rename.

    A tick that was published before with the same scores and policies stays as it was, with the
    time at which it was published then.

    Args:
        folder: Where scores are published.
        gpu_scores: `scores/gpu_scores` rows of one as_of.
        node_scores: `scores/node_scores` rows of the same as_of.
        published_at: Now, UTC.
        ttl: How long after as_of the scores stay valid.
        policies: Warning policy for nodes by horizon, chosen with the model that gave the scores;
            the hook only observes a horizon without one.

    Returns:
        The path of `LATEST.json`.

    Raises:
        DataError: The frames are empty or mix moments, models or kinds of training data.
    """
    as_of = _only("as_of", gpu_scores, node_scores)
    if not isinstance(as_of, datetime):
        raise DataError(f"scores: as_of must be a time, got {as_of!r}")
    trained_on = _only("trained_on", gpu_scores, node_scores)
    files = {
        "node_scores": _write_tick(folder, "node_scores", NODE_SCORES.conform(node_scores), as_of),
        "gpu_scores": _write_tick(folder, "gpu_scores", GPU_SCORES.conform(gpu_scores), as_of),
    }
    latest = {
        "schema": SCHEMA_VERSION,
        "as_of": as_of.isoformat(),
        "published_at": published_at.isoformat(),
        "expires_at": (as_of + ttl).isoformat(),
        "model_versions": _models(gpu_scores, node_scores),
        "trained_on": trained_on,
        "files": files,
        "coverage": gpu_scores.filter(pl.col("status") != "unknown").height / gpu_scores.height,
        "policies": {str(h): _policy_values(one) for h, one in sorted((policies or {}).items())},
    }
    content = (json.dumps(latest, indent=2, sort_keys=True) + "\n").encode()
    own = folder / TICKS / f"{as_of:{_NAME}}-{tick_digest(latest)[:12]}.json"
    if own.exists():
        content = own.read_bytes()
    else:
        replace_file(own, content, sync=True)
    path = folder / LATEST
    if not (path.exists() and path.read_bytes() == content):
        replace_file(path, content, sync=True)
    return path


def tick_digest(latest: Mapping[str, Any]) -> str:
    """Hash of what a tick says, equal for equal scores, policies and validity.

    Args:
        latest: The content of `LATEST.json`.
    """
    said = {name: value for name, value in latest.items() if name != "published_at"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def published_ticks(folder: Path, *, since: datetime | None = None) -> list[Path]:
    """The ticks' own files, oldest first; of one published twice with other scores, both.

    Args:
        folder: Where scores are published.
        since: Only ticks later than it.
    """
    first = "" if since is None else f"{since:{_NAME}}~"
    return sorted(path for path in (folder / TICKS).glob("[!.]*.json") if path.name > first)


def forget_ticks(folder: Path, *, before: datetime, gpus_before: datetime) -> int:
    """Removes what was published long ago; what `LATEST.json` names always stays.

    Args:
        folder: Where scores are published.
        before: Node scores and the ticks' own files before it go.
        gpus_before: GPU scores before it go.

    Returns:
        Files removed.
    """
    latest = _named(folder / LATEST)
    removed = 0
    for kind, oldest in ((TICKS, before), ("node_scores", before), ("gpu_scores", gpus_before)):
        for path in (folder / kind).glob("[!.]*Z-*"):
            if path.name < f"{oldest:{_NAME}}" and f"{kind}/{path.name}" not in latest:
                path.unlink(missing_ok=True)
                removed += 1
    for path in folder.glob("**/.unfinished-*"):
        # Left by a writer that was killed; a day later it is no living writer's.
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()
    return removed


def discard_later(folder: Path, *, now: datetime) -> int:
    """Takes back ticks of the future, which a clock that was ahead has left.

    What was published last before them is what is published then.

    Args:
        folder: Where scores are published.
        now: The present, by a clock that is right.

    Returns:
        Ticks taken back.
    """
    later = published_ticks(folder, since=now)
    earlier = [path for path in published_ticks(folder) if path not in later]
    published = published_as_of(folder)
    if published is not None and published > now:
        if earlier:
            replace_file(folder / LATEST, earlier[-1].read_bytes(), sync=True)
        else:
            (folder / LATEST).unlink(missing_ok=True)
    for path in later:
        path.unlink(missing_ok=True)
    return len(later)


def _named(path: Path) -> set[str]:
    """The files that a tick's file names."""
    try:
        return {one["path"] for one in json.loads(path.read_bytes())["files"].values()}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def published_as_of(folder: Path) -> datetime | None:
    """The moment of the scores that are published; None: there are none, or none readable."""
    try:
        latest = json.loads((folder / LATEST).read_text(encoding="utf-8"))
        as_of = datetime.fromisoformat(latest["as_of"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return as_of if as_of.tzinfo else None


def _policy_values(policy: WarningPolicy) -> dict[str, object]:
    values = policy.to_dict()
    # A threshold above 1 means never. The hook's settings end at 1, which no score reaches either.
    return {**values, "threshold": min(policy.threshold, 1.0)}


def _only(column: str, *frames: pl.DataFrame) -> object:
    found = sorted({value for frame in frames for value in frame[column].unique()})
    if len(found) != 1:
        raise DataError(
            f"scores: one tick has one {column}, got {found[:5]}. Publish ticks one by one."
        )
    return found[0]


def _models(*frames: pl.DataFrame) -> dict[str, str]:
    """The model of each horizon."""
    pairs = pl.concat(frame.select("horizon_h", "model_version") for frame in frames).unique()
    repeated = pairs.filter(pl.col("horizon_h").is_duplicated())
    if not repeated.is_empty():
        raise DataError(
            f"scores: one tick has one model per horizon, got {sorted(repeated.rows())}. "
            f"Publish ticks one by one."
        )
    return {str(horizon): version for horizon, version in sorted(pairs.iter_rows())}


def _write_tick(
    folder: Path, table: str, frame: pl.DataFrame, as_of: datetime
) -> Mapping[str, object]:
    buffer = io.BytesIO()
    frame.sort("entity_id", "horizon_h").write_parquet(buffer, compression="zstd")
    content = buffer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    # The name holds the content: a tick that is scored again never changes a published file.
    relative = f"{table}/{as_of:{_NAME}}-{digest[:12]}.parquet"
    replace_file(folder / relative, content, sync=True)
    return {"path": relative, "sha256": digest, "rows": frame.height}
