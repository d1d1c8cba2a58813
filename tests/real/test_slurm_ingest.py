"""A real Slurm, asked through our own pulls: core tables tell what truly happened."""

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from features.core_build import build_jobs, build_node_states
from pipelines.sources.result import SourceResult, merge
from pipelines.sources.slurm.commands import CommandError, LocalCommands
from pipelines.sources.slurm.json_documents import parse_slurm_json
from pipelines.sources.slurm.nodes import parse_scontrol_nodes
from pipelines.sources.slurm.pull import SlurmAsk, pull_slurm
from pipelines.sources.slurm.queue import parse_show_jobs, stream_jobcomp
from pipelines.sources.slurm.sacct import parse_sacct

sys.path.insert(0, str(Path(__file__).parent))

from slurm_cluster import ACCOUNTING, PROGRAMS, SlurmCluster, why_not

pytestmark = [pytest.mark.real, pytest.mark.slow]

SWITCHES = (
    "SwitchName=leaf0 Nodes=gpu[000-001]",
    "SwitchName=leaf1 Nodes=gpu[002-003]",
    "SwitchName=spine Switches=leaf[0-1]",
)
NO_DATABASE = SlurmAsk(questions=("nodes", "queue", "reservations", "topology"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if reason := why_not():
        pytest.skip(reason)
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), switches=SWITCHES) as booted:
        yield booted


@pytest.fixture(scope="module")
def accounted(tmp_path_factory):
    if reason := why_not((*PROGRAMS, *ACCOUNTING)):
        pytest.skip(reason)
    with SlurmCluster(tmp_path_factory.mktemp("slurmdbd"), has_accounting=True) as booted:
        yield booted


def now() -> datetime:
    return datetime.now(UTC)


def pull(cluster: SlurmCluster, ask: SlurmAsk | None = None) -> SourceResult:
    at = now()
    runner = LocalCommands(environment=cluster.environment)
    span = (at - timedelta(hours=1), at + timedelta(minutes=1))
    return merge(pull_slurm(runner, *span, ingested_at=at, ask=ask))


def joined(*results: SourceResult) -> SourceResult:
    whole = merge(results)
    assert whole.quarantine.is_empty()
    return whole


def intervals(result: SourceResult, node: str) -> list[tuple[str, str | None]]:
    states = build_node_states(result.table("raw/node_states")).frame.filter(node=node)
    return states.select("state", "reason").rows()


def attempts(result: SourceResult, job: str) -> list[tuple[object, ...]]:
    jobs = build_jobs(result.table("raw/job_log")).frame.filter(job_id=job)
    return jobs.select("end_state", "cause", "exit_code", "n_gpus", "nodes").rows()


def test_a_drained_node_and_a_lost_one_are_seen_as_they_were(cluster):
    job = cluster.submit("sleep 60", "--nodelist=gpu000", "--gres=gpu:h100:8", "--no-requeue")
    cluster.wait_for(job, "RUNNING")
    before = pull(cluster, NO_DATABASE)
    assert before.table("raw/job_log").filter(job_id=job)["n_gpus"].to_list() == [8]
    time.sleep(1.1)  # Slurm's times are whole seconds
    cluster.set_node("gpu000", "drain", "bad nic | port 1")
    draining = pull(cluster, NO_DATABASE)
    time.sleep(1.1)
    cluster.set_node("gpu001", "down", "XID 79: fallen off the bus")
    cluster.set_node("gpu000", "down", "XID 48")
    cluster.wait_for(job, "NODE_FAIL")
    lost = pull(cluster, NO_DATABASE)
    cluster.set_node("gpu001", "resume")
    cluster.wait_until(lambda: cluster.node_state("gpu001") == "idle", "gpu001 is back")
    back = pull(cluster, NO_DATABASE)
    whole = joined(before, draining, lost, back)
    assert intervals(whole, "gpu001") == [
        ("up", None), ("down", "XID 79: fallen off the bus"), ("up", None),
    ]  # fmt: skip
    assert intervals(whole, "gpu002") == [("up", None)]
    assert intervals(whole, "gpu000")[:2] == [("up", None), ("drain", "bad nic | port 1")]
    # Down and draining: since when it is down the reason's time does not tell.
    assert intervals(whole, "gpu000")[-1] == ("down", "XID 48")
    states = build_node_states(whole.table("raw/node_states")).frame
    drained = states.filter((pl.col("node") == "gpu000") & (pl.col("state") == "drain")).row(
        0, named=True
    )
    seen = draining.table("raw/coverage")["start"][0]
    assert seen - timedelta(seconds=5) <= drained["valid_from"] <= seen
    assert drained["actor"] == "root"
    queue = cluster.do("squeue", "--json", "--states=all").encode()
    ended = parse_slurm_json(queue, origin="squeue", seen_at=None, ingested_at=now())
    jobcomp = cluster.folder / "log" / "jobcomp.txt"
    logged = joined(*stream_jobcomp(jobcomp, time_zone="Europe/Berlin", ingested_at=now()))
    shown = parse_show_jobs(
        cluster.do("scontrol", "show", "job").encode(),
        origin="scontrol", time_zone="Europe/Berlin", ingested_at=now(),
    )  # fmt: skip
    # A step that is killed on its way may or may not be told before the job is: 0 or 128 + SIGTERM.
    # The log of ended jobs knows no GPUs here; what the queue said while it ran fills the gap.
    for after in ((before, logged), *((before, o, logged, before) for o in (ended, shown))):
        ((end_state, cause, exit_code, n_gpus, nodes),) = attempts(joined(*after), job)
        assert (end_state, cause, n_gpus, nodes) == ("NODE_FAIL", "hardware", 8, ["gpu000"])
        assert exit_code in {0, 143}
    cluster.set_node("gpu000", "resume")
    cluster.wait_until(lambda: cluster.node_state("gpu000") == "idle", "gpu000 is back")


