"""core/gpu_telemetry of a span, made day by day: a month at once does not fit in memory.

How rows are built is in `features.core_build`.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import polars as pl

from features.core_build import build_core_telemetry
from features.monitoring_tables import QUARANTINE
from features.raw_tables import RAW_GPU_TELEMETRY
from features.tables import CORE_GPU_TELEMETRY
from pipelines.landing.ingest import landing_of
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

_DAY: Final = timedelta(days=1)


@dataclass
class TelemetryCounts:
    """What became of the raw rows of a span.

    Attributes:
        read: Rows that had landed.
        merged: Repeated samples.
        skipped: Rows without a value.
        rows: Rows stored.
        rejected: Rows refused by the contract.
        generation: The latest reading that the rows rest on.
    """

    read: int = 0
    merged: int = 0
    skipped: int = 0
    rows: int = 0
    rejected: int = 0
    generation: int = 0


def make_core_telemetry(
    settings: Settings, inventory: pl.DataFrame, *, span: Span
) -> TelemetryCounts:
    """Builds and stores telemetry.

    Args:
        settings: Where landed rows and tables are.
        inventory: core/inventory.
        span: Whole hours; they are replaced.

    Returns:
        What was done.

    Raises:
        ForewarnError: As in `TableStore.write`; the days before are stored then.
    """
    landing, store = landing_of(settings), TableStore(settings.store_root)
    # What lands meanwhile may be in the rows; the next look sees it as changed.
    done = TelemetryCounts(generation=landing.journal.generation())
    for day in span.steps(_DAY):
        part = Span(day.start, min(day.end, span.end))
        built = build_core_telemetry(landing.read(RAW_GPU_TELEMETRY, span=part), inventory)
        written = store.write(
            CORE_GPU_TELEMETRY, built.frame, span=part, generation=done.generation
        )
        name = f"core-gpu_telemetry-{part.start:%Y%m%dT%H}-{part.end:%Y%m%dT%H}"
        rejects = built.rejects.with_columns(
            table=pl.lit("core/gpu_telemetry"), source=pl.lit("core_build"), origin=pl.lit(name)
        )
        store.keep_part(QUARANTINE, f"build-{name}", rejects)
        done.read += built.n_read
        done.merged += built.n_merged
        done.skipped += built.n_skipped
        done.rows += written.rows
        done.rejected += written.rejected
    return done
