"""Rules of partitions and their storage: UTC hours without holes, frames whatever the range."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import polars as pl
import pytest

from features.errors import DataError
from features.tables import CORE_HEALTH_EVENTS, CORE_TOPOLOGY
from pipelines.defs.io import ParquetTables
from pipelines.defs.partitions import ONE_RUN, partitions_of
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

HOUR = timedelta(hours=1)


def settings(start: datetime, end: datetime, **changes: Any) -> Settings:
    values: dict[str, Any] = {"site": "lab", "inputs": "i", "data_root": "d"}
    return Settings.model_validate(values | {"start": start, "end": end} | changes)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", (2026, 10, 25), 25),  # the hour that comes twice
        ("Europe/Berlin", (2026, 3, 29), 23),  # the hour that is left out
        ("America/New_York", (2026, 11, 1), 25),
        ("UTC", (2026, 10, 25), 24),
    ],
)
def test_every_hour_of_a_local_day_is_one_partition(
    zone: str, day: tuple[int, int, int], hours: int
) -> None:
    start = datetime(*day, tzinfo=ZoneInfo(zone))
    end = start + timedelta(days=1)  # of the wall clock
    data = partitions_of(settings(start, end)).data
    keys = data.get_partition_keys()
    assert len(keys) == len(set(keys)) == hours
    windows = [data.time_window_for_partition_key(key) for key in keys]
    assert windows[0].start.astimezone(UTC) == start.astimezone(UTC)
    assert windows[-1].end.astimezone(UTC) == end.astimezone(UTC)
    assert all(a.end == b.start for a, b in itertools.pairwise(windows))


def test_a_record_that_starts_at_half_past_an_hour_of_utc_is_refused_in_words() -> None:
    start = datetime(2026, 1, 5, tzinfo=ZoneInfo("Asia/Kolkata"))  # 18:30 UTC
    with pytest.raises(ValueError, match="must be full hours"):
        settings(start, start + timedelta(days=1))


def events(*hours: int) -> pl.DataFrame:
    rows = [
        dict.fromkeys(CORE_HEALTH_EVENTS.schema)
        | {"event_id": f"e{hour}", "ts": datetime(2026, 1, 5, hour, 30, tzinfo=UTC), "node": "n"}
        | {"kind": "xid", "count": 1}
        for hour in hours
    ]
    return pl.DataFrame(rows, schema=CORE_HEALTH_EVENTS.schema)


@pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")  # backfill_policy
@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 3)])
def test_one_partition_and_many_are_loaded_as_one_frame(
    tmp_path: Path, first: int, last: int
) -> None:
    cut = dg.HourlyPartitionsDefinition(datetime(2026, 1, 5, tzinfo=UTC))
    loaded: list[pl.DataFrame] = []

    @dg.asset(key=["core", "health_events"], partitions_def=cut, backfill_policy=ONE_RUN)
    def upstream(context: dg.AssetExecutionContext) -> pl.DataFrame:
        return events(*range(first, last))

    @dg.asset(ins={"rows": dg.AssetIn(["core", "health_events"])}, io_manager_key="nothing")
    def unpartitioned(rows: pl.DataFrame) -> None:
        loaded.append(rows)

    keys = [f"2026-01-05-{hour:02}:00" for hour in range(first, last)]
    result = dg.materialize(
        [upstream],
        resources={"io_manager": ParquetTables(root=str(tmp_path), landing_root=str(tmp_path))},
        tags={
            "dagster/asset_partition_range_start": keys[0],
            "dagster/asset_partition_range_end": keys[-1],
        },
    )
    assert result.success
    store = TableStore(tmp_path)
    dg.materialize(
        [unpartitioned, upstream],
        selection=[unpartitioned],
        resources={
            "io_manager": ParquetTables(root=str(tmp_path), landing_root=str(tmp_path)),
            "nothing": dg.mem_io_manager,
        },
    )
    assert [frame.height for frame in loaded] == [last - first]
    assert loaded[0].equals(store.read(CORE_HEALTH_EVENTS))


def test_a_span_of_which_nothing_is_stored_is_an_error_and_not_an_empty_table(
    tmp_path: Path,
) -> None:
    store = TableStore(tmp_path)
    span = Span(datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 5, 1, tzinfo=UTC))
    store.write(CORE_HEALTH_EVENTS, events(0), span=span)
    later = Span(span.end, span.end + HOUR)
    with pytest.raises(DataError, match="nothing is stored between"):
        store.read(CORE_HEALTH_EVENTS, span=later)


def test_a_core_table_is_loaded_as_it_was_built_and_not_as_servers_told_it(tmp_path: Path) -> None:
    """Places land too: what the consumer gets is the built table, with the site's own records."""
    built = pl.DataFrame(
        [{"node": "n1", "level": "rack", "place": "r1", "valid_from": None, "valid_to": None}],
        schema=CORE_TOPOLOGY.schema,
    )
    loaded: list[pl.DataFrame] = []

    @dg.asset(key=["core", "topology"])
    def places() -> pl.DataFrame:
        return built

    @dg.asset(ins={"rows": dg.AssetIn(["core", "topology"])}, io_manager_key="nothing")
    def consumer(rows: pl.DataFrame) -> None:
        loaded.append(rows)

    tables = ParquetTables(root=str(tmp_path / "tables"), landing_root=str(tmp_path / "landing"))
    resources = {"io_manager": tables, "nothing": dg.mem_io_manager}
    assert dg.materialize([places, consumer], resources=resources).success
    assert loaded[0].equals(built)
