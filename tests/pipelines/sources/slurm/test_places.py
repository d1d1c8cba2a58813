"""Reservations for maintenance, and switches above nodes."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from features.errors import SourceError
from pipelines.sources.slurm.places import parse_reservations, parse_topology

NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)
RESERVED = (
    "ReservationName=firmware StartTime=2026-01-06T08:00:00 EndTime=2026-01-06T10:00:00 "
    "Duration=02:00:00\n   Nodes=n[1-2] NodeCnt=2 Features=(null) Flags=MAINT,IGNORE_JOBS\n"
    "   Users=root State=ACTIVE\n\n"
)


def reservations(text, zone="UTC"):
    return parse_reservations(text.encode(), origin="f", time_zone=zone, ingested_at=NOW)


def places(text):
    result = parse_topology(text.encode(), origin="f", ingested_at=NOW)
    return result.table("core/topology").select("node", "level", "place").rows()


def test_a_reservation_for_maintenance_is_planned_work():
    work = reservations(RESERVED).table("core/maintenance")
    assert work.select("node", "kind", "reason", pl.col("end") - pl.col("start")).rows() == [
        (node, "maintenance", "reservation firmware", timedelta(hours=2)) for node in ("n1", "n2")
    ]


def test_an_end_that_is_not_told_follows_from_the_duration():
    text = RESERVED.replace("EndTime=2026-01-06T10:00:00", "EndTime=Unknown")
    open_end = text.replace("Duration=02:00:00", "Duration=UNLIMITED")
    ends = [reservations(x).table("core/maintenance")["end"][0] for x in (text, open_end)]
    assert ends == [datetime(2026, 1, 6, 10, tzinfo=UTC), None]


@pytest.mark.parametrize("change", [("MAINT,", ""), ("Nodes=n[1-2]", "Nodes=(null)")])
def test_other_reservations_are_skipped(change):
    result = reservations(RESERVED.replace(*change))
    assert result.table("core/maintenance").is_empty()
    assert result.reads["n_skipped"].to_list() == [1]


def test_no_reservations_are_none():
    assert reservations("No reservations in the system\n").reads["n_read"].to_list() == [0]
    with pytest.raises(SourceError, match="this is no output of scontrol show reservation"):
        reservations("PartitionName=a\n")


def test_nodes_stand_below_their_leaf_switch_and_those_above():
    assert places(
        "# fabric\nSwitchName=s0 Nodes=n[0-1]\nSwitchName=s1 Level=0 Nodes=n2 # new\n"
        "SwitchName=top Level=1 Nodes=n[0-2] Switches=s[0-1]\n"
    ) == [
        ("n0", "switch", "s0"), ("n0", "switch_1", "top"),
        ("n1", "switch", "s0"), ("n1", "switch_1", "top"),
        ("n2", "switch", "s1"), ("n2", "switch_1", "top"),
    ]  # fmt: skip


def test_switches_above_each_other_in_a_circle_end():
    text = "SwitchName=a Nodes=n1\nSwitchName=b Switches=a,c\nSwitchName=c Switches=b\n"
    assert places(text) == [
        ("n1", "switch", "a"), ("n1", "switch_1", "b"), ("n1", "switch_2", "c"),
    ]  # fmt: skip


def test_blocks_are_a_level():
    assert places("BlockName=b1 Nodes=n[1-2]\nBlockSizes=2\n") == [
        ("n1", "block", "b1"), ("n2", "block", "b1"),
    ]  # fmt: skip


def test_a_flat_cluster_has_no_places():
    assert places("") == []
    with pytest.raises(SourceError, match="neither SwitchName= nor BlockName="):
        places("hello\n")


def test_a_switch_with_a_bad_hostlist_is_counted():
    result = parse_topology(
        b"SwitchName=a Nodes=n[1\nSwitchName=b Nodes=n2\n", origin="f", ingested_at=NOW
    )
    assert result.table("core/topology")["node"].to_list() == ["n2"]
    assert result.quarantine["count"].to_list() == [1]
