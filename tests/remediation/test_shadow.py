"""What a hook that observed would have done, held against a hook that did, and how it is judged."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.tables import (
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_MAINTENANCE,
    CORE_NODE_STATES,
)
from remediation.actuators.dry_run import DryRunActuator
from remediation.cluster.state import ClusterState, NodeView
from remediation.decision import Decision, Judged, Verdict
from remediation.guards.caps import CAPS
from remediation.ledger.entries import MemoryLedger, NewEntry
from remediation.shadow import WouldBe, is_known_up, read_wishes, replay
from remediation.shadow_outcomes import match
from remediation.site import Caps, LevelRule, Site
from tests.remediation.conftest import Kit

T = datetime(2026, 1, 5, 10, tzinfo=UTC)
H = timedelta(hours=1)
LEAD = timedelta(minutes=30)
FOREVER = {"since": T - 1000 * H, "until": T + 1000 * H}


def decision(node: str = "a", at: float = 0.0, **changes: object) -> Decision:
    values = {
        "decision_id": f"{node}-{at}",
        "node": node,
        "boot_id": None,
        "as_of": T + at * H,
        "decided_at": T + at * H,
        "wanted": "drain_now",
        "score": 0.9,
        "status": "ok",
        "horizon_h": 24,
        "fault_type": "nvlink",
        "model_version": "17",
        "trained_on": "real",
        "sentence": "because",
    }
    return Decision(**(values | changes))  # type: ignore[arg-type]


def wish(
    node: str = "a", at: float = 0.0, *, no: tuple[str, ...] = (), **changes: object
) -> Judged:
    made = decision(node, at, **changes)
    verdicts = tuple(Verdict(guard, False, "because", "watch") for guard in no)
    return Judged(made, verdicts, "watch" if no else made.wanted)


def entry(at: float, actuator: str, level_ceiling: str, wanted: str = "drain_now") -> NewEntry:
    body = {
        "wanted": wanted,
        "action": "watch",
        "boot_id": None,
        "score": 0.9,
        "status": "ok",
        "horizon_h": 24,
        "fault_type": None,
        "model_version": "17",
        "trained_on": "real",
        "as_of": T.isoformat(),
        "sentence": "because",
        "jobs": [],
        "verdicts": [["policy_level", False, "level", level_ceiling]],
    }
    at_time = T + at * H
    return NewEntry(
        key=f"decision:{actuator}:{at}:{wanted}:{level_ceiling}",
        kind="decision",
        recorded_at=at_time,
        actuator=actuator,
        node="a",
        decision_id="d",
        body=body,
    )


@pytest.mark.parametrize(
    ("new", "is_read"),
    [
        (entry(0, "dry_run", "drain_after_jobs"), True),
        (entry(0, "slurm", "watch"), True),
        (entry(0, "slurm", "cordon"), False),
        (entry(0, "slurm", "drain_now"), False),
        (entry(0, "dry_run", "watch", wanted="watch"), False),
        (entry(-1, "dry_run", "watch"), False),
        (entry(5, "dry_run", "watch"), False),
    ],
    ids=["dry run", "observed", "cordoned", "acted", "nothing wanted", "before", "at the end"],
)
def test_only_decisions_that_could_not_be_carried_out_count(new: NewEntry, is_read: bool) -> None:
    ledger = MemoryLedger()
    ledger.append(new)
    found = read_wishes(ledger.entries(), since=T, until=T + 5 * H)
    assert len(found) == is_read


def test_guards_that_depend_on_what_was_held_are_asked_anew_and_no_others(kit: Kit) -> None:
    world = kit.world({"a": 0.9}, site=kit.site(levels=(), deny=("a",)))
    world.run(actuator=DryRunActuator(world.cluster))
    (found,) = read_wishes(world.ledger.entries(), **FOREVER)
    guards = {verdict.guard for verdict in found.verdicts}
    assert {"listed", "node_state", "warned_often_enough"} <= guards
    assert not {"policy_level", "not_held", *(cap.__name__ for cap in CAPS)} & guards
    assert found.action == "watch"


def nodes(*names: str, **changes: object) -> ClusterState:
    views = tuple(NodeView(name=name, state="up", rack=f"r-{name}") for name in names)
    return ClusterState(as_of=T, nodes=views)


FIVE = nodes("a", "b", "c", "d", "e")
OPEN = Site(caps=Caps(held_percent=100, actions_per_hour=100))


def replayed(wishes: list[Judged], site: Site = OPEN, level: str = "drain_after_jobs"):
    return replay(wishes, cluster_at=lambda _: FIVE, site=site, level=level)


@pytest.mark.parametrize(
    ("level", "action"),
    [
        ("observe", "watch"),
        ("recommend", "watch"),
        ("cordon", "cordon"),
        ("drain_after_jobs", "drain_after_jobs"),
        ("notify_then_drain", "checkpoint_then_drain"),
    ],
)
def test_the_level_asked_for_bounds_the_action(level: str, action: str) -> None:
    (found,) = replayed([wish()], level=level)
    assert found.action == action


def test_a_milder_wish_stays_as_it_was() -> None:
    (found,) = replayed([wish(wanted="cordon")], level="notify_then_drain")
    assert found.action == "cordon"


def test_decisions_within_one_hold_are_one_action() -> None:
    found = replayed([wish(at=0), wish(at=1), wish(at=23.9), wish(at=24)])
    assert [(one.decision.decided_at, one.n_decisions) for one in found] == [
        (T, 3),
        (T + 24 * H, 1),
    ]


def test_a_hold_lasts_as_long_as_the_site_says() -> None:
    site = OPEN.model_copy(update={"caps": Caps(held_percent=100, dry_run_hold_hours=2)})
    assert len(replayed([wish(at=0), wish(at=1), wish(at=2)], site)) == 2


def test_an_alarm_held_back_becomes_the_action_that_follows_it() -> None:
    (found,) = replayed([wish(at=0, no=("warned_often_enough",)), wish(at=1)])
    assert found.is_acting
    assert found.decision.decided_at == T + H
    assert found.until == T + 25 * H
    assert found.held_back_by == (("warned_often_enough", "because"),)


def test_an_alarm_that_is_held_back_for_good_is_no_action() -> None:
    (found,) = replayed([wish(at=0, no=("listed",)), wish(at=1, no=("listed", "no_burst"))])
    assert not found.is_acting
    assert [guard for guard, _ in found.held_back_by] == ["listed", "no_burst"]


@pytest.mark.parametrize(
    ("caps", "guard"),
    [
        (Caps(held_percent=100, held_most=1), "cap_fleet"),
        (Caps(held_percent=100, actions_per_hour=1), "cap_rate"),
    ],
)
def test_caps_count_what_would_have_been_held(caps: Caps, guard: str) -> None:
    site = Site(caps=caps)
    first, second = replayed([wish("a", 0), wish("b", 0.5)], site)
    assert first.is_acting
    assert [name for name, _ in second.held_back_by] == [guard]
    later = replayed([wish("a", 0), wish("b", 24)], site)
    assert [one.is_acting for one in later] == [True, True]


def test_a_hold_that_is_over_counts_no_more_though_its_action_still_does() -> None:
    one_held = Caps(held_percent=100, held_most=1, dry_run_hold_hours=0.4)
    found = replayed([wish("a", 0), wish("b", 0.5)], Site(caps=one_held))
    assert [one.is_acting for one in found] == [True, True]
    one_an_hour = Caps(held_percent=100, actions_per_hour=1, dry_run_hold_hours=0.4)
    found = replayed([wish("a", 0), wish("b", 0.5)], Site(caps=one_an_hour))
    assert [one.is_acting for one in found] == [True, False]


def test_an_action_counts_for_an_hour_though_its_hold_goes_on() -> None:
    site = Site(caps=Caps(held_percent=100, actions_per_hour=1))
    found = replayed([wish("a", 0), wish("b", 1)], site)
    assert [one.is_acting for one in found] == [True, True]


def test_each_round_looks_at_the_cluster_of_its_moment() -> None:
    down = ClusterState(as_of=T, nodes=(NodeView(name="a", state="down"), *FIVE.nodes[1:]))
    found = replay(
        [wish("b", 0), wish("a", 1)],
        cluster_at=lambda now: FIVE if now == T else down,
        site=OPEN,
        level="cordon",
        guards=(is_known_up,),
    )
    assert [one.is_acting for one in found] == [True, False]


def test_an_alarm_held_back_holds_no_node() -> None:
    site = Site(caps=Caps(held_percent=100, held_most=1))
    found = replayed([wish("a", 0, no=("listed",)), wish("b", 0.5)], site)
    assert [one.is_acting for one in found] == [False, True]


def test_a_rule_without_ledger_takes_only_nodes_that_are_up() -> None:
    state = ClusterState(
        as_of=T,
        nodes=(NodeView(name="a", state="down"), NodeView(name="b", state="up"), *FIVE.nodes[2:]),
    )
    found = replay(
        [wish("a"), wish("b"), wish("unheard")],
        cluster_at=lambda _: state,
        site=OPEN,
        level="cordon",
        guards=(is_known_up, *CAPS),
    )
    assert {one.decision.node: one.is_acting for one in found} == {
        "a": False,
        "b": True,
        "unheard": False,
    }


@settings(max_examples=25)
@given(
    rounds=st.lists(
        st.fixed_dictionaries({name: st.sampled_from([0.1, 0.8, 0.9]) for name in "abc"}),
        min_size=1,
        max_size=7,
    ),
    most=st.integers(1, 3),
    rate=st.integers(1, 3),
    hold=st.sampled_from([0.4, 1.0, 24.0]),
)
def test_it_would_have_done_what_a_hook_of_that_level_does(
    rounds: list[dict[str, float]], most: int, rate: int, hold: float
) -> None:
    kit = Kit()
    caps = Caps(
        held_percent=100,
        held_most=most,
        partition_percent=100,
        actions_per_hour=rate,
        per_rack=None,
        dry_run_hold_hours=hold,
    )
    worlds = [
        kit.world(rounds[0], site=kit.site(levels=levels, caps=caps))
        for levels in ((), (LevelRule(level="drain_after_jobs"),))
    ]
    for world in worlds:
        for scores in rounds:
            world.next_tick(scores, actuator=DryRunActuator(world.cluster))
    observed, acting = worlds
    wishes = read_wishes(observed.ledger.entries(), **FOREVER)
    found = replay(
        wishes,
        cluster_at=lambda _: observed.cluster.read(),
        site=observed.site,
        level="drain_after_jobs",
    )
    did = [
        (one.recorded_at, one.node, one.body["action"])
        for one in acting.ledger.entries(kinds=("intent",))
    ]
    would = [(o.decision.decided_at, o.decision.node, o.action) for o in found if o.is_acting]
    assert sorted(would) == sorted(did)


# What became of node `a`, scored at T: lead 30 min, horizon 24 h, record of 100 h.


def incident(at: float, *, end: float | None = None, **changes: object) -> dict[str, object]:
    return {
        "incident_id": f"i{at}",
        "entity_kind": "node",
        "entity_id": "a",
        "node": "a",
        "start": T + at * H,
        "end": T + (at + 1 if end is None else end) * H,
        "fault_type": "nvlink",
        "evidence": "Xid 74",
        "detected_by": "xid",
        "catalogue_version": "1",
    } | changes


def outage(at: float, state: str = "drain", reason: str = "ops") -> dict[str, object]:
    return {"node": "a", "state": state, "reason": reason, "valid_from": T + at * H,
            "valid_to": T + (at + 2) * H}  # fmt: skip


def planned(at: float, kind: str = "maintenance") -> dict[str, object]:
    return {"node": "a", "start": T + at * H, "end": T + (at + 2) * H, "kind": kind}


GPU = {"entity_kind": "gpu", "entity_id": "GPU-1"}
CASES = {
    "in the window": ([incident(5)], [], [], 100, "right", None),
    "of a GPU of it": ([incident(5, **GPU)], [], [], 100, "right", None),
    "of a GPU, node not named": ([incident(5, **GPU, node=None)], [], [], 100, "right", None),
    "of another node": ([incident(5, entity_id="b", node="b")], [], [], 100, "wrong", None),
    "at the lead's end": ([incident(0.5)], [], [], 100, "right", None),
    "before the lead's end": ([incident(0.49)], [], [], 100, "early", None),
    "last moment": ([incident(24.49)], [], [], 100, "right", None),
    "at the horizon's end": ([incident(24.5)], [], [], 100, "late", None),
    "within one more horizon": ([incident(48.4)], [], [], 100, "late", None),
    "after that": ([incident(48.5)], [], [], 100, "wrong", None),
    "nothing": ([], [], [], 100, "wrong", None),
    "record ends first": ([], [], [], 24, "unjudged", "data_end"),
    "record ends with the horizon": ([], [], [], 24.5, "wrong", None),
    "record ends after the incident": ([incident(5)], [], [], 6, "right", None),
    "open failure": ([incident(-2, end=1)], [], [], 100, "unjudged", "in_incident"),
    "repaired failure": ([incident(-2, end=-1)], [], [], 100, "wrong", None),
    "a person drains first": ([incident(5)], [outage(4)], [], 100, "unjudged", "maintenance"),
    "a person drains after": ([incident(5)], [outage(6)], [], 100, "right", None),
    "the drain is the incident": ([incident(5)], [outage(5)], [], 100, "right", None),
    "a person drains, nothing fails": ([], [outage(4)], [], 100, "unjudged", "maintenance"),
    "someone reboots it": ([], [outage(4, "down")], [], 100, "unjudged", "maintenance"),
    "telemetry of its state is lost": ([], [outage(4, "unknown")], [], 100, "wrong", None),
    "drained after the horizon": ([], [outage(25)], [], 100, "wrong", None),
    "our own drain": (
        [incident(5)], [outage(4, reason="forewarn:v1 x")], [], 100, "unjudged", "own_action"),
    "maintenance first": ([incident(5)], [], [planned(4)], 100, "unjudged", "maintenance"),
    "maintenance under way": ([], [], [planned(-1)], 100, "unjudged", "maintenance"),
    "maintenance over": ([], [], [planned(-3)], 100, "wrong", None),
}  # fmt: skip


def judged(
    incidents: list[dict[str, object]],
    states: list[dict[str, object]],
    work: list[dict[str, object]],
    *,
    data_end: float = 100,
    gone_at: float | None = None,
):
    stay = {"gpu_uuid": "GPU-1", "node": "a", "slot": "0",
            "valid_to": None if gone_at is None else T + gone_at * H}  # fmt: skip
    one = WouldBe(decision=decision(), action="drain_after_jobs", until=T + 24 * H)
    (found,) = match(
        [one],
        incidents=pl.DataFrame(incidents, schema=CORE_INCIDENTS.schema),
        inventory=pl.DataFrame([stay], schema=CORE_INVENTORY.schema),
        maintenance=pl.DataFrame(work, schema=CORE_MAINTENANCE.schema),
        node_states=pl.DataFrame(states, schema=CORE_NODE_STATES.schema),
        data_end=T + data_end * H,
        lead=LEAD,
    )
    return found


@pytest.mark.parametrize("case", CASES)
def test_an_action_is_judged_by_the_first_thing_that_happens(case: str) -> None:
    incidents, states, work, data_end, kind, why = CASES[case]
    found = judged(incidents, states, work, data_end=data_end)
    assert (found.kind, found.why) == (kind, why)
    if kind in ("right", "early", "late"):
        assert found.incident is not None
        assert found.incident["incident_id"] == incidents[0]["incident_id"]


@pytest.mark.parametrize(("gone_at", "kind"), [(4, "unjudged"), (5, "right"), (30, "right")])
def test_a_node_that_leaves_before_the_failure_is_unjudged(gone_at: float, kind: str) -> None:
    assert judged([incident(5)], [], [], gone_at=gone_at).kind == kind


def test_a_node_that_was_replaced_is_neither_right_nor_wrong() -> None:
    found = judged([], [], [], gone_at=4)
    assert (found.kind, found.why) == ("unjudged", "not_watched")


def test_nothing_is_matched_to_nothing() -> None:
    empty = {"incidents": CORE_INCIDENTS, "inventory": CORE_INVENTORY,
             "maintenance": CORE_MAINTENANCE, "node_states": CORE_NODE_STATES}  # fmt: skip
    frames = {name: contract.empty() for name, contract in empty.items()}
    assert match([], **frames, data_end=T, lead=LEAD) == ()
