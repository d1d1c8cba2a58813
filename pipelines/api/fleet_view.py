"""The read model: the newest published tick, held in memory until another one is published.

Ranking, filters and pages are in `score_pages`; nothing here knows of HTTP.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import ForewarnError
from features.tables import CORE_TOPOLOGY
from features.vocabulary import FAULT_TYPES, SCORE_STATUSES
from models.doubts import cause_of
from pipelines.publish import LATEST
from pipelines.serving.published import latest_published
from pipelines.serving.score_database import Tick
from pipelines.settings import Settings
from pipelines.store import TableStore

_LOG: Final = logging.getLogger(__name__)
Kind = Literal["node", "gpu"]
Codes = npt.NDArray[np.int32]
Signature = tuple[int, int, int]
LOOK_EVERY_S: Final = 1.0
RETRY_S: Final = 5.0
"""How soon a tick that could not be read is tried again: it may have been cleared away meanwhile"""
NO_CODE: Final = -1
UNREADABLE: Final = "the newest published tick cannot be read; the one before it is shown"
SILENT: Final = ("stale", "no_samples")
"""Causes that mean: nothing came from the exporter."""


@dataclass(frozen=True)
class ScoreTable:
    """The scores of one kind of entity, sorted by entity and horizon.

    Attributes:
        frame: scores/node_scores or scores/gpu_scores of the tick, with `rack` and `cause` (why a
            score is unknown; null where it is known).
        ids: The entities, sorted, one each.
        first: Row at which each entity begins; one more at the end, shape (entities + 1,).
        ranking: By horizon, rows from the highest score down, unknown ones last.
        codes: By column, one number per row to filter by; -1 where the value is null.
        names: By column, the values that the numbers stand for, sorted except for fixed lists.
        scores: Score of each row; nan where unknown.
        by_node: Rows sorted by node, those of none first.
    """

    frame: pl.DataFrame
    ids: pl.Series
    first: npt.NDArray[np.int64]
    ranking: Mapping[int, npt.NDArray[np.int64]]
    codes: Mapping[str, Codes]
    names: Mapping[str, Mapping[str, int]]
    scores: npt.NDArray[np.float64]
    by_node: npt.NDArray[np.int64]

    def rows_of(self, entity_id: str) -> pl.DataFrame:
        """The rows of one entity, one per horizon; none for one that is not scored."""
        at = int(self.ids.search_sorted(entity_id)) if len(self.ids) else 0
        if at >= len(self.ids) or self.ids[at] != entity_id:
            return self.frame.clear()
        start, end = int(self.first[at]), int(self.first[at + 1])
        return self.frame.slice(start, end - start)

    def rows_on(self, node: str) -> pl.DataFrame:
        """The rows of the entities on a node."""
        code = self.names["node"].get(node)
        if code is None:
            return self.frame.clear()
        start, end = np.searchsorted(
            self.codes["node"], [code, code + 1], sorter=self.by_node
        ).tolist()
        return self.frame[self.by_node[start:end]]

    def has(self, entity_id: str) -> bool:
        """Whether an entity is part of the tick."""
        return not self.rows_of(entity_id).is_empty()


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
        return self.nodes.rows_of(node)

    def gpu_rows(self, gpu_uuid: str) -> pl.DataFrame:
        """The scores of a GPU, a row per horizon."""
        return self.gpus.rows_of(gpu_uuid)

    def gpus_of(self, node: str) -> pl.DataFrame:
        """The scores of a node's GPUs, sorted by GPU and horizon."""
        return self.gpus.rows_on(node)

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
            if _signature(self._settings.scores_dir) != self._seen:
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
            if seen != self._seen:
                self._take(seen)
        finally:
            self._reading.release()

    def _take(self, seen: Signature | None) -> None:
        try:
            self._snapshot = read_snapshot(self._settings)
        except (ForewarnError, OSError) as error:
            _LOG.error("published scores: %s", error)
            self.problem = UNREADABLE
            self._look_at = self._clock() + RETRY_S
            return
        self._seen, self.problem = seen, ""


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
    begins = rows["entity_id"].rle().struct.field("len").to_numpy()
    scores = rows["score"].to_numpy().astype(np.float64)
    names = {
        "node": _sorted_names(rows["node"]),
        "rack": _sorted_names(rows["rack"]),
        "status": list(SCORE_STATUSES),
        "fault_type": list(FAULT_TYPES),
    }
    codes = {name: _codes(rows[name], values) for name, values in names.items()}
    return ScoreTable(
        frame=rows,
        ids=rows["entity_id"].unique(maintain_order=True),
        first=np.concatenate([[0], np.cumsum(begins, dtype=np.int64)]),
        ranking=_ranking(rows["horizon_h"].to_numpy(), scores),
        codes=codes,
        names={name: {one: at for at, one in enumerate(values)} for name, values in names.items()},
        scores=scores,
        by_node=np.argsort(codes["node"], kind="stable"),
    )


def _ranking(
    horizons: npt.NDArray[np.int32], scores: npt.NDArray[np.float64]
) -> dict[int, npt.NDArray[np.int64]]:
    """Rows sorted by entity stay so among equal scores."""
    found = {}
    for horizon_h in np.unique(horizons):
        rows = np.flatnonzero(horizons == horizon_h)
        # nan sorts last, which is where unknown belongs.
        found[int(horizon_h)] = rows[np.argsort(-scores[rows], kind="stable")]
    return found


def _sorted_names(values: pl.Series) -> list[str]:
    return values.drop_nulls().unique().sort().to_list()


def _codes(values: pl.Series, names: list[str]) -> Codes:
    coded = values.cast(pl.Enum(names), strict=False).to_physical()
    return coded.cast(pl.Int32).fill_null(NO_CODE).to_numpy().copy()


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
    try:
        topology = TableStore(settings.store_root).read(CORE_TOPOLOGY)
    except ForewarnError:
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
