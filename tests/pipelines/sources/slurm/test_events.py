"""slurmdbd's record of outages: exact bounds, returns, and what is no outage."""

from datetime import UTC, datetime

import polars as pl
import pytest

from features.core_build import build_node_states
from features.errors import SourceError
from pipelines.sources.slurm.events import parse_events

NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)
HEADER = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
DAY = "2026-01-05T"


def parse(*lines, zone="UTC"):
    data = "\n".join([HEADER, *lines]).encode()
    return parse_events(data, origin="f", time_zone=zone, ingested_at=NOW)


def told(result):
    states = build_node_states(result.table("raw/node_states")).frame
    return states.select(
        "node", "state", "reason", pl.col("valid_from", "valid_to").dt.hour()
    ).rows()


def test_an_outage_has_exact_bounds_and_its_end_is_a_return():
    result = parse(f"c|n[1-2]|{DAY}01:00:00|{DAY}03:00:00|DRAIN|bad | nic|root(0)")
    assert told(result) == [
        ("n1", "drain", "bad | nic", 1, 3), ("n1", "up", None, 3, None),
        ("n2", "drain", "bad | nic", 1, 3), ("n2", "up", None, 3, None),
    ]  # fmt: skip
    assert result.table("raw/node_states")["actor"][0] == "root"


def test_an_outage_that_goes_on_has_no_end():
    assert told(parse(f"c|n1|{DAY}01:00:00|Unknown|DOWN*|XID 79|root(0)")) == [
        ("n1", "down", "XID 79", 1, None)
    ]


def test_drained_then_down_is_two_states_without_a_return_between():
    result = parse(
        f"c|n1|{DAY}01:00:00|{DAY}02:00:00|DRAIN|a|root(0)",
        f"c|n1|{DAY}02:00:00|{DAY}05:00:00|DOWN|b|root(0)",
    )
    assert [row[1:] for row in told(result)] == [
        ("drain", "a", 1, 2), ("down", "b", 2, 5), ("up", None, 5, None),
    ]  # fmt: skip


def test_events_of_the_cluster_and_those_without_length_are_skipped():
    result = parse(
        f"c||{DAY}01:00:00|Unknown||Cluster Registered TRES|",
        f"c|n1|{DAY}01:00:00|{DAY}01:00:00|UNK|cold-start|root(0)",
        HEADER,
        "",
    )
    assert result.table("raw/node_states").is_empty()
    assert result.reads.select("n_read", "n_skipped").rows() == [(4, 4)]


def test_a_reason_may_hold_line_breaks():
    result = parse(f"c|n1|{DAY}01:00:00|Unknown|DOWN|two\nlines|root(0)")
    assert told(result) == [("n1", "down", "two\nlines", 1, None)]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (f"c|n1|Unknown|{DAY}01:00:00|DOWN|x|u", "without a start"),
        (f"c|n1|{DAY}02:00:00|{DAY}01:00:00|DOWN|x|u", "ends before it starts"),
        (f"c|n1|{DAY}02:00:00|Unknown||x|u", "without a state"),
        (f"c|n[1|{DAY}02:00:00|Unknown|DOWN|x|u", "not a hostlist"),
        ("c|n1|soon|Unknown|DOWN|x|u", "not a time"),
        ("c|n1", "7 columns expected"),
    ],
)
def test_an_event_that_is_refused_says_why(line, rule):
    quarantine = parse(line).quarantine
    assert quarantine["count"].to_list() == [1]
    assert rule in quarantine["rule"][0]


def test_what_is_no_list_of_events_is_one_clear_error():
    with pytest.raises(SourceError, match="column NodeName is missing.*sacctmgr -P list event"):
        parse_events(b"JobID|State\n", origin="f", time_zone="UTC", ingested_at=NOW)
