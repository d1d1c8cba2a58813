"""Two years of a small site, in hours: files, bytes, databases, memory and time per tick.

Every tick goes through the code of a live site: rows land, core tables, a feature matrix and scores
are stored, scores are published, alerts raised and the score database filled, Dagster is told of
the tick; once a day job records, node states and stays are built anew from all that is kept, and
retention runs. Features and scores themselves are not computed: they do not depend on how long the
site has run. The clock is simulated; ages that come from the machine's own clock (Dagster's
records) are translated.

Run as `python -m benchmarks.growth --out DIR [--every-h 1] [--days 730]`; DIR should be empty. Each
line that it prints is a month; `--table FILE` words such lines for the documentation.
"""

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg
import polars as pl

from features.contracts import TableContract
from features.core_build import build_jobs, build_node_states
from features.inventory import build_stays
from features.raw_tables import (
    RAW_COVERAGE,
    RAW_GPU_TELEMETRY,
    RAW_INVENTORY,
    RAW_JOB_LOG,
    RAW_KERNEL_LOG,
    RAW_NODE_STATES,
    RAW_TRAINING_METRICS,
)
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_NODE_STATES,
    GPU_MATRIX,
    GPU_SCORES,
    LABELS,
    NODE_SCORES,
)
from models.policies.warnings import WarningPolicy
from pipelines.defs.dagster_history import DagsterArea
from pipelines.defs.hourly import OUR_RUN
from pipelines.flow.publish import publish_scores
from pipelines.landing.ingest import landing_of
from pipelines.landing.journal import Reading
from pipelines.landing.landed import reading_id
from pipelines.retention.chores import Area, retain, sizes
from pipelines.retention.landing import LandingArea
from pipelines.retention.records import LeftoversArea, ScoreDatabaseArea
from pipelines.retention.tables import TablesArea
from pipelines.serving.delivery import delivery_of
from pipelines.settings import Settings
from pipelines.sources.result import SourceResult
from pipelines.storage.store import Span, TableStore

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
N_NODES: Final = 8
GPUS: Final = tuple(f"GPU-{number:04d}" for number in range(2 * N_NODES))
POLICY: Final = WarningPolicy(threshold=0.5, n=1, k=1, tick=HOUR, cooldown=6 * HOUR)
MONTHS: Final = (1, 3, 6, 9, 12, 15, 18, 21, 24)


def node_of(gpu: str) -> str:
    """The node of a GPU."""
    return f"n{int(gpu[-4:]) // 2}"


