"""Node states from records and sightings: nothing overlaps, nothing unseen is called up."""

import random
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from features.core_build import build_node_states
from features.raw_tables import RAW_NODE_STATES

T0 = datetime(2026, 1, 10, tzinfo=UTC)


def at(minutes):
    return None if minutes is None else T0 + timedelta(minutes=minutes)


def seen(minute, state, reason=None, *, node="n", source="scontrol"):
    return row(minute, minute, state, reason, node=node, source=source)


def row(start, end, state, reason=None, *, node="n", source="scontrol", read=10_000):
    return {
        "node": node, "state": state, "reason": reason, "actor": None, "valid_from": at(start),
        "valid_to": at(end), "source": source, "ingested_at": at(read),
    }  # fmt: skip


def build(*rows):
    built = build_node_states(pl.DataFrame(rows, schema=RAW_NODE_STATES.schema))
    counts = built.frame.height + built.n_merged + int(built.rejects["count"].sum())
    assert built.n_read + built.n_added == counts
    return built.frame


def told(frame, node="n"):
    minutes = (pl.col("valid_from", "valid_to") - T0).dt.total_minutes()
    return frame.filter(node=node).select("state", minutes).rows()


def test_repeated_equal_sightings_are_one_interval():
    frame = build(*(seen(5 * k, "IDLE") for k in range(9)))
    assert told(frame) == [("up", 0, None)]


def test_states_that_mean_the_same_are_one_interval():
    frame = build(seen(0, "IDLE"), seen(5, "MIXED"), seen(10, "ALLOCATED+PLANNED"))
    assert told(frame) == [("up", 0, None)]


def test_a_change_is_known_when_it_is_seen():
    frame = build(seen(0, "IDLE"), seen(5, "DOWN*"), seen(10, "DOWN*"), seen(15, "IDLE"))
    assert told(frame) == [("up", 0, 5), ("down", 5, 15), ("up", 15, None)]


def test_time_nobody_saw_is_unknown_and_never_up():
    looks = [0, 5, 10, 60, 65]  # usual: 5 minutes
    frame = build(*(seen(minute, "IDLE") for minute in looks))
    assert told(frame) == [("up", 0, 15), ("unknown", 15, 60), ("up", 60, None)]
    assert frame["reason"].to_list() == [None, "not observed", None]


def test_a_few_missed_looks_are_bridged():
    frame = build(*(seen(minute, "IDLE") for minute in (0, 5, 10, 25, 30)))
    assert told(frame) == [("up", 0, None)]


def test_a_node_that_is_seen_no_more_is_unknown_from_then_on():
    rows = [seen(5 * k, "IDLE", node="other") for k in range(9)]
    frame = build(*rows, seen(0, "IDLE"), seen(5, "IDLE"))
    assert told(frame) == [("up", 0, 10), ("unknown", 10, None)]
    assert told(frame, "other") == [("up", 0, None)]


def test_two_sources_that_look_at_almost_the_same_time_do_not_shorten_the_usual_pause():
    rows = [
        seen(60 * k + offset, "IDLE", source=source)
        for k in range(4)
        for source, offset in (("sinfo", 0), ("scontrol", 1))
    ]
    assert told(build(*rows)) == [("up", 0, None)]


def test_out_of_service_since_the_reason_was_given():
    frame = build(
        seen(0, "IDLE"), row(7, 10, "IDLE+DRAIN", "ecc"), seen(10, "IDLE+DRAIN", "ecc"),
        row(7, 15, "MIXED+DRAIN", "ecc"), seen(15, "MIXED+DRAIN", "ecc"),
    )  # fmt: skip
    assert told(frame) == [("up", 0, 7), ("drain", 7, None)]


def test_a_reason_given_while_nobody_looked_fills_the_gap():
    rows = [seen(minute, "IDLE") for minute in (0, 5, 10)]
    frame = build(*rows, row(30, 90, "DRAIN", "nic"), seen(90, "DRAIN", "nic"))
    assert told(frame) == [("up", 0, 15), ("unknown", 15, 30), ("drain", 30, None)]


