"""The hook and its Slurm actuator on a real Slurm: real drains, real races, real dead nodes."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import polars as pl
import pytest

from features.errors import DataError
from features.hostlist import expand_hostlist
from features.tables import GPU_SCORES, NODE_SCORES
from remediation.actuators.protocol import Order, Outcome
from remediation.actuators.slurm import SlurmActuator
from remediation.actuators.slurm_run import LocalRunner, Ran
from remediation.actuators.slurm_state import SlurmCluster
from remediation.cluster.reasons import Reason, parse_reason
from remediation.cluster.state import ClusterState
from remediation.holds.progress import progress_of
from remediation.hook import HookRun, run_once
from remediation.ledger.sqlite import SqliteLedger
from remediation.score_source import FakeScoreSource, PublishedScores
from remediation.site import Burst, Caps, LevelRule, Site
from remediation.site import Warning as Alerting

sys.path.insert(0, str(Path(__file__).parent))

import slurm_cluster
from slurm_cluster import why_not

pytestmark = [pytest.mark.real, pytest.mark.slow]

REASON = Reason(score=0.9, horizon_h=24, fault_type=None, model_version="17", decision_id="0" * 16)
SWITCHES = (
    "SwitchName=leaf0 Nodes=gpu[000-001]",
    "SwitchName=leaf1 Nodes=gpu[002-003]",
    "SwitchName=spine Switches=leaf[0-1]",
)


class Box(slurm_cluster.SlurmCluster):
    """A private Slurm that soon gives up a node that does not answer."""

    def _write_files(self, *ports) -> None:
        super()._write_files(*ports)
        # On a machine so loaded that a living slurmd is given up too, slurmctld asks it no more.
        with (self.folder / "slurm.conf").open("a") as conf:
            conf.write("SlurmdTimeout=15\n")

    def kill_slurmd(self, node: str) -> None:
        first = [daemon for name, daemon in self._daemons if name == "slurmd"]
        daemon = self._restarted.get(node, first[self.nodes.index(node)])
        daemon.kill()
        daemon.wait()

    def start_slurmd(self, node: str) -> None:
        time.sleep(1.1)  # Slurm knows one start of a slurmd from another by whole seconds
        self._start("slurmd", "-D", "-N", node, "-f", str(self.folder / "slurm.conf"))
        self._restarted[node] = self._daemons[-1][1]

    @cached_property
    def _restarted(self):
        """The slurmd of each node that was started again; the first ones are dead by then."""
        return {}

    @property
    def runner(self) -> LocalRunner:
        return LocalRunner(environment=self.environment)

    @property
    def reader(self) -> SlurmCluster:
        return SlurmCluster(runner=self.runner)

    @property
    def actuator(self) -> SlurmActuator:
        return SlurmActuator(self.reader, runner=self.runner)

    def read(self) -> ClusterState:
        return self.reader.read()

    def stage(self, node: str) -> str:
        state = self.read()
        now = datetime.now(UTC)
        hour = timedelta(hours=1)
        found = progress_of(
            state.by_name[node], state.jobs_on(node), since=now, longest=hour, now=now
        )
        return found.stage

    def free(self) -> None:
        """Ends every job and brings every node back, as a person would."""
        self.tell("scancel", "--user=root")
        # A node that is told to be idle while a job completes on it answers no more.
        self.wait_until(lambda: not self.read().jobs, "no job is left")
        for node in self.nodes:
            if self.read().by_name[node].state in ("drain", "down"):
                self.tell("scontrol", "update", f"nodename={node}", "state=idle")
        self.wait_until(
            lambda: all(node.state == "up" for node in self.read().nodes), "all are in service"
        )


@dataclass
class Raced:
    """Somebody acts after our last look, while our first change is on its slow way."""

    runner: LocalRunner
    act: Callable[[], object]
    n_changes: int = 0

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        meanwhile: Callable[[], None] | None = None,
    ) -> Ran:
        self.n_changes += 1
        if self.n_changes > 1:
            return self.runner.run(command, timeout_s=timeout_s, meanwhile=meanwhile)
        self.act()
        slow = replace(self.runner, prefix=("sh", "-c", 'sleep 0.4; exec "$@"', "sh"))
        return slow.run(command, timeout_s=timeout_s, meanwhile=meanwhile)


@pytest.fixture(scope="module")
def booted(tmp_path_factory):
    if reason := why_not():
        pytest.skip(reason)
    with Box(tmp_path_factory.mktemp("slurm"), switches=SWITCHES) as box:
        yield box


@pytest.fixture
def box(booted):
    yield booted
    booted.free()


def order(box: Box, node: str, action: str = "drain_after_jobs") -> Order:
    state = box.read()
    return Order(
        action=action,
        expected=state.by_name[node],
        reason=REASON,
        jobs=state.jobs_on(node),
        notice_minutes=30,
    )


def started(box: Box, node: str, *options: str, script: str = "sleep 300") -> str:
    job = box.submit(script, f"--nodelist={node}", "--gres=gpu:h100:2", *options)
    box.wait_for(job, "RUNNING")
    return job


def test_a_cluster_is_read_as_it_is(box):
    job = started(box, "gpu002", "--requeue", "--time=60", "--comment=checkpoint=2026-01-05T10:00Z")
    box.do("scontrol", "update", "jobid=" + job, "admincomment=checkpoint=2026-01-05T10:00:00Z")
    other = box.submit("sleep 300", "--nodelist=gpu[002-003]", "--nodes=2", "--no-requeue")
    box.wait_for(other, "RUNNING")
    state = box.read()
    node = state.by_name["gpu002"]
    assert (node.state, node.switch, node.partitions, node.n_gpus) == ("up", "leaf1", ("batch",), 8)
    first, second = sorted(state.jobs_on("gpu002"), key=lambda one: one.job_id)
    assert (first.job_id, first.n_gpus, first.is_requeue_allowed) == (job, 2, True)
    assert 0.9 < first.remaining_h <= 1
    assert first.checkpoint_age_h > 0
    assert (second.nodes, second.is_requeue_allowed) == (("gpu002", "gpu003"), False)
    assert second.remaining_h is None
    for name, view in state.by_name.items():
        assert box.actuator.state(name) == view


@pytest.mark.parametrize("text", ["gpu[000-003]", "a[1,3-5]b[08-10],c", "x-1"])
def test_node_lists_are_written_out_as_scontrol_does(box, text):
    assert expand_hostlist(text) == box.do("scontrol", "show", "hostnames", text).split()


def test_g14_a_drained_node_is_draining_until_its_job_ends_and_is_returned_by_undrain(box):
    job = started(box, "gpu000", script="sleep 4")
    assert box.actuator.drain(order(box, "gpu000")) == Outcome(
        status="done",
        commands=(("scontrol", "update", "NodeName=gpu000", "State=DRAIN", f"Reason={REASON}"),),
    )
    assert box.stage("gpu000") == "draining"
    assert box.node_state("gpu000") == "draining"
    assert box.job_state(job) == "RUNNING"
    box.wait_until(lambda: box.stage("gpu000") == "drained", "the job has ended")
    assert box.job_state(job) == "COMPLETED"
    view = box.read().by_name["gpu000"]
    assert parse_reason(view.reason) == REASON
    assert box.actuator.drain(order(box, "gpu000")).commands == ()
    assert box.actuator.undrain(order(box, "gpu000")).status == "done"
    box.wait_until(lambda: box.read().by_name["gpu000"].state == "up", "it is in service")
    assert box.read().by_name["gpu000"].reason is None
    assert box.actuator.undrain(order(box, "gpu000")).status == "not_done"


def test_a_node_in_use_can_be_returned_while_its_job_runs(box):
    job = started(box, "gpu000")
    box.actuator.cordon(order(box, "gpu000", "cordon"))
    assert box.actuator.undrain(order(box, "gpu000")).status == "done"
    box.wait_until(lambda: box.read().by_name["gpu000"].state == "up", "it is in service")
    assert (box.read().by_name["gpu000"].reason, box.job_state(job)) == (None, "RUNNING")


def test_g09_an_admins_drain_before_ours_is_left_alone(box):
    ours = order(box, "gpu000")
    box.set_node("gpu000", "drain", "disk sda")
    for found in (box.actuator.drain(ours), box.actuator.undrain(order(box, "gpu000"))):
        assert (found.status, found.commands) == ("not_done", ())
        assert "root (disk sda)" in found.detail
    assert box.read().by_name["gpu000"].reason == "disk sda"


def test_g09_an_admins_drain_in_the_race_gets_its_reason_back(box):
    hostile = """disk "sda" = bad; $(touch x) 'q' [x@y]"""
    raced = Raced(box.runner, lambda: box.set_node("gpu000", "drain", hostile))
    outcome = SlurmActuator(box.reader, runner=raced).drain(order(box, "gpu000"))
    assert outcome.status == "not_done"
    assert "their reason was put back" in outcome.detail
    view = box.read().by_name["gpu000"]
    assert (view.state, view.owner, view.reason) == ("drain", "other", hostile)


def test_g09_an_admins_drain_in_the_race_with_our_return_stays(box):
    box.actuator.drain(order(box, "gpu000"))
    raced = Raced(box.runner, lambda: box.set_node("gpu000", "drain", "disk sda"))
    outcome = SlurmActuator(box.reader, runner=raced).undrain(order(box, "gpu000"))
    assert outcome.status == "not_done"
    view = box.read().by_name["gpu000"]
    assert (view.state, view.reason) == ("drain", "disk sda")


def test_g25_drain_now_requeues_what_allows_it_and_leaves_the_rest_running(box):
    may = started(box, "gpu001", "--requeue")
    may_not = started(box, "gpu001", "--no-requeue")
    array = box.submit("sleep 300", "--array=1-2", "--nodelist=gpu001", "--requeue")
    box.wait_until(lambda: len(box.read().jobs_on("gpu001")) == 4, "all four run")
    outcome = box.actuator.drain(order(box, "gpu001", "drain_now"))
    assert outcome.status == "done"
    assert f"job {may_not} may not be interrupted and runs on" in outcome.detail
    assert "may not have been told" not in outcome.detail
    box.wait_until(lambda: len(box.read().jobs_on("gpu001")) == 1, "three have left")
    assert box.job_state(may_not) == "RUNNING"
    assert box.job_state(may) == "PENDING"
    assert set(box.job_state(array).split()) == {"PENDING"}
    assert box.stage("gpu001") == "draining"


def test_g25_notice_first_and_requeue_in_a_later_run(box):
    job = started(box, "gpu001", "--requeue")
    may_not = started(box, "gpu001", "--no-requeue")
    told = box.actuator.drain(order(box, "gpu001", "checkpoint_then_drain"))
    assert [command[1] for command in told.commands] == ["update", "notify", "notify"]
    assert (told.status, box.job_state(job)) == ("done", "RUNNING")
    listed = SlurmActuator(box.reader, runner=box.runner, interruptible=("batch",))
    ended = box.actuator.end_notice(order(box, "gpu001"))
    assert (ended.status, ended.commands) == ("done", (("scontrol", "requeue", job),))
    box.wait_until(lambda: len(box.read().jobs_on("gpu001")) == 1, "one has left")
    assert box.job_state(may_not) == "RUNNING"
    assert listed.end_notice(order(box, "gpu001")).commands == (("scancel", may_not),)
    box.wait_until(lambda: box.stage("gpu001") == "drained", "both have left")
    assert box.job_state(may_not) == "CANCELLED"


@pytest.mark.parametrize("name", ["ALL", "gpu[000-003]", "gpu000,gpu001", "gpu000 State=DOWN", ""])
def test_g23_hostile_names_reach_no_command(box, name):
    assert box.actuator.state(name) is None
    ours = order(box, "gpu000")
    hostile = replace(ours, expected=replace(ours.expected, name=name))
    for act in (box.actuator.drain, box.actuator.undrain):
        with pytest.raises(DataError, match="Nothing was run"):
            act(hostile)
    assert all(node.state == "up" for node in box.read().nodes)


@pytest.mark.parametrize(
    ("script", "status", "state"),
    [("sleep 60", "ambiguous", "up"), ('"$@"; sleep 60', "done", "drain")],
    ids=["before", "after"],
)
def test_g13_a_command_that_hangs_is_judged_by_the_node(box, script, status, state):
    hangs = replace(box.runner, prefix=("sh", "-c", script, "sh"))
    outcome = SlurmActuator(box.reader, runner=hangs, timeout_s=0.5).drain(order(box, "gpu000"))
    assert outcome.status == status
    assert box.read().by_name["gpu000"].state == state


def published(scores: dict[str, float]) -> PublishedScores:
    as_of = datetime.now(UTC)
    blank = {
        "entity_kind": "node", "as_of": as_of, "horizon_h": 24, "status": "ok",
        "status_reason": None, "fault_type": "nvlink", "fault_probability": None, "reasons": [],
        "missing_share": 0.0, "model_version": "17", "trained_on": "real",
    }  # fmt: skip
    rows = [blank | {"entity_id": n, "node": n, "score": s} for n, s in scores.items()]
    return PublishedScores(
        as_of=as_of,
        expires_at=as_of + timedelta(minutes=30),
        model_versions={24: "17"},
        trained_on="real",
        node_scores=pl.DataFrame(rows, schema=NODE_SCORES.schema),
        gpu_scores=GPU_SCORES.empty(),
    )


SITE = Site(
    levels=(LevelRule(level="notify_then_drain"),),
    caps=Caps(held_percent=100, partition_percent=100, actions_per_hour=100, per_rack=None),
    warning=Alerting(n=1, k=1),
    burst=Burst(fleet_nodes=1000, component_nodes=1000),
)


def run_hook(box: Box, ledger: SqliteLedger, scores: PublishedScores) -> HookRun:
    return run_once(
        scores=FakeScoreSource(scores),
        cluster=box.reader,
        actuator=box.actuator,
        ledger=ledger,
        site=SITE,
        clock=lambda: datetime.now(UTC),
    )


def kinds(ledger: SqliteLedger) -> list[str]:
    return [entry.kind for entry in ledger.entries()]


def test_a_node_is_drained_before_it_dies_and_a_dead_one_is_never_revived(box, tmp_path):
    big = box.submit("sleep 300", "--nodelist=gpu[002-003]", "--nodes=2", "--gres=gpu:h100:8")
    small = started(box, "gpu001", "--no-requeue", "--time=1", script="sleep 3")
    doomed = started(box, "gpu000", "--no-requeue")
    box.wait_for(big, "RUNNING")
    scores = published({"gpu000": 0.1, "gpu001": 0.95, "gpu002": 0.1, "gpu003": 0.2})
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        first = run_hook(box, ledger, scores)
        assert [outcome.status for outcome in first.outcomes.values()] == ["done"]
        held = box.read().by_name["gpu001"]
        assert parse_reason(held.reason).decision_id in first.outcomes
        assert kinds(ledger) == ["observed", "decision", "intent", "result"]
        box.wait_until(lambda: box.stage("gpu001") == "drained", "its job has ended")
        box.kill_slurmd("gpu001")
        box.kill_slurmd("gpu000")
        box.wait_until(lambda: box.stage("gpu001") == "down", "it is given up")
        box.wait_for(doomed, "NODE_FAIL")

        # What was drained in time lost nothing; what was not lost its job; others noticed nothing.
        assert (box.job_state(small), box.job_state(big)) == ("COMPLETED", "RUNNING")
        again = run_hook(box, ledger, published({"gpu000": 0.9, "gpu001": 0.95}))
        assert again.outcomes == {}
        refused = box.actuator.undrain(order(box, "gpu001"))
        assert (refused.status, refused.detail) == (
            "not_done", "the node is down; it is never revived",
        )  # fmt: skip

        # Slurm itself brings back what it gave up, but not a node that has our reason: that is
        # a person's, and the ledger says that it was.
        for node in ("gpu000", "gpu001"):
            box.start_slurmd(node)
        box.wait_until(lambda: box.read().by_name["gpu000"].state == "up", "gpu000 is back")
        assert box.read().by_name["gpu001"].state == "down"
        box.set_node("gpu001", "idle")
        box.wait_until(lambda: box.read().by_name["gpu001"].state == "up", "gpu001 is back")
        run_hook(box, ledger, published({"gpu001": 0.1}))
        assert kinds(ledger).count("intent") == 1
        assert "released" in kinds(ledger)
        assert ledger.verify().is_whole


def test_a_drained_node_is_returned_after_the_fix(box, tmp_path):
    scores = published({"gpu001": 0.95})
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        run_hook(box, ledger, scores)
        box.kill_slurmd("gpu001")
        before = box.read().by_name["gpu001"].boot_id
        box.start_slurmd("gpu001")  # the fix
        box.wait_until(
            lambda: box.read().by_name["gpu001"].boot_id != before, "the new slurmd is known"
        )
        assert box.stage("gpu001") == "drained"
        assert run_hook(box, ledger, scores).outcomes == {}
        box.wait_until(
            lambda: box.actuator.undrain(order(box, "gpu001")).status == "done", "it is returned"
        )
        box.wait_until(lambda: box.read().by_name["gpu001"].state == "up", "it is in service")
        assert box.read().by_name["gpu001"].reason is None
        run_hook(box, ledger, published({"gpu001": 0.1}))
        assert "released" in kinds(ledger)


def test_a_run_repeated_at_once_drains_once(box, tmp_path):
    scores = published({"gpu001": 0.95})
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        runs = [run_hook(box, ledger, scores) for _ in range(3)]
        assert [len(run.outcomes) for run in runs] == [1, 0, 0]
        assert kinds(ledger).count("intent") == 1
