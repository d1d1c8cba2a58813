"""One tick of scoring: from stored tables to published scores, for the loop and for Dagster alike.

Features and scores are computed in the rooms below, through `pipelines.flow.steps`; when a tick is
due and what is told of it are in `score_loop` and `delivery`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from features.catalogue import FaultCatalogue
from features.clock import Clock
from features.errors import DataError
from features.tables import CORE_GPU_TELEMETRY, GPU_SCORES, NODE_SCORES
from models.doubts import cause_of
from pipelines.flow.careful_samples import CarefulSamples
from pipelines.flow.champions import Champions
from pipelines.flow.publish import published_as_of
from pipelines.flow.steps import TICK, gpu_matrix_of, publish_latest, score_matrix
from pipelines.serving.stored_tables import tables_for_scores
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

Say = Callable[[str], None]
_TIME: Final = "%Y-%m-%d %H:%M UTC"


@dataclass(frozen=True, kw_only=True)
class Due:
    """Whether a tick is due.

    Attributes:
        as_of: Its moment; None: nothing is to be scored now.
        why: In words.
    """

    as_of: datetime | None
    why: str


@dataclass(frozen=True, kw_only=True)
class TickReport:
    """What a tick did.

    Attributes:
        as_of: Its moment.
        is_published: Whether its scores are the published ones now.
        n_gpus: GPUs.
        n_nodes: Nodes.
        unknown: GPU rows without a score, by cause.
        model_versions: Model by horizon.
        seconds: Wall time by phase.
        failed_shards: Shards whose telemetry could not be read, with the cause.
    """

    as_of: datetime
    is_published: bool
    n_gpus: int
    n_nodes: int
    unknown: Mapping[str, int]
    model_versions: Mapping[int, str]
    seconds: Mapping[str, float]
    failed_shards: Mapping[int, str] = field(default_factory=dict)

    def words(self) -> str:
        """The tick in one line."""
        unknown = ", ".join(f"{count} {cause}" for cause, count in sorted(self.unknown.items()))
        state = "published" if self.is_published else "not published, a later one is"
        return (
            f"{self.as_of:%Y-%m-%d %H:%M}Z {state}: {self.n_gpus} GPUs, {self.n_nodes} nodes, "
            f"unknown rows: {unknown or 'none'}; {sum(self.seconds.values()):.1f} s"
        )


def due_tick(settings: Settings, *, now: datetime) -> Due:
    """The tick that is due: the last full hour, once its data has come or was waited for.

    Args:
        settings: Where data and scores are, and how long data is waited for.
        now: The present.

    Raises:
        DataError: Scores from the future are published: a clock is wrong.
    """
    published = published_as_of(settings.scores_dir)
    if published is not None and published > now:
        raise DataError(
            f"scores of {published:{_TIME}} are published, but now is {now:{_TIME}}: this clock is "
            f"wrong, or the one that wrote them was. Nothing is scored until then. If this clock "
            f"is right, take them back: forewarn score --discard-future"
        )
    end = settings.data_end(now)
    as_of = end.replace(minute=0, second=0, microsecond=0)
    if as_of <= settings.start:
        return Due(as_of=None, why=f"the record begins at {settings.start:{_TIME}}")
    if published is not None and published >= as_of:
        return Due(as_of=None, why=f"the tick of {published:{_TIME}} is published")
    covered = TableStore(settings.store_root).covered_until(CORE_GPU_TELEMETRY)
    waited = timedelta(minutes=settings.serving.settle_minutes)
    if (covered is None or covered < as_of) and now < as_of + waited:
        return Due(as_of=None, why=f"waiting for data of the hour to {as_of:{_TIME}}")
    return Due(as_of=as_of, why="due")


def score_tick(
    settings: Settings,
    *,
    as_of: datetime,
    now: Clock,
    catalogue: FaultCatalogue,
    champions: Champions,
    say: Say,
) -> TickReport:
    """Scores and publishes one tick.

    Args:
        settings: The installation.
        as_of: The moment, a full hour.
        now: Clock, for when it is published.
        catalogue: Fault catalogue.
        champions: The models, kept from tick to tick.
        say: Told of each phase; it may raise to give the tick up, of which nothing is seen then.

    Returns:
        What was done.

    Raises:
        ForewarnError: Features or scores cannot be computed at all; nothing was published.
    """
    span = Span(as_of - TICK, as_of)
    store = TableStore(settings.store_root)
    watch = _Watch(say)
    watch.begin("features")
    samples = CarefulSamples(store.telemetry)
    tables = tables_for_scores(store, span)
    matrix = gpu_matrix_of(tables, settings, catalogue=catalogue, span=span, samples=samples)
    watch.begin("scores")
    gpu_scores, node_scores = score_matrix(
        matrix, settings, champions=champions, failed=samples.failed_gpus()
    )
    watch.begin("history")
    store.write(GPU_SCORES, gpu_scores, span=span)
    store.write(NODE_SCORES, node_scores, span=span)
    watch.begin("publishing")
    is_published = publish_latest(
        gpu_scores, node_scores, settings=settings, as_of=as_of, now=now(), champions=champions
    )
    watch.begin("")
    return _report_of(
        gpu_scores,
        node_scores,
        as_of=as_of,
        is_published=is_published,
        seconds=watch.seconds,
        failed_shards=samples.failed,
    )


def _report_of(gpu_scores: pl.DataFrame, node_scores: pl.DataFrame, **known: Any) -> TickReport:
    """What a tick did, its counts taken from its scores."""
    versions = gpu_scores.select("horizon_h", "model_version").unique().sort(pl.all())
    return TickReport(
        n_gpus=gpu_scores["entity_id"].n_unique(),
        n_nodes=node_scores["entity_id"].n_unique(),
        unknown=unknown_by_cause(gpu_scores),
        model_versions=dict(versions.iter_rows()),
        **known,
    )


def unknown_by_cause(scores: pl.DataFrame) -> dict[str, int]:
    """Rows without a score, counted by cause.

    Args:
        scores: scores/gpu_scores or scores/node_scores.
    """
    counted = scores.filter(pl.col("status") == "unknown").select(cause_of().alias("cause"))
    return dict(counted["cause"].value_counts().sort("cause").iter_rows())


class _Watch:
    """Wall time by phase."""

    def __init__(self, say: Say) -> None:
        self.seconds: dict[str, float] = {}
        self._say, self._phase, self._began = say, "", time.monotonic()

    def begin(self, phase: str) -> None:
        at = time.monotonic()
        if self._phase:
            self.seconds[self._phase] = at - self._began
        self._phase, self._began = phase, at
        if phase:
            self._say(phase)
