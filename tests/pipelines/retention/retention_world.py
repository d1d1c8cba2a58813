"""A small site for the tests of retention: what lands, what is built, an area that counts.

The rules are in `test_retention` and `test_retention_safety`.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from features.raw_tables import RAW_JOB_LOG, RAW_KERNEL_LOG
from features.tables import CORE_HEALTH_EVENTS
from pipelines.landing.ingest import landing_of
from pipelines.landing.journal import Reading
from pipelines.landing.landed import reading_id
from pipelines.retention.chores import Change, Chore
from pipelines.settings import Settings
from pipelines.sources.result import SourceResult
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = T0 + 40 * DAY


def settings_of(folder: Path, **changes: Any) -> Settings:
    (folder / "inputs.yaml").write_text(
        "site: lab\ntime_zone: UTC\ninputs:\n"
        "  - {kind: kernel_log, path: 'logs/*.log', may_be_absent: true}\n"
    )
    values = {"site": "lab", "inputs": folder / "inputs.yaml", "data_root": folder / "data"}
    return Settings.model_validate(values | {"start": T0, "horizons_h": (24,)} | changes)


def frame(contract: Any, *rows: dict[str, Any]) -> pl.DataFrame:
    empty = dict.fromkeys(contract.schema)
    return pl.DataFrame([empty | row for row in rows], schema=contract.schema)


def land(site: Settings, day: int, *, window: bool = True, origin: str = "server") -> None:
    """A kernel line and a job of a day."""
    at, said = T0 + day * DAY, {"source": "x", "ingested_at": T0 + day * DAY}
    given = {
        "raw/kernel_log": frame(RAW_KERNEL_LOG, {"ts": at, "kind": "xid", "line": "x"} | said),
        "raw/job_log": frame(
            RAW_JOB_LOG, {"job_id": str(day), "state": "FAILED", "end": at} | said
        ),
    }
    named = Reading(
        reading_id(how="", what=f"{day} {origin}"),
        input="in",
        source="x",
        origin=origin,
        content=None if window else "hash",
        window=Span(at, at + DAY) if window else None,
    )
    with landing_of(site).writer() as writer:
        writer.add(named, [SourceResult(given)], landed_at=at)


def build(site: Settings, day: int) -> None:
    """core/health_events of a whole day."""
    span = Span(T0 + day * DAY, T0 + (day + 1) * DAY)
    TableStore(site.store_root).write(
        CORE_HEALTH_EVENTS, CORE_HEALTH_EVENTS.empty(), span=span, generation=1
    )


def days_landed(site: Settings) -> list[int]:
    return [(at - T0).days for at in landing_of(site).read(RAW_KERNEL_LOG)["ts"]]


@dataclass
class CountingArea:
    """An area that counts its chores."""

    made: int = 0
    name: str = "counting"

    def chores(self) -> list[Chore]:
        return [Chore(Change(table="t", what="removes one", n_rows=1), self._make)]

    def at_work(self) -> AbstractContextManager[object]:
        return nullcontext()

    def _make(self) -> None:
        self.made += 1
