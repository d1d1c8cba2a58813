"""The read model: the newest published tick, held in memory until another one is published.

Ranking, filters and pages are in `score_pages`; nothing here knows of HTTP.
"""

import hashlib
import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PolarsError

from features.errors import ForewarnError
from features.tables import CORE_TOPOLOGY
from models.doubts import cause_of
from pipelines.api.score_rows import PlainColumns, Rows
from pipelines.flow.publish import LATEST
from pipelines.serving.published import latest_published
from pipelines.serving.score_database import Tick
from pipelines.settings import Settings
from pipelines.storage.in_time import InTime, LateError
from pipelines.storage.store import TableStore

_LOG: Final = logging.getLogger(__name__)
Kind = Literal["node", "gpu"]
Signature = tuple[int, int, int]
LOOK_EVERY_S: Final = 1.0
RETRY_S: Final = 5.0
"""How soon a tick that could not be read is tried again: it may have been cleared away meanwhile"""
RACKS_AGAIN_S: Final = 60.0
"""How soon racks are looked for again that a bucket has not told in time."""
RACKS_LATE: Final = "the topology has not been read in time: core/topology"

UNREADABLE: Final = "the newest published tick cannot be read; the one before it is shown"
_PIECE: Final = 4096
SILENT: Final = ("stale", "no_samples")
"""Causes that mean: nothing came from the exporter."""


@dataclass(frozen=True)
class ScoreTable:
    """The scores of one kind of entity, sorted by entity and horizon.

    Attributes:
        frame: scores/node_scores or scores/gpu_scores of the tick, with `rack` and `cause` (why a
            score is unknown; null where it is known).
        plain: The same as plain columns; requests that may not wait are served from them.
        first: Row at which each entity begins; one more at the end, shape (entities + 1,).
        ranking: By horizon, rows from the highest score down, unknown ones last.
        falling: By horizon, minus the score of each row of the ranking, so that it rises.
        by_node: Rows sorted by node, those of none first.
        on_node: Where in `by_node` each node begins; one more at the end.
    """

    frame: pl.DataFrame
    plain: PlainColumns
    first: Rows
    ranking: Mapping[int, Rows]
    falling: Mapping[int, npt.NDArray[np.float64]]
    by_node: Rows
    on_node: Rows

    @property
    def ids(self) -> list[str]:
        """The entities, sorted, one each."""
        return self.plain.entity_ids

    def rows_of(self, entity_id: str) -> Rows:
        """Numbers of an entity's rows, one per horizon; none for one that is not scored."""
        at = bisect_left(self.ids, entity_id)
        if at >= len(self.ids) or self.ids[at] != entity_id:
            return np.empty(0, dtype=np.int64)
        return np.arange(self.first[at], self.first[at + 1])

    def rows_on(self, node: str) -> Rows:
        """Numbers of the rows of a node's entities."""
        code = self.plain.texts["node"].code_of.get(node)
        if code is None:
            return np.empty(0, dtype=np.int64)
        return self.by_node[self.on_node[code] : self.on_node[code + 1]]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One tick, whole; it is never changed, and another one takes its place.

    Attributes:
        tick: What was published with it.
        nodes: Scores of nodes.
        gpus: Scores of GPUs.
        racks: Rack of each node that has one.
        why_no_racks: Why racks are unknown; empty: they are known.
        etag: Equal for equal answers.
        silent_nodes: Nodes from all of whose GPUs nothing came, sorted.
        unknown: GPUs without a score at the first horizon, by cause.
        kept: Answers made from it, for whoever serves them; bounded by them.
    """

    tick: Tick
    nodes: ScoreTable
    gpus: ScoreTable
    racks: Mapping[str, str]
    why_no_racks: str
    etag: str
    silent_nodes: tuple[str, ...]
    unknown: Mapping[str, int]
    kept: dict[Any, Any] = field(default_factory=dict)

    def table(self, kind: Kind) -> ScoreTable:
        """The scores of a kind."""
        return self.nodes if kind == "node" else self.gpus

    @property
    def horizons_h(self) -> tuple[int, ...]:
        """Horizons that are scored."""
        return tuple(sorted(self.nodes.ranking))

    def node_rows(self, node: str) -> pl.DataFrame:
        """The scores of a node, a row per horizon."""
        return self.nodes.frame[self.nodes.rows_of(node)]

    def gpu_rows(self, gpu_uuid: str) -> pl.DataFrame:
        """The scores of a GPU, a row per horizon."""
        return self.gpus.frame[self.gpus.rows_of(gpu_uuid)]

    def gpus_of(self, node: str) -> pl.DataFrame:
        """The scores of a node's GPUs, sorted by GPU and horizon."""
        return self.gpus.frame[self.gpus.rows_on(node)]

    def is_expired(self, now: datetime) -> bool:
        """Whether it says nothing about the present any more."""
        return now >= self.tick.expires_at


