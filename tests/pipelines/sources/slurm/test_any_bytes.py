"""No bytes and no JSON crash a reader of Slurm's outputs, and no record goes missing."""

from datetime import UTC, datetime
from functools import partial

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.core_build import build_jobs, build_node_states
from features.errors import SourceError
from features.tables import TABLE_BY_KEY
from pipelines.sources.slurm.events import parse_events
from pipelines.sources.slurm.json_documents import parse_slurm_json
from pipelines.sources.slurm.nodes import parse_scontrol_nodes, parse_sinfo
from pipelines.sources.slurm.places import parse_reservations, parse_topology
from pipelines.sources.slurm.queue import parse_show_jobs, parse_squeue

NOW = datetime(2026, 1, 6, tzinfo=UTC)
LOCAL = {"origin": "f", "ingested_at": NOW, "time_zone": "Europe/Berlin"}
TIME = b"2026-01-05T02:30:00"

PARSERS = {
    "events": (
        partial(parse_events, **LOCAL),
        b"Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\nc|n[1-2]|" + TIME + b"|Unknown|DOWN"
        b"|XID 79 | x|root(0)\nc|n1|" + TIME + b"|2026-01-06T00:00:00|DRAIN*|a|\n",
    ),
    "nodes": (
        partial(parse_scontrol_nodes, **LOCAL, seen_at=NOW),
        b"NodeName=n1 Arch=x\n   State=DOWN*+DRAIN Weight=1\n   Reason=a [b] [root@" + TIME
        + b"]\n\nNodeName=n2 State=IDLE\n",
    ),
    "sinfo": (
        partial(parse_sinfo, **LOCAL, seen_at=NOW),
        b"NODELIST|STATE|REASON|TIMESTAMP|USER\nn[1-2]|drained*|x|" + TIME + b"|root(0)\n",
    ),
    "squeue": (
        partial(parse_squeue, **LOCAL),
        b"JOBID|STATE|NAME|START_TIME|NODELIST|TRES_PER_NODE\n1_[2-3]|RUNNING|a|" + TIME
        + b"|n[1-2]|gres:gpu:8\n",
    ),
    "jobs": (
        partial(parse_show_jobs, **LOCAL),
        b"JobId=7 JobName=x\n   UserId=root(0) GroupId=root(0)\n   JobState=FAILED ExitCode=1:0\n"
        b"   StartTime=" + TIME + b" EndTime=Unknown\n   NodeList=n[1-2]\n   TRES=gres/gpu=2\n",
    ),
    "reservations": (
        partial(parse_reservations, **LOCAL),
        b"ReservationName=a StartTime=" + TIME + b" EndTime=Unknown Duration=4-00:00:00\n"
        b"   Nodes=n[1-2] Flags=MAINT\n",
    ),
    "topology": (
        partial(parse_topology, origin="f", ingested_at=NOW),
        b"SwitchName=s0 Nodes=n[0-1]\nSwitchName=top Switches=s[0-1]\nBlockName=b Nodes=n3 \\\n",
    ),
}  # fmt: skip


def check(parse, data):
    """Reads the same twice, holds the contracts, loses nothing."""
    try:
        result = parse(data)
    except SourceError:
        return
    assert parse(data).tables.keys() == result.tables.keys()
    for key, table in result.tables.items():
        assert table.equals(parse(data).tables[key])
        contract = TABLE_BY_KEY[key]
        assert contract.conform(table).height == table.height
        if key.startswith("raw/"):
            assert contract.enforce(table).rejects.is_empty()
    ((n_read, n_parsed, n_skipped, n_quarantined),) = result.reads.drop("source", "origin").rows()
    assert n_read == n_parsed + n_skipped + n_quarantined
    build_jobs(result.table("raw/job_log"))
    build_node_states(result.table("raw/node_states"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARSERS)
@settings(max_examples=60)
@given(data=st.data())
def test_mutations_of_good_output_lose_nothing(kind, data):
    parse, good = PARSERS[kind]
    changed = bytearray(good)
    pieces = [b"|", b"\n", b"\xff", b"=", b" ", b"[", b"9" * 19, b"Unknown", b"\x00", TIME, b"\r"]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed)))
        cut = data.draw(st.integers(0, 3))
        changed[at : at + cut] = data.draw(st.sampled_from(pieces) | st.binary(max_size=3))
    check(parse, bytes(changed))


@pytest.mark.parametrize("kind", PARSERS)
@settings(max_examples=20)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(kind, data):
    parse, good = PARSERS[kind]
    check(parse, data)
    check(parse, good.partition(b"\n")[0] + b"\n" + data)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=6)
    | st.sampled_from(["RUNNING", "FAILED", "IDLE", "DOWN", "n[1-2]", "gres/gpu=8", "MAINT"])
    | st.fixed_dictionaries(
        {"set": st.booleans(), "infinite": st.booleans(), "number": st.integers(-5, 2**33)}
    ),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["id", "current", "name", "count"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
NAMES = [
    "job_id", "name", "state", "job_state", "time", "exit_code", "array", "het", "tres", "steps",
    "nodes", "node", "reason", "reason_changed_at", "state_flags", "submit_time", "start_time",
    "array_job_id", "array_task_id", "tres_alloc_str", "gres_detail", "tres_per_node", "flags",
    "node_list", "end_time", "user_name", "het_job_id",
]  # fmt: skip
RECORDS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=9)
GOOD = st.sampled_from(
    [
        {"job_id": 7, "job_state": "RUNNING", "nodes": "n1"},
        {"job_id": 7, "state": {"current": ["FAILED"]}, "time": {"start": 1_767_600_000}},
        {"name": "n1", "state": ["IDLE", "DRAIN"], "reason": "x"},
        {"name": "r", "flags": ["MAINT"], "node_list": "n1", "start_time": 1_767_600_000},
    ]
)


@pytest.mark.slow
@settings(max_examples=150)
@given(
    kind=st.sampled_from(["jobs", "nodes", "sinfo", "reservations"]),
    records=st.lists(
        VALUES | RECORDS | st.builds(lambda a, b: {**a, **b}, GOOD, RECORDS), max_size=3
    ),
)
def test_any_json_is_read_or_refused(kind, records):
    parse = partial(parse_slurm_json, origin="f", seen_at=NOW, ingested_at=NOW)
    check(parse, orjson.dumps({kind: records}))


@settings(max_examples=60)
@given(st.binary(max_size=40))
def test_any_bytes_as_json_are_read_or_refused(data):
    check(partial(parse_slurm_json, origin="f", seen_at=NOW, ingested_at=NOW), data)
