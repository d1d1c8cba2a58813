"""The counting guards: borders one by one, and as a law over whole runs."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remediation.cluster.state import JobView
from remediation.guards.caps import share_of
from remediation.site import Caps


def test_g02_zero_nodes_are_safe(kit):
    run = kit.world({"a": 0.9}, nodes=()).run()
    assert run.outcomes == {}
    assert run.n_manageable == 0
    assert run.decisions["action"].to_list() == ["none"]


@pytest.mark.parametrize(
    ("n", "percent", "most"), [(0, 50, 0), (1, 2, 1), (49, 2, 1), (100, 2, 2), (149, 2, 2)]
)
def test_g02_a_share_is_rounded_down_but_is_at_least_one(n, percent, most):
    assert share_of(n, percent) == most


def test_g02_the_defaults_hold_one_node_of_a_small_fleet(kit):
    world = kit.world({f"n{i}": 0.9 for i in range(9)}, site=kit.site(caps=Caps()))
    run = world.run()
    assert len(world.acted_on) == 1
    assert any(text.startswith("cap_fleet held back") for text in run.messages)


def test_g02_the_absolute_cap_holds_whatever_the_share(kit):
    site = kit.site(caps=Caps(held_percent=100, held_most=2, per_rack=None, actions_per_hour=9))
    world = kit.world({f"n{i}": 0.9 for i in range(5)}, site=site)
    world.run()
    assert len(world.acted_on) == 2


def test_g02_one_node_per_rack(kit):
    nodes = (*(kit.node(name, rack="r1") for name in "abc"), kit.node("d", rack="r2"))
    caps = Caps(held_percent=100, actions_per_hour=9, per_rack=1)
    world = kit.world(dict.fromkeys("abcd", 0.9), nodes=nodes, site=kit.site(caps=caps))
    world.run()
    assert sorted(world.acted_on) == ["a", "d"]


def test_g02_the_share_of_a_partition_is_its_own(kit):
    nodes = (
        *(kit.node(f"p{i}", partitions=("p",)) for i in range(4)),
        *(kit.node(f"q{i}", partitions=("q",)) for i in range(4)),
    )
    caps = Caps(held_percent=100, partition_percent=25, per_rack=None, actions_per_hour=9)
    world = kit.world({one.name: 0.9 for one in nodes}, nodes=nodes, site=kit.site(caps=caps))
    world.run()
    assert sorted(world.acted_on) == ["p0", "q0"]


def test_g02_a_held_node_that_is_gone_may_be_in_any_rack(kit):
    caps = Caps(held_percent=100, actions_per_hour=9, per_rack=1)
    world = kit.world({"a": 0.9, "b": 0.1}, site=kit.site(caps=caps))
    world.run()
    state = world.cluster.state
    world.cluster.state = replace(state, nodes=tuple(n for n in state.nodes if n.name != "a"))
    run = world.next_tick({"b": 0.9})
    assert run.judged[0].blocked_by == ("cap_rack: 1 held of 1 allowed in rack rack-b",)


def test_g02_nodes_of_unknown_rack_count_as_one_rack(kit):
    nodes = tuple(kit.node(name, rack=None) for name in "abc")
    caps = Caps(held_percent=100, actions_per_hour=9, per_rack=1)
    world = kit.world(dict.fromkeys("abc", 0.9), nodes=nodes, site=kit.site(caps=caps))
    world.run()
    assert len(world.acted_on) == 1


def test_g02_one_node_per_job(kit):
    job = JobView(job_id="7", nodes=("a", "b"), n_gpus=16, is_requeue_allowed=True)
    world = kit.world({"a": 0.9, "b": 0.9, "c": 0.9}, jobs=(job,))
    world.run()
    assert len({"a", "b"} & set(world.acted_on)) == 1
    assert "c" in world.acted_on


def test_g02_the_rate_is_counted_over_any_hour_and_over_runs(kit):
    caps = Caps(held_percent=100, per_rack=None, actions_per_hour=2)
    world = kit.world(dict.fromkeys("abcde", 0.9), site=kit.site(caps=caps))
    world.run()
    world.next_tick(dict.fromkeys("abcde", 0.9))
    assert len(world.acted_on) == 2
    world.now += 2 * kit.tick
    world.next_tick(dict.fromkeys("abcde", 0.9))
    assert len(world.acted_on) == 4


@pytest.mark.parametrize("n_nodes", [1, 2, 3])
def test_g02_a_pool_never_loses_all_its_nodes(kit, n_nodes):
    nodes = tuple(kit.node(f"n{i}", partitions=("small",)) for i in range(n_nodes))
    caps = Caps(held_percent=100, partition_percent=100, per_rack=None, actions_per_hour=9)
    world = kit.world(
        {one.name: 0.9 for one in nodes}, nodes=(*nodes, kit.node("x")), site=kit.site(caps=caps)
    )
    world.run()
    assert len(world.acted_on) == n_nodes - 1


def test_g02_nodes_of_others_in_a_pool_do_not_count_as_in_service(kit):
    nodes = (
        kit.node("a", partitions=("p",)),
        kit.node("b", partitions=("p",), state="drain", reason="disk"),
        kit.node("x"),
    )
    world = kit.world({"a": 0.9}, nodes=nodes)
    assert world.run().judged[0].blocked_by == (
        "never_all: no other node of p would be in service",
    )


def test_g04_caps_persist_over_restarts_and_trip_on_a_slow_drip(kit):
    caps = Caps(held_percent=100, held_most=2, per_rack=None)
    scores = dict.fromkeys("abcd", 0.9)
    world = kit.world(scores, site=kit.site(caps=caps))
    for _ in range(30):
        world.next_tick(scores)
    assert len(world.acted_on) == 2


def test_g04_held_nodes_of_a_lost_ledger_count_by_their_reason(kit):
    nodes = (kit.node("old", state="drain", reason="forewarn:v1 x"), kit.node("a"), kit.node("b"))
    caps = Caps(held_percent=100, held_most=1, per_rack=None)
    world = kit.world({"a": 0.9}, nodes=nodes, site=kit.site(caps=caps))
    assert world.run().judged[0].blocked_by == ("cap_fleet: 1 held of 1 allowed, 3 manageable",)


@st.composite
def fleets(draw):
    names = [f"n{i}" for i in range(draw(st.integers(0, 8)))]
    pick = st.sampled_from
    nodes = {
        name: {
            "rack": draw(pick([None, "r1", "r2"])),
            "partitions": draw(pick([(), ("p",), ("p", "q")])),
            "state": draw(pick(["up", "up", "up", "drain", "down", "unknown"])),
            "reason": draw(pick(["forewarn:v1 x", "disk"])),
        }
        for name in names
    }
    some = st.lists(pick(names), min_size=1, max_size=4, unique=True) if names else st.nothing()
    jobs = [
        JobView(job_id=str(i), nodes=tuple(draw(some)), n_gpus=8, is_requeue_allowed=True)
        for i in range(draw(st.integers(0, 2)) if names else 0)
    ]
    caps = Caps(
        held_percent=draw(pick([0, 2, 30, 100])),
        held_most=draw(st.integers(0, 4)),
        partition_percent=draw(pick([0, 10, 60, 100])),
        per_rack=draw(pick([None, 0, 1, 2])),
        per_job=draw(st.integers(0, 2)),
        actions_per_hour=draw(st.integers(0, 4)),
    )
    return nodes, tuple(jobs), caps


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fleet=fleets(), ticks=st.integers(1, 3))
def test_g02_caps_hold_for_any_fleet_and_any_number_of_ticks(kit, fleet, ticks):
    plain, jobs, caps = fleet
    nodes = tuple(kit.node(name, **changes) for name, changes in plain.items())
    scores = dict.fromkeys(plain, 0.95) | {"elsewhere": 0.95}
    world = kit.world(scores, nodes=nodes, jobs=jobs, site=kit.site(caps=caps))
    start = world.cluster.read().by_name
    ours_before = {name for name, one in start.items() if one.owner == "forewarn"}
    manageable = {name for name, one in start.items() if one.state == "up"} | ours_before
    for _ in range(ticks):
        world.next_tick(scores)
    taken, end = set(world.acted_on), world.cluster.read().by_name
    assert len(world.acted_on) == len(taken) <= caps.actions_per_hour
    assert all(start[name].state == "up" for name in taken)
    if not taken:
        return
    held = ours_before | taken
    assert len(held) <= min(caps.held_most, share_of(len(manageable), caps.held_percent))
    assert any(one.state == "up" for one in end.values())
    by_rack = Counter(start[name].rack for name in held)
    for name in taken:
        if caps.per_rack is not None:
            assert by_rack[start[name].rack] <= caps.per_rack
        for job in jobs:
            if name in job.nodes:
                assert len(held & set(job.nodes)) <= caps.per_job
        for pool in start[name].partitions:
            members = {other for other, one in start.items() if pool in one.partitions}
            assert len(held & members) <= share_of(
                len(manageable & members), caps.partition_percent
            )
            assert any(end[other].state == "up" for other in members)
