"""NCCL flight recorders in JSON, as PyTorch writes them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SourceError
from models.localization.flight_recorder import GroupProgress, OpenTransfer
from pipelines.sources.stacks.recorder import is_recorder, record_of_json


def entry(seq, state, *, name="0", pg_id=0, is_p2p=False, operation="nccl:all_reduce"):
    return {
        "record_id": seq,
        "pg_id": pg_id,
        "process_group": [name, "default_pg"],
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": operation,
        "time_created_ns": 1724779239936775119,
        "input_sizes": [[3, 4]],
        "state": state,
        "is_p2p": is_p2p,
    }


def document(*entries, status=None, ranks="[0, 1, 2]"):
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {} if status is None else {"0": status},
        "entries": list(entries),
    }


def progress(content, rank=1):
    [group] = record_of_json(content, rank=rank).groups
    return group


def test_a_group_is_as_far_as_its_latest_entries():
    entries = [entry(4, "completed"), entry(5, "started"), entry(6, "scheduled")]
    assert progress(document(*entries)) == GroupProgress(
        "0", (0, 1, 2), enqueued=6, started=5, completed=4, operation="nccl:all_reduce"
    )


def test_the_status_counts_where_the_ring_of_entries_has_lost_them():
    status = {
        "last_enqueued_collective": "9",
        "last_started_collective": "9",
        "last_completed_collective": "8",
    }
    found = progress(document(status=status))
    assert (found.enqueued, found.started, found.completed) == (9, 9, 8)


def test_a_status_is_found_by_the_number_of_its_group():
    content = document(entry(1, "completed", name="0", pg_id=7))
    content["pg_status"] = {"7": {"last_enqueued_collective": "3"}, "0": {}}
    assert progress(content).enqueued == 3


def test_a_group_that_never_ran_a_collective_has_none_open():
    never = {f"last_{kind}_collective": "-1" for kind in ("enqueued", "started", "completed")}
    found = progress(document(status=never))
    assert (found.enqueued, found.completed) == (0, 0)


def test_groups_of_other_ranks_are_left():
    assert record_of_json(document(), rank=5).groups == ()


@pytest.mark.parametrize(
    ("operation", "transfer"),
    [
        ("nccl:send 1->2", OpenTransfer("0", "send", 6)),
        ("nccl:recv 1<-0", OpenTransfer("0", "recv", 2)),
    ],
)
def test_the_peer_of_a_transfer_is_its_place_in_the_group(operation, transfer):
    content = document(entry(0, "started", is_p2p=True, operation=operation), ranks="[2, 4, 6]")
    assert record_of_json(content, rank=4).transfers == (transfer,)


def test_ended_transfers_and_batches_are_no_open_ones():
    content = document(
        entry(0, "completed", is_p2p=True, operation="nccl:send 1->2"),
        entry(0, "started", is_p2p=True, operation="nccl:coalesced"),
    )
    assert record_of_json(content, rank=1).transfers == ()


@pytest.mark.parametrize(
    "content",
    [
        {"pg_config": None},
        {"pg_config": {"0": {"name": "0"}}},
        document({"state": "started"}),
        document(entry(1, "dreaming")),
        document(status={"last_enqueued_collective": "many"}),
        document(entry(0, "started", is_p2p=True, operation="nccl:send 1->9")),
    ],
)
def test_what_is_not_as_pytorch_writes_it_is_refused(content):
    with pytest.raises(SourceError, match="not as PyTorch writes it"):
        record_of_json(content, rank=1)


def test_a_recorder_is_known_by_its_groups():
    assert is_recorder(document())
    assert not is_recorder([])
    assert not is_recorder({"entries": []})


@given(
    st.recursive(
        st.one_of(st.none(), st.integers(), st.text(max_size=4)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["0", "pg_config", "pg_status", "entries", "state", "ranks"]),
                inner,
                max_size=4,
            ),
        ),
    )
)
def test_any_json_is_read_or_refused(content):
    with suppress(SourceError):
        record_of_json(
            {"pg_config": {}, "x": content} | (content if isinstance(content, dict) else {}), rank=0
        )
