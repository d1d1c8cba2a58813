"""Rules of the checks: what is odd is found, what is usual or unknown is not."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from features.monitoring_tables import QUARANTINE, READS
from pipelines.orchestration.table_checks import (
    PartStats,
    few_rejected,
    filled,
    freshness,
    label_balance,
    no_drift,
    none_set_aside,
    nothing_lost,
    null_shares,
    unique_keys,
    unknown_share,
    volume,
)

T0 = datetime(2026, 3, 1, tzinfo=UTC)


def part(rows: float, **nulls: float) -> PartStats:
    return PartStats(start=T0, rows=rows, null_shares=nulls)


@pytest.mark.parametrize(("age_h", "is_passed"), [(0, True), (2, True), (2.1, False), (-5, True)])
def test_data_is_fresh_by_its_own_time(age_h: float, is_passed: bool) -> None:
    end = T0 + timedelta(hours=age_h)
    assert freshness(T0, end=end, limit=timedelta(hours=2)).is_passed is is_passed
    assert not freshness(None, end=end, limit=timedelta(hours=2)).is_passed


@pytest.mark.parametrize(
    ("rows", "before", "is_passed"),
    [
        (100, (100, 110, 90), True),
        (51, (100, 100, 100), True),
        (49, (100, 100, 100), False),  # half a fleet fell silent
        (201, (100, 100, 100), False),  # each sample twice
        (0, (100, 100, 100), False),
        (0, (100, 100), True),  # nothing to compare with
        (1, (10, 0, 12), True),  # small counts scatter by themselves
        (100, (0, 100, 100, 100), True),  # one bad day is no usual day
    ],
)
def test_volume_is_held_against_the_usual_hour(
    rows: float, before: tuple[float, ...], is_passed: bool
) -> None:
    assert volume(part(rows), [part(n) for n in before]).is_passed is is_passed


@pytest.mark.parametrize(("rows", "is_passed"), [(5000, True), (1, True), (0, False)])
def test_a_burst_of_events_is_no_wrong_volume_and_silence_is(rows: int, is_passed: bool) -> None:
    found = volume(part(rows), [part(100)] * 4, comes_in_bursts=True)
    assert found.is_passed is is_passed


def test_a_column_that_went_null_is_named() -> None:
    usual = [part(10, power_w=0.0, xid=0.9)] * 3
    assert null_shares(part(40, power_w=0.1, xid=1.0), usual).is_passed
    found = null_shares(part(40, power_w=1.0, xid=0.9), usual)
    assert not found.is_passed
    assert "power_w 100% (usual 0%)" in found.words
    assert null_shares(part(0), usual).is_passed
    assert null_shares(part(3, power_w=1.0), usual).is_passed  # of three rows nothing follows
    assert null_shares(part(40, new=1.0), usual).is_passed  # a column that was not there was null


def test_a_key_that_repeats_is_shown() -> None:
    frame = pl.DataFrame({"id": ["a", "b", "a"]})
    assert unique_keys(frame.head(2), ["id"]).is_passed
    assert unique_keys(frame.clear(), ["id"]).is_passed
    found = unique_keys(frame, ["id"])
    assert not found.is_passed
    assert "{'id': 'a'}" in found.words


@pytest.mark.parametrize(
    ("labels", "is_passed"),
    [
        ([0, 0, 0, 0, 0, 1], True),
        ([1, 1, 0], False),  # a failure is no failure
        ([None, None, 0], False),  # outcomes are unknown
        ([], False),
    ],
)
def test_labels_are_rare_and_known(labels: list[int | None], is_passed: bool) -> None:
    frame = pl.DataFrame({"horizon_h": [24] * len(labels), "label": labels}).cast(
        {"label": pl.Int8, "horizon_h": pl.Int32}
    )
    assert label_balance(frame).is_passed is is_passed


def test_scores_that_most_entities_lack_are_found() -> None:
    frame = pl.DataFrame({"status": ["ok", "ok", "unknown"]})
    assert unknown_share(frame, most=0.4).is_passed
    assert not unknown_share(frame, most=0.1).is_passed
    assert not unknown_share(frame.clear(), most=0.4).is_passed


def test_only_the_newest_week_of_drift_counts() -> None:
    frame = pl.DataFrame(
        {
            "week": [T0, T0 + timedelta(days=7)],
            "is_alarm": [True, False],
            "sentence": ["power rose", "as in training"],
        }
    )
    assert no_drift(frame).is_passed
    assert not no_drift(frame.head(1)).is_passed
    assert no_drift(frame.clear()).is_passed


def test_refused_rows_are_held_against_what_was_read() -> None:
    rows = {
        "table": ["core/jobs", "raw/job_log"],
        "source": ["contract", "sacct"],
        "origin": ["o", "o"],
        "rule": ["end < start", "bad line"],
        "count": [2, 500],
        "example": ["", ""],
    }
    frame = pl.DataFrame(rows, schema=QUARANTINE.schema)
    assert few_rejected(frame, n_read=1000).is_passed
    assert not few_rejected(frame, n_read=100).is_passed


def test_every_record_is_accounted_for() -> None:
    rows = {"source": ["a"], "origin": ["f"], "n_read": [10], "n_parsed": [8], "n_skipped": [2]}
    whole = pl.DataFrame(rows | {"n_quarantined": [0]}, schema=READS.schema)
    assert nothing_lost(whole).is_passed
    assert not nothing_lost(whole.with_columns(n_parsed=pl.lit(7, pl.Int64))).is_passed


def test_hours_set_aside_are_named() -> None:
    assert none_set_aside({}).is_passed
    assert "2026-03-01 00:00 (4)" in none_set_aside({T0: 4}).words


@pytest.mark.parametrize(("rows", "is_passed"), [(None, False), (0, False), (1, True)])
def test_a_table_that_is_kept_whole_has_rows(rows: int | None, is_passed: bool) -> None:
    assert filled(rows).is_passed is is_passed
