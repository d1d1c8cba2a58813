"""Rules of schedules: once a local day whatever the clocks do, and nothing twice."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from dagster._utils.schedules import schedule_execution_time_iterator
from hypothesis import given
from hypothesis import settings as options
from hypothesis import strategies as st

from pipelines.definitions import build_definitions
from pipelines.defs.schedules import days_due, is_outdated
from pipelines.orchestration.hour_plan import Failed
from pipelines.storage.store import Span
from tests.pipelines.defs.site_world import HOUR, T0, world

DAY = timedelta(days=1)


@options(max_examples=40, deadline=None)
@given(
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]),
    month=st.sampled_from([3, 4, 10, 11]),
    hour=st.integers(0, 23),
)
def test_a_daily_hour_comes_once_on_every_local_day(zone: str, month: int, hour: int) -> None:
    start = datetime(2026, month, 1, tzinfo=ZoneInfo(zone))
    ticks = schedule_execution_time_iterator(start.timestamp(), f"0 {hour} * * *", zone)
    days = Counter(next(ticks).astimezone(ZoneInfo(zone)).date() for _ in range(29))
    assert set(days.values()) == {1}
    assert (max(days) - min(days)).days == 28


@pytest.mark.parametrize(
    ("late", "expected"),
    [(timedelta(0), False), (timedelta(hours=25), False), (timedelta(hours=26), True)],
)
def test_a_tick_whose_successor_is_due_is_out_of_date(late: timedelta, expected: bool) -> None:
    assert is_outdated(T0, T0 + late, every=DAY, slack=timedelta(hours=2)) is expected


def test_the_daily_work_labels_counts_and_looks_under_keys_of_the_day(tmp_path: Path) -> None:
    with world(tmp_path, on_disk=True, schedule={"time_zone": "Europe/Berlin"}) as site:
        at = datetime(2026, 3, 6, 2, tzinfo=UTC)
        site.core(0, 121)
        found = {one.run_key: one for one in site.schedule("daily", at=at).run_requests}
        days = [key.partition("/")[0] for key in found]
        assert set(days) == {"2026-03-06"}
        labels = found["2026-03-06/features/labels"]
        assert labels.tags["dagster/asset_partition_range_start"] == "2026-03-01"
        assert labels.tags["dagster/asset_partition_range_end"] == "2026-03-04"
        coverage = found["2026-03-06/core/coverage"]
        assert coverage.tags["dagster/asset_partition_range_end"] == "2026-03-05"
        whole = {"/".join(key.path) for key in found["2026-03-06/whole"].asset_selection or ()}
        assert whole >= {"monitoring/drift", "monitoring/live_quality", "monitoring/reads"}
        late = site.schedule("daily", at=at, now=at + 3 * DAY)
        assert late.skip_message == "a later one is due"


def test_no_day_is_labelled_or_counted_before_its_hours_are_made_up(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.core(0, 30)
        site.core(60, 240)  # the newest stretch comes first after time off
        now = T0 + 10 * DAY + HOUR
        due = days_due(site.settings, now=now)
        assert due == {"core/coverage": Span(T0, T0 + DAY)}
        off = list(Span(T0 + 30 * HOUR, T0 + 60 * HOUR).steps(HOUR))
        failed = [Failed(stage="core", span=hour, at=T0) for hour in off * 3]
        due = days_due(site.settings, now=now, failed=failed)  # set aside: it holds up no other
        assert due["features/labels"] == Span(T0, T0 + 8 * DAY)
        site.core(30, 60)
        assert days_due(site.settings, now=now)["core/coverage"] == Span(T0, T0 + 10 * DAY)


def test_two_days_never_share_a_key_where_a_change_of_clocks_puts_both_on_one_date_of_utc(
    tmp_path: Path,
) -> None:
    local = {"time_zone": "America/New_York", "daily_hour": 19}
    with world(tmp_path, on_disk=True, schedule=local) as site:
        site.core(0, 190)
        ticks = (datetime(2026, 3, 8, 0, tzinfo=UTC), datetime(2026, 3, 8, 23, tzinfo=UTC))
        keys = [one.run_key for at in ticks for one in site.schedule("daily", at=at).run_requests]
        assert len(keys) == len(set(keys))
        assert {key.partition("/")[0] for key in keys} == {"2026-03-07", "2026-03-08"}


def test_nothing_is_trained_without_a_split(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        found = site.schedule("training", at=T0 + 7 * DAY)
        assert found.skip_message == "the settings name no split"


def test_records_are_read_once_an_hour(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        at = T0 + timedelta(minutes=5)
        (request,) = site.schedule("records", at=at).run_requests
        assert request.run_key == "2026-03-01T00:05"
        assert site.schedule("records", at=at, now=at + HOUR).skip_message == "a later one is due"


def test_only_the_parts_that_are_named_run_and_none_where_all_are_kept_off(tmp_path: Path) -> None:
    with world(tmp_path, schedule={"running": ["daily"]}) as site:
        repository = site.served(T0).get_repository_def()
        on = {one.name for one in repository.schedule_defs if one.default_status.value == "RUNNING"}
        on |= {one.name for one in repository.sensor_defs if one.default_status.value == "RUNNING"}
        assert on == {"daily"}
        assert {one.name for one in repository.sensor_defs} >= {
            "hourly",
            "drop_folder",
            "champion_moved",
            "operations_alerts",
        }
        off = build_definitions(site.file, now=T0, is_running=False).get_repository_def()
        every = [*off.schedule_defs, *off.sensor_defs]
        assert {one.default_status.value for one in every} == {"STOPPED"}