def test_text_and_json_of_the_nodes_agree(cluster):
    cluster.set_node("gpu003", "drain", "ECC errors = 3 [see ticket]")
    at = now() + timedelta(seconds=2)
    rows = [
        parse_slurm_json(
            cluster.do("sinfo", "--json").encode(), origin="f", seen_at=at, ingested_at=at
        ),
        *(
            parse_scontrol_nodes(
                cluster.do("scontrol", *form, "show", "node").encode(),
                origin="f", seen_at=at, time_zone="Europe/Berlin", ingested_at=at,
            )
            for form in ([], ["--oneliner"])
        ),
    ]  # fmt: skip
    tables = [build_node_states(result.table("raw/node_states")).frame.rows() for result in rows]
    assert tables[0] == tables[1] == tables[2]
    assert ("drain", "ECC errors = 3 [see ticket]") in [row[1:3] for row in tables[0]]
    cluster.set_node("gpu003", "resume")


def test_maintenance_and_switches_are_read(cluster):
    cluster.do(
        "scontrol", "create", "reservation", "reservationname=firmware", "starttime=now",
        "duration=30", "flags=maint,ignore_jobs", "nodes=gpu002", "users=root",
    )  # fmt: skip
    result = pull(cluster, NO_DATABASE)
    work = result.table("core/maintenance")
    assert work.select("node", "kind", "reason").rows() == [
        ("gpu002", "maintenance", "reservation firmware")
    ]
    assert work.select(pl.col("end") - pl.col("start")).item() == timedelta(minutes=30)
    places = result.table("core/topology").filter(node="gpu003")
    assert places.select("level", "place").rows() == [("switch", "leaf1"), ("switch_1", "spine")]
    cluster.do("scontrol", "delete", "reservationname=firmware")


def test_a_command_that_is_absent_is_one_clear_error(cluster):
    runner = LocalCommands(environment={**cluster.environment, "PATH": "/nonexistent"})
    with pytest.raises(CommandError, match="not on this machine"):
        list(pull_slurm(runner, now() - timedelta(hours=1), now(), ingested_at=now()))


def sacct(cluster: SlurmCluster, *options: str) -> bytes:
    return cluster.do("sacct", "--allusers", "--duplicates", *options).encode()


