"""What could replace a node, in which order, and what is no replacement."""

import pytest

from remediation.cluster.state import ClusterState, JobView
from remediation.policy.capacity import NO_CAPACITY, capacity_of
from remediation.site import Site

SITE = Site(standby=("spare*",), loaned=("inf*",))


def state_of(kit, *nodes, jobs=()):
    return ClusterState(as_of=kit.start, nodes=(kit.node("a"), *nodes), jobs=jobs)


def replacement(kit, *nodes, jobs=(), site=SITE, suspects=frozenset(), **changes):
    state = state_of(kit, *nodes, jobs=jobs)
    found = capacity_of(state, site=site, suspects=suspects).replacement(kit.node("a", **changes))
    return None if found is None else (found.kind, found.name)


def elastic(name="9", nodes=("x", "y"), **changes):
    return JobView(**{"job_id": name, "nodes": nodes, "n_gpus": 16, "min_nodes": 1} | changes)


def test_g27_capacity_that_nobody_reports_is_zero(kit):
    assert replacement(kit, kit.node("idle"), site=Site()) is None
    assert capacity_of(state_of(kit), site=SITE, suspects=frozenset()) == NO_CAPACITY


def test_standby_comes_before_loaned_before_scaling_in(kit):
    job = elastic()
    workers = (kit.node("x"), kit.node("y"))
    spare, loaned = kit.node("spare-1"), kit.node("inf-1")
    assert replacement(kit, loaned, *workers, spare, jobs=(job,)) == ("standby", "spare-1")
    assert replacement(kit, loaned, *workers, jobs=(job,)) == ("loaned", "inf-1")
    assert replacement(kit, *workers, jobs=(job,)) == ("scale_in", "9")


@pytest.mark.parametrize(
    "changes", [{"state": "drain"}, {"state": "down"}, {"state": "unknown"}, {"n_gpus": 4}]
)
def test_a_spare_that_is_not_up_or_too_small_replaces_nothing(kit, changes):
    assert replacement(kit, kit.node("spare-1", **changes)) is None


def test_a_spare_of_unknown_size_or_for_a_node_of_unknown_size_replaces_nothing(kit):
    assert replacement(kit, kit.node("spare-1", n_gpus=None)) is None
    assert replacement(kit, kit.node("spare-1"), n_gpus=None) is None


def test_a_busy_spare_and_a_suspected_one_replace_nothing(kit):
    job = JobView(job_id="1", nodes=("spare-1",))
    assert replacement(kit, kit.node("spare-1"), jobs=(job,)) is None
    assert replacement(kit, kit.node("spare-1"), suspects=frozenset({"spare-1"})) is None


def test_a_standby_node_serves_its_partitions_and_a_loaned_one_any(kit):
    spare, loaned = kit.node("spare-1", partitions=("q",)), kit.node("inf-1", partitions=("q",))
    assert replacement(kit, spare, partitions=("p",)) is None
    assert replacement(kit, spare, partitions=("p", "q")) == ("standby", "spare-1")
    assert replacement(kit, loaned, partitions=("p",)) == ("loaned", "inf-1")


def test_a_spare_does_not_replace_itself(kit):
    state = state_of(kit, kit.node("spare-1"))
    capacity = capacity_of(state, site=SITE, suspects=frozenset())
    assert capacity.replacement(kit.node("spare-1")) is None


def test_an_elastic_job_gives_only_what_it_can_spare_and_none_on_suspects(kit):
    workers = (kit.node("x"), kit.node("y"))
    assert replacement(kit, *workers, jobs=(elastic(min_nodes=2),)) is None
    assert replacement(kit, *workers, jobs=(elastic(min_nodes=None),)) is None
    assert replacement(kit, *workers, jobs=(elastic(),), suspects=frozenset({"y"})) is None


def test_each_spare_is_given_once_and_an_elastic_job_as_often_as_it_has_nodes(kit):
    workers = tuple(kit.node(name) for name in "xyz")
    state = state_of(
        kit, *workers, kit.node("spare-1"), jobs=(elastic("9", ("x", "y", "z"), n_gpus=24),)
    )
    capacity = capacity_of(state, site=SITE, suspects=frozenset())
    given = []
    while (spare := capacity.replacement(kit.node("a"))) is not None:
        given.append(spare.name)
        capacity = capacity.without(spare)
    assert given == ["spare-1", "9", "9"]
