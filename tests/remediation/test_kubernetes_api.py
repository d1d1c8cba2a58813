import json
import subprocess
import sys

import pytest

from features.errors import DataError, SourceError
from remediation.actuators.exchange import Answer, NoAnswerError, Waits
from remediation.actuators.kubernetes_api import Limits, OfficialApi, Reads, RefusedError
from remediation.actuators.kubernetes_cluster import KubernetesCluster, node_path
from tests.remediation.kubernetes_fake import START, Bench, FakeApi, Fault


def bench_of(n_nodes, page_size=2):
    bench = Bench(limits=Limits(page_size=page_size, first_wait_s=0.1))
    for number in range(n_nodes):
        bench.add_node(f"n{number}")
    return bench


def nodes_read(bench):
    return [node.name for node in bench.cluster.read().nodes]


def test_a_cluster_is_read_page_by_page():
    bench = bench_of(5)
    bench.add_pod("w0", "n0")
    bench.add_pod("w1", "n1")
    state = bench.cluster.read()
    assert [node.name for node in state.nodes] == ["n0", "n1", "n2", "n3", "n4"]
    assert state.by_name["n0"].rack == "r1"
    assert [(job.job_id, job.nodes, job.n_gpus) for job in state.jobs] == [
        ("default/pytorchjob/train", ("n0", "n1"), 16)
    ]
    assert [path for _, path in bench.api.calls].count("/api/v1/nodes") == 3


def test_a_list_that_expires_is_begun_anew_and_no_node_comes_twice():
    bench = bench_of(5)

    def expire_once(number, method, path):
        return Fault("before", 410) if number == 1 else None

    bench.api.fault = expire_once
    assert nodes_read(bench) == ["n0", "n1", "n2", "n3", "n4"]


def test_a_list_that_keeps_expiring_is_an_error_not_a_part_of_a_cluster():
    bench = bench_of(5)
    bench.api.fault = lambda number, method, path: Fault("before", 410) if number % 2 else None
    with pytest.raises(SourceError, match="expired 4 times"):
        bench.cluster.read()


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("call", [0, 1, 2, 3])
def test_a_read_that_fails_for_a_while_is_tried_again(code, call):
    bench = bench_of(5)
    bench.api.fault = lambda number, method, path: (
        Fault("before", code, "1") if number == call else None
    )
    assert len(nodes_read(bench)) == 5


@pytest.mark.parametrize("fault", [Fault("before", 403), Fault("lost"), Fault("before", 503)])
@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/pods"])
def test_what_cannot_be_read_whole_is_an_error(fault, path):
    bench = bench_of(5)
    bench.api.fault = lambda number, method, found: fault if found == path and number >= 1 else None
    with pytest.raises(SourceError):
        bench.cluster.read()


def test_a_refused_read_is_not_asked_again():
    bench = bench_of(1)
    bench.api.fault = lambda number, method, path: Fault("before", 403)
    with pytest.raises(RefusedError, match="HTTP 403"):
        bench.cluster.read()
    assert len(bench.api.calls) == 1


def test_a_server_that_asks_for_a_long_wait_is_not_waited_for():
    bench = bench_of(1)
    bench.api.fault = lambda number, method, path: Fault("before", 429, "3600")
    with pytest.raises(SourceError, match="HTTP 429"):
        bench.cluster.read()
    assert bench.api.now == START


class Canned(FakeApi):
    body: bytes = b""

    def ask(self, method, path, *, params, body):
        return Answer(200, self.body)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>log in</html>",
        b"[]",
        b'{"kind":"Status"}',
        b'{"items":{}}',
        json.dumps({"items": [{"metadata": {}}]}).encode(),
        json.dumps({"items": ["n1"]}).encode(),
        json.dumps({"items": [], "metadata": {"continue": "x"}}).encode(),
    ],
)
def test_an_answer_that_is_no_list_is_an_error(body):
    api = Canned()
    api.body = body
    with pytest.raises(SourceError):
        KubernetesCluster(api, waits=api.waits).read()


def test_a_list_of_none_is_none():
    api = Canned()
    api.body = b'{"items":null,"metadata":{}}'
    assert KubernetesCluster(api, waits=api.waits).read().nodes == ()


def test_only_nodes_of_the_selector_are_of_the_cluster():
    bench = bench_of(1)
    bench.add_node("other", metadata={"name": "other"})
    cluster = KubernetesCluster(bench.api, selector="node-pool=a100")
    assert [node.name for node in cluster.read().nodes] == ["n0"]


@pytest.mark.parametrize("name", ["..", "a/b", "a,spec.nodeName!=a", "", "A", "a?x=1", "a\n"])
def test_g23_a_name_that_could_lead_elsewhere_is_never_sent(name):
    bench = bench_of(1)
    with pytest.raises(DataError, match="Nothing was sent"):
        node_path(name)
    with pytest.raises(DataError, match="Nothing was sent"):
        bench.cluster.pods_on(name)
    assert bench.actuator.state(name) is None
    assert bench.api.calls == []


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0),
        ("Mon, 05 Jan 2026 10:00:09 GMT", 9.0),
        ("Mon, 05 Jan 2026 09:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(said, seconds):
    assert Waits(now=lambda: START).asked(Answer(429, b"", said)) == seconds


def test_reads_say_what_failed():
    api = FakeApi(fault=lambda number, method, path: Fault("unreachable"))
    with pytest.raises(SourceError, match="http://fake/api/v1/nodes/n1 failed: refused"):
        Reads(api, waits=api.waits).get("/api/v1/nodes/n1")


def test_an_address_that_nobody_serves_was_surely_not_reached(tmp_path):
    pytest.importorskip("kubernetes", reason="the official client is not here")
    config = tmp_path / "config"
    config.write_text(
        json.dumps(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "c", "user": {"token": "hidden-token"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            }
        )
    )
    api = OfficialApi(kubeconfig=config)
    with pytest.raises(NoAnswerError) as told:
        api.ask("GET", "/version", params={}, body=None)
    assert not told.value.may_have_acted
    assert "hidden-token" not in str(told.value)
    api.close()


def test_importing_the_actuators_loads_no_client():
    code = (
        "import sys, remediation.actuators.kubernetes, remediation.actuators.webhook;"
        "print(sorted({'kubernetes', 'urllib3', 'mlflow', 'lightgbm', 'dagster', 'pandas',"
        " 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
