"""Rules of coverage: what came is counted, and what did not come has a row too."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.coverage import PATIENCE, build_coverage, presence_of, telemetry_records
from features.raw_tables import RAW_COVERAGE, RAW_GPU_TELEMETRY
from features.tables import CORE_INVENTORY
from pipelines.sources.result import as_table

T0 = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RECORDS = pl.Schema(
    {
        "source": pl.String,
        "entity_kind": pl.String,
        "entity_id": pl.String,
        "ts": pl.Datetime("us", "UTC"),
    }
)


def records(*minutes: float, entity: str = "g") -> pl.DataFrame:
    rows = [("s", "gpu", entity, T0 + minute * MINUTE) for minute in minutes]
    return pl.DataFrame(rows, schema=RECORDS, orient="row")


def stretch(first: float, last: float, *, every_s: float | None = None) -> pl.DataFrame:
    row = {
        "entity_kind": "node",
        "entity_id": "n",
        "start": T0 + first * MINUTE,
        "end": T0 + last * MINUTE,
        "expected_every_s": every_s,
        "origin": "n.log",
        "source": "kernel_log",
        "ingested_at": T0,
    }
    return as_table(RAW_COVERAGE, [row])


def coverage(stretches=None, came=None, hours: int = 2, known=None):
    return build_coverage(
        RAW_COVERAGE.empty() if stretches is None else stretches,
        records() if came is None else came,
        start=T0,
        end=T0 + timedelta(hours=hours),
        known=known,
    )


@pytest.mark.parametrize("every_s", [0.0, -1.0, float("nan"), float("inf")])
def test_an_interval_that_is_none_vouches_for_nothing(every_s: float) -> None:
    frame = coverage(stretch(0, 10, every_s=every_s), hours=1)
    assert frame.select("n_expected", "covered_s").rows() == [(None, 600.0)]


def test_a_full_hour_is_covered_and_an_hour_without_a_record_is_a_row_of_zeros() -> None:
    frame = coverage(came=records(*range(60)))
    rows = frame.select("n_received", "n_expected", "covered_s", "longest_gap_s").rows()
    assert rows == [(60, 60, 3600.0, 0.0), (0, 60, 30.0, 3570.0)]
    assert frame["watermark"].to_list() == [T0 + 60 * MINUTE, T0 + 60.5 * MINUTE]


def test_one_late_record_is_no_gap_and_ten_missing_ones_are() -> None:
    late = [0, 1, 2.4, *range(4, 60)]
    missing = [*range(20), *range(30, 60)]
    assert coverage(came=records(*late))["longest_gap_s"][0] < 60
    frame = coverage(came=records(*missing))
    assert frame["longest_gap_s"][0] == 11 * 60 - PATIENCE * 60
    assert frame["covered_s"][0] == 3600 - frame["longest_gap_s"][0]


def test_a_log_that_was_read_and_held_no_event_is_covered() -> None:
    frame = coverage(stretch(-30, 20), hours=1)
    row = frame.select("entity_id", "n_received", "n_expected", "covered_s", "longest_gap_s").row(0)
    assert row == ("n", 0, None, 1200.0, 2400.0)


def test_the_hole_between_two_rotated_logs_is_a_gap() -> None:
    frame = coverage(pl.concat([stretch(0, 10), stretch(25, 60)]), hours=1)
    assert frame.select("covered_s", "longest_gap_s").row(0) == (2700.0, 900.0)


def test_an_entity_seen_before_that_fell_silent_has_a_row() -> None:
    silent = records(0, entity="gone").select("source", "entity_kind", "entity_id")
    frame = coverage(came=records(*range(60)), known=silent, hours=1)
    gone = frame.filter(pl.col("entity_id") == "gone").row(0, named=True)
    assert (gone["n_received"], gone["covered_s"], gone["longest_gap_s"]) == (0, 0.0, 3600.0)
    assert gone["watermark"] is None


def test_the_time_before_a_collector_started_is_a_gap_where_the_node_is_known_to_be_there() -> None:
    presence = pl.DataFrame(
        {"entity_kind": ["node"], "entity_id": ["n"], "first": [None], "last": [None]},
        schema_overrides={"first": RECORDS["ts"], "last": RECORDS["ts"]},
    )
    late = stretch(150, 180)
    assert coverage(late, hours=3)["hour"].to_list() == [T0 + 120 * MINUTE]
    with_gap = build_coverage(
        late, records(), start=T0, end=T0 + timedelta(hours=3), presence=presence
    )
    assert with_gap["covered_s"].to_list() == [0.0, 0.0, 1800.0]


def test_events_are_counted_and_vouch_for_nothing() -> None:
    frame = build_coverage(
        RAW_COVERAGE.empty(), records(), start=T0, end=T0 + 60 * MINUTE, events=records(1, 2, 50)
    )
    assert frame.select("n_received", "covered_s", "n_expected").row(0) == (3, 0.0, None)


def test_an_open_stay_leaves_presence_open() -> None:
    stays = [
        {"gpu_uuid": "g", "node": "a", "valid_from": T0, "valid_to": T0 + MINUTE},
        {"gpu_uuid": "g", "node": "b", "valid_from": T0 + MINUTE},
        {"gpu_uuid": "h", "node": "b", "valid_to": T0},
    ]
    presence = {row[1]: row[2:] for row in presence_of(as_table(CORE_INVENTORY, stays)).rows()}
    assert presence["g"] == (T0, None)
    assert presence["a"] == (T0, T0 + MINUTE)
    assert presence["h"] == (None, T0)
    assert presence["b"] == (None, None)


def test_nothing_known_gives_nothing() -> None:
    assert coverage().is_empty()


def test_telemetry_gives_one_record_per_gpu_source_and_moment() -> None:
    row = {"gpu_uuid": "g", "ts": T0, "source": "dcgm", "ingested_at": T0}
    frame = telemetry_records(as_table(RAW_GPU_TELEMETRY, [row, row]))
    assert frame.rows() == [("dcgm", "gpu", "g", T0)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 179), st.integers(0, 60)), max_size=6))
def test_covered_minutes_are_the_union_of_the_stretches(edges: list[tuple[int, int]]) -> None:
    stretches = [stretch(first, min(first + length, 179)) for first, length in edges]
    frame = coverage(pl.concat([RAW_COVERAGE.empty(), *stretches]), hours=3)
    minutes = {m for first, length in edges for m in range(first, min(first + length, 179))}
    by_hour = dict.fromkeys(range(3), 0) | {}
    for minute in minutes:
        by_hour[minute // 60] += 60
    covered = {
        (hour - T0) // timedelta(hours=1): s for hour, s in frame.select("hour", "covered_s").rows()
    }
    since = min((first // 60 for first, _ in edges), default=3)
    assert covered == {hour: float(s) for hour, s in by_hour.items() if hour >= since}
    gaps = frame.filter(pl.col("longest_gap_s") + pl.col("covered_s") > 3600)
    assert gaps.is_empty()
