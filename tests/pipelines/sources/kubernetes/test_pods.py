"""Pods as runs of jobs: when, where, how many GPUs, and how each ended."""

from collections.abc import Sequence
from typing import Any

import pytest

from pipelines.sources.kubernetes.gpus import claim_gpus, gpu_request
from pipelines.sources.kubernetes.objects import RefusedError
from pipelines.sources.kubernetes.pods import pod_runs
from pipelines.sources.slurm.fields import JOB_STATES
from tests.pipelines.sources.kubernetes.fixture import (
    Object,
    at,
    condition,
    container,
    ended,
    pod,
    utc,
)

RUNNING = {"running": {"startedAt": at("01:00:10")}}


def asking(resources: Any, **more: Any) -> Object:
    return {"name": "main", "resources": resources, **more}


def gpus(amount: Any) -> Object:
    return {"limits": {"nvidia.com/gpu": amount}}


def test_a_running_pod_has_no_end():
    (run,) = pod_runs(pod(containerStatuses=[container(RUNNING)]))
    assert (run.state, run.node, run.n_gpus) == ("RUNNING", "gpu001", 8)
    assert (run.submit, run.start, run.end) == (utc("00:30:00"), utc("01:00:00"), None)


def test_a_pod_that_waits_for_a_node_has_no_start():
    (run,) = pod_runs(pod(node=None, phase="Pending", startTime=None))
    assert (run.state, run.node, run.start, run.end) == ("PENDING", None, None, None)
    (pulling,) = pod_runs(pod(phase="Pending"))
    assert (pulling.state, pulling.start) == ("CONFIGURING", utc("01:00:00"))


@pytest.mark.parametrize(
    ("status", "state", "code", "signal"),
    [
        ({"containerStatuses": [container(ended(1, "02:00:00"))]}, "FAILED", 1, None),
        (
            {"containerStatuses": [container(ended(137, "02:00:00", reason="OOMKilled"))]},
            "OUT_OF_MEMORY",
            137,
            9,
        ),
        ({"containerStatuses": [container(ended(143, "02:00:00"))]}, "FAILED", 143, 15),
        ({"containerStatuses": [container(ended(255, "02:00:00"))]}, "FAILED", 255, None),
        ({"containerStatuses": [container(ended(0, "02:00:00", signal=7))]}, "FAILED", 0, 7),
        (
            {
                "containerStatuses": [
                    container(ended(137, "02:00:00", reason="ContainerStatusUnknown"))
                ]
            },
            "NODE_FAIL",
            137,
            9,
        ),
        ({"reason": "NodeLost"}, "NODE_FAIL", None, None),
        ({"reason": "Terminated", "message": "imminent node shutdown"}, "NODE_FAIL", None, None),
        ({"reason": "Preempting"}, "PREEMPTED", None, None),
        ({"reason": "DeadlineExceeded"}, "TIMEOUT", None, None),
        ({"reason": "UnexpectedAdmissionError"}, "LAUNCH_FAILED", None, None),
        ({"reason": "OutOfnvidia.com/gpu"}, "CANCELLED", None, None),
        (
            {"reason": "Evicted", "message": "The node was low on resource: memory. Usage: 9Gi"},
            "OUT_OF_MEMORY",
            None,
            None,
        ),
        (
            {"reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."},
            "PREEMPTED",
            None,
            None,
        ),
        (
            {"reason": "Evicted", "message": "The node had condition: [MemoryPressure]."},
            "OUT_OF_MEMORY",
            None,
            None,
        ),
        (
            {"reason": "Evicted", "message": 'Usage of EmptyDir volume "memory" exceeds the limit'},
            "FAILED",
            None,
            None,
        ),
        (
            {"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the limit"},
            "FAILED",
            None,
            None,
        ),
        (
            {
                "conditions": [
                    condition("DisruptionTarget", "True", reason="DeletionByTaintManager")
                ],
                "containerStatuses": [container(ended(143, "02:00:00"))],
            },
            "NODE_FAIL",
            143,
            15,
        ),
        (
            {"conditions": [condition("DisruptionTarget", "True", reason="PreemptionByScheduler")]},
            "PREEMPTED",
            None,
            None,
        ),
        (
            {
                "containerStatuses": [
                    container(
                        ended(
                            128,
                            "02:00:00",
                            reason="StartError",
                            message="nvidia-container-cli: initialization error: nvml error",
                        )
                    )
                ]
            },
            "LAUNCH_FAILED",
            128,
            None,
        ),
        ({"reason": "SomethingNew"}, "FAILED", None, None),
        ({}, "FAILED", None, None),
    ],
)
def test_a_failed_pod_tells_why(status: Object, state: str, code: int | None, signal: int | None):
    (run,) = pod_runs(pod(phase="Failed", **status))
    assert (run.state, run.exit_code, run.exit_signal) == (state, code, signal)
    assert run.state in JOB_STATES


