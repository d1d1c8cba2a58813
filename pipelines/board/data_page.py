"""The page of data health: who went silent since when, what was read and refused, ticks, scorer.

Most of it comes from `pipelines.api.site_health`; the score database and the reads are added here.
"""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from features.errors import ForewarnError
from features.monitoring_tables import QUARANTINE, READS
from features.tables import CORE_COVERAGE
from pipelines.board.desk import Desk
from pipelines.board.words import ago
from pipelines.report.words import percent, plain
from pipelines.serving.score_reader import ticks
from pipelines.serving.scorer_status import ScorerStatus, read_status
from pipelines.storage.store import TableStore, scan_files

MOST_SILENT: Final = 200
MOST_TICKS: Final = 48
KEPT_S: Final = 60.0
_COVERAGE_FILES: Final = 3
"""Days of coverage looked at: who is silent longer than that is said to be so."""

CAUSE_WORDS: Final = {
    "failed_input": "its inputs could not be read",
    "failed_model": "the model failed",
    "no_samples": "no sample came at all",
    "stale": "its newest sample is too old",
    "missing_inputs": "too many inputs are missing",
    "out_of_distribution": "inputs unlike anything the model has seen",
    "other": "other",
}


def data_values(desk: Desk, *, now: datetime) -> dict[str, Any]:
    """What the page shows; a part that cannot be read is named, the rest is shown.

    Args:
        desk: What pages are made from.
        now: The present.
    """
    problems: list[str] = []
    health = desk.sources.health.data_health(now)
    status = read_status(desk.sources.settings.scores_dir)
    snapshot = desk.sources.fleet.current()
    store = desk.store

    def kept(name: str, make: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        try:
            return desk.kept.get(name, KEPT_S, lambda: desk.reads.read(name, make))
        except (ForewarnError, OSError, PolarsError) as error:
            problems.append(f"{name}: {error}")
            return []

    silent = kept("silent exporters", lambda: silent_since(store))
    database = "answers"
    try:
        recent = ticks(desk.sources.engine, limit=MOST_TICKS)
    except (ForewarnError, OSError) as error:
        recent, database = [], f"cannot be read: {error}"
    if not recent and database == "answers":
        database = "is empty: `forewarn score` fills it"
    return {
        "health": health,
        "tables": [_table(one, now) for one in health["tables"]],
        "silent": silent[:MOST_SILENT],
        "n_silent": len(silent),
        "silent_nodes": [] if snapshot is None else list(snapshot.silent_nodes[:MOST_SILENT]),
        "n_silent_nodes": 0 if snapshot is None else len(snapshot.silent_nodes),
        "unknown": []
        if snapshot is None
        else [(CAUSE_WORDS.get(c, c), n) for c, n in sorted(snapshot.unknown.items())],
        "reads": kept("records read", lambda: reads_by_source(store)),
        "refusals": kept("refused records", lambda: refusals(store)),
        "scorer": None if status is None else _scorer(status),
        "ticks": [{**asdict(one), "covered": percent(one.coverage)} for one in recent],
        "database": database,
        "problems": problems,
    }


def _scorer(status: ScorerStatus) -> dict[str, Any]:
    """What the scorer's file says, its times as times; null where one is none or has no zone."""
    times = {name: _time(getattr(status, name)) for name in ("started_at", "updated_at", "as_of")}
    return {**asdict(status), **times}


def _time(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else None


def _table(one: dict[str, Any], now: datetime) -> dict[str, Any]:
    until = one["covered_until"]
    return {**one, "age": "" if until is None else ago(until, now)}


def silent_since(store: TableStore) -> list[dict[str, Any]]:
    """Exporters from which nothing came in the last hour, the longest silent first.

    Returns:
        `source`, `entity_kind`, `entity_id`, `since` (last moment covered; null: longer than was
        looked at).
    """
    files = store.files(CORE_COVERAGE)[-_COVERAGE_FILES:]
    if not files:
        return []
    keys = ["source", "entity_kind", "entity_id"]
    rows = scan_files(files)
    newest = rows.select(pl.col("hour").max()).collect().item()
    has_come = pl.col("n_received") > 0
    seen = rows.group_by(keys).agg(
        heard=(has_come & (pl.col("hour") == newest)).any(),
        since=pl.col("watermark").max(),
    )
    silent = seen.filter(~pl.col("heard")).sort("since", *keys, nulls_last=False)
    return silent.drop("heard").collect().to_dicts()


def reads_by_source(store: TableStore) -> list[dict[str, Any]]:
    """Records read by kind of source: parsed, skipped, refused."""
    if not store.has(READS):
        return []
    sums = [pl.col(name).sum() for name in ("n_read", "n_parsed", "n_skipped", "n_quarantined")]
    read = store.read(READS).group_by("source").agg(pl.len().alias("n_origins"), *sums)
    return read.sort("source").to_dicts()


def refusals(store: TableStore) -> list[dict[str, Any]]:
    """Refused records by table and rule, the most frequent first, with an example."""
    if not store.has(QUARANTINE):
        return []
    found = (
        store.read(QUARANTINE)
        .group_by("table", "source", "rule")
        .agg(pl.col("count").sum(), pl.col("example").first())
        .sort(["count", "table", "rule"], descending=[True, False, False])
        .head(50)
    )
    return [
        {**row, "rule": plain(row["rule"]), "example": plain(row["example"])[:200]}
        for row in found.iter_rows(named=True)
    ]
