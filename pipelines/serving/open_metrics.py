"""Scores and the pipeline's own health as metrics; how many series there are is bounded.

What is shown is read from the published folder, the scorer's status file and the store: this runs
beside the scorer, and goes on telling how old the scores are when that one is dead.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from features.clock import Clock, utc_now
from features.errors import ForewarnError
from features.tables import CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS
from models.doubts import CAUSES
from pipelines.serving.delivery import read_book
from pipelines.serving.published import PublishedTick, latest_published
from pipelines.serving.scorer import unknown_by_cause
from pipelines.serving.scorer_status import ScorerStatus, read_status
from pipelines.serving.site_metrics import SiteMetrics
from pipelines.settings import Settings
from pipelines.storage.in_time import InTime
from pipelines.storage.store import TableStore

_WATERMARKS: Final = (CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS)


class ScoreMetrics:
    """A collector of prometheus_client.

    Args:
        settings: The installation.
        now: Clock.
    """

    def __init__(self, settings: Settings, *, now: Clock = utc_now) -> None:
        self._settings = settings
        self._now = now
        self._of_scores: tuple[str, list[Metric]] = ("", [])
        self._reads = InTime(settings.store_root)
        self._of_site = SiteMetrics(settings, reads=self._reads, now=now)

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        folder = self._settings.scores_dir
        scores: list[Metric] | None = []
        try:
            latest = latest_published(folder)
            if latest is not None:
                scores = self._scores(latest)
        except (ForewarnError, OSError):
            latest, scores = None, None
        yield _gauge(
            "forewarn_scores_readable", "Whether the published folder is", scores is not None
        )
        if latest is not None:
            yield from self._tick(latest)
        yield from scores or ()
        yield from self._alerts(folder)
        yield from self._watermarks()
        status = read_status(folder)
        if status is not None:
            yield from _scorer(status)
        yield from self._of_site.collect()

    def _tick(self, latest: PublishedTick) -> Iterator[Metric]:
        tick, now = latest.tick, self._now()
        at = "_timestamp_seconds"
        yield _gauge(
            f"forewarn_scores_as_of{at}", "Moment of the published scores", tick.as_of.timestamp()
        )
        yield _gauge(
            f"forewarn_scores_published{at}", "When they were", tick.published_at.timestamp()
        )
        yield _gauge("forewarn_scores_age_seconds", "Their age", (now - tick.as_of).total_seconds())
        yield _gauge(
            "forewarn_scores_expired",
            "Whether they say nothing of the present: too old, or of the future",
            not tick.as_of <= now < tick.expires_at,
        )
        yield _gauge("forewarn_scores_coverage_ratio", "Share of scored GPUs", tick.coverage)
        models = GaugeMetricFamily(
            "forewarn_model_info", "Model that scores", labels=("horizon", "model_version")
        )
        for horizon_h, version in sorted(tick.model_versions.items()):
            models.add_metric((f"{horizon_h}h", version), 1)
        yield models

    def _scores(self, latest: PublishedTick) -> list[Metric] | None:
        """Metrics of the scores themselves, read once per tick; None: they cannot be read."""
        digest, known = self._of_scores
        if digest == latest.tick.digest:
            return known
        try:
            nodes, gpus = latest.node_scores(), latest.gpu_scores()
        except ForewarnError:
            # Old numbers under a new tick would be worse than none.
            return None
        made = [*_node_metrics(nodes, top=self._settings.serving.top_nodes), _unknown(gpus)]
        self._of_scores = (latest.tick.digest, made)
        return made

    def _alerts(self, folder: Path) -> Iterator[Metric]:
        try:
            book = read_book(folder)
        except OSError:
            return
        alerts = GaugeMetricFamily("forewarn_alerts_open", "Open alerts", labels=("horizon",))
        for horizon_h in sorted(self._settings.horizons_h):
            count = sum(one.horizon_h == horizon_h for one in book.open)
            alerts.add_metric((f"{horizon_h}h",), count)
        yield alerts
        yield _gauge("forewarn_webhook_waiting_events", "Events still to tell", len(book.outbox))

    def _watermarks(self) -> Iterator[Metric]:
        marks = GaugeMetricFamily(
            "forewarn_ingest_watermark_timestamp_seconds",
            "End of the last stored hour",
            labels=("table",),
        )
        store = TableStore(self._settings.store_root)
        for contract in _WATERMARKS:
            try:
                until = self._reads.read(
                    ("covered", contract.asset_key), partial(store.covered_until, contract)
                )
            except (ForewarnError, OSError):
                continue  # a table that is damaged or late must not take the other metrics with it
            if until is not None:
                marks.add_metric((contract.asset_key,), until.timestamp())
        yield marks


def metrics_registry(settings: Settings, *, now: Clock = utc_now) -> CollectorRegistry:
    """A registry with the metrics of an installation, for a server or `render`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Described(ScoreMetrics(settings, now=now)))
    return registry


