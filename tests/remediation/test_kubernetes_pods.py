from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SourceError
from pipelines.sources.kubernetes.workloads import workload_of
from remediation.actuators.kubernetes_pods import job_views, read_pod
from tests.remediation.kubernetes_fake import START

GPUS = ("nvidia.com/gpu",)


def container(gpus=1, *, name="nvidia.com/gpu", **more):
    return {"resources": {"limits": {name: str(gpus)}}} | more


def pod(name="p", *, owner="ReplicaSet", containers=None, phase="Running", spec=None, **metadata):
    owners = [{"kind": owner, "name": "own", "controller": True}] if owner else []
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"u-{name}"}
        | ({"ownerReferences": owners} if owners else {})
        | metadata,
        "spec": {"nodeName": "n1", "containers": containers or [container()]} | (spec or {}),
        "status": {"phase": phase, "startTime": "2026-01-05T08:00:00Z"},
    }


def read(found):
    return read_pod(found, GPUS)


def notes(**values):
    return {
        "annotations": {key.replace("__", "/").replace("_", "-"): values[key] for key in values}
    }


@pytest.mark.parametrize(
    ("found", "fate"),
    [
        (pod(), "evictable"),
        (pod(owner="DaemonSet"), "stays"),
        (pod(owner="Node"), "stays"),
        (pod(annotations={"kubernetes.io/config.mirror": "x"}), "stays"),
        (pod(annotations={"kubernetes.io/config.source": "file"}), "stays"),
        (pod(owner="DaemonSet", deletionTimestamp="2026-01-05T10:00:00Z"), "stays"),
        (pod(phase="Succeeded"), "finished"),
        (pod(phase="Failed"), "finished"),
        (pod(deletionTimestamp="2026-01-05T10:00:00Z"), "leaving"),
        (pod(owner=None), "bare"),
        (pod(annotations={"forewarn/eviction": "never"}), "protected"),
        (
            pod(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
            "protected",
        ),
        (pod(annotations={"karpenter.sh/do-not-disrupt": "true"}), "protected"),
        (pod(annotations={"forewarn/eviction": "allowed"}), "evictable"),
        (pod(phase="Pending"), "evictable"),
    ],
)
def test_g21_what_a_drain_does_with_a_pod(found, fate):
    assert read(found).fate == fate


def test_an_owner_that_does_not_control_makes_nothing_anew():
    owners = [{"kind": "Workflow", "name": "w"}]
    assert read(pod(owner=None, ownerReferences=owners)).fate == "bare"


@pytest.mark.parametrize(
    ("spec", "n_gpus"),
    [
        ({"containers": [container(2), container(4)]}, 6),
        ({"containers": [{}]}, 0),
        ({"containers": [container(2)], "initContainers": [container(8)]}, 8),
        (
            {
                "containers": [container(2)],
                "initContainers": [container(1, restartPolicy="Always")],
            },
            3,
        ),
        ({"containers": [container(1, name="nvidia.com/mig-1g.10gb")]}, None),
        ({"containers": [container(1, name="nvidia.com/gpu.shared")]}, None),
        ({"containers": [{}], "resourceClaims": [{"name": "gpu"}]}, None),
    ],
)
def test_gpus_of_a_pod_and_shares_are_unknown(spec, n_gpus):
    assert read(pod(spec=spec)).n_gpus == n_gpus


LABELS = {
    "jobset.sigs.k8s.io/jobset-name": ["js"],
    "ray.io/originated-from-cr-name": ["ray"],
    "ray.io/originated-from-crd": ["RayJob"],
    "ray.io/cluster": ["rc"],
    "leaderworkerset.sigs.k8s.io/name": ["lws"],
    "leaderworkerset.sigs.k8s.io/group-index": ["0"],
    "training.kubeflow.org/job-name": ["pt"],
    "training.kubeflow.org/operator-name": ["pytorchjob-controller", "mpi-operator"],
    "mpi-job-name": ["old"],
    "volcano.sh/job-name": ["vc"],
    "sparkoperator.k8s.io/app-name": ["sp"],
    "kueue.x-k8s.io/pod-group-name": ["grp"],
    "kueue.x-k8s.io/queue-name": ["q"],
    "batch.kubernetes.io/job-completion-index": ["0"],
}


@settings(max_examples=200)
@given(
    labels=st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in LABELS.items()}),
    owner=st.sampled_from([None, "ReplicaSet", "Job", "PyTorchJob", "StatefulSet", "RayCluster"]),
)
def test_a_job_has_the_id_that_its_history_has(labels, owner):
    found = pod(owner=owner, labels=labels)
    history, own = workload_of(found), read(found)
    assert own.queue == history.queue
    # Pods of a Job without index are work of their own: the history tells them apart by step.
    assert own.job_id in (history.job_id, f"{history.job_id}/p")
    assert (own.job_id == history.job_id) == (history.is_gang or history.kind == "pod")