def in_thread(work: Callable[[], None]) -> None:
    """Runs work beside whoever asks."""
    threading.Thread(target=work, name="fleet-view", daemon=True).start()


class FleetView:
    """Gives the newest tick; a new one is read beside, and takes the old one's place at once.

    Args:
        settings: The installation.
        clock: Seconds that only go forward.
        run: Runs the reading of a new tick; tests run it where they stand.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
        run: Callable[[Callable[[], None]], None] = in_thread,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._run = run
        self._snapshot: Snapshot | None = None
        self._seen: Signature | None = None
        self._look_at = float("-inf")
        self._again_at = float("inf")
        self._reading = threading.Lock()
        self.problem = ""

    @property
    def snapshot(self) -> Snapshot | None:
        """The tick that is held now; the folder is not looked at."""
        return self._snapshot

    def current(self) -> Snapshot | None:
        """The newest tick; None: nothing is published.

        Looks for another one at most once a second, and does not wait for it to be read, except
        for the first.
        """
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            if _signature(self._settings.scores_dir) != self._seen or now >= self._again_at:
                if self._snapshot is None:
                    self.refresh()
                else:
                    self._run(self.refresh)
        return self._snapshot

    def refresh(self) -> None:
        """Reads the newest tick now, unless it is being read; what cannot be read is noted."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            seen = _signature(self._settings.scores_dir)
            if seen != self._seen or self._clock() >= self._again_at:
                self._take(seen)
        finally:
            self._reading.release()

    def _take(self, seen: Signature | None) -> None:
        is_read = False
        try:
            self._snapshot = read_snapshot(self._settings)
            is_read = True
        except (ForewarnError, OSError, PolarsError) as error:
            _LOG.error("published scores: %s", error)
        finally:
            # Whatever went wrong, foreseen or not: old scores must not pass for the newest.
            if is_read:
                self._seen, self.problem = seen, ""
                is_late = self._snapshot is not None and self._snapshot.why_no_racks == RACKS_LATE
                self._again_at = self._clock() + RACKS_AGAIN_S if is_late else float("inf")
            else:
                self.problem = UNREADABLE
                self._look_at = self._clock() + RETRY_S


def read_snapshot(settings: Settings) -> Snapshot | None:
    """Reads the newest published tick; None: nothing is published.

    Raises:
        SourceError: It cannot be read, or is not what was published.
    """
    published = latest_published(settings.scores_dir)
    if published is None:
        return None
    nodes, gpus = published.node_scores(), published.gpu_scores()
    racks, why_not = racks_of(settings, at=published.tick.as_of)
    first_h = next((h for h in settings.horizons_h if h in published.tick.model_versions), 0)
    marks = hashlib.sha256(repr((published.tick.digest, sorted(racks.items()))).encode())
    table = score_table(gpus, racks)
    return Snapshot(
        tick=published.tick,
        nodes=score_table(nodes, racks),
        gpus=table,
        racks=racks,
        why_no_racks=why_not,
        etag=marks.hexdigest()[:32],
        silent_nodes=silent_nodes(table.frame),
        unknown=_unknown(table.frame, first_h),
    )