def test_the_worst_known_state_holds_where_rows_contradict_each_other():
    frame = build(row(0, 100, "DRAIN", "a"), row(20, 40, "DOWN", "b"), row(30, 120, "UP"))
    assert told(frame) == [("drain", 0, 20), ("down", 20, 40), ("drain", 40, 100), ("up", 100, 120)]


def test_the_end_of_an_event_is_a_return_to_service():
    frame = build(row(0, 10, "DOWN"), row(10, None, "UP"), row(50, None, "DRAIN"))
    assert told(frame) == [("down", 0, 10), ("up", 10, 50), ("drain", 50, None)]


def test_an_event_that_ended_meanwhile_replaces_the_open_one_in_any_order():
    rows = [row(0, None, "DOWN", "x", read=5), row(0, 10, "DOWN", "x", read=20)]
    assert told(build(*rows)) == told(build(*reversed(rows))) == [("down", 0, 10)]


def test_an_interval_that_ends_before_it_begins_is_refused():
    assert build(row(10, 0, "DOWN")).is_empty()


def test_a_state_before_the_record_began_has_no_start():
    assert told(build(row(None, 10, "UP"), row(10, None, "DOWN"))) == [
        ("up", None, 10), ("down", 10, None),
    ]  # fmt: skip


STATES = st.sampled_from(["IDLE", "IDLE+DRAIN", "DOWN*", "idle*", "nonsense"])
SIGHTINGS = st.builds(seen, st.integers(0, 40), STATES, st.sampled_from([None, "r"]))
RECORDS = st.builds(
    lambda start, length, state, reason: row(
        start, None if length is None else start + length, state, reason
    ),
    st.integers(0, 40),
    st.none() | st.integers(1, 20),
    STATES,
    st.none(),
)


@pytest.mark.slow
@given(st.lists(SIGHTINGS | RECORDS, max_size=7), st.integers(0, 5))
def test_intervals_do_not_overlap_and_do_not_depend_on_the_order(rows, seed):
    frame = build(*rows)
    shuffled = random.Random(seed).sample(rows, len(rows))  # noqa: S311 - no secret
    assert_frame_equal(frame, build(*shuffled))
    assert_frame_equal(frame, build(*rows, *rows))  # read twice
    ends = frame.select(pl.col("valid_to").shift(1).over("node"), start="valid_from")
    assert ends.filter(pl.col("valid_to") > pl.col("start")).is_empty()
    for minute in {r["valid_from"] for r in rows}:
        holds = frame.filter(
            pl.col("valid_from") <= minute,
            pl.col("valid_to").is_null() | (pl.col("valid_to") > minute),
        )
        assert holds.height == 1


@pytest.mark.parametrize("state", ["DOWN*", "IDLE+DRAIN"])
def test_a_single_look_says_nothing_of_the_time_before(state):
    assert told(build(seen(5, state)))[0][1] == 5


def test_a_state_seen_during_a_record_ends_with_the_record():
    frame = build(
        row(100, 160, "DOWN", "repair", source="events"),
        *(seen(minute, "IDLE") for minute in (0, 60, 240)),
        seen(120, "DOWN", "repair"),
        seen(180, "IDLE"),
    )
    assert ("down", 100, 160) in told(frame)
    assert [r for r in told(frame) if r[0] == "down"] == [("down", 100, 160)]


def test_a_look_that_knows_since_when_does_not_take_a_records_end_away():
    frame = build(
        row(100, 160, "DOWN", "repair", source="events", read=10),
        row(100, None, "DOWN", "repair", source="scontrol", read=20),
        seen(120, "DOWN", "repair"),
        seen(180, "IDLE"),
    )
    assert [r for r in told(frame) if r[0] == "down"] == [("down", 100, 160)]
