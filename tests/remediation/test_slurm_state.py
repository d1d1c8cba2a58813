"""Reading a Slurm cluster: what is told is read whole, and what is not whole is an error."""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SourceError
from remediation.actuators.slurm_records import (
    JOB_FIELDS,
    Marks,
    Place,
    checkpoint_age_h,
    parse_jobs,
    parse_nodes,
    parse_places,
)
from remediation.actuators.slurm_state import SlurmCluster
from remediation.cluster.state import NodeView

sys.path.insert(0, str(Path(__file__).parent))

from slurm_world import RECORDED, FakeJob, FakeNode, FakeSlurm

NOW = datetime.fromtimestamp(1795997155, UTC) - timedelta(minutes=30)
MARKS = Marks("_f_", "_r_")
NODES = (RECORDED / "nodes.txt").read_text()
JOBS = (RECORDED / "jobs.txt").read_text()
GPUS = {f"gpu00{n}": 8 for n in range(4)}


def node_of(state: str, tail: str = "") -> NodeView:
    line = NODES.splitlines()[0].replace("State=MIXED", f"State={state}")
    return parse_nodes(f"{line}{tail}\n", places={})[0].view


def jobs_of(text: str):
    return {job.view.job_id: job for job in parse_jobs(text, MARKS, now=NOW, gpus=GPUS)}


def slurm(**more) -> FakeSlurm:
    return FakeSlurm(nodes={f"gpu00{n}": FakeNode() for n in range(4)}, **more)


def test_the_recorded_nodes_are_read_as_they_were():
    places = parse_places((RECORDED / "topology.txt").read_text(), racks={"gpu002": "r7"})
    nodes = {node.view.name: node for node in parse_nodes(NODES, places=places)}
    assert nodes["gpu003"].view == NodeView(
        name="gpu003", state="drain", reason="ECC errors = 3 [see ticket] State=IDLE",
        actor="root", boot_id="slurmd-1795993535", switch="leaf1", partitions=("batch",), n_gpus=8,
    )  # fmt: skip
    assert nodes["gpu001"].view.state == "down"
    assert nodes["gpu001"].view.reason == 'bad "cable'
    assert (nodes["gpu002"].view.rack, nodes["gpu002"].view.switch) == ("r7", "leaf1")
    assert [node.is_allocated for node in nodes.values()] == [True, False, True, True]


def test_the_recorded_jobs_are_read_as_they_were():
    jobs = jobs_of(JOBS)
    assert jobs["3_3"].view.nodes == ("gpu002", "gpu003")
    assert jobs["3_2"].number == "8"
    assert [jobs[name].view.n_gpus for name in ("1", "2", "3_3", "4+0")] == [4, 2, 2, 0]
    assert jobs["2"].view.remaining_h == 0.5
    assert jobs["4+0"].view.remaining_h is None
    may = {name: job.view.is_requeue_allowed for name, job in jobs.items()}
    assert may == {"1": True, "2": False, "3_3": True, "3_2": True, "4+0": None, "4+1": None}
    assert jobs["1"].view.checkpoint_age_h == (NOW - datetime(2026, 1, 5, 10, tzinfo=UTC)) / (
        timedelta(hours=1)
    )


@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("IDLE", "up"), ("ALLOCATED", "up"), ("mixed-", "up"), ("IDLE+PLANNED", "up"),
        ("MIXED+DRAIN", "drain"), ("IDLE*+DRAIN", "drain"), ("IDLE+MAINT", "drain"),
        ("IDLE+REBOOT_ISSUED", "drain"), ("idle*", "unknown"), ("IDLE+NOT_RESPONDING", "unknown"),
        ("IDLE+POWERED_DOWN", "unknown"), ("IDLE+BRAND_NEW_FLAG", "unknown"), ("DOWN*", "down"),
        ("DOWN*+DRAIN", "down"), ("IDLE+FAIL", "down"), ("IDLE+DRAIN+INVALID_REG", "drain"),
    ],
)  # fmt: skip
def test_g17_flags_of_a_state_are_all_read(state, meaning):
    assert node_of(state).state == meaning


@pytest.mark.parametrize(
    ("old", "new", "n_gpus"),
    [
        ("CPUEfctv=16 ", "", 8),
        (" LastBusyTime=1795993540", "", 8),
        (" CapWatts=n/a", "", 8),
        (" CfgTRES", " ResumeAfterTime=None CfgTRES", 8),
        ("Gres=gpu:h100:8", "Gres=gpu:a100:4(S:0-3),lscratch:3200", 4),
        ("Gres=gpu:h100:8", "Gres=gpu:1g.10gb:7,gpu:h100:6(S:0,2),nic:2", 13),
        ("Gres=gpu:h100:8", "Gres=(null)", None),
        ("Gres=gpu:h100:8", "Gres=(null) CfgTRES=cpu=64,gres/gpu=4,gres/gpu:a100=4", 4),
    ],
    ids=["20.11", "no busy time", "24.05", "23.02", "sockets", "MIG", "none counted", "TRES"],
)
def test_fields_that_releases_add_or_drop_change_nothing(old, new, n_gpus):
    whole, changed = (
        parse_nodes(f"{line}\n", places={})[0].view
        for line in (NODES.splitlines()[0], NODES.splitlines()[0].replace(old, new))
    )
    assert changed == replace(whole, n_gpus=n_gpus)


