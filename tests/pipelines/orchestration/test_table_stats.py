"""Rule of counts from footers: they say what reading the rows says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from features.tables import CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS, CORE_TOPOLOGY
from pipelines.orchestration.table_stats import filled_until, newest_parts, part_stats, rows_of
from pipelines.storage.store import Span, TableStore

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
T0 = datetime(2026, 3, 1, tzinfo=UTC)


def events(start: datetime, n: int) -> pl.DataFrame:
    rows = [
        dict.fromkeys(CORE_HEALTH_EVENTS.schema)
        | {"event_id": f"{start:%d%H}-{i}", "ts": start, "node": "n", "kind": "xid", "count": 1}
        | ({"code": 79} if i % 2 else {})
        for i in range(n)
    ]
    return pl.DataFrame(rows, schema=CORE_HEALTH_EVENTS.schema)


def telemetry(start: datetime, n: int) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            "gpu_uuid": [f"g{i}" for i in range(n)],
            "ts": [start] * n,
            "power_w": [100.0] * n,
        },
        schema_overrides={"ts": pl.Datetime("us", "UTC"), "power_w": pl.Float32},
    )
    missing = dict(CORE_GPU_TELEMETRY.schema.items())
    return frame.with_columns(
        pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in missing.items()
        if name not in frame.columns
    ).select(CORE_GPU_TELEMETRY.schema.names())


@pytest.mark.parametrize("n", [0, 1, 4])
def test_the_newest_hour_is_told_with_the_same_hour_of_the_days_before(
    tmp_path: Path, n: int
) -> None:
    store = TableStore(tmp_path)
    for start, rows in ((T0, 2), (T0 + DAY, 3), (T0 + DAY + HOUR, 9), (T0 + 2 * DAY, n)):
        store.write(CORE_HEALTH_EVENTS, events(start, rows), span=Span(start, start + HOUR))
    newest, before = newest_parts(store, CORE_HEALTH_EVENTS)
    assert newest is not None
    assert (newest.start, newest.rows) == (T0 + 2 * DAY, n)
    assert [one.rows for one in before] == [2, 3]
    if n:
        read = store.read(CORE_HEALTH_EVENTS, span=Span(T0 + 2 * DAY, T0 + 2 * DAY + HOUR))
        shares = {c.name: c.null_count() / n for c in read}
        assert {k: newest.null_shares[k] for k in shares} == shares


def test_a_metric_of_telemetry_without_a_value_is_wholly_null(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.write(CORE_GPU_TELEMETRY, telemetry(T0, 3), span=Span(T0, T0 + HOUR))
    found = part_stats(store, CORE_GPU_TELEMETRY, T0)
    assert found is not None
    assert found.rows == 3
    assert found.null_shares["power_w"] == 0
    assert found.null_shares["gpu_temp_c"] == 1
    assert part_stats(store, CORE_GPU_TELEMETRY, T0 + HOUR) is None


def test_rows_of_a_whole_table_and_of_none(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    assert rows_of(store, CORE_TOPOLOGY) is None
    store.write(CORE_TOPOLOGY, CORE_TOPOLOGY.empty())
    assert rows_of(store, CORE_TOPOLOGY) == 0
    assert newest_parts(store, CORE_HEALTH_EVENTS) == (None, [])


def test_hours_in_which_a_source_was_silent_make_no_table_young(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    assert filled_until(store, CORE_GPU_TELEMETRY, reach=2 * HOUR) is None
    store.write(CORE_GPU_TELEMETRY, telemetry(T0, 3), span=Span(T0, T0 + HOUR))
    for hour in (1, 2):
        span = Span(T0 + hour * HOUR, T0 + (hour + 1) * HOUR)
        store.write(CORE_GPU_TELEMETRY, CORE_GPU_TELEMETRY.empty(), span=span)
    assert store.covered_until(CORE_GPU_TELEMETRY) == T0 + 3 * HOUR
    assert filled_until(store, CORE_GPU_TELEMETRY, reach=2 * HOUR) == T0 + HOUR
    assert filled_until(store, CORE_GPU_TELEMETRY, reach=HOUR) is None
