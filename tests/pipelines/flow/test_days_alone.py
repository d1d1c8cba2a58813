"""The law that one run over three days makes the rows of three runs of a day, in core tables.

Tables without partitions are always made whole, so the law is no matter of theirs.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.contracts import TableContract
from features.core_build import build_core_telemetry, build_health_events
from features.incidents import build_incidents
from features.raw_tables import RAW_COVERAGE, RAW_GPU_TELEMETRY, RAW_KERNEL_LOG
from features.tables import CORE_INVENTORY, CORE_JOBS, CORE_NODE_STATES
from pipelines.landing import ingest
from pipelines.sources.catalogue import load_catalogue
from pipelines.sources.result import as_table
from pipelines.storage.store import Span

CATALOGUE = load_catalogue(None)
T0 = datetime(2026, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)
THREE = Span(T0, T0 + 3 * DAY)
STAYS = as_table(
    CORE_INVENTORY,
    [{"gpu_uuid": "g0", "node": "n0", "pci_bus_id": "0", "valid_from": T0 + DAY}],
)
# Close to midnight, where days meet, or anywhere.
MOMENTS = st.one_of(
    st.tuples(st.integers(0, 3), st.integers(-6, 6)).map(
        lambda at: T0 + at[0] * DAY + timedelta(seconds=at[1])
    ),
    st.integers(-3600, 73 * 3600).map(lambda second: T0 + timedelta(seconds=second)),
)

CLOSE = st.integers(-4, 4).map(lambda second: T0 + DAY + timedelta(seconds=second))
"""As repeats of one event are."""


class Landed:
    """Landed rows in memory."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        tables = {RAW_COVERAGE: "coverage", RAW_GPU_TELEMETRY: "samples", RAW_KERNEL_LOG: "lines"}
        said = {"source": "s", "ingested_at": T0}
        self._frames = {
            table.asset_key: as_table(table, [said | row for row in rows.get(name, [])])
            for table, name in tables.items()
        }

    def read(self, table: TableContract, *, span: Span) -> pl.DataFrame:
        time = pl.col(table.time_column or "")
        return self._frames[table.asset_key].filter(time >= span.start, time < span.end)


SAMPLES = st.lists(
    st.tuples(MOMENTS, st.sampled_from(["g0", "g1"])).map(
        lambda at: {"ts": at[0], "gpu_uuid": at[1], "gpu_temp_c": 40.0}
    ),
    max_size=8,
)
LINES = st.lists(
    st.tuples(st.one_of(CLOSE, MOMENTS), st.just("n0")).map(
        lambda at: {
            "ts": at[0], "node": at[1], "pci_bus_id": "0", "kind": "xid", "code": 79, "line": "x",
        }
    ),
    max_size=8,
)  # fmt: skip
STRETCHES = st.lists(
    st.tuples(MOMENTS, st.integers(0, 30), st.sampled_from([None, 60.0])).map(
        lambda at: {
            "entity_kind": "gpu", "entity_id": "g1", "start": at[0],
            "end": at[0] + timedelta(hours=at[1]), "expected_every_s": at[2],
        }
    ),
    max_size=4,
)  # fmt: skip


def coverage(landed: Landed, span: Span) -> pl.DataFrame:
    site: Any = SimpleNamespace(data_end=lambda at: at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "landing_of", lambda _: landed)
        return ingest.coverage_of(site, STAYS, span)


def health_events(landed: Landed, span: Span) -> pl.DataFrame:
    raw = landed.read(RAW_KERNEL_LOG, span=span)
    return build_health_events(raw, STAYS).frame


def telemetry(landed: Landed, span: Span) -> pl.DataFrame:
    return build_core_telemetry(landed.read(RAW_GPU_TELEMETRY, span=span), STAYS).frame


MADE: dict[str, Callable[[Landed, Span], pl.DataFrame]] = {
    "core/coverage": coverage,
    "core/health_events": health_events,
    "core/gpu_telemetry": telemetry,
}


@pytest.mark.slow
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@given(samples=SAMPLES, lines=LINES, stretches=STRETCHES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_one_run_over_three_days_is_three_runs_of_a_day(
    make: Callable[[Landed, Span], pl.DataFrame],
    samples: list[dict[str, Any]],
    lines: list[dict[str, Any]],
    stretches: list[dict[str, Any]],
) -> None:
    landed = Landed(samples=samples, lines=lines, coverage=stretches)
    whole = make(landed, THREE)
    days = pl.concat([make(landed, day) for day in THREE.steps(DAY)])
    assert whole.sort(whole.columns).equals(days.sort(days.columns))


@pytest.mark.slow
@given(
    start=st.integers(0, DAY // timedelta(seconds=1)),
    hours=st.integers(4, 30),
    pause_s=st.sampled_from([2.0, 3.0, 4.5]),
    left_out=st.sets(st.integers(0, 9), max_size=3),
)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_storm_of_any_length_is_cut_alike_by_runs_of_any_length(
    start: int, hours: int, pause_s: float, left_out: set[int]
) -> None:
    begin, pause = T0 + timedelta(seconds=start), timedelta(seconds=pause_s)
    n_lines = timedelta(hours=hours) // pause
    said = {"node": "n0", "pci_bus_id": "0", "kind": "xid", "code": 79, "line": "x"}
    lines = [said | {"ts": begin + at * pause} for at in range(n_lines) if at % 97 not in left_out]
    landed = Landed(lines=lines)
    whole = health_events(landed, THREE)
    assert whole["count"].sum() == len(lines)
    for step in (DAY, timedelta(hours=6), timedelta(hours=1)):
        runs = [health_events(landed, run) for run in THREE.steps(step)]
        assert pl.concat(runs).sort("ts").equals(whole)
    incidents = build_incidents(
        whole, CORE_NODE_STATES.empty(), CORE_JOBS.empty(), STAYS, catalogue=CATALOGUE
    )
    # One of the GPU, and one of the node while nothing says which GPU it had.
    assert incidents.height == whole["gpu_uuid"].n_unique()
