"""Rules of `forewarn dev`: all pages are up, every asset is there, one click runs, it stops."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from pipelines import dev_servers
from pipelines.dev_servers import BOARD_PORT, DAGSTER_PORT, HOST, MLFLOW_PORT
from pipelines.end_to_end.demo import SAMPLES

NAMES = ("Board", "MLflow", "Dagster")
PORTS = (BOARD_PORT, DAGSTER_PORT, MLFLOW_PORT)
LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
STATUS = "query($r: ID!) { runOrError(runId: $r) { ... on Run { status } } }"
SERVED = """{ repositoriesOrError { ... on RepositoryConnection { nodes { name location { name }
  schedules { name scheduleState { status } } sensors { name sensorState { status } } } } }
  assetNodes { assetKey { path } } }"""


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def ask(query: str, **variables: Any) -> Any:
    asked = {"query": query, "variables": variables}
    address = f"http://{HOST}:{DAGSTER_PORT}/graphql"
    return requests.post(address, json=asked, timeout=60).json()["data"]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    if taken := [port for port in PORTS if is_taken(port)]:
        pytest.skip(f"ports {taken} are taken")
    values = {
        "site": "dev",
        "inputs": str(SAMPLES / "inputs.yaml"),
        "data_root": "data",
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-31T00:00:00Z",
        "data_partition": "day",
    }
    (tmp_path / "forewarn.yaml").write_text(yaml.safe_dump(values))
    # Named like a library that Dagster imports: it must not be run.
    (tmp_path / "gql.py").write_text("raise RuntimeError('taken for the library')")
    entry = "from pipelines.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", entry, "dev", "--settings", str(tmp_path / "forewarn.yaml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@pytest.mark.slow
def test_everything_is_up_runs_at_a_click_and_stops(servers: subprocess.Popen[str]) -> None:
    assert servers.stdout is not None
    said = []
    for line in servers.stdout:  # theirs and the servers' own
        said.append(line.split(" ")[0])
        if line.startswith("Ctrl-C"):
            break
    assert [word for word in said if word in NAMES] == list(NAMES)
    served = ask(SERVED)
    (node,) = served["repositoriesOrError"]["nodes"]
    states = [s["scheduleState"]["status"] for s in node["schedules"]]
    states += [s["sensorState"]["status"] for s in node["sensors"]]
    assert set(states) == {"STOPPED"}
    assert len(served["assetNodes"]) >= 28
    place = {
        "repositoryName": node["name"],
        "repositoryLocationName": node["location"]["name"],
        "pipelineName": "records",
    }
    launched = ask(LAUNCH, p={"selector": place, "mode": "default"})["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    until = time.monotonic() + 240
    while (status := ask(STATUS, r=launched["run"]["runId"])["runOrError"]["status"]) not in (
        "SUCCESS",
        "FAILURE",
    ):
        assert time.monotonic() < until, status
        time.sleep(0.5)
    assert status == "SUCCESS"
    servers.send_signal(signal.SIGTERM)
    assert servers.wait(60) == 0
    assert not [port for port in PORTS if is_taken(port)]


def test_servers_that_do_not_stop_are_killed_together_whatever_key_is_pressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dev_servers, "_STOP_SECONDS", 0.2)
    before = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)}
    stubborn = ["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"]
    servers = [
        subprocess.Popen(stubborn, stdout=subprocess.PIPE, start_new_session=True) for _ in range(2)
    ]
    for server in servers:
        assert server.stdout is not None
        server.stdout.readline()  # it has set its trap
        server.stdout.close()
    threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
    try:
        dev_servers._stop(servers)
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    assert [server.returncode for server in servers] == [-signal.SIGKILL] * 2
