"""One test per guarantee that guards and caps uphold, and a proof that each of them is needed."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

import polars as pl
import pytest

from remediation.cluster.hold_out import HoldOut
from remediation.cluster.state import ClusterState, JobView, NodeView
from remediation.decision import HARM, Decision, touches_node
from remediation.guards.caps import CAPS, TELLS_A_PERSON
from remediation.guards.judge import GuardContext, judge
from remediation.hook import ALL_GUARDS
from remediation.inbox.requested import Approval, Requested
from remediation.ledger.view import Held, Hold, LedgerView
from remediation.program.asked import guards_with
from remediation.site import Caps, LevelRule, Site, Window, WorkingHours

NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
PLACE = {"rack": "r1", "partitions": ("p",), "boot_id": "boot-1", "n_gpus": 8}
NODES = tuple(NodeView(name=name, state="up", **(PLACE | {"rack": name})) for name in "abcd")
OPEN = Site(
    levels=(LevelRule(level="notify_then_drain"),),
    caps=Caps(held_percent=100, partition_percent=100, per_rack=None, actions_per_hour=9),
)
DECISION = Decision(
    decision_id="0" * 16,
    node="a",
    boot_id="boot-1",
    as_of=NOW,
    decided_at=NOW,
    wanted="drain_after_jobs",
    score=0.9,
    status="ok",
    horizon_h=24,
    fault_type="nvlink",
    model_version="17",
    trained_on="real",
    sentence="",
)
CONTEXT = GuardContext(
    now=NOW,
    site=OPEN,
    cluster=ClusterState(as_of=NOW, nodes=NODES),
    expires_at=NOW + HOUR,
    is_rehearsal=False,
    stopped_by=None,
    alerts=frozenset("abcd"),
    manageable=frozenset("abcd"),
    n_manageable_in={"p": 4},
    held=frozenset(),
    n_recent=0,
    record=LedgerView(),
)


def cluster(*, jobs=(), **changes):
    """The cluster with node `a` changed."""
    nodes = tuple(replace(n, **changes) if n.name == "a" else n for n in NODES)
    return {"cluster": ClusterState(as_of=NOW, nodes=nodes, jobs=jobs)}


def site(**changes):
    return {"site": OPEN.model_copy(update=changes)}


def caps(**changes):
    return site(caps=OPEN.caps.model_copy(update=changes))


def record(**changes):
    return {"record": LedgerView(**changes)}


IN_HOLD_OUT = HoldOut(percent=50, salt="1")
WINDOW = Window(name="w", start=NOW - HOUR, end=NOW + HOUR)
NIGHT = WorkingHours(start=time(22), end=time(6), time_zone="UTC")
STOP = Hold(scope="fleet", nodes=("b",), text="", until=NOW + HOUR, is_acknowledged=False)
HELD = {"a": Held(intent_key="i", action="cordon", boot_id="boot-1", since=NOW)}
JOB = JobView(job_id="7", nodes=("a", "b"))
SMALL = ClusterState(as_of=NOW, nodes=(NODES[0], replace(NODES[1], partitions=("q",))))

FORBIDDEN: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "kill_switch": ({}, {"stopped_by": "stop file is set"}),
    "scores_in_time": ({}, {"expires_at": NOW}),
    "score_known": ({"score": None, "status": "unknown"}, {"is_rehearsal": True}),
    "model_fit_to_act": ({"trained_on": "synthetic"}, {}),
    "policy_level": ({}, site(levels=())),
    "listed": ({}, site(deny=("a",))),
    "not_held_out": ({}, site(hold_out=IN_HOLD_OUT)),
    "node_state": ({}, cluster(state="drain", reason="disk")),
    "same_boot": ({}, cluster(boot_id="boot-2")),
    "not_held": ({}, record(held=HELD)),
    "clear_record": ({}, record(ambiguous={"a": "unclear"})),
    "attempts_left": ({}, record(failed={("a", "boot-1"): 3})),
    "cooled_down": ({}, record(undrained={"a": NOW - HOUR})),
    "out_of_maintenance": ({}, site(maintenance=(WINDOW,))),
    "working_hours": ({}, site(working_hours=(NIGHT,))),
    "warned_often_enough": ({}, {"alerts": frozenset("b")}),
    "more_than_applications": ({"is_application_only": True}, {}),
    "no_burst": ({}, record(holds=(STOP,))),
    "cap_fleet": ({}, caps(held_most=1) | {"held": frozenset("b")}),
    "cap_partition": ({}, caps(partition_percent=25) | {"held": frozenset("b")}),
    "cap_rack": ({}, caps(per_rack=0)),
    "cap_job": ({}, cluster(jobs=(JOB,)) | {"held": frozenset("b")}),
    "cap_rate": ({}, {"n_recent": 9}),
    "never_all": ({}, {"cluster": SMALL, "n_manageable_in": {"p": 1, "q": 1}}),
}
"""By guard, a case that it alone forbids: changes to the decision and to the context."""


def judged(name, guards=ALL_GUARDS):
    about, around = FORBIDDEN[name]
    return judge(replace(DECISION, **about), replace(CONTEXT, **around), guards)


def test_the_plain_case_passes_every_guard():
    one = judge(DECISION, CONTEXT, ALL_GUARDS)
    assert (one.action, one.blocked_by) == ("drain_after_jobs", ())


def test_every_guard_has_a_case():
    assert set(FORBIDDEN) == {guard.__name__ for guard in ALL_GUARDS}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_each_guard_is_needed_for_without_it_something_forbidden_passes(name):
    one = judged(name)
    assert not touches_node(one.action)
    assert [said.split(":")[0] for said in one.blocked_by] == [name]
    without = tuple(guard for guard in ALL_GUARDS if guard.__name__ != name)
    assert judged(name, without).action == "drain_after_jobs"


@pytest.mark.parametrize("name", FORBIDDEN)
def test_no_verdict_of_another_guard_lifts_a_no(name):
    for guards in (ALL_GUARDS, ALL_GUARDS[::-1]):
        assert not touches_node(judged(name, guards).action)


@pytest.mark.parametrize("name", FORBIDDEN)
def test_g20_every_no_gives_its_reason_in_words(name):
    (said,) = judged(name).blocked_by
    assert len(said.split(": ", 1)[1]) >= 6
    assert len(judged(name).verdicts) == len(ALL_GUARDS)


@pytest.mark.parametrize(("n_nodes", "is_left"), [(1, True), (2, False)])
def test_a_node_under_a_large_job_is_never_held_out(n_nodes, is_left):
    wide = JobView(job_id="7", nodes=("a", "x")[:n_nodes], is_requeue_allowed=True)
    around = replace(CONTEXT, **(site(hold_out=IN_HOLD_OUT) | cluster(jobs=(wide,))))
    one = judge(DECISION, around, ALL_GUARDS)
    assert (one.action == "watch") == is_left
    if not is_left:
        (said,) = [v.reason for v in one.verdicts if v.guard == "not_held_out"]
        assert said == "in the hold-out, which gives way to job 7 on 2 nodes"


@pytest.mark.parametrize("wanted", ["cordon", "drain_after_jobs", "checkpoint_then_drain"])
def test_no_act_of_the_hook_touches_a_node_of_the_hold_out(wanted):
    around = replace(CONTEXT, **site(hold_out=IN_HOLD_OUT))
    one = judge(replace(DECISION, wanted=wanted), around, ALL_GUARDS)
    assert one.action == "watch"
    assert one.blocked_by[0].startswith("not_held_out: in the hold-out of 50 % of nodes")


@pytest.mark.parametrize(
    ("asked", "action"),
    [(None, "watch"), ("cordon", "cordon"), ("drain_after_jobs", "drain_after_jobs")],
)
def test_the_hold_out_gives_way_to_what_a_person_approved_and_no_further(asked, action):
    around = replace(CONTEXT, **site(hold_out=IN_HOLD_OUT))
    leave = {
        "a": Approval(
            actor="ann",
            decision_id=DECISION.decision_id,
            boot_id="boot-1",
            wanted=asked or "cordon",
            expires_at=NOW + HOUR if asked else NOW,  # leave that has run out is none
            recorded_at=NOW,
        )
    }
    one = judge(DECISION, around, guards_with(Requested(approvals=leave)))
    assert one.action == action
    (said,) = [v.reason for v in one.verdicts if v.guard == "not_held_out"]
    assert said.startswith("in the hold-out of 50 % of nodes")
    assert ("ann approved" in said) == (asked is not None)


def test_a_run_leaves_the_hold_out_alone_acts_on_the_others_and_notes_both(kit):
    held_out = HoldOut(percent=50, salt="1")
    names = [name for name in "abcdefgh" if not held_out.chooses(name)]
    world = kit.world({"a": 0.9, names[0]: 0.9})
    world.site = world.site.model_copy(update={"hold_out": held_out})
    world.run()
    assert world.acted_on == [names[0]]
    noted = {e.node: e.body["verdicts"] for e in world.ledger.entries(kinds=("decision",))}
    verdicts = {v[0]: v[1] for v in noted["a"]}
    assert [guard for guard, is_allowed in verdicts.items() if not is_allowed] == ["not_held_out"]


def test_g01_the_default_site_observes_for_every_group_and_fault():
    for fault in (None, "nvlink", "hbm_uncorrectable"):
        one = judge(replace(DECISION, fault_type=fault), replace(CONTEXT, site=Site()), ALL_GUARDS)
        assert one.action == "watch"
        assert any("level observe (no rule fits: default)" in said for said in one.blocked_by)


def test_g02_the_defaults_are_the_promised_ones():
    found = Caps()
    assert (found.held_percent, found.held_most) == (2.0, 10)
    assert (found.per_rack, found.per_job, found.actions_per_hour) == (1, 1, 2)


@pytest.mark.parametrize("action", ["cordon", "drain_after_jobs", "checkpoint_then_drain"])
@pytest.mark.parametrize("name", ["cap_fleet", "cap_partition", "cap_rack", "cap_job", "cap_rate"])
def test_g02_cordons_count_like_drains(name, action):
    about, around = FORBIDDEN[name]
    one = judge(replace(DECISION, wanted=action, **about), replace(CONTEXT, **around), ALL_GUARDS)
    assert one.action == "watch"


def test_g04_every_cap_that_trips_is_brought_to_a_person():
    assert {cap.__name__ for cap in CAPS} <= TELLS_A_PERSON


def test_g02_no_cap_fails_on_a_cluster_without_nodes():
    nothing = replace(
        CONTEXT,
        cluster=ClusterState(as_of=NOW),
        manageable=frozenset(),
        n_manageable_in={},
    )
    assert judge(DECISION, nothing, ALL_GUARDS).action == "watch"


def test_g06_an_unknown_score_or_node_is_neither_taken_nor_watched_as_healthy():
    assert judged("score_known").action == "none"
    unknown = replace(CONTEXT, **cluster(state="unknown"))
    assert judge(DECISION, unknown, ALL_GUARDS).blocked_by == ("node_state: the node is unknown",)


@pytest.mark.parametrize(
    ("meaning", "acts"), [("Number of application Xids", False), ("Number of memory events", True)]
)
def test_g08_a_published_score_of_application_xids_alone_drains_nothing(kit, meaning, acts):
    world = kit.world({"a": 0.9})
    said = f"health events (90% of what raises the score): {meaning} of this GPU over 24 h: 7"
    rows = world.scores.node_scores.with_columns(
        reasons=pl.lit(["leading GPU: GPU-1", said], dtype=pl.List(pl.String()))
    )
    world.scores = replace(world.scores, node_scores=rows)
    world.run()
    assert world.acted_on == (["a"] if acts else [])


@pytest.mark.parametrize(
    ("scope", "driver", "stops"),
    [
        ("fleet", None, True),
        ("rack a", None, True),
        ("rack b", None, False),
        ("driver 550.1", "550.1", True),
        ("driver 550.1", "550.2", False),
        ("driver 550.1", None, False),
    ],
)
def test_g08_a_burst_stops_the_nodes_of_its_scope(scope, driver, stops):
    hold = replace(STOP, scope=scope)
    there = replace(CONTEXT, **cluster(driver=driver), **record(holds=(hold,)))
    assert (judge(DECISION, there, ALL_GUARDS).action == "watch") == stops


@pytest.mark.parametrize("reason", ["disk", "", None, "see forewarn: ticket 7"])
def test_g09_another_owners_drain_is_never_touched(reason):
    there = replace(CONTEXT, **cluster(state="drain", reason=reason, actor="eve"))
    one = judge(DECISION, there, ALL_GUARDS)
    assert one.action == "watch"
    assert one.blocked_by[0].startswith("node_state: held by eve already")


@pytest.mark.parametrize("state", ["drain", "down", "unknown"])
def test_g17_only_a_node_that_is_up_is_taken(state):
    there = replace(CONTEXT, **cluster(state=state, reason="forewarn:v1 x"))
    assert judge(DECISION, there, ALL_GUARDS).action == "watch"


@pytest.mark.parametrize("wanted", ["cordon", "checkpoint_then_drain", "drain_now"])
@pytest.mark.parametrize("changes", [{"trained_on": "synthetic"}, {"status": "prior"}])
def test_g28_synthetic_and_prior_scores_never_act_whatever_the_level(wanted, changes):
    one = judge(replace(DECISION, wanted=wanted, **changes), CONTEXT, ALL_GUARDS)
    assert one.action == "watch"


def test_draining_at_once_is_left_to_people():
    one = judge(replace(DECISION, wanted="drain_now"), CONTEXT, ALL_GUARDS)
    assert HARM[one.action] < HARM["drain_now"]
