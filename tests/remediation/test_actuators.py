import pytest

from features.errors import DataError
from remediation.actuators.dry_run import DryRunActuator
from remediation.actuators.protocol import FakeActuator, Order, carry_out
from remediation.actuators.slurm_commands import hold_commands, undrain_commands
from remediation.cluster.reasons import Reason
from remediation.cluster.state import ClusterState, FakeCluster, JobView

REASON = Reason(score=0.9, horizon_h=24, fault_type=None, model_version="17", decision_id="0" * 16)


def order(node, action="drain_after_jobs", job_id="7_1"):
    return Order(
        action=action,
        expected=node,
        reason=REASON,
        jobs=(JobView(job_id=job_id, nodes=(node.name,), is_requeue_allowed=True),),
        notice_minutes=30,
    )


@pytest.mark.parametrize(
    ("action", "verbs"),
    [
        ("cordon", ["update"]),
        ("drain_after_jobs", ["update"]),
        ("checkpoint_then_drain", ["update", "notify"]),
        ("drain_now", ["update", "notify", "requeue"]),
    ],
)
def test_g25_each_action_is_exact_argument_lists(kit, action, verbs):
    commands = hold_commands(order(kit.node("gpu-1"), action))
    assert [command[1] for command in commands] == verbs
    assert commands[0] == (
        "scontrol",
        "update",
        "NodeName=gpu-1",
        "State=DRAIN",
        f"Reason={REASON}",
    )


def test_g17_return_is_by_undrain_which_revives_no_node_that_is_down(kit):
    assert undrain_commands(order(kit.node("gpu-1"))) == (
        ("scontrol", "update", "NodeName=gpu-1", "State=UNDRAIN"),
    )


@pytest.mark.parametrize("name", ["ALL", "all", "gpu[1-9]", "a,b", "a b", "", "-x", "a;b", "a\n"])
def test_g23_a_name_that_could_mean_more_than_one_node_is_refused(kit, name):
    for commands in (hold_commands, undrain_commands):
        with pytest.raises(DataError, match="Nothing was run"):
            commands(order(kit.node(name)))


@pytest.mark.parametrize("job_id", ["7; rm", "7,8", "", "7_*", "7_[1-9]"])
def test_g23_a_job_id_that_is_not_one_job_is_refused(kit, job_id):
    with pytest.raises(DataError, match="Nothing was run"):
        hold_commands(order(kit.node("gpu-1"), job_id=job_id))


def test_the_dry_run_changes_nothing(kit):
    cluster = FakeCluster(ClusterState(as_of=kit.start, nodes=(kit.node("a"),)))
    before = cluster.read()
    dry = DryRunActuator(cluster)
    for action in ("cordon", "drain_now"):
        assert carry_out(dry, order(kit.node("a"), action)).status == "would_do"
    assert dry.undrain(order(kit.node("a"))).status == "would_do"
    assert cluster.read() == before


def test_an_action_that_touches_no_node_is_not_carried_out(kit):
    cluster = FakeCluster(ClusterState(as_of=kit.start, nodes=(kit.node("a"),)))
    assert carry_out(FakeActuator(cluster), order(kit.node("a"), "watch")).status == "not_done"


def test_g09_only_our_own_hold_is_undone(kit):
    cluster = FakeCluster(ClusterState(as_of=kit.start, nodes=(kit.node("a"),)))
    actuator = FakeActuator(cluster)
    actuator.drain(order(kit.node("a")))
    assert actuator.undrain(order(kit.node("a"))).status == "done"
    cluster.set_node("a", state="drain", reason="disk")
    assert actuator.undrain(order(kit.node("a"))).status == "not_done"
    cluster.set_node("a", state="down", reason="forewarn:v1 x")
    assert actuator.undrain(order(kit.node("a"))).status == "not_done"