def score_table(frame: pl.DataFrame, racks: Mapping[str, str]) -> ScoreTable:
    """Sorts scores and prepares what they are ranked and filtered by.

    Args:
        frame: scores/node_scores or scores/gpu_scores of one tick.
        racks: Rack of each node that has one.
    """
    places = pl.DataFrame(
        {"node": list(racks), "rack": list(racks.values())},
        schema={"node": pl.String, "rack": pl.String},
    )
    rows = (
        frame.join(places, on="node", how="left", maintain_order="left")
        .with_columns(
            cause=pl.when(pl.col("status") == "unknown").then(cause_of("status_reason")),
        )
        .sort("entity_id", "horizon_h")
        .rechunk()
    )
    runs = rows["entity_id"].rle().struct
    first = np.concatenate([[0], np.cumsum(runs.field("len").to_numpy(), dtype=np.int64)])
    plain = PlainColumns.of(rows, _names(runs.field("value")), first)
    nodes = plain.texts["node"]
    by_node = np.argsort(nodes.codes, kind="stable")
    numbers = np.arange(len(nodes.code_of) + 1, dtype=nodes.codes.dtype)
    ranking = _ranking(plain.horizon_h, plain.numbers["score"])
    return ScoreTable(
        frame=rows,
        plain=plain,
        first=first,
        ranking=ranking,
        falling={h: -plain.numbers["score"][ranked] for h, ranked in ranking.items()},
        by_node=by_node,
        on_node=np.searchsorted(nodes.codes[by_node], numbers),
    )


def _names(column: pl.Series) -> list[str]:
    """A column's texts; in pieces, because no request runs while Python's texts are made."""
    places = range(0, len(column), _PIECE)
    return [name for at in places for name in column.slice(at, _PIECE).to_list()]


def _ranking(horizons: npt.NDArray[np.int32], scores: npt.NDArray[np.float64]) -> dict[int, Rows]:
    """Rows sorted by entity stay so among equal scores."""
    found = {}
    for horizon_h in np.unique(horizons):
        rows = np.flatnonzero(horizons == horizon_h)
        # nan sorts last, which is where unknown belongs.
        found[int(horizon_h)] = rows[np.argsort(-scores[rows], kind="stable")]
    return found


def silent_nodes(gpus: pl.DataFrame) -> tuple[str, ...]:
    """Nodes from all of whose GPUs nothing came.

    Args:
        gpus: GPU scores with `cause`.
    """
    is_silent = pl.col("cause").is_in(SILENT).fill_null(value=False)
    by_node = gpus.filter(pl.col("node").is_not_null()).group_by("node").agg(is_silent.all())
    return tuple(by_node.filter("cause")["node"].sort().to_list())


def _unknown(gpus: pl.DataFrame, horizon_h: int) -> dict[str, int]:
    rows = gpus.filter(pl.col("horizon_h") == horizon_h, pl.col("cause").is_not_null())
    return dict(rows.group_by("cause").len().sort("cause").iter_rows())


def racks_of(settings: Settings, *, at: datetime) -> tuple[dict[str, str], str]:
    """Rack of each node at a moment; and why there is none, empty where there are some."""
    store = TableStore(settings.store_root)

    def read() -> pl.DataFrame | None:
        return store.read(CORE_TOPOLOGY) if store.has(CORE_TOPOLOGY) else None

    try:
        topology = InTime(store.root).read("topology", read)
    except LateError as error:
        _LOG.error("core/topology: %s", error)
        return {}, RACKS_LATE
    except (ForewarnError, OSError, PolarsError) as error:
        _LOG.error("core/topology: %s", error)
        return {}, "the topology cannot be read: core/topology"
    if topology is None:
        return {}, "no topology is stored: core/topology"
    here = topology.filter(
        pl.col("level") == settings.rack_level,
        pl.col("valid_from").is_null() | (pl.col("valid_from") <= at),
        pl.col("valid_to").is_null() | (pl.col("valid_to") > at),
    )
    racks = dict(here.sort("node", "valid_from").select("node", "place").iter_rows())
    return racks, "" if racks else f"the topology has no level {settings.rack_level!r}"


def _signature(folder: Path) -> Signature | None:
    """What changes whenever `LATEST.json` is replaced; None: it is not there."""
    try:
        found = (folder / LATEST).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