def render(registry: CollectorRegistry, *, accept: str = "") -> tuple[bytes, str]:
    """The metrics as text.

    Args:
        registry: From `metrics_registry`; keep it between requests, as it reads a tick once.
        accept: The request's header Accept; OpenMetrics where that asks for it.

    Returns:
        The body, and its content type.
    """
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Described:
    """A collector that is not run to learn its names: nothing is read at registration."""

    def __init__(self, metrics: ScoreMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        return self._metrics.collect()


def _node_metrics(nodes: pl.DataFrame, *, top: int) -> Iterator[Metric]:
    """The highest scores of each horizon, and how many nodes are not named."""
    named = GaugeMetricFamily(
        "forewarn_node_failure_probability",
        "Calibrated probability of a failure within the horizon, highest nodes",
        labels=("node", "horizon"),
    )
    rest = GaugeMetricFamily(
        "forewarn_nodes_not_listed", "Scored nodes with a lower one", labels=("horizon",)
    )
    unknown = GaugeMetricFamily(
        "forewarn_nodes_unknown", "Nodes without a score", labels=("horizon",)
    )
    for (horizon_h,), rows in nodes.partition_by("horizon_h", as_dict=True).items():
        scored = rows.filter(pl.col("score").is_not_null())
        shown = scored.sort(["score", "node"], descending=[True, False]).head(top)
        for node, score in shown.select("node", "score").iter_rows():
            named.add_metric((node, f"{horizon_h}h"), score)
        rest.add_metric((f"{horizon_h}h",), scored.height - shown.height)
        unknown.add_metric((f"{horizon_h}h",), rows.height - scored.height)
    yield from (named, rest, unknown)


def _unknown(gpus: pl.DataFrame) -> Metric:
    found = unknown_by_cause(gpus)
    counts = GaugeMetricFamily(
        "forewarn_gpu_scores_unknown", "GPU scores that are unknown", labels=("cause",)
    )
    for cause in CAUSES:
        counts.add_metric((cause,), found.get(cause, 0))
    return counts


def _scorer(status: ScorerStatus) -> Iterator[Metric]:
    seconds = GaugeMetricFamily(
        "forewarn_tick_duration_seconds", "Wall time of the last tick", labels=("phase",)
    )
    for phase, value in sorted(status.tick_seconds.items()):
        seconds.add_metric((phase,), value)
    yield seconds
    yield CounterMetricFamily("forewarn_ticks", "Ticks scored", value=status.n_ticks)
    yield CounterMetricFamily("forewarn_tick_failures", "Ticks failed", value=status.n_failures)
    yield CounterMetricFamily(
        "forewarn_score_database_errors",
        "Times the score database could not be used",
        value=status.n_database_errors,
    )
    problems = GaugeMetricFamily(
        "forewarn_delivery_failing", "Whether a part failed the last time", labels=("part",)
    )
    for part in ("alerts", "database", "alertmanager", "webhook", "folder", "dagster"):
        problems.add_metric((part,), part in status.problems)
    yield problems
    updated = datetime.fromisoformat(status.updated_at).timestamp()
    yield _gauge("forewarn_scorer_seen_timestamp_seconds", "Last word of the scorer", updated)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)