def test_an_ended_pod_always_has_an_end():
    (run,) = pod_runs(pod(phase="Failed"))
    assert run.end == utc("01:00:00")
    said = [condition("Ready", "False", "03:00:00")]
    (later,) = pod_runs(pod(phase="Succeeded", conditions=said))
    assert (later.state, later.end) == ("COMPLETED", utc("03:00:00"))


def test_the_container_that_failed_first_decides():
    first = {**container(ended(1, "02:00:00")), "name": "b"}
    second = {**container(ended(137, "02:00:05", reason="OOMKilled")), "name": "a"}
    wanted = [{"name": name, "resources": gpus(1)} for name in "ab"]
    (run,) = pod_runs(
        pod(phase="Failed", containerStatuses=[second, first], spec={"containers": wanted})
    )
    assert (run.state, run.exit_code, run.end, run.n_gpus) == ("FAILED", 1, utc("02:00:05"), 2)


def test_a_sidecar_without_gpus_decides_nothing():
    side = {"name": "proxy", "resources": {}}
    statuses = [
        {**container(ended(1, "01:30:00"), restarts=5, last=ended(2, "01:20:00")), "name": "proxy"},
        container(ended(0, "02:00:00")),
    ]
    spec = {"containers": [asking(gpus(1)), side]}
    (run,) = pod_runs(pod(phase="Succeeded", containerStatuses=statuses, spec=spec))
    assert (run.state, run.exit_code, run.end) == ("COMPLETED", 0, utc("02:00:00"))


def test_a_restart_in_place_is_an_attempt_of_its_own():
    again = {"running": {"startedAt": at("02:00:30")}}
    before = pod(containerStatuses=[container(RUNNING)])
    after = pod(containerStatuses=[container(again, restarts=1, last=ended(1, "02:00:00"))])
    earlier, present = pod_runs(after)
    assert earlier.start == pod_runs(before)[0].start
    assert (earlier.state, earlier.end) == ("FAILED", utc("02:00:00"))
    assert (present.state, present.start) == ("RUNNING", utc("02:00:30"))
    third = {"running": {"startedAt": at("03:00:00")}}
    last = ended(1, "02:30:00", since="02:00:30")
    middle, _ = pod_runs(pod(containerStatuses=[container(third, restarts=2, last=last)]))
    assert middle.start == present.start


def test_a_pod_that_waits_for_its_restart_does_not_run():
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    status = container(waiting, restarts=1, last=ended(1, "02:00:00"))
    (run,) = pod_runs(pod(containerStatuses=[status]))
    assert (run.state, run.end) == ("FAILED", utc("02:00:00"))


@pytest.mark.parametrize(
    ("conditions", "state", "end"),
    [
        ([], "CANCELLED", "04:00:00"),
        (
            [condition("DisruptionTarget", "True", "03:59:00", reason="DeletionByTaintManager")],
            "NODE_FAIL",
            "03:59:00",
        ),
        (
            [condition("DisruptionTarget", "True", "03:59:00", reason="EvictionByEvictionAPI")],
            "PREEMPTED",
            "03:59:00",
        ),
    ],
)
def test_a_pod_that_is_being_deleted_ends_when_that_was_asked(
    conditions: Sequence[Object], state: str, end: str
):
    going = pod(conditions=conditions)
    going["metadata"]["deletionTimestamp"] = at("04:00:30")
    going["metadata"]["deletionGracePeriodSeconds"] = 30
    (run,) = pod_runs(going)
    assert (run.state, run.end) == (state, utc(end))


