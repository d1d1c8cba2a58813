"""Which nodes are alerts in a tick, and when they are a burst."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediation import site as settings
from remediation.cluster.state import ClusterState
from remediation.guards.alerts import alerts_of, new_bursts
from remediation.ledger.view import Hold, Observed, SeenTick
from remediation.site import Burst, Site


def seen(kit, node, ticks_ago=0, boot_id="boot-1", score=0.9):
    return Observed(node, boot_id, kit.start - ticks_ago * kit.tick, score)


def ticks(earlier):
    return [SeenTick(one.as_of, (one.node,), (one.boot_id,), (one.score,)) for one in earlier]


def site_of(n, k):
    return Site(warning=settings.Warning(n=n, k=k))


@given(
    n=st.integers(1, 4),
    more=st.integers(0, 4),
    ticks_ago=st.sets(st.integers(-2, 9)),
)
def test_g07_alerts_are_a_plain_count_of_the_last_k_ticks(kit_once, n, more, ticks_ago):
    k = n + more
    earlier = [seen(kit_once, "a", ago) for ago in ticks_ago]
    found = alerts_of([seen(kit_once, "a")], ticks(earlier), site=site_of(n, k))
    assert ("a" in found) == (1 + sum(0 < ago < k for ago in ticks_ago) >= n)


@pytest.fixture(scope="module")
def kit_once():
    from datetime import UTC, datetime
    from types import SimpleNamespace

    return SimpleNamespace(start=datetime(2026, 1, 5, 10, tzinfo=UTC), tick=timedelta(minutes=15))


def test_g07_a_node_that_is_not_above_now_is_no_alert(kit):
    assert alerts_of([], ticks([seen(kit, "a", 1)]), site=site_of(1, 3)) == frozenset()


@pytest.mark.parametrize(("boot_id", "is_alert"), [("boot-1", True), ("boot-0", False)])
def test_g12_only_ticks_of_the_present_boot_count(kit, boot_id, is_alert):
    found = alerts_of([seen(kit, "a")], ticks([seen(kit, "a", 1, boot_id)]), site=site_of(2, 3))
    assert ("a" in found) == is_alert


def bursts(kit, above, earlier=(), *, holds=(), n_manageable=10, **changes):
    names = {one.node for one in above}
    state = ClusterState(
        as_of=kit.start, nodes=tuple(kit.node(n, rack="r1", switch="s1") for n in sorted(names))
    )
    values = {"fleet_nodes": 2, "component_nodes": 99, "fleet_percent": 1} | changes
    found = new_bursts(
        above,
        ticks(earlier),
        state=state,
        n_manageable=n_manageable,
        holds=holds,
        site=Site(burst=Burst(**values)),
        now=kit.start,
    )
    return [(hold.scope, hold.nodes) for hold in found]


def test_g08_nodes_and_share_must_both_be_reached(kit):
    above = [seen(kit, "a"), seen(kit, "b")]
    assert bursts(kit, above) == [("fleet", ("a", "b"))]
    assert bursts(kit, above, fleet_nodes=3) == []
    assert bursts(kit, above, fleet_percent=20) == [("fleet", ("a", "b"))]
    assert bursts(kit, above, fleet_percent=21) == []


def test_g08_a_rack_and_a_switch_are_scopes_of_their_own(kit):
    above = [seen(kit, "a"), seen(kit, "b")]
    found = bursts(kit, above, fleet_nodes=99, component_nodes=2)
    assert found == [("rack r1", ("a", "b")), ("switch s1", ("a", "b"))]


@pytest.mark.parametrize(
    ("ticks_ago", "is_new"),
    [
        (1, True),
        (2, False),  # 30 min ago: no longer within 30 min
        (95, False),
        (96, True),  # 24 h ago: quiet since
    ],
)
def test_g08_a_node_is_new_within_the_time_and_after_the_quiet_hours(kit, ticks_ago, is_new):
    above = [seen(kit, "a"), seen(kit, "b")]
    found = bursts(kit, above, [seen(kit, "b", ticks_ago)])
    assert bool(found) == is_new


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_g08_nodes_of_an_earlier_burst_make_no_other(kit, is_acknowledged):
    hold = Hold(
        scope="fleet",
        nodes=("a", "b"),
        text="",
        until=kit.start + timedelta(hours=1),
        is_acknowledged=is_acknowledged,
    )
    above = [seen(kit, "a"), seen(kit, "b")]
    assert bursts(kit, above, holds=(hold,)) == []


def test_g08_a_driver_that_part_of_the_fleet_runs_is_a_scope_of_its_own(kit):
    def found(old_of_ten, new_driver, percent=40):
        names = [f"n{i}" for i in range(10)]
        nodes = tuple(
            kit.node(name, driver="550.1" if i < old_of_ten else new_driver)
            for i, name in enumerate(names)
        )
        holds = new_bursts(
            [seen(kit, name) for name in names[:2]],
            (),
            state=ClusterState(as_of=kit.start, nodes=nodes),
            n_manageable=1000,
            holds=(),
            site=Site(burst=Burst(fleet_nodes=2, component_nodes=99, fleet_percent=percent)),
            now=kit.start,
        )
        return [hold.scope for hold in holds]

    assert found(5, "550.2") == ["driver 550.1"]
    assert found(6, "550.2") == []  # two of six are less than 40 %
    assert found(5, "550.1", 1) == []  # one driver everywhere is the fleet
    assert found(0, None) == []
