"""Looks at Slurm's nodes: scontrol and sinfo, in the forms they are printed in."""

from datetime import UTC, datetime

import polars as pl
import pytest

from features.errors import SourceError
from pipelines.sources.slurm.nodes import parse_scontrol_nodes, parse_sinfo

NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)
ABOUT = {"origin": "f", "seen_at": NOW, "ingested_at": NOW, "time_zone": "UTC"}
SHOWN = """NodeName=n1 Arch=x86_64 CoresPerSocket=1
   OS=Linux 6.1 #1 SMP State=odd
   State=MIXED+DRAIN ThreadsPerCore=1
   Reason=gres/gpu count reported lower than configured (7 < 8) [slurm@2026-01-06T11:00:00]

NodeName=n2 Arch=x86_64
   State=IDLE ThreadsPerCore=1

"""


def states(result):
    table = result.table("raw/node_states")
    return table.select("node", "state", "reason", "actor", pl.col("valid_from").dt.hour()).rows()


def parse(text, **more):
    return parse_scontrol_nodes(text.encode(), **{**ABOUT, **more})


def test_a_drained_node_is_out_of_service_since_its_reason_was_given():
    reason = "gres/gpu count reported lower than configured (7 < 8)"
    result = parse(SHOWN.replace(" State=odd", ""))
    assert states(result) == [
        ("n1", "MIXED+DRAIN", reason, "slurm", 11),
        ("n1", "MIXED+DRAIN", reason, "slurm", 12),
        ("n2", "IDLE", None, None, 12),
    ]
    assert result.reads.select("n_read", "n_parsed").rows() == [(2, 2)]
    assert result.table("raw/coverage").select("entity_kind", "start", "end").rows() == [
        ("site", NOW, NOW)
    ]


def test_one_line_per_node_reads_the_same():
    text = SHOWN.replace(" State=odd", "")
    records = [" ".join(record.split()) for record in text.split("\n\n") if record.strip()]
    assert states(parse("\n".join(records))) == states(parse(text))


@pytest.mark.parametrize("text", ["", "slurm_load_node error: Unable to contact slurm controller"])
def test_what_is_no_node_is_one_clear_error(text):
    with pytest.raises(SourceError, match="scontrol -o show node"):
        parse(text)


def test_a_node_without_a_state_is_counted():
    result = parse("NodeName=n1 Arch=x\n" + SHOWN.replace(" State=odd", ""))
    assert result.quarantine["count"].to_list() == [1]
    assert result.reads.select("n_read", "n_parsed", "n_quarantined").rows() == [(3, 2, 1)]


def test_of_a_node_both_down_and_draining_only_draining_is_known_before_it_was_seen():
    result = parse("NodeName=n1 State=DOWN*+DRAIN Reason=x [root@2026-01-06T11:00:00]\n")
    assert [row[1] for row in states(result)] == ["DRAIN", "DOWN*+DRAIN"]


def test_seconds_since_the_epoch_need_no_zone():
    text = "NodeName=n1 State=DOWN Reason=x [root@1767697200]\n"
    assert [row[4] for row in states(parse(text, time_zone=None))] == [11, 12]
    with pytest.raises(SourceError, match="no time zone is set"):
        parse(text.replace("1767697200", "2026-01-06T11:00:00"), time_zone=None)


SINFO = """NODELIST|STATE|REASON|TIMESTAMP|USER|PARTITION
n[1-2]|drained*|bad | nic|2026-01-06T11:00:00|root(0)|a
n[1-2]|drained*|bad | nic|2026-01-06T11:00:00|root(0)|b
n3|mixed-|none|Unknown|Unknown|a
"""


def test_sinfo_with_bars_takes_each_node_once():
    result = parse_sinfo(SINFO.encode(), **ABOUT)
    assert states(result) == [
        ("n1", "drained*", "bad | nic", "root", 11), ("n1", "drained*", "bad | nic", "root", 12),
        ("n2", "drained*", "bad | nic", "root", 11), ("n2", "drained*", "bad | nic", "root", 12),
        ("n3", "mixed-", None, None, 12),
    ]  # fmt: skip
    assert result.reads.select("n_read", "n_parsed", "n_skipped").rows() == [(4, 2, 2)]


def test_sinfo_as_the_usual_table():
    text = (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "gpu*         up 7-00:00:00      2  drng@ d[001-002]\n"
        "gpu*         up 7-00:00:00      1  fail* f005\n"
    )
    result = parse_sinfo(text.encode(), **ABOUT)
    assert [row[:2] for row in states(result)] == [
        ("d001", "drng@"), ("d002", "drng@"), ("f005", "fail*"),
    ]  # fmt: skip


def test_the_date_that_the_long_form_prints_first_is_no_header():
    text = (
        "Tue Jan 06 12:00:00 2026\n"
        "NODELIST   NODES PARTITION     STATE CPUS AVAIL_FE REASON\n"
        "n1             1      gpu*  drained*   96   (null) Xid 79 on gpu 3\n"
        "n2             1      gpu*     mixed   96   (null) none\n"
    )
    result = parse_sinfo(text.encode(), **ABOUT)
    assert [row[:3] for row in states(result)] == [
        ("n1", "drained*", "Xid 79 on gpu 3"), ("n2", "mixed", None),
    ]  # fmt: skip
    assert result.reads.select("n_read", "n_parsed", "n_skipped").rows() == [(4, 2, 2)]


@pytest.mark.parametrize("state", ["drain*+", "idle~+", "alloc+", "DOWN*+DRAIN@", "mixed*-"])
def test_a_state_may_carry_more_than_one_sign(state):
    result = parse_sinfo(f"NODELIST|STATE\nn1|{state}\n".encode(), **ABOUT)
    assert [row[:2] for row in states(result)] == [("n1", state)]


def test_sinfo_without_a_header_needs_its_columns():
    text = "n1   |idle   |\nn2   |down*  |\n"
    with pytest.raises(SourceError, match="this is no output of sinfo.*sinfo -N -o"):
        parse_sinfo(text.encode(), **ABOUT)
    result = parse_sinfo(text.encode(), **ABOUT, columns=["NODELIST", "STATE"])
    assert [row[:2] for row in states(result)] == [("n1", "idle"), ("n2", "down*")]


@pytest.mark.parametrize(
    "line", ["n[1-|idle|||", "|idle|||", "n1|7 nodes|||", "n1|idle", "n1|idle|x|soon||"]
)
def test_a_line_that_is_refused_is_counted(line):
    result = parse_sinfo(f"NODELIST|STATE|REASON|TIMESTAMP|USER\n{line}\n".encode(), **ABOUT)
    assert result.quarantine["count"].sum() == 1
    assert result.table("raw/node_states").is_empty()