def test_accounting_tells_the_story_of_every_job(accounted):
    cluster = accounted
    jobs = {
        "good": cluster.submit("srun true", "--gres=gpu:h100:2", "--job-name=a | grep b"),
        "failed": cluster.submit("exit 3", "--job-name=two\nlines"),
        "killed": cluster.submit("kill -9 $$", "--gres=gpu:8"),
        "array": cluster.submit("sleep 1", "--array=1-2"),
    }
    lost = cluster.submit("sleep 90", "--nodelist=gpu003", "--gres=gpu:h100:8", "--no-requeue")
    again = cluster.submit("sleep 90", "--nodelist=gpu002", "--gres=gpu:h100:4", "--requeue")
    cluster.wait_for(lost, "RUNNING")
    cluster.wait_for(again, "RUNNING")
    early = pull(cluster)
    for node in ("gpu002", "gpu003"):
        cluster.set_node(node, "down", "XID 79 | bus")
    cluster.wait_for(lost, "NODE_FAIL")
    cluster.set_node("gpu001", "drain", "bad cable")
    time.sleep(1.1)
    cluster.set_node("gpu001", "resume")
    cluster.set_node("gpu002", "resume")
    for job in jobs.values():
        cluster.wait_until(
            lambda j=job: not cluster.tell("squeue", "-h", "-j", j, "-t", "PD,R,CG"), job
        )
    # Slurm lets a job whose node failed wait two minutes; the second attempt is begun at once.
    cluster.do("scontrol", "update", f"jobid={again}", "starttime=now")
    cluster.wait_for(again, "RUNNING")
    cluster.do("scancel", again)

    def is_told() -> bool:
        lines = sacct(cluster, "-X", "-n", "-P", "--format=JobID,State").decode().splitlines()
        return len(lines) >= 8 and not any("RUNNING" in x or "PENDING" in x for x in lines)

    cluster.wait_until(is_told, "the accounting knows every end")
    whole = joined(early, pull(cluster))

    assert attempts(whole, jobs["good"])[0][:4] == ("COMPLETED", None, 0, 2)
    assert attempts(whole, jobs["failed"])[0][:4] == ("FAILED", "unknown", 3, 0)
    assert attempts(whole, jobs["killed"])[0][:4] == ("FAILED", "unknown", 0, 8)
    assert [attempts(whole, f"{jobs['array']}_{task}")[0][0] for task in (1, 2)] == [
        "COMPLETED", "COMPLETED",
    ]  # fmt: skip
    assert attempts(whole, lost) == [("NODE_FAIL", "hardware", 0, 8, ["gpu003"])]
    first, second = attempts(whole, again)
    assert first == ("NODE_FAIL", "hardware", 0, 4, ["gpu002"])
    assert second == ("CANCELLED", None, 0, 4, ["gpu002"])
    names = whole.table("raw/job_log").filter(pl.col("step").is_null())["job_name"]
    assert {"a | grep b", "two\nlines"} <= set(names)

    assert ("drain", "bad cable") in intervals(whole, "gpu001")
    assert intervals(whole, "gpu001")[-1] == ("up", None)
    assert ("down", "XID 79 | bus") in intervals(whole, "gpu002")
    assert intervals(whole, "gpu002")[-1] == ("up", None)
    assert intervals(whole, "gpu003")[-1] == ("down", "XID 79 | bus")


def test_text_and_json_of_the_accounting_agree(accounted):
    columns = "JobID,JobName,User,Partition,State,ExitCode,Submit,Start,End,NodeList,AllocTRES"
    job = accounted.submit("srun true", "--gres=gpu:h100:1", "--job-name=agree")
    accounted.wait_until(
        lambda: "COMPLETED" in sacct(accounted, "-X", "-n", "-j", job, "-o", "State").decode(),
        "the job is accounted for",
    )
    text = parse_sacct(
        sacct(accounted, "-P", f"--format={columns}") + b"\n",
        origin="f", time_zone="Europe/Berlin", ingested_at=now(),
    )  # fmt: skip
    document = parse_slurm_json(
        sacct(accounted, "--json"), origin="f", seen_at=None, ingested_at=now()
    )
    kept = ["job_id", "step", "job_name", "state", "start", "end", "nodes", "n_gpus", "exit_code"]
    both = [
        result.table("raw/job_log").select(kept).sort("job_id", "start", "step")
        for result in (text, document)
    ]
    assert both[0].drop("exit_code").equals(both[1].drop("exit_code"))
    # 22.05 writes SUCCESS into the JSON of jobs that failed with a code; that is left unknown.
    differing = both[0].filter(both[0]["exit_code"].ne_missing(both[1]["exit_code"]))
    assert set(differing["state"]) <= {"FAILED"}