def test_a_node_that_never_answered_has_no_boot_id():
    line = NODES.splitlines()[0].replace("SlurmdStartTime=1795993535", "SlurmdStartTime=None")
    assert parse_nodes(f"{line}\n", places={})[0].view.boot_id is None


def test_g09_only_the_reason_says_whose_a_node_is_whatever_else_it_holds():
    view = node_of("IDLE+DRAIN", " Reason=forewarn:v1 x [alice@1795994094]")
    assert (view.owner, view.actor, view.reason) == ("forewarn", "alice", "forewarn:v1 x")
    tail = " Reason=disk [root@1] Comment= Reason=forewarn:v1 x [forewarn@2]"
    assert node_of("IDLE+DRAIN", tail).owner == "other"


def test_a_comment_that_looks_like_a_node_is_no_node():
    text = NODES.replace("Comment=c1", "Comment=c1\nNodeName=gpu777 State=IDLE")
    assert len(parse_nodes(text, places={})) == 4


def test_a_forged_second_line_of_a_node_is_an_error():
    with pytest.raises(SourceError, match="5 nodes have 4 names"):
        parse_nodes(NODES + NODES.splitlines()[0] + "\n", places={})


@pytest.mark.parametrize(
    "text",
    ["", "garbage\n", NODES[:900], NODES[:-1], NODES.replace(" State=DOWN ", " ")],
    ids=["empty", "garbage", "cut", "cut at the end", "no state"],
)
def test_nodes_that_are_not_whole_are_an_error(text):
    with pytest.raises(SourceError, match="scontrol show node"):
        parse_nodes(text, places={})


@given(st.integers(1, len(JOBS) - 1))
def test_jobs_cut_off_anywhere_but_between_two_are_an_error(at):
    if JOBS[:at].endswith("_r_\n"):
        assert 0 < len(jobs_of(JOBS[:at])) < 6
        return
    with pytest.raises(SourceError, match="cut off"):
        jobs_of(JOBS[:at])


def test_squeue_that_does_not_know_a_field_is_an_error():
    with pytest.raises(SourceError, match=f"{len(JOB_FIELDS)} fields were asked for, got 17"):
        jobs_of(JOBS.replace("_f_(null)_r_", "_r_"))


@pytest.mark.parametrize(
    ("told", "n_gpus"),
    [
        ({"tres-alloc": "cpu=8,gres/gpu=16,gres/gpu:h100=16", "tres-per-node": "N/A"}, 16),
        ({"tres-per-node": "gres/gpu:h100:4"}, 8),
        ({"tres-per-node": "gres:gpu:2,gres:gpu:h100:1"}, 6),
        ({"tres-per-node": "N/A", "tres-per-job": "gres:gpu:6"}, 6),
        ({"tres-per-node": "N/A", "tres-per-task": "gres:gpu:1"}, None),
        ({"tres-per-node": "N/A"}, 0),
    ],
)
def test_gpus_of_a_job_are_read_from_whichever_form_names_them(told, n_gpus):
    world = slurm(jobs=[FakeJob("7", ("gpu000", "gpu001"), more=told)])
    (job,) = SlurmCluster(runner=world).read().jobs
    assert job.n_gpus == n_gpus


@pytest.mark.parametrize(
    ("told", "may"),
    [
        ({}, True),
        ({"Requeue": "0"}, False),
        ({"BatchFlag": "0"}, False),
        ({"Requeue": "N/A"}, None),
        ({"JobArrayID": "7+0"}, None),
    ],
    ids=["batch", "not allowed", "interactive", "not told", "one part of several"],
)
def test_g25_only_a_whole_batch_job_that_allows_it_may_be_requeued(told, may):
    world = slurm(jobs=[FakeJob("7", ("gpu000",), more=told)])
    (job,) = SlurmCluster(runner=world).read().jobs
    assert job.is_requeue_allowed is may


@pytest.mark.parametrize(
    ("told", "remaining_h"),
    [
        ({"EndTime": "1795997155", "TimeLimit": "1:00:00"}, 0.5),
        ({"EndTime": "1795990000", "TimeLimit": "1:00:00"}, 0.0),
        ({"EndTime": "1827529555", "TimeLimit": "365-00:00:00"}, None),
        ({"EndTime": "NONE", "TimeLimit": "UNLIMITED"}, None),
    ],
    ids=["limit", "over it", "a year stands for none", "none"],
)
def test_g27_the_time_left_is_that_of_the_limit_and_unknown_without_one(told, remaining_h):
    world = slurm(jobs=[FakeJob("7", ("gpu000",), more=told)])
    (job,) = SlurmCluster(runner=world, clock=lambda: NOW).read().jobs
    assert job.remaining_h == remaining_h


