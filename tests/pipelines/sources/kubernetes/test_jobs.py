"""Which job a pod belongs to, and what is one attempt of a job."""

from typing import Any

import polars as pl
import pytest

from features.core_build import build_jobs
from features.raw_tables import RAW_JOB_LOG
from pipelines.sources.kubernetes.jobs import JobCollector, batch_job_row
from pipelines.sources.kubernetes.pods import pod_runs
from pipelines.sources.kubernetes.workloads import workload_of
from pipelines.sources.result import as_table
from tests.pipelines.sources.kubernetes.fixture import (
    Object,
    at,
    condition,
    container,
    ended,
    pod,
    utc,
)

TRAINING = {"training.kubeflow.org/job-name": "llm"}


@pytest.mark.parametrize(
    ("owner", "labels", "job_id", "is_gang"),
    [
        (("Job", "llm-w"), {"jobset.sigs.k8s.io/jobset-name": "llm"}, "ml/jobset/llm", True),
        (
            ("RayCluster", "llm-x1"),
            {
                "ray.io/cluster": "llm-x1",
                "ray.io/originated-from-cr-name": "llm",
                "ray.io/originated-from-crd": "RayJob",
            },
            "ml/rayjob/llm",
            True,
        ),
        (("RayCluster", "c"), {"ray.io/cluster": "c"}, "ml/raycluster/c", True),
        (
            ("StatefulSet", "serve-0"),
            {
                "leaderworkerset.sigs.k8s.io/name": "s",
                "leaderworkerset.sigs.k8s.io/group-index": "0",
            },
            "ml/leaderworkerset/s+0",
            True,
        ),
        (
            ("PyTorchJob", "llm"),
            {**TRAINING, "training.kubeflow.org/operator-name": "pytorchjob-controller"},
            "ml/pytorchjob/llm",
            True,
        ),
        (None, {"pytorch-job-name": "old"}, "ml/pytorchjob/old", True),
        (("Job", "v"), {"volcano.sh/job-name": "v"}, "ml/volcanojob/v", True),
        (("Job", "j"), {}, "ml/job/j", False),
        (("Job", "j"), {"batch.kubernetes.io/job-completion-index": "3"}, "ml/job/j", True),
        (("MPIJob", "m"), {}, "ml/mpijob/m", True),
        (("ReplicaSet", "web-1"), {}, "ml/pod/train-0", False),
        (("Workflow", "w"), {}, "ml/pod/train-0", False),
        (None, {"kueue.x-k8s.io/pod-group-name": "g"}, "ml/podgroup/g", True),
        (None, {"scheduling.x-k8s.io/pod-group": "g"}, "ml/podgroup/g", True),
        (None, {}, "ml/pod/train-0", False),
    ],
)
def test_a_pods_job_is_found_in_a_fixed_order(owner: Any, labels: Any, job_id: str, is_gang: bool):
    found = workload_of(pod(owner=owner, metadata={"labels": labels}))
    assert (found.job_id, found.is_gang) == (job_id, is_gang)


def test_the_queue_is_a_label_else_the_namespace():
    queued = pod(metadata={"labels": {"kueue.x-k8s.io/queue-name": "research"}})
    assert workload_of(queued).queue == "research"
    assert workload_of(pod()).queue == "ml"


def rows(*pods: Object) -> list[dict[str, Any]]:
    collector = JobCollector()
    for found in pods:
        for run in pod_runs(found):
            collector.add(run)
    return list(collector.rows())


def worker(number: int, owner: tuple[str, str] = ("PyTorchJob", "llm"), **more: Any) -> Object:
    name = f"llm-{number}"
    return pod(name, node=f"gpu00{number}", owner=owner, **more)


def test_pods_of_a_gang_are_one_attempt_of_all_their_nodes_and_gpus():
    (row,) = rows(worker(1), worker(2), worker(3, startTime=at("01:00:05")))
    assert (row["job_id"], row["step"], row["state"]) == ("ml/pytorchjob/llm", None, "RUNNING")
    assert (row["nodes"], row["n_gpus"]) == (["gpu001", "gpu002", "gpu003"], 24)
    assert (row["start"], row["end"]) == (utc("01:00:00"), None)


def test_the_pod_that_died_of_its_node_explains_the_gang():
    lost = worker(
        1, phase="Failed", reason="NodeLost", containerStatuses=[container(ended(255, "03:00:09"))]
    )
    killed = worker(2, phase="Failed", containerStatuses=[container(ended(1, "03:00:00"))])
    (row,) = rows(killed, lost)
    assert (row["state"], row["exit_code"], row["end"]) == ("NODE_FAIL", 255, utc("03:00:09"))


def test_pods_after_the_end_of_all_others_are_the_next_attempt():
    first = [
        worker(n, phase="Failed", containerStatuses=[container(ended(1, "02:00:00"))])
        for n in (1, 2)
    ]
    again = [worker(n, startTime=at("02:01:00")) for n in (3, 4)]
    attempts = rows(*again, *first)
    assert [(r["nodes"], r["state"]) for r in attempts] == [
        (["gpu001", "gpu002"], "FAILED"),
        (["gpu003", "gpu004"], "RUNNING"),
    ]


def test_a_pod_that_starts_in_the_second_the_last_one_ended_is_the_next_attempt():
    died = worker(1, phase="Failed", containerStatuses=[container(ended(1, "02:00:00"))])
    assert len(rows(died, worker(2, startTime=at("02:00:00")))) == 2


