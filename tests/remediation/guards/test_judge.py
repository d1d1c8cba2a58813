"""Each guard on its own, at its borders."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

import pytest

from features.vocabulary import ACTIONS, POLICY_LEVELS
from remediation.cluster.state import ClusterState
from remediation.decision import HARM, Decision
from remediation.guards import judge as guards
from remediation.guards.judge import GuardContext, judge, manageable_nodes
from remediation.ledger.view import Held, Hold, LedgerView
from remediation.site import LevelRule, Site, Window, WorkingHours

NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)


def decision(**changes: object) -> Decision:
    values = {
        "decision_id": "0" * 16,
        "node": "a",
        "boot_id": "boot-1",
        "as_of": NOW,
        "decided_at": NOW,
        "wanted": "drain_after_jobs",
        "score": 0.9,
        "status": "ok",
        "horizon_h": 24,
        "fault_type": "nvlink",
        "model_version": "17",
        "trained_on": "real",
        "sentence": "",
    }
    return Decision(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def context(kit) -> GuardContext:
    return GuardContext(
        now=NOW,
        site=kit.site(),
        cluster=ClusterState(as_of=NOW, nodes=(kit.node("a"), kit.node("b"))),
        expires_at=NOW + timedelta(minutes=30),
        is_rehearsal=False,
        stopped_by=None,
        alerts=frozenset({"a"}),
        manageable=frozenset({"a", "b"}),
        n_manageable_in={},
        held=frozenset(),
        n_recent=0,
        record=LedgerView(),
    )


def with_node(kit, context, **changes):
    return replace(
        context, cluster=ClusterState(as_of=NOW, nodes=(kit.node("a", **changes), kit.node("b")))
    )


def test_every_guard_lets_a_plain_case_pass(context):
    one = judge(decision(), context, guards.GUARDS)
    assert one.blocked_by == ()
    assert one.action == "drain_after_jobs"
    assert len(one.verdicts) == len(guards.GUARDS)


def test_a_verdict_bears_the_name_of_its_guard(context):
    for guard in guards.GUARDS:
        assert guard(decision(), context).guard == guard.__name__  # type: ignore[attr-defined]


def test_no_guard_is_asked_where_no_node_is_touched(context):
    one = judge(decision(wanted="watch"), replace(context, stopped_by="x"), guards.GUARDS)
    assert (one.action, one.verdicts) == ("watch", ())


def test_all_guards_are_asked_also_after_a_no(context):
    one = judge(decision(node="gone"), replace(context, stopped_by="x"), guards.GUARDS)
    assert {said.split(":")[0] for said in one.blocked_by} == {
        "kill_switch",
        "node_state",
        "same_boot",
        "warned_often_enough",
    }


@pytest.mark.parametrize("wanted", ACTIONS)
@pytest.mark.parametrize("level", POLICY_LEVELS)
def test_g01_a_level_never_leaves_more_harm_than_it_allows(context, wanted, level):
    site = Site(levels=(LevelRule(level=level),))
    one = judge(decision(wanted=wanted), replace(context, site=site), (guards.policy_level,))
    expected = min(wanted, guards.CEILING_OF_LEVEL[level], key=HARM.__getitem__)
    assert one.action == expected


def test_g01_a_site_without_rules_is_in_shadow_mode(context):
    one = judge(decision(), replace(context, site=Site()), (guards.policy_level,))
    assert one.action == "watch"
    assert one.blocked_by == ("policy_level: level observe (no rule fits: default)",)


def test_g01_levels_are_per_group_and_fault_type(context):
    site = Site(
        groups={"pilot": ("a",)},
        levels=(LevelRule(group="pilot", fault_type="nvlink", level="cordon"),),
    )
    there = replace(context, site=site)
    assert guards.policy_level(decision(), there).ceiling == "cordon"
    assert guards.policy_level(decision(fault_type="gsp"), there).ceiling == "watch"
    assert guards.policy_level(decision(node="b"), there).ceiling == "watch"


def test_g05_scores_expire_at_the_very_moment(context):
    last = replace(context, now=context.expires_at - timedelta(microseconds=1))
    assert guards.scores_in_time(decision(), last).is_allowed
    expired = replace(context, now=context.expires_at)
    assert not guards.scores_in_time(decision(), expired).is_allowed


@pytest.mark.parametrize("changes", [{"score": None}, {"status": "unknown"}])
def test_g06_an_unknown_score_leads_to_nothing(context, changes):
    assert guards.score_known(decision(**changes), context).ceiling == "none"


@pytest.mark.parametrize("changes", [{"trained_on": "synthetic"}, {"status": "prior"}])
def test_g28_synthetic_and_prior_never_lead_beyond_recommend(context, changes):
    verdict = guards.model_fit_to_act(decision(**changes), context)
    assert (verdict.is_allowed, verdict.ceiling) == (False, "watch")
    rehearsal = replace(context, is_rehearsal=True)
    assert guards.model_fit_to_act(decision(**changes), rehearsal).is_allowed


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"state": "drain", "reason": "bad disk", "actor": "eve"}, "held by eve already: bad disk"),
        ({"state": "drain"}, "held by someone else already: no reason given"),
        ({"state": "drain", "reason": "forewarn:v1 x"}, "held by forewarn already"),
        ({"state": "down"}, "the node is down"),
        ({"state": "unknown"}, "the node is unknown"),
    ],
)
def test_g09_g17_only_a_node_that_is_up_is_taken(kit, context, changes, says):
    verdict = guards.node_state(decision(), with_node(kit, context, **changes))
    assert (verdict.is_allowed, verdict.reason) == (False, says)


def test_g12_another_boot_is_another_node(kit, context):
    assert not guards.same_boot(decision(), with_node(kit, context, boot_id="boot-2")).is_allowed
    assert not guards.same_boot(decision(), with_node(kit, context, boot_id=None)).is_allowed
    unknown = with_node(kit, context, boot_id=None)
    assert guards.same_boot(decision(boot_id=None), unknown).is_allowed


def test_g13_a_node_with_an_unclear_action_is_left_alone(context):
    record = LedgerView(ambiguous={"a": "cordon ended unclear"})
    verdict = guards.clear_record(decision(), replace(context, record=record))
    assert verdict.reason == "cordon ended unclear"
    assert guards.clear_record(decision(node="b"), replace(context, record=record)).is_allowed


def test_a_node_held_by_the_ledger_is_not_taken_again(context):
    held = Held(intent_key="i", action="cordon", boot_id=None, since=NOW)
    there = replace(context, record=LedgerView(held={"a": held}))
    assert not guards.not_held(decision(), there).is_allowed


def test_g19_tries_are_budgeted(context):
    most = context.site.caps.attempts
    below = replace(context, record=LedgerView(failed={("a", "boot-1"): most - 1}))
    full = replace(context, record=LedgerView(failed={("a", "boot-1"): most}))
    assert guards.attempts_left(decision(), below).is_allowed
    assert not guards.attempts_left(decision(), full).is_allowed


def test_g10_a_persons_undrain_counts_for_the_whole_cool_down(context):
    hours = timedelta(hours=context.site.undrain_cooldown_hours)
    over = replace(context, record=LedgerView(undrained={"a": NOW - hours}))
    during = replace(
        context, record=LedgerView(undrained={"a": NOW - hours + timedelta(seconds=1)})
    )
    assert guards.cooled_down(decision(), over).is_allowed
    assert not guards.cooled_down(decision(), during).is_allowed


@pytest.mark.parametrize(
    ("site", "node"),
    [
        ({"deny": ("a*",)}, "a"),
        ({"allow": ("b*",)}, "a"),
        ({"allow": ("*",), "deny": ("*",)}, "a"),
        ({}, "gpu[1-99]"),
        ({}, "ALL"),
        ({}, "a,b"),
        ({}, "a; reboot"),
    ],
)
def test_g22_g23_denied_unlisted_and_ambiguous_names_are_left_alone(kit, context, site, node):
    there = replace(context, site=kit.site(**site))
    assert not guards.listed(decision(node=node), there).is_allowed


def test_g22_maintenance_is_half_open(kit, context):
    window = Window(name="cooling", start=NOW, end=NOW + timedelta(hours=1), nodes=("a",))
    inside = replace(context, site=kit.site(maintenance=(window,)))
    assert not guards.out_of_maintenance(decision(), inside).is_allowed
    assert guards.out_of_maintenance(decision(node="b"), inside).is_allowed
    after = replace(inside, now=window.end)
    assert guards.out_of_maintenance(decision(), after).is_allowed


def test_g22_the_hook_keeps_its_hours_in_local_time(kit, context):
    # 10:00 UTC on a Monday is 11:00 in Berlin.
    def verdict(start: int, end: int, **changes: object) -> bool:
        hours = WorkingHours(start=time(start), end=time(end), time_zone="Europe/Berlin", **changes)
        there = replace(context, site=kit.site(working_hours=(hours,)))
        return guards.working_hours(decision(), there).is_allowed

    assert verdict(11, 12)
    assert not verdict(10, 11)
    assert not verdict(11, 12, days=("tue",))
    assert verdict(22, 12, days=("sun",))
    assert not verdict(22, 11, days=("sun",))


def test_g22_the_kill_switch_stops_everything(context):
    verdict = guards.kill_switch(decision(), replace(context, stopped_by="stop file is set"))
    assert (verdict.ceiling, verdict.reason) == ("watch", "stop file is set")


def test_g08_a_burst_stops_its_scope_until_a_person_or_the_time_ends_it(kit, context):
    hold = Hold(
        scope="rack rack-a",
        nodes=("b",),
        text="many",
        until=NOW + timedelta(hours=1),
        is_acknowledged=False,
    )
    there = replace(context, record=LedgerView(holds=(hold,)))
    assert not guards.no_burst(decision(), there).is_allowed
    assert not guards.no_burst(decision(node="b"), there).is_allowed
    assert guards.no_burst(decision(node="c"), there).is_allowed
    assert guards.no_burst(decision(), replace(there, now=hold.until)).is_allowed
    ended = replace(hold, is_acknowledged=True)
    assert guards.no_burst(decision(), replace(there, record=LedgerView(holds=(ended,)))).is_allowed


def test_g03_only_manageable_nodes_are_in_the_denominator(kit):
    nodes = (
        kit.node("up"),
        kit.node("ours", state="drain", reason="forewarn:v1 x"),
        kit.node("theirs", state="drain", reason="disk"),
        kit.node("down", state="down"),
        kit.node("unknown", state="unknown"),
        kit.node("denied"),
        kit.node("maintained"),
    )
    window = Window(name="w", start=NOW, end=NOW + timedelta(hours=1), nodes=("maintained",))
    site = kit.site(deny=("denied",), maintenance=(window,))
    cluster = ClusterState(as_of=NOW, nodes=nodes)
    assert manageable_nodes(cluster, site=site, now=NOW) == {"up", "ours"}
