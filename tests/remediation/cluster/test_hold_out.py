"""Rules of the hold-out: who is in it, and when it gives way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from remediation.cluster.hold_out import HoldOut
from remediation.cluster.state import JobView

NODES = [f"gpu-{i:04d}" for i in range(4000)]


def chosen(hold_out: HoldOut) -> set[str]:
    return {node for node in NODES if hold_out.chooses(node)}


def test_it_is_off_by_default():
    assert chosen(HoldOut()) == set()


@given(percent=st.floats(0.5, 50), salt=st.text(max_size=5))
def test_the_share_is_kept_and_a_greater_one_holds_the_smaller(percent, salt):
    found = chosen(HoldOut(percent=percent, salt=salt))
    expected = percent / 100 * len(NODES)
    assert abs(len(found) - expected) < 5 * expected**0.5 + 1
    assert chosen(HoldOut(percent=percent / 2, salt=salt)) <= found


def test_another_salt_chooses_others():
    assert chosen(HoldOut(percent=10)) != chosen(HoldOut(percent=10, salt="2"))


@pytest.mark.parametrize(("sizes", "gives_way"), [((), False), ((2, 1), False), ((1, 3), True)])
def test_it_gives_way_to_a_job_on_more_nodes_than_the_limit(sizes, gives_way):
    jobs = [
        JobView(job_id=str(i), nodes=tuple(f"n{k}" for k in range(size)))
        for i, size in enumerate(sizes)
    ]
    assert (HoldOut(percent=50, largest_job_nodes=2).gives_way_to(jobs) is not None) == gives_way


def test_more_than_half_of_the_nodes_cannot_be_held_out():
    with pytest.raises(ValidationError, match="less than or equal to 50"):
        HoldOut(percent=51)
