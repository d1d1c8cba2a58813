"""`forewarn init` on a real Slurm, a stand-in for Kubernetes and a real Prometheus."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from features.errors import SettingsError, SourceError
from pipelines.doctor.hook import slurm_rights
from pipelines.doctor.sources import probe_slurm
from pipelines.site_init.files import HOOK, INPUTS, SETTINGS
from pipelines.site_init.prometheus import look_at_prometheus
from pipelines.site_init.site import Asked, init_site
from pipelines.site_init.slurm import look_at_slurm
from pipelines.sources.http.client import HttpClient
from pipelines.sources.http.settings import HttpSettings
from pipelines.sources.site.server_inputs import SlurmInput
from pipelines.sources.slurm.commands import CommandError, LocalCommands
from remediation.actuators.slurm_run import LocalRunner
from tests.real.kubernetes_server import Call, Fault, KubernetesServer
from tests.real.prometheus_server import ABSENT, PROGRAM, PrometheusServer
from tests.real.slurm_cluster import ACCOUNTING, PROGRAMS, SlurmCluster, why_not

pytestmark = [pytest.mark.real]

SWITCHES = ("SwitchName=leaf0 Nodes=gpu[000-003]",)
HOURS = 30
STEP_S = 60


def told(line: str) -> None:
    del line


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := why_not():
        pytest.skip(reason)
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), switches=SWITCHES) as booted:
        yield booted


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    if PROGRAM is None:
        pytest.skip(ABSENT)
    with PrometheusServer(tmp_path_factory.mktemp("prometheus")) as server:
        now_ms = int(time.time()) * 1000
        ts = [now_ms - s * 1000 for s in range(HOURS * 3600, 0, -STEP_S)]
        series = [
            (
                {
                    "__name__": "DCGM_FI_DEV_GPU_TEMP",
                    "job": "dcgm",
                    "gpu": str(gpu),
                    "UUID": f"GPU-{gpu}",
                    "Hostname": "gpu000",
                },
                ts,
                [40.0] * len(ts),
            )
            for gpu in range(8)
        ]
        server.write(series)
        yield server


def prefix(cluster: SlurmCluster) -> tuple[str, ...]:
    return ("env", *(f"{name}={value}" for name, value in cluster.environment.items()))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.slow
def test_a_site_is_written_from_slurm_and_prometheus_and_passes_its_own_checks(
    slurm: SlurmCluster, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    out, now = tmp_path / "site", datetime.now(UTC)
    asked = Asked(out=out, scheduler="slurm", prometheus=prometheus.url, prefix=prefix(slurm))
    made = init_site(asked, now=now, say=told)
    assert made.exit_code == 0, made.words()
    assert made.config.problems == ()
    settings, inputs = read(out / SETTINGS), read(out / INPUTS)
    age = now - settings["start"]
    assert timedelta(hours=HOURS - 2) < age <= timedelta(hours=HOURS)
    telemetry, scheduler = inputs["inputs"]
    assert telemetry["matchers"] == ['job="dcgm"']
    assert telemetry["interval_s"] == STEP_S
    assert scheduler["questions"] == ["nodes", "queue", "reservations", "topology"]
    assert read(out / HOOK)["actuator"] == {"kind": "dry_run"}
    states = {one.name: one.finding.state for one in made.examination.looked}
    assert states["hook: cluster"] in ("ok", "warn")
    assert states["hook: rights"] == "ok"
    with pytest.raises(SettingsError, match="nothing is overwritten"):
        init_site(asked, now=now, say=told)


@pytest.mark.slow
def test_a_real_slurm_is_told_as_it_is(slurm: SlurmCluster) -> None:
    found = look_at_slurm(LocalCommands(environment=slurm.environment))
    assert (found.cluster, found.n_nodes, found.n_gpus) == ("forewarn", 4, 32)
    assert (found.has_accounting, found.has_topology) == (False, True)
    assert found.partitions == ("batch",)
    runner = LocalRunner(environment=slurm.environment)
    assert slurm_rights(runner, ()).state == "ok"
    runner_as = LocalRunner(prefix=("env",), environment=slurm.environment)
    assert slurm_rights(runner_as, ("env",)).state == "warn"
    # A question that needs slurmdbd is found to have no answer.
    spec = SlurmInput(kind="slurm")
    inputs: Any = None
    looked = probe_slurm(
        inputs, spec, datetime.now(UTC), runner=LocalCommands(environment=slurm.environment)
    )
    assert looked.state == "FAIL"
    assert "no accounting" in looked.what
    asks_less = SlurmInput(kind="slurm", questions=("nodes", "queue"))
    looked = probe_slurm(
        inputs, asks_less, datetime.now(UTC), runner=LocalCommands(environment=slurm.environment)
    )
    assert (looked.state, "4 nodes" in looked.what) == ("ok", True)
    nowhere = LocalCommands(environment={**slurm.environment, "SLURM_CONF": "/nonexistent"})
    with pytest.raises(CommandError):
        probe_slurm(inputs, spec, datetime.now(UTC), runner=nowhere)


@pytest.mark.slow
def test_accounting_that_answers_is_seen(tmp_path: Path) -> None:
    if reason := why_not((*PROGRAMS, *ACCOUNTING)):
        pytest.skip(reason)
    with SlurmCluster(tmp_path / "slurm", has_accounting=True) as booted:
        found = look_at_slurm(LocalCommands(environment=booted.environment))
        assert (found.has_accounting, found.has_topology) == (True, False)


def test_a_prometheus_without_gpus_says_what_it_lacks(tmp_path: Path) -> None:
    if PROGRAM is None:
        pytest.skip(ABSENT)
    with PrometheusServer(tmp_path) as server:
        client = HttpClient(HttpSettings(server.url))
        with pytest.raises(SourceError, match="let it scrape dcgm-exporter"):
            look_at_prometheus(client, now=datetime.now(UTC))
        client.close()


def allowed(call: Call) -> Fault | None:
    """Answers a SelfSubjectAccessReview, which the stand-in does not know; all but events."""
    if not call.path.endswith("/selfsubjectaccessreviews"):
        return None
    asked = call.body["spec"]["resourceAttributes"]
    status = {"allowed": asked["resource"] != "events"}
    body = b'{"status": {"allowed": true}}' if status["allowed"] else b'{"status": {}}'
    return Fault(code=201, body=body)


def test_a_site_is_written_from_kubernetes(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes", reason="the official client (package kubernetes) is not here")
    with KubernetesServer(token="token-of-the-test") as server:  # noqa: S106
        for number in range(2):
            server.add_node(f"gpu00{number}")
            pod = server.add_pod(
                f"nvidia-dcgm-exporter-{number}",
                f"gpu00{number}",
                labels={"app": "nvidia-dcgm-exporter"},
                gpus=0,
            )
            server.store.put(
                "pods", {**pod, "status": {"phase": "Running", "podIP": f"127.0.0.{number + 2}"}}
            )
        server.add_node("cpu0", status={"allocatable": {}, "conditions": []})
        server.fault = allowed
        config = tmp_path / "kubeconfig"
        config.write_text(yaml.safe_dump(server.kubeconfig()))
        out = tmp_path / "site"
        asked = Asked(out=out, scheduler="kubernetes", kubeconfig=config, site="k")
        made = init_site(asked, now=datetime.now(UTC), say=told)
    assert made.config.problems == (), made.words()
    inputs = read(out / INPUTS)["inputs"]
    assert inputs[0]["nodes"] == {
        "http://127.0.0.2:9400/metrics": "gpu000",
        "http://127.0.0.3:9400/metrics": "gpu001",
    }
    assert inputs[1] == {"kind": "kubernetes", "kubeconfig": str(config)}
    findings = {one.name: one.finding for one in made.examination.looked}
    kubernetes = findings["input kubernetes kubernetes (current context)"]
    # Events may not be read: known by asking, and no reason to fail.
    assert (kubernetes.state, "list events" in kubernetes.what) == ("warn", True)
    assert findings["hook: rights"].state == "ok"
    # Nothing listens on the exporters' pages.
    assert made.exit_code == 1
