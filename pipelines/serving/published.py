"""Reads published ticks back, for the score database and for alerts.

Publishing is in `pipelines.flow.publish`. The hook reads with more distrust, in
`remediation.score_source`: it acts on what it reads.
"""

import hashlib
import io
import json
import logging
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from features.contracts import TableContract
from features.errors import DataError, SourceError
from features.tables import GPU_SCORES, NODE_SCORES
from models.policies.warnings import WarningPolicy
from pipelines.flow.publish import LATEST, SCHEMA_VERSION, published_ticks, tick_digest
from pipelines.serving.score_database import Tick

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedTick:
    """A tick as its own file says; scores are read when asked for.

    Attributes:
        tick: What is said of it.
        folder: The published folder.
        files: Table name to path and SHA-256.
    """

    tick: Tick
    folder: Path
    files: dict[str, tuple[str, str]]

    def node_scores(self) -> pl.DataFrame:
        """scores/node_scores of the tick.

        Raises:
            SourceError: The file is not there, or not the one that was published.
        """
        return self._read("node_scores", NODE_SCORES)

    def gpu_scores(self) -> pl.DataFrame:
        """scores/gpu_scores of the tick; raises as `node_scores`."""
        return self._read("gpu_scores", GPU_SCORES)

    def _read(self, name: str, contract: TableContract) -> pl.DataFrame:
        relative, expected = self.files[name]
        path = self.folder / relative
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != expected:
            raise SourceError(f"{path}: the file is not the one that was published")
        return contract.conform(pl.read_parquet(io.BytesIO(content)))


def read_tick(path: Path, folder: Path) -> PublishedTick:
    """A tick by its own file, or `LATEST.json`.

    Args:
        path: The file.
        folder: The published folder.

    Raises:
        SourceError: The file cannot be read.
    """
    try:
        content = json.loads(path.read_bytes())
        if content["schema"] != SCHEMA_VERSION:
            raise SourceError(
                f"{path}: schema {content['schema']!r}, this program reads "
                f"{SCHEMA_VERSION}. Use the release that published it, or publish with this one."
            )
        return _tick_of(content, folder)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, DataError) as error:
        raise SourceError(f"{path}: not a published tick ({error})") from error


def latest_published(folder: Path) -> PublishedTick | None:
    """The newest published tick; None: nothing is published.

    Raises:
        SourceError: `LATEST.json` cannot be read.
    """
    path = folder / LATEST
    return read_tick(path, folder) if path.exists() else None


def read_ticks(
    folder: Path, *, since: datetime | None = None, before: datetime
) -> list[PublishedTick]:
    """The ticks of a stretch, oldest first; of one moment the one that was published last.

    One that cannot be read is left out, and said: a single damaged file must not hold up all that
    came after it.

    Args:
        folder: The published folder.
        since: Only ticks later than it.
        before: Only ticks earlier than it.
    """
    newest: dict[datetime, PublishedTick] = {}
    for path in published_ticks(folder, since=since):
        try:
            one = read_tick(path, folder)
        except SourceError as error:
            _LOG.warning("left out: %s", error)
            continue
        known = newest.get(one.tick.as_of)
        is_newer = known is None or known.tick.published_at < one.tick.published_at
        if one.tick.as_of < before and is_newer:
            newest[one.tick.as_of] = one
    return [newest[as_of] for as_of in sorted(newest)]


def node_scores_or_none(one: PublishedTick) -> pl.DataFrame | None:
    """scores/node_scores of a tick; None, and said, where they cannot be read."""
    try:
        return one.node_scores()
    except SourceError as error:
        _LOG.warning("left out: %s", error)
        return None


def _tick_of(content: dict[str, Any], folder: Path) -> PublishedTick:
    files = content["files"]
    as_of, published_at, expires_at = (
        datetime.fromisoformat(content[name]) for name in ("as_of", "published_at", "expires_at")
    )
    if None in (as_of.tzinfo, published_at.tzinfo, expires_at.tzinfo):
        raise ValueError("a time without a zone")
    tick = Tick(
        as_of=as_of,
        published_at=published_at,
        expires_at=expires_at,
        coverage=float(content["coverage"]),
        model_versions={int(h): version for h, version in content["model_versions"].items()},
        trained_on=content["trained_on"],
        policies={
            int(h): WarningPolicy.from_dict(one) for h, one in content.get("policies", {}).items()
        },
        digest=tick_digest(content),
        n_node_rows=files["node_scores"]["rows"],
        n_gpu_rows=files["gpu_scores"]["rows"],
    )
    named = {name: (one["path"], one["sha256"]) for name, one in files.items()}
    return PublishedTick(tick, folder, named)