def test_a_job_is_on_every_node_of_its_pods_also_of_those_without_gpus():
    same = {"training.kubeflow.org/job-name": "t"}
    found = [
        read(pod("launcher", labels=same, containers=[{}], spec={"nodeName": "cpu1"})),
        read(pod("w0", labels=same, spec={"nodeName": "n2"}, containers=[container(8)])),
        read(pod("w1", labels=same, containers=[container(8)])),
        read(pod("web", containers=[{}])),
        read(pod("done", labels=same, phase="Succeeded", spec={"nodeName": "n9"})),
        read(pod("agent", owner="DaemonSet")),
    ]
    (job,) = job_views(found, as_of=START)
    assert (job.job_id, job.nodes, job.n_gpus) == (
        "ml/trainingjob/t",
        ("cpu1", "n1", "n2"),
        16,
    )


@pytest.mark.parametrize(
    ("written", "age_h"),
    [
        (("2026-01-05T09:30:00Z",), 0.5),
        (("2026-01-05T09:30:00Z", "2026-01-05T09:45:00Z"), 0.25),
        (("2026-01-05T10:00:30Z",), 0.0),
        (("2026-01-05T18:00:00Z",), None),
        (("yesterday",), None),
        (("0001-01-01T00:00:00+14:00",), None),
        ((), None),
    ],
)
def test_g27_the_age_of_a_checkpoint_comes_from_our_annotation(written, age_h):
    labels = {"volcano.sh/job-name": "v"}
    pods = [
        pod(f"p{i}", labels=labels, annotations={"forewarn/last-checkpoint": at})
        for i, at in enumerate(written)
    ] or [pod(labels=labels)]
    (job,) = job_views([read(one) for one in pods], as_of=START)
    assert job.checkpoint_age_h == age_h


@pytest.mark.parametrize(
    ("said", "is_allowed"),
    [
        ((None, None), None),
        (("allowed", None), None),
        (("allowed", "allowed"), True),
        (("allowed", "never"), False),
    ],
)
def test_a_job_may_be_evicted_if_all_its_pods_say_so(said, is_allowed):
    pods = [
        read(
            pod(
                f"p{i}",
                labels={"volcano.sh/job-name": "v"},
                annotations={"forewarn/eviction": one} if one else {},
            )
        )
        for i, one in enumerate(said)
    ]
    assert job_views(pods, as_of=START)[0].is_requeue_allowed is is_allowed


def test_how_long_a_job_still_runs_is_known_from_its_own_limit():
    found = read(pod(spec={"activeDeadlineSeconds": 3 * 3600}))
    assert job_views([found], as_of=START)[0].remaining_h == 1.0
    assert job_views([read(pod())], as_of=START + timedelta(days=1))[0].remaining_h is None


def test_a_pod_without_a_name_is_no_answer_of_the_api():
    with pytest.raises(SourceError, match="no name"):
        read({"metadata": {}})