def rows_of(contract: TableContract, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows of a table, null where nothing is said."""
    empty = dict.fromkeys(contract.schema)
    return pl.DataFrame([empty | row for row in rows], schema=contract.schema)


@dataclass
class Site:
    """A site whose every hour is made up.

    Attributes:
        settings: The installation.
        instance: Dagster's.
        every: Time between two ticks.
        ticks: Wall and CPU seconds of each tick of the last week.
        days: Wall seconds of each day's retention of the last week.
        began: Real time at which each simulated day began.
    """

    settings: Settings
    instance: dg.DagsterInstance
    every: timedelta
    ticks: list[tuple[float, float]] = field(default_factory=list)
    days: list[float] = field(default_factory=list)
    began: dict[int, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Opens what a long-lived scorer keeps open."""
        self.store = TableStore(self.settings.store_root)
        self.delivery = delivery_of(self.settings)

    def tick(self, as_of: datetime) -> None:
        """One tick: everything of the hour that ends at `as_of`."""
        wall, cpu = time.perf_counter(), time.process_time()
        span = Span(as_of - HOUR, as_of)
        self._land(span)
        self._build(span)
        gpu_scores, node_scores = self._scores(as_of)
        self.store.write(GPU_SCORES, gpu_scores, span=span)
        self.store.write(NODE_SCORES, node_scores, span=span)
        publish_scores(
            self.settings.scores_dir,
            gpu_scores=gpu_scores,
            node_scores=node_scores,
            published_at=as_of,
            ttl=timedelta(minutes=90),
            policies={24: POLICY},
        )
        self.delivery.run(as_of)
        for name in ("gpu_scores", "node_scores"):
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(["scores", name], partition=f"{span.start:%Y-%m-%d-%H:%M}")
            )
        self.ticks.append((time.perf_counter() - wall, time.process_time() - cpu))

    def day(self, number: int, now: datetime, run: dg.JobDefinition) -> None:
        """The daily work: tables that are built whole, a run of Dagster, retention."""
        self.began[number] = datetime.now(UTC)
        landing = landing_of(self.settings)
        self.store.write(CORE_JOBS, build_jobs(landing.read(RAW_JOB_LOG)).frame)
        states = build_node_states(landing.read(RAW_NODE_STATES)).frame
        self.store.write(CORE_NODE_STATES, states)
        stays = build_stays(landing.read(RAW_INVENTORY), CORE_INVENTORY.empty()).frame
        self.store.write(CORE_INVENTORY, stays)
        labels = [
            {"entity_kind": "gpu", "entity_id": gpu, "as_of": now, "horizon_h": 24, "label": 0}
            for gpu in GPUS
        ]
        rows = [row | {"catalogue_version": "1", "label_version": "1"} for row in labels]
        known = [{k: v for k, v in row.items() if k in LABELS.schema} for row in rows]
        self.store.write(LABELS, rows_of(LABELS, known), span=Span(now - DAY, now))
        self.instance.create_run_for_job(run, status=dg.DagsterRunStatus.SUCCESS, tags=OUR_RUN)
        began = time.perf_counter()
        kept = self.settings.retention.dagster_days
        areas: list[Area] = [
            LandingArea(self.settings, now),
            TablesArea(self.settings, now, grace_s=0),
            ScoreDatabaseArea(self.settings, now),
            LeftoversArea(self.settings),
            DagsterArea(self.instance, self.began.get(number - kept, self.began[min(self.began)])),
        ]
        done = retain(self.settings, areas, now=now)
        if done.problems:
            raise SystemExit(f"retention failed on day {number}: {done.problems}")
        self.days.append(time.perf_counter() - began)

    def _land(self, span: Span) -> None:
        """What a Prometheus, a scheduler and kernel logs would have given for an hour."""
        with landing_of(self.settings).writer() as writer:
            for source, tables in self._given(span):
                name = reading_id(how=source, what=span.start.isoformat())
                reading = Reading(name, input=source, source=source, origin=source, window=span)
                writer.add(reading, [SourceResult(tables)], landed_at=span.end)

    def _given(self, span: Span) -> Iterator[tuple[str, dict[str, pl.DataFrame]]]:
        said = {"source": "prometheus", "ingested_at": span.end}
        samples = [
            {"gpu_uuid": gpu, "ts": span.start + minute * timedelta(minutes=1), "gpu_temp_c": 50.0}
            | {"node": node_of(gpu), "power_w": 400.0}
            | said
            for gpu in GPUS
            for minute in (0, 30)
        ]
        sights = [
            {"ts": span.start, "gpu_uuid": gpu, "node": node_of(gpu), "slot": gpu[-1]} | said
            for gpu in GPUS
        ]
        covered = [
            {
                "entity_kind": "gpu",
                "entity_id": gpu,
                "start": span.start,
                "end": span.end - HOUR / 60,
            }
            | {"expected_every_s": 60.0, "origin": "prometheus"}
            | said
            for gpu in GPUS
        ]
        yield (
            "prometheus",
            {
                RAW_GPU_TELEMETRY.asset_key: rows_of(RAW_GPU_TELEMETRY, samples),
                RAW_INVENTORY.asset_key: rows_of(RAW_INVENTORY, sights),
                RAW_COVERAGE.asset_key: rows_of(RAW_COVERAGE, covered),
            },
        )
        yield "slurm", self._scheduler_rows(span)
        yield "logs", self._log_rows(span)

    def _scheduler_rows(self, span: Span) -> dict[str, pl.DataFrame]:
        said = {"source": "slurm", "ingested_at": span.end}
        number = (span.start - START) // HOUR
        jobs = [
            {"job_id": str(10 * number + one), "user": f"user{one}", "state": "COMPLETED"}
            | {"submit": span.start, "start": span.start, "end": span.end, "nodes": [f"n{one}"]}
            | {"job_name": "train", "n_gpus": 2}
            | said
            for one in range(3)
        ]
        states = [
            {"node": f"n{node}", "state": "idle", "valid_from": span.start, "valid_to": span.start}
            | said
            for node in range(N_NODES)
        ]
        metrics = [
            {"job_id": str(10 * number), "step": step, "ts": span.start, "loss": 2.0} | said
            for step in range(4)
        ]
        return {
            RAW_JOB_LOG.asset_key: rows_of(RAW_JOB_LOG, jobs),
            RAW_NODE_STATES.asset_key: rows_of(RAW_NODE_STATES, states),
            RAW_TRAINING_METRICS.asset_key: rows_of(RAW_TRAINING_METRICS, metrics),
        }

    def _log_rows(self, span: Span) -> dict[str, pl.DataFrame]:
        line = {"node": "n0", "ts": span.start, "kind": "xid", "code": 31, "line": "Xid 31"}
        said = {"source": "kernel_log", "ingested_at": span.end}
        return {RAW_KERNEL_LOG.asset_key: rows_of(RAW_KERNEL_LOG, [line | said])}

    def _build(self, span: Span) -> None:
        """Core tables and matrix of the hour; a row is refused now and then."""
        samples = [
            {"gpu_uuid": gpu, "ts": span.start, "node": node_of(gpu), "gpu_temp_c": 50.0}
            for gpu in GPUS
        ]
        self.store.write(CORE_GPU_TELEMETRY, rows_of(CORE_GPU_TELEMETRY, samples), span=span)
        hour = f"{span.start:%Y%m%dT%H}"
        event = {"event_id": hour, "ts": span.start, "node": "n0", "kind": "xid", "count": 1}
        bad = event | {"event_id": f"{hour}-bad", "count": -1}
        self.store.write(CORE_HEALTH_EVENTS, rows_of(CORE_HEALTH_EVENTS, [event, bad]), span=span)
        matrix = [
            {"entity_kind": "gpu", "entity_id": gpu, "as_of": span.end, "node": node_of(gpu)}
            for gpu in GPUS
        ]
        known = set(GPU_MATRIX.schema)
        rows = [{name: value for name, value in row.items() if name in known} for row in matrix]
        frame = rows_of(GPU_MATRIX, rows)
        features = [
            pl.lit(float(one)).cast(pl.Float32).alias(f"gpu_temp_c_f{one}") for one in range(20)
        ]
        self.store.write(GPU_MATRIX, frame.with_columns(features), span=span)

    def _scores(self, as_of: datetime) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Scores that wander, so that history and alerts grow as on a live site."""
        hour = (as_of - START) // HOUR
        frames = []
        for contract, kind, names in (
            (GPU_SCORES, "gpu", GPUS),
            (NODE_SCORES, "node", tuple(f"n{node}" for node in range(N_NODES))),
        ):
            rows = [
                {
                    "entity_kind": kind,
                    "entity_id": name,
                    "node": node_of(name) if kind == "gpu" else name,
                    "as_of": as_of,
                    "horizon_h": 24,
                    "score": ((hour * (place + 7)) % 101) / 150,
                    "status": "ok",
                    "reasons": ["made up"],
                    "missing_share": 0.0,
                    "model_version": f"gpu-failure-24h/{1 + hour // 720}",
                    "trained_on": "synthetic",
                }
                for place, name in enumerate(names)
            ]
            frames.append(rows_of(contract, rows))
        return frames[0], frames[1]


def settings_of(out: Path) -> Settings:
    """A site with the default windows, but history and outcomes, which are to be full in time."""
    (out / "inputs.yaml").write_text(
        "site: growth\ntime_zone: UTC\ninputs:\n"
        "  - {kind: kernel_log, path: 'logs/*.log', may_be_absent: true}\n"
    )
    return Settings.model_validate(
        {
            "site": "growth",
            "inputs": out / "inputs.yaml",
            "data_root": out / "data",
            "start": START,
            "horizons_h": (24,),
            "retention": {"history_days": 580, "outcomes_days": 400},
        }
    )


def measured(site: Site, month: int) -> dict[str, Any]:
    """What there is after a month."""
    gc.collect()
    found = sizes(site.settings.data_root)
    week = site.ticks[-7 * int(DAY / site.every) :]
    home = Path(site.instance.root_directory)
    dagster = [path.stat().st_size for path in home.rglob("*") if path.is_file()]
    return {
        "month": month,
        "files": sum(files for files, _ in found.values()),
        "MB": sum(size for _, size in found.values()) / 1e6,
        "landing_MB": found["landing"][1] / 1e6,
        "journal_MB": (site.settings.landing_root / "journal.sqlite").stat().st_size / 1e6,
        "tables_MB": sum(found[name][1] for name in found if name.startswith("tables/")) / 1e6,
        "scores_db_MB": (site.settings.data_root / "scores.db").stat().st_size / 1e6,
        "dagster_MB": sum(dagster) / 1e6,
        "rss_MB": _rss_mb(),
        "tick_wall_s": statistics.median(wall for wall, _ in week),
        "tick_cpu_ms": 1000 * statistics.median(cpu for _, cpu in week),
        "retention_s": statistics.median(site.days[-7:]),
        "load": os.getloadavg()[0],
    }


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


COLUMNS: Final = {
    "month": ("month", "{}"),
    "files": ("files", "{:,}"),
    "MB": ("MB", "{:,.1f}"),
    "landing_MB": ("landing, MB", "{:,.1f}"),
    "tables_MB": ("tables, MB", "{:,.1f}"),
    "scores_db_MB": ("score database, MB", "{:,.1f}"),
    "dagster_MB": ("Dagster, MB", "{:,.1f}"),
    "rss_MB": ("memory, MB", "{:.0f}"),
    "tick_cpu_ms": ("tick, CPU ms", "{:.0f}"),
}


def as_table(lines: list[str]) -> str:
    """The printed lines as a table in Markdown."""
    rows = [[title for title, _ in COLUMNS.values()], ["--:"] * len(COLUMNS)]
    for line in lines:
        found = json.loads(line)
        rows.append([form.format(found[name]) for name, (_, form) in COLUMNS.items()])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


@dg.op
def nothing() -> None:
    """Does nothing: only the records of runs are wanted."""


@dg.job
def daily() -> None:
    """A run to be recorded."""
    nothing()


def main() -> None:
    """Simulates, and prints a line of JSON per month that is listed."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, default=Path("growth"))
    asked.add_argument("--table", type=Path, help="only print these lines as a table")
    asked.add_argument("--every-h", type=int, default=1)
    asked.add_argument("--days", type=int, default=730)
    given = asked.parse_args()
    if given.table:
        print(as_table(given.table.read_text(encoding="utf-8").splitlines()))
        return
    home = given.out / "dagster"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    every = timedelta(hours=given.every_h)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        site = Site(settings_of(given.out), instance, every)
        for number in range(given.days):
            midnight = START + number * DAY
            for step in range(1, int(DAY / every) + 1):
                site.tick(midnight + step * every)
            site.day(number, midnight + DAY, daily)
            month, rest = divmod((number + 1) * 24, 730)
            if rest < 24 and month in MONTHS:
                print(json.dumps(measured(site, month)), flush=True)


if __name__ == "__main__":
    main()
