"""Slow facts as metrics: room on disk, live quality, drift, alerts against their budget.

Scores and the scorer itself are in `open_metrics`; the hook's metrics are in
`remediation.program.metrics`. Nothing is judged here: tables that others made are read.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

import polars as pl
import sqlalchemy as sa
from polars.exceptions import PolarsError
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from features.clock import Clock
from features.errors import ForewarnError
from features.monitoring_tables import DRIFT
from pipelines.serving.place import score_engine
from pipelines.serving.score_reader import alerts_within, latest_tick, live_quality
from pipelines.settings import Settings
from pipelines.storage.in_time import InTime
from pipelines.storage.store import TableStore

KEPT_S: Final = 60.0
"""How long answers of the database and the store are kept: a scrape every few seconds is usual."""

QUALITY_WEEKS: Final = 4
"""Weeks that are added up: one week of a small site has a handful of alerts."""

BUDGET_DAYS: Final = 7
_OUTCOMES: Final = ("hits", "false_alarms", "censored", "misses")


class SiteMetrics:
    """Facts that change by the hour or slower.

    Args:
        settings: The installation.
        reads: Reads of the tables; None: on its own.
        now: Clock.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        now: Clock,
        reads: InTime | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._reads = reads or InTime(settings.store_root)
        self._now = now
        self._clock = clock
        self._lock = threading.Lock()
        self._engine: sa.Engine | None = None
        self._kept: list[Metric] = []
        self._kept_at = float("-inf")

    def collect(self) -> Iterator[Metric]:
        """The metrics; those of database and store are at most a minute old."""
        yield from self._room()
        with self._lock:
            if self._clock() - self._kept_at >= KEPT_S:
                self._kept = [*self._of_database(), *self._of_drift()]
                if not self._reads.is_late:  # else the next look takes what has come meanwhile
                    self._kept_at = self._clock()
            kept = self._kept
        yield from kept

    def _room(self) -> Iterator[Metric]:
        try:
            found = shutil.disk_usage(self._settings.data_root)
        except OSError:
            return
        yield GaugeMetricFamily(
            "forewarn_disk_free_bytes", "Room left where data_root is", value=found.free
        )
        yield GaugeMetricFamily(
            "forewarn_disk_size_bytes", "Size of the disk on which data_root is", value=found.total
        )

    def _of_database(self) -> list[Metric]:
        try:
            self._engine = self._engine or score_engine(self._settings)
            found = [*_quality(live_quality(self._engine)), *self._budget(self._engine)]
        except ForewarnError:
            found, is_readable = [], False
        else:
            is_readable = True
        readable = GaugeMetricFamily(
            "forewarn_score_database_readable",
            "Whether the score database answers",
            value=is_readable,
        )
        return [readable, *found]

    def _budget(self, engine: sa.Engine) -> Iterator[Metric]:
        tick, now = latest_tick(engine), self._now()
        if tick is None or not tick.model_versions:
            return
        raised = alerts_within(engine, start=now - timedelta(days=BUDGET_DAYS), end=now)
        counts = GaugeMetricFamily(
            "forewarn_alerts_raised_7d", "Alerts raised within seven days", labels=("horizon",)
        )
        horizons = sorted(tick.model_versions)
        for horizon_h in horizons:
            counts.add_metric(
                (f"{horizon_h}h",), raised.filter(pl.col("horizon_h") == horizon_h).height
            )
        yield counts
        n_nodes = tick.n_node_rows / len(horizons)
        per_node_day = self._settings.alert_budget_per_1000_node_days / 1000
        yield GaugeMetricFamily(
            "forewarn_alerts_budgeted_7d",
            "Alerts that the budget allows each horizon within seven days",
            value=per_node_day * n_nodes * BUDGET_DAYS,
        )

    def _of_drift(self) -> list[Metric]:
        try:
            return list(_drift(self._reads.read("drift", self._drift_rows)))
        except (ForewarnError, PolarsError, OSError):
            return []  # replaced while it was read, damaged or late: the other metrics go on

    def _drift_rows(self) -> pl.DataFrame:
        store = TableStore(self._settings.store_root)
        return store.read(DRIFT) if store.has(DRIFT) else DRIFT.empty()


def _quality(quality: pl.DataFrame) -> Iterator[Metric]:
    """Alerts of the newest judged weeks by what became of them; none where no week was judged."""
    if quality.is_empty():
        return
    newest: datetime = quality.select(pl.col("week").max()).item()
    recent = quality.filter(pl.col("week") > newest - timedelta(weeks=QUALITY_WEEKS))
    counts = GaugeMetricFamily(
        "forewarn_live_outcomes_4w",
        "Outcomes of the last four judged weeks",
        labels=("horizon", "outcome"),
    )
    for (horizon_h,), rows in sorted(recent.partition_by("horizon_h", as_dict=True).items()):
        for outcome in _OUTCOMES:
            counts.add_metric((f"{horizon_h}h", outcome), int(rows[f"n_{outcome}"].sum()))
    yield counts
    yield GaugeMetricFamily(
        "forewarn_live_week_timestamp_seconds", "Begin of the newest judged week",
        value=newest.timestamp(),
    )  # fmt: skip


def _drift(found: pl.DataFrame) -> Iterator[Metric]:
    """How much of the newest week of each champion someone should look at."""
    if found.is_empty():
        return
    newest = found.filter(pl.col("week") == pl.col("week").max().over("model_version"))
    alarms = GaugeMetricFamily(
        "forewarn_drift_alarms",
        "Inputs, scores or calibration of the newest week that have moved",
        labels=("model_version", "kind"),
    )
    counted = newest.group_by("model_version", "kind").agg(pl.col("is_alarm").sum())
    for version, kind, count in counted.sort("model_version", "kind").iter_rows():
        alarms.add_metric((version, kind), count)
    yield alarms
    yield GaugeMetricFamily(
        "forewarn_drift_week_timestamp_seconds", "Begin of the newest compared week",
        value=newest.select(pl.col("week").max()).item().timestamp(),
    )  # fmt: skip
