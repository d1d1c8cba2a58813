"""The Slurm actuator against a Slurm that fails at every command: what it says came of it is so."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from features.errors import DataError
from remediation.actuators.protocol import Actuator, Order, Outcome
from remediation.actuators.slurm import SlurmActuator
from remediation.actuators.slurm_run import Ran
from remediation.actuators.slurm_state import SlurmCluster
from remediation.cluster.reasons import Reason, parse_reason

sys.path.insert(0, str(Path(__file__).parent))

from slurm_world import FAULTS, FakeJob, FakeNode, FakeSlurm, drain_as

NODE = "gpu000"
REASON = Reason(score=0.9, horizon_h=24, fault_type=None, model_version="17", decision_id="0" * 16)
ACTIONS = ("cordon", "drain_after_jobs", "checkpoint_then_drain", "drain_now")
VERBS = (*ACTIONS, "undrain", "end_notice")


def held_node(**more) -> FakeNode:
    return FakeNode(flags=frozenset({"DRAIN"}), reason=str(REASON), actor="hook", **more)


def world_for(verb: str) -> FakeSlurm:
    node = held_node() if verb in ("undrain", "end_notice") else FakeNode()
    jobs = [
        FakeJob("7", (NODE,)),
        FakeJob("9", (NODE, "gpu001"), job_id="8_1"),
        FakeJob("10", (NODE,), requeue="0"),
    ]
    return FakeSlurm(
        nodes={NODE: node, "gpu001": FakeNode()}, jobs=[] if verb == "undrain" else jobs
    )


def actuator(world: FakeSlurm, **more) -> SlurmActuator:
    return SlurmActuator(SlurmCluster(runner=world), runner=world, sleep=lambda _: None, **more)


def order_for(verb: str, world: FakeSlurm) -> Order:
    """The order as the hook gives it, from an undisturbed look at the cluster."""
    calm = replace(world, fault=None, before_update=None, asked=[], effects=[])
    state = SlurmCluster(runner=calm).read()
    return Order(
        action=verb if verb in ACTIONS else "drain_after_jobs",
        expected=state.by_name[NODE],
        reason=REASON,
        jobs=state.jobs_on(NODE),
        notice_minutes=30,
    )


def carry(verb: str, world: FakeSlurm, order: Order, **more) -> Outcome:
    one = actuator(world, **more)
    if verb == "cordon":
        return one.cordon(order)
    if verb in ACTIONS:
        return one.drain(order)
    return one.undrain(order) if verb == "undrain" else one.end_notice(order)


def is_held(world: FakeSlurm) -> bool:
    return "DRAIN" in world.nodes[NODE].flags


def verbs(commands) -> list[str]:
    return [c[1] if c[0] == "scontrol" else c[0] for c in commands]


def test_it_is_an_actuator():
    one: Actuator = actuator(world_for("cordon"))
    assert (one.name, one.is_dry_run) == ("slurm", False)
    assert one.state(NODE).name == NODE
    assert one.state("gpu009") is None


@pytest.mark.parametrize("verb", ACTIONS)
def test_g18_a_hold_drains_with_our_reason(verb):
    world = world_for(verb)
    outcome = carry(verb, world, order_for(verb, world))
    assert outcome.status == "done"
    assert is_held(world)
    assert parse_reason(world.nodes[NODE].reason) == REASON
    assert outcome.commands == tuple(world.effects)


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("cordon", ["update"]),
        ("drain_after_jobs", ["update"]),
        ("checkpoint_then_drain", ["update", "notify", "notify", "notify"]),
        ("drain_now", ["update", "notify", "notify", "notify", "requeue", "requeue"]),
        ("end_notice", ["requeue", "requeue"]),
    ],
)
def test_g25_notice_then_requeue_of_what_allows_it_and_nothing_of_the_rest(verb, expected):
    world = world_for(verb)
    outcome = carry(verb, world, order_for(verb, world))
    assert verbs(world.effects) == expected
    if "requeue" in expected:
        assert [job.number for job in world.jobs] == ["10"]
        assert "job 10 may not be interrupted and runs on" in outcome.detail


def test_a_task_of_an_array_is_told_by_its_number_and_requeued_by_its_own_id():
    world = world_for("drain_now")
    carry("drain_now", world, order_for("drain_now", world))
    assert ("scontrol", "notify", "9") in [command[:3] for command in world.effects]
    assert ("scontrol", "requeue", "8_1") in world.effects


def test_g25_a_job_that_may_not_be_requeued_is_cancelled_only_in_a_listed_partition():
    for listed, left in (((), ["10"]), (("debug",), ["10"]), (("batch",), [])):
        world = world_for("end_notice")
        carry("end_notice", world, order_for("end_notice", world), interruptible=listed)
        assert [job.number for job in world.jobs] == left
        assert ("scancel", "10") in world.effects or left


def test_only_jobs_of_the_order_are_interrupted_and_none_that_is_ending():
    world = world_for("end_notice")
    order = order_for("end_notice", world)
    world.jobs[0].state = "COMPLETING"
    world.jobs.append(FakeJob("11", (NODE,)))
    carry("end_notice", world, order)
    assert world.effects == [("scontrol", "requeue", "8_1")]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        (
            {"flags": frozenset({"DRAIN"}), "reason": "disk", "actor": "eve"},
            "drained already by eve",
        ),
        ({"base": "DOWN"}, "the node is down"),
        ({"base": "DOWN*", "flags": frozenset({"DRAIN"}), "reason": str(REASON)}, "already"),
        ({"flags": frozenset({"NOT_RESPONDING"})}, "the node is unknown"),
        ({"flags": frozenset({"BRAND_NEW"})}, "the node is unknown"),
        ({"started": 1795999999}, "boot_id was"),
        ({"reason": "look at this one"}, "reason was None"),
    ],
)
def test_g09_g11_g17_a_node_that_is_not_as_expected_is_not_touched(changes, detail):
    world = world_for("cordon")
    order = order_for("cordon", world)
    world.nodes[NODE] = FakeNode(**changes)
    outcome = carry("cordon", world, order)
    assert world.effects == []
    assert detail in outcome.detail
    assert outcome.status == ("done" if detail == "already" else "not_done")


@pytest.mark.parametrize(
    ("node", "detail"),
    [
        (FakeNode(), "not drained"),
        (FakeNode(flags=frozenset({"DRAIN"}), reason="disk", actor="eve"), "held by eve (disk)"),
        (held_node(base="DOWN"), "never revived"),
        (held_node(base="DOWN*"), "never revived"),
        (held_node(base="IDLE*"), "the node is also *"),
        (replace(held_node(), flags=frozenset({"DRAIN", "MAINT"})), "also MAINT"),
        (replace(held_node(), flags=frozenset({"DRAIN", "REBOOT_ISSUED"})), "REBOOT_ISSUED"),
        (replace(held_node(), reason="forewarn:v1 another"), "reason was"),
        (held_node(started=1795999999), "boot_id was"),
    ],
)
def test_g09_g17_only_what_is_ours_now_and_only_drained_is_returned(node, detail):
    world = world_for("undrain")
    order = order_for("undrain", world)
    world.nodes[NODE] = node
    outcome = carry("undrain", world, order)
    assert (outcome.status, world.effects) == ("not_done", [])
    assert detail in outcome.detail


def test_g17_return_is_by_undrain_and_leaves_no_reason():
    world = world_for("undrain")
    outcome = carry("undrain", world, order_for("undrain", world))
    assert outcome.status == "done"
    assert world.effects == [("scontrol", "update", f"NodeName={NODE}", "State=UNDRAIN")]
    assert world.nodes[NODE] == FakeNode(actor="hook")


@pytest.mark.parametrize("verb", ACTIONS)
def test_g09_who_drains_while_our_command_is_under_way_gets_their_reason_back(verb):
    world = world_for(verb)
    world.before_update = drain_as(NODE, "eve", '"bad" disk = "sda"')
    outcome = carry(verb, world, order_for(verb, world))
    assert outcome.status == "not_done"
    assert "eve" in outcome.detail
    assert "their reason was put back" in outcome.detail
    assert world.nodes[NODE].reason == '"bad" disk = "sda"'
    assert is_held(world)
    assert verbs(world.effects) == ["update", "update"]


def test_g09_who_drains_while_we_return_a_node_keeps_it_drained():
    world = world_for("undrain")
    world.before_update = drain_as(NODE, "eve", "disk")
    outcome = carry("undrain", world, order_for("undrain", world))
    assert outcome.status == "not_done"
    assert (is_held(world), world.nodes[NODE].reason) == (True, "disk")


def test_g09_who_sets_a_reason_after_us_keeps_it():
    world = world_for("cordon")
    run = world.run

    def late(command, **more):
        ran = run(command, **more)
        if command[1] == "update":
            drain_as(NODE, "eve", "disk")(world)
        return ran

    world.run = late
    outcome = carry("cordon", world, order_for("cordon", world))
    assert outcome.status == "not_done"
    assert "eve (disk) took it at the same moment" in outcome.detail
    assert verbs(world.effects) == ["update"]


def test_a_reason_that_cannot_be_put_back_goes_to_a_person():
    world = world_for("cordon")
    order = order_for("cordon", world)
    world.before_update = drain_as(NODE, "eve", "disk\tsda")
    outcome = carry("cordon", world, order)
    assert outcome.status == "ambiguous"
    assert "disk\\tsda" in outcome.detail


def test_g23_a_hostile_name_is_refused_before_anything_is_run():
    world = world_for("cordon")
    order = order_for("cordon", world)
    hostile = replace(order, expected=replace(order.expected, name="gpu[000-001]"))
    for verb in ("cordon", "drain_now", "undrain"):
        with pytest.raises(DataError, match="Nothing was run"):
            carry(verb, world, hostile)
    assert world.asked == []


def last_change(verb: str) -> int:
    """The place, in an undisturbed run, of the command that changes the node."""
    world = world_for(verb)
    carry(verb, world, order_for(verb, world))
    return [command[:2] for command in world.asked].index(("scontrol", "update"))


@pytest.mark.parametrize("verb", [*ACTIONS, "undrain"])
@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("refused", "not_done"),
        ("fails_before", "ambiguous"),
        ("late_before", "ambiguous"),
        ("fails_after", "done"),
        ("late_after", "done"),
        ("garbage", "done"),
        ("cut", "done"),
    ],
)
def test_g11_g13_what_came_of_a_change_is_what_the_node_shows(verb, fault, status):
    world = world_for(verb)
    was_held = is_held(world)
    order = order_for(verb, world)
    world.fault = (last_change(verb), fault)
    outcome = carry(verb, world, order)
    assert outcome.status == status
    assert (is_held(world) != was_held) == (status == "done")


@pytest.mark.parametrize("verb", VERBS)
def test_g13_with_a_fault_at_any_command_the_word_is_true_and_nothing_is_done_twice(verb):
    calm = world_for(verb)
    carry(verb, calm, order_for(verb, calm))
    for turn in range(len(calm.asked)):
        for fault in FAULTS:
            world = world_for(verb)
            before = is_held(world), world.nodes[NODE].reason
            order = order_for(verb, world)
            world.fault = (turn, fault)
            outcome = carry(verb, world, order)
            after = is_held(world), world.nodes[NODE].reason
            where = f"{fault} at {turn}: {calm.asked[turn]}"
            if outcome.status == "not_done":
                assert (after, world.effects) == (before, []), where
            if outcome.status == "done":
                wanted = (False, None) if verb == "undrain" else (True, str(REASON))
                assert after == wanted, where
            world.fault = None
            carry(verb, world, order)
            assert len(world.effects) == len(set(world.effects)), where


@pytest.mark.parametrize("verb", [*ACTIONS, "undrain"])
def test_g13_a_node_that_cannot_be_read_again_is_unclear_and_one_bad_look_is_not(verb):
    assert carry_with_blind_looks(verb, n_blind=1).status == "done"
    assert carry_with_blind_looks(verb, n_blind=99).status == "ambiguous"


def carry_with_blind_looks(verb: str, *, n_blind: int) -> Outcome:
    world = world_for(verb)
    order = order_for(verb, world)
    run, left = world.run, [n_blind]

    def blind(command, **more):
        is_look = "node" in command and world.effects
        if is_look and left[0] > 0:
            left[0] -= 1
            return replace(run(command, **more), code=1, err="Unable to contact slurm controller")
        return run(command, **more)

    world.run = blind
    return carry(verb, world, order)


def test_a_job_that_could_not_be_told_is_named_and_the_node_is_held():
    world = world_for("checkpoint_then_drain")
    order = order_for("checkpoint_then_drain", world)
    world.run = failing(world.run, "notify", "7")
    outcome = carry("checkpoint_then_drain", world, order)
    assert outcome.status == "done"
    assert "job 7 may not have been told" in outcome.detail
    assert is_held(world)


def test_a_job_that_was_not_requeued_is_named():
    world = world_for("end_notice")
    order = order_for("end_notice", world)
    world.run = failing(world.run, "requeue", "7")
    outcome = carry("end_notice", world, order)
    assert outcome.status == "ambiguous"
    assert "job 7 still runs" in outcome.detail


def test_end_notice_is_only_for_a_node_that_we_hold():
    world = world_for("end_notice")
    order = order_for("end_notice", world)
    for node in (FakeNode(), replace(held_node(), reason="disk")):
        world.nodes[NODE] = node
        assert carry("end_notice", world, order).status == "not_done"
        unchanged = replace(order, expected=actuator(world).state(NODE))
        outcome = carry("end_notice", world, unchanged)
        assert (outcome.status, outcome.detail) == ("not_done", "the node is not held by forewarn")
    assert world.effects == []


def failing(run, verb: str, job: str):
    def run_or_fail(command, **more):
        if tuple(command[1:3]) == (verb, job):
            return Ran(command=tuple(command), code=1, err="Socket timed out")
        return run(command, **more)

    return run_or_fail


def test_g18_the_longest_reason_fits_where_slurm_keeps_it():
    longest = Reason(
        score=1.0, horizon_h=8760, fault_type="hbm_uncorrectable", model_version="m" * 64,
        decision_id="f" * 16,
    )  # fmt: skip
    assert len(str(longest)) <= 255  # slurmdbd's event table holds a reason as tinytext