def test_a_label_that_counts_restarts_parts_attempts():
    def labelled(number: int, attempt: str, **more: Any) -> Object:
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "llm",
            "jobset.sigs.k8s.io/restart-attempt": attempt,
        }
        return worker(number, metadata={"labels": labels}, **more)

    slow_to_die = labelled(
        1, "0", phase="Failed", containerStatuses=[container(ended(1, "02:05:00"))]
    )
    attempts = rows(slow_to_die, labelled(2, "1", startTime=at("02:00:00")))
    assert [row["nodes"] for row in attempts] == [["gpu001"], ["gpu002"]]


def test_a_gang_of_which_one_number_is_unknown_has_an_unknown_number():
    (row,) = rows(worker(1), worker(2, gpus="lots"))
    assert row["n_gpus"] is None


def test_a_member_that_waits_belongs_to_the_attempt_that_runs():
    (row,) = rows(
        worker(1),
        pod("llm-2", owner=("PyTorchJob", "llm"), node=None, phase="Pending", startTime=None),
    )
    assert (row["state"], row["nodes"], row["n_gpus"]) == ("RUNNING", ["gpu001"], 16)


def test_a_job_of_which_no_pod_started_has_no_start():
    (row,) = rows(pod(owner=("PyTorchJob", "llm"), node=None, phase="Pending", startTime=None))
    assert (row["state"], row["nodes"], row["start"], row["end"]) == ("PENDING", None, None, None)


def test_pods_of_a_plain_job_one_after_the_other_are_its_attempts():
    failed = worker(
        1, ("Job", "llm"), phase="Failed", containerStatuses=[container(ended(1, "02:00:00"))]
    )
    again = worker(2, ("Job", "llm"), startTime=at("02:00:10"))
    assert [(r["job_id"], r["state"]) for r in rows(failed, again)] == [
        ("ml/job/llm", "FAILED"),
        ("ml/job/llm", "RUNNING"),
    ]


def test_pods_of_a_plain_job_side_by_side_are_work_of_their_own():
    assert [
        (r["job_id"], r["nodes"])
        for r in rows(worker(1, ("Job", "llm")), worker(2, ("Job", "llm")))
    ] == [
        ("ml/job/llm+1", ["gpu001"]),
        ("ml/job/llm+2", ["gpu002"]),
    ]


def test_a_pod_read_again_replaces_what_it_was():
    waiting = pod("llm-1", owner=("PyTorchJob", "llm"), node=None, phase="Pending", startTime=None)
    done = worker(1, phase="Succeeded", containerStatuses=[container(ended(0, "02:00:00"))])
    (row,) = rows(waiting, worker(1), done)
    assert (row["state"], row["end"]) == ("COMPLETED", utc("02:00:00"))


@pytest.mark.parametrize(
    ("status", "state", "end"),
    [
        ({"active": 2}, "RUNNING", None),
        ({}, "PENDING", None),
        (
            {
                "conditions": [condition("Complete", "True", "02:00:05")],
                "completionTime": at("02:00:00"),
            },
            "COMPLETED",
            "02:00:00",
        ),
        ({"conditions": [condition("Failed", "True", "02:00:05")]}, "FAILED", "02:00:05"),
        (
            {"conditions": [condition("Failed", "True", "02:00:05", reason="DeadlineExceeded")]},
            "TIMEOUT",
            "02:00:05",
        ),
        ({"conditions": [condition("Suspended", "True", "02:00:05")]}, "SUSPENDED", None),
        ({"conditions": [condition("Failed", "False", "02:00:05")], "active": 1}, "RUNNING", None),
    ],
)
def test_a_batch_job_tells_its_own_state_beside_its_pods(
    status: Object, state: str, end: str | None
):
    template = pod(gpus=4)
    job = {
        "kind": "Job",
        "metadata": {"name": "llm", "namespace": "ml"},
        "spec": {"parallelism": 2, "template": {"spec": template["spec"]}},
        "status": {"startTime": at("01:00:00"), **status},
    }
    row = batch_job_row(job)
    assert row is not None
    assert (row["job_id"], row["step"], row["n_gpus"]) == ("ml/job/llm", "job", 8)
    assert (row["state"], row["end"]) == (state, None if end is None else utc(end))


def test_a_batch_job_without_gpus_is_passed_over():
    assert batch_job_row({"metadata": {"name": "backup"}, "spec": {"template": {}}}) is None


def test_a_job_read_while_it_ran_and_after_it_ended_is_one_attempt_in_the_core_table():
    failed = {"phase": "Failed", "containerStatuses": [container(ended(1, "02:00:00"))]}
    looks = [
        rows(worker(1), worker(2)),
        rows(worker(1, **failed), worker(2)),
        rows(worker(1, **failed), worker(2, **failed)),
    ]
    frames = [
        as_table(
            RAW_JOB_LOG,
            [
                {**row, "source": "kubernetes", "ingested_at": utc(f"0{hour}:30:00")}
                for row in found
            ],
        )
        for hour, found in enumerate(looks, start=1)
    ]
    jobs = build_jobs(pl.concat(frames)).frame
    assert jobs.select("job_id", "attempt", "end_state", "end", "nodes").rows() == [
        ("ml/pytorchjob/llm", 0, "FAILED", utc("02:00:00"), ["gpu001", "gpu002"])
    ]
