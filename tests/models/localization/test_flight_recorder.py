"""Where a hang began, from flight recorders: who is waited for and waits for nobody."""

from hypothesis import given
from hypothesis import strategies as st

from models.localization.flight_recorder import (
    FlightRecord,
    GroupProgress,
    OpenTransfer,
    find_stall,
)


def record(rank, *groups, transfers=()):
    return rank, FlightRecord(rank, groups, transfers)


def at(name, ranks, enqueued, completed, started=None):
    begun = enqueued if started is None else started
    open_one = "nccl:all_reduce" if completed < enqueued else ""
    return GroupProgress(name, ranks, enqueued, begun, completed, open_one)


def stall(*records):
    found = find_stall(dict(records))
    return found.kind, found.ranks


ALL = (0, 1, 2, 3)


def test_the_rank_that_did_not_come_is_where_it_began():
    came = [record(rank, at("dp", ALL, 5, 4)) for rank in (0, 1, 3)]
    assert stall(*came, record(2, at("dp", ALL, 4, 4))) == ("absent", (2,))
    assert find_stall(dict([*came, record(2, at("dp", ALL, 4, 4))])).waiting == 3


def test_a_rank_without_a_recorder_that_others_wait_for_did_not_come():
    assert stall(*(record(rank, at("dp", ALL, 5, 4)) for rank in (0, 1, 3))) == ("absent", (2,))


def test_waits_are_followed_through_groups_to_their_beginning():
    # 0 and 1 wait for 2 in dp, which waits for 3 in tp, which waits for nobody.
    records = [
        record(0, at("dp", (0, 1, 2), 5, 4)),
        record(1, at("dp", (0, 1, 2), 5, 4)),
        record(2, at("dp", (0, 1, 2), 4, 4), at("tp", (2, 3), 8, 7)),
        record(3, at("tp", (2, 3), 7, 7)),
    ]
    assert stall(*records) == ("absent", (3,))


def test_of_all_that_came_those_whose_gpu_did_not_begin_are_where_it_began():
    began = [record(rank, at("dp", ALL, 5, 4)) for rank in (0, 1, 3)]
    assert stall(*began, record(2, at("dp", ALL, 5, 4, started=4))) == ("absent", (2,))


def test_an_operation_that_all_began_and_none_ended_is_stuck_inside():
    assert stall(*(record(rank, at("dp", ALL, 5, 4)) for rank in ALL)) == ("inside", ALL)


def test_a_receive_waits_for_its_sender():
    receiving = record(0, transfers=(OpenTransfer("pp", "recv", 1),))
    assert stall(receiving, record(1)) == ("absent", (1,))
    sending = record(1, transfers=(OpenTransfer("pp", "send", 0),))
    assert stall(receiving, sending) == ("inside", (0, 1))


def test_ranks_that_wait_for_each_other_are_a_circle_and_no_machine_is_named_first():
    records = [
        record(0, at("a", (0, 1), 3, 2), at("b", (0, 1), 2, 2)),
        record(1, at("a", (0, 1), 2, 2), at("b", (0, 1), 3, 2)),
    ]
    assert stall(*records) == ("circle", (0, 1))


def test_a_job_that_runs_has_no_stall():
    assert stall(*(record(rank, at("dp", ALL, 5, 5)) for rank in ALL)) == ("none", ())
    assert stall() == ("none", ())


@given(
    st.dictionaries(
        st.integers(0, 3),
        st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3)), max_size=2
        ),
        max_size=4,
    )
)
def test_whom_it_names_waits_for_nobody_or_for_the_circle(progress):
    records = {
        rank: FlightRecord(
            rank,
            tuple(
                at(name, ALL, max(sent, done), min(sent, done))
                for name, sent, done in dict.fromkeys(groups)
            ),
        )
        for rank, groups in progress.items()
    }
    found = find_stall(records)
    assert bool(found.ranks) == (found.kind != "none")
    assert set(found.ranks) <= set(ALL)
    assert found.waiting <= len(records)