@pytest.mark.parametrize(
    ("comments", "age_h"),
    [
        (["checkpoint=2026-01-05T10:00:00Z"], 2.0),
        (
            ["run 7; checkpoint=2026-01-05T12:30:00+01:00, x", "checkpoint=2026-01-05T10:00:00Z"],
            0.5,
        ),
        (["checkpoint=2026-01-05T10:00:00"], None),
        (["checkpoint=2026-01-05T13:00:00Z"], None),
        (["checkpoint=2026-13-05T10:00:00Z"], None),
        (["mycheckpoint=2026-01-05T10:00:00Z", "(null)"], None),
    ],
    ids=["plain", "newest", "no zone", "to come", "no such month", "another word"],
)
def test_g27_the_age_of_a_checkpoint_is_the_newest_that_can_be_believed(comments, age_h):
    assert checkpoint_age_h(comments, now=datetime(2026, 1, 5, 12, tzinfo=UTC)) == age_h


def test_a_block_is_a_rack_and_a_leaf_a_switch():
    text = (
        "BlockName=b1 BlockIndex=0 Nodes=gpu[000-001] BlockSize=2\n"
        "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=gpu[000-001]\n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=gpu[000-003] Switches=leaf[0-1]\n"
    )
    assert parse_places(text, racks={}) == dict.fromkeys(
        ("gpu000", "gpu001"), Place(rack="b1", switch="leaf0")
    )


def test_the_cluster_is_read_with_nodes_jobs_and_places():
    world = slurm(jobs=[FakeJob("7", ("gpu000", "gpu001"), job_id="6_1")])
    state = SlurmCluster(runner=world, racks={"gpu000": "r1"}, clock=lambda: NOW).read()
    assert state.as_of == NOW
    assert [(n.rack, n.switch) for n in state.nodes[:3]] == [
        ("r1", "leaf0"), (None, "leaf0"), (None, "leaf1"),
    ]  # fmt: skip
    assert [job.job_id for job in state.jobs_on("gpu001")] == ["6_1"]


def test_g11_a_node_looked_at_alone_is_the_same_as_in_the_whole():
    world = slurm(jobs=[FakeJob("7", ("gpu000",))])
    cluster = SlurmCluster(runner=world, racks={"gpu000": "r1"})
    whole = cluster.read().by_name
    for name, view in whole.items():
        assert cluster.state(name).view == view
    assert (
        SlurmCluster(runner=world, racks={"gpu000": "r1"}).state("gpu000").view == (whole["gpu000"])
    )


@pytest.mark.parametrize("name", ["gpu009", "ALL", "gpu[000-001]", "-h", "a b"])
def test_g23_a_name_of_no_node_or_many_is_no_node(name):
    assert SlurmCluster(runner=slurm()).state(name) is None


@pytest.mark.parametrize("fault", ["refused", "fails_before", "late_before", "garbage", "cut"])
def test_a_command_that_fails_is_an_error_and_never_a_smaller_cluster(fault):
    jobs = [FakeJob("7", ("gpu000", "gpu001"))]
    whole = slurm(jobs=jobs)
    SlurmCluster(runner=whole).read()
    assert len(whole.asked) == 4
    for turn in range(4):
        with pytest.raises(SourceError):
            SlurmCluster(runner=slurm(jobs=jobs, fault=(turn, fault))).read()


def test_an_error_names_command_exit_code_and_message():
    world = slurm(fault=(1, "fails_before"))
    with pytest.raises(SourceError, match="show node` ended with code 1: .*Socket timed out"):
        SlurmCluster(runner=world).read()


def test_nodes_that_only_one_command_knows_are_an_error():
    world = slurm()
    answer = world._answer

    def lacks_one(words):
        code, out, err = answer(words)
        return (code, out.replace("gpu003\n", ""), err) if words[0] == "sinfo" else (code, out, err)

    world._answer = lacks_one
    with pytest.raises(SourceError, match="they differ in gpu003"):
        SlurmCluster(runner=world).read()


def test_jobs_that_are_hidden_from_us_are_an_error_and_not_an_idle_node():
    world = slurm(jobs=[FakeJob("7", ("gpu002",))])
    world._queue = lambda _: ""
    with pytest.raises(SourceError, match="no job on 1 nodes .* such as gpu002.*PrivateData"):
        SlurmCluster(runner=world).read()


def test_jobs_on_nodes_that_are_hidden_from_us_are_an_error():
    world = slurm(jobs=[FakeJob("7", ("gpu002", "gpu009"))])
    with pytest.raises(SourceError, match="jobs on 1 nodes that scontrol lacks, such as gpu009"):
        SlurmCluster(runner=world).read()


def test_a_job_that_ended_while_we_asked_is_no_error():
    world = slurm(jobs=[FakeJob("7", ("gpu002",))])
    queue = world._queue

    def ends(options):
        world.jobs.clear()
        return queue(options)

    world._queue = ends
    assert SlurmCluster(runner=world).read().jobs == ()