def test_a_pod_of_a_lost_node_has_failed_though_its_phase_says_otherwise():
    (run,) = pod_runs(pod(reason="NodeLost"))
    assert (run.state, run.end) == ("NODE_FAIL", utc("01:00:00"))


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "dcgm-exporter"}]}},
        {"metadata": {"ownerReferences": [{"kind": "Node", "name": "gpu001"}]}},
        {"metadata": {"annotations": {"kubernetes.io/config.mirror": "abc"}}},
        {"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}},
        {"gpus": None},
        {"gpus": "0"},
    ],
)
def test_pods_of_the_node_and_pods_without_gpus_are_no_jobs(more: Object):
    assert pod_runs(pod(**more)) == []


def test_a_phase_that_the_api_does_not_have_is_refused():
    with pytest.raises(RefusedError, match="phase"):
        pod_runs(pod(phase="Sleeping"))


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({"containers": [asking(gpus("4")), asking(gpus(4))]}, 8),
        ({"containers": [asking({"requests": {"nvidia.com/gpu": "2"}})]}, 2),
        ({"initContainers": [asking(gpus(8))], "containers": [asking(gpus(1))]}, 8),
        ({"initContainers": [asking(gpus(1))], "containers": [asking(gpus(2))]}, 2),
        (
            {
                "initContainers": [asking(gpus(1), restartPolicy="Always")],
                "containers": [asking(gpus(2))],
            },
            3,
        ),
        (
            {
                "initContainers": [asking(gpus(1), restartPolicy="Always"), asking(gpus(4))],
                "containers": [asking(gpus(2))],
            },
            5,
        ),
        ({"containers": [asking({"limits": {"amd.com/gpu": 4}})]}, 4),
        ({"containers": [asking({"limits": {"nvidia.com/mig-1g.5gb": 2}})]}, None),
        ({"containers": [asking({"limits": {"nvidia.com/gpu.shared": 1}})]}, None),
        (
            {"containers": [asking({"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}})]},
            None,
        ),
        ({"containers": [asking(gpus("lots"))]}, None),
        ({"containers": [asking(gpus("1.5"))]}, None),
        ({"containers": [asking(gpus(10**12))]}, None),
        ({"containers": [asking(gpus(-1))]}, None),
    ],
)
def test_gpus_are_counted_as_the_scheduler_counts_them(spec: Object, count: int | None):
    request = gpu_request(pod(spec=spec))
    assert request is not None
    assert request.count == count


def test_a_fraction_of_a_gpu_is_not_a_known_number():
    request = gpu_request(pod(gpus=None, metadata={"annotations": {"gpu-fraction": "0.5"}}))
    assert request is not None
    assert request.count is None


class TestClaims:
    """GPUs that are claimed by Dynamic Resource Allocation."""

    POD = pod(
        gpus=None,
        spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
        resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "train-0-gpu-x"}],
    )

    def test_a_claim_that_was_not_read_is_an_unknown_number(self):
        request = gpu_request(self.POD)
        assert request is not None
        assert request.count is None

    def test_allocated_devices_are_counted(self):
        results = [
            {"driver": "gpu.nvidia.com", "pool": "gpu001", "device": f"gpu-{n}"} for n in range(4)
        ]
        claim = {"status": {"allocation": {"devices": {"results": results}}}}
        assert claim_gpus(claim) == 4
        request = gpu_request(self.POD, {("ml", "train-0-gpu-x"): 4})
        assert request is not None
        assert request.count == 4

    def test_a_slice_of_a_gpu_is_an_unknown_number(self):
        results = [{"driver": "gpu.nvidia.com", "device": "gpu-0-mig-1g10gb-0"}]
        assert claim_gpus({"status": {"allocation": {"devices": {"results": results}}}}) is None

    def test_a_claim_of_other_devices_makes_no_job(self):
        results = [{"driver": "dra.net", "pool": "a", "device": "eth1"}]
        claim = {"status": {"allocation": {"devices": {"results": results}}}}
        assert claim_gpus(claim) == 0
        assert gpu_request(self.POD, {("ml", "train-0-gpu-x"): 0}) is None
        asked = {"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "rdma"}}]}}}
        assert claim_gpus(asked) == 0
